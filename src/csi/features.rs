//! The capabilities that a plugin reports.

use crate::proto;
use crate::proto::controller_service_capability::rpc::Type as Controller;
use crate::proto::node_service_capability::rpc::Type as Node;
use crate::proto::plugin_capability::service::Type as Service;
use crate::proto::plugin_capability::volume_expansion::Type as Expansion;
use crate::proto::{VolumeCapability, volume_capability};
use crate::proto::{controller_service_capability, node_service_capability, plugin_capability};

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Those of the plugin as a whole.
    pub plugin: PluginFeatures,
    /// Those of its controller, if it has one and was queried.
    pub controller: Option<ControllerFeatures>,
    /// Those of its node plugin, if that was queried.
    pub node: Option<NodeFeatures>,
}

/// The capabilities of a plugin as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginFeatures {
    /// It has a controller, which its volumes need.
    pub controller: bool,
    /// Its volumes may be accessible from a part of the nodes only, by topology.
    pub topologies: bool,
    /// It can expand its volumes only while they are published on no node.
    pub offline_expansion_only: bool,
}

/// The capabilities of a controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ControllerFeatures {
    pub create_delete: bool,
    pub attach_detach: bool,
    pub list_volumes: bool,
    pub get_capacity: bool,
    pub create_delete_snapshot: bool,
    pub list_snapshots: bool,
    pub clone: bool,
    pub read_only_attach: bool,
    pub expand: bool,
    pub list_volumes_attached_nodes: bool,
    pub volume_condition: bool,
    pub get: bool,
}

/// The capabilities of a node plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodeFeatures {
    pub stage: bool,
    pub stats: bool,
    pub expand: bool,
    pub volume_condition: bool,
}

pub(crate) fn plugin(answer: &proto::GetPluginCapabilitiesResponse) -> PluginFeatures {
    let mut features = PluginFeatures::default();
    let mut online = false;
    for capability in &answer.capabilities {
        match &capability.r#type {
            Some(plugin_capability::Type::Service(service)) => match service.r#type() {
                Service::ControllerService => features.controller = true,
                Service::VolumeAccessibilityConstraints => features.topologies = true,
                _ => {}
            },
            Some(plugin_capability::Type::VolumeExpansion(grows)) => {
                // One that reports both can do either.
                features.offline_expansion_only |= grows.r#type() == Expansion::Offline;
                online |= grows.r#type() == Expansion::Online;
            }
            None => {}
        }
    }
    features.offline_expansion_only &= !online;
    features
}

pub(crate) fn controller(answer: &proto::ControllerGetCapabilitiesResponse) -> ControllerFeatures {
    let mut can = ControllerFeatures::default();
    for capability in &answer.capabilities {
        let Some(controller_service_capability::Type::Rpc(rpc)) = &capability.r#type else {
            continue;
        };
        match rpc.r#type() {
            Controller::CreateDeleteVolume => can.create_delete = true,
            Controller::PublishUnpublishVolume => can.attach_detach = true,
            Controller::ListVolumes => can.list_volumes = true,
            Controller::GetCapacity => can.get_capacity = true,
            Controller::CreateDeleteSnapshot => can.create_delete_snapshot = true,
            Controller::ListSnapshots => can.list_snapshots = true,
            Controller::CloneVolume => can.clone = true,
            Controller::PublishReadonly => can.read_only_attach = true,
            Controller::ExpandVolume => can.expand = true,
            Controller::ListVolumesPublishedNodes => can.list_volumes_attached_nodes = true,
            Controller::VolumeCondition => can.volume_condition = true,
            Controller::GetVolume => can.get = true,
            // Capabilities of later versions of the specification, or of no use here.
            _ => {}
        }
    }
    can
}

pub(crate) fn node(answer: &proto::NodeGetCapabilitiesResponse) -> NodeFeatures {
    let mut can = NodeFeatures::default();
    for capability in &answer.capabilities {
        let Some(node_service_capability::Type::Rpc(rpc)) = &capability.r#type else {
            continue;
        };
        match rpc.r#type() {
            Node::StageUnstageVolume => can.stage = true,
            Node::GetVolumeStats => can.stats = true,
            Node::ExpandVolume => can.expand = true,
            Node::VolumeCondition => can.volume_condition = true,
            _ => {}
        }
    }
    can
}

/// Whether a plugin confirmed that a volume can be used this way. Options that the plugin
/// adds or leaves out are its own matter; the access to the volume, and its form, are not.
pub(crate) fn supports(confirmed: &[VolumeCapability], wanted: &VolumeCapability) -> bool {
    let kind = |capability: &VolumeCapability| match capability.access_type {
        Some(volume_capability::AccessType::Block(_)) => 1,
        Some(volume_capability::AccessType::Mount(_)) => 2,
        None => 0,
    };
    confirmed
        .iter()
        .any(|one| one.access_mode == wanted.access_mode && kind(one) == kind(wanted))
}
