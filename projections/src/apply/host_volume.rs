//! Host volumes that the cluster manages: their rows, whether their nodes have them, and which
//! groups hold the sticky ones.

use drover_events::csi::CSI_LEVEL;
use drover_events::host_volume::*;
use drover_events::model::status::{NodeStatus, host_volume as status, node as node_status};
use drover_events::model::{
    Allocation, ClientHostVolumeConfig, HostVolume, Job, Node, TaskGroupHostVolumeClaim,
};
use sha2::{Digest as _, Sha256};

use super::cluster::supports;
use super::{ApplyResult, namespace};
use crate::engine::key::Id;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::scan::Scan;
use crate::engine::txn::{Ctx, Txn};
use crate::query::{csi, host_volumes};
use crate::tables::host_volume_claims::{HostVolumeClaims, HostVolumeClaimsById};
use crate::tables::host_volumes::{HostVolumes, HostVolumesByNode};
use crate::tables::nodes::Nodes;

/// A host volume is created, registered or changed.
pub(super) fn registered(txn: &mut Txn<'_>, ctx: &Ctx, ev: &HostVolumeRegistered) -> ApplyResult {
    let mut row = ev.volume.clone();
    if !namespace::exists(txn, &row.namespace)? {
        return Err(Refused::because(format!(
            "volume \"{}\" is in nonexistent namespace \"{}\"",
            row.id, row.namespace
        )));
    }
    let node = txn.get::<Nodes>(row.node_id.as_str())?;
    let Some(node) = node else {
        return Err(Refused::because(format!("node {} not found", row.node_id)));
    };
    let key = (row.namespace.as_str(), row.name.as_str());
    if let Some(other) = host_volumes::on_node(txn, key, &row.node_id)?
        && other.id != row.id
    {
        return Err(Refused::because(format!(
            "volume \"{}\" of namespace \"{}\" is on node {} already",
            row.name, row.namespace, row.node_id
        )));
    }
    let known = txn.get::<HostVolumes>((row.namespace.as_str(), row.id.as_str()))?;
    if let Some(known) = &known {
        check_immutable_fields(known, &row).map_err(Refused::because)?;
    }
    row.create_index = known.as_ref().map_or(ctx.index, |known| known.create_index);
    row.create_time = known.as_ref().map_or(ctx.time, |known| known.create_time);
    row.modify_index = ctx.index;
    row.modify_time = ctx.time;
    row.node_pool.clone_from(&node.node_pool);
    row.allocations = drover_events::gojson::List::nil();
    row.state = match has(&node, &row) {
        true => status::READY,
        false => status::PENDING,
    }
    .to_owned();
    txn.put::<HostVolumes>(row)?;
    Ok(Reply::None)
}

/// Identity fields of a volume are immutable; its capacity cannot shrink.
///
/// # Errors
/// The refusal, which names the field.
pub fn check_immutable_fields(known: &HostVolume, new: &HostVolume) -> Result<(), String> {
    for (field, known, new) in [
        ("name", &known.name, &new.name),
        ("node ID", &known.node_id, &new.node_id),
        ("plugin ID", &known.plugin_id, &new.plugin_id),
    ] {
        if known != new {
            return Err(format!("volume {field} cannot be updated"));
        }
    }
    let most = new.requested_capacity_max_bytes;
    if most != 0 && most < known.capacity_bytes {
        return Err(format!(
            "capacity_max ({most}) cannot be less than existing provisioned capacity ({})",
            known.capacity_bytes
        ));
    }
    Ok(())
}

/// A host volume is removed, with what groups hold of it; one that is used stays.
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &HostVolumeDeleted) -> ApplyResult {
    let key = (ev.namespace.as_str(), ev.volume_id.as_str());
    let Some(known) = txn.get::<HostVolumes>(key)? else {
        return Err(Refused::because(format!(
            "no such volume: {}",
            ev.volume_id
        )));
    };
    let users = host_volumes::users(txn, &known)?;
    if !users.is_empty() {
        return Err(Refused::because(in_use(&ev.volume_id, &users)));
    }
    remove(txn, &known)?;
    Ok(Reply::None)
}

/// Removes a volume with what groups hold of it.
fn remove(txn: &mut Txn<'_>, volume: &HostVolume) -> Result<(), Refused> {
    let key = (volume.namespace.as_str(), volume.id.as_str());
    for claim in host_volumes::claims_on(txn, key)? {
        remove_claim(txn, &claim)?;
    }
    txn.delete::<HostVolumes>(key)?;
    Ok(())
}

/// The refusal to remove a volume that these allocations use.
pub fn in_use(id: &str, users: &[String]) -> String {
    format!("volume {id} in use by allocations: [{}]", users.join(" "))
}

/// A group gives back what it holds.
pub(super) fn claim_released(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &HostVolumeClaimReleased,
) -> ApplyResult {
    let scan = Scan::with_key_prefix::<Id>(ev.claim_id.as_str());
    let claim = txn
        .by_index_scan::<HostVolumeClaimsById>(scan)
        .next()
        .transpose()?;
    let Some(claim) = claim else {
        return Err(Refused::because("claim not found"));
    };
    remove_claim(txn, &claim)?;
    Ok(Reply::None)
}

fn remove_claim(txn: &mut Txn<'_>, claim: &TaskGroupHostVolumeClaim) -> Result<(), Refused> {
    txn.delete::<HostVolumeClaims>((
        claim.namespace.as_str(),
        claim.job_id.as_str(),
        claim.task_group_name.as_str(),
        claim.volume_id.as_str(),
    ))?;
    Ok(())
}

/// Whether the node says that it has the volume.
fn has(node: &Node, volume: &HostVolume) -> bool {
    let offered = node.host_volumes.get(&volume.name);
    offered.is_some_and(|offered| offered.id == volume.id)
}

/// A node registered with the volumes that it has: those are ready, and those that it had before
/// are unavailable.
pub(super) fn node_registered(txn: &mut Txn<'_>, ctx: &Ctx, node: &Node) -> Result<(), Refused> {
    let host_volumes_supported = supports(txn, HOST_VOLUME_LEVEL)?;
    let offers = |offered: &ClientHostVolumeConfig| !offered.id.is_empty();
    if !host_volumes_supported && !node.host_volumes.values().any(offers) {
        return Ok(());
    }
    for row in of_node(txn, &node.id)? {
        let is_there = has(node, &row);
        let mut new = row.clone();
        match row.state.as_str() {
            status::READY if host_volumes_supported && !is_there => {
                new.state = status::UNAVAILABLE.to_owned()
            }
            _ if is_there => new.state = status::READY.to_owned(),
            _ => {}
        }
        // If the create call was interrupted, its host path was never reported: the node's is
        // taken.
        if host_volumes_supported && is_there && row.host_path.is_empty() {
            let offered = node.host_volumes.get(&row.name);
            new.host_path = offered.map_or_else(String::new, |offered| offered.path.clone());
        }
        put_if_changed(txn, ctx, &row, new)?;
    }
    Ok(())
}

/// A node's status changed: its volumes are unavailable while it is down or disconnected, and ready
/// again when it is and still has them.
pub(super) fn node_status_changed(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    node: &Node,
    status: &str,
) -> Result<(), Refused> {
    if !supports(txn, HOST_VOLUME_LEVEL)? {
        return Ok(());
    }
    for row in of_node(txn, &node.id)? {
        let mut new = row.clone();
        match NodeStatus::of(status) {
            Some(NodeStatus::Down | NodeStatus::Disconnected) => {
                if row.state == status::READY {
                    new.state = status::UNAVAILABLE.to_owned();
                }
            }
            Some(NodeStatus::Ready) => {
                if row.state == status::UNAVAILABLE && has(node, &row) {
                    new.state = status::READY.to_owned();
                }
            }
            Some(NodeStatus::Init) | None => {}
        }
        put_if_changed(txn, ctx, &row, new)?;
    }
    Ok(())
}

/// A node was deregistered: if the node has `gc_volumes_on_node_gc`, its volumes are deleted,
/// otherwise they are unavailable.
pub(super) fn node_deregistered(txn: &mut Txn<'_>, ctx: &Ctx, node: &Node) -> Result<(), Refused> {
    if !node.gc_volumes_on_node_gc || !supports(txn, HOST_VOLUME_LEVEL)? {
        return node_status_changed(txn, ctx, node, node_status::DOWN);
    }
    for row in of_node(txn, &node.id)? {
        remove(txn, &row)?;
    }
    Ok(())
}

fn of_node(txn: &Txn<'_>, node: &str) -> Result<Vec<HostVolume>, Refused> {
    let rows = txn.by_index::<HostVolumesByNode>(node);
    let rows = rows.map(|row| row.map(|row| HostVolume::clone(&row)));
    Ok(rows.collect::<Result<_, _>>()?)
}

fn put_if_changed(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    old: &HostVolume,
    mut new: HostVolume,
) -> Result<(), Refused> {
    if new != *old {
        new.modify_index = ctx.index;
        new.modify_time = ctx.time;
        txn.put::<HostVolumes>(new)?;
    }
    Ok(())
}

/// An allocation is placed: its group holds the sticky volumes of its node from then on. A
/// replacement allocation inherits the claim of the one it replaces.
pub(super) fn placed(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    alloc: &Allocation,
    job: &Job,
) -> Result<(), Refused> {
    let group = csi::group_of(job, &alloc.task_group);
    let requested = group.map_or_else(Vec::new, |group| {
        host_volumes::requested_for(group, &alloc.name)
    });
    for (name, _) in requested.iter().filter(|(_, requested)| requested.sticky) {
        // Claims on sticky host volumes came with the level that brought CSI volumes.
        if !supports(txn, CSI_LEVEL)? {
            return Ok(());
        }
        let key = (alloc.namespace.as_str(), name.as_str());
        let Some(volume) = host_volumes::on_node(txn, key, &alloc.node_id)? else {
            continue;
        };
        let key = (
            alloc.namespace.as_str(),
            alloc.job_id.as_str(),
            alloc.task_group.as_str(),
            volume.id.as_str(),
        );
        let known = txn.get::<HostVolumeClaims>(key)?;
        let claim = TaskGroupHostVolumeClaim {
            id: known
                .as_ref()
                .map_or_else(|| claim_id(ctx, alloc, &volume), |one| one.id.clone()),
            namespace: alloc.namespace.clone(),
            job_id: alloc.job_id.clone(),
            task_group_name: alloc.task_group.clone(),
            alloc_id: alloc.id.clone(),
            volume_id: volume.id.clone(),
            volume_name: volume.name.clone(),
            create_index: known.map_or(ctx.index, |known| known.create_index),
            modify_index: ctx.index,
        };
        txn.put::<HostVolumeClaims>(claim)?;
    }
    Ok(())
}

/// A UUID that follows from the event and from what is claimed.
fn claim_id(ctx: &Ctx, alloc: &Allocation, volume: &HostVolume) -> String {
    let mut hash = Sha256::new();
    hash.update(b"drover host volume claim\0");
    hash.update(ctx.id.0);
    hash.update(alloc.id.as_bytes());
    hash.update(volume.id.as_bytes());
    let hash = hex::encode(&hash.finalize()[..16]);
    let (variant, rest) = hash[16..].split_at(1);
    let variant = match variant {
        "0" | "4" | "8" | "c" => "8",
        "1" | "5" | "9" | "d" => "9",
        "2" | "6" | "a" | "e" => "a",
        _ => "b",
    };
    let [a, b, c] = [&hash[..8], &hash[8..12], &hash[13..16]];
    format!("{a}-{b}-4{c}-{variant}{}-{}", &rest[..3], &rest[3..])
}
