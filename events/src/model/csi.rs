//! CSI volumes.

use crate::gojson::{List, Map, Time};
use crate::model::Allocation;

/// Which CSI volume: its namespace and its id.
pub type CsiVolumeKey = (String, String);

crate::wire! {
    /// A CSI volume: how it was registered, what its plugin says of it, and who uses it.
    pub struct CsiVolume {
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        capacity: i64 = "Capacity",
        clone_id: String = "CloneID",
        context: Map<String> = "Context" (Sensitive),
        controller_required: bool = "ControllerRequired",
        controllers_expected: i64 = "ControllersExpected",
        controllers_healthy: i64 = "ControllersHealthy",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        external_id: String = "ExternalID",
        id: String = "ID",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
        mount_options: Option<CsiMountOptions> = "MountOptions",
        name: String = "Name",
        namespace: String = "Namespace",
        nodes_expected: i64 = "NodesExpected",
        nodes_healthy: i64 = "NodesHealthy",
        parameters: Map<String> = "Parameters" (Sensitive),
        plugin_id: String = "PluginID",
        provider: String = "Provider",
        provider_version: String = "ProviderVersion",
        read_allocs: Map<Option<Allocation>> = "ReadAllocs",
        requested_capabilities: List<CsiVolumeCapability> = "RequestedCapabilities",
        requested_capacity_max: i64 = "RequestedCapacityMax",
        requested_capacity_min: i64 = "RequestedCapacityMin",
        requested_topologies: Option<CsiTopologyRequest> = "RequestedTopologies",
        resource_exhausted: Time = "ResourceExhausted",
        schedulable: bool = "Schedulable",
        secrets: Map<String> = "Secrets" (Secret),
        snapshot_id: String = "SnapshotID",
        topologies: List<CsiTopology> = "Topologies",
        write_allocs: Map<Option<Allocation>> = "WriteAllocs",
    }
}

crate::wire! {
    /// What lists of CSI volumes show.
    pub struct CsiVolListStub {
        id: String = "ID",
        namespace: String = "Namespace",
        name: String = "Name",
        external_id: String = "ExternalID",
        topologies: List<CsiTopology> = "Topologies",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        current_readers: i64 = "CurrentReaders",
        current_writers: i64 = "CurrentWriters",
        schedulable: bool = "Schedulable",
        plugin_id: String = "PluginID",
        provider: String = "Provider",
        provider_version: String = "ProviderVersion",
        controller_required: bool = "ControllerRequired",
        controllers_healthy: i64 = "ControllersHealthy",
        controllers_expected: i64 = "ControllersExpected",
        nodes_healthy: i64 = "NodesHealthy",
        nodes_expected: i64 = "NodesExpected",
        resource_exhausted: Time = "ResourceExhausted",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// How a volume is mounted.
    pub struct CsiMountOptions = "mount_options" {
        fs_type: String = "FSType" [hcl()],
        mount_flags: List<String> = "MountFlags" (Sensitive) [hcl()],
    }
}

crate::wire! {
    /// A way a volume can be used.
    pub struct CsiVolumeCapability {
        attachment_mode: String = "AttachmentMode",
        access_mode: String = "AccessMode",
    }
}

crate::wire! {
    /// Where a volume must or should be.
    pub struct CsiTopologyRequest {
        required: List<CsiTopology> = "Required",
        preferred: List<CsiTopology> = "Preferred",
    }
}

crate::wire! {
    /// Where a volume is.
    pub struct CsiTopology {
        segments: Map<String> = "Segments",
    }
}

crate::wire! {
    /// A volume as its provider shows it.
    pub struct CsiVolumeExternalStub {
        external_id: String = "ExternalID",
        capacity_bytes: i64 = "CapacityBytes",
        volume_context: Map<String> = "VolumeContext" (Sensitive),
        clone_id: String = "CloneID",
        snapshot_id: String = "SnapshotID",
        published_external_node_ids: List<String> = "PublishedExternalNodeIDs",
        is_abnormal: bool = "IsAbnormal",
        status: String = "Status",
    }
}

crate::wire! {
    /// A snapshot of a volume.
    pub struct CsiSnapshot {
        id: String = "ID",
        external_source_volume_id: String = "ExternalSourceVolumeID",
        size_bytes: i64 = "SizeBytes",
        create_time: i64 = "CreateTime",
        is_ready: bool = "IsReady",
        source_volume_id: String = "SourceVolumeID",
        plugin_id: String = "PluginID",
        name: String = "Name",
        secrets: Map<String> = "Secrets" (Secret),
        parameters: Map<String> = "Parameters" (Sensitive),
    }
}
