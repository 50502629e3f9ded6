//! What tasks use: a stream of the driver's for each that runs, and the last sample of it for
//! any caller.
//!
//! The stream ends with the task and begins anew with the next start (DRV-05). One that says that
//! the driver measures nothing is left at that, one that closes is over, and one that fails is
//! opened again after a while that grows (DRV-02, DRV-03). Samples that are not requested come
//! seldom: looking at many tasks costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::TaskResourceUsage;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{Hooked, RunningHooks, TaskGiven, TaskHook};
use crate::clock::{Clock, SECOND};
use crate::drivers::{ExitResult, RunningTask, StatsError};

/// The shortest time between two samples.
const SHORTEST: Duration = Duration::from_secs(1);
/// The time between two samples where none is requested.
const UNREQUESTED: Duration = Duration::from_secs(60);
/// After so long without a request the samples come seldom again, nanoseconds.
const PATIENCE: i64 = 60 * SECOND;
/// The first wait after a stream that failed, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What the tasks of an allocation use; all copies are one.
#[derive(Clone, Default)]
pub struct Usage(Arc<StatsShared>);

#[derive(Default)]
struct StatsShared {
    /// By task; nothing where the driver measures nothing.
    samples: watch::Sender<BTreeMap<String, Option<TaskResourceUsage>>>,
    /// When samples were requested last, unix nanoseconds.
    requested_at: watch::Sender<i64>,
}

impl Usage {
    /// The last sample of a task that runs.
    pub fn of(&self, task: &str) -> Option<TaskResourceUsage> {
        self.0.samples.borrow().get(task).cloned().flatten()
    }

    /// A caller wants to know: samples come often from now on.
    pub fn ask(&self, now: i64) {
        self.0.requested_at.send_replace(now);
    }

    /// Waits until there are samples of all these tasks from then on.
    pub async fn since(&self, tasks: &[String], then: i64) {
        let mut samples = self.0.samples.subscribe();
        let all = samples.wait_for(|samples| {
            let is_new = |sample: &Option<TaskResourceUsage>| {
                sample.as_ref().is_none_or(|one| one.timestamp >= then)
            };
            tasks
                .iter()
                .all(|task| samples.get(task).is_some_and(is_new))
        });
        // The sender is part of this very value.
        let _ = all.await;
    }

    fn is_wanted(&self, now: i64) -> bool {
        now.saturating_sub(*self.0.requested_at.borrow()) < PATIENCE
    }

    fn put(&self, task: &str, sample: Option<TaskResourceUsage>) {
        self.0
            .samples
            .send_modify(|samples| _ = samples.insert(task.to_owned(), sample));
    }

    fn forget(&self, task: &str) {
        self.0
            .samples
            .send_modify(|samples| _ = samples.remove(task));
    }
}

/// Follows what a task uses for as long as it runs.
#[derive(Default)]
pub(super) struct StatsHook {
    /// It ends with this.
    follower: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl StatsHook {
    fn end(&self, given: &TaskGiven) {
        *self.follower.lock() = None;
        usage(given).forget(&given.name);
    }
}

fn usage(given: &TaskGiven) -> Usage {
    given.resources.change(|usage: &mut Usage| usage.clone())
}

impl TaskHook for StatsHook {
    fn name(&self) -> &'static str {
        "stats_hook"
    }

    // What follows the task ends with the agent.
    fn repeatable(&self) -> bool {
        true
    }

    fn poststart<'a>(
        &'a self,
        given: &'a TaskGiven,
        _: &'a Value,
        running: &'a RunningHooks,
    ) -> Hooked<'a> {
        let follow = Follow {
            task: given.name.clone(),
            usage: usage(given),
            running: Arc::clone(&running.task),
            interval: given.settings.collection_interval.max(SHORTEST),
            retry: RETRY,
            clock: given.clock.clone(),
        };
        let follower = AbortOnDropHandle::new(tokio::spawn(follow.run()));
        *self.follower.lock() = Some(follower);
        super::well()
    }

    fn exited<'a>(&'a self, given: &'a TaskGiven, _: &'a Value, _: &'a ExitResult) -> Hooked<'a> {
        async move {
            self.end(given);
            Ok(())
        }
        .boxed()
    }

    fn stop<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Hooked<'a> {
        async move {
            self.end(given);
            Ok(())
        }
        .boxed()
    }

    fn shutdown(&self) {
        *self.follower.lock() = None;
    }
}

/// One task that runs.
struct Follow {
    task: String,
    usage: Usage,
    running: Arc<dyn RunningTask>,
    interval: Duration,
    /// The wait after the first failure of several.
    retry: Duration,
    clock: Clock,
}

/// Why a stream is left.
enum Left {
    /// It is over, or there never is one.
    Over,
    /// Samples are wanted more or less often.
    Pace,
    /// It failed; whether after a sample.
    Failed(String, bool),
}

/// The waits after streams that fail at once, one after the other.
fn delays(first: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), |last| Some((*last * 2).min(RETRY_MAX)))
}

impl Follow {
    async fn run(self) {
        let mut waits = delays(self.retry);
        loop {
            match self.stream().await {
                Left::Over => return,
                Left::Pace => waits = delays(self.retry),
                Left::Failed(error, well) => {
                    if well {
                        waits = delays(self.retry);
                    }
                    tracing::debug!(task = self.task, "statistics: {error}");
                    // They never end.
                    tokio::time::sleep(waits.next().unwrap_or(RETRY_MAX)).await;
                }
            }
        }
    }

    async fn stream(&self) -> Left {
        let mut requested = self.usage.0.requested_at.subscribe();
        let wanted = self.usage.is_wanted(self.clock.now());
        let interval = if wanted { self.interval } else { UNREQUESTED };
        let mut samples = self.running.stats(interval);
        let mut well = false;
        loop {
            let sample = tokio::select! {
                sample = samples.next() => sample,
                _ = requested.changed(), if !wanted => return Left::Pace,
            };
            match sample {
                Some(Ok(sample)) => self.usage.put(&self.task, Some(sample)),
                Some(Err(StatsError::Unsupported)) => {
                    tracing::info!(task = self.task, "its driver measures nothing");
                    self.usage.put(&self.task, None);
                    return Left::Over;
                }
                Some(Err(StatsError::Failed(error))) => return Left::Failed(error, well),
                None => return Left::Over,
            }
            well = true;
            if wanted && !self.usage.is_wanted(self.clock.now()) {
                return Left::Pace;
            }
        }
    }
}

#[cfg(test)]
#[path = "stats_test.rs"]
mod tests;
