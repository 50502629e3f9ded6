//! A restart that a user requested and waits for (CL-05).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::runner::{RunnerShared, outcome_of_each};
use crate::alloc_runner::ControlError;
use crate::drivers::TaskError;

/// How long a restart is waited for: far longer than tasks are given to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// Tasks that run and are to start again, each with the number of its restarts before.
pub(super) struct RestartRequests {
    shared: Arc<RunnerShared>,
    tasks: Vec<(String, u64)>,
}

impl RestartRequests {
    /// Of one task, or of all that run. It is made before the tasks get the request.
    pub(super) fn of(shared: &Arc<RunnerShared>, task: Option<&str>) -> Self {
        let machine = shared.machine.lock();
        let named = |name: &str| task.is_none_or(|task| task == name);
        let running = machine.tasks.iter();
        let running = running.filter(|(name, task)| named(name) && task.is_running());
        let tasks: Vec<_> = running
            .map(|(name, task)| (name.clone(), task.state.restarts))
            .collect();
        let mut refused = shared.refused.lock();
        tasks.iter().for_each(|(name, _)| _ = refused.remove(name));
        Self {
            shared: Arc::clone(shared),
            tasks,
        }
    }

    /// Waits until each has ended, to start again or for good, or could not be requested to end.
    ///
    /// # Errors
    /// The errors of the tasks that could not be requested to end.
    pub(super) async fn wait(self) -> Result<(), ControlError> {
        let mut steps = self.shared.steps.subscribe();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(ends) = self.ends() {
                // Where none ran, the dead tasks are to start, and nothing of them ends.
                return if ends.is_empty() {
                    Ok(())
                } else {
                    outcome_of_each(ends)
                };
            }
            if timeout_at(until, steps.changed()).await.is_err() {
                let text = "the tasks have not ended yet; they start again when they have";
                return Err(ControlError::Refused(text.to_owned()));
            }
        }
    }

    /// What came of each, once all are known.
    fn ends(&self) -> Option<Vec<(String, Result<(), TaskError>)>> {
        let machine = self.shared.machine.lock();
        let refused = self.shared.refused.lock();
        let end = |(name, before): &(String, u64)| {
            let task = machine.tasks.get(name)?;
            let end = match refused.get(name) {
                _ if task.state.restarts > *before || task.is_dead() => Ok(()),
                Some(why) => Err(TaskError::Driver(why.clone())),
                None => return None,
            };
            Some((name.clone(), end))
        };
        self.tasks.iter().map(end).collect()
    }
}
