//! Registering, stopping and evaluating jobs.

use std::collections::BTreeSet;

use drover_events::model::status::{DEFAULT_NAMESPACE, DEFAULT_NODE_POOL};
use drover_events::model::{Job, JobSubmission};
use drover_projections::tables::job_submissions::JobSubmissions;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;

use super::{
    JobDeregisterResponse, JobEvaluateRequest, JobRegisterResponse, JobStabilityRequest, volumes,
};
use crate::acl::NamespaceCapability as Ns;
use crate::commands::job::{DeregisterJob, EvaluateJob, RegisterJob, SetJobStability};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::decoded::SHORT;
use crate::http::front::FrontCall;
use crate::http::gate::{Late, Write, demand, in_namespace};
use crate::http::ignored;
use crate::http::list::storage;
use crate::http::new_id;
use crate::jobspec::{self, JobLimits, ParsedJob, Validation};
use crate::proposer::Committed;
use crate::table_reads::glance;

/// What lets a job be registered.
pub(in crate::http) const REGISTER: &[Ns] = &[Ns::SubmitJob, Ns::RegisterJob];

drover_events::wire! {
    /// A request to register a job; the job itself is read by its own table.
    pub(super) struct RegisterBody {
        job: ParsedJob = "Job",
        submission: Option<JobSubmission> = "Submission",
        enforce_index: bool = "EnforceIndex",
        job_modify_index: u64 = "JobModifyIndex",
        policy_override: bool = "PolicyOverride",
        preserve_counts: bool = "PreserveCounts",
        preserve_resources: bool = "PreserveResources",
        eval_priority: i64 = "EvalPriority",
        region: String = "Region",
        namespace: String = "Namespace",
    }

    /// A job by itself, which is read by its own table, and where it belongs; empty where that is
    /// not given beside it.
    pub(super) struct JobBody {
        job: ParsedJob = "Job",
        region: String = "Region",
        namespace: String = "Namespace",
    }

    /// A version to go back to.
    struct RevertBody {
        job_id: String = "JobID",
        job_version: u64 = "JobVersion",
        enforce_prior_version: Option<u64> = "EnforcePriorVersion",
    }

    /// The index of a job whose version was marked.
    struct StableResponse {
        job_modify_index: u64 = "JobModifyIndex",
        index: u64 = "Index",
    }
}

impl RegisterBody {
    /// The job, taken out of the body.
    fn take_job(&mut self) -> JobBody {
        JobBody {
            job: std::mem::take(&mut self.job),
            region: std::mem::take(&mut self.region),
            namespace: std::mem::take(&mut self.namespace),
        }
    }

    /// The canonical job, refused with every rule it breaks, and what is to be warned of.
    fn checked(&mut self, write: &FrontCall) -> Result<(Job, String), Refusal> {
        let job = self.take_job().canonical(write)?;
        let warnings = warnings(write, &job)?;
        Ok((job, warnings))
    }
}

impl JobBody {
    /// The job of the body: in canonical form, in the namespace the request names.
    pub(super) fn canonical(self, write: &FrontCall) -> Result<Job, Refusal> {
        let job = self.complete(write)?;
        if job.id.is_empty() {
            return Err(Refusal::bad_request("Job ID hasn't been provided"));
        }
        Ok(job)
    }

    /// The same of a job that may have no id yet.
    pub(super) fn complete(self, write: &FrontCall) -> Result<Job, Refusal> {
        let missing = || Refusal::bad_request("Job must be specified");
        let api = self.job.job();
        let api = api.map_err(|e| Refusal::bad_request(e.to_string()))?;
        let api = api.ok_or_else(missing)?;
        let unknown = api.unknown().iter().map(|path| ignored::field(path));
        write.request.query.ignore(unknown);
        let requested = write.request.query.text("namespace");
        let named = [
            requested,
            &self.namespace,
            api.namespace().unwrap_or_default(),
            DEFAULT_NAMESPACE,
        ];
        let namespace = named
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        let namespace = namespace.to_owned();
        let unstated = api.priority().is_none();
        let mut job = api
            .into_model()
            .map_err(|e| Refusal::bad_request(e.to_string()))?;
        // Kept and shown, and there is neither a Consul nor a Vault that they could be of.
        let unread = [
            ("Job.ConsulNamespace", &job.consul_namespace),
            ("Job.VaultNamespace", &job.vault_namespace),
        ];
        let unread = unread.into_iter().filter(|(_, value)| !value.is_empty());
        let unread = unread.map(|(path, _)| ignored::field(path));
        write.request.query.ignore(unread);
        job.namespace = namespace;
        place_region(&self.region, &mut job, write)?;
        if unstated {
            job.priority = write.api.settings.job_priority;
        }
        if job.node_pool.is_empty() {
            job.node_pool = DEFAULT_NODE_POOL.to_owned();
        }
        Ok(job)
    }
}

/// The region of a job: the body's, the request's, its own; the agent's where none is named.
fn place_region(body: &str, job: &mut Job, write: &FrontCall) -> Result<(), Refusal> {
    let own = &write.api.settings.region;
    if job.multiregion.is_some() {
        return Ok(());
    }
    let named = [body, write.request.query.text("region"), &job.region];
    let named = named.into_iter().find(|region| !region.is_empty());
    if named.is_some_and(|region| region != "global" && region != own) {
        return Err(Refusal::by_rule("No path to region"));
    }
    job.region.clone_from(own);
    Ok(())
}

/// The warnings about a job that breaks no rule and uses nothing that is not built.
pub(super) fn warnings(write: &FrontCall, job: &Job) -> Result<String, Refusal> {
    let mut found = validation(write, job)?;
    found.errors.extend(jobspec::unbuilt(job));
    match found.error() {
        Some(text) => Err(Refusal::by_rule(text)),
        None => Ok(found.warning()),
    }
}

/// Holds a canonical job to every rule, under the settings in force.
pub(super) fn validation(write: &FrontCall, job: &Job) -> Result<Validation, Refusal> {
    let view = write.api.projections.view();
    let config = glance(|| view.get::<SchedulerConfigTable>(())).map_err(storage)?;
    let limits = JobLimits {
        memory_oversubscription: config.is_some_and(|c| c.memory_oversubscription_enabled),
        max_priority: write.api.settings.job_max_priority,
        max_count: write.api.settings.job_max_count,
    };
    let mut found = jobspec::validate(job, &limits);
    found.errors.extend(without_vault(job));
    let ignored = write.request.query.ignored();
    found.warnings.extend(ignored::warnings(ignored));
    Ok(found)
}

/// No server here speaks to a Vault: jobs that need one get a warning.
fn without_vault(job: &Job) -> impl Iterator<Item = String> {
    let tasks = job.task_groups.iter().flat_map(|group| group.tasks.iter());
    let named = tasks.filter_map(|task| task.vault.as_ref());
    let clusters: BTreeSet<&str> = named
        .map(|vault| match vault.cluster.as_str() {
            "" => "default",
            cluster => cluster,
        })
        .collect();
    let text = |cluster| format!("Vault {cluster:?} not enabled but used in the job");
    let texts: Vec<String> = clusters.into_iter().map(text).collect();
    texts.into_iter()
}

/// What of the cluster a job names and does not find.
pub(super) fn missing(write: &FrontCall, job: &Job) -> Result<Vec<String>, Refusal> {
    let view = write.api.projections.view();
    let mut texts = Vec::new();
    let namespace = glance(|| view.get::<Namespaces>(job.namespace.as_str()));
    if namespace.map_err(storage)?.is_none() {
        texts.push(format!(
            "job {:?} is in nonexistent namespace {:?}",
            job.id, job.namespace
        ));
    }
    let pool = glance(|| view.get::<NodePools>(job.node_pool.as_str()));
    if pool.map_err(storage)?.is_none() {
        texts.push(format!(
            "job {:?} is in nonexistent node pool {:?}",
            job.id, job.node_pool
        ));
    }
    Ok(texts)
}

/// `PUT /v1/jobs`.
pub(in crate::http) async fn register(late: Late) -> Result<Answer, Refusal> {
    let given = late.judged(|call| {
        let mut body: RegisterBody = call.request.json()?;
        let (job, warnings) = body.checked(call)?;
        Ok((body, job, warnings))
    });
    let (body, job, warnings) = given.await?;
    let write = admitted(late, &job, &body)?;
    register_job(&write, job, &body, warnings, false).await
}

/// Lets in a caller that may register a job, and override policies where the request says so.
fn admitted(late: Late, job: &Job, body: &RegisterBody) -> Result<Write, Refusal> {
    let overrides = in_namespace(late.acl(), &job.namespace, &[Ns::SentinelOverride]);
    demand(!body.policy_override || overrides)?;
    late.in_namespace(&job.namespace, REGISTER)
}

/// `PUT /v1/job/:id`.
pub(super) async fn update(late: Late) -> Result<Answer, Refusal> {
    let given = late.judged(|call| {
        let mut body: RegisterBody = call.request.json()?;
        let job = body.take_job().canonical(call)?;
        if job.id != super::job_id(&call.request)? {
            return Err(Refusal::bad_request("Job ID does not match name"));
        }
        let warnings = warnings(call, &job)?;
        Ok((body, job, warnings))
    });
    let (body, job, warnings) = given.await?;
    let write = admitted(late, &job, &body)?;
    register_job(&write, job, &body, warnings, false).await
}

/// The source to keep with a job; one that is too long is left out, and a warning says so.
fn source(
    given: Option<&JobSubmission>,
    longest: u64,
    warnings: &mut String,
) -> Option<JobSubmission> {
    let given = given.filter(|s| !s.source.is_empty())?;
    let length = (given.source.len() + given.variables.len()) as u64;
    if length <= longest {
        return Some(given.clone());
    }
    if !warnings.is_empty() {
        warnings.push('\n');
    }
    *warnings += &format!(
        "job source size of {length} bytes exceeds job_max_source_size of {longest} bytes and \
         will be discarded"
    );
    None
}

async fn register_job(
    write: &Write,
    job: Job,
    body: &RegisterBody,
    mut warnings: String,
    names_deployment: bool,
) -> Result<Answer, Refusal> {
    demand(volumes::allowed(&write.request.identity.acl, &job))?;
    let settings = &write.api.settings;
    let submission = source(
        body.submission.as_ref(),
        settings.job_max_source_size,
        &mut warnings,
    );
    let (namespace, id, children) = (job.namespace.clone(), job.id.clone(), job.has_children());
    let eval_id = if children { String::new() } else { new_id() };
    let command = RegisterJob {
        job,
        submission,
        enforce_index: body.enforce_index.then_some(body.job_modify_index),
        preserve_counts: body.preserve_counts,
        preserve_resources: body.preserve_resources,
        eval_id: eval_id.clone(),
        eval_priority: body.eval_priority,
        max_priority: write.api.settings.job_max_priority,
        names_deployment,
        override_rejection: write.request.identity.is_management() && body.policy_override,
        tracked_versions: settings.job_tracked_versions,
        is_long: write.request.body.len() > SHORT,
    };
    let done = write.submit(command).await?;
    let answer = JobRegisterResponse {
        eval_create_index: if children { 0 } else { done.index },
        eval_id,
        job_modify_index: job_index(write, &namespace, &id, done.index)?,
        warnings,
        index: done.index,
        ..JobRegisterResponse::default()
    };
    Ok(Answer::json(&answer)?.written(done.index))
}

/// The index of a job's specification after a write: the write's own, unless it changed nothing.
fn job_index(write: &FrontCall, namespace: &str, id: &str, index: u64) -> Result<u64, Refusal> {
    let view = write.api.projections.view();
    let modified = glance(|| view.modify_index::<Jobs>((namespace, id)));
    match modified.map_err(storage)? {
        Some(modified) if modified <= index => Ok(modified),
        // The scheduler was faster: the row has moved on.
        Some(_) => {
            let job = glance(|| view.get::<Jobs>((namespace, id)));
            let job = job.map_err(storage)?;
            Ok(job.map_or(index, |job| job.job_modify_index))
        }
        None => Ok(index),
    }
}

/// `DELETE /v1/job/:id`.
pub(super) async fn deregister(late: Late) -> Result<Answer, Refusal> {
    let flag = |name| {
        let flag = late.request.query.flag(name);
        flag.map_err(|e| Refusal::bad_request(e.message))
    };
    let (purge, no_shutdown_delay) = (flag("purge")?, flag("no_shutdown_delay")?);
    let namespace = late.request.namespace().to_owned();
    let any_of = [
        Ns::SubmitJob,
        if purge {
            Ns::PurgeJob
        } else {
            Ns::DeregisterJob
        },
    ];
    let write = late.in_namespace(&namespace, &any_of)?;
    let query = &write.request.query;
    let eval_id = new_id();
    let command = DeregisterJob {
        namespace,
        job_id: super::job_id(&write.request)?,
        purge,
        no_shutdown_delay,
        eval_id: eval_id.clone(),
        eval_priority: query.number("eval_priority")?.unwrap_or_default(),
        max_priority: write.api.settings.job_max_priority,
        tracked_versions: write.api.settings.job_tracked_versions,
    };
    let view = write.api.projections.view();
    let key = (command.namespace.as_str(), command.job_id.as_str());
    let known = glance(|| view.get::<Jobs>(key));
    let Some(job) = known.map_err(storage)? else {
        return Ok(Answer::json(&JobDeregisterResponse::default())?.written(view.index()));
    };
    let done = write.submit(command).await?;
    let mut answer = JobDeregisterResponse {
        job_modify_index: done.index,
        index: done.index,
        ..JobDeregisterResponse::default()
    };
    if !job.has_children() {
        (answer.eval_id, answer.eval_create_index) = (eval_id, done.index);
    }
    Ok(Answer::json(&answer)?.written(done.index))
}

/// `PUT /v1/job/:id/evaluate`.
pub(super) async fn evaluate(write: Write) -> Result<Answer, Refusal> {
    let body: JobEvaluateRequest = write.json_or_default().await?;
    let job_id = super::job_id(&write.request)?;
    if !write.request.body.is_empty() {
        if body.job_id.is_empty() {
            return Err(Refusal::bad_request("Job ID must be specified"));
        }
        if body.job_id != job_id {
            return Err(Refusal::bad_request("JobID not same as job name"));
        }
    }
    let eval_id = new_id();
    let namespace = write.request.namespace().to_owned();
    let command = EvaluateJob {
        namespace: namespace.clone(),
        job_id: job_id.clone(),
        force_reschedule: body.eval_options.force_reschedule,
        eval_id: eval_id.clone(),
    };
    let done = write.submit(command).await?;
    evaluated(&write, (&namespace, &job_id), eval_id, &done)
}

fn evaluated(
    write: &Write,
    (namespace, job_id): (&str, &str),
    eval_id: String,
    done: &Committed,
) -> Result<Answer, Refusal> {
    let answer = JobRegisterResponse {
        eval_id,
        eval_create_index: done.index,
        job_modify_index: job_index(write, namespace, job_id, done.index)?,
        index: done.index,
        ..JobRegisterResponse::default()
    };
    Ok(Answer::json(&answer)?.written(done.index))
}

/// `PUT /v1/job/:id/stable`.
pub(super) async fn stable(write: Write) -> Result<Answer, Refusal> {
    let body: JobStabilityRequest = write.json().await?;
    let job_id = super::job_id(&write.request)?;
    if body.job_id != job_id {
        return Err(Refusal::bad_request("Job ID does not match"));
    }
    let done = write
        .submit(SetJobStability {
            namespace: write.request.namespace().to_owned(),
            job_id,
            version: body.job_version,
            stable: body.stable,
        })
        .await?;
    let answer = StableResponse {
        job_modify_index: done.index,
        index: done.index,
    };
    Ok(Answer::json(&answer)?.written(done.index))
}

/// `PUT /v1/job/:id/revert`: an older version is registered again.
pub(super) async fn revert(write: Write) -> Result<Answer, Refusal> {
    let body: RevertBody = write.json().await?;
    let id = super::job_id(&write.request)?;
    if body.job_id.is_empty() {
        return Err(Refusal::bad_request("JobID must be specified"));
    }
    if body.job_id != id {
        return Err(Refusal::bad_request("Job ID does not match"));
    }
    let namespace = write.request.namespace();
    let view = write.api.projections.view();
    let current = glance(|| view.get::<Jobs>((namespace, id.as_str())));
    let current = current.map_err(storage)?;
    let current = current.ok_or_else(|| Refusal::by_rule(format!("job \"{id}\" not found")))?;
    if current.version == body.job_version {
        return Err(Refusal::by_rule("can't revert to current version"));
    }
    if let Some(wanted) = body.enforce_prior_version
        && wanted != current.version
    {
        let text = format!(
            "Current job has version {}; enforcing version {wanted}",
            current.version
        );
        return Err(Refusal::by_rule(text));
    }
    let key = (namespace, id.as_str(), body.job_version);
    // What it was written in is the version's own; the new version has it as well.
    let (old, submission) = glance(|| {
        let old = view.get::<JobVersions>(key);
        (old, view.get::<JobSubmissions>(key))
    });
    let mut job = old.map_err(storage)?.ok_or_else(|| {
        Refusal::by_rule(format!(
            "job \"{id}\" in namespace \"{namespace}\" at version {} not found",
            body.job_version
        ))
    })?;
    job.stop = false;
    job.version_tag = None;
    let again = RegisterBody {
        enforce_index: true,
        job_modify_index: current.job_modify_index,
        submission: submission.map_err(storage)?,
        ..RegisterBody::default()
    };
    let judged = write.judged(move |write| Ok((warnings(write, &job)?, job)));
    let (warnings, job) = judged.await?;
    register_job(&write, job, &again, warnings, true).await
}

#[cfg(test)]
mod tests {
    use drover_events::model::{Task, TaskGroup, Vault};

    use super::*;

    #[test]
    fn a_source_that_is_too_long_is_left_out_and_warned_of_on_a_line_of_its_own() {
        let given = JobSubmission {
            source: "0123456789".to_owned(),
            variables: "+".to_owned(),
            ..JobSubmission::default()
        };
        let text = "job source size of 11 bytes exceeds job_max_source_size of 10 bytes and will \
                    be discarded";
        for (before, longest, after) in [
            ("", 11, String::new()),
            ("", 10, text.to_owned()),
            ("another", 11, "another".to_owned()),
            ("another", 10, format!("another\n{text}")),
        ] {
            let mut warnings = before.to_owned();
            let kept = source(Some(&given), longest, &mut warnings);
            assert_eq!((kept.is_some(), warnings), (longest == 11, after));
        }
    }

    #[test]
    fn each_cluster_of_vault_that_a_job_names_is_told_of_once() {
        let task = |cluster: &str| Task {
            vault: Some(Vault {
                cluster: cluster.to_owned(),
                ..Vault::default()
            }),
            ..Task::default()
        };
        let named = ["", "other", "default", "other"].map(task);
        let tasks: Vec<Task> = named.into_iter().chain([Task::default()]).collect();
        let group = TaskGroup {
            tasks: tasks.into(),
            ..TaskGroup::default()
        };
        let job = Job {
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let reported: Vec<String> = without_vault(&job).collect();
        let wanted = ["default", "other"]
            .map(|cluster| format!("Vault {cluster:?} not enabled but used in the job"));
        assert_eq!(reported, wanted);
    }
}
