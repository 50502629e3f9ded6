//! What should run: the difference between a job and its allocations, group by group.
//!
//! It works on the allocations of one job, its newest deployment and the states of the nodes
//! they are on. The order of its steps and its words are Nomad's.
//!
//! It must not know: nodes' resources, scores, where anything will be placed. Whether an allocation
//! can be changed in place is checked through [`InPlace`]. Invariant: the result depends on its
//! input alone, not on the order of the allocations given.

mod canary;
mod classify;
mod deploy;
mod group;
pub mod names;
mod reconnect;
mod reschedule;
mod results;
mod stop;
mod update;

pub use classify::{
    NodeState, is_client_terminal, is_server_terminal, is_terminal, needs_reconnect,
};
pub use reschedule::{next_delay, next_tracker, penalty_nodes};
pub use results::{Destructive, InPlace, Place, Reconciled};
pub use update::tasks_updated;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::status::{DeploymentStatus, deployment, deployment_reason};
use drover_events::model::{Allocation, Deployment, DeploymentStatusUpdate, Evaluation, Job};

use super::rng::Rng;

/// An allocation, shared.
pub type Alloc = Arc<Allocation>;

/// What is compared.
pub struct Input<'a> {
    /// The job, unless it is gone.
    pub job: Option<&'a Arc<Job>>,
    /// All allocations of the job.
    pub allocs: Vec<Alloc>,
    /// The newest deployment, for services.
    pub deployment: Option<Deployment>,
    /// The version that runs while the job's own is tried out by canaries.
    pub former: Option<Arc<Job>>,
    /// The states of the nodes that allocations are on; nodes that are fine may be left out.
    pub nodes: BTreeMap<String, NodeState>,
    pub eval: &'a Evaluation,
    /// Batch rules instead of service rules.
    pub batch: bool,
    /// Unix nanoseconds.
    pub now: i64,
}

/// Works out what should change.
pub fn reconcile(input: Input<'_>, in_place: &mut InPlace<'_>, rng: &mut Rng) -> Reconciled {
    Reconciler::new(input, in_place, rng).run()
}

/// The state of one reconciliation.
struct Reconciler<'a> {
    job: Option<Arc<Job>>,
    former: Option<Arc<Job>>,
    eval: &'a Evaluation,
    nodes: BTreeMap<String, NodeState>,
    batch: bool,
    now: i64,
    in_place: &'a mut InPlace<'a>,
    rng: &'a mut Rng,
    allocs: Vec<Alloc>,
    /// The deployment of this version, existing or created now.
    deployment: Option<Deployment>,
    /// An active or finished deployment of another version.
    old_deployment: Option<Deployment>,
    paused: bool,
    failed: bool,
    result: Reconciled,
}

impl<'a> Reconciler<'a> {
    fn new(input: Input<'a>, in_place: &'a mut InPlace<'a>, rng: &'a mut Rng) -> Self {
        let mut allocs = input.allocs;
        allocs.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
        Self {
            job: input.job.cloned(),
            former: input.former,
            eval: input.eval,
            nodes: input.nodes,
            batch: input.batch,
            now: input.now,
            in_place,
            rng,
            allocs,
            deployment: input.deployment,
            old_deployment: None,
            paused: false,
            failed: false,
            result: Reconciled::default(),
        }
    }

    fn run(mut self) -> Reconciled {
        self.end_old_deployments();
        let job = match &self.job {
            Some(job) if !job.stop => Arc::clone(job),
            _ => {
                self.stop_everything();
                // As with Nomad the evaluation names it: a user that follows a stop is shown it.
                self.result.current_deployment = self.old_deployment;
                return self.result;
            }
        };
        if let Some(deployment) = &self.deployment {
            (self.paused, self.failed) = match deployment.status() {
                Some(DeploymentStatus::Paused | DeploymentStatus::Pending) => (true, false),
                Some(DeploymentStatus::Failed) => (false, true),
                Some(
                    DeploymentStatus::Running
                    | DeploymentStatus::Successful
                    | DeploymentStatus::Cancelled
                    | DeploymentStatus::Initializing
                    | DeploymentStatus::Blocked
                    | DeploymentStatus::Unblocking,
                )
                | None => (false, false),
            };
        }
        let mut by_group: BTreeMap<String, Vec<Alloc>> = BTreeMap::new();
        for alloc in std::mem::take(&mut self.allocs) {
            by_group
                .entry(alloc.task_group.clone())
                .or_default()
                .push(alloc);
        }
        for group in &job.task_groups {
            by_group.entry(group.name.clone()).or_default();
        }
        let mut complete = true;
        for (name, allocs) in by_group {
            complete &= self.group(&job, &name, allocs);
        }
        self.finish_deployment(complete);
        self.result
    }

    /// Deployments of a stopped job or of another version end; finished ones are history.
    fn end_old_deployments(&mut self) {
        let stopped = self.job.as_ref().is_none_or(|job| job.stop);
        let Some(deployment) = &self.deployment else {
            return;
        };
        let reason = if stopped {
            Some(deployment_reason::STOPPED_JOB)
        } else if self
            .job
            .as_ref()
            .is_some_and(|job| !is_of_version(deployment, job))
        {
            Some(deployment_reason::NEWER_JOB)
        } else {
            None
        };
        if let Some(reason) = reason {
            if is_active(deployment) {
                self.result.deployment_updates.push(DeploymentStatusUpdate {
                    deployment_id: deployment.id.clone(),
                    status: deployment::CANCELLED.to_owned(),
                    status_description: reason.to_owned(),
                    updated_at: self.now,
                });
            }
            self.old_deployment = self.deployment.take();
        } else if deployment.status == deployment::SUCCESSFUL {
            self.old_deployment = self.deployment.take();
        }
    }

    fn stop_everything(&mut self) {
        let mut by_group: BTreeMap<String, Vec<Alloc>> = BTreeMap::new();
        for alloc in std::mem::take(&mut self.allocs) {
            by_group
                .entry(alloc.task_group.clone())
                .or_default()
                .push(alloc);
        }
        for (group, allocs) in by_group {
            let stopped = self.stop_all(allocs);
            self.result.desired.entry(group).or_default().stop = stopped;
        }
    }
}

/// A fixed order: by the index in the name, then the oldest first.
fn order_of(alloc: &Allocation) -> (Option<usize>, u64, &str) {
    (
        names::name_index(&alloc.name),
        alloc.create_index,
        &alloc.id,
    )
}

/// Whether a deployment belongs to this version of a job.
fn is_of_version(deployment: &Deployment, job: &Job) -> bool {
    deployment.job_create_index == job.create_index && deployment.job_version == job.version
}

/// Whether a deployment is still running.
pub fn is_active(deployment: &Deployment) -> bool {
    deployment.active()
}
