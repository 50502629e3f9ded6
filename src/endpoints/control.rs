//! Streams: those that clients hold open, the sessions they take up, requests that are forwarded.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::Clients;
use crate::error::{ApiError, Code};
use crate::net::tls::Role;
use crate::rpc::duplex::Duplex;
use crate::rpc::forward::ForwardRequest;
use crate::rpc::service::Call;
use crate::rpc::sessions::{ControlRequest, SessionRequest};

/// `Node.Control`: the node is reached by this stream from now on.
pub(super) async fn control(
    clients: Arc<Clients>,
    call: Call,
    asked: ControlRequest,
    stream: Duplex,
) -> Result<(), ApiError> {
    clients.caller(&call, &asked.node_id).await?;
    clients.server.sessions.hold(&asked.node_id, stream);
    Ok(())
}

/// `Node.Session`: a node takes up what it was dialled for.
pub(super) async fn session(
    clients: Arc<Clients>,
    call: Call,
    asked: SessionRequest,
    stream: Duplex,
) -> Result<(), ApiError> {
    clients.caller(&call, &asked.node_id).await?;
    clients.server.sessions.join(&asked, stream)
}

/// `Server.Forward`: a request of the HTTP API that came to another agent.
pub(super) async fn forward(
    clients: Arc<Clients>,
    call: Call,
    asked: ForwardRequest,
    stream: Duplex,
) -> Result<(), ApiError> {
    let address = if clients.is_server(&call) {
        let unreadable = |_| ApiError::bad_request("Address is no ip:port");
        asked.address.parse().map_err(unreadable)?
    } else {
        clients.caller(&call, &call.node).await?;
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        SocketAddr::new(call.addr.parse().unwrap_or(unknown), 0)
    };
    let closed = || ApiError::new(Code::Unavailable, "the API of this server is not open");
    let web = clients.server.web.get().ok_or_else(closed)?;
    tokio::spawn(web.answer(address, stream));
    Ok(())
}

impl Clients {
    /// Whether another server calls, which its certificate says.
    pub(super) fn is_server(&self, call: &Call) -> bool {
        let region = &self.server.config.region;
        let shown = call.certificate.as_ref();
        shown.is_some_and(|shown| shown.is(Role::Server, region))
    }
}
