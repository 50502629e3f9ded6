//! What would happen if a job were registered now: the scheduler on a state that is not.

use std::sync::Arc;

use drover_events::model::status::{eval, trigger};
use drover_events::model::{
    Allocation, Deployment, Evaluation, Job, NodePool, SchedulerConfiguration,
};

use super::cluster::Cluster;
use super::rng::seed_of;
use super::{Inputs, Outcome, ReadError, SCHEDULER_VERSION, StateView, schedule};

/// A state in which a job has another version.
struct Supposed<'a> {
    state: &'a dyn StateView,
    job: Arc<Job>,
}

impl StateView for Supposed<'_> {
    fn index(&self) -> u64 {
        self.state.index()
    }

    fn cluster(&self) -> &Cluster {
        self.state.cluster()
    }

    fn job(&self, namespace: &str, id: &str) -> Result<Option<Arc<Job>>, ReadError> {
        if namespace == self.job.namespace && id == self.job.id {
            return Ok(Some(Arc::clone(&self.job)));
        }
        self.state.job(namespace, id)
    }

    fn allocs_of_job(&self, namespace: &str, id: &str) -> Result<Vec<Arc<Allocation>>, ReadError> {
        self.state.allocs_of_job(namespace, id)
    }

    fn stable_before(
        &self,
        namespace: &str,
        id: &str,
        version: u64,
    ) -> Result<Option<Arc<Job>>, ReadError> {
        self.state.stable_before(namespace, id, version)
    }

    fn latest_deployment(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<Option<Deployment>, ReadError> {
        self.state.latest_deployment(namespace, id)
    }

    fn config(&self) -> Result<SchedulerConfiguration, ReadError> {
        self.state.config()
    }

    fn node_pool(&self, name: &str) -> Result<Option<NodePool>, ReadError> {
        self.state.node_pool(name)
    }
}

/// The outcome of registering `job` at a state, as `job plan` shows it. `changed` says whether its
/// specification differs from the one there is; only then it is a new version.
///
/// # Errors
/// The state cannot be read.
pub fn dry_run(
    state: &dyn StateView,
    job: &Job,
    changed: bool,
    now: i64,
) -> Result<Outcome, ReadError> {
    let known = state.job(&job.namespace, &job.id)?;
    let mut supposed = job.clone();
    let next = state.index().saturating_add(1);
    match &known {
        Some(known) if !changed => supposed = Job::clone(known),
        Some(known) => {
            supposed.version = known.version + 1;
            supposed.create_index = known.create_index;
            supposed.job_modify_index = next;
        }
        None => {
            supposed.create_index = next;
            supposed.job_modify_index = next;
        }
    }
    supposed.modify_index = next;
    let eval = Evaluation {
        id: format!(
            "{:08x}-0000-0000-0000-{:012x}",
            next >> 32,
            next & 0xffff_ffff
        ),
        namespace: job.namespace.clone(),
        priority: job.priority,
        r#type: job.r#type.clone(),
        triggered_by: trigger::JOB_REGISTER.to_owned(),
        job_id: job.id.clone(),
        job_modify_index: next,
        status: eval::PENDING.to_owned(),
        annotate_plan: true,
        ..Evaluation::default()
    };
    let inputs = Inputs {
        snapshot_index: state.index(),
        now,
        seed: seed_of(&eval.id, state.index()),
        scheduler_version: SCHEDULER_VERSION,
    };
    schedule(
        &Supposed {
            state,
            job: Arc::new(supposed),
        },
        &eval,
        &inputs,
    )
}
