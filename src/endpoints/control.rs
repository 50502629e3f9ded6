//! Streams that clients hold open, and the sessions they take up.

use std::sync::Arc;

use super::Clients;
use crate::error::ApiError;
use crate::rpc::duplex::Duplex;
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
