//! Plans: allocations stopped, placed and preempted, with the deployment and evaluations that
//! belong to them.
//!
//! The guards of the event say that what was placed still fits; nothing is reckoned again here.

use drover_events::model::status::{ClientStatus, client, desired};
use drover_events::model::{AllocDeploymentStatus, Allocation};
use drover_events::plan::*;

use super::effects::Effects;
use super::job::spec;
use super::{ApplyResult, deployment, eval, host_volume, node};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::allocs::{AllocRow, Allocs};

/// A plan is committed.
pub(super) fn applied(txn: &mut Txn<'_>, ctx: &Ctx, ev: &PlanApplied) -> ApplyResult {
    let mut effects = Effects::default();
    node::make_ineligible(txn, ctx, &ev.ineligible_nodes)?;
    if let Some(planned) = &ev.deployment {
        deployment::put_planned(txn, ctx, planned)?;
    }
    for update in &ev.deployment_updates {
        deployment::set_status(txn, ctx, update)?;
    }
    for stopped in &ev.stopped {
        let before = known(txn, &stopped.id)?;
        let mut after = AllocRow::clone(&before);
        stop(&mut after.alloc, stopped);
        write(txn, ctx, ev, (Some(&before), after), &mut effects)?;
    }
    for preempted in &ev.preempted {
        let before = known(txn, &preempted.id)?;
        let mut after = AllocRow::clone(&before);
        let alloc = &mut after.alloc;
        alloc.desired_status = desired::EVICT.to_owned();
        alloc.desired_description = format!("Preempted by alloc ID {}", preempted.preempted_by);
        alloc
            .preempted_by_allocation
            .clone_from(&preempted.preempted_by);
        write(txn, ctx, ev, (Some(&before), after), &mut effects)?;
    }
    for placed in &ev.placed {
        place(txn, ctx, ev, placed, &mut effects)?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    eval::touch(txn, ctx, &ev.eval_id)?;
    effects.write_gathered(txn, ctx)?;
    Ok(Reply::None)
}

fn known(txn: &Txn<'_>, id: &str) -> Result<std::sync::Arc<AllocRow>, Refused> {
    let row = txn.get::<Allocs>(id)?;
    row.ok_or_else(|| Refused::because(format!("unknown alloc \"{id}\"")))
}

fn stop(alloc: &mut Allocation, stopped: &StoppedAlloc) {
    alloc.desired_status = desired::STOP.to_owned();
    alloc
        .desired_description
        .clone_from(&stopped.desired_description);
    if !stopped.client_status.is_empty() {
        alloc.client_status.clone_from(&stopped.client_status);
    }
    if !stopped.followup_eval_id.is_empty() {
        alloc.followup_eval_id.clone_from(&stopped.followup_eval_id);
    }
    if let Some(states) = &stopped.alloc_states {
        alloc.alloc_states = states.clone().into();
    }
    if stopped.reschedule_tracker.is_some() {
        alloc
            .reschedule_tracker
            .clone_from(&stopped.reschedule_tracker);
    }
}

/// Places an allocation, or changes one that is there: what belongs to its client stays.
fn place(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &PlanApplied,
    placed: &PlacedAlloc,
    effects: &mut Effects,
) -> Result<(), Refused> {
    let mut alloc = (*placed.alloc).clone();
    alloc.job = None;
    let before = txn.get::<Allocs>(alloc.id.as_str())?;
    match before.as_deref() {
        Some(before) => keep_client_fields(&mut alloc, &before.alloc, ctx.index),
        None => {
            alloc.create_index = ctx.index;
            alloc.create_time = ev.updated_at;
            if alloc.client_status.is_empty() {
                alloc.client_status = client::PENDING.to_owned();
            }
            if let Some(status) = &mut alloc.deployment_status {
                status.modify_index = ctx.index;
            }
            link_previous(txn, ctx, &alloc)?;
        }
    }
    let mut after = AllocRow {
        alloc,
        job_modify_index: placed.job_modify_index,
        ..AllocRow::default()
    };
    let job = spec::resolve(txn, &spec::Name::of(&after), &placed.alloc.id)?;
    after.job_type.clone_from(&job.r#type);
    after.job_version = job.version;
    if before.is_none() {
        host_volume::placed(txn, ctx, &after.alloc, &job)?;
    }
    write(txn, ctx, ev, (before.as_deref(), after), effects)
}

fn keep_client_fields(alloc: &mut Allocation, before: &Allocation, index: u64) {
    alloc.create_index = before.create_index;
    alloc.create_time = before.create_time;
    alloc.next_allocation.clone_from(&before.next_allocation);
    alloc.task_states = before.task_states.clone();
    alloc.network_status.clone_from(&before.network_status);
    if !matches!(
        alloc.client(),
        Some(ClientStatus::Lost | ClientStatus::Unknown)
    ) {
        alloc.client_status.clone_from(&before.client_status);
        alloc
            .client_description
            .clone_from(&before.client_description);
    }
    let same_deployment = alloc.deployment_id == before.deployment_id;
    if let Some(reported) = before
        .deployment_status
        .as_ref()
        .filter(|_| same_deployment)
        && reported.healthy.is_some()
        && alloc.health().is_none()
    {
        let canary = alloc.is_canary();
        alloc.deployment_status = Some(AllocDeploymentStatus {
            canary,
            ..reported.clone()
        });
    } else if alloc.deployment_status != before.deployment_status
        && let Some(status) = &mut alloc.deployment_status
    {
        status.modify_index = index;
    }
}

/// The allocation that is replaced names its replacement.
fn link_previous(txn: &mut Txn<'_>, ctx: &Ctx, alloc: &Allocation) -> Result<(), Refused> {
    if !alloc.previous_allocation.is_empty() {
        txn.update::<Allocs>(alloc.previous_allocation.as_str(), |row| {
            row.alloc.next_allocation.clone_from(&alloc.id);
            row.alloc.modify_index = ctx.index;
        })?;
    }
    Ok(())
}

/// Writes an allocation as the servers' side of it changes; its node gets this event's mark.
fn write(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &PlanApplied,
    (before, mut after): (Option<&AllocRow>, AllocRow),
    effects: &mut Effects,
) -> Result<(), Refused> {
    after.alloc.modify_index = ctx.index;
    after.alloc.alloc_modify_index = ctx.index;
    after.alloc.modify_time = ev.updated_at;
    effects.mark_node(&after.alloc.node_id);
    effects.written(txn, before, &after)?;
    txn.put::<Allocs>(after)?;
    Ok(())
}
