//! CSI volumes: registration, claims and their steps back, removal. The rules of claims are in
//! [`claims`]; what they rest on of other tables is read here, so that a claim that was decided on
//! older rows is refused (CSI-24).

use drover_events::csi::{
    CsiVolumeClaimed, CsiVolumeClaimsApplied, CsiVolumeDeregistered, CsiVolumesRegistered,
    claim_mode, state,
};
use drover_events::gojson::Map;
use drover_events::model::CsiVolume;

use super::cluster::feature_level;
use super::{ApplyResult, namespace};
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query::csi;
use crate::tables::allocs::Allocs;
use crate::tables::claims;
use crate::tables::csi_plugins::CsiPlugins;
use crate::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};

/// Volumes are registered, or described again.
pub(super) fn registered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &CsiVolumesRegistered) -> ApplyResult {
    for volume in &ev.volumes {
        if !namespace::exists(txn, &volume.namespace)? {
            return Err(Refused::because(format!(
                "volume \"{}\" is in nonexistent namespace \"{}\"",
                volume.id, volume.namespace
            )));
        }
        let at = match ev.timestamp {
            0 => ctx.time,
            given => given,
        };
        let known = txn.get::<CsiVolumes>((volume.namespace.as_str(), volume.id.as_str()))?;
        let mut row = match known.as_deref() {
            Some(known) => {
                let mut row = csi::repaired(known);
                row.volume = claims::merge(&row.volume, volume).map_err(Refused::because)?;
                row
            }
            None => first(volume, ctx.index, at),
        };
        note_plugin(txn, &mut row)?;
        row.volume.modify_index = ctx.index;
        row.volume.modify_time = at;
        txn.put::<CsiVolumes>(row)?;
    }
    Ok(Reply::None)
}

/// A new volume: described by its registration, without anything that belongs to the cluster.
fn first(volume: &CsiVolume, index: u64, at: i64) -> CsiVolumeRow {
    let volume = CsiVolume {
        // CSI-07: the first claim says what it is used as.
        access_mode: String::new(),
        attachment_mode: String::new(),
        read_allocs: Map::nil(),
        write_allocs: Map::nil(),
        schedulable: false,
        controllers_healthy: 0,
        controllers_expected: 0,
        nodes_healthy: 0,
        nodes_expected: 0,
        create_index: index,
        create_time: at,
        ..volume.clone()
    };
    CsiVolumeRow {
        volume,
        ..CsiVolumeRow::default()
    }
}

/// Keeps what the plugin says, for the time when it is gone: whether its controller attaches
/// volumes must be known then (CSI-45).
fn note_plugin(txn: &Txn<'_>, row: &mut CsiVolumeRow) -> Result<(), Refused> {
    if let Some(plugin) = txn.get::<CsiPlugins>(row.volume.plugin_id.as_str())? {
        if let Some(required) = csi::controller_required(&plugin) {
            row.volume.controller_required = required;
        }
        if !plugin.plugin.provider.is_empty() {
            row.volume.provider.clone_from(&plugin.plugin.provider);
            row.volume
                .provider_version
                .clone_from(&plugin.plugin.version);
        }
    }
    Ok(())
}

/// Volumes are removed: one that is used stays, whatever is forced with a live allocation (CSI-42).
pub(super) fn deregistered(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &CsiVolumeDeregistered,
) -> ApplyResult {
    for id in &ev.volume_ids {
        let key = (ev.namespace.as_str(), id.as_str());
        let row = known(txn, key)?;
        let held = match ev.force {
            true => csi::live_holder(txn, &row)?.is_some(),
            false => row.in_use(),
        };
        if held {
            return Err(Refused::because(format!("volume in use: {id}")));
        }
        txn.delete::<CsiVolumes>(key)?;
    }
    Ok(Reply::None)
}

/// A claim is taken, taken back by a step, or the volume is only signalled (VW-12).
pub(super) fn claimed(txn: &mut Txn<'_>, ctx: &Ctx, ev: &CsiVolumeClaimed) -> ApplyResult {
    claim(txn, ctx, ev)?;
    Ok(Reply::None)
}

/// Several claims of old logs, all or none (VW-07).
pub(super) fn claims_applied(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &CsiVolumeClaimsApplied,
) -> ApplyResult {
    for one in &ev.claims {
        claim(txn, ctx, one)?;
    }
    Ok(Reply::None)
}

fn claim(txn: &mut Txn<'_>, ctx: &Ctx, ev: &CsiVolumeClaimed) -> Result<(), Refused> {
    let mut row = known(txn, (&ev.namespace, &ev.volume_id))?;
    let level = feature_level(txn)?;
    if !state::is_known(ev.state, level) || !claim_mode::is_known(ev.mode, level) {
        return Err(Refused::because(format!(
            "claim {} with state {} on volume \"{}\" is not known",
            ev.mode, ev.state, ev.volume_id
        )));
    }
    let since = match ev.state {
        state::CLAIMED => ev.timestamp.max(1),
        _ => 0,
    };
    let changed = if ev.mode == claim_mode::DELETE {
        row.deletes(since).map_err(Refused::because)?
    } else if ev.mode == claim_mode::GROWN {
        row.grows(since)
    } else if ev.mode == claim_mode::GC && ev.state == state::CLAIMED {
        // VW-12, VW-13: nothing but the index, which wakes the waiters of the volume.
        row.volume.modify_index = ctx.index;
        txn.put::<CsiVolumes>(row)?;
        return Ok(());
    } else if ev.state == state::CLAIMED {
        take(txn, &mut row, ev)?
    } else {
        row.release(ev)
    };
    if changed {
        row.volume.modify_index = ctx.index;
        row.volume.modify_time = match ev.timestamp {
            0 => ctx.time,
            given => given,
        };
        txn.put::<CsiVolumes>(row)?;
    }
    Ok(())
}

fn take(txn: &Txn<'_>, row: &mut CsiVolumeRow, ev: &CsiVolumeClaimed) -> Result<bool, Refused> {
    if let Some(why) = csi::unserved(txn, ev)? {
        return Err(Refused::because(why));
    }
    let mut claim = ev.clone();
    if claim.node_id.is_empty()
        && let Some(alloc) = txn.get::<Allocs>(claim.allocation_id.as_str())?
    {
        claim.node_id.clone_from(&alloc.alloc.node_id);
    }
    note_plugin(txn, row)?;
    let level = feature_level(txn)?;
    row.take(&claim, level).map_err(Refused::because)
}

/// The volume, complete.
fn known(txn: &Txn<'_>, (namespace, id): (&str, &str)) -> Result<CsiVolumeRow, Refused> {
    let row = txn.get::<CsiVolumes>((namespace, id))?;
    let row = row.ok_or_else(|| Refused::because(format!("volume not found: {id}")))?;
    Ok(csi::repaired(&row))
}
