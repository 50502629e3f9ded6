//! What allocations hold of a node, and the mark that guards plans.

use drover_events::model::{Allocation, ComparableResources};

use crate::engine::outcome::Refused;
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::node_use::{NodeUse, NodeUses};

/// How the use of one node changes in one event.
#[derive(Default)]
pub(super) struct UseDelta {
    allocs: i64,
    cpu: i64,
    memory: i64,
    memory_max: i64,
    disk: i64,
    /// Whether plans made before this event are refused.
    pub(super) mark: bool,
}

/// Whether the allocation still holds what it was given: it does until it is to stop or has ended.
pub(super) fn holds(alloc: &Allocation) -> bool {
    !alloc.terminal_status()
}

impl UseDelta {
    /// The allocation holds its resources from now on.
    pub(super) fn take(&mut self, alloc: &Allocation) {
        self.add(&alloc.comparable_resources(), 1);
    }

    /// The allocation holds nothing any more.
    pub(super) fn release(&mut self, alloc: &Allocation) {
        self.add(&alloc.comparable_resources(), -1);
    }

    fn add(&mut self, resources: &ComparableResources, sign: i64) {
        self.allocs += sign;
        self.cpu = self
            .cpu
            .saturating_add(resources.cpu_shares.saturating_mul(sign));
        self.memory = self
            .memory
            .saturating_add(resources.memory_mb.saturating_mul(sign));
        self.memory_max = self
            .memory_max
            .saturating_add(resources.memory_max_mb.saturating_mul(sign));
        self.disk = self
            .disk
            .saturating_add(resources.disk_mb.saturating_mul(sign));
    }
}

/// What fits on the node changed: this event is its mark now.
pub(super) fn mark(txn: &mut Txn<'_>, ctx: &Ctx, node: &str) -> Result<(), Refused> {
    apply(
        txn,
        ctx,
        node,
        &UseDelta {
            mark: true,
            ..UseDelta::default()
        },
    )
}

/// A node is new, or came back after it was removed: what is held there is counted.
pub(super) fn count(txn: &mut Txn<'_>, ctx: &Ctx, node: &str) -> Result<(), Refused> {
    let mut delta = UseDelta {
        mark: true,
        ..UseDelta::default()
    };
    for row in query::live_allocs_of_node(txn, node)? {
        delta.take(&row);
    }
    txn.put::<NodeUses>(NodeUse {
        node_id: node.to_owned(),
        ..NodeUse::default()
    })?;
    apply(txn, ctx, node, &delta)
}

/// Changes a node's row of use. A node that is not there has none.
pub(super) fn apply(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    node: &str,
    delta: &UseDelta,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<NodeUses>(node)? else {
        return Ok(());
    };
    let mut row = NodeUse::clone(&known);
    row.allocs = row.allocs.saturating_add_signed(delta.allocs);
    row.cpu = row.cpu.saturating_add(delta.cpu);
    row.memory_mb = row.memory_mb.saturating_add(delta.memory);
    row.memory_max_mb = row.memory_max_mb.saturating_add(delta.memory_max);
    row.disk_mb = row.disk_mb.saturating_add(delta.disk);
    if delta.mark {
        row.mark = ctx.id;
    }
    txn.put::<NodeUses>(row)?;
    Ok(())
}
