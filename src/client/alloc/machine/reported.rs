//! What is reported of an allocation: its status, and its health to its deployment.

use drover_events::gojson::{Map, Time};
use drover_events::model::status::ClientStatus;
use drover_events::model::{AllocDeploymentStatus, Allocation, TaskState};

use super::{AllocMachine, AllocSpec, Phase};
use crate::alloc::health::{Verdict, judge};
use crate::task::machine::TaskMachine;
use crate::task_events as events;

/// The description of an allocation whose tasks are over.
const ENDED: &str = "All tasks have completed";

impl AllocMachine {
    /// The tasks' states, as they are reported to the servers.
    pub fn task_states(&self) -> Map<TaskState> {
        self.tasks
            .iter()
            .map(|(name, task)| (name.clone(), task.state.clone()))
            .collect()
    }

    /// Client status and its description.
    pub fn status(&self) -> (ClientStatus, &'static str) {
        let any = |test: fn(&TaskMachine) -> bool| self.tasks.values().any(test);
        if any(|t| t.is_dead() && t.state.failed) {
            (ClientStatus::Failed, "Failed tasks")
        } else if any(TaskMachine::is_running) {
            (ClientStatus::Running, "Tasks are running")
        } else if any(|t| !t.is_dead()) {
            (ClientStatus::Pending, "No tasks have started")
        } else {
            let all = if self.overran {
                Allocation::RAN_TOO_LONG
            } else {
                ENDED
            };
            (ClientStatus::Complete, all)
        }
    }

    /// Whether its health is reported to this deployment, or nothing of that is known.
    pub fn follows(&self, deployment: &str) -> bool {
        self.deployment
            .as_deref()
            .is_none_or(|own| own == deployment)
    }

    /// It begins as part of this deployment, or of none.
    pub fn begin_with(&mut self, deployment: &str) {
        self.deployment = Some(deployment.to_owned());
    }

    /// Begins to watch the health anew.
    pub fn watch_health(&mut self, canary: bool, now: i64) {
        self.deployment_status = canary.then(|| AllocDeploymentStatus {
            canary,
            ..AllocDeploymentStatus::default()
        });
        self.health_since = now;
    }

    pub(super) fn verdict(&self, spec: &AllocSpec, now: i64) -> Option<Verdict> {
        let reported = self
            .deployment_status
            .as_ref()
            .is_some_and(|s| s.healthy.is_some());
        if reported || self.phase != Phase::Live || self.stopped {
            return None;
        }
        let health = spec.health.as_ref()?;
        let tasks = self.tasks.iter().filter_map(|(name, task)| {
            Some((name.as_str(), spec.tasks.get(name)?.kind, &task.state))
        });
        Some(judge(
            health,
            self.health_since,
            self.checks_since,
            tasks,
            now,
        ))
    }

    pub(super) fn report_health(&mut self, spec: &AllocSpec, now: i64) {
        let healthy = match self.verdict(spec, now) {
            None | Some(Verdict::Pending(_)) => return,
            Some(Verdict::Healthy) => true,
            Some(Verdict::Unhealthy(reasons)) => {
                if spec.health.as_ref().is_some_and(|h| h.deployment) {
                    for (name, why) in reasons {
                        if let Some(task) = self.tasks.get_mut(&name) {
                            let event = events::message(events::kind::ALLOC_UNHEALTHY, now, why);
                            task.emit(event);
                        }
                    }
                }
                false
            }
        };
        self.deployment_status = Some(AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: Time(now),
            canary: self.deployment_status.as_ref().is_some_and(|s| s.canary),
            ..AllocDeploymentStatus::default()
        });
    }
}
