//! How a client leaves: it has its own node drained, and waits until nothing runs here any more.

use std::time::Duration;

use drover_events::model::DrainSpec;
use tokio::time::sleep;

use super::agent::{Client, Core};
use crate::config::DrainOnShutdown;
use crate::rpc::RpcError;
use crate::rpc::methods::{
    NodeGetNode, NodeSpecificRequest, NodeUpdateDrain, NodeUpdateDrainRequest,
};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the servers are asked whether the drain is over.
const POLL: Duration = Duration::from_millis(250);

impl Client {
    /// Drains the node where the client was told to (`drain_on_shutdown`), and answers when that is
    /// over. How long it may take is the caller's to say.
    pub async fn leave(&self) {
        let settings = self.core.settings.get();
        let Some(how) = &settings.client.drain_on_shutdown else {
            return;
        };
        tracing::info!("the node drains before the agent ends");
        match drain(&self.core, how).await {
            Ok(()) => tracing::info!("the node is drained"),
            Err(error) => tracing::warn!(%error, "the node could not be drained"),
        }
    }
}

/// What is asked of the servers.
fn spec(how: &DrainOnShutdown) -> DrainSpec {
    let deadline = match how.force {
        true => -1,
        false => i64::try_from(how.deadline.as_nanos()).unwrap_or(i64::MAX),
    };
    DrainSpec {
        deadline,
        ignore_system_jobs: how.ignore_system_jobs,
    }
}

async fn drain(core: &Core, how: &DrainOnShutdown) -> Result<(), RpcError> {
    let node_id = core.node.lock().id.clone();
    let request = NodeUpdateDrainRequest {
        node_id: node_id.clone(),
        drain_spec: Some(spec(how)),
        meta: [("message".to_owned(), "shutting down".to_owned())].into(),
    };
    core.caller
        .once::<NodeUpdateDrain>(&request, CALL_TIMEOUT)
        .await?;
    let request = NodeSpecificRequest {
        node_id,
        ..NodeSpecificRequest::default()
    };
    loop {
        let asked = core.caller.once::<NodeGetNode>(&request, CALL_TIMEOUT);
        match asked.await {
            Ok(answer) if answer.node.as_ref().is_none_or(|node| !node.draining()) => return Ok(()),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "asking how the drain goes"),
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_is_what_is_asked_for() {
        let told = DrainOnShutdown {
            deadline: Duration::from_secs(30),
            force: false,
            ignore_system_jobs: true,
        };
        let asked = spec(&told);
        assert_eq!(
            (asked.deadline, asked.ignore_system_jobs),
            (30_000_000_000, true)
        );
        let forced = DrainOnShutdown {
            force: true,
            ..DrainOnShutdown::default()
        };
        assert_eq!(
            (spec(&forced).deadline, spec(&forced).ignore_system_jobs),
            (-1, false)
        );
    }
}
