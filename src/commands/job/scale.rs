//! Scaling a group: a new count, or only something recorded about it.

use std::sync::Arc;

use drover_events::gojson::{Any, Map};
use drover_events::job::{GroupScaling, JobRegistered};
use drover_events::model::status::{job_type, trigger};
use drover_events::model::{Job, ScalingEvent, TaskGroup};
use drover_events::scaling::ScalingEventRecorded;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{View, query};

use super::super::support::eval_of;
use super::super::{Command, Decision, Stamp};
use super::register::{check_registration, enforce_index, with_scaling};
use drover_error::Refusal;

/// A group's count is changed, or an event about it recorded.
#[derive(Clone, Debug, Default)]
pub struct ScaleJob {
    pub namespace: String,
    pub job_id: String,
    pub group: String,
    /// The new count; none only records.
    pub count: Option<i64>,
    /// Why.
    pub message: String,
    /// Whether this reports an error.
    pub error: bool,
    /// Whatever the caller adds.
    pub meta: Map<Any>,
    /// The job modify index the caller knows; 0: whatever it is.
    pub job_modify_index: u64,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// How many versions are kept; 0 stands for 6.
    pub tracked_versions: u32,
    /// The most allocations a job may request; 0: any number.
    pub job_max_count: i64,
}

impl Command for ScaleJob {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        check_registration(view, false)?;
        self.check_request()?;
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let known = view
            .get::<Jobs>(key)?
            .ok_or_else(|| Refusal::not_found(format!("job \"{}\" not found", self.job_id)))?;
        let group = known.task_group(&self.group).ok_or_else(|| {
            Refusal::bad_request(format!(
                "task group \"{}\" specified for scaling does not exist in job",
                self.group
            ))
        })?;
        let wanted = Some(self.job_modify_index).filter(|index| *index > 0);
        enforce_index(wanted, Some(&known))?;
        let mut event = ScalingEvent {
            time: stamp.now,
            count: self.count,
            previous_count: group.count,
            message: self.message.clone(),
            error: self.error,
            meta: self.meta.clone(),
            ..ScalingEvent::default()
        };
        let Some(count) = self.count else {
            return Ok(Decision::unguarded(ScalingEventRecorded {
                namespace: self.namespace.clone(),
                job_id: self.job_id.clone(),
                task_group: self.group.clone(),
                event,
            }));
        };
        check_bounds(&known, group, count)?;
        if query::has_active_deployment(view, key)? {
            let text = "job scaling blocked due to active deployment";
            return Err(Refusal::bad_request(text));
        }
        let mut job = known.clone();
        for group in job
            .task_groups
            .iter_mut()
            .filter(|group| group.name == self.group)
        {
            group.count = count;
        }
        self.check_total(&job)?;
        job.submit_time = stamp.now;
        let eval = (!job.has_children()).then(|| {
            event.eval_id = Some(self.eval_id.clone());
            eval_of(self.eval_id.clone(), &job, trigger::SCALING, stamp.now)
        });
        let registered = JobRegistered {
            job: Arc::new(job),
            eval,
            tracked_versions: self.tracked_versions,
            ..JobRegistered::default()
        };
        let scaling = GroupScaling {
            task_group: self.group.clone(),
            event,
        };
        let guards = vec![view.guard::<Jobs>(key)?];
        Ok(Decision::guarded(with_scaling(registered, scaling), guards))
    }
}

impl ScaleJob {
    fn check_request(&self) -> Result<(), Refusal> {
        let text = match self.count {
            _ if self.group.is_empty() => "missing task group name for scaling action".to_owned(),
            Some(count) if count < 0 => "scaling action count can't be negative".to_owned(),
            Some(_) if self.error => {
                "scaling action should not contain count if error is true".to_owned()
            }
            Some(count) if count > i64::from(i32::MAX) => {
                format!("new scaling count is too large for TaskGroup.Count (int): {count}")
            }
            _ => return Ok(()),
        };
        Err(Refusal::bad_request(text))
    }

    fn check_total(&self, job: &Job) -> Result<(), Refusal> {
        let total: i64 = job.task_groups.iter().map(|group| group.count).sum();
        if self.job_max_count > 0 && total > self.job_max_count {
            return Err(Refusal::by_rule(format!(
                "total count was greater than configured job_max_count: {total} > {}",
                self.job_max_count
            )));
        }
        Ok(())
    }
}

fn check_bounds(job: &Job, group: &TaskGroup, count: i64) -> Result<(), Refusal> {
    if job.r#type == job_type::SYSTEM && count > 1 {
        let text = "jobs of type \"system\" can only be scaled between 0 and 1";
        return Err(Refusal::bad_request(text));
    }
    let Some(policy) = &group.scaling else {
        return Ok(());
    };
    let text = if count < policy.min {
        format!(
            "group count was less than scaling policy minimum: {count} < {}",
            policy.min
        )
    } else if count > policy.max {
        format!(
            "group count was greater than scaling policy maximum: {count} > {}",
            policy.max
        )
    } else {
        return Ok(());
    };
    Err(Refusal::bad_request(text))
}
