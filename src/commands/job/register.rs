//! Registering a job.

use std::sync::Arc;

use drover_events::eval::EvalsUpserted;
use drover_events::job::{GroupScaling, JobRegistered};
use drover_events::model::status::{DEFAULT_NAMESPACE, trigger};
use drover_events::model::{Evaluation, Job, JobSubmission};
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::periodic_launches::PeriodicLaunches;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{Reply, View, query};

use super::super::support::eval_of;
use super::super::{Command, Decision, Stamp};
use super::{MAX_POLICIES, MAX_TRACKED, check_priority};
use drover_error::{Code, Refusal};

/// A job is registered. It is canonical and valid already; its namespace is set.
#[derive(Clone, Debug, Default)]
pub struct RegisterJob {
    /// The specification.
    pub job: Job,
    /// The source as it was submitted.
    pub submission: Option<JobSubmission>,
    /// The job modify index the caller knows, if that is to be enforced; 0: no such job.
    pub enforce_index: Option<u64>,
    /// Whether the counts of groups that exist stay as they are.
    pub preserve_counts: bool,
    /// Whether the resources of tasks that exist stay as they are.
    pub preserve_resources: bool,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
    /// The priority of the evaluation; 0: the job's.
    pub eval_priority: i64,
    /// The highest priority there is; 0 stands for 100.
    pub max_priority: i64,
    /// Whether the evaluation names the deployment that is still running, as that of a revert does.
    pub names_deployment: bool,
    /// How many versions are kept; 0 stands for 6.
    pub tracked_versions: u32,
    /// Whether the caller may register although the scheduler configuration refuses jobs.
    pub override_rejection: bool,
    /// Whether its specification is a long one.
    pub is_long: bool,
}

impl Command for RegisterJob {
    fn is_long(&self) -> bool {
        self.is_long
    }

    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        check_registration(view, self.override_rejection)?;
        check_priority(self.eval_priority, self.max_priority)?;
        let groups = self.job.task_groups.iter();
        let policies = groups.filter(|group| group.scaling.is_some()).count();
        if policies > MAX_POLICIES {
            return Err(Refusal::bad_request(format!(
                "job \"{}\" has {policies} scaling policies, more than the {MAX_POLICIES} a job \
                 may have",
                self.job.id
            )));
        }
        let key = (self.job.namespace.as_str(), self.job.id.as_str());
        if self.job.namespace != DEFAULT_NAMESPACE
            && !view.contains::<Namespaces>(self.job.namespace.as_str())?
        {
            let text = format!("nonexistent namespace \"{}\"", self.job.namespace);
            return Err(Refusal::by_rule(text));
        }
        let known = view.get::<Jobs>(key)?;
        enforce_index(self.enforce_index, known.as_ref())?;
        check_transition(known.as_ref(), &self.job)?;
        let mut job = self.job.clone();
        if let Some(known) = &known {
            self.preserve(&mut job, known);
        }
        let deployment = match self.names_deployment {
            true => query::active_deployment(view, key)?.unwrap_or_default(),
            false => String::new(),
        };
        if let Some(known) = &known
            && known.same_spec(&job)
        {
            return Ok(self.evaluate_again(known, deployment, stamp));
        }
        let guards = vec![view.guard::<Jobs>(key)?];
        job.submit_time = stamp.now;
        job.stable = false;
        name_policies(&mut job, stamp);
        let launch = if job.is_periodic_active() && view.get::<PeriodicLaunches>(key)?.is_none() {
            stamp.now
        } else {
            0
        };
        let eval = (!job.has_children()).then(|| self.eval(&job, deployment, stamp));
        let registered = JobRegistered {
            job: Arc::new(job),
            submission: self.submission.clone(),
            eval,
            launch,
            tracked_versions: self.tracked_versions.min(MAX_TRACKED),
            ..JobRegistered::default()
        };
        Ok(Decision::guarded(registered, guards))
    }
}

impl RegisterJob {
    fn eval(&self, job: &Job, deployment: String, stamp: &Stamp) -> Evaluation {
        let mut made = eval_of(self.eval_id.clone(), job, trigger::JOB_REGISTER, stamp.now);
        if self.eval_priority != 0 {
            made.priority = self.eval_priority;
        }
        made.deployment_id = deployment;
        made
    }

    /// The specification is the one there is: only an evaluation is made.
    fn evaluate_again(&self, known: &Job, deployment: String, stamp: &Stamp) -> Decision {
        if known.has_children() {
            return Decision::Nothing(Reply::None);
        }
        let evals = vec![self.eval(known, deployment, stamp)];
        Decision::unguarded(EvalsUpserted {
            evals,
            decision: None,
        })
    }

    fn preserve(&self, job: &mut Job, known: &Job) {
        for group in job.task_groups.iter_mut() {
            let Some(old) = known.task_group(&group.name) else {
                continue;
            };
            if self.preserve_counts {
                group.count = old.count;
            }
            if self.preserve_resources {
                for task in group.tasks.iter_mut() {
                    if let Some(old) = old.task(&task.name) {
                        task.resources.clone_from(&old.resources);
                    }
                }
            }
        }
    }
}

/// Whether jobs may be registered at all.
pub(super) fn check_registration(view: &View, anyway: bool) -> Result<(), Refusal> {
    let config = view.get::<SchedulerConfigTable>(())?;
    if !anyway && config.is_some_and(|config| config.reject_job_registration) {
        let text = "Job registration, dispatch, and scale are disabled by the scheduler \
                    configuration";
        return Err(Refusal::new(Code::PermissionDenied, text));
    }
    Ok(())
}

/// The job is as the caller knows it.
pub(super) fn enforce_index(wanted: Option<u64>, known: Option<&Job>) -> Result<(), Refusal> {
    let prefix = "Enforcing job modify index";
    let text = match (wanted, known) {
        (None, _) | (Some(0), None) => return Ok(()),
        (Some(wanted), Some(job)) if job.job_modify_index == wanted => return Ok(()),
        (Some(0), Some(_)) => format!("{prefix} 0: job already exists"),
        (Some(wanted), Some(job)) => format!(
            "{prefix} {wanted}: job exists with conflicting job modify index: {}",
            job.job_modify_index
        ),
        (Some(wanted), None) => format!("{prefix} {wanted}: job does not exist"),
    };
    Err(Refusal::by_rule(text))
}

/// What a job is can change only so far.
fn check_transition(known: Option<&Job>, job: &Job) -> Result<(), Refusal> {
    let Some(known) = known else {
        if job.dispatched && job.parent_id.is_empty() {
            return Err(Refusal::by_rule(
                "job can't be submitted with 'Dispatched' set",
            ));
        }
        return Ok(());
    };
    let text = if known.r#type != job.r#type {
        format!(
            "cannot update job from type \"{}\" to \"{}\"",
            known.r#type, job.r#type
        )
    } else if known.is_periodic() && !job.is_periodic() {
        "cannot update periodic job to being non-periodic".to_owned()
    } else if job.is_periodic() && !known.is_periodic() {
        "cannot update non-periodic job to being periodic".to_owned()
    } else if known.is_parameterized() && !job.is_parameterized() {
        "cannot update parameterized job to being non-parameterized".to_owned()
    } else if job.is_parameterized() && !known.is_parameterized() {
        "cannot update non-parameterized job to being parameterized".to_owned()
    } else if known.dispatched != job.dispatched {
        "field 'Dispatched' is read-only".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::by_rule(text))
}

/// Every scaling policy has an id; apply gives an existing target its own again.
pub(super) fn name_policies(job: &mut Job, stamp: &Stamp) {
    for (n, group) in job.task_groups.iter_mut().enumerate() {
        if let Some(policy) = &mut group.scaling
            && policy.id.is_empty()
        {
            policy.id = stamp.uuid(1_000 + n as u64);
        }
    }
}

/// What a scaling action records with the registration it causes.
pub(super) fn with_scaling(mut event: JobRegistered, scaling: GroupScaling) -> JobRegistered {
    event.scaling = Some(scaling);
    event
}
