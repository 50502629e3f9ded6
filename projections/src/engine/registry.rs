//! The tables of a database, each known by its number: what is done with one whose type is not
//! known. The code that makes the database names its tables.

use std::sync::Arc;

use drover_events::mask::{Hidden, Redact};
use serde_json::Value;

use crate::engine::error::StorageError;
use crate::engine::generations::CacheBudget;
use crate::engine::key::Key;
use crate::engine::layer::{AnyLayer, Layer};
use crate::engine::row;
use crate::engine::table::{History, SkipKey, Table};

/// A table as the registry knows it.
#[derive(Clone, Copy)]
pub struct TableInfo {
    id: u16,
    name: &'static str,
    history: History,
    indexes: fn() -> Vec<(u8, &'static str)>,
    group: fn(u8) -> Option<SkipKey>,
    layer: fn(&Arc<CacheBudget>) -> Box<dyn AnyLayer>,
    words: fn(&[u8]) -> Result<Vec<String>, StorageError>,
    json: Json,
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
            group: |no| {
                let index = T::INDEXES.iter().find(|index| index.no == no);
                index.map(|index| index.skip_group)
            },
            layer: Layer::<T>::boxed,
            words: |key| {
                let key = T::Key::from_bytes(key).map_err(|_| StorageError::damaged("key", key))?;
                let mut words = Vec::new();
                key.words(&mut words);
                Ok(words)
            },
            json: |key, body, redact| {
                let row = row::decode_body::<T>(key, body)?;
                let shown = match redact {
                    Some(redact) => serde_json::to_value(Hidden::new(&row, redact)),
                    None => serde_json::to_value(row),
                };
                shown.map_err(|_| StorageError::damaged("row", key))
            },
        }
    }

    /// Its `Table::ID`.
    pub fn id(&self) -> u16 {
        self.id
    }

    #[allow(missing_docs, reason = "the name says it")]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the past is kept.
    pub fn history(&self) -> History {
        self.history
    }

    /// The components of an encoded key as texts.
    pub fn words(&self, key: &[u8]) -> Result<Vec<String>, StorageError> {
        (self.words)(key)
    }

    /// A row with this encoded key, from its canonical bytes, as JSON with the names of the model;
    /// its confidential values as `redact` shows them, where it is given.
    pub(crate) fn json(
        &self,
        key: &[u8],
        body: &[u8],
        redact: Option<&dyn Redact>,
    ) -> Result<Value, StorageError> {
        (self.json)(key, body, redact)
    }

    /// What passes over a group of an index, by the index's number.
    pub(crate) fn skip_group(&self, no: u8) -> Option<SkipKey> {
        (self.group)(no)
    }

    /// Numbers and names of the indexes.
    pub fn indexes(&self) -> Vec<(u8, &'static str)> {
        (self.indexes)()
    }
}

/// A row as JSON: its encoded key, its canonical bytes, and what hides its confidential values.
type Json = fn(&[u8], &[u8], Option<&dyn Redact>) -> Result<Value, StorageError>;

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

    /// The table with this name.
    pub fn named(&self, name: &str) -> Option<&'static TableInfo> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The tables' overlays, which share a bound of what they keep.
    pub(crate) fn layers(&self, kept: &Arc<CacheBudget>) -> Vec<Option<Box<dyn AnyLayer>>> {
        let mut layers = Vec::new();
        for table in self.tables {
            layers.resize_with(usize::from(table.id) + 1, || None);
            layers[usize::from(table.id)] = Some((table.layer)(kept));
        }
        layers
    }
}
