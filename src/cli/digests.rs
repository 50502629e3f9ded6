//! Which tables an agent holds, at one index, as it answers.

use super::client::Client;
use anyhow::Result;
use serde::Deserialize;

/// The tables, as of an index.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct TableDigests {
    /// The index that is applied.
    pub(super) index: u64,
    /// The tables.
    pub(super) tables: Vec<HeldTable>,
}

/// A table.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct HeldTable {
    /// Its number.
    pub(super) table: u16,
    /// Its name.
    pub(super) name: String,
    /// The digest over its rows, in hexadecimal digits.
    pub(super) digest: String,
}

/// Queries the digests of the tables that an agent holds.
pub(super) async fn held(client: &Client) -> Result<TableDigests> {
    client.fetch("/v1/operator/digests", &[]).await
}
