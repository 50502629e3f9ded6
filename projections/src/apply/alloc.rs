//! Allocations: what clients report of them and what they are to do.

use drover_events::alloc::*;
use drover_events::gojson::Map;
use drover_events::model::{AllocDeploymentStatus, Allocation, DesiredTransition};

use super::effects::{Effects, came_back};
use super::{ApplyResult, eval, node, service};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::allocs::{AllocRow, Allocs};

/// Clients reported what became of their allocations. An allocation that is gone is passed over.
pub(super) fn updated_by_client(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &AllocsUpdatedByClient,
) -> ApplyResult {
    let mut effects = Effects::default();
    let mut written = std::collections::BTreeSet::new();
    for update in &ev.updates {
        let Some(before) = txn.get::<Allocs>(update.id.as_str())? else {
            continue;
        };
        let mut after = AllocRow::clone(&before);
        take_update(&mut after.alloc, update, ctx.index);
        after.alloc.modify_index = ctx.index;
        after.alloc.modify_time = ev.updated_at;
        written.insert(after.alloc.node_id.clone());
        if came_back(&before.alloc, &after.alloc) {
            effects.mark_node(&after.alloc.node_id);
            let text = "allocation reconnected before it was given up";
            eval::cancel(txn, ctx, &before.alloc.followup_eval_id, text)?;
        }
        if after.alloc.client_terminal() && !before.alloc.client_terminal() {
            service::alloc_ended(txn, &update.id)?;
        }
        effects.written(txn, Some(&before), &after)?;
        txn.put::<Allocs>(after)?;
    }
    for id in &ev.nodes {
        node::allocs_reported(txn, ctx, id)?;
    }
    if ev.nodes.is_empty() {
        for id in &written {
            node::allocs_updated(txn, ctx, id)?;
        }
    }
    effects.write_gathered(txn, ctx)?;
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Whether a client's report says anything that is not known of an allocation.
pub fn says_new(known: &Allocation, reported: &Allocation) -> bool {
    known.client_status != reported.client_status
        || known.client_description != reported.client_description
        || *known.task_states != *reported.task_states
        || known.network_status != reported.network_status
        || new_health(known, reported.deployment_status.as_ref()).is_some()
}

/// The health that a report brings, where it is another than the one that is known.
fn new_health<'a>(
    known: &Allocation,
    reported: Option<&'a AllocDeploymentStatus>,
) -> Option<&'a AllocDeploymentStatus> {
    let reported = reported?;
    let same = known
        .deployment_status
        .as_ref()
        .is_some_and(|known| reported.healthy.is_none() || reported.healthy == known.healthy);
    (!same).then_some(reported)
}

/// Takes over what a client may say, and nothing else (EV-14).
fn take_update(alloc: &mut Allocation, update: &ClientAllocUpdate, index: u64) {
    let health = new_health(alloc, update.deployment_status.as_ref());
    alloc.client_status.clone_from(&update.client_status);
    alloc
        .client_description
        .clone_from(&update.client_description);
    alloc.task_states = Map::from(update.task_states.clone());
    alloc.network_status.clone_from(&update.network_status);
    let Some(reported) = health else {
        return;
    };
    match &mut alloc.deployment_status {
        Some(known) => {
            known.healthy = reported.healthy;
            known.timestamp = reported.timestamp;
            known.modify_index = index;
        }
        None => {
            alloc.deployment_status = Some(AllocDeploymentStatus {
                modify_index: index,
                ..reported.clone()
            });
        }
    }
}

/// Allocations are to be moved, replaced or stopped.
pub(super) fn desired_transition_updated(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &AllocsDesiredTransitionUpdated,
) -> ApplyResult {
    for (id, request) in &ev.transitions {
        transition(txn, ctx, id, request, ev.updated_at)?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Merges desired transitions into an allocation's; an allocation that is gone is passed over.
pub(super) fn transition(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    request: &DesiredTransition,
    at: i64,
) -> Result<(), Refused> {
    txn.update::<Allocs>(id, |row| {
        row.alloc.desired_transition.merge(request);
        row.alloc.modify_index = ctx.index;
        row.alloc.alloc_modify_index = ctx.index;
        if at != 0 {
            row.alloc.modify_time = at;
        }
    })?;
    Ok(())
}
