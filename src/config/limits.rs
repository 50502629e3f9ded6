//! What callers may take: connections, requests, bytes.

use super::kinds::{SECOND, seconds, set, size};
use super::settings::settings;
use serde_json::{Value, json};
use std::time::Duration;

/// Connections of one address, not of this machine, that are held at once, if nothing else is
/// configured.
pub const PER_CLIENT: u32 = 100;
/// Bytes of bodies of known callers that are held at once, if nothing else is configured.
pub const BODIES: usize = 256 << 20;

settings! {
/// Limits on connections.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// How long a TLS handshake of the API may take.
    pub https_handshake_timeout: Duration = 5 * SECOND
        => set shown "HTTPSHandshakeTimeout" by seconds,
    /// Connections of one address to the API; 0 for no limit.
    /// Absent: [`PER_CLIENT`], but any number from this machine.
    pub http_max_conns_per_client: Option<u32>
        => set shown "HTTPMaxConnsPerClient" by per_client,
    /// How long an internal handshake may take.
    pub rpc_handshake_timeout: Duration = 5 * SECOND
        => set shown "RPCHandshakeTimeout" by seconds,
    /// Internal connections of one address; 0 for no limit.
    /// Absent: [`PER_CLIENT`], but any number from this machine.
    pub rpc_max_conns_per_client: Option<u32>
        => set shown "RPCMaxConnsPerClient" by per_client,
    /// Requests a second to the API of one caller (a token, a certificate, else an address); 0 for
    /// no limit. Not Nomad's, as are all below.
    pub http_max_requests_per_identity: u32 => set shown "HTTPMaxRequestsPerIdentity",
    /// Requests a second to the API from one address.
    pub http_max_requests_per_address: u32 => set shown "HTTPMaxRequestsPerAddress",
    /// Requests a second to the API about one namespace.
    pub http_max_requests_per_namespace: u32 => set shown "HTTPMaxRequestsPerNamespace",
    /// Calls a second of one client or token.
    pub rpc_max_requests_per_identity: u32 => set shown "RPCMaxRequestsPerIdentity",
    /// Calls a second from one address.
    pub rpc_max_requests_per_address: u32 => set shown "RPCMaxRequestsPerAddress",
    /// So long a time's requests may come at once.
    pub request_burst: Duration = 5 * SECOND => set shown "RequestBurst" by seconds,
    /// Bytes of bodies, of the API and of calls together, that are held at once; a quarter of it
    /// for one address.
    pub max_body_bytes_in_flight: u64 = BODIES as u64 => size shown "MaxBodyBytesInFlight",
}
}

/// Shows what is in force for callers from elsewhere.
fn per_client(configured: &Option<u32>) -> Value {
    json!(configured.unwrap_or(PER_CLIENT))
}
