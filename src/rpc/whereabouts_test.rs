use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant as Moment;

use drover_testkit::{LONG, eventually, so};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::caller::Servers;
use crate::client::Pool;
use crate::forward::{ForwardRequest, ServerForward};
use crate::server::{CallerLimits, RpcServer, serve};
use crate::service::{Access, Call, Service};

/// Takes what is requested of it once it is let to.
struct Leader {
    requested: AtomicUsize,
    may: Semaphore,
}

async fn leader(may: usize) -> (Arc<Leader>, RpcServer, LeaderPlace) {
    let leader = Arc::new(Leader {
        requested: AtomicUsize::new(0),
        may: Semaphore::new(may),
    });
    let takes = async |leader: Arc<Leader>, _: Call, _: ForwardRequest, stream: Duplex| {
        leader.requested.fetch_add(1, Ordering::SeqCst);
        let _turn = leader.may.acquire().await;
        drop(stream);
        Ok(())
    };
    let service = Service::new(Arc::clone(&leader));
    let service = service.stream::<ServerForward, _, _>(Access::Public, takes);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service), CallerLimits::default()).unwrap();
    let place = LeaderPlace::There(rpc.addr().to_string());
    (leader, rpc, place)
}

type Reaching = AbortOnDropHandle<Result<Option<Duplex>, (String, RpcError)>>;

fn reach(whom: &watch::Sender<LeaderPlace>, deadline: Duration) -> Reaching {
    let whom = Whereabouts::watched(whom.subscribe(), LeaderPlace::clone);
    AbortOnDropHandle::new(tokio::spawn(async move {
        let caller = Caller::network(Pool::new(1), Servers::default(), "");
        let requested = ForwardRequest::default();
        caller
            .reach_whom::<ServerForward>(&whom, &requested, deadline)
            .await
    }))
}

async fn requested(leader: &Leader, times: usize) {
    let requested = || so(leader.requested.load(Ordering::SeqCst) == times);
    eventually("it to be asked", LONG, requested).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_is_slow_is_asked_once_and_reached() {
    /// Much longer than it is waited for between two attempts.
    const SLOW: Duration = Duration::from_millis(500);
    let (slow, _rpc, place) = leader(0).await;
    let whom = watch::Sender::new(place);
    let (reaching, begun) = (reach(&whom, LONG), Moment::now());
    requested(&slow, 1).await;
    let later = || so(begun.elapsed() > SLOW);
    eventually("some time to pass", LONG, later).await.unwrap();
    slow.may.add_permits(1);
    assert!(reaching.await.unwrap().unwrap().is_some());
    assert_eq!(slow.requested.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_attempt_is_given_up_when_another_leads() {
    let (still, _rpc, there) = leader(0).await;
    let (next, _next, after) = leader(1).await;
    for (moves, times) in [(after, 1), (LeaderPlace::Here, 0)] {
        let whom = watch::Sender::new(there.clone());
        let reaching = reach(&whom, LONG);
        let before = next.requested.load(Ordering::SeqCst);
        requested(&still, 1).await;
        still.requested.store(0, Ordering::SeqCst);
        whom.send_replace(moves.clone());
        let reached = reaching.await.unwrap().unwrap();
        assert_eq!(reached.is_none(), moves == LeaderPlace::Here);
        assert_eq!(next.requested.load(Ordering::SeqCst) - before, times);
    }
}

#[tokio::test]
async fn who_leads_is_waited_for_while_there_is_time() {
    /// As good as nothing.
    const SHORT: Duration = Duration::from_millis(20);
    let (next, _rpc, place) = leader(1).await;
    let whom = watch::Sender::new(LeaderPlace::Unknown);
    assert!(reach(&whom, SHORT).await.unwrap().unwrap().is_none());
    let reaching = reach(&whom, LONG);
    // It has looked, and waits.
    let waits = || so(whom.receiver_count() > 2);
    eventually("it to wait", LONG, waits).await.unwrap();
    whom.send_replace(place);
    assert!(reaching.await.unwrap().unwrap().is_some());
    assert_eq!(next.requested.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_does_not_answer_is_named() {
    const SHORT: Duration = Duration::from_millis(20);
    let nobody = format!("127.0.0.1:{}", drover_testkit::free_port().unwrap());
    let whom = watch::Sender::new(LeaderPlace::There(nobody.clone()));
    let (addr, error) = reach(&whom, SHORT).await.unwrap().unwrap_err();
    assert_eq!(addr, nobody);
    assert!(error.is_transient());
}
