//! What came of a rebuild or a verification, and what a database holds, as JSON: the same from a
//! server and from the tools on a data directory.

use std::path::Path;

use drover_migrations::schema::LATEST;
use drover_projections::{TableSize, View};
use serde_json::{Value, json};

use super::{Checked, RebuildError, Rebuilt, switch};
use crate::history::replay::StateAt;

fn digests(state: &StateAt) -> Value {
    let tables = state.digests.iter();
    tables
        .map(|table| (table.name.to_owned(), Value::from(table.digest.to_hex())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

impl Rebuilt {
    /// As operators' tools read it.
    pub fn to_json(&self) -> Value {
        json!({"Index": self.state.index, "From": self.from, "Entries": self.entries,
            "Seconds": self.took.as_secs_f64(), "Compared": self.compared,
            "OldUnread": self.old_unread, "Kept": self.kept,
            "CutOverMs": self.cut_over.map(|took| took.as_secs_f64() * 1e3),
            "Digests": digests(&self.state)})
    }
}

impl Checked {
    /// As operators' tools read it.
    pub fn to_json(&self) -> Value {
        let differences: Vec<Value> = self
            .differences
            .iter()
            .map(|d| json!({"Family": d.family, "Table": d.table, "Key": d.key, "What": d.what}))
            .collect();
        json!({"Verified": self.is_well(), "Index": self.state.index, "Entries": self.entries,
            "Damaged": self.damaged, "Different": self.different, "Differences": differences,
            "Tables": self.state.digests.len(), "Digests": digests(&self.state)})
    }
}

fn table(size: &TableSize) -> Value {
    json!({"Name": size.name, "ID": size.table, "Rows": size.rows, "Bytes": size.bytes,
        "Index": size.index, "Indexes": size.indexes, "Digest": size.digest.to_hex(),
        "History": format!("{:?}", size.history).to_lowercase()})
}

/// What a database holds: where it is at home and where it lies now, what a crash would leave and
/// its schema.
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
    let tables: Vec<Value> = sizes.iter().map(table).collect();
    let kept = switch::kept(home).map_err(RebuildError::file(home))?;
    let kept: Vec<Value> = kept
        .iter()
        .map(|(path, bytes)| json!({"Path": path, "Bytes": bytes}))
        .collect();
    Ok(
        json!({"Applied": position.index, "Flushed": flushed, "Schema": schema,
        "Known": LATEST.0, "Floor": position.floor, "Tables": tables, "SetAside": kept,
        "Building": switch::beside_serving(home, live).is_dir()}),
    )
}
