//! Nodes: registration, status, drain, eligibility, events, removal.
//!
//! A node is two rows: its description, and the fast-changing state beside it. Registration writes
//! the first and creates the second; it never touches the state of a node that is known (SCH-14).

use drover_events::gojson::{Map, Time};
use drover_events::model::status::{NodeStatus, drain, eligibility, node as status};
use drover_events::model::{DrainMetadata, Node, NodeEvent, NodePool};
use drover_events::node::*;

use super::{ApplyResult, csi_plugin, eval, host_volume, usage};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::node_pools::NodePools;
use crate::tables::node_states::{NodeState, NodeStates};
use crate::tables::node_use::NodeUses;
use crate::tables::nodes::{self, Nodes};

/// How many of a node's events are kept, the newest.
const MAX_NODE_EVENTS: usize = 10;

/// A node registers, or describes itself again.
pub(super) fn registered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NodeRegistered) -> ApplyResult {
    let mut node = (*ev.node).clone();
    let known = txn.get::<Nodes>(node.id.as_str())?;
    node.modify_index = ctx.index;
    match known.as_deref() {
        Some(old) => {
            node.create_index = old.create_index;
            node.drain_strategy = old.drain_strategy.clone();
            node.last_drain = old.last_drain.clone();
            node.scheduling_eligibility = old.scheduling_eligibility.clone();
            if node.identity_signing_key_id.is_empty() {
                node.identity_signing_key_id = old.identity_signing_key_id.clone();
            }
            if capacity_changed(old, &node) {
                usage::mark(txn, ctx, &node.id)?;
            }
        }
        None => {
            node.create_index = ctx.index;
            if node.scheduling_eligibility.is_empty() {
                node.scheduling_eligibility = eligibility::ELIGIBLE.to_owned();
            }
            usage::count(txn, ctx, &node.id)?;
        }
    }
    if ev.create_node_pool && !txn.exists::<NodePools>(node.node_pool.as_str())? {
        txn.put::<NodePools>(NodePool {
            name: node.node_pool.clone(),
            create_index: ctx.index,
            modify_index: ctx.index,
            ..NodePool::default()
        })?;
    }
    let (node, first) = nodes::split(node);
    if known.is_none() {
        let status = if first.status.is_empty() {
            status::INIT
        } else {
            &first.status
        }
        .to_owned();
        let events = Default::default();
        txn.put::<NodeStates>(NodeState {
            status,
            events,
            ..first
        })?;
    }
    note_event(txn, ctx, &node.id, ev.event.as_ref())?;
    csi_plugin::node_changed(txn, ctx, known.as_deref(), Some(&node))?;
    host_volume::node_registered(txn, ctx, &node)?;
    txn.put::<Nodes>(node)?;
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Nodes go.
pub(super) fn deregistered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NodesDeregistered) -> ApplyResult {
    for id in &ev.node_ids {
        let gone = known(txn, id)?;
        csi_plugin::node_changed(txn, ctx, Some(&gone), None)?;
        host_volume::node_deregistered(txn, ctx, &gone)?;
        txn.delete::<Nodes>(id.as_str())?;
        txn.delete::<NodeStates>(id.as_str())?;
        txn.delete::<NodeUses>(id.as_str())?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// A node's status changes.
pub(super) fn status_updated(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NodeStatusUpdated) -> ApplyResult {
    let mut node = known(txn, &ev.node_id)?;
    let known = txn.get::<NodeStates>(ev.node_id.as_str())?;
    let mut state = known.as_deref().cloned().unwrap_or_default();
    if state.status != ev.status {
        usage::mark(txn, ctx, &ev.node_id)?;
    }
    let missed = |status: &str| {
        let status = NodeStatus::of(status);
        matches!(status, Some(NodeStatus::Down | NodeStatus::Disconnected))
    };
    if missed(&ev.status) && !missed(&state.status) {
        state.last_missed_heartbeat_index = ctx.index;
    }
    state.node_id.clone_from(&ev.node_id);
    state.status.clone_from(&ev.status);
    state.status_updated_at = ev.updated_at;
    state.modify_index = ctx.index;
    if let Some(event) = &ev.event {
        push_event(&mut state, event, ctx.index);
    }
    txn.put::<NodeStates>(state)?;
    host_volume::node_status_changed(txn, ctx, &node, &ev.status)?;
    if !ev.identity_signing_key_id.is_empty() {
        node.identity_signing_key_id
            .clone_from(&ev.identity_signing_key_id);
        node.modify_index = ctx.index;
        txn.put::<Nodes>(node)?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Drains are set, changed or ended.
pub(super) fn drain_updated(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NodeDrainUpdated) -> ApplyResult {
    for (id, update) in &ev.updates {
        let mut node = known(txn, id)?;
        note_drain(&mut node, ev, update);
        node.drain_strategy = update.drain_strategy.clone();
        if node.drain_strategy.is_some() {
            node.scheduling_eligibility = eligibility::INELIGIBLE.to_owned();
        } else if update.mark_eligible {
            node.scheduling_eligibility = eligibility::ELIGIBLE.to_owned();
        }
        note_event(txn, ctx, id, update.event.as_ref())?;
        node.modify_index = ctx.index;
        txn.put::<Nodes>(node)?;
        usage::mark(txn, ctx, id)?;
    }
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// A node is made eligible or ineligible.
pub(super) fn eligibility_updated(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &NodeEligibilityUpdated,
) -> ApplyResult {
    let mut node = known(txn, &ev.node_id)?;
    if node.drain_strategy.is_some() && ev.eligibility == eligibility::ELIGIBLE {
        let text = "unable to update draining node's eligibility to eligible";
        return Err(Refused::because(text));
    }
    node.scheduling_eligibility.clone_from(&ev.eligibility);
    note_event(txn, ctx, &ev.node_id, ev.event.as_ref())?;
    node.modify_index = ctx.index;
    txn.put::<Nodes>(node)?;
    usage::mark(txn, ctx, &ev.node_id)?;
    eval::upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Nodes reported something about themselves.
pub(super) fn events_upserted(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &NodeEventsUpserted,
) -> ApplyResult {
    for (id, events) in &ev.events {
        known(txn, id)?;
        for event in events {
            note_event(txn, ctx, id, Some(event))?;
        }
    }
    Ok(Reply::None)
}

/// A plan's applier takes nodes out that refused too many plans.
pub(super) fn make_ineligible(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    nodes: &[String],
) -> Result<(), Refused> {
    for id in nodes {
        let mut node = known(txn, id)?;
        node.scheduling_eligibility = eligibility::INELIGIBLE.to_owned();
        let event = NodeEvent {
            message: "Node marked as ineligible for scheduling due to multiple plan rejections"
                .to_owned(),
            subsystem: drover_events::model::status::node_subsystem::SCHEDULER.to_owned(),
            timestamp: Time(ctx.time),
            ..NodeEvent::default()
        };
        note_event(txn, ctx, id, Some(&event))?;
        node.modify_index = ctx.index;
        txn.put::<Nodes>(node)?;
        usage::mark(txn, ctx, id)?;
    }
    Ok(())
}

/// A client reported its allocations: the node counts as back from then on (SCH-12). Nothing else
/// about it is new, so its index stays (HB-10).
pub(super) fn allocs_reported(txn: &mut Txn<'_>, ctx: &Ctx, id: &str) -> Result<(), Refused> {
    txn.update::<NodeStates>(id, |state| state.last_alloc_update_index = ctx.index)?;
    Ok(())
}

/// The same as events below [`REPORT_LEVEL`](drover_events::alloc::REPORT_LEVEL) mean it: the
/// node's index moved with its allocations.
pub(super) fn allocs_updated(txn: &mut Txn<'_>, ctx: &Ctx, id: &str) -> Result<(), Refused> {
    txn.update::<NodeStates>(id, |state| {
        state.last_alloc_update_index = ctx.index;
        state.modify_index = ctx.index;
    })?;
    Ok(())
}

fn known(txn: &Txn<'_>, id: &str) -> Result<Node, Refused> {
    let node = txn.get::<Nodes>(id)?;
    let node = node.ok_or_else(|| Refused::because(format!("node {id} not found")))?;
    Ok(Node::clone(&node))
}

/// Whether what fits on the node may be different now.
fn capacity_changed(old: &Node, new: &Node) -> bool {
    old.node_resources != new.node_resources
        || old.reserved_resources != new.reserved_resources
        || old.computed_class != new.computed_class
        || old.node_pool != new.node_pool
        || old.datacenter != new.datacenter
        || old.node_max_allocs != new.node_max_allocs
}

/// Adds to a node's list of events.
fn note_event(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    event: Option<&NodeEvent>,
) -> Result<(), Refused> {
    if let Some(event) = event {
        txn.update::<NodeStates>(id, |state| {
            push_event(state, event, ctx.index);
            state.modify_index = ctx.index;
        })?;
    }
    Ok(())
}

fn push_event(state: &mut NodeState, event: &NodeEvent, index: u64) {
    let events = state.events.to_mut();
    if events.len() >= MAX_NODE_EVENTS {
        events.drain(..=events.len() - MAX_NODE_EVENTS);
    }
    events.push(NodeEvent {
        create_index: index,
        ..event.clone()
    });
}

/// Keeps what is known of the last drain.
fn note_drain(node: &mut Node, ev: &NodeDrainUpdated, update: &DrainUpdate) {
    let now = Time(ev.updated_at);
    let begins = update.drain_strategy.is_some() && node.drain_strategy.is_none();
    if begins || (update.drain_strategy.is_some() && node.last_drain.is_none()) {
        node.last_drain = Some(DrainMetadata {
            started_at: now,
            ..DrainMetadata::default()
        });
    }
    let Some(last) = &mut node.last_drain else {
        return;
    };
    if update.drain_strategy.is_none() && last.status != drain::DRAINING {
        return;
    }
    last.updated_at = now;
    last.status = match (&update.drain_strategy, update.complete) {
        (Some(_), _) => drain::DRAINING,
        (None, true) => drain::COMPLETE,
        (None, false) => drain::CANCELED,
    }
    .to_owned();
    if !ev.meta.is_empty() || begins {
        last.meta = Map::from(ev.meta.clone());
    }
    if !ev.updated_by.is_empty() {
        last.accessor_id.clone_from(&ev.updated_by);
    }
}
