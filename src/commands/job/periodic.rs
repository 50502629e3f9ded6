//! Children of periodic jobs: launches by the clock, and by force.

use std::sync::Arc;

use drover_events::job::{JobRegistered, PeriodicJobLaunched};
use drover_events::model::Job;
use drover_events::model::status::trigger;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::periodic_launches::PeriodicLaunches;
use drover_projections::{Prefix, ReadRows, Scan, View};

use super::super::support::eval_of;
use super::super::{Command, Decision, Stamp};
use super::children::child;
use drover_error::Refusal;

const SECOND: i64 = 1_000_000_000;

/// The id of the child that is launched at a time, Unix nanoseconds.
pub fn launch_id(job_id: &str, at: i64) -> String {
    format!("{job_id}/periodic-{}", at.div_euclid(SECOND))
}

/// A launch time of a periodic job has come. Each launch time is used once: a child is launched, or
/// it is recorded as passed, because an earlier child still runs and overlap is prohibited or
/// because the child exists.
#[derive(Clone, Debug)]
pub struct LaunchPeriodic {
    pub namespace: String,
    /// The periodic job.
    pub job_id: String,
    /// Index of the job version whose schedule has this launch time.
    pub job_modify_index: u64,
    /// The launch time, Unix nanoseconds.
    pub launch_time: i64,
}

impl Command for LaunchPeriodic {
    /// A launch time that is used, or no longer valid, is no error: nothing happens.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let nothing = Ok(Decision::Nothing(drover_projections::Reply::None));
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let Some(parent) = view.get::<Jobs>(key)? else {
            return nothing;
        };
        let launched = view.get::<PeriodicLaunches>(key)?;
        if !parent.is_periodic_active()
            || parent.job_modify_index != self.job_modify_index
            || launched.is_some_and(|known| known.launch >= self.launch_time)
        {
            return nothing;
        }
        let id = launch_id(&self.job_id, self.launch_time);
        let child_key = (self.namespace.as_str(), id.as_str());
        let mut guards = vec![
            view.guard::<Jobs>(key)?,
            view.guard::<PeriodicLaunches>(key)?,
        ];
        let alone = prohibits_overlap(&parent);
        if view.contains::<Jobs>(child_key)? || (alone && runs(view, &parent)?) {
            let passed = PeriodicJobLaunched {
                namespace: self.namespace.clone(),
                job_id: self.job_id.clone(),
                launch: self.launch_time,
            };
            return Ok(Decision::guarded(passed, guards));
        }
        guards.push(view.guard::<Jobs>(child_key)?);
        if alone {
            // Whenever a child comes or goes, its parent's summary moves.
            guards.push(view.guard::<JobSummaries>(key)?);
        }
        Ok(Decision::guarded(
            launched_child(&parent, id, self.launch_time, stamp.uuid(0), stamp),
            guards,
        ))
    }

    /// A launch follows from the specification that names its time.
    fn cause(&self, _: &View) -> Option<u64> {
        Some(self.job_modify_index).filter(|index| *index > 0)
    }
}

/// A periodic job is launched now, whatever its schedule and its overlap rule say.
#[derive(Clone, Debug)]
pub struct ForceLaunch {
    pub namespace: String,
    /// The periodic job.
    pub job_id: String,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
}

impl Command for ForceLaunch {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let parent = view
            .get::<Jobs>(key)?
            .ok_or_else(|| Refusal::by_rule("job not found"))?;
        if !parent.is_periodic() {
            return Err(Refusal::by_rule("can't force launch non-periodic job"));
        }
        if !parent.is_periodic_active() {
            return Err(Refusal::by_rule(format!(
                "can't force run non-tracked job \"{}\" ({})",
                self.job_id, self.namespace
            )));
        }
        // Several launches in one second have ids of their own.
        let mut at = stamp.now;
        let mut id = launch_id(&self.job_id, at);
        while view.contains::<Jobs>((self.namespace.as_str(), id.as_str()))? {
            at = at.saturating_add(SECOND);
            id = launch_id(&self.job_id, at);
        }
        let guards = vec![
            view.guard::<Jobs>(key)?,
            view.guard::<Jobs>((self.namespace.as_str(), id.as_str()))?,
        ];
        let known = view.get::<PeriodicLaunches>(key)?;
        let launch = known.map_or(stamp.now, |known| known.launch.max(stamp.now));
        Ok(Decision::guarded(
            launched_child(&parent, id, launch, self.eval_id.clone(), stamp),
            guards,
        ))
    }
}

/// The registration of a child.
fn launched_child(
    parent: &Job,
    id: String,
    launch: i64,
    eval_id: String,
    stamp: &Stamp,
) -> JobRegistered {
    let mut job = child(parent, id, stamp);
    job.periodic = None;
    let eval = eval_of(eval_id, &job, trigger::PERIODIC_JOB, stamp.now);
    JobRegistered {
        job: Arc::new(job),
        eval: Some(eval),
        launch,
        ..JobRegistered::default()
    }
}

fn prohibits_overlap(parent: &Job) -> bool {
    parent
        .periodic
        .as_ref()
        .is_some_and(|periodic| periodic.prohibit_overlap)
}

/// Whether a child of the job is not over. The summary misses children left by a purged job of the
/// same name; their ids (launch times) sort first, so the scan stops at the first newer child.
fn runs(view: &View, parent: &Job) -> Result<bool, Refusal> {
    let key = (parent.namespace.as_str(), parent.id.as_str());
    let children = view.get::<JobSummaries>(key)?.and_then(|row| row.children);
    if children.is_some_and(|children| children.pending + children.running > 0) {
        return Ok(true);
    }
    let prefix = format!("{}/periodic-", parent.id);
    let child_ids = Prefix::new().str(&parent.namespace).str_prefix(&prefix);
    for job in view.rows::<Jobs>(Scan::prefix(child_ids)) {
        let job = job?;
        if job.create_index > parent.create_index {
            break;
        }
        if job.parent_id == parent.id && !job.is_dead() {
            return Ok(true);
        }
    }
    Ok(false)
}
