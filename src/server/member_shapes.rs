//! Bodies of answers about the servers that the model does not have.

use drover_events::gojson::{List, Map};
use drover_events::model::RaftServer;

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
