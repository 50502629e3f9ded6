//! What came of a rebuild or a verification, and what a database holds, as JSON: the same from a
//! server and from the tools on a data directory.

use std::collections::BTreeMap;
use std::path::Path;

use drover_migrations::schema::LATEST;
use drover_projections::{EntryDifference, TableSize, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Checked, Compared, RebuildError, Rebuilt, switch};
use crate::history::replay::StateAt;

/// What came of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RebuildReport {
    /// The index that the new tables reach.
    pub index: u64,
    /// The first entry that was folded.
    pub from: u64,
    /// How many were.
    pub entries: u64,
    pub seconds: f64,
    pub compared: Vec<Compared>,
    /// Why the old database was not compared.
    pub old_unread: Option<String>,
    /// Where the old database is.
    pub kept: Option<String>,
    /// For how long a server applied nothing.
    pub cut_over_ms: Option<f64>,
    /// The digest of every table, by its name.
    pub digests: BTreeMap<String, String>,
}

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckReport {
    /// Whether nothing is wrong.
    pub verified: bool,
    pub index: u64,
    /// How many entries were folded.
    pub entries: u64,
    /// Tables whose rows do not give their digest.
    pub damaged: Vec<String>,
    /// Tables that are not what the log gives.
    pub different: Vec<String>,
    pub differences: Vec<ReportedDifference>,
    /// How many tables were compared.
    pub tables: usize,
    /// The digest of every table, by its name.
    pub digests: BTreeMap<String, String>,
}

/// An entry that is not what the log gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReportedDifference {
    pub family: String,
    pub table: Option<String>,
    pub key: String,
    pub what: String,
}

/// What a database holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DatabaseInfo {
    /// The index that is applied.
    pub applied: u64,
    /// The index that a crash would leave.
    pub flushed: u64,
    /// The version of the tables.
    pub schema: u32,
    /// The version that the answering program writes.
    pub known: u32,
    /// Where the past begins.
    pub floor: u64,
    pub tables: Vec<HeldTable>,
    #[serde(rename = "SetAside")]
    pub retired: Vec<RetiredDatabase>,
    /// Whether a rebuild was begun.
    pub building: bool,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HeldTable {
    pub name: String,
    /// The constant `Table::ID`.
    #[serde(rename = "ID")]
    pub id: u16,
    pub rows: u64,
    pub bytes: u64,
    /// The index of its last change.
    pub index: u64,
    /// How many indexes it has.
    pub indexes: usize,
    pub digest: String,
    /// How its past is kept.
    pub history: String,
}

/// A database that was retired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RetiredDatabase {
    pub path: String,
    pub bytes: u64,
}

fn digests(state: &StateAt) -> BTreeMap<String, String> {
    let tables = state.digests.iter();
    tables
        .map(|table| (table.name.to_owned(), table.digest.to_hex()))
        .collect()
}

impl Rebuilt {
    /// As operators' tools read it: a [`RebuildReport`].
    pub fn to_json(&self) -> Value {
        let kept = self.kept.as_ref();
        let report = RebuildReport {
            index: self.state.index,
            from: self.from,
            entries: self.entries,
            seconds: self.took.as_secs_f64(),
            compared: self.compared.clone(),
            old_unread: self.old_unread.clone(),
            kept: kept.map(|path| path.display().to_string()),
            cut_over_ms: self.cut_over.map(|took| took.as_secs_f64() * 1e3),
            digests: digests(&self.state),
        };
        serde_json::to_value(report).unwrap_or_default()
    }
}

impl From<&EntryDifference> for ReportedDifference {
    fn from(found: &EntryDifference) -> Self {
        Self {
            family: found.family.to_owned(),
            table: found.table.map(str::to_owned),
            key: found.key.clone(),
            what: found.what.to_owned(),
        }
    }
}

impl Checked {
    /// As operators' tools read it: a [`CheckReport`].
    pub fn to_json(&self) -> Value {
        let report = CheckReport {
            verified: self.is_well(),
            index: self.state.index,
            entries: self.entries,
            damaged: self.damaged.clone(),
            different: self.different.clone(),
            differences: self.differences.iter().map(Into::into).collect(),
            tables: self.state.digests.len(),
            digests: digests(&self.state),
        };
        serde_json::to_value(report).unwrap_or_default()
    }
}

fn table(size: &TableSize) -> HeldTable {
    HeldTable {
        name: size.name.to_owned(),
        id: size.table,
        rows: size.rows,
        bytes: size.bytes,
        index: size.index,
        indexes: size.indexes,
        digest: size.digest.to_hex(),
        history: format!("{:?}", size.history).to_lowercase(),
    }
}

/// What a database holds, a [`DatabaseInfo`]: where it is at home and where it lies now, what a
/// crash would leave and its schema.
///
/// # Errors
/// Those of the database and of the directory.
pub fn tables(
    view: &View,
    (home, live): (&Path, &Path),
    (flushed, schema): (u64, u32),
) -> Result<Value, RebuildError> {
    let position = view.position();
    let sizes = view.sizes()?;
    let kept = switch::kept(home).map_err(RebuildError::file(home))?;
    let retired = kept.iter().map(|(path, bytes)| RetiredDatabase {
        path: path.display().to_string(),
        bytes: *bytes,
    });
    let info = DatabaseInfo {
        applied: position.index,
        flushed,
        schema,
        known: LATEST.0,
        floor: position.floor,
        tables: sizes.iter().map(table).collect(),
        retired: retired.collect(),
        building: switch::beside_serving(home, live).is_dir(),
    };
    Ok(serde_json::to_value(info).unwrap_or_default())
}
