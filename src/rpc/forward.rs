//! Whole requests, from an agent that does not answer them to a server that does.
//!
//! What is carried is a connection of the HTTP API: one request, its answer, whatever becomes of it
//! (a stream, a WebSocket). The token is the request's own; of who forwards it nothing counts for
//! it (AUTH-05). What a server says of the first address is believed; a client's own stands for all
//! that come through it.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::Streaming;
use super::duplex::{Duplex, Pace};

/// A connection for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForwardRequest {
    /// Where the request came from first, `ip:port`.
    #[serde(rename = "Address")]
    pub address: String,
}

/// `Server.Forward`.
pub struct ServerForward;

impl Streaming for ServerForward {
    const NAME: &'static str = "Server.Forward";
    const PACE: Pace = Pace::SESSION;
    const APART: bool = true;
    type Req = ForwardRequest;
}

/// The HTTP API, as it answers what was forwarded.
pub trait Web: Send + Sync {
    /// Answers what comes over the stream, as from this address.
    fn answer(&self, address: std::net::SocketAddr, stream: Duplex) -> BoxFuture<'static, ()>;
}
