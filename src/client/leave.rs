//! How a client leaves: it has its own node drained, and waits until nothing runs here any more.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{Allocation, DrainSpec};
use tokio::time::sleep;

use super::agent::{Client, Core};
use drover_config::DrainOnShutdown;
use drover_rpc::RpcError;
use drover_rpc::methods::{
    NodeGetNode, NodeSpecificRequest, NodeUpdateDrain, NodeUpdateDrainRequest,
};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the servers are queried whether the drain is over.
const POLL: Duration = Duration::from_millis(250);

impl Client {
    /// Drains the node where the client is configured to (`drain_on_shutdown`), and returns when
    /// that is over. How long it may take is the caller's to say.
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

impl Client {
    fn live(&self) -> Vec<Arc<Allocation>> {
        let allocs = self.core.allocs.lock();
        let live = allocs.values().filter(|runner| !*runner.done().borrow());
        live.map(|runner| runner.alloc()).collect()
    }

    /// The allocations of which something runs here.
    pub fn running(&self) -> Vec<String> {
        let live = self.live();
        live.iter().map(|alloc| alloc.id.clone()).collect()
    }

    /// The longest time that a task here has to end once requested. The author of its job does
    /// not choose for how long the agent may live: the job's limit counts up to the limit of the
    /// node, and so does the delay before.
    pub fn longest_kill(&self) -> Duration {
        let most = self.core.settings.get().client.max_kill_timeout;
        longest(&self.live(), most)
    }
}

/// What tasks have that do not say how long.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

fn longest(allocs: &[Arc<Allocation>], most: Duration) -> Duration {
    let groups = allocs.iter().filter_map(|alloc| alloc.group());
    let times = groups.flat_map(|group| {
        let delay = group.shutdown_delay.unwrap_or(0);
        group.tasks.iter().map(move |task| {
            let kill = match u64::try_from(task.kill_timeout) {
                Ok(0) | Err(_) => KILL_TIMEOUT,
                Ok(nanos) => Duration::from_nanos(nanos),
            };
            let delay = delay.max(task.shutdown_delay);
            let delay = Duration::from_nanos(u64::try_from(delay).unwrap_or(0));
            kill.min(most) + delay.min(most)
        })
    });
    times.max().unwrap_or(Duration::ZERO)
}

/// The request to the servers.
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
        let answered = core.caller.once::<NodeGetNode>(&request, CALL_TIMEOUT);
        match answered.await {
            Ok(answer) if answer.node.as_ref().is_none_or(|node| !node.draining()) => return Ok(()),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the drain could not be queried"),
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::Job;

    use super::*;
    use drover_testkit::fixtures::job;

    /// More than any of them has.
    const MOST: Duration = Duration::from_secs(3600);

    #[test]
    fn who_leaves_gives_each_task_its_time_to_end() {
        const SECOND: i64 = 1_000_000_000;
        let alloc = |change: fn(&mut Job)| {
            let mut job = job("service", 1);
            change(&mut job);
            Arc::new(Allocation {
                task_group: "g".into(),
                job: Some(Arc::new(job)),
                ..Allocation::default()
            })
        };
        let plain = alloc(|_| ());
        let slow = alloc(|job| job.task_groups[0].tasks[0].kill_timeout = 20 * SECOND);
        let slower = alloc(|job| {
            job.task_groups[0].tasks[0].kill_timeout = 20 * SECOND;
            job.task_groups[0].shutdown_delay = Some(3 * SECOND);
        });
        assert_eq!(longest(&[], MOST), Duration::ZERO);
        assert_eq!(longest(&[Arc::clone(&plain)], MOST), KILL_TIMEOUT);
        assert_eq!(
            longest(&[plain, Arc::clone(&slow)], MOST),
            Duration::from_secs(20)
        );
        let both = [slower, slow];
        assert_eq!(longest(&both, MOST), Duration::from_secs(23));
        // No job keeps the agent longer than its node allows, before and while it is killed.
        let node = Duration::from_secs(2);
        assert_eq!(longest(&both, node), 2 * node);
    }

    #[test]
    fn what_is_configured_is_what_is_asked_for() {
        let reported = DrainOnShutdown {
            deadline: Duration::from_secs(30),
            force: false,
            ignore_system_jobs: true,
        };
        let requested = spec(&reported);
        assert_eq!(
            (requested.deadline, requested.ignore_system_jobs),
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
