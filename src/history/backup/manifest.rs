//! What a backup says of itself.
//!
//! A backup is a tar: `head` and `state/` (the state at its index), `log/` (sealed segments up to
//! it), `base/` (where the log no longer reaches back to its beginning: the state it continues
//! from), `keystore/` (root keys, wrapped as they were on the server), `checkpoints` and their
//! keys, `manifest.json`, `SHA256SUMS` over all of these, and, where a key was at hand,
//! `SHA256SUMS.sig`: a note over the sums. Unpacked, it is what `drover log verify -data-dir`
//! takes.

use serde::{Deserialize, Serialize};

use super::tar::Part;

/// The layout now written.
pub const FORMAT: u32 = 1;
pub const MANIFEST: &str = "manifest.json";
pub const SUMS: &str = "SHA256SUMS";
/// The name of the note over the sums.
pub const SIGNATURE: &str = "SHA256SUMS.sig";

/// The manifest of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Manifest {
    /// The layout.
    pub format: u32,
    /// When it was made, RFC 3339.
    pub created: String,
    /// The version of drover that made it.
    pub version: String,
    /// The log's epoch.
    pub epoch: String,
    /// That epoch's first index.
    pub epoch_first: u64,
    /// The index of the state.
    pub index: u64,
    /// Raft's term there.
    pub term: u64,
    /// The time of the last event, RFC 3339.
    pub time: String,
    /// Leaves of the log's tree.
    pub tree_size: u64,
    /// The tree's root, in hexadecimal.
    pub tree_root: String,
    /// One digest for those of all tables, in hexadecimal.
    pub state: String,
    /// The first index that can be restored to: the base's, or the log's first.
    pub first: u64,
    /// The root keys in it.
    pub keys: Vec<String>,
    pub tables: Vec<BackupTable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BackupTable {
    pub name: String,
    pub rows: u64,
    /// The digest, in hexadecimal.
    pub digest: String,
}

/// The sums as `sha256sum` writes them: hash, two blanks, name.
pub fn sums(parts: &[Part]) -> String {
    let line = |part: &Part| format!("{}  {}\n", hex::encode(part.sha256), part.name);
    parts.iter().map(line).collect()
}

/// What is signed: that a log's owner made these sums.
pub fn statement(origin: &str, sums: &[u8; 32]) -> String {
    format!("{origin}\nbackup\n{}\n", hex::encode(sums))
}
