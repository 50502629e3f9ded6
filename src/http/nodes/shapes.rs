//! Bodies of answers about nodes that the model does not have.

use drover_events::gojson::{List, Map};
use drover_events::model::{
    ClientHostVolumeConfig, DrainMetadata, DriverInfo, NodeReservedResources, NodeResources,
};

drover_events::wire! {
    /// What lists of nodes show.
    pub(crate) struct NodeListStub {
        address: String = "Address",
        id: String = "ID",
        attributes: Map<String> = "Attributes",
        datacenter: String = "Datacenter",
        name: String = "Name",
        node_pool: String = "NodePool",
        node_class: String = "NodeClass",
        version: String = "Version",
        drain: bool = "Drain",
        scheduling_eligibility: String = "SchedulingEligibility",
        status: String = "Status",
        status_description: String = "StatusDescription",
        drivers: Map<DriverInfo> = "Drivers",
        host_volumes: Map<ClientHostVolumeConfig> = "HostVolumes",
        node_resources: Option<NodeResources> = "NodeResources",
        reserved_resources: Option<NodeReservedResources> = "ReservedResources",
        last_drain: Option<DrainMetadata> = "LastDrain",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

drover_events::wire! {
    /// What came of a drain or a change of eligibility.
    pub(crate) struct NodeDrainUpdateResponse {
        node_modify_index: u64 = "NodeModifyIndex",
        eval_ids: List<String> = "EvalIDs",
        eval_create_index: u64 = "EvalCreateIndex",
        index: u64 = "Index",
    }
}

drover_events::wire! {
    /// What came of a change of a node.
    pub(in crate::http) struct NodeUpdateResponse {
        heartbeat_ttl: i64 = "HeartbeatTTL",
        eval_ids: List<String> = "EvalIDs",
        eval_create_index: u64 = "EvalCreateIndex",
        node_modify_index: u64 = "NodeModifyIndex",
        features: u64 = "Features",
        leader_rpc_addr: String = "LeaderRPCAddr",
        num_nodes: i32 = "NumNodes",
        servers: List<NodeServerInfo> = "Servers",
        scheduling_eligibility: String = "SchedulingEligibility",
        signed_identity: Option<String> = "SignedIdentity",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

drover_events::wire! {
    /// Where a server is reached.
    pub(in crate::http) struct NodeServerInfo {
        rpc_advertise_addr: String = "RPCAdvertiseAddr",
        datacenter: String = "Datacenter",
    }
}
