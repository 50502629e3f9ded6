//! The tables: one file each, with prefix, key, row and secondary indexes.
//!
//! Numbers are for ever; a retired table keeps its line here. A table file never knows an event: it
//! says what its rows are, how they are found, and how they appear on the stream. Rows that follow
//! from others are `derived`: they are in snapshots and digests, only without history.

pub mod node_use;
pub mod table_indexes;

use crate::layer::{AnyLayer, Layer};
use crate::table::{History, Table};

/// A table as the registry knows it.
#[derive(Clone, Copy)]
pub struct TableInfo {
    id: u16,
    name: &'static str,
    history: History,
    indexes: fn() -> Vec<(u8, &'static str)>,
    layer: fn(usize) -> Box<dyn AnyLayer>,
}

impl TableInfo {
    /// The registry's line for a table.
    pub const fn of<T: Table>() -> Self {
        Self {
            id: T::ID,
            name: T::NAME,
            history: T::HISTORY,
            indexes: || {
                T::INDEXES
                    .iter()
                    .map(|index| (index.no, index.name))
                    .collect()
            },
            layer: Layer::<T>::boxed,
        }
    }

    /// The number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the past is kept.
    pub fn history(&self) -> History {
        self.history
    }

    /// Numbers and names of the indexes.
    pub fn indexes(&self) -> Vec<(u8, &'static str)> {
        (self.indexes)()
    }
}

/// All tables of a database.
pub struct Registry {
    tables: &'static [TableInfo],
}

impl Registry {
    pub(crate) const fn new(tables: &'static [TableInfo]) -> Self {
        Self { tables }
    }

    /// The tables, by number.
    pub fn tables(&self) -> impl Iterator<Item = &'static TableInfo> {
        self.tables.iter()
    }

    /// The table with this number.
    pub fn table(&self, id: u16) -> Option<&'static TableInfo> {
        self.tables.iter().find(|table| table.id == id)
    }

    pub(crate) fn layers(&self, kept_rows: usize) -> Vec<Option<Box<dyn AnyLayer>>> {
        let mut layers = Vec::new();
        for table in self.tables {
            layers.resize_with(usize::from(table.id) + 1, || None);
            layers[usize::from(table.id)] = Some((table.layer)(kept_rows));
        }
        layers
    }
}

static TABLES: Registry = Registry::new(&[
    TableInfo::of::<table_indexes::TableIndexes>(),
    TableInfo::of::<node_use::NodeUses>(),
]);

/// drover's tables.
pub fn registry() -> &'static Registry {
    &TABLES
}
