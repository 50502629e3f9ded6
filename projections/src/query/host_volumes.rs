//! Host volumes: which allocations use them, and which groups hold the sticky ones.

use std::collections::BTreeSet;

use drover_events::model::status::volume_type;
use drover_events::model::{
    HostVolume, HostVolumeStub, TaskGroup, TaskGroupHostVolumeClaim, VolumeRequest,
};

use super::csi::group_of;
use super::{QueryResult, live_allocs_of_node};
use crate::engine::scan::{Prefix, Scan};
use crate::engine::txn::ReadRows;
use crate::tables::alloc_jobs::AllocJobs;
use crate::tables::host_volume_claims::HostVolumeClaims;
use crate::tables::host_volumes::{HostVolumes, HostVolumesByName};

/// The host volumes that a group requests, by the name that each allocation of its own gets.
pub fn requested_for(group: &TaskGroup, alloc_name: &str) -> Vec<(String, VolumeRequest)> {
    super::csi::requested_of_type(group, alloc_name, volume_type::HOST)
}

/// The ids of the allocations that live on the volume's node and use it.
pub fn users(from: &impl ReadRows, volume: &HostVolume) -> QueryResult<Vec<String>> {
    let mut users = Vec::new();
    if volume.node_id.is_empty() {
        return Ok(users);
    }
    for row in live_allocs_of_node(from, &volume.node_id)? {
        if row.alloc.namespace != volume.namespace {
            continue;
        }
        let Some(job) = from.row::<AllocJobs>(&row.job_key())? else {
            continue;
        };
        let requested = group_of(&job, &row.alloc.task_group)
            .map_or_else(Vec::new, |group| requested_for(group, &row.alloc.name));
        if requested.iter().any(|(name, _)| *name == volume.name) {
            users.push(row.alloc.id.clone());
        }
    }
    Ok(users)
}

/// The volume of a name on a node.
pub fn on_node(
    from: &impl ReadRows,
    (namespace, name): (&str, &str),
    node: &str,
) -> QueryResult<Option<HostVolume>> {
    let scan = Scan::with_key_prefix::<(String, String)>((namespace, name));
    for row in from.rows_by::<HostVolumesByName>(scan) {
        let row = row?;
        if row.node_id == node {
            return Ok(Some(HostVolume::clone(&row)));
        }
    }
    Ok(None)
}

/// The nodes that have, or are to have, a volume of this name: on a node one volume has it,
/// whatever its namespace.
pub fn nodes_with(from: &impl ReadRows, name: &str) -> QueryResult<BTreeSet<String>> {
    let mut nodes = BTreeSet::new();
    for row in from.rows::<HostVolumes>(Scan::all()) {
        let row = row?;
        if row.name == name {
            nodes.insert(row.node_id.clone());
        }
    }
    Ok(nodes)
}

/// The claims on a volume.
pub fn claims_on(
    from: &impl ReadRows,
    (namespace, volume): (&str, &str),
) -> QueryResult<Vec<TaskGroupHostVolumeClaim>> {
    let scan = Scan::prefix(Prefix::new().str(namespace));
    let mut claims = Vec::new();
    for claim in from.rows::<HostVolumeClaims>(scan) {
        let claim = claim?;
        if claim.volume_id == volume {
            claims.push(TaskGroupHostVolumeClaim::clone(&claim));
        }
    }
    Ok(claims)
}

/// What lists show of a volume.
pub fn stub(row: HostVolume) -> HostVolumeStub {
    HostVolumeStub {
        namespace: row.namespace,
        id: row.id,
        name: row.name,
        plugin_id: row.plugin_id,
        node_pool: row.node_pool,
        node_id: row.node_id,
        capacity_bytes: row.capacity_bytes,
        state: row.state,
        create_index: row.create_index,
        create_time: row.create_time,
        modify_index: row.modify_index,
        modify_time: row.modify_time,
    }
}

/// The id of a host volume of the namespace (NS-07).
pub fn volume_of_namespace(from: &impl ReadRows, namespace: &str) -> QueryResult<Option<String>> {
    let scan = Scan::prefix(Prefix::new().str(namespace));
    let found = from.rows::<HostVolumes>(scan).next().transpose()?;
    Ok(found.map(|row| row.id.clone()))
}
