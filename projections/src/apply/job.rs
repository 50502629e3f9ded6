//! Jobs: registration, stopping and purging, stability, tags, launches.

pub(crate) mod spec;
pub(crate) mod status;
pub(crate) mod summary;
pub(crate) mod versions;

use std::collections::BTreeMap;

use drover_events::gojson::Map;
use drover_events::job::*;
use drover_events::model::status::job as job_status;
use drover_events::model::{DesiredTransition, Evaluation, Job, ScalingPolicy};

use super::alloc::transition;
use super::{ApplyResult, csi_plugin, deployment, eval, namespace, node_pool, scaling};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::job_summaries::JobSummaries;
use crate::tables::jobs::Jobs;
use crate::tables::periodic_launches::{PeriodicLaunch, PeriodicLaunches};
use crate::tables::scaling_events::ScalingEvents;
use crate::tables::scaling_policies::ScalingPolicies;

/// A job is registered.
pub(super) fn registered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &JobRegistered) -> ApplyResult {
    let job = &*ev.job;
    if dispatched_before(txn, job)? {
        return Ok(Reply::None);
    }
    let row = put(txn, ctx, job, ev.tracked_versions)?;
    if let Some(submission) = &ev.submission {
        versions::add_submission(txn, &row, submission)?;
    }
    if ev.launch != 0 {
        let id = if row.parent_id.is_empty() {
            &row.id
        } else {
            &row.parent_id
        };
        launch(txn, ctx, (&row.namespace, id), ev.launch)?;
    }
    if let Some(scaled) = &ev.scaling {
        let key = (
            row.namespace.as_str(),
            row.id.as_str(),
            scaled.task_group.as_str(),
        );
        scaling::record(txn, ctx, key, &scaled.event)?;
    }
    if let Some(created) = &ev.deployment {
        let mut created = created.clone();
        created.job_version = row.version;
        created.job_create_index = row.create_index;
        created.job_modify_index = row.modify_index;
        created.job_spec_modify_index = row.job_modify_index;
        deployment::put(txn, ctx, &created)?;
    }
    if let Some(created) = &ev.eval {
        let created = Evaluation {
            job_modify_index: ctx.index,
            ..created.clone()
        };
        let refreshed = created.namespace == row.namespace && created.job_id == row.id;
        eval::upsert_all(txn, ctx, &[created])?;
        if refreshed {
            return Ok(Reply::None);
        }
    }
    status::refresh(txn, ctx, (&row.namespace, &row.id))?;
    Ok(Reply::None)
}

/// Writes a specification as the newest version of its job. Also when a deployment goes back to an
/// older one.
pub(super) fn put(txn: &mut Txn<'_>, ctx: &Ctx, job: &Job, tracked: u32) -> Result<Job, Refused> {
    put_with(txn, ctx, job, tracked, Policies::AsStated)
}

/// What becomes of the scaling policies there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policies {
    /// The job is new, so it has no policies yet.
    New,
    /// They are as the job states them; those of a stopped job go.
    AsStated,
    /// Those of a stopped job stay, disabled.
    Disabled,
}

fn put_with(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    job: &Job,
    tracked: u32,
    policies: Policies,
) -> Result<Job, Refused> {
    if !namespace::exists(txn, &job.namespace)? {
        return Err(Refused::because(format!(
            "job \"{}\" is in nonexistent namespace \"{}\"",
            job.id, job.namespace
        )));
    }
    if !job.node_pool.is_empty() && !node_pool::exists(txn, &job.node_pool)? {
        return Err(Refused::because(format!(
            "job \"{}\" is in nonexistent node pool \"{}\"",
            job.id, job.node_pool
        )));
    }
    let known = txn.get::<Jobs>((job.namespace.as_str(), job.id.as_str()))?;
    let mut row = job.clone();
    row.modify_index = ctx.index;
    row.job_modify_index = ctx.index;
    row.version_tag = None;
    match known.as_deref() {
        Some(old) => {
            row.create_index = old.create_index;
            row.version = old.version + 1;
            row.status.clone_from(&old.status);
        }
        None => {
            row.create_index = ctx.index;
            row.version = 0;
            row.status = job_status::PENDING.to_owned();
        }
    }
    summary::ensure(txn, ctx, &row)?;
    if known.is_none() && !row.parent_id.is_empty() {
        let parent = (row.namespace.as_str(), row.parent_id.as_str());
        summary::child_moved(txn, ctx, parent, None, Some(&row.status))?;
    }
    let policies = match (&known, policies) {
        (None, _) => Policies::New,
        (Some(_), policies) => policies,
    };
    put_policies(txn, ctx, &row, policies)?;
    versions::add(txn, &row, tracked)?;
    csi_plugin::job_changed(txn, ctx, known.as_deref(), Some(&row))?;
    txn.put::<Jobs>(row.clone())?;
    Ok(row)
}

/// A job is stopped or purged.
pub(super) fn deregistered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &JobDeregistered) -> ApplyResult {
    let key = (ev.namespace.as_str(), ev.job_id.as_str());
    if ev.no_shutdown_delay {
        let request = DesiredTransition {
            no_shutdown_delay: Some(true),
            ..Default::default()
        };
        for id in query::alloc_ids_of_job(txn, key)? {
            transition(txn, ctx, &id, &request, ev.submit_time)?;
        }
    }
    let policies = match ev.keep_policies {
        true => Policies::Disabled,
        false => Policies::AsStated,
    };
    let rest = (ev.submit_time, ev.tracked_versions, policies);
    end(txn, ctx, key, ev.purge, rest)?;
    if let Some(created) = &ev.eval {
        let created = Evaluation {
            job_modify_index: ctx.index,
            ..created.clone()
        };
        eval::upsert_all(txn, ctx, &[created])?;
    }
    status::refresh(txn, ctx, key)?;
    Ok(Reply::None)
}

/// Jobs are stopped or purged together.
pub(super) fn all_deregistered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &JobsDeregistered) -> ApplyResult {
    let policies = match ev.keep_policies {
        true => Policies::Disabled,
        false => Policies::AsStated,
    };
    for job in &ev.jobs {
        let key = (job.namespace.as_str(), job.job_id.as_str());
        let rest = (ev.submit_time, ev.tracked_versions, policies);
        end(txn, ctx, key, job.purge, rest)?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    for job in &ev.jobs {
        status::refresh(txn, ctx, (&job.namespace, &job.job_id))?;
    }
    Ok(Reply::None)
}

/// A version is marked stable or unstable.
pub(super) fn stability_updated(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &JobStabilityUpdated,
) -> ApplyResult {
    let key = (ev.namespace.as_str(), ev.job_id.as_str());
    if !versions::change(txn, ctx, key, ev.job_version, |job| job.stable = ev.stable)? {
        return Err(Refused::because(format!(
            "job \"{}\" in namespace \"{}\" at version {} not found",
            ev.job_id, ev.namespace, ev.job_version
        )));
    }
    Ok(Reply::None)
}

/// A version gets a tag, or a tag is taken away. A tag names one version of a job.
pub(super) fn version_tagged(txn: &mut Txn<'_>, ctx: &Ctx, ev: &JobVersionTagged) -> ApplyResult {
    let key = (ev.namespace.as_str(), ev.job_id.as_str());
    let holder = versions::tags(txn, key)?.get(&ev.name).copied();
    let version = match (&ev.tag, holder) {
        (None, None) => {
            return Err(Refused::because(format!("tag \"{}\" not found", ev.name)));
        }
        (None, Some(version)) => version,
        (Some(_), Some(other)) if other != ev.version => {
            return Err(Refused::because(format!(
                "tag \"{}\" already exists on a different version of job \"{}\"",
                ev.name, ev.job_id
            )));
        }
        (Some(_), _) => ev.version,
    };
    if !versions::change(txn, ctx, key, version, |job| {
        job.version_tag.clone_from(&ev.tag)
    })? {
        return Err(Refused::because(format!("version {version} not found")));
    }
    Ok(Reply::None)
}

/// Summaries of one page of jobs are counted again.
pub(super) fn summaries_reconciled(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &JobSummariesReconciled,
) -> ApplyResult {
    let (jobs, next) = query::page_of_jobs(txn, &ev.page_token, ev.per_page)?;
    let count = jobs.len() as u64;
    for job in jobs {
        let key = (job.namespace.as_str(), job.id.as_str());
        let mut groups = BTreeMap::new();
        for alloc in query::allocs_of_job(txn, key)? {
            let group = groups.entry(alloc.task_group.clone()).or_default();
            summary::count(group, None, &alloc.alloc);
        }
        txn.update::<JobSummaries>(key, |row| {
            let queued: BTreeMap<String, i64> = row
                .summary
                .iter()
                .map(|(name, group)| (name.clone(), group.queued))
                .collect();
            for (name, queued) in queued {
                let mut group = groups.remove(&name).unwrap_or_default();
                group.queued = queued;
                row.summary.insert(name, group);
            }
            row.modify_index = ctx.index;
        })?;
    }
    Ok(Reply::Page { count, next })
}

/// A launch slot of a periodic job is taken.
pub(super) fn launched(txn: &mut Txn<'_>, ctx: &Ctx, ev: &PeriodicJobLaunched) -> ApplyResult {
    launch(txn, ctx, (&ev.namespace, &ev.job_id), ev.launch)?;
    Ok(Reply::None)
}

fn launch(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (namespace, id): (&str, &str),
    at: i64,
) -> Result<(), Refused> {
    let known = txn.get::<PeriodicLaunches>((namespace, id))?;
    txn.put::<PeriodicLaunches>(PeriodicLaunch {
        namespace: namespace.to_owned(),
        id: id.to_owned(),
        launch: at,
        create_index: known.map_or(ctx.index, |known| known.create_index),
        modify_index: ctx.index,
    })?;
    Ok(())
}

/// Stops a job (a new version that says so), or removes every row of it.
fn end(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    key: (&str, &str),
    purge: bool,
    (submit_time, tracked, policies): (i64, u32, Policies),
) -> Result<(), Refused> {
    let Some(known) = txn.get::<Jobs>(key)? else {
        return Err(Refused::because(format!("job \"{}\" not found", key.1)));
    };
    if !purge {
        let mut stopped = Job::clone(&known);
        stopped.stop = true;
        if submit_time != 0 {
            stopped.submit_time = submit_time;
        }
        put_with(txn, ctx, &stopped, tracked, policies)?;
        return Ok(());
    }
    if !known.parent_id.is_empty() && known.status != job_status::DEAD {
        let parent = (key.0, known.parent_id.as_str());
        summary::child_moved(
            txn,
            ctx,
            parent,
            Some(&known.status),
            Some(job_status::DEAD),
        )?;
    }
    csi_plugin::job_changed(txn, ctx, Some(&known), None)?;
    txn.delete::<Jobs>(key)?;
    txn.delete::<JobSummaries>(key)?;
    txn.delete::<PeriodicLaunches>(key)?;
    txn.delete::<ScalingEvents>(key)?;
    for policy in query::policies_of_job(txn, key)? {
        txn.delete::<ScalingPolicies>(policy.id.as_str())?;
    }
    versions::drop_all(txn, key)
}

/// A dispatch that carries a token happens once: the child may be there already.
fn dispatched_before(txn: &Txn<'_>, job: &Job) -> Result<bool, Refused> {
    if job.parent_id.is_empty() || job.dispatch_idempotency_token.is_empty() {
        return Ok(false);
    }
    let token = &job.dispatch_idempotency_token;
    let children = query::children_of_job(txn, (&job.namespace, &job.parent_id))?;
    Ok(children
        .iter()
        .any(|child| child.dispatch_idempotency_token == *token))
}

/// The scaling policies of the job's groups are as the job says; a target keeps its policy's id.
/// A new job has none yet: they go with their job.
fn put_policies(txn: &mut Txn<'_>, ctx: &Ctx, job: &Job, what: Policies) -> Result<(), Refused> {
    let key = (job.namespace.as_str(), job.id.as_str());
    let policies = match what {
        Policies::New => Vec::new(),
        Policies::AsStated | Policies::Disabled => query::policies_of_job(txn, key)?,
    };
    let stay = !job.stop || what == Policies::Disabled;
    let mut known: BTreeMap<Map<String>, _> = policies
        .into_iter()
        .map(|policy| (policy.target.clone(), policy))
        .collect();
    for group in job.task_groups.iter().filter(|_| stay) {
        let Some(policy) = &group.scaling else {
            continue;
        };
        let mut row = ScalingPolicy {
            target: target_of(job, &group.name),
            ..policy.clone()
        };
        row.enabled &= !job.stop;
        row.create_index = ctx.index;
        row.modify_index = ctx.index;
        if let Some(old) = known.remove(&row.target) {
            row.id.clone_from(&old.id);
            row.create_index = old.create_index;
            row.modify_index = old.modify_index;
            if row == *old {
                continue;
            }
            row.modify_index = ctx.index;
        }
        txn.put::<ScalingPolicies>(row)?;
    }
    for policy in known.into_values() {
        txn.delete::<ScalingPolicies>(policy.id.as_str())?;
    }
    Ok(())
}

fn target_of(job: &Job, group: &str) -> Map<String> {
    let target = [
        ("Namespace", &job.namespace),
        ("Job", &job.id),
        ("Group", &group.to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value.clone()));
    Map::from(BTreeMap::from(target))
}
