//! Who holds a volume, which step each claim waits for, and since when.

use drover_events::csi::{CsiVolumeClaimed, claim_mode, state};
use drover_events::gojson::List;
use drover_events::model::Node;
use drover_events::model::status::node as status;
use drover_projections::StorageError;
use drover_projections::query::csi::{self as stored, PluginNodes, Volume};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes;

use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::list::storage;

drover_events::wire! {
    /// A volume, and what becomes of the claims on it.
    pub(crate) struct Explained {
        id: String = "ID",
        namespace: String = "Namespace",
        plugin_id: String = "PluginID",
        schedulable: bool = "Schedulable",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        /// The reason that a job waiting for the volume would get.
        says: String = "Says",
        claims: List<Claim> = "Claims",
        modify_index: u64 = "ModifyIndex",
    }

    /// What one allocation holds, or what else keeps the volume: a call whose end is not known, or
    /// that it is being deleted, which is no allocation's.
    pub(crate) struct Claim {
        allocation_id: String = "AllocationID",
        job_id: String = "JobID",
        client_status: String = "ClientStatus",
        node_id: String = "NodeID",
        node_name: String = "NodeName",
        mode: String = "Mode",
        access_mode: String = "AccessMode",
        state: String = "State",
        /// What has to happen next; empty while it is held.
        waits_for: String = "WaitsFor",
        /// Why that cannot happen now; empty where nothing stands against it.
        hindered_by: String = "HinderedBy",
        /// How often that was tried, by the server that leads.
        tries: u64 = "Tries",
        /// When it failed first, as that server knows; Unix nanoseconds, 0 where it did not.
        hindered_since: i64 = "HinderedSince",
        /// When the last step was, or when its allocation ended; Unix nanoseconds.
        since: i64 = "Since",
    }
}

/// `GET /v1/volume/csi/:id/explain`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let key = (read.options.namespace.as_str(), id.as_str());
    let volume = stored::volume(read.view.unfiltered(), key).map_err(storage)?;
    let volume = volume.ok_or_else(|| Refusal::not_found("volume not found"))?;
    let explained = explain(read, &volume).map_err(storage)?;
    Ok(Answer::json(&explained)?.at(explained.modify_index))
}

fn explain(read: &Read<'_>, volume: &Volume) -> Result<Explained, StorageError> {
    let row = &volume.row;
    let plugin = stored::plugin(read.view.unfiltered(), &row.volume.plugin_id)?;
    let key = (row.volume.namespace.as_str(), row.volume.id.as_str());
    // What hinders is known of now, and of nothing that was.
    let mut troubles = match read.view.is_past() {
        true => Default::default(),
        false => read.api.server.volumes.last_errors(key),
    };
    let mut claims = List::empty();
    for (_, claim) in row.claims().chain(row.detach_unconfirmed()) {
        claims.push(explain_claim(read, volume, plugin.as_ref(), claim)?);
    }
    if row.deleting != 0 {
        claims.push(deletion(row.deleting));
    }
    for claim in claims.to_mut() {
        // In this view it may still be held, whatever was tried since.
        if let Some(trouble) = troubles
            .remove(&claim.allocation_id)
            .filter(|_| !claim.waits_for.is_empty())
        {
            // The error when it was tried, and not what may stand against it.
            claim.hindered_by = trouble.error;
            claim.tries = trouble.tries;
            claim.hindered_since = trouble.since;
        }
    }
    Ok(Explained {
        id: row.volume.id.clone(),
        namespace: row.volume.namespace.clone(),
        plugin_id: row.volume.plugin_id.clone(),
        schedulable: volume.schedulable(),
        access_mode: row.volume.access_mode.clone(),
        attachment_mode: row.volume.attachment_mode.clone(),
        says: says_all(volume),
        claims,
        modify_index: row.volume.modify_index,
    })
}

fn says_all(volume: &Volume) -> String {
    let says = says(volume);
    match volume.row.node_expansion {
        0 => says,
        _ => format!("{says}; who writes to it next makes it as large as it is at its provider"),
    }
}

fn says(volume: &Volume) -> String {
    let row = &volume.row;
    let plugin = &row.volume.plugin_id;
    match (&volume.plugin, volume.schedulable()) {
        (None, _) => format!("nothing runs its plugin {plugin:?}"),
        (Some(known), false) if known.plugin.nodes_healthy == 0 => {
            format!("no node has a healthy plugin {plugin:?}")
        }
        (Some(_), false) => format!("no controller of plugin {plugin:?} is healthy"),
        (Some(_), true) if row.deleting != 0 => "it is being deleted".to_owned(),
        (Some(_), true) if row.detach_unconfirmed().next().is_some() && !row.in_use() => {
            "nobody holds it; a call whose end is not known may still be under way".to_owned()
        }
        (Some(_), true) if !row.in_use() => "nobody holds it".to_owned(),
        (Some(_), true) if row.has_capacity("", claim_mode::WRITE, "") => {
            "it is held, and others may write to it as well".to_owned()
        }
        (Some(_), true) if row.has_capacity("", claim_mode::READ, "") => {
            "it is held, and others may read it as well".to_owned()
        }
        (Some(_), true) if row.past_claims.is_empty() => {
            "it is held as long as its allocations run".to_owned()
        }
        (Some(_), true) => "it is being released".to_owned(),
    }
}

/// A volume that is being deleted: no allocation gets it meanwhile.
fn deletion(since: i64) -> Claim {
    Claim {
        state: "deleting".to_owned(),
        waits_for: "its provider to delete it".to_owned(),
        since,
        ..Claim::default()
    }
}

fn explain_claim(
    read: &Read<'_>,
    volume: &Volume,
    plugin: Option<&PluginNodes>,
    claim: &CsiVolumeClaimed,
) -> Result<Claim, StorageError> {
    let alloc = read.view.get::<Allocs>(claim.allocation_id.as_str())?;
    let node = nodes::get(read.view.unfiltered(), &claim.node_id)?;
    let past = volume.row.past_claims.contains_key(&claim.allocation_id);
    let (waits_for, hindered_by) = match past {
        true => waits_to_leave(read, (volume, plugin), (claim, node.as_ref())),
        false => waits_to_come(volume, plugin, claim),
    };
    // Of one whose release has not begun it is the end of its allocation that counts.
    let ended = alloc.as_ref().map_or(0, |row| row.alloc.modify_time);
    let since = match claim.state {
        state::CLAIMED if past && ended != 0 => ended,
        _ => claim.timestamp,
    };
    Ok(Claim {
        allocation_id: claim.allocation_id.clone(),
        job_id: alloc
            .as_ref()
            .map_or_else(String::new, |row| row.alloc.job_id.clone()),
        client_status: alloc.map_or_else(|| "gone".to_owned(), |row| row.alloc.client_status),
        node_id: claim.node_id.clone(),
        node_name: node.map_or_else(String::new, |node| node.name.clone()),
        mode: match claim.mode {
            claim_mode::WRITE => "write",
            _ => "read",
        }
        .to_owned(),
        access_mode: claim.access_mode.clone(),
        state: match past {
            true => state::name(claim.state),
            false => "held",
        }
        .to_owned(),
        waits_for,
        hindered_by,
        tries: 0,
        hindered_since: 0,
        since,
    })
}

/// What a claim waits for that is not given back, and why that cannot happen now.
fn waits_to_come(
    volume: &Volume,
    plugin: Option<&PluginNodes>,
    claim: &CsiVolumeClaimed,
) -> (String, String) {
    match volume.row.waits_to_be_attached(&claim.allocation_id) {
        true => (
            "a controller to attach it to its node".to_owned(),
            no_controller(volume, plugin),
        ),
        false => (String::new(), String::new()),
    }
}

/// What a claim waits for that is given back, and why that cannot happen now.
fn waits_to_leave(
    read: &Read<'_>,
    (volume, plugin): (&Volume, Option<&PluginNodes>),
    (claim, node): (&CsiVolumeClaimed, Option<&Node>),
) -> (String, String) {
    let row = &volume.row;
    // As a release decides it.
    let attached = row.volume.controller_required || claim.published;
    let id = &row.volume.plugin_id;
    let runs_there = plugin.is_some_and(|plugin| {
        plugin
            .healthy_nodes()
            .any(|(node, _)| *node == claim.node_id)
    });
    match claim.state {
        state::CLAIMED | state::UNPUBLISHING => {
            let why = match node {
                None => format!("node {} is not there any more", claim.node_id),
                Some(node) if node.status != status::READY => hinders(read, &node.status),
                Some(_) if !runs_there => format!("plugin {id:?} is not healthy on the node"),
                Some(_) => String::new(),
            };
            ("its node to unmount it".to_owned(), why)
        }
        state::NODE_DETACHED if attached => (
            "a controller to detach it from its node".to_owned(),
            no_controller(volume, plugin),
        ),
        state::DETACH_UNCONFIRMED => (
            "the end of a call that may still be under way".to_owned(),
            String::new(),
        ),
        _ => ("a server to free it".to_owned(), String::new()),
    }
}

/// Why no controller does anything now; nothing where one can.
fn no_controller(volume: &Volume, plugin: Option<&PluginNodes>) -> String {
    match plugin.is_some_and(|plugin| plugin.healthy_controllers().count() > 0) {
        true => String::new(),
        false => {
            let id = &volume.row.volume.plugin_id;
            format!("no controller of plugin {id:?} is healthy")
        }
    }
}

/// Why a node does not do it now, in words for callers that may know how nodes are, and for the
/// others.
fn hinders(read: &Read<'_>, status: &str) -> String {
    match read.identity.acl.node_read() {
        true => format!("the node is {status}"),
        false => "the node does not do it now".to_owned(),
    }
}
