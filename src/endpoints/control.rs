//! Streams: those that clients hold open, the sessions they take up, requests that are forwarded.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::ClientEndpoints;
use crate::error::Refusal;
use crate::net::Peer;
use crate::net::tls::Role;
use crate::rpc::duplex::{Duplex, relay};
use crate::rpc::forward::ForwardRequest;
use crate::rpc::service::Call;
use crate::rpc::sessions::{ControlRequest, SessionRequest};

/// `Node.Control`: the node is reached by this stream from now on.
pub(super) async fn control(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: ControlRequest,
    stream: Duplex,
) -> Result<(), Refusal> {
    endpoints.authorize_node(&call, &requested.node_id).await?;
    let sessions = &endpoints.server.sessions;
    sessions.hold_until(&requested.node_id, stream, call.parting);
    Ok(())
}

/// `Node.Session`: a node takes up what it was dialled for.
pub(super) async fn session(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: SessionRequest,
    stream: Duplex,
) -> Result<(), Refusal> {
    endpoints.authorize_node(&call, &requested.node_id).await?;
    endpoints.server.sessions.join(&requested, stream)
}

/// `Node.Dial`: another server wants a session to a node that holds on to this one. It has it from
/// end to end: this server does not look at what is sent in it.
pub(super) async fn dial(
    endpoints: Arc<ClientEndpoints>,
    _call: Call,
    requested: ControlRequest,
    stream: Duplex,
) -> Result<(), Refusal> {
    // Only here: the caller calls all the others too.
    let there = endpoints
        .server
        .sessions
        .dial_here(&requested.node_id)
        .await?;
    tokio::spawn(relay(stream, there));
    Ok(())
}

/// `Server.Forward`: a request of the HTTP API that came to another agent.
pub(super) async fn forward(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    requested: ForwardRequest,
    stream: Duplex,
) -> Result<(), Refusal> {
    let address = requested.address.parse::<SocketAddr>();
    let mut peer = Peer::default();
    if endpoints.is_server(&call) {
        let unreadable = |_| Refusal::bad_request("Address is no ip:port");
        // Over a socket of its machine's, there is none.
        if !requested.address.is_empty() {
            peer.address = Some(address.map_err(unreadable)?);
        }
    } else {
        endpoints.authorize_node(&call, &call.node).await?;
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        peer.address = Some(SocketAddr::new(call.addr.parse().unwrap_or(unknown), 0));
        // Over a socket of its machine's, there is none.
        let first = address.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
        peer.behind = Some(first);
    }
    tokio::spawn(endpoints.web()?.answer(peer, stream));
    Ok(())
}

impl ClientEndpoints {
    /// Whether another server calls, which its certificate says.
    pub(super) fn is_server(&self, call: &Call) -> bool {
        let region = &self.server.config.region;
        let shown = call.certificate.as_ref();
        shown.is_some_and(|shown| shown.is(Role::Server, region))
    }
}
