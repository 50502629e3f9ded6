//! Who is at the other end of a connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::tls::PeerCertificate;

/// The other end of a connection, as the connection itself shows it. It is put beside every request
/// by the accept loop; headers of a request change nothing in it.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address; none over a socket of this machine's.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed and that was verified.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// From where, as a client's agent at that address says, the request came to it. It may say
    /// anything: it only distinguishes those who come through that agent, and identifies no caller.
    pub behind: Option<IpAddr>,
}

impl Peer {
    /// The address that its connections are counted by.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.address.map_or(own, |address| address.ip())
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("a socket of this machine"),
        }
    }
}
