//! Node pools. The built-in ones exist without a row and cannot be removed.

use drover_events::model::NodePool;
use drover_events::model::status::{ALL_NODE_POOL, DEFAULT_NODE_POOL};
use drover_events::node_pool::*;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::node_pools::NodePools;

/// Whether jobs and nodes may name the pool.
pub(super) fn exists(txn: &Txn<'_>, name: &str) -> Result<bool, Refused> {
    let built_in = matches!(name, ALL_NODE_POOL | DEFAULT_NODE_POOL);
    Ok(built_in || txn.exists::<NodePools>(name)?)
}

/// The built-in pools of a new cluster.
pub(super) fn create_built_in(txn: &mut Txn<'_>, ctx: &Ctx) -> Result<(), Refused> {
    for (name, description) in [
        (ALL_NODE_POOL, "Node pool with all nodes in the cluster."),
        (DEFAULT_NODE_POOL, "Default node pool."),
    ] {
        if !txn.exists::<NodePools>(name)? {
            txn.put::<NodePools>(NodePool {
                name: name.to_owned(),
                description: description.to_owned(),
                create_index: ctx.index,
                modify_index: ctx.index,
                ..NodePool::default()
            })?;
        }
    }
    Ok(())
}

/// Pools are created or changed.
pub(super) fn upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NodePoolsUpserted) -> ApplyResult {
    for pool in &ev.node_pools {
        if matches!(pool.name.as_str(), ALL_NODE_POOL | DEFAULT_NODE_POOL) {
            let text = format!("modifying node pool \"{}\" is not allowed", pool.name);
            return Err(Refused::because(text));
        }
        let known = txn.get::<NodePools>(pool.name.as_str())?;
        let create_index = known.map_or(ctx.index, |known| known.create_index);
        let row = NodePool {
            create_index,
            modify_index: ctx.index,
            ..pool.clone()
        };
        txn.put::<NodePools>(row)?;
    }
    Ok(Reply::None)
}

/// Pools go, unless something is still in them.
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &NodePoolsDeleted) -> ApplyResult {
    for name in &ev.names {
        if matches!(name.as_str(), ALL_NODE_POOL | DEFAULT_NODE_POOL) {
            return Err(Refused::because(format!(
                "deleting node pool \"{name}\" is not allowed"
            )));
        }
        if query::pool_has_nodes(txn, name)? {
            return Err(Refused::because(format!("node pool \"{name}\" has nodes")));
        }
        if query::pool_has_live_jobs(txn, name)? {
            return Err(Refused::because(format!(
                "node pool \"{name}\" has non-terminal jobs"
            )));
        }
        if !txn.delete::<NodePools>(name.as_str())? {
            return Err(Refused::because(format!("node pool {name} not found")));
        }
    }
    Ok(Reply::None)
}
