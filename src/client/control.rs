//! The way back: a stream held open to a server, over which this client is dialled.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::agent::Core;
use super::clock::{Jitter, SECOND, nanos};
use crate::rpc::RpcError;
use crate::rpc::duplex::Duplex;
use crate::rpc::sessions::{ControlRequest, Dial, NodeControl, NodeSession, SessionRequest};

/// How long a server may take to accept a stream.
const OPENING: Duration = Duration::from_secs(10);
/// Sessions at a time; a server that asks for more hears nothing, and says so.
const SESSIONS: usize = 1_024;

/// What answers in a session that a server opened.
pub trait Answers: Send + Sync {
    /// Answers what comes over the stream, to its end.
    fn answer(&self, stream: Duplex) -> BoxFuture<'static, ()>;
}

/// Holds the stream open until the task is aborted.
pub(super) async fn keep(core: Arc<Core>, answers: Arc<dyn Answers>) {
    let mut chance = Jitter::random();
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(|c| c.registered).await;
    let turns = Arc::new(Semaphore::new(SESSIONS));
    let mut refused = false;
    loop {
        let asked = ControlRequest { node_id: core.id() };
        match core.caller.open::<NodeControl>(&asked, OPENING).await {
            Ok(stream) => {
                refused = false;
                dialled(&core, stream, &answers, &turns).await;
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

/// Takes up what the server asks for, until the stream ends.
async fn dialled(
    core: &Arc<Core>,
    mut stream: Duplex,
    answers: &Arc<dyn Answers>,
    turns: &Arc<Semaphore>,
) {
    loop {
        let dial = match stream.inflow.message::<Dial>().await {
            Ok(dial) => dial,
            Err(broken) => return tracing::debug!("control stream ended: {broken}"),
        };
        let Ok(turn) = Arc::clone(turns).try_acquire_owned() else {
            tracing::warn!("{SESSIONS} sessions of servers are open: one more is not taken up");
            continue;
        };
        let (core, answers) = (Arc::clone(core), Arc::clone(answers));
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(error) = take_up(&core, dial, answers).await {
                tracing::debug!("a session of a server: {error}");
            }
        });
    }
}

async fn take_up(core: &Core, dial: Dial, answers: Arc<dyn Answers>) -> Result<(), RpcError> {
    let asked = SessionRequest {
        node_id: core.id(),
        session: dial.session,
    };
    let stream = core.caller.open::<NodeSession>(&asked, OPENING).await?;
    answers.answer(stream).await;
    Ok(())
}
