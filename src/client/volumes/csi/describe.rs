//! Plugins as a part of the node: what servers know of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::{Map, Time};
use drover_events::model::{CsiControllerInfo, CsiInfo, CsiNodeInfo, CsiTopology};

use super::Csi;
use super::registry::{CsiPart, Live, PluginProbe};

impl Csi {
    /// Puts what is known of plugins into the node; a change is reported to the servers.
    pub(super) fn describe(&self) {
        {
            // Held from before it is collected: of two at once the later one knows no less.
            let mut node = self.node.lock();
            let all = self.registry.all();
            let (controllers, nodes) =
                (infos(&all, CsiPart::Controller), infos(&all, CsiPart::Node));
            if node.csi_controller_plugins == controllers && node.csi_node_plugins == nodes {
                return;
            }
            let mut changed = (**node).clone();
            changed.csi_controller_plugins = controllers;
            changed.csi_node_plugins = nodes;
            *node = Arc::new(changed);
        }
        self.described.notify_one();
    }
}

/// By name; of several plugins of a name, that of the one that is called.
fn infos(all: &[Live], part: CsiPart) -> Map<CsiInfo> {
    let mut infos: BTreeMap<String, CsiInfo> = BTreeMap::new();
    for live in all {
        let Some(reported) = reported(live, part) else {
            continue;
        };
        match infos.get(&live.instance.plugin) {
            Some(older) if older.healthy && !reported.healthy => {}
            _ => drop(infos.insert(live.instance.plugin.clone(), reported)),
        }
    }
    infos.into()
}

/// What is reported of a part of a plugin, if it has it. One that has not answered this agent yet
/// is what it was to the agent before: it has gone nowhere.
pub(super) fn reported(live: &Live, part: CsiPart) -> Option<CsiInfo> {
    if !live.instance.kind.has(part) {
        return None;
    }
    match (&live.found.identity, part) {
        (Some(_), _) => Some(info(live, part)),
        (None, CsiPart::Controller) => live.former.controller.clone(),
        (None, CsiPart::Node) => live.former.node.clone(),
    }
}

fn info(live: &Live, part: CsiPart) -> CsiInfo {
    let found = &live.found;
    let identity = found.identity.clone();
    let (provider, version) = identity.map_or_else(Default::default, |one| (one.name, one.version));
    CsiInfo {
        plugin_id: live.instance.plugin.clone(),
        alloc_id: live.instance.alloc.clone(),
        healthy: found.healthy,
        health_description: match found.healthy {
            true => "healthy".to_owned(),
            false => found.trouble.clone(),
        },
        update_time: Time(found.since),
        provider,
        provider_version: version,
        requires_controller_plugin: found.features.plugin.controller,
        requires_topologies: found.features.plugin.topologies,
        controller_info: (part == CsiPart::Controller).then(|| controller(found)),
        node_info: (part == CsiPart::Node).then(|| node(found)),
    }
}

fn controller(found: &PluginProbe) -> CsiControllerInfo {
    let can = found.features.controller.unwrap_or_default();
    CsiControllerInfo {
        supports_create_delete: can.create_delete,
        supports_attach_detach: can.attach_detach,
        supports_list_volumes: can.list_volumes,
        supports_get_capacity: can.get_capacity,
        supports_create_delete_snapshot: can.create_delete_snapshot,
        supports_list_snapshots: can.list_snapshots,
        supports_clone: can.clone,
        supports_read_only_attach: can.read_only_attach,
        supports_expand: can.expand,
        supports_list_volumes_attached_nodes: can.list_volumes_attached_nodes,
        supports_condition: can.volume_condition,
        supports_get: can.get,
    }
}

fn node(found: &PluginProbe) -> CsiNodeInfo {
    let can = found.features.node.unwrap_or_default();
    let node = found.node.clone().unwrap_or_default();
    let topology = node.topology.map(|segments| CsiTopology {
        segments: segments.into(),
    });
    CsiNodeInfo {
        id: node.id,
        max_volumes: match node.max_volumes {
            0 => i64::MAX,
            most => most,
        },
        accessible_topology: topology,
        requires_node_stage_volume: can.stage,
        supports_stats: can.stats,
        supports_expand: can.expand,
        supports_condition: can.volume_condition,
    }
}
