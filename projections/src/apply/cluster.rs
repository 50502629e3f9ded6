//! The cluster itself: its identity, the feature level that every server supports, and its
//! configuration.

use drover_events::cluster::*;
use drover_events::csi::CSI_LEVEL;
use drover_events::model::{AutopilotConfiguration, SchedulerConfiguration};

use super::{ApplyResult, csi_plugin, namespace, node_pool};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::autopilot_config::AutopilotConfigTable;
use crate::tables::cluster_meta::{ClusterMeta, ClusterMetaTable};
use crate::tables::scheduler_config::SchedulerConfigTable;

/// A server became leader.
pub(super) fn leader_elected(txn: &mut Txn<'_>, ctx: &Ctx, ev: &LeaderElected) -> ApplyResult {
    let mut row = meta(txn)?;
    row.leader_id.clone_from(&ev.server_id);
    row.leader_name.clone_from(&ev.name);
    row.leader_addr.clone_from(&ev.addr);
    row.leader_since = ctx.index;
    txn.put::<ClusterMetaTable>(row)?;
    Ok(Reply::None)
}

/// The feature level that every server supports is raised, never lowered.
pub(super) fn feature_level_raised(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &VersionBarrierRaised,
) -> ApplyResult {
    let mut row = meta(txn)?;
    let before = row.feature_level;
    if ev.level > before {
        row.feature_level = ev.level;
        txn.put::<ClusterMetaTable>(row)?;
    }
    if before < CSI_LEVEL && ev.level >= CSI_LEVEL {
        csi_plugin::count_nodes(txn, ctx)?;
    }
    Ok(Reply::None)
}

/// The feature level that every server supports.
pub(super) fn feature_level(txn: &Txn<'_>) -> Result<u32, Refused> {
    let known = txn.get::<ClusterMetaTable>(())?;
    Ok(known.map_or(0, |known| known.feature_level))
}

/// Whether every server supports a feature level.
pub(super) fn supports(txn: &Txn<'_>, level: u32) -> Result<bool, Refused> {
    Ok(feature_level(txn)? >= level)
}

/// The cluster gets its identity, once, and what is built in.
pub(super) fn id_set(txn: &mut Txn<'_>, ctx: &Ctx, ev: &ClusterIdSet) -> ApplyResult {
    let mut row = meta(txn)?;
    if !row.cluster_id.is_empty() {
        return Err(Refused::because(format!(
            "the cluster is {} already",
            row.cluster_id
        )));
    }
    row.cluster_id.clone_from(&ev.cluster_id);
    row.create_time = ev.create_time;
    txn.put::<ClusterMetaTable>(row)?;
    namespace::create_built_in(txn, ctx)?;
    node_pool::create_built_in(txn, ctx)?;
    Ok(Reply::None)
}

/// A backup became the base of this epoch: a fact that changes no row. The writer raises the index
/// of every table to it, so that no index runs backwards and every waiter is woken.
pub(super) fn restored(_txn: &mut Txn<'_>, _ctx: &Ctx, _ev: &ClusterRestored) -> ApplyResult {
    Ok(Reply::None)
}

/// Digests that a majority agrees on: a fact that changes no row.
pub(super) fn digest_recorded(_txn: &mut Txn<'_>, _ctx: &Ctx, _ev: &DigestRecorded) -> ApplyResult {
    Ok(Reply::None)
}

/// A publisher fell behind. A repeated report keeps the first index.
pub(super) fn publisher_lagged(txn: &mut Txn<'_>, ctx: &Ctx, ev: &PublisherLagged) -> ApplyResult {
    let mut row = meta(txn)?;
    if row.publisher_lagging_since == 0 {
        row.publisher_lagging_since = ctx.index;
        row.publisher_position = ev.published;
        txn.put::<ClusterMetaTable>(row)?;
    }
    Ok(Reply::None)
}

/// A publisher has caught up.
pub(super) fn publisher_caught_up(
    txn: &mut Txn<'_>,
    _: &Ctx,
    _ev: &PublisherCaughtUp,
) -> ApplyResult {
    let mut row = meta(txn)?;
    if row.publisher_lagging_since != 0 {
        row.publisher_lagging_since = 0;
        row.publisher_position = 0;
        txn.put::<ClusterMetaTable>(row)?;
    }
    Ok(Reply::None)
}

/// The scheduler configuration is set; with a check, only if it is as the caller knows it.
pub(super) fn scheduler_configured(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &SchedulerConfigured,
) -> ApplyResult {
    let known = txn.get::<SchedulerConfigTable>(())?;
    let known_index = known.as_ref().map_or(0, |known| known.modify_index);
    if ev.cas && known_index != ev.config.modify_index {
        return Ok(Reply::Cas(false));
    }
    let create_index = known.map_or(ctx.index, |known| known.create_index);
    let row = SchedulerConfiguration {
        create_index,
        modify_index: ctx.index,
        ..ev.config.clone()
    };
    txn.put::<SchedulerConfigTable>(row)?;
    Ok(Reply::Cas(true))
}

/// The autopilot configuration is set, as the scheduler's is.
pub(super) fn autopilot_configured(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &AutopilotConfigured,
) -> ApplyResult {
    let known = txn.get::<AutopilotConfigTable>(())?;
    let known_index = known.as_ref().map_or(0, |known| known.modify_index);
    if ev.cas && known_index != ev.config.modify_index {
        return Ok(Reply::Cas(false));
    }
    let create_index = known.map_or(ctx.index, |known| known.create_index);
    let row = AutopilotConfiguration {
        create_index,
        modify_index: ctx.index,
        ..ev.config.clone()
    };
    txn.put::<AutopilotConfigTable>(row)?;
    Ok(Reply::Cas(true))
}

fn meta(txn: &Txn<'_>) -> Result<ClusterMeta, Refused> {
    Ok(txn
        .get::<ClusterMetaTable>(())?
        .as_deref()
        .cloned()
        .unwrap_or_default())
}
