//! CSI plugins.

use crate::gojson::{Any, List, Map, Time};
use crate::model::{AllocListStub, CsiTopology};

crate::wire! {
    /// A CSI plugin as found on nodes.
    pub struct CsiPlugin {
        id: String = "ID",
        provider: String = "Provider",
        version: String = "Version",
        controller_required: bool = "ControllerRequired",
        controllers: Map<CsiInfo> = "Controllers",
        nodes: Map<CsiInfo> = "Nodes",
        allocations: List<AllocListStub> = "Allocations",
        controller_jobs: Map<Map<Any>> = "ControllerJobs",
        node_jobs: Map<Map<Any>> = "NodeJobs",
        controllers_healthy: i64 = "ControllersHealthy",
        controllers_expected: i64 = "ControllersExpected",
        nodes_healthy: i64 = "NodesHealthy",
        nodes_expected: i64 = "NodesExpected",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// What lists of plugins show.
    pub struct CsiPluginListStub {
        id: String = "ID",
        provider: String = "Provider",
        version: String = "Version",
        controller_required: bool = "ControllerRequired",
        controllers_healthy: i64 = "ControllersHealthy",
        controllers_expected: i64 = "ControllersExpected",
        nodes_healthy: i64 = "NodesHealthy",
        nodes_expected: i64 = "NodesExpected",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// A plugin on one node.
    pub struct CsiInfo {
        plugin_id: String = "PluginID",
        alloc_id: String = "AllocID",
        healthy: bool = "Healthy",
        health_description: String = "HealthDescription",
        update_time: Time = "UpdateTime",
        provider: String = "Provider",
        provider_version: String = "ProviderVersion",
        requires_controller_plugin: bool = "RequiresControllerPlugin",
        requires_topologies: bool = "RequiresTopologies",
        controller_info: Option<CsiControllerInfo> = "ControllerInfo",
        node_info: Option<CsiNodeInfo> = "NodeInfo",
    }
}

crate::wire! {
    /// What a plugin can do on a node.
    pub struct CsiNodeInfo {
        id: String = "ID",
        max_volumes: i64 = "MaxVolumes",
        accessible_topology: Option<CsiTopology> = "AccessibleTopology",
        requires_node_stage_volume: bool = "RequiresNodeStageVolume",
        supports_stats: bool = "SupportsStats",
        supports_expand: bool = "SupportsExpand",
        supports_condition: bool = "SupportsCondition",
    }
}

crate::wire! {
    /// What a plugin's controller can do.
    pub struct CsiControllerInfo {
        supports_create_delete: bool = "SupportsCreateDelete",
        supports_attach_detach: bool = "SupportsAttachDetach",
        supports_list_volumes: bool = "SupportsListVolumes",
        supports_get_capacity: bool = "SupportsGetCapacity",
        supports_create_delete_snapshot: bool = "SupportsCreateDeleteSnapshot",
        supports_list_snapshots: bool = "SupportsListSnapshots",
        supports_clone: bool = "SupportsClone",
        supports_read_only_attach: bool = "SupportsReadOnlyAttach",
        supports_expand: bool = "SupportsExpand",
        supports_list_volumes_attached_nodes: bool = "SupportsListVolumesAttachedNodes",
        supports_condition: bool = "SupportsCondition",
        supports_get: bool = "SupportsGet",
    }
}
