//! The methods of CSI volumes: the calls of clients to servers (`CSIVolume.…`), and those of
//! servers to the clients that run plugins (`CSI.…`, in sessions: [`super::client_calls`]).
//!
//! Requests to plugins are structures with Nomad's names (CSI-11). The volume's id in them is what
//! the plugin calls it (CSI-10); secrets go along and are never shown.

use std::collections::BTreeMap;

use drover_events::gojson::{List, Map};
use drover_events::model::{
    CsiMountOptions, CsiSnapshot, CsiTopology, CsiTopologyRequest, CsiVolume, CsiVolumeCapability,
    CsiVolumeExternalStub,
};
use serde::{Deserialize, Serialize};

use super::Rpc;
use super::methods::{WriteResponse, messages, methods};

/// Secrets of a volume, in clear. They are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub BTreeMap<String, String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A call to a controller: which plugin's, and on which node.
pub trait AskController: Rpc {
    /// The plugin that is called, and the node whose controller it is; empty until one is chosen.
    fn of(request: &mut Self::Req) -> (&str, &mut String);
}

macro_rules! controllers {
    ($($method:ident)*) => {$(
        impl AskController for $method {
            fn of(request: &mut Self::Req) -> (&str, &mut String) {
                (&request.plugin_id, &mut request.controller_node_id)
            }
        }
    )*};
}

methods! {
    /// An allocation takes a volume.
    CsiVolumeClaim = "CSIVolume.Claim": CsiVolumeClaimRequest -> CsiVolumeClaimResponse;
    /// An allocation gives a volume back.
    CsiVolumeUnpublish = "CSIVolume.Unpublish": CsiVolumeUnpublishRequest -> WriteResponse;

    /// Whether a volume is there and can be used as it is to be.
    ControllerValidateVolume = "CSI.ControllerValidateVolume":
        ControllerValidateVolumeRequest -> Done;
    /// Attaches a volume to a node.
    ControllerAttachVolume = "CSI.ControllerAttachVolume":
        ControllerAttachVolumeRequest -> ControllerAttachVolumeResponse;
    /// Detaches a volume from a node.
    ControllerDetachVolume = "CSI.ControllerDetachVolume":
        ControllerDetachVolumeRequest -> Done;
    /// Makes a volume.
    ControllerCreateVolume = "CSI.ControllerCreateVolume":
        ControllerCreateVolumeRequest -> ControllerCreateVolumeResponse;
    /// Makes a volume larger.
    ControllerExpandVolume = "CSI.ControllerExpandVolume":
        ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    /// Deletes a volume.
    ControllerDeleteVolume = "CSI.ControllerDeleteVolume":
        ControllerDeleteVolumeRequest -> Done;
    /// The volumes that the provider has.
    ControllerListVolumes = "CSI.ControllerListVolumes":
        ControllerListVolumesRequest -> ControllerListVolumesResponse;
    /// Makes a snapshot.
    ControllerCreateSnapshot = "CSI.ControllerCreateSnapshot":
        ControllerCreateSnapshotRequest -> ControllerCreateSnapshotResponse;
    /// Deletes a snapshot.
    ControllerDeleteSnapshot = "CSI.ControllerDeleteSnapshot":
        ControllerDeleteSnapshotRequest -> Done;
    /// The snapshots that the provider has.
    ControllerListSnapshots = "CSI.ControllerListSnapshots":
        ControllerListSnapshotsRequest -> ControllerListSnapshotsResponse;
    /// Takes a volume from an allocation, and from its node where no other allocation uses it
    /// there. One that is taken already is taken (CSI-34).
    NodeDetachVolume = "CSI.NodeDetachVolume": NodeDetachVolumeRequest -> Done;
    /// Makes what is mounted as large as its volume has become.
    NodeExpandVolume = "CSI.NodeExpandVolume":
        NodeExpandVolumeRequest -> NodeExpandVolumeResponse;
}

controllers! {
    ControllerValidateVolume ControllerAttachVolume ControllerDetachVolume ControllerCreateVolume
    ControllerExpandVolume ControllerDeleteVolume ControllerListVolumes ControllerCreateSnapshot
    ControllerDeleteSnapshot ControllerListSnapshots
}

messages! {
    /// It is done.
    Done {}
    /// `CSIVolume.Claim`: it names the allocation and does not carry it (CSI-21).
    CsiVolumeClaimRequest {
        /// The volume's namespace.
        namespace: String = "Namespace",
        volume_id: String = "VolumeID",
        allocation_id: String = "AllocationID",
        /// The node that calls.
        node_id: String = "NodeID",
        /// Not looked at: what the plugin calls the node, servers know.
        external_node_id: String = "ExternalNodeID",
        /// 0 read, 1 write, 2 a signal of garbage collection.
        mode: u8 = "Claim",
        /// The access mode; that of the job where it is empty.
        access_mode: String = "AccessMode",
        /// The attachment mode; that of the job where it is empty.
        attachment_mode: String = "AttachmentMode",
        /// 0 takes the claim; anything else gives it back.
        state: u8 = "State",
        /// The growth of the volume, as the answer to the claim had it, that the node has done its
        /// part of: nothing is claimed then. 0 otherwise.
        expanded: i64 = "Expanded",
    }
    /// What a client needs to use the volume.
    CsiVolumeClaimResponse {
        /// What the controller answered when it attached the volume to the node.
        publish_context: Map<String> = "PublishContext",
        /// The volume, with its secrets (CSI-22).
        volume: Option<CsiVolume> = "Volume",
        /// The index of the claim.
        index: u64 = "Index",
        /// Since when the volume is larger at its provider than a node has made it, Unix
        /// nanoseconds: the client that mounts it expands it, and reports it. 0 where no client has
        /// to.
        node_expansion: i64 = "NodeExpansion",
    }
    /// A claim, as requests name it.
    NamedClaim {
        allocation_id: String = "AllocationID",
        node_id: String = "NodeID",
        /// What the plugin calls the node.
        external_node_id: String = "ExternalNodeID",
        /// 0 read, 1 write.
        mode: u8 = "Mode",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        /// How far it was given back.
        state: u8 = "State",
    }
    /// `CSIVolume.Unpublish`.
    CsiVolumeUnpublishRequest {
        /// The volume's namespace.
        namespace: String = "Namespace",
        volume_id: String = "VolumeID",
        /// Whose claim it is.
        claim: Option<NamedClaim> = "Claim",
    }
    /// `CSI.ControllerValidateVolume`.
    ControllerValidateVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        volume_id: String = "VolumeID",
        /// The ways it is to be used in.
        volume_capabilities: List<CsiVolumeCapability> = "VolumeCapabilities",
        /// How it is mounted.
        mount_options: Option<CsiMountOptions> = "MountOptions",
        /// Opaque.
        secrets: Secrets = "Secrets",
        /// Opaque.
        parameters: Map<String> = "Parameters",
        /// Opaque.
        context: Map<String> = "Context",
    }
    /// `CSI.ControllerAttachVolume`.
    ControllerAttachVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        volume_id: String = "VolumeID",
        /// What it calls the node that the volume goes to.
        client_csi_node_id: String = "ClientCSINodeID",
        /// How it appears there.
        attachment_mode: String = "AttachmentMode",
        /// Who may use it.
        access_mode: String = "AccessMode",
        /// How it is mounted.
        mount_options: Option<CsiMountOptions> = "MountOptions",
        /// Only to be read.
        read_only: bool = "ReadOnly",
        /// Opaque.
        secrets: Secrets = "Secrets",
        /// Opaque.
        volume_context: Map<String> = "VolumeContext",
    }
    /// What the controller says of the attachment.
    ControllerAttachVolumeResponse {
        /// Opaque; for the node's plugin.
        publish_context: Map<String> = "PublishContext",
    }
    /// `CSI.ControllerDetachVolume`.
    ControllerDetachVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        volume_id: String = "VolumeID",
        /// What it calls the node; empty for all that it is attached to.
        client_csi_node_id: String = "ClientCSINodeID",
        /// Opaque.
        secrets: Secrets = "Secrets",
    }
    /// `CSI.ControllerCreateVolume`.
    ControllerCreateVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// The name that makes a repeated call the same one.
        name: String = "Name",
        /// The ways it is to be used in.
        volume_capabilities: List<CsiVolumeCapability> = "VolumeCapabilities",
        /// How it is mounted.
        mount_options: Option<CsiMountOptions> = "MountOptions",
        /// Opaque.
        parameters: Map<String> = "Parameters",
        /// Opaque.
        secrets: Secrets = "Secrets",
        /// The least size, bytes; 0 for any.
        capacity_min: i64 = "CapacityMin",
        /// The greatest.
        capacity_max: i64 = "CapacityMax",
        /// A snapshot that it begins with.
        snapshot_id: String = "SnapshotID",
        /// A volume that it begins with.
        clone_id: String = "CloneID",
        /// Where it must or should be.
        requested_topologies: Option<CsiTopologyRequest> = "RequestedTopologies",
    }
    /// The volume that was made.
    ControllerCreateVolumeResponse {
        /// What the plugin calls it.
        external_volume_id: String = "ExternalVolumeID",
        /// Its size, bytes.
        capacity_bytes: i64 = "CapacityBytes",
        /// Opaque.
        volume_context: Map<String> = "VolumeContext",
        /// The snapshot that it began with.
        snapshot_id: String = "SnapshotID",
        /// The volume that it began with.
        clone_id: String = "CloneID",
        /// Where it is.
        topologies: List<CsiTopology> = "Topologies",
    }
    /// `CSI.ControllerExpandVolume`.
    ControllerExpandVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        external_volume_id: String = "ExternalVolumeID",
        /// The least size, bytes.
        required_bytes: i64 = "RequiredBytes",
        /// The greatest; 0 for none.
        limit_bytes: i64 = "LimitBytes",
        /// Opaque.
        secrets: Secrets = "Secrets",
        /// How it is used.
        volume_capability: Option<CsiVolumeCapability> = "VolumeCapability",
        /// With what it is mounted.
        mount_options: Option<CsiMountOptions> = "MountOptions",
        /// It may be attached somewhere: not every plugin makes it larger then.
        in_use: bool = "InUse",
    }
    /// The size that a volume has now.
    ControllerExpandVolumeResponse {
        capacity_bytes: i64 = "CapacityBytes",
        /// Nodes that have it mounted must be notified.
        node_expansion_required: bool = "NodeExpansionRequired",
    }
    /// `CSI.ControllerDeleteVolume`.
    ControllerDeleteVolumeRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        external_volume_id: String = "ExternalVolumeID",
        /// Opaque.
        secrets: Secrets = "Secrets",
    }
    /// `CSI.ControllerListVolumes`.
    ControllerListVolumesRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// The longest page; 0 for as many as there are.
        max_entries: i32 = "MaxEntries",
        /// Where the page begins.
        starting_token: String = "StartingToken",
    }
    /// A page of volumes.
    ControllerListVolumesResponse {
        /// As the provider shows them.
        entries: List<CsiVolumeExternalStub> = "Entries",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
    }
    /// `CSI.ControllerCreateSnapshot`.
    ControllerCreateSnapshotRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the volume.
        volume_id: String = "ExternalSourceVolumeID",
        /// The name that makes a repeated call the same one.
        name: String = "Name",
        /// Opaque.
        secrets: Secrets = "Secrets",
        /// Opaque.
        parameters: Map<String> = "Parameters",
    }
    /// The snapshot that was made.
    ControllerCreateSnapshotResponse {
        /// What the plugin calls it.
        id: String = "ID",
        /// What it calls the volume.
        external_source_volume_id: String = "ExternalSourceVolumeID",
        size_bytes: i64 = "SizeBytes",
        /// Unix seconds.
        create_time: i64 = "CreateTime",
        /// It can be used.
        is_ready: bool = "IsReady",
    }
    /// `CSI.ControllerDeleteSnapshot`.
    ControllerDeleteSnapshotRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// What the plugin calls the snapshot.
        id: String = "ID",
        /// Opaque.
        secrets: Secrets = "Secrets",
    }
    /// `CSI.ControllerListSnapshots`.
    ControllerListSnapshotsRequest {
        plugin_id: String = "PluginID",
        controller_node_id: String = "ControllerNodeID",
        /// The longest page; 0 for as many as there are.
        max_entries: i32 = "MaxEntries",
        /// Where the page begins.
        starting_token: String = "StartingToken",
        /// Opaque.
        secrets: Secrets = "Secrets",
    }
    /// A page of snapshots.
    ControllerListSnapshotsResponse {
        /// As the provider shows them.
        entries: List<CsiSnapshot> = "Entries",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
    }
    /// `CSI.NodeDetachVolume`.
    NodeDetachVolumeRequest {
        plugin_id: String = "PluginID",
        volume_id: String = "VolumeID",
        volume_namespace: String = "VolumeNamespace",
        /// What the plugin calls it.
        external_id: String = "ExternalID",
        /// The allocation that used it.
        alloc_id: String = "AllocID",
        node_id: String = "NodeID",
        /// How it appeared there.
        attachment_mode: String = "AttachmentMode",
        /// Who could use it.
        access_mode: String = "AccessMode",
        /// It was only read.
        read_only: bool = "ReadOnly",
    }
    /// `CSI.NodeExpandVolume`.
    NodeExpandVolumeRequest {
        plugin_id: String = "PluginID",
        volume_id: String = "VolumeID",
        volume_namespace: String = "VolumeNamespace",
        /// What the plugin calls it.
        external_id: String = "ExternalID",
        /// The allocation that uses it.
        alloc_id: String = "AllocID",
        node_id: String = "NodeID",
        /// How it appears there.
        attachment_mode: String = "AttachmentMode",
        /// Who can use it.
        access_mode: String = "AccessMode",
        /// It is only read.
        read_only: bool = "ReadOnly",
        /// The least size, bytes.
        required_bytes: i64 = "RequiredBytes",
        /// The greatest; 0 for none.
        limit_bytes: i64 = "LimitBytes",
        /// With what it is mounted.
        mount_options: Option<CsiMountOptions> = "MountOptions",
        /// Opaque.
        secrets: Secrets = "Secrets",
    }
    /// The size that it has on the node.
    NodeExpandVolumeResponse {
        capacity_bytes: i64 = "CapacityBytes",
        /// At how many places it was made larger: at none where it is not mounted yet.
        places: u64 = "Places",
    }
}
