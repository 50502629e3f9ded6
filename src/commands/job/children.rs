//! Children of parameterized jobs: dispatches. Those of periodic ones are in `periodic`.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::Base64;
use drover_events::job::JobRegistered;
use drover_events::model::status::trigger;
use drover_events::model::{Job, ParameterizedJobConfig};
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Reply, View, query};

use super::super::support::{check_names, eval_of};
use super::super::{Command, Decision, Stamp};
use super::highest_priority;
use super::register::{check_registration, name_policies};
use drover_error::Refusal;

/// The longest payload of a dispatch, bytes.
const PAYLOAD_LIMIT: usize = 16 << 10;

/// The longest metadata of a dispatch, keys and values, bytes: each child has its own, and each of
/// its tasks gets it in its environment, where the system takes no longer value.
const META_LIMIT: usize = 128 << 10;

/// A parameterized job is dispatched. The child's id follows from the command, so that the caller
/// knows it.
#[derive(Clone, Debug, Default)]
pub struct DispatchJob {
    pub namespace: String,
    /// The parameterized job.
    pub job_id: String,
    pub child_id: String,
    /// What the child is given.
    pub payload: Vec<u8>,
    /// Metadata put over the job's own.
    pub meta: BTreeMap<String, String>,
    /// The priority of the child; 0: the job's.
    pub priority: i64,
    /// The highest priority there is; 0 stands for 100.
    pub max_priority: i64,
    /// Names the dispatch: a second one with the same token does nothing.
    pub idempotency_token: String,
    /// The id of the evaluation, which the answer names.
    pub eval_id: String,
}

impl DispatchJob {
    /// The id of a child dispatched now (Unix seconds), distinguished by some hexadecimal digits.
    pub fn child_id(job_id: &str, prefix: &str, seconds: i64, digits: &str) -> String {
        let separator = if prefix.is_empty() { "" } else { "-" };
        format!("{job_id}/dispatch-{prefix}{separator}{seconds}-{digits}")
    }

    fn check(&self, job: &Job) -> Result<(), Refusal> {
        let refused = |text: String| Err(Refusal::by_rule(text));
        let config = match &job.parameterized_job {
            Some(config) if job.is_parameterized() => config,
            _ => {
                return refused(format!(
                    "Specified job \"{}\" is not a parameterized job",
                    self.job_id
                ));
            }
        };
        if job.stop {
            return refused(format!("Specified job \"{}\" is stopped", self.job_id));
        }
        let most = highest_priority(self.max_priority);
        if self.priority != 0 && !(1..=most).contains(&self.priority) {
            return refused(format!("dispatch job priority must be between [1, {most}]"));
        }
        let prefix = self.child_id.get(job.id.len()..).unwrap_or_default();
        check_names([
            ("the dispatched job's ID prefix", prefix),
            ("the idempotency token", &self.idempotency_token),
        ])?;
        match config.payload.as_str() {
            "required" if self.payload.is_empty() => {
                return refused(
                    "Payload is not provided but required by parameterized job".to_owned(),
                );
            }
            "forbidden" if !self.payload.is_empty() => {
                return refused("Payload provided but forbidden by parameterized job".to_owned());
            }
            _ => {}
        }
        if self.payload.len() > PAYLOAD_LIMIT {
            return refused(format!(
                "Payload exceeds maximum size; {} > {PAYLOAD_LIMIT}",
                self.payload.len()
            ));
        }
        self.check_meta(config)
    }

    fn check_meta(&self, config: &ParameterizedJobConfig) -> Result<(), Refusal> {
        let bytes: usize = self.meta.iter().map(|(k, v)| k.len() + v.len()).sum();
        if bytes > META_LIMIT {
            return Err(Refusal::bad_request(format!(
                "Meta of a dispatch is {bytes} bytes long; at most {META_LIMIT} are accepted"
            )));
        }
        let (required, optional) = (&config.meta_required, &config.meta_optional);
        let keys = self.meta.keys();
        let surplus: Vec<&str> = keys
            .filter(|key| !required.contains(key) && !optional.contains(key))
            .map(String::as_str)
            .collect();
        if !surplus.is_empty() {
            return Err(Refusal::by_rule(format!(
                "Dispatch request included unpermitted metadata keys: [{}]",
                surplus.join(" ")
            )));
        }
        let missing = required.iter().filter(|key| !self.meta.contains_key(*key));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            return Err(Refusal::by_rule(format!(
                "Dispatch did not provide required meta keys: [{}]",
                missing.join(" ")
            )));
        }
        Ok(())
    }
}

impl Command for DispatchJob {
    /// A repeated dispatch is no error: nothing happens.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        check_registration(view, false)?;
        let key = (self.namespace.as_str(), self.job_id.as_str());
        let parent = view
            .get::<Jobs>(key)?
            .ok_or_else(|| Refusal::by_rule("parameterized job not found"))?;
        self.check(&parent)?;
        if dispatched(view, key, &self.idempotency_token)?.is_some() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let guards = vec![view.guard::<Jobs>(key)?];
        let mut job = child(&parent, self.child_id.clone(), stamp);
        job.dispatched = true;
        job.dispatch_idempotency_token
            .clone_from(&self.idempotency_token);
        job.payload = Base64::from(self.payload.clone());
        if self.priority != 0 {
            job.priority = self.priority;
        }
        let mut meta = parent.meta.into_map();
        meta.extend(self.meta.clone());
        if !meta.is_empty() {
            job.meta = meta.into();
        }
        let eval = (!job.is_periodic())
            .then(|| eval_of(self.eval_id.clone(), &job, trigger::JOB_REGISTER, stamp.now));
        let registered = JobRegistered {
            job: Arc::new(job),
            eval,
            ..JobRegistered::default()
        };
        Ok(Decision::guarded(registered, guards))
    }
}

/// The child of an earlier dispatch with the same token.
///
/// # Errors
/// The state cannot be read.
pub fn dispatched(
    view: &View,
    key: (&str, &str),
    token: &str,
) -> Result<Option<Arc<Job>>, Refusal> {
    if token.is_empty() {
        return Ok(None);
    }
    let children = query::children_of_job(view, key)?;
    let same = |child: &Arc<Job>| child.dispatch_idempotency_token == token;
    Ok(children.into_iter().find(same))
}

/// A copy of a job as its child. Its scaling policies are its own, not the parent's.
pub(super) fn child(parent: &Job, id: String, stamp: &Stamp) -> Job {
    let mut job = Job {
        name: id.clone(),
        id,
        parent_id: parent.id.clone(),
        status: String::new(),
        status_description: String::new(),
        stable: false,
        version: 0,
        version_tag: None,
        submit_time: stamp.now,
        ..parent.clone()
    };
    for group in job.task_groups.iter_mut() {
        if let Some(policy) = &mut group.scaling {
            policy.id.clear();
        }
    }
    name_policies(&mut job, stamp);
    job
}
