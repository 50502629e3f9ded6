//! One table's part of a write batch: what was read, what is to be written, what can be undone.
//!
//! A row has three states here: *origin* (as the database has it), *base* (before the event that
//! touched it last) and *state* (now). History and changes compare base and state when an event
//! ends; rows, indexes and digests compare origin and state when the batch ends, so a row touched
//! by many events of a batch is written once.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::canonical::Canonical;
use crate::engine::db::Family;
use crate::engine::digest::Sums;
use crate::engine::error::StorageError;
use crate::engine::generations::{CacheBudget, Generations};
use crate::engine::history_writer::{Changed, EndedVersion, HistoryWriter};
use crate::engine::merge;
use crate::engine::row::{Births, Stored};
use crate::engine::scan::Scan;
use crate::engine::staged::{StagedOverlay, WriteEntries};
use crate::engine::table::{Entries, History, IndexDef, Table};
use crate::engine::watch::{Written, row_hash};

/// Bytes of knowing that there is no row.
const ABSENT: usize = 64;

/// An encoded key, without the table's prefix.
pub(crate) type RowKey = Box<[u8]>;
type Read<T> = Option<Arc<Stored<T>>>;

struct LayerSlot<T: Table> {
    origin: Read<T>,
    base: Read<T>,
    state: Read<T>,
    event: u64,
    by_rule: bool,
}

impl<T: Table> Clone for LayerSlot<T> {
    fn clone(&self) -> Self {
        Self {
            origin: self.origin.clone(),
            base: self.base.clone(),
            state: self.state.clone(),
            event: self.event,
            by_rule: self.by_rule,
        }
    }
}

/// What the overlay held of an index entry before the event: nothing, a removal, or a birth.
type FormerEntry = Option<Option<u64>>;

/// One table's overlay.
pub(crate) struct Layer<T: Table> {
    rows: BTreeMap<RowKey, LayerSlot<T>>,
    entries: BTreeMap<Box<[u8]>, Option<u64>>,
    reads: RefCell<Generations<Read<T>>>,
    undo_rows: Vec<(RowKey, Option<LayerSlot<T>>)>,
    undo_entries: Vec<(Box<[u8]>, FormerEntry)>,
    /// Whether the database has no row of the table; unknown until a read needs it.
    vacant: Cell<Option<bool>>,
}

/// What the end of an event writes to.
pub(crate) struct EventSink<'a> {
    pub(crate) canonical: &'a mut Canonical,
    /// What records which versions ended and what changed.
    pub(crate) history_writer: &'a mut dyn HistoryWriter,
}

/// What the end of a batch writes to.
pub(crate) struct BatchSink<'a> {
    pub(crate) out: &'a mut dyn WriteEntries,
    pub(crate) canonical: &'a mut Canonical,
    pub(crate) digests: &'a mut Sums,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// What was written, for its waiters.
    pub(crate) written: &'a mut Written,
}

/// A layer whose table is known only by number.
pub(crate) trait AnyLayer: Send {
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
    fn modified(&self, below: StagedOverlay<'_>, key: &[u8]) -> Result<Option<u64>, StorageError>;
    fn count(
        &self,
        below: StagedOverlay<'_>,
        prefix: &[u8],
        limit: u64,
    ) -> Result<u64, StorageError>;
    /// What the row as it is now takes in memory, roughly; nothing where the event deleted it.
    fn weight(&self, key: &[u8], canonical: &mut Canonical) -> Result<usize, StorageError>;
    fn undo_event(&mut self);
    /// Writes what the event did to the row; false if nothing.
    fn finish_row(&mut self, key: &[u8], sink: &mut EventSink<'_>) -> Result<bool, StorageError>;
    fn end_event(&mut self);
    /// With `turn` what was kept lately grows old.
    fn end_batch(&mut self, turn: bool);
    fn finish_batch(&mut self, sink: &mut BatchSink<'_>) -> Result<(), StorageError>;
    fn forget(&mut self);
}

impl<T: Table> Layer<T> {
    /// An empty overlay that keeps decoded rows from one batch to the next, within a bound that it
    /// shares with those of other tables.
    pub(crate) fn boxed(kept: &Arc<CacheBudget>) -> Box<dyn AnyLayer> {
        Box::new(Self {
            vacant: Cell::new(None),
            rows: BTreeMap::new(),
            entries: BTreeMap::new(),
            reads: RefCell::new(Generations::new(kept)),
            undo_rows: Vec::new(),
            undo_entries: Vec::new(),
        })
    }

    /// The row as the event sees it now.
    pub(crate) fn read(
        &self,
        below: StagedOverlay<'_>,
        key: &[u8],
    ) -> Result<Read<T>, StorageError> {
        if let Some(slot) = self.rows.get(key) {
            return Ok(slot.state.clone());
        }
        if let Some(read) = self.reads.borrow_mut().get(key) {
            return Ok(read);
        }
        let row = match below.get(Family::Rows, &absolute::<T>(key))? {
            Some(value) => Some(Arc::new(Stored::decode(key, &value)?)),
            None => None,
        };
        keep(&mut self.reads.borrow_mut(), key.into(), row.clone());
        Ok(row)
    }

    /// Keeps a row that was met on a walk: it is about to be written.
    pub(crate) fn remember(&self, key: &RowKey, row: &Arc<Stored<T>>) {
        let mut reads = self.reads.borrow_mut();
        keep(&mut reads, key.clone(), Some(Arc::clone(row)));
    }

    /// Puts or deletes a row; says whether the event touched it for the first time.
    pub(crate) fn write(
        &mut self,
        below: StagedOverlay<'_>,
        index: u64,
        key: &[u8],
        row: Option<T::Row>,
        by_rule: bool,
    ) -> Result<bool, StorageError> {
        let old = self.read(below, key)?;
        let slot = self.rows.get(key);
        let first = slot.is_none_or(|slot| slot.event != index);
        let base = match slot {
            Some(slot) if !first => slot.base.clone(),
            _ => old.clone(),
        };
        let origin = slot.map_or_else(|| old.clone(), |slot| slot.origin.clone());
        let state = row.map(|row| Arc::new(stored::<T>(row, index, key, base.as_deref())));
        self.move_entries(old.as_deref(), state.as_deref());
        let slot = LayerSlot {
            origin,
            base,
            state,
            event: index,
            by_rule,
        };
        let previous = match self.rows.get_mut(key) {
            Some(known) => Some(std::mem::replace(known, slot)),
            None => {
                self.rows.insert(key.into(), slot);
                None
            }
        };
        self.undo_rows.push((key.into(), previous));
        Ok(first)
    }

    fn move_entries(&mut self, old: Option<&Stored<T>>, new: Option<&Stored<T>>) {
        let none = Entries::default();
        let before = old.map_or(&none, |row| &row.entries);
        let after = new.map_or(&none, |row| &row.entries);
        for entry in &before.list {
            if after.list.binary_search(entry).is_err() {
                self.set_entry(&entry.bytes, None);
            }
        }
        let births = new.map(|row| &row.births);
        for (at, entry) in after.list.iter().enumerate() {
            if before.list.binary_search(entry).is_err() {
                self.set_entry(
                    &entry.bytes,
                    births.and_then(|births| births.get(at)).copied(),
                );
            }
        }
    }

    fn set_entry(&mut self, entry: &[u8], birth: Option<u64>) {
        let previous = match self.entries.get_mut(entry) {
            Some(known) => Some(std::mem::replace(known, birth)),
            None => {
                self.entries.insert(entry.into(), birth);
                None
            }
        };
        self.undo_entries.push((entry.into(), previous));
    }

    /// The database, unless it has nothing of this table: walks over the many tables that a
    /// cluster does not use cost nothing then.
    fn stored<'a>(&self, below: StagedOverlay<'a>) -> Option<StagedOverlay<'a>> {
        let vacant = self.vacant.get().unwrap_or_else(|| {
            let prefix = T::ID.to_be_bytes();
            let mut walk = below.walk(Family::Rows, Scan::all().absolute(&prefix));
            // What cannot be read is found by the walk that gets there.
            let vacant = matches!(walk.advance(), Ok(false));
            self.vacant.set(Some(vacant));
            vacant
        });
        (!vacant).then_some(below)
    }

    /// Whether a range of the table has a row, as the event sees it now.
    pub(crate) fn any(&self, below: StagedOverlay<'_>, scan: &Scan) -> Result<bool, StorageError> {
        let value_of = |slot: &LayerSlot<T>| slot.state.is_some().then_some(());
        let prefix = T::ID.to_be_bytes();
        let walk = |below| merge::merged(below, Family::Rows, &prefix, scan, &self.rows, value_of);
        if walk(None).next().is_some() {
            return Ok(true);
        }
        let below = self.stored(below);
        Ok(below.is_some() && walk(below).next().transpose()?.is_some())
    }

    /// Whether a range of an index has an entry, as the event sees it now.
    pub(crate) fn any_entry(
        &self,
        below: StagedOverlay<'_>,
        no: u8,
        scan: &Scan,
    ) -> Result<bool, StorageError> {
        let [high, low] = T::ID.to_be_bytes();
        let prefix = [high, low, no];
        let walk = |below| {
            let value_of = |birth: &Option<u64>| *birth;
            merge::merged_under(
                below,
                Family::Index,
                &prefix,
                2,
                scan,
                &self.entries,
                value_of,
            )
        };
        if walk(None).next().is_some() {
            return Ok(true);
        }
        let below = self.stored(below);
        Ok(below.is_some() && walk(below).next().transpose()?.is_some())
    }

    /// The rows of a range, as the event sees them now.
    pub(crate) fn scan<'a>(
        &'a self,
        below: StagedOverlay<'a>,
        scan: &Scan,
    ) -> impl Iterator<Item = Result<(RowKey, Arc<Stored<T>>), StorageError>> + use<'a, T> {
        let value_of = |slot: &LayerSlot<T>| slot.state.clone();
        merge::merged(
            self.stored(below),
            Family::Rows,
            &T::ID.to_be_bytes(),
            scan,
            &self.rows,
            value_of,
        )
        .map(|item| {
            let (key, value) = item?;
            let row = match value {
                merge::MergeValue::Overlay(row) => row,
                merge::MergeValue::Stored(value) => Arc::new(Stored::decode(&key, &value)?),
            };
            Ok((key, row))
        })
    }

    /// The entries of a range of one index: bytes from the group on.
    pub(crate) fn scan_entries<'a>(
        &'a self,
        below: StagedOverlay<'a>,
        no: u8,
        scan: &Scan,
    ) -> impl Iterator<Item = Result<RowKey, StorageError>> + use<'a, T> {
        let [high, low] = T::ID.to_be_bytes();
        merge::merged_under(
            self.stored(below),
            Family::Index,
            &[high, low, no],
            2,
            scan,
            &self.entries,
            |birth| *birth,
        )
        .map(|item| item.map(|(key, _)| key[1..].into()))
    }
}

/// Keeps what was read, or written, for the next caller.
fn keep<T: Table>(reads: &mut Generations<Read<T>>, key: RowKey, read: Read<T>) {
    let weight = read.as_ref().map_or(ABSENT, |row| row.weight());
    reads.put(key, read, weight);
}

/// A row to be stored: entries it already had keep their birth.
fn stored<T: Table>(row: T::Row, index: u64, key: &[u8], base: Option<&Stored<T>>) -> Stored<T> {
    let entries = Entries::of::<T>(&row, key);
    let births: Births = entries
        .list
        .iter()
        .map(|entry| {
            base.and_then(|base| base.birth(&entry.bytes))
                .unwrap_or(index)
        })
        .collect();
    Stored::fresh(row, index, entries, births)
}

/// Table prefix ‖ key.
pub(crate) fn absolute<T: Table>(key: &[u8]) -> crate::engine::key::KeyBuf {
    let mut out = crate::engine::key::KeyBuf::new();
    out.extend_from_slice(&T::ID.to_be_bytes());
    out.extend_from_slice(key);
    out
}

impl<T: Table> AnyLayer for Layer<T> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn modified(&self, below: StagedOverlay<'_>, key: &[u8]) -> Result<Option<u64>, StorageError> {
        Ok(self.read(below, key)?.map(|row| row.modified))
    }

    fn count(
        &self,
        below: StagedOverlay<'_>,
        prefix: &[u8],
        limit: u64,
    ) -> Result<u64, StorageError> {
        let scan = Scan::bytes(prefix);
        let value_of = |slot: &LayerSlot<T>| slot.state.is_some().then_some(());
        let rows = merge::merged(
            self.stored(below),
            Family::Rows,
            &T::ID.to_be_bytes(),
            &scan,
            &self.rows,
            value_of,
        );
        let mut count = 0;
        for row in rows.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            row?;
            count += 1;
        }
        Ok(count)
    }

    fn weight(&self, key: &[u8], canonical: &mut Canonical) -> Result<usize, StorageError> {
        let Some(row) = self.rows.get(key).and_then(|slot| slot.state.as_ref()) else {
            return Ok(0);
        };
        // A new row is weighed by its bytes, which are made once, for this or for what comes next.
        row.body(canonical)?;
        Ok(row.weight())
    }

    fn undo_event(&mut self) {
        while let Some((key, previous)) = self.undo_rows.pop() {
            match previous {
                Some(slot) => self.rows.insert(key, slot),
                None => self.rows.remove(&key),
            };
        }
        while let Some((entry, previous)) = self.undo_entries.pop() {
            match previous {
                Some(birth) => self.entries.insert(entry, birth),
                None => self.entries.remove(&entry),
            };
        }
    }

    fn end_event(&mut self) {
        self.undo_rows.clear();
        self.undo_entries.clear();
    }

    fn finish_row(&mut self, key: &[u8], sink: &mut EventSink<'_>) -> Result<bool, StorageError> {
        let Some(slot) = self.rows.get(key) else {
            return Ok(false);
        };
        let (base, state) = (slot.base.as_deref(), slot.state.as_deref());
        let Some(shown) = state.or(base) else {
            return Ok(false);
        };
        if T::HISTORY == History::Full {
            if let Some(base) = base {
                end_version::<T>(key, base, state, sink)?;
            }
            sink.history_writer.changed(&changed::<T>(
                key,
                &shown.row,
                (slot.state.is_none(), slot.by_rule),
            ));
        }
        Ok(true)
    }

    fn end_batch(&mut self, turn: bool) {
        // Rows and entries are left only where every touch was taken back or came to nothing.
        self.rows.clear();
        self.entries.clear();
        self.reads.get_mut().end_batch(turn);
    }

    fn finish_batch(&mut self, sink: &mut BatchSink<'_>) -> Result<(), StorageError> {
        let reads = self.reads.get_mut();
        if !self.rows.is_empty() {
            // Looked up again when a read needs it, and then in what is stored by now.
            self.vacant.set(self.vacant.get().filter(|vacant| !vacant));
        }
        for (key, slot) in std::mem::take(&mut self.rows) {
            finish_row::<T>(&key, &slot, sink)?;
            keep(reads, key, slot.state);
        }
        for (entry, birth) in std::mem::take(&mut self.entries) {
            let scratch = &mut *sink.scratch;
            scratch.clear();
            scratch.extend_from_slice(&T::ID.to_be_bytes());
            scratch.extend_from_slice(&entry);
            match birth {
                Some(birth) => {
                    let at = scratch.len();
                    crate::engine::row::varint(scratch, birth);
                    let (key, value) = scratch.split_at(at);
                    sink.out.put(Family::Index, key, value);
                }
                None => sink.out.delete(Family::Index, scratch),
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.undo_rows.clear();
        self.undo_entries.clear();
        self.rows.clear();
        self.entries.clear();
        self.reads.get_mut().clear();
        self.vacant.set(None);
    }
}

/// Writes a row's final state of the batch and moves its digest.
fn finish_row<T: Table>(
    key: &[u8],
    slot: &LayerSlot<T>,
    sink: &mut BatchSink<'_>,
) -> Result<(), StorageError> {
    let stored_key = absolute::<T>(key);
    sink.written.rows.push((T::ID, key.into()));
    if T::INDEXES.iter().any(|index| index.watched) {
        note_groups::<T>(slot, sink.written);
    }
    if let Some(origin) = &slot.origin {
        let digest = origin.digest(key, sink.canonical)?;
        sink.digests.of(T::ID).sub(&digest);
    }
    match &slot.state {
        Some(state) => {
            sink.scratch.clear();
            state.write(sink.canonical, sink.scratch)?;
            let digest = state.digest(key, sink.canonical)?;
            sink.digests.of(T::ID).add(&digest);
            sink.out.put(Family::Rows, &stored_key, sink.scratch);
        }
        None if slot.origin.is_some() => sink.out.delete(Family::Rows, &stored_key),
        None => {}
    }
    Ok(())
}

/// Notes the groups that a row lies or lay in, of the groups that waiters may name.
fn note_groups<T: Table>(slot: &LayerSlot<T>, written: &mut Written) {
    let none = Entries::default();
    let now = slot.state.as_ref().map_or(&none, |row| &row.entries);
    let before = slot.origin.as_ref().map_or(&none, |row| &row.entries);
    let left = before.list.iter();
    let left = left.filter(|entry| now.list.binary_search(entry).is_err());
    for entry in now.list.iter().chain(left) {
        let watched = |index: &IndexDef<T>| index.watched && entry.bytes.first() == Some(&index.no);
        if T::INDEXES.iter().any(watched) {
            let group = &entry.bytes[..usize::from(entry.group_end)];
            written.groups.push((T::ID, row_hash(group)));
        }
    }
}

/// Records the version that an event ends, and the entries that go with it.
fn end_version<T: Table>(
    key: &[u8],
    base: &Stored<T>,
    state: Option<&Stored<T>>,
    sink: &mut EventSink<'_>,
) -> Result<(), StorageError> {
    sink.history_writer.ended(&EndedVersion {
        table: T::ID,
        key,
        from: base.modified,
        deleted: state.is_none(),
        body: base.body(sink.canonical)?,
    });
    for (entry, birth) in base.entries.list.iter().zip(&base.births) {
        if state.is_none_or(|state| state.birth(&entry.bytes).is_none()) {
            sink.history_writer.died(T::ID, entry, *birth);
        }
    }
    Ok(())
}

/// A row that an event wrote or deleted.
fn changed<'a, T: Table>(
    key: &'a [u8],
    row: &'a T::Row,
    (deleted, by_rule): (bool, bool),
) -> Changed<'a> {
    Changed {
        table: T::ID,
        key,
        namespace: T::namespace(row),
        deleted,
        by_rule,
        stream: T::stream(row).filter(|_| !deleted || T::PUBLISHES_DELETES),
        posted: T::POSTED,
        continues_another: T::CONTINUES_ANOTHER,
    }
}
