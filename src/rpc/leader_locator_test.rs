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

/// A leader that accepts a stream once a permit is there.
struct Leader {
    calls: AtomicUsize,
    permits: Semaphore,
}

async fn leader(permits: usize) -> (Arc<Leader>, RpcServer, LeaderLocation) {
    let leader = Arc::new(Leader {
        calls: AtomicUsize::new(0),
        permits: Semaphore::new(permits),
    });
    let takes = async |leader: Arc<Leader>, _: Call, _: ForwardRequest, stream: Duplex| {
        leader.calls.fetch_add(1, Ordering::SeqCst);
        let _permit = leader.permits.acquire().await;
        drop(stream);
        Ok(())
    };
    let service = Service::new(Arc::clone(&leader));
    let service = service.stream::<ServerForward, _, _>(Access::Public, takes);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service), CallerLimits::default()).unwrap();
    let place = LeaderLocation::There(rpc.addr().to_string());
    (leader, rpc, place)
}

type Reaching = AbortOnDropHandle<Result<Option<Duplex>, (String, RpcError)>>;

fn reach_leader(leader_place: &watch::Sender<LeaderLocation>, deadline: Duration) -> Reaching {
    let whom = LeaderLocator::watched(leader_place.subscribe(), LeaderLocation::clone);
    AbortOnDropHandle::new(tokio::spawn(async move {
        let caller = Caller::network(Pool::new(1), Servers::default(), "");
        let request = ForwardRequest::default();
        caller
            .reach_whom::<ServerForward>(&whom, &request, deadline)
            .await
    }))
}

async fn wait_for_calls(leader: &Leader, times: usize) {
    let called = || so(leader.calls.load(Ordering::SeqCst) == times);
    eventually("it to be called", LONG, called).await.unwrap();
}

#[tokio::test]
async fn a_slow_leader_is_called_once_and_reached() {
    /// Much longer than the pause between attempts.
    const SLOW: Duration = Duration::from_millis(500);
    let (slow_leader, _rpc, place) = leader(0).await;
    let leader_place = watch::Sender::new(place);
    let (reaching, begun) = (reach_leader(&leader_place, LONG), Moment::now());
    wait_for_calls(&slow_leader, 1).await;
    let later = || so(begun.elapsed() > SLOW);
    eventually("some time to pass", LONG, later).await.unwrap();
    slow_leader.permits.add_permits(1);
    assert!(reaching.await.unwrap().unwrap().is_some());
    assert_eq!(slow_leader.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_attempt_is_given_up_when_another_leads() {
    let (still, _rpc, there) = leader(0).await;
    let (next, _next, after) = leader(1).await;
    for (new_place, times) in [(after, 1), (LeaderLocation::Here, 0)] {
        let leader_place = watch::Sender::new(there.clone());
        let reaching = reach_leader(&leader_place, LONG);
        let before = next.calls.load(Ordering::SeqCst);
        wait_for_calls(&still, 1).await;
        still.calls.store(0, Ordering::SeqCst);
        leader_place.send_replace(new_place.clone());
        let reached = reaching.await.unwrap().unwrap();
        assert_eq!(reached.is_none(), new_place == LeaderLocation::Here);
        assert_eq!(next.calls.load(Ordering::SeqCst) - before, times);
    }
}

#[tokio::test]
async fn who_leads_is_waited_for_while_there_is_time() {
    /// As good as nothing.
    const SHORT: Duration = Duration::from_millis(20);
    let (next, _rpc, place) = leader(1).await;
    let leader_place = watch::Sender::new(LeaderLocation::Unknown);
    let reached = reach_leader(&leader_place, SHORT).await.unwrap().unwrap();
    assert!(reached.is_none());
    let reaching = reach_leader(&leader_place, LONG);
    // It has looked, and waits.
    let waits = || so(leader_place.receiver_count() > 2);
    eventually("it to wait", LONG, waits).await.unwrap();
    leader_place.send_replace(place);
    assert!(reaching.await.unwrap().unwrap().is_some());
    assert_eq!(next.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_does_not_answer_is_named() {
    const SHORT: Duration = Duration::from_millis(20);
    let nobody = format!("127.0.0.1:{}", drover_testkit::free_port().unwrap());
    let leader_place = watch::Sender::new(LeaderLocation::There(nobody.clone()));
    let (addr, error) = reach_leader(&leader_place, SHORT)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(addr, nobody);
    assert!(error.is_transient());
}
