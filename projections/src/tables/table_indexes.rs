//! `table_index`: for every table, the index of the last event that changed it. The writer keeps
//! it; no apply function writes here. Reads take it from the view, without a lookup.

use serde::{Deserialize, Serialize};

use crate::engine::table::{History, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct TableIndexes;

/// The index of the last event that changed a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TableIndex {
    /// Its `Table::ID`.
    pub table: u16,
    /// The event's index.
    pub value: u64,
}

impl Table for TableIndexes {
    const ID: u16 = 1;
    const NAME: &'static str = "table_index";
    type Key = u16;
    type Row = TableIndex;
    const HISTORY: History = History::Derived;

    fn key(row: &TableIndex) -> u16 {
        row.table
    }
}
