//! Nodes: machines that run allocations.

use crate::gojson::{List, Map, Time};
use crate::model::{CsiInfo, NodeReservedResources, NodeResources};

crate::wire! { custom:
    /// A machine that runs allocations.
    pub struct Node {
        attributes: Map<String> = "Attributes",
        csi_controller_plugins: Map<CsiInfo> = "CSIControllerPlugins",
        csi_node_plugins: Map<CsiInfo> = "CSINodePlugins",
        cgroup_parent: String = "CgroupParent",
        computed_class: String = "ComputedClass",
        create_index: u64 = "CreateIndex",
        datacenter: String = "Datacenter",
        drain_strategy: Option<DrainStrategy> = "DrainStrategy",
        drivers: Map<DriverInfo> = "Drivers",
        events: List<NodeEvent> = "Events",
        gc_volumes_on_node_gc: bool = "GCVolumesOnNodeGC",
        http_addr: String = "HTTPAddr",
        host_networks: Map<ClientHostNetworkConfig> = "HostNetworks",
        host_volumes: Map<ClientHostVolumeConfig> = "HostVolumes",
        id: String = "ID",
        identity_signing_key_id: String = "IdentitySigningKeyID",
        last_alloc_update_index: u64 = "LastAllocUpdateIndex",
        last_drain: Option<DrainMetadata> = "LastDrain",
        last_missed_heartbeat_index: u64 = "LastMissedHeartbeatIndex",
        links: Map<String> = "Links",
        meta: Map<String> = "Meta" (Configured),
        modify_index: u64 = "ModifyIndex",
        name: String = "Name",
        node_class: String = "NodeClass",
        node_max_allocs: i64 = "NodeMaxAllocs",
        node_pool: String = "NodePool",
        node_resources: Option<NodeResources> = "NodeResources",
        reserved_resources: Option<NodeReservedResources> = "ReservedResources",
        scheduling_eligibility: String = "SchedulingEligibility",
        secret_id: String = "SecretID" (Secret),
        status: String = "Status",
        status_description: String = "StatusDescription",
        status_updated_at: i64 = "StatusUpdatedAt",
        tls_enabled: bool = "TLSEnabled",
    }
}

crate::wire! {
    /// A driver as found on a node.
    pub struct DriverInfo {
        attributes: Map<String> = "Attributes",
        detected: bool = "Detected",
        healthy: bool = "Healthy",
        health_description: String = "HealthDescription",
        update_time: Time = "UpdateTime",
    }
}

crate::wire! {
    /// Something that happened to a node.
    pub struct NodeEvent {
        message: String = "Message",
        subsystem: String = "Subsystem",
        details: Map<String> = "Details",
        timestamp: Time = "Timestamp",
        create_index: u64 = "CreateIndex",
    }
}

crate::wire! {
    /// A drain in progress.
    pub struct DrainStrategy {
        deadline: i64 = "Deadline",
        ignore_system_jobs: bool = "IgnoreSystemJobs",
        force_deadline: Time = "ForceDeadline",
        started_at: Time = "StartedAt",
    }
}

crate::wire! {
    /// How a drain was requested; the deadline in nanoseconds.
    pub struct DrainSpec {
        deadline: i64 = "Deadline",
        ignore_system_jobs: bool = "IgnoreSystemJobs",
    }
}

crate::wire! {
    /// The last drain of a node.
    pub struct DrainMetadata {
        started_at: Time = "StartedAt",
        updated_at: Time = "UpdatedAt",
        status: String = "Status",
        accessor_id: String = "AccessorID",
        meta: Map<String> = "Meta" (Configured),
    }
}

crate::wire! {
    /// A host volume of a node.
    pub struct ClientHostVolumeConfig {
        name: String = "Name",
        path: String = "Path",
        read_only: bool = "ReadOnly",
        id: String = "ID",
    }
}

crate::wire! {
    /// A host network of a node.
    pub struct ClientHostNetworkConfig {
        name: String = "Name",
        cidr: String = "CIDR",
        interface: String = "Interface",
        reserved_ports: String = "ReservedPorts",
    }
}
