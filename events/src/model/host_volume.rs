//! Host volumes that the cluster manages.

use crate::gojson::{List, Map};
use crate::model::{AllocListStub, Constraint};

crate::wire! {
    /// A host volume that the cluster made or knows.
    pub struct HostVolume {
        namespace: String = "Namespace",
        id: String = "ID",
        name: String = "Name",
        plugin_id: String = "PluginID",
        node_pool: String = "NodePool",
        node_id: String = "NodeID",
        constraints: List<Constraint> = "Constraints",
        requested_capacity_min_bytes: i64 = "RequestedCapacityMinBytes",
        requested_capacity_max_bytes: i64 = "RequestedCapacityMaxBytes",
        capacity_bytes: i64 = "CapacityBytes",
        requested_capabilities: List<HostVolumeCapability> = "RequestedCapabilities",
        parameters: Map<String> = "Parameters" (Sensitive),
        host_path: String = "HostPath",
        state: String = "State",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
        allocations: List<AllocListStub> = "Allocations",
    }
}

crate::wire! {
    /// What lists of host volumes show.
    pub struct HostVolumeStub {
        namespace: String = "Namespace",
        id: String = "ID",
        name: String = "Name",
        plugin_id: String = "PluginID",
        node_pool: String = "NodePool",
        node_id: String = "NodeID",
        capacity_bytes: i64 = "CapacityBytes",
        state: String = "State",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// A way a host volume can be used.
    pub struct HostVolumeCapability {
        attachment_mode: String = "AttachmentMode",
        access_mode: String = "AccessMode",
    }
}

crate::wire! {
    /// A group's claim on a sticky host volume.
    pub struct TaskGroupHostVolumeClaim {
        id: String = "ID",
        namespace: String = "Namespace",
        job_id: String = "JobID",
        task_group_name: String = "TaskGroupName",
        alloc_id: String = "AllocID",
        volume_id: String = "VolumeID",
        volume_name: String = "VolumeName",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}
