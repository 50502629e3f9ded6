//! Which tables an agent holds, at one index, as it answers.

use super::client::Client;
use crate::http::answers::DigestsResponse;
use anyhow::Result;

/// Queries the digests of the tables that an agent holds.
pub(super) async fn held(client: &Client) -> Result<DigestsResponse> {
    client.fetch("/v1/operator/digests", &[]).await
}
