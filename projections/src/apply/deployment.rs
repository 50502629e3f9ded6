//! Deployments: status, promotion, health of their allocations, removal.

use std::collections::BTreeSet;

use drover_events::deployment::*;
use drover_events::gojson::Time;
use drover_events::model::status::deployment as status;
use drover_events::model::{
    AllocDeploymentStatus, Deployment, DeploymentStatusUpdate, Evaluation, Job, JobSubmission,
};

use super::effects::Effects;
use super::{ApplyResult, eval, job};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::allocs::{AllocRow, Allocs};
use crate::tables::deployments::Deployments;

/// Writes a deployment as it is given; its create index stays.
pub(super) fn put(txn: &mut Txn<'_>, ctx: &Ctx, row: &Deployment) -> Result<(), Refused> {
    let known = txn.get::<Deployments>(row.id.as_str())?;
    let mut row = row.clone();
    row.create_index = known.map_or(ctx.index, |known| known.create_index);
    row.modify_index = ctx.index;
    row.modify_time = ctx.time;
    txn.put::<Deployments>(row)?;
    Ok(())
}

/// Writes a deployment as a plan has it. What changed since the plan was made stays (DEP-07): of
/// each group the counts of allocations, the deadline for progress, the promotion and the canaries.
pub(super) fn put_planned(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    planned: &Deployment,
) -> Result<(), Refused> {
    let mut row = planned.clone();
    if let Some(known) = txn.get::<Deployments>(row.id.as_str())? {
        for (name, group) in known.task_groups.iter() {
            let Some(planned) = row.task_groups.get_mut(name) else {
                continue;
            };
            planned.placed_allocs = group.placed_allocs;
            planned.healthy_allocs = group.healthy_allocs;
            planned.unhealthy_allocs = group.unhealthy_allocs;
            planned.require_progress_by = group.require_progress_by;
            planned.promoted |= group.promoted;
            planned.placed_canaries = group.placed_canaries.clone();
        }
    }
    put(txn, ctx, &row)
}

/// A deployment's status changes, and perhaps its job goes back to an older version.
pub(super) fn status_updated(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &DeploymentStatusUpdated,
) -> ApplyResult {
    set_status(txn, ctx, &ev.update)?;
    if !ev.progress_by.is_empty() {
        txn.update::<Deployments>(ev.update.deployment_id.as_str(), |row| {
            for (name, by) in &ev.progress_by {
                if let Some(group) = row.task_groups.get_mut(name) {
                    group.require_progress_by = Time(*by);
                }
            }
        })?;
    }
    let rollback_job = (ev.job.as_deref(), ev.submission.as_ref());
    follow_up(txn, ctx, rollback_job, ev.eval.as_ref())?;
    Ok(Reply::None)
}

/// Sets a status. A successful deployment makes its version of the job stable.
pub(super) fn set_status(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    update: &DeploymentStatusUpdate,
) -> Result<(), Refused> {
    let id = &update.deployment_id;
    let mut row = fetch_active(txn, id)?;
    let resumes = row.status == status::PAUSED && update.status == status::RUNNING;
    row.status.clone_from(&update.status);
    row.status_description
        .clone_from(&update.status_description);
    row.modify_index = ctx.index;
    row.modify_time = update.updated_at;
    for group in row.task_groups.values_mut() {
        if update.status == status::PAUSED {
            group.require_progress_by = Time::default();
        } else if resumes && group.progress_deadline != 0 {
            let by = update.updated_at.saturating_add(group.progress_deadline);
            group.require_progress_by = Time(by);
        }
    }
    if row.status == status::SUCCESSFUL {
        let key = (row.namespace.as_str(), row.job_id.as_str());
        job::versions::change(txn, ctx, key, row.job_version, |job| job.stable = true)?;
    }
    let key = (row.namespace.clone(), row.job_id.clone());
    txn.put::<Deployments>(row)?;
    job::status::refresh(txn, ctx, (&key.0, &key.1))
}

/// Canaries are promoted, if enough of them are healthy.
pub(super) fn promoted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &DeploymentPromoted) -> ApplyResult {
    let mut row = fetch_active(txn, &ev.deployment_id)?;
    let groups: BTreeSet<&str> = ev.groups.iter().map(String::as_str).collect();
    let mut canaries = Vec::new();
    let mut unhealthy = Vec::new();
    for (name, group) in row.task_groups.iter_mut() {
        if group.desired_canaries == 0 || !(ev.all || groups.contains(name.as_str())) {
            continue;
        }
        let mut healthy = 0;
        for id in &group.placed_canaries {
            let alloc = txn.get::<Allocs>(id.as_str())?;
            let Some(alloc) = alloc.filter(|row| !row.alloc.terminal_status()) else {
                continue;
            };
            healthy += i64::from(alloc.alloc.health() == Some(true));
            canaries.push(alloc);
        }
        if healthy < group.desired_canaries {
            let (want, name) = (group.desired_canaries, name.as_str());
            unhealthy.push(format!(
                "Task group \"{name}\" has {healthy}/{want} healthy allocations"
            ));
        }
        group.promoted = true;
        if group.progress_deadline != 0 {
            group.require_progress_by =
                Time(ev.promoted_at.saturating_add(group.progress_deadline));
        }
    }
    if !unhealthy.is_empty() {
        return Err(Refused::because(unhealthy.join("; ")));
    }
    if canaries.is_empty() {
        return Err(Refused::because("no canaries to promote"));
    }
    let keeps_description = ev.keeps_paused_description && row.status == status::PAUSED;
    if !row.requires_promotion() && !keeps_description {
        row.status_description =
            drover_events::model::status::deployment_reason::RUNNING.to_owned();
    }
    row.modify_index = ctx.index;
    row.modify_time = ev.promoted_at;
    txn.put::<Deployments>(row)?;
    for canary in canaries {
        txn.update::<Allocs>(canary.alloc.id.as_str(), |row| {
            if let Some(status) = &mut row.alloc.deployment_status {
                status.canary = false;
                status.modify_index = ctx.index;
            }
            row.alloc.modify_index = ctx.index;
            row.alloc.alloc_modify_index = ctx.index;
        })?;
    }
    follow_up(txn, ctx, (None, None), ev.eval.as_ref())?;
    Ok(Reply::None)
}

/// An operator or the deployment watcher set the health of allocations.
pub(super) fn alloc_health_updated(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &DeploymentAllocHealthUpdated,
) -> ApplyResult {
    fetch_active(txn, &ev.deployment_id)?;
    let mut effects = Effects::default();
    let healthy = ev.healthy.iter().map(|id| (id, true));
    for (id, healthy) in healthy.chain(ev.unhealthy.iter().map(|id| (id, false))) {
        let before = txn.get::<Allocs>(id.as_str())?;
        let before = before.ok_or_else(|| Refused::because(format!("unknown alloc \"{id}\"")))?;
        if before.alloc.deployment_id != ev.deployment_id {
            return Err(Refused::because(format!(
                "alloc \"{id}\" is not part of deployment \"{}\"",
                ev.deployment_id
            )));
        }
        let mut after = AllocRow::clone(&before);
        after.alloc.deployment_status = Some(AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: Time(ev.timestamp),
            canary: before.alloc.is_canary(),
            modify_index: ctx.index,
        });
        after.alloc.modify_index = ctx.index;
        after.alloc.modify_time = ev.timestamp;
        effects.written(txn, Some(&before), &after)?;
        txn.put::<Allocs>(after)?;
    }
    effects.write_gathered(txn, ctx)?;
    if let Some(update) = &ev.update {
        set_status(txn, ctx, update)?;
    }
    let rollback_job = (ev.job.as_deref(), ev.submission.as_ref());
    follow_up(txn, ctx, rollback_job, ev.eval.as_ref())?;
    Ok(Reply::None)
}

/// Deployments are deleted.
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &DeploymentsDeleted) -> ApplyResult {
    for id in &ev.ids {
        txn.delete::<Deployments>(id.as_str())?;
    }
    Ok(Reply::Count(ev.ids.len() as u64))
}

/// A deployment that can still change; any other is a refusal.
fn fetch_active(txn: &Txn<'_>, id: &str) -> Result<Deployment, Refused> {
    let Some(row) = txn.get::<Deployments>(id)? else {
        return Err(Refused::because(format!(
            "Deployment ID \"{id}\" couldn't be updated as it does not exist"
        )));
    };
    if !row.active() {
        let text = format!(
            "Deployment \"{id}\" has terminal status \"{}\":",
            row.status
        );
        return Err(Refused::because(text));
    }
    Ok(Deployment::clone(&row))
}

/// Writes what an event brings along: the version that the job goes back to, and an evaluation.
fn follow_up(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (rollback_job, source): (Option<&Job>, Option<&JobSubmission>),
    created: Option<&Evaluation>,
) -> Result<(), Refused> {
    if let Some(rollback_job) = rollback_job {
        let mut row = rollback_job.clone();
        row.stable = true;
        let row = job::put(txn, ctx, &row, 0)?;
        if let Some(source) = source {
            job::versions::add_submission(txn, &row, source)?;
        }
    }
    if let Some(created) = created {
        eval::upsert_all(txn, ctx, std::slice::from_ref(created))?;
    }
    Ok(())
}
