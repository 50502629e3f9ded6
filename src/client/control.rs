//! The way back: a stream held open to a server, over which this client is dialled.
//!
//! Where its connection is to go (certificates were loaded anew at one of the two ends), another is
//! opened over a new one first; the older stream is answered until the server lets it go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::agent::Core;
use super::clock::{Jitter, SECOND, nanos};
use drover_rpc::RpcError;
use drover_rpc::caller::Caller;
use drover_rpc::client::Carrier;
use drover_rpc::duplex::Duplex;
use drover_rpc::sessions::{ControlRequest, Dial, NodeControl, NodeSession, SessionRequest};

/// How long a server may take to accept a stream.
const OPENING: Duration = Duration::from_secs(10);
/// How long a stream is answered that another took the place of.
const DRAINING: Duration = Duration::from_secs(30);
/// Sessions at a time; a server that requests more gets no answer, and reports that.
const SESSIONS: usize = 1_024;

/// What answers in a session that a server opened.
pub trait Answers: Send + Sync {
    /// Answers what comes over the stream, to its end.
    fn answer(&self, stream: Duplex) -> BoxFuture<'static, ()>;
}

/// Holds the stream open until the task is aborted.
pub(super) async fn keep(core: Arc<Core>, answers: Arc<dyn Answers>) {
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(|c| c.registered).await;
    let named = Arc::clone(&core);
    let way = DialSettings {
        caller: core.caller.clone(),
        node: Box::new(move || named.id()),
        answers,
        turns: Arc::new(Semaphore::new(SESSIONS)),
    };
    stand(Arc::new(way)).await;
}

/// How a node is dialled, and what answers then.
pub struct DialSettings {
    /// The servers.
    pub caller: Caller,
    /// The node's id as it is now.
    pub node: Box<dyn Fn() -> String + Send + Sync>,
    /// What answers.
    pub answers: Arc<dyn Answers>,
    /// This many sessions at a time.
    pub turns: Arc<Semaphore>,
}

/// Keeps a stream open, for ever.
pub async fn stand(way: Arc<DialSettings>) {
    let mut chance = Jitter::random();
    let mut refused = false;
    let mut older: Option<AbortOnDropHandle<()>> = None;
    loop {
        let request = ControlRequest {
            node_id: (way.node)(),
        };
        match way.caller.carried::<NodeControl>(&request, OPENING).await {
            Ok((stream, carrier)) => {
                refused = false;
                if let Some(older) = older.take() {
                    // Its own end comes from the server, which has this one now.
                    tokio::spawn(timeout(DRAINING, older));
                }
                let carrier = carrier.map(Arc::new);
                let heard = dialled(Arc::clone(&way), stream, carrier.clone());
                let mut heard = AbortOnDropHandle::new(tokio::spawn(heard));
                tokio::select! {
                    // A panic is logged where it happened; the stream is opened again.
                    _ = &mut heard => {}
                    () = parted(carrier.as_deref()) => older = Some(heard),
                }
            }
            Err(error @ RpcError::Api(_)) if !error.is_transient() => {
                if !refused {
                    tracing::warn!("servers cannot reach this node: {error}");
                }
                refused = true;
                sleep(nanos(10 * SECOND)).await;
            }
            Err(error) => tracing::debug!("control stream: {error}"),
        }
        sleep(nanos(SECOND / 4 + chance.below(SECOND))).await;
    }
}

/// Ready once a stream is to go over another connection.
async fn parted(carrier: Option<&Carrier>) {
    match carrier {
        Some(carrier) => carrier.parts().await,
        None => std::future::pending().await,
    }
}

/// Takes up what the server requests, until the stream ends.
async fn dialled(way: Arc<DialSettings>, mut stream: Duplex, carrier: Option<Arc<Carrier>>) {
    loop {
        let dial = match stream.inflow.message::<Dial>().await {
            Ok(dial) => dial,
            Err(broken) => return tracing::debug!("control stream ended: {broken}"),
        };
        if dial.session.is_empty() {
            if let Some(carrier) = &carrier {
                carrier.leave();
            }
            continue;
        }
        let Ok(turn) = Arc::clone(&way.turns).try_acquire_owned() else {
            tracing::warn!("{SESSIONS} sessions of servers are open: one more is not taken up");
            continue;
        };
        let way = Arc::clone(&way);
        // The session is that server's: none other knows of it.
        let there = carrier.as_deref().map(|carrier| carrier.addr().to_owned());
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(error) = take_up(&way, dial, there.as_deref()).await {
                tracing::debug!("a session of a server: {error}");
            }
        });
    }
}

async fn take_up(way: &DialSettings, dial: Dial, there: Option<&str>) -> Result<(), RpcError> {
    let request = SessionRequest {
        node_id: (way.node)(),
        session: dial.session,
    };
    let caller = there.map_or_else(|| way.caller.clone(), |there| way.caller.at(there));
    let stream = caller.open::<NodeSession>(&request, OPENING).await?;
    way.answers.answer(stream).await;
    Ok(())
}
