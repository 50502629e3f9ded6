//! Settings and health of the servers.

use crate::gojson::{DurationText, GoTime};

crate::wire! {
    /// Settings of the servers' own care; keys in JSON are sorted.
    pub struct AutopilotConfiguration {
        cleanup_dead_servers: bool = "CleanupDeadServers",
        create_index: u64 = "CreateIndex",
        disable_upgrade_migration: bool = "DisableUpgradeMigration",
        enable_custom_upgrades: bool = "EnableCustomUpgrades",
        enable_redundancy_zones: bool = "EnableRedundancyZones",
        last_contact_threshold: DurationText = "LastContactThreshold",
        max_trailing_logs: u64 = "MaxTrailingLogs",
        min_quorum: u64 = "MinQuorum",
        modify_index: u64 = "ModifyIndex",
        server_stabilization_time: DurationText = "ServerStabilizationTime",
    }
}

crate::wire! {
    /// The health of a server; keys in JSON are sorted.
    pub struct ServerHealth {
        address: String = "Address",
        healthy: bool = "Healthy",
        id: String = "ID",
        last_contact: DurationText = "LastContact",
        last_index: u64 = "LastIndex",
        last_term: u64 = "LastTerm",
        leader: bool = "Leader",
        name: String = "Name",
        serf_status: String = "SerfStatus",
        stable_since: GoTime = "StableSince",
        version: String = "Version",
        voter: bool = "Voter",
    }
}

crate::wire! {
    /// A member of the Raft group.
    pub struct RaftServer {
        id: String = "ID",
        node: String = "Node",
        address: String = "Address",
        leader: bool = "Leader",
        voter: bool = "Voter",
        raft_protocol: String = "RaftProtocol",
    }
}

crate::wire! {
    /// A Vault token given to a task.
    pub struct VaultAccessor {
        alloc_id: String = "AllocID",
        task: String = "Task",
        node_id: String = "NodeID",
        accessor: String = "Accessor",
        creation_ttl: i64 = "CreationTTL",
        create_index: u64 = "CreateIndex",
    }
}
