//! Bodies of answers about the servers, and about an agent, that the model does not have.

use std::collections::BTreeMap;

use drover_events::gojson::{List, Map};
use drover_events::model::RaftServer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

drover_events::wire! {
    /// A member of the gossip pool.
    pub struct ServerMember {
        name: String = "Name",
        addr: String = "Addr",
        port: u16 = "Port",
        tags: Map<String> = "Tags",
        status: String = "Status",
        protocol_min: u8 = "ProtocolMin",
        protocol_max: u8 = "ProtocolMax",
        protocol_cur: u8 = "ProtocolCur",
        delegate_min: u8 = "DelegateMin",
        delegate_max: u8 = "DelegateMax",
        delegate_cur: u8 = "DelegateCur",
    }
}

drover_events::wire! {
    /// The members of the gossip pool.
    pub struct ServerMembersResponse {
        server_name: String = "ServerName",
        server_region: String = "ServerRegion",
        server_dc: String = "ServerDC",
        members: List<ServerMember> = "Members",
    }
}

drover_events::wire! {
    /// The members of the Raft group.
    pub struct RaftConfigurationResponse {
        servers: List<RaftServer> = "Servers",
        index: u64 = "Index",
    }
}

/// What an agent says of itself; its names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentDescription {
    /// The configuration, secrets left out.
    pub config: Value,
    /// How the gossip pool would show it; null without a server.
    pub member: Option<ServerMember>,
    pub stats: AgentStats,
}

/// The figures of an agent, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStats {
    /// None where the agent runs no client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientStats>,
    /// None where it has no certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<CertificateStats>,
    /// All others, an object.
    #[serde(flatten)]
    pub more: Value,
}

/// The client of an agent: everything as text, as Nomad shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStats {
    pub node_id: String,
    pub known_servers: String,
    pub num_allocations: String,
    /// None of a client beside a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<String>,
    /// None of a client beside a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ttl: Option<String>,
}

/// The certificates of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStats {
    /// What to do where one ends soon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// When each ends, by its setting.
    #[serde(flatten)]
    pub expires: BTreeMap<String, Value>,
}
