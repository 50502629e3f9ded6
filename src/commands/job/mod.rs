//! Commands about jobs.

mod children;
mod periodic;
mod register;
mod scale;
mod summaries;

pub use children::{DispatchJob, dispatched};
pub use periodic::{ForceLaunch, LaunchPeriodic, launch_id};
pub use register::RegisterJob;
pub use scale::ScaleJob;
pub use summaries::ReconcileSummaries;

use std::collections::BTreeMap;

use drover_events::alloc::AllocsDesiredTransitionUpdated;
use drover_events::deployment::DeploymentsDeleted;
use drover_events::eval::EvalsUpserted;
use drover_events::job::*;
use drover_events::model::status::{client, trigger};
use drover_events::model::{DesiredTransition, Job, JobVersionTag};
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{ReadRows, Reply, Scan, View, query};

use super::limits::{MAX_ROWS, PAGE_ROWS};
use super::support::{all_servers_support, check_names, eval_of};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// How many versions of a job can have a tag, and how many without one are kept: what a purge
/// removes is one event.
const MAX_TAGS: usize = 512;
pub(super) const MAX_TRACKED: u32 = 512;
/// The feature level with which scaling policies of stopped jobs stay.
const POLICIES_LEVEL: u32 = 6;
/// How many scaling policies a job may have.
pub(super) const MAX_POLICIES: usize = 1_024;
const _: () = assert!(2 * (MAX_TAGS + MAX_TRACKED as usize) + MAX_POLICIES + 16 <= MAX_ROWS);

/// A job is stopped, or purged with all its rows.
#[derive(Clone, Debug, Default)]
pub struct DeregisterJob {
    pub namespace: String,
    pub job_id: String,
    /// Whether its rows go.
    pub purge: bool,
    /// Whether its allocations stop without the shutdown delay.
    pub no_shutdown_delay: bool,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// The priority of the evaluation; 0: the job's.
    pub eval_priority: i64,
    /// The highest priority there is; 0 stands for 100.
    pub max_priority: i64,
    /// How many versions are kept; 0 stands for 6.
    pub tracked_versions: u32,
}

impl Command for DeregisterJob {
    /// An unknown job is no error: nothing happens.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.job_id.is_empty() {
            return Err(Refusal::by_rule("missing job ID for deregistering"));
        }
        check_priority(self.eval_priority, self.max_priority)?;
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let Some(job) = view.get::<Jobs>(key)? else {
            return Ok(Decision::Nothing(Reply::None));
        };
        let delay_skip = self.skip_delay(view, key)?;
        if let DelaySkip::Before(transitions) = delay_skip {
            let event = AllocsDesiredTransitionUpdated {
                transitions,
                updated_at: stamp.now,
                ..AllocsDesiredTransitionUpdated::default()
            };
            let (event, guards) = (event.into(), vec![view.guard::<Jobs>(key)?]);
            return Ok(Decision::Page { event, guards });
        }
        if self.purge
            && let Some(before) = deployments_before(view, &[key])?
        {
            return Ok(before);
        }
        let deployment = match self.purge {
            true => None,
            false => query::active_deployment(view, key)?,
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
            made.deployment_id = deployment.unwrap_or_default();
            made
        });
        let deregistered = JobDeregistered {
            namespace: self.namespace.clone(),
            job_id: self.job_id.clone(),
            purge: self.purge,
            no_shutdown_delay: delay_skip == DelaySkip::Within,
            eval,
            submit_time: stamp.now,
            tracked_versions: self.tracked_versions.min(MAX_TRACKED),
            keep_policies: all_servers_support(view, POLICIES_LEVEL)?,
        };
        Ok(Decision::guarded(
            deregistered,
            vec![view.guard::<Jobs>(key)?],
        ))
    }
}

/// The deployments of jobs that are purged go before them, a page at a time.
fn deployments_before(view: &View, jobs: &[(&str, &str)]) -> Result<Option<Decision>, Refusal> {
    let mut ids = Vec::new();
    for key in jobs {
        let most = PAGE_ROWS - ids.len();
        ids.extend(query::deployments_of_job(view, *key, most)?);
    }
    let Some((first, _)) = jobs.split_first().filter(|_| !ids.is_empty()) else {
        return Ok(None);
    };
    let guards = vec![view.guard::<Jobs>(*first)?];
    let event = DeploymentsDeleted { ids }.into();
    Ok(Some(Decision::Page { event, guards }))
}

/// How allocations learn that they stop without the shutdown delay.
#[derive(PartialEq)]
enum DelaySkip {
    /// They do not, or know it already.
    None,
    /// By the deregistration itself.
    Within,
    /// They are so many that they are recorded before, in events of their own.
    Before(BTreeMap<String, DesiredTransition>),
}

impl DeregisterJob {
    fn skip_delay(&self, view: &View, key: (&str, &str)) -> Result<DelaySkip, Refusal> {
        if !self.no_shutdown_delay {
            return Ok(DelaySkip::None);
        }
        let mut live = query::allocs_of_job(view, key)?;
        live.retain(|row| !row.terminal_status());
        if live.len() <= PAGE_ROWS / 2 {
            return Ok(DelaySkip::Within);
        }
        let request = DesiredTransition {
            no_shutdown_delay: Some(true),
            ..DesiredTransition::default()
        };
        let unreported = live
            .iter()
            .filter(|row| row.desired_transition.no_shutdown_delay != Some(true));
        let before: BTreeMap<_, _> = unreported
            .map(|row| (row.id.clone(), request.clone()))
            .collect();
        Ok(if before.is_empty() {
            DelaySkip::None
        } else {
            DelaySkip::Before(before)
        })
    }
}

/// How many rows go with a job that is purged.
fn rows_of(view: &View, key: (&str, &str)) -> Result<usize, Refusal> {
    let versions = view.rows::<JobVersions>(Scan::with_key_prefix::<(String, String)>(key));
    // Job, summary, launch, scaling events; each version with its source; the parent's summary.
    Ok(5 + 2 * versions.count() + query::policies_of_job(view, key)?.len())
}

/// Garbage collection purges jobs; those gone already are passed over. In pages, by the rows that
/// go with them.
#[derive(Clone, Debug)]
pub struct PurgeJobs {
    /// Each with its namespace, and the modify index at which it was found to be over.
    pub jobs: Vec<(String, String, u64)>,
}

impl Command for PurgeJobs {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut jobs = Vec::new();
        let mut guards = Vec::new();
        let (mut rows, mut more) = (0, false);
        for (namespace, job_id, index) in &self.jobs {
            let key = (namespace.as_str(), job_id.as_str());
            let known = view.get::<Jobs>(key)?;
            if known.is_some_and(|job| job.modify_index == *index) {
                rows += rows_of(view, key)?;
                if rows > PAGE_ROWS && !jobs.is_empty() {
                    more = true;
                    break;
                }
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
        let keys = jobs
            .iter()
            .map(|job| (job.namespace.as_str(), job.job_id.as_str()));
        if let Some(before) = deployments_before(view, &keys.collect::<Vec<_>>())? {
            return Ok(before);
        }
        let submit_time = stamp.now;
        let event = JobsDeregistered {
            jobs,
            submit_time,
            ..JobsDeregistered::default()
        };
        Ok(if more {
            let event = event.into();
            Decision::Page { event, guards }
        } else {
            Decision::guarded(event, guards)
        })
    }

    fn is_tried(&self) -> bool {
        true
    }
}

/// An operator has a job looked at again.
#[derive(Clone, Debug)]
pub struct EvaluateJob {
    pub namespace: String,
    pub job_id: String,
    /// Whether failed allocations are rescheduled whatever their policy says.
    pub force_reschedule: bool,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
}

impl Command for EvaluateJob {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let job = view
            .get::<Jobs>(key)?
            .ok_or_else(|| Refusal::by_rule("job not found"))?;
        if job.is_periodic() {
            return Err(Refusal::by_rule("can't evaluate periodic job"));
        }
        if job.is_parameterized() {
            return Err(Refusal::by_rule("can't evaluate parameterized job"));
        }
        let mut made = eval_of(self.eval_id.clone(), &job, trigger::JOB_REGISTER, stamp.now);
        made.deployment_id = query::active_deployment(view, key)?.unwrap_or_default();
        let evals = vec![made];
        if !self.force_reschedule {
            return Ok(Decision::unguarded(EvalsUpserted {
                evals,
                decision: None,
            }));
        }
        let request = DesiredTransition {
            force_reschedule: Some(true),
            ..Default::default()
        };
        let failed = query::allocs_of_job(view, key)?
            .into_iter()
            .filter(|row| row.client_status == client::FAILED && row.next_allocation.is_empty());
        let transitions = failed
            .map(|row| (row.id.clone(), request.clone()))
            .collect();
        let updated = AllocsDesiredTransitionUpdated {
            transitions,
            evals,
            updated_at: stamp.now,
        };
        Ok(Decision::unguarded(updated))
    }
}

/// A version of a job is marked stable or unstable.
#[derive(Clone, Debug)]
pub struct SetJobStability {
    pub namespace: String,
    pub job_id: String,
    pub version: u64,
    /// What it is.
    pub stable: bool,
}

impl Command for SetJobStability {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        version_of(view, (&self.namespace, &self.job_id), self.version)?;
        Ok(Decision::unguarded(JobStabilityUpdated {
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
    pub namespace: String,
    pub job_id: String,
    /// The tag's name.
    pub name: String,
    /// The version and the description; none takes the tag away. No version: the latest.
    pub tag: Option<(Option<u64>, String)>,
}

impl Command for TagJobVersion {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let job = view
            .get::<Jobs>(key)?
            .ok_or_else(|| Refusal::by_rule("job not found"))?;
        let mut event = JobVersionTagged {
            namespace: self.namespace.clone(),
            job_id: self.job_id.clone(),
            name: self.name.clone(),
            ..JobVersionTagged::default()
        };
        if let Some((version, description)) = &self.tag {
            check_names([("tag name", self.name.as_str())])?;
            event.version = version.unwrap_or(job.version);
            version_of(view, key, event.version)?;
            check_tags(view, key)?;
            event.tag = Some(JobVersionTag {
                name: self.name.clone(),
                description: description.clone(),
                tagged_time: stamp.now,
            });
        }
        Ok(Decision::unguarded(event))
    }
}

fn version_of(view: &View, (namespace, id): (&str, &str), version: u64) -> Result<Job, Refusal> {
    view.get::<JobVersions>((namespace, id, version))?
        .ok_or_else(|| {
            Refusal::by_rule(format!(
                "job \"{id}\" in namespace \"{namespace}\" at version {version} not found"
            ))
        })
}

/// A tagged version is kept for ever, and a purge removes them all with one event.
fn check_tags(view: &View, key: (&str, &str)) -> Result<(), Refusal> {
    let mut tagged = 0;
    for version in view.rows::<JobVersions>(Scan::with_key_prefix::<(String, String)>(key)) {
        tagged += usize::from(version?.version_tag.is_some());
    }
    if tagged >= MAX_TAGS {
        let text = format!(
            "job \"{}\" has {MAX_TAGS} tagged versions, which is the limit",
            key.1
        );
        return Err(Refusal::bad_request(text));
    }
    Ok(())
}

/// The highest priority by default.
const MAX_PRIORITY: i64 = 100;

/// The highest priority under a setting; 0 means the default.
fn highest_priority(setting: i64) -> i64 {
    if setting == 0 { MAX_PRIORITY } else { setting }
}

/// Whether an evaluation may have this priority; 0 is its job's.
fn check_priority(priority: i64, most: i64) -> Result<(), Refusal> {
    let most = highest_priority(most);
    if priority != 0 && !(1..=most).contains(&priority) {
        let text = format!("Eval priority must be between 1 and {most} inclusively");
        return Err(Refusal::bad_request(text));
    }
    Ok(())
}

#[cfg(test)]
#[path = "job_test.rs"]
mod tests;

#[cfg(test)]
#[path = "ends_test.rs"]
mod ends_tests;
