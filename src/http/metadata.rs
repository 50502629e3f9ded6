//! A node's metadata: what its configuration says, and what was set while it runs.

use std::sync::Arc;

use super::answer::Answer;
use super::gate::Write;
use super::target::target;
use crate::client::agent::Client;
use crate::client::metadata::MetadataRequest;
use crate::error::ApiError;

fn client(write: &Write, node: &str) -> Result<Arc<Client>, ApiError> {
    target(&write.api, node, "")?.here()?;
    let none = || ApiError::bad_request("No local Node and node_id not provided");
    write.api.server.client().ok_or_else(none)
}

/// `GET /v1/client/metadata`.
pub(super) async fn read(write: Write) -> Result<Answer, ApiError> {
    let client = client(&write, write.request.query.text("node_id"))?;
    Answer::json(&client.metadata())
}

/// `POST /v1/client/metadata`: the node is named in the query or in the body.
pub(super) async fn apply(write: Write) -> Result<Answer, ApiError> {
    let body: MetadataRequest = write.json().await?;
    let node = match write.request.query.text("node_id") {
        "" => body.node_id.as_str(),
        node => node,
    };
    let client = client(&write, node)?;
    Answer::json(&client.apply_metadata(body.meta).await?)
}
