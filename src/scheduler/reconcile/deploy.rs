//! Deployments: created with the first change of a version, complete when all its allocations are
//! healthy.

use drover_events::model::status::{deployment, deployment_reason as reason};
use drover_events::model::{Deployment, DeploymentState, DeploymentStatusUpdate, Job, TaskGroup};

use super::{Alloc, Reconciler, is_active};

/// Whether a group is updated by a strategy at all.
pub(super) fn has_strategy(group: &TaskGroup) -> bool {
    group
        .update
        .as_ref()
        .is_some_and(|update| update.max_parallel > 0)
}

impl Reconciler<'_> {
    /// The state of a group in the current deployment, or a new one; and whether it exists.
    pub(super) fn deployment_state(&self, group: &TaskGroup) -> (DeploymentState, bool) {
        let existing = self
            .deployment
            .as_ref()
            .and_then(|d| d.task_groups.get(&group.name));
        if let Some(state) = existing {
            return (state.clone(), true);
        }
        let mut state = DeploymentState::default();
        if let Some(update) = group.update.as_ref().filter(|_| has_strategy(group)) {
            state.auto_revert = update.auto_revert;
            state.auto_promote = update.auto_promote;
            state.progress_deadline = update.progress_deadline;
        }
        (state, false)
    }

    /// Creates the deployment when a group needs one, and writes the group's state into it. The
    /// time for progress begins with the first placement: a deployment that waits for resources is
    /// not late.
    pub(super) fn create_deployment(
        &mut self,
        job: &Job,
        group: &TaskGroup,
        state: DeploymentState,
        all: &[Alloc],
        updating: bool,
    ) {
        let ran_before = all.iter().any(|alloc| {
            alloc.job.as_ref().is_some_and(|own| {
                own.version == job.version && own.create_index == job.create_index
            })
        });
        let pointless = !has_strategy(group)
            || self.batch
            || state.desired_total == 0
            || (ran_before && !updating);
        if pointless {
            return;
        }
        if self.deployment.is_none() {
            self.deployment = Some(Deployment {
                id: self.rng.uuid(),
                namespace: job.namespace.clone(),
                job_id: job.id.clone(),
                job_version: job.version,
                job_modify_index: job.modify_index,
                job_spec_modify_index: job.job_modify_index,
                job_create_index: job.create_index,
                status: deployment::RUNNING.to_owned(),
                status_description: reason::RUNNING.to_owned(),
                eval_priority: self.eval.priority,
                create_time: self.now,
                modify_time: self.now,
                ..Deployment::default()
            });
        }
        if let Some(deployment) = &mut self.deployment {
            deployment.task_groups.insert(group.name.as_str(), state);
            self.result.deployment = Some(deployment.clone());
        }
    }

    /// Whether a group has nothing left to do and is healthy.
    pub(super) fn is_healthy(&self, group: &str) -> bool {
        let Some(deployment) = &self.deployment else {
            return false;
        };
        deployment.task_groups.get(group).is_none_or(|state| {
            let wanted = state.desired_total.max(state.desired_canaries);
            state.healthy_allocs >= wanted && (state.desired_canaries == 0 || state.promoted)
        })
    }

    /// Ends the deployment when every group is done, or says what it waits for.
    pub(super) fn finish_deployment(&mut self, complete: bool) {
        if let Some(created) = &mut self.result.deployment {
            let states = created.task_groups.values();
            let (mut promotion, mut all_auto) = (false, true);
            for state in states.filter(|s| s.desired_canaries > 0 && !s.promoted) {
                promotion = true;
                all_auto &= state.auto_promote;
            }
            if promotion {
                let text = if all_auto {
                    reason::AUTO_PROMOTION
                } else {
                    reason::NEEDS_PROMOTION
                };
                created.status_description = text.to_owned();
            }
        } else if let Some(deployment) = self.deployment.as_ref().filter(|d| is_active(d))
            && complete
        {
            self.result.deployment_updates.push(DeploymentStatusUpdate {
                deployment_id: deployment.id.clone(),
                status: deployment::SUCCESSFUL.to_owned(),
                status_description: reason::SUCCESSFUL.to_owned(),
                updated_at: self.now,
            });
        }
        self.result.current_deployment = self
            .result
            .deployment
            .clone()
            .or_else(|| self.deployment.clone());
    }
}
