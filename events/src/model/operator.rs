//! Settings and health of the servers.

use crate::gojson::{DurationText, GoTime};

crate::wire! {
    /// Settings of the servers' own care.
    pub struct AutopilotConfiguration {
        last_contact_threshold: DurationText = "LastContactThreshold",
        server_stabilization_time: DurationText = "ServerStabilizationTime",
        cleanup_dead_servers: bool = "CleanupDeadServers",
        max_trailing_logs: u64 = "MaxTrailingLogs",
        min_quorum: u64 = "MinQuorum",
        enable_redundancy_zones: bool = "EnableRedundancyZones",
        disable_upgrade_migration: bool = "DisableUpgradeMigration",
        enable_custom_upgrades: bool = "EnableCustomUpgrades",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// How a server is doing, as autopilot judges it.
    pub struct ServerHealth {
        last_contact: DurationText = "LastContact",
        id: String = "ID",
        name: String = "Name",
        address: String = "Address",
        serf_status: String = "SerfStatus",
        version: String = "Version",
        leader: bool = "Leader",
        last_term: u64 = "LastTerm",
        last_index: u64 = "LastIndex",
        healthy: bool = "Healthy",
        voter: bool = "Voter",
        stable_since: GoTime = "StableSince",
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
