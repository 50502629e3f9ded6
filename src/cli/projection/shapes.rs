//! What is answered about tables, by an agent and by the tools on a data directory.

use crate::history::rebuild::Compared;
use serde::Deserialize;

/// What a database holds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct DatabaseInfo {
    /// The index that is applied.
    pub(super) applied: u64,
    /// The index that a crash would leave.
    pub(super) flushed: u64,
    /// The version of the tables.
    pub(super) schema: u32,
    /// The version that the answering program writes.
    pub(super) known: u32,
    /// Where the past begins.
    pub(super) floor: u64,
    /// Whether a rebuild was begun.
    pub(super) building: bool,
    pub(super) tables: Vec<HeldTable>,
    #[serde(rename = "SetAside")]
    pub(super) retired: Vec<RetiredDatabase>,
}

/// A table.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct HeldTable {
    pub(super) name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The index of its last change.
    pub(super) index: u64,
    /// How many indexes it has.
    pub(super) indexes: u64,
    /// How its past is kept.
    pub(super) history: String,
    pub(super) digest: String,
}

/// A database that is kept and no longer used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct RetiredDatabase {
    pub(super) path: String,
    pub(super) bytes: u64,
}

/// What came of a rebuild.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Rebuilt {
    /// The index that the new tables reach.
    pub(super) index: u64,
    /// The first entry that was folded.
    pub(super) from: u64,
    /// How many were.
    pub(super) entries: u64,
    pub(super) seconds: f64,
    pub(super) compared: Vec<Compared>,
    /// Why the old database was not compared.
    pub(super) old_unread: Option<String>,
    /// For how long a server applied nothing.
    pub(super) cut_over_ms: Option<f64>,
    /// Where the old database is.
    pub(super) kept: Option<String>,
}

/// The part of a rebuild's progress that decides the exit code.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct StageReached {
    /// What it does.
    pub(super) stage: String,
}

/// The part of a comparison's result that decides the exit code.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Verdict {
    /// Whether nothing is wrong.
    pub(super) verified: bool,
}

/// What came of a comparison.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Checked {
    /// Whether nothing is wrong.
    pub(super) verified: bool,
    pub(super) index: u64,
    /// How many entries were folded.
    pub(super) entries: u64,
    /// Tables whose rows do not give their digest.
    pub(super) damaged: Vec<String>,
    /// Tables that are not what the log gives.
    pub(super) different: Vec<String>,
    pub(super) differences: Vec<DigestDifference>,
    /// How many tables were compared.
    pub(super) tables: u64,
}

/// An entry that is not what the log gives.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct DigestDifference {
    pub(super) family: String,
    pub(super) table: Option<String>,
    pub(super) key: String,
    pub(super) what: String,
}

/// How many databases were removed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Discarded {
    pub(super) removed: u64,
}
