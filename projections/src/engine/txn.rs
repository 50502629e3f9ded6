//! The write transaction: what apply functions read and write.
//!
//! It reads through everything written before it in the batch, its own event's writes included
//! (EV-08). `put` and `delete` maintain indexes, history, changes, postings and digests; an apply
//! function never does. When an event is refused, everything it wrote is taken back (EV-20).

use std::sync::Arc;

use drover_events::{EventId, EventKind};

use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Key, KeyBuf};
use crate::engine::layer::{AnyLayer, Layer, RowKey};
use crate::engine::scan::Scan;
use crate::engine::staged::StagedOverlay;
use crate::engine::table::{Index, Table};

/// What an apply function knows about its event beyond the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctx {
    /// The event's index: CreateIndex and ModifyIndex of what it writes.
    pub index: u64,
    /// Raft's term.
    pub term: u64,
    /// The time stamped by the leader, Unix nanoseconds.
    pub time: i64,
    /// The event's id: the mark it leaves on nodes' use.
    pub id: EventId,
    /// The event's kind.
    pub kind: EventKind,
}

/// Layers by table number.
pub(crate) type Layers = Vec<Option<Box<dyn AnyLayer>>>;

/// A write transaction of one event.
pub struct Txn<'a> {
    pub(crate) below: StagedOverlay<'a>,
    pub(crate) layers: &'a mut Layers,
    pub(crate) touched: &'a mut Vec<(u16, RowKey)>,
    pub(crate) index: u64,
}

/// Rows of a query, shared with the transaction.
pub type Rows<'a, T> = Box<dyn Iterator<Item = Result<Arc<<T as Table>::Row>, StorageError>> + 'a>;

/// What queries read from: a view, or the transaction of the event being applied (EV-09). Write a
/// query once, over `&impl ReadRows`, and both sides use it.
pub trait ReadRows {
    /// The row with this key.
    fn row<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<Option<Arc<T::Row>>, StorageError>;
    /// The rows of a range of the table, in key order.
    fn rows<T: Table>(&self, scan: Scan) -> Rows<'_, T>;
    /// The rows of a range of an index, in the index's order.
    fn rows_by<I: Index>(&self, scan: Scan) -> Rows<'_, I::Table>;
    /// Whether a range of the table has a row.
    fn any<T: Table>(&self, scan: Scan) -> Result<bool, StorageError> {
        Ok(self.rows::<T>(scan).next().transpose()?.is_some())
    }
    /// Whether a range of an index has an entry.
    fn any_by<I: Index>(&self, scan: Scan) -> Result<bool, StorageError> {
        Ok(self.rows_by::<I>(scan).next().transpose()?.is_some())
    }
}

impl Txn<'_> {
    fn layer<T: Table>(&self) -> &Layer<T> {
        self.layers
            .get(usize::from(T::ID))
            .and_then(Option::as_ref)
            .and_then(|layer| layer.any().downcast_ref())
            .expect("every table is registered under its own number")
    }

    fn layer_mut<T: Table>(&mut self) -> &mut Layer<T> {
        self.layers
            .get_mut(usize::from(T::ID))
            .and_then(Option::as_mut)
            .and_then(|layer| layer.any_mut().downcast_mut())
            .expect("every table is registered under its own number")
    }

    /// The index of the event being applied.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The row with this key, this event's writes included.
    pub fn get<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Option<Arc<T::Row>>, StorageError> {
        let key = encoded::<T>(key);
        let read = self.layer::<T>().read(self.below, &key)?;
        Ok(read.map(|stored| Arc::clone(&stored.row)))
    }

    /// Whether there is a row with this key.
    pub fn exists<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<bool, StorageError> {
        Ok(self.get::<T>(key)?.is_some())
    }

    /// The index of the event that last wrote the row: what a `RowAt` guard compares.
    pub fn modified<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<Option<u64>, StorageError> {
        let key = encoded::<T>(key);
        let read = self.layer::<T>().read(self.below, &key)?;
        Ok(read.map(|stored| stored.modified))
    }

    /// Inserts the row, or replaces the row with its key.
    pub fn put<T: Table>(&mut self, row: T::Row) -> Result<(), StorageError> {
        let key = T::key(&row).to_bytes();
        self.write::<T>(&key, Some(row), false)
    }

    /// Changes the row in place; false if there is none.
    pub fn update<T: Table>(
        &mut self,
        key: impl AsKey<T::Key>,
        change: impl FnOnce(&mut T::Row),
    ) -> Result<bool, StorageError> {
        let key = encoded::<T>(key);
        let Some(stored) = self.layer::<T>().read(self.below, &key)? else {
            return Ok(false);
        };
        let mut row = T::Row::clone(&stored.row);
        change(&mut row);
        self.write::<T>(&key, Some(row), false)?;
        Ok(true)
    }

    /// Deletes the row; false if there is none.
    pub fn delete<T: Table>(&mut self, key: impl AsKey<T::Key>) -> Result<bool, StorageError> {
        self.remove::<T>(&encoded::<T>(key), false)
    }

    /// Deletes the row as one of many that a rule names: all of a table and namespace make one
    /// change together.
    pub fn delete_by_rule<T: Table>(
        &mut self,
        key: impl AsKey<T::Key>,
    ) -> Result<bool, StorageError> {
        self.remove::<T>(&encoded::<T>(key), true)
    }

    fn remove<T: Table>(&mut self, key: &[u8], by_rule: bool) -> Result<bool, StorageError> {
        if self.layer::<T>().read(self.below, key)?.is_none() {
            return Ok(false);
        }
        self.write::<T>(key, None, by_rule)?;
        Ok(true)
    }

    fn write<T: Table>(
        &mut self,
        key: &[u8],
        row: Option<T::Row>,
        by_rule: bool,
    ) -> Result<(), StorageError> {
        let (below, index) = (self.below, self.index);
        if self
            .layer_mut::<T>()
            .write(below, index, key, row, by_rule)?
        {
            self.touched.push((T::ID, key.into()));
        }
        Ok(())
    }

    /// The rows of a range of the table, in key order. Collect what is needed before writing.
    pub fn scan<T: Table>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<Arc<T::Row>, StorageError>> + '_ {
        self.layer::<T>()
            .scan(self.below, &scan)
            .map(|item| item.map(|(_, stored)| Arc::clone(&stored.row)))
    }

    /// As [`Txn::scan`], for rows most of which are written next: they are not read again then.
    pub fn scan_to_write<T: Table>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<Arc<T::Row>, StorageError>> + '_ {
        let layer = self.layer::<T>();
        layer.scan(self.below, &scan).map(|item| {
            let (key, stored) = item?;
            layer.remember(&key, &stored);
            Ok(Arc::clone(&stored.row))
        })
    }

    /// The rows of one group of an index, in the index's order.
    pub fn by_index<I: Index>(&self, group: impl AsKey<I::Group>) -> Rows<'_, I::Table> {
        Box::new(self.by_index_scan::<I>(Scan::with_key_prefix(group)))
    }

    /// The rows of a range of an index: keys are group ‖ order ‖ primary key.
    pub fn by_index_scan<I: Index>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<Arc<<I::Table as Table>::Row>, StorageError>> + '_ {
        let layer = self.layer::<I::Table>();
        layer
            .scan_entries(self.below, I::NO, &scan)
            .map(move |entry| {
                let entry = entry?;
                let key = primary_key::<I>(&entry)?;
                layer
                    .read(self.below, key)?
                    .map(|stored| Arc::clone(&stored.row))
                    .ok_or_else(|| StorageError::damaged("index entry (no row)", &entry))
            })
    }

    fn layer_of(&self, table: u16) -> Option<&dyn AnyLayer> {
        let layer = self.layers.get(usize::from(table))?;
        layer.as_deref()
    }

    /// As [`Txn::modified`], by the table's number and the encoded key; none where there is no such
    /// table.
    pub(crate) fn modified_of(&self, table: u16, key: &[u8]) -> Result<Option<u64>, StorageError> {
        let layer = self.layer_of(table);
        layer.map_or(Ok(None), |layer| layer.modified(self.below, key))
    }

    /// How many rows of a table have keys that begin so, counted up to a limit.
    pub(crate) fn count_of(
        &self,
        table: u16,
        prefix: &[u8],
        limit: u64,
    ) -> Result<u64, StorageError> {
        let layer = self.layer_of(table);
        layer.map_or(Ok(0), |layer| layer.count(self.below, prefix, limit))
    }
}

impl ReadRows for Txn<'_> {
    fn row<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<Option<Arc<T::Row>>, StorageError> {
        self.get::<T>(key)
    }

    fn rows<T: Table>(&self, scan: Scan) -> Rows<'_, T> {
        Box::new(self.scan::<T>(scan))
    }

    fn rows_by<I: Index>(&self, scan: Scan) -> Rows<'_, I::Table> {
        Box::new(self.by_index_scan::<I>(scan))
    }

    fn any<T: Table>(&self, scan: Scan) -> Result<bool, StorageError> {
        self.layer::<T>().any(self.below, &scan)
    }

    fn any_by<I: Index>(&self, scan: Scan) -> Result<bool, StorageError> {
        self.layer::<I::Table>().any_entry(self.below, I::NO, &scan)
    }
}

pub(crate) fn encoded<T: Table>(key: impl AsKey<T::Key>) -> KeyBuf {
    let mut out = KeyBuf::new();
    key.encode_as(&mut out);
    out
}

/// The primary key at the end of an index key (group ‖ order ‖ key).
pub(crate) fn primary_key<I: Index>(entry: &[u8]) -> Result<&[u8], StorageError> {
    let mut rest = entry;
    I::Group::skip(&mut rest)
        .and_then(|()| I::Order::skip(&mut rest))
        .map_err(|_| StorageError::damaged("index entry", entry))?;
    Ok(rest)
}
