//! What callers may take: connections, requests, bytes.

use super::read::Reader;
use super::size::read_size;
use crate::net::BODIES;
#[cfg(doc)]
use crate::net::PER_CLIENT;
use std::time::Duration;

/// Limits on connections.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// How long a TLS handshake of the API may take.
    pub https_handshake_timeout: Duration,
    /// Connections of one address to the API; 0 for no limit.
    /// Absent: [`PER_CLIENT`], but any number from this machine.
    pub http_max_conns_per_client: Option<u32>,
    /// How long an internal handshake may take.
    pub rpc_handshake_timeout: Duration,
    /// Internal connections of one address; 0 for no limit.
    /// Absent: [`PER_CLIENT`], but any number from this machine.
    pub rpc_max_conns_per_client: Option<u32>,
    /// Requests a second to the API of one who asks (a token, a certificate, else an address); 0
    /// for no limit. Not Nomad's, as are all below.
    pub http_max_requests_per_identity: u32,
    /// Requests a second to the API from one address.
    pub http_max_requests_per_address: u32,
    /// Requests a second to the API about one namespace.
    pub http_max_requests_per_namespace: u32,
    /// Calls a second of one client or token.
    pub rpc_max_requests_per_identity: u32,
    /// Calls a second from one address.
    pub rpc_max_requests_per_address: u32,
    /// So long a time's requests may come at once.
    pub request_burst: Duration,
    /// Bytes of bodies, of the API and of calls together, that are held at once; a quarter of it
    /// for one address.
    pub max_body_bytes_in_flight: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            https_handshake_timeout: Duration::from_secs(5),
            http_max_conns_per_client: None,
            rpc_handshake_timeout: Duration::from_secs(5),
            rpc_max_conns_per_client: None,
            http_max_requests_per_identity: 0,
            http_max_requests_per_address: 0,
            http_max_requests_per_namespace: 0,
            rpc_max_requests_per_identity: 0,
            rpc_max_requests_per_address: 0,
            request_burst: Duration::from_secs(5),
            max_body_bytes_in_flight: BODIES as u64,
        }
    }
}

impl LimitsConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("https_handshake_timeout", &mut self.https_handshake_timeout);
        r.set(
            "http_max_conns_per_client",
            &mut self.http_max_conns_per_client,
        );
        r.set("rpc_handshake_timeout", &mut self.rpc_handshake_timeout);
        r.set(
            "rpc_max_conns_per_client",
            &mut self.rpc_max_conns_per_client,
        );
        let requests = [
            (
                "http_max_requests_per_identity",
                &mut self.http_max_requests_per_identity,
            ),
            (
                "http_max_requests_per_address",
                &mut self.http_max_requests_per_address,
            ),
            (
                "http_max_requests_per_namespace",
                &mut self.http_max_requests_per_namespace,
            ),
            (
                "rpc_max_requests_per_identity",
                &mut self.rpc_max_requests_per_identity,
            ),
            (
                "rpc_max_requests_per_address",
                &mut self.rpc_max_requests_per_address,
            ),
        ];
        for (name, number) in requests {
            r.set(name, number);
        }
        r.set("request_burst", &mut self.request_burst);
        read_size(
            r,
            "max_body_bytes_in_flight",
            &mut self.max_body_bytes_in_flight,
        );
    }
}
