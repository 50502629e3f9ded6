//! The deployment watcher: sees that deployments proceed, end, or fail.
//!
//! What it does follows from the rows alone: an allocation that became healthy after the newest
//! evaluation of its job needs a new one; one that became unhealthy may be rescheduled, or fails
//! the deployment; no progress until the deadline fails it; healthy canaries are promoted if the
//! job says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::status::{DeploymentStatus, client, deployment, eval, job_type, trigger};
use drover_events::model::{Allocation, Deployment, DesiredTransition, Evaluation, Job};
use drover_projections::tables::allocs::{Allocs, AllocsByDeployment};
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{ChangedRow, Follow, Followed, Interest, Scan, StorageError, Table, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::Command;
use crate::commands::alloc::UpdateDesiredTransitions;
use crate::commands::deployment::{DeploymentChange, PromoteDeployment, SetDeploymentStatus};
use crate::proposer::decided::Following;
use crate::scheduler::reconcile::is_terminal;

/// The longest sleep between two looks.
const MAX_SLEEP: Duration = Duration::from_secs(5);
/// The shortest: what happens to many allocations is dealt with together.
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct DeploymentWatcher {
    known: Mutex<DeploymentCache>,
}

/// The deployments that are running: a cache of the view.
#[derive(Debug, Default)]
struct DeploymentCache {
    followed: Option<Followed>,
    open: BTreeSet<String>,
    /// How many deployments were read.
    read: usize,
}

impl DeploymentCache {
    fn note(&mut self, deployment: &Deployment) {
        match goes_on(deployment) {
            true => self.open.insert(deployment.id.clone()),
            false => self.open.remove(&deployment.id),
        };
    }
}

fn goes_on(deployment: &Deployment) -> bool {
    match deployment.status() {
        Some(DeploymentStatus::Running | DeploymentStatus::Paused) => true,
        Some(
            DeploymentStatus::Failed
            | DeploymentStatus::Successful
            | DeploymentStatus::Cancelled
            | DeploymentStatus::Initializing
            | DeploymentStatus::Pending
            | DeploymentStatus::Blocked
            | DeploymentStatus::Unblocking,
        )
        | None => false,
    }
}

impl Follow for DeploymentCache {
    const TABLES: &'static [u16] = &[Deployments::ID];
    type With = Each;

    fn followed(&mut self) -> &mut Option<Followed> {
        &mut self.followed
    }

    fn all(&mut self, view: &View, each: &mut Each) -> Result<(), StorageError> {
        self.open.clear();
        for deployment in view.scan::<Deployments>(Scan::all()) {
            self.read += 1;
            if let Some(deployment) = each.row(deployment)? {
                self.note(&deployment);
            }
        }
        Ok(())
    }

    fn row(&mut self, view: &View, row: &ChangedRow, each: &mut Each) -> Result<(), StorageError> {
        let Some(id) = row.key_of::<Deployments>() else {
            return Ok(());
        };
        self.read += 1;
        match each.look(id.as_str(), || view.get::<Deployments>(id.as_str())) {
            Some(Some(deployment)) => self.note(&deployment),
            Some(None) => drop(self.open.remove(id.as_str())),
            // It has a turn, and is read again then.
            None => drop(self.open.insert(id.into_string())),
        }
        Ok(())
    }
}

/// What is to be done about one deployment.
#[derive(Clone, Debug, PartialEq)]
pub enum DeploymentStep {
    /// It failed.
    Fail(DeploymentChange),
    /// Its canaries are healthy.
    Promote,
    /// Its job is to be looked at again; these allocations may be replaced.
    Evaluate(Vec<String>),
}

/// The index of what a step follows from: the last change of what was seen. For allocations it is
/// that of their health, for a deadline and a promotion that of the deployment.
fn seen(view: &View, deployment: &Deployment, step: &DeploymentStep) -> Result<u64, StorageError> {
    let wanted = match step {
        DeploymentStep::Fail(DeploymentChange::UnhealthyAllocations) => Some(false),
        DeploymentStep::Evaluate(replace) => Some(replace.is_empty()),
        DeploymentStep::Promote => Some(true),
        DeploymentStep::Fail(_) => None,
    };
    let Some(wanted) = wanted else {
        return Ok(deployment.modify_index);
    };
    let allocs = allocs_of(view, deployment)?;
    let of_that_health = allocs.iter().filter(|alloc| health(alloc) == Some(wanted));
    let statuses = of_that_health.filter_map(|alloc| alloc.deployment_status.as_ref());
    let newest = statuses.map(|status| status.modify_index).max();
    Ok(newest
        .filter(|index| *index > 0)
        .unwrap_or(deployment.modify_index))
}

/// Looks at one deployment; answers what is to be done, and when it is due next.
///
/// # Errors
/// The state cannot be read.
pub fn look(
    view: &View,
    deployment: &Deployment,
    now: i64,
) -> Result<(Option<DeploymentStep>, Option<i64>), StorageError> {
    let allocs = allocs_of(view, deployment)?;
    let key = (deployment.namespace.as_str(), deployment.job_id.as_str());
    let Some(job) = view.get::<Jobs>(key)? else {
        return Ok((None, None));
    };
    let mut replace = Vec::new();
    for alloc in allocs.iter().filter(|a| health(a) == Some(false)) {
        match unhealthy(deployment, &job, alloc) {
            Unhealthy::Fails => {
                return Ok((
                    Some(DeploymentStep::Fail(DeploymentChange::UnhealthyAllocations)),
                    None,
                ));
            }
            Unhealthy::MayBeReplaced => replace.push(alloc.id.clone()),
            Unhealthy::Known => {}
        }
    }
    let paused = deployment.status == deployment::PAUSED;
    let due = progress_due(deployment).filter(|_| !paused);
    if due.is_some_and(|due| due <= now) {
        return Ok((
            Some(DeploymentStep::Fail(DeploymentChange::ProgressDeadline)),
            None,
        ));
    }
    if wants_promotion(deployment, &allocs) {
        return Ok((Some(DeploymentStep::Promote), due));
    }
    if !replace.is_empty() {
        return Ok((Some(DeploymentStep::Evaluate(replace)), due));
    }
    let seen = newest_eval(view, key)?;
    let changed = allocs.iter().any(|alloc| {
        let status = alloc.deployment_status.as_ref();
        health(alloc) == Some(true) && status.is_some_and(|s| s.modify_index > seen)
    });
    Ok((changed.then(|| DeploymentStep::Evaluate(Vec::new())), due))
}

fn allocs_of(view: &View, deployment: &Deployment) -> Result<Vec<Allocation>, StorageError> {
    let rows = view.by_index::<AllocsByDeployment>(deployment.id.as_str());
    rows.map(|row| row.map(|row| row.alloc)).collect()
}

fn health(alloc: &Allocation) -> Option<bool> {
    alloc
        .deployment_status
        .as_ref()
        .and_then(|status| status.healthy)
}

/// The create index of the newest evaluation of a job.
fn newest_eval(view: &View, key: (&str, &str)) -> Result<u64, StorageError> {
    let scan = Scan::with_key_prefix::<(String, String)>(key).reverse();
    let newest = view.by_index_scan::<EvalsByJob>(scan).next().transpose()?;
    Ok(newest.map_or(0, |eval| eval.create_index))
}

enum Unhealthy {
    Fails,
    MayBeReplaced,
    Known,
}

fn unhealthy(deployment: &Deployment, job: &Job, alloc: &Allocation) -> Unhealthy {
    if alloc.desired_transition.reschedule == Some(true) || !alloc.next_allocation.is_empty() {
        return Unhealthy::Known;
    }
    let state = deployment.task_groups.get(&alloc.task_group);
    if state.is_none_or(|state| state.progress_deadline == 0) {
        return Unhealthy::Fails;
    }
    if is_terminal(alloc) && alloc.client_status != client::FAILED {
        return Unhealthy::Known;
    }
    let group = job
        .task_groups
        .iter()
        .find(|group| group.name == alloc.task_group);
    let policy = group.and_then(|group| group.reschedule_policy.as_ref());
    let tried = alloc
        .reschedule_tracker
        .as_ref()
        .map_or(0, |tracker| tracker.events.len());
    match policy {
        Some(policy) if policy.unlimited => Unhealthy::MayBeReplaced,
        Some(policy) if (tried as i64) < policy.attempts => Unhealthy::MayBeReplaced,
        _ => Unhealthy::Fails,
    }
}

/// The earliest deadline of a group that is not done.
fn progress_due(deployment: &Deployment) -> Option<i64> {
    let open = deployment.task_groups.values().filter(|state| {
        let waits_for_operator = state.desired_canaries > 0
            && !state.promoted
            && state.healthy_allocs >= state.desired_canaries;
        let wanted = state.desired_total.max(state.desired_canaries);
        state.progress_deadline > 0
            && !waits_for_operator
            && state.require_progress_by.0 > 0
            && state.healthy_allocs < wanted
    });
    open.map(|state| state.require_progress_by.0).min()
}

fn wants_promotion(deployment: &Deployment, allocs: &[Allocation]) -> bool {
    let mut any = false;
    for (name, state) in deployment
        .task_groups
        .iter()
        .filter(|(_, s)| s.desired_canaries > 0)
    {
        if state.promoted {
            continue;
        }
        let healthy = allocs.iter().filter(|alloc| {
            alloc.task_group == *name
                && health(alloc) == Some(true)
                && state.placed_canaries.contains(&alloc.id)
                && !is_terminal(alloc)
        });
        if !state.auto_promote || (healthy.count() as i64) < state.desired_canaries {
            return false;
        }
        any = true;
    }
    any
}

fn command_of(deployment: &Deployment, view: &View, step: DeploymentStep) -> Arc<dyn Command> {
    let eval_id = uuid::Uuid::new_v4().to_string();
    let deployment_id = deployment.id.clone();
    match step {
        DeploymentStep::Fail(change) => Arc::new(SetDeploymentStatus {
            deployment_id,
            change,
            eval_id,
            reverted: Default::default(),
        }),
        DeploymentStep::Promote => Arc::new(PromoteDeployment {
            deployment_id,
            all: true,
            groups: Vec::new(),
            eval_id,
        }),
        DeploymentStep::Evaluate(replace) => {
            let request = DesiredTransition {
                reschedule: Some(true),
                ..Default::default()
            };
            let known = replace.into_iter().filter(|id| {
                view.modify_index::<Allocs>(id.as_str())
                    .is_ok_and(|index| index.is_some())
            });
            let transitions: BTreeMap<String, DesiredTransition> =
                known.map(|id| (id, request.clone())).collect();
            let eval = Evaluation {
                id: eval_id,
                namespace: deployment.namespace.clone(),
                priority: deployment.eval_priority,
                r#type: job_type::SERVICE.to_owned(),
                triggered_by: trigger::DEPLOYMENT_WATCHER.to_owned(),
                job_id: deployment.job_id.clone(),
                deployment_id,
                status: eval::PENDING.to_owned(),
                ..Evaluation::default()
            };
            Arc::new(UpdateDesiredTransitions {
                transitions,
                evals: vec![eval],
            })
        }
    }
}

/// The command that one deployment needs now, if it needs one, and when it is due next.
fn followed(
    view: &View,
    deployment: &Deployment,
    now: i64,
) -> Result<(Option<Arc<Following>>, Option<i64>), StorageError> {
    let (step, due) = look(view, deployment, now)?;
    let Some(step) = step else {
        return Ok((None, due));
    };
    let cause = seen(view, deployment, &step)?;
    let command = command_of(deployment, view, step);
    Ok((Some(Arc::new(Following { command, cause })), due))
}

impl Reactor for DeploymentWatcher {
    fn name(&self) -> &'static str {
        "deployment_watcher"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[Interest::table::<Deployments>()];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            tokio::time::sleep(SHORTEST).await;
            let now = context.clock.now();
            // Where the look fails everything is read anew.
            let mut known = std::mem::take(&mut *self.known.lock());
            let view = context.projections.view();
            let mut commands = Vec::new();
            let mut each = Each::default();
            known.refresh(&context.projections, &view, &mut each)?;
            let (mut active, mut next) = (0, None::<i64>);
            for id in &known.open {
                let found = each.look(id, || {
                    let row = view.get::<Deployments>(id.as_str())?;
                    let Some(deployment) = row.filter(goes_on) else {
                        return Ok((None, None));
                    };
                    followed(&view, &deployment, now)
                });
                active += 1;
                known.read += 1;
                let Some((command, due)) = found else {
                    continue;
                };
                next = next.into_iter().chain(due).min();
                commands.extend(command.map(|command| (id.clone(), command)));
            }
            *self.known.lock() = known;
            drop(view);
            let steps = commands.len();
            for (id, command) in commands {
                if let Err(error) = context.proposer.submit(command, self.name()).await {
                    each.fail(&id, &error);
                }
            }
            let sleep = next.map_or(MAX_SLEEP, |due| {
                Duration::from_nanos(due.saturating_sub(now).max(0).unsigned_abs()).min(MAX_SLEEP)
            });
            let mut status = serde_json::json!({ "Active": active, "Steps": steps });
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "deployment_watcher_test.rs"]
mod tests;
