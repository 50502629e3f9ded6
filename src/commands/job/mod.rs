//! Commands about jobs.

mod register;
mod scale;
mod summaries;

pub use register::RegisterJob;
pub use scale::ScaleJob;
pub use summaries::ReconcileSummaries;

use drover_events::alloc::AllocsDesiredTransitionUpdated;
use drover_events::eval::EvalsUpserted;
use drover_events::job::*;
use drover_events::model::status::{client, trigger};
use drover_events::model::{DesiredTransition, Job, JobVersionTag};
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Reply, View, query};

use super::support::eval_of;
use super::{Command, Decision, Stamp};
use crate::error::ApiError;

/// A job is stopped, or purged with all its rows.
#[derive(Clone, Debug, Default)]
pub struct DeregisterJob {
    /// The namespace.
    pub namespace: String,
    /// The job.
    pub job_id: String,
    /// Whether its rows go.
    pub purge: bool,
    /// Whether its allocations stop without the shutdown delay.
    pub no_shutdown_delay: bool,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// The priority of the evaluation; 0: the job's.
    pub eval_priority: i64,
    /// How many versions are kept; 0 stands for 6.
    pub tracked_versions: u32,
}

impl Command for DeregisterJob {
    /// An unknown job is no error: nothing happens.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError> {
        if self.job_id.is_empty() {
            return Err(ApiError::refused("missing job ID for deregistering"));
        }
        check_priority(self.eval_priority)?;
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let Some(job) = view.get::<Jobs>(key)? else {
            return Ok(Decision::Nothing(Reply::None));
        };
        let eval = (!job.has_children()).then(|| {
            let mut made = eval_of(
                self.eval_id.clone(),
                &job,
                trigger::JOB_DEREGISTER,
                stamp.now,
            );
            if self.eval_priority != 0 {
                made.priority = self.eval_priority;
            }
            made
        });
        let deregistered = JobDeregistered {
            namespace: self.namespace.clone(),
            job_id: self.job_id.clone(),
            purge: self.purge,
            no_shutdown_delay: self.no_shutdown_delay,
            eval,
            submit_time: stamp.now,
            tracked_versions: self.tracked_versions,
        };
        Ok(Decision::guarded(
            deregistered,
            vec![view.guard::<Jobs>(key)?],
        ))
    }
}

/// Garbage collection purges jobs; those gone already are passed over.
#[derive(Clone, Debug)]
pub struct PurgeJobs {
    /// Each with its namespace, and the modify index at which it was found to be over.
    pub jobs: Vec<(String, String, u64)>,
}

impl Command for PurgeJobs {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError> {
        let mut jobs = Vec::new();
        let mut guards = Vec::new();
        for (namespace, job_id, index) in &self.jobs {
            let key = (namespace.as_str(), job_id.as_str());
            let known = view.get::<Jobs>(key)?;
            if known.is_some_and(|job| job.modify_index == *index) {
                guards.push(view.guard::<Jobs>(key)?);
                let (namespace, job_id) = (namespace.clone(), job_id.clone());
                jobs.push(DeregisteredJob {
                    namespace,
                    job_id,
                    purge: true,
                });
            }
        }
        if jobs.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let submit_time = stamp.now;
        let event = JobsDeregistered {
            jobs,
            submit_time,
            ..JobsDeregistered::default()
        };
        Ok(Decision::guarded(event, guards))
    }
}

/// An operator has a job looked at again.
#[derive(Clone, Debug)]
pub struct EvaluateJob {
    /// The namespace.
    pub namespace: String,
    /// The job.
    pub job_id: String,
    /// Whether failed allocations are rescheduled whatever their policy says.
    pub force_reschedule: bool,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
}

impl Command for EvaluateJob {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError> {
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let job = view
            .get::<Jobs>(key)?
            .ok_or_else(|| ApiError::refused("job not found"))?;
        if job.is_periodic() {
            return Err(ApiError::refused("can't evaluate periodic job"));
        }
        if job.is_parameterized() {
            return Err(ApiError::refused("can't evaluate parameterized job"));
        }
        let made = eval_of(self.eval_id.clone(), &job, trigger::JOB_REGISTER, stamp.now);
        let evals = vec![made];
        if !self.force_reschedule {
            return Ok(Decision::free(EvalsUpserted {
                evals,
                decision: None,
            }));
        }
        let wish = DesiredTransition {
            force_reschedule: Some(true),
            ..Default::default()
        };
        let failed = query::allocs_of_job(view, key)?
            .into_iter()
            .filter(|row| row.client_status == client::FAILED && row.next_allocation.is_empty());
        let transitions = failed.map(|row| (row.id.clone(), wish.clone())).collect();
        let updated = AllocsDesiredTransitionUpdated {
            transitions,
            evals,
            updated_at: stamp.now,
        };
        Ok(Decision::free(updated))
    }
}

/// A version of a job is marked stable or unstable.
#[derive(Clone, Debug)]
pub struct SetJobStability {
    /// The namespace.
    pub namespace: String,
    /// The job.
    pub job_id: String,
    /// The version.
    pub version: u64,
    /// What it is.
    pub stable: bool,
}

impl Command for SetJobStability {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, ApiError> {
        version_of(view, (&self.namespace, &self.job_id), self.version)?;
        Ok(Decision::free(JobStabilityUpdated {
            namespace: self.namespace.clone(),
            job_id: self.job_id.clone(),
            job_version: self.version,
            stable: self.stable,
        }))
    }
}

/// A version of a job gets a tag, or loses it.
#[derive(Clone, Debug)]
pub struct TagJobVersion {
    /// The namespace.
    pub namespace: String,
    /// The job.
    pub job_id: String,
    /// The tag's name.
    pub name: String,
    /// The version and the description; none takes the tag away. No version: the latest.
    pub tag: Option<(Option<u64>, String)>,
}

impl Command for TagJobVersion {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError> {
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let job = view
            .get::<Jobs>(key)?
            .ok_or_else(|| ApiError::refused("job not found"))?;
        let mut event = JobVersionTagged {
            namespace: self.namespace.clone(),
            job_id: self.job_id.clone(),
            name: self.name.clone(),
            ..JobVersionTagged::default()
        };
        if let Some((version, description)) = &self.tag {
            event.version = version.unwrap_or(job.version);
            version_of(view, key, event.version)?;
            event.tag = Some(JobVersionTag {
                name: self.name.clone(),
                description: description.clone(),
                tagged_time: stamp.now,
            });
        }
        Ok(Decision::free(event))
    }
}

fn version_of(view: &View, (namespace, id): (&str, &str), version: u64) -> Result<Job, ApiError> {
    view.get::<JobVersions>((namespace, id, version))?
        .ok_or_else(|| {
            ApiError::refused(format!(
                "job \"{id}\" in namespace \"{namespace}\" at version {version} not found"
            ))
        })
}

fn check_priority(priority: i64) -> Result<(), ApiError> {
    if priority != 0 && !(1..=100).contains(&priority) {
        let text = "Eval priority must be between 1 and 100 inclusively";
        return Err(ApiError::bad_request(text));
    }
    Ok(())
}

#[cfg(test)]
#[path = "job_test.rs"]
mod tests;
