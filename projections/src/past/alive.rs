//! Keys in the column family `History` that begin with `ALIVE` (2): which rows were live at the
//! *marks*, every 65,536th index.
//!
//! `2 ‖ table (u16 BE) ‖ mark (u64 BE) ‖ chunk (u32 BE)` → length (varint) ‖ key, for keys in their
//! order. Chunk 0 is the head: how many rows are live, how many had been deleted by then. It is
//! written last: a set without chunk 0 is ignored.
//!
//! What is live at an index was live at the mark below it or was created since, and `changes` name
//! every creation. Looking those up costs what was live, where a walk over rows and versions passes
//! over all that ever existed. Sets are built in the background and answer no question by
//! themselves. Without a set, queries fall back to a full scan.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::db::{Database, DbSnapshot, Family};
use crate::engine::error::StorageError;
use crate::engine::position::{self, Position};
use crate::engine::registry::Registry;
use crate::engine::row::{take_varint, varint};
use crate::engine::scan::{DynCursor, Range, Scan, ScanSource};
use crate::engine::staged::{PutEntries, TableBatch};
use crate::engine::table::History;
use crate::past::changes::{self, Operation};
use crate::past::walks::{Lookup, PastRows};

/// What the keys begin with, beside those of versions (0) and of deleted entries (1).
pub(crate) const ALIVE: u8 = 2;
/// After how many bytes a chunk ends.
const CHUNK_BYTES: usize = 64 << 10;
/// The cost of looking up a row as of an index, where skipping a deleted entry of a secondary index
/// is 1.
const LOOKUP_COST: u64 = 16;
/// The cost of an event's changes.
const EVENT_COST: u64 = 3;
/// The cost of skipping a deleted row.
const DELETED_ROW_COST: u64 = 8;

/// What is known of a set without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetHead {
    live: u64,
    /// Rows that were there once and no longer at the mark.
    deleted: u64,
}

fn chunk_key(table: u16, mark: u64, chunk: u32) -> Vec<u8> {
    let mut key = vec![ALIVE];
    key.extend_from_slice(&table.to_be_bytes());
    key.extend_from_slice(&mark.to_be_bytes());
    key.extend_from_slice(&chunk.to_be_bytes());
    key
}

/// Where the sets of a table lie whose marks are below one.
pub(crate) fn sets_below(table: u16, mark: u64) -> (Vec<u8>, Vec<u8>) {
    (chunk_key(table, 0, 0), chunk_key(table, mark, 0))
}

fn head(db_snapshot: &DbSnapshot, table: u16, mark: u64) -> Result<Option<SetHead>, StorageError> {
    let key = chunk_key(table, mark, 0);
    let Some(value) = db_snapshot.get(Family::History, &key)? else {
        return Ok(None);
    };
    let mut bytes: &[u8] = &value;
    let (live, deleted) = (take_varint(&mut bytes), take_varint(&mut bytes));
    match live.zip(deleted) {
        Some((live, deleted)) => Ok(Some(SetHead { live, deleted })),
        None => Err(StorageError::damaged("set of rows alive", &key)),
    }
}

/// The mark of a set, and its head, if that can be read.
type NewestSet = (u64, Result<SetHead, StorageError>);

/// The set of a table at a mark, if there is one.
fn set_at(
    db_snapshot: &DbSnapshot,
    table: u16,
    mark: u64,
) -> Result<Option<NewestSet>, StorageError> {
    match head(db_snapshot, table, mark) {
        Err(error) if error.is_damage() => Ok(Some((mark, Err(error)))),
        head => Ok(head?.map(|head| (mark, Ok(head)))),
    }
}

/// The newest set of a table.
fn newest(db_snapshot: &DbSnapshot, table: u16) -> Result<Option<NewestSet>, StorageError> {
    let range = Range {
        lower: chunk_key(table, 0, 0),
        upper: Some(chunk_key(table, u64::MAX, 0)),
        reverse: true,
    };
    let mut walk = ScanSource::Snapshot(db_snapshot).walk(Family::History, range);
    while walk.advance()? {
        let mark = walk.key().get(3..).and_then(<[u8]>::first_chunk::<8>);
        let mark = mark.copied().map(u64::from_be_bytes);
        let mark = mark.ok_or_else(|| StorageError::damaged("set of rows alive", walk.key()))?;
        if let Some(found) = set_at(db_snapshot, table, mark)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The same, up to where a database is, without a walk: that ends at a block that the disk damaged.
fn newest_by_marks(
    db_snapshot: &DbSnapshot,
    table: u16,
    position: &Position,
) -> Result<Option<NewestSet>, StorageError> {
    let interval = db_snapshot.database().mark_interval();
    let mut next = Some(position.index / interval * interval);
    while let Some(mark) = next.filter(|mark| *mark >= position.floor) {
        if let Some(found) = set_at(db_snapshot, table, mark)? {
            return Ok(Some(found));
        }
        next = mark.checked_sub(interval);
    }
    Ok(None)
}

/// Calls `each` with the keys of a set, in order. One that has not as many as its head says lost a
/// chunk or the end of one, and is damaged: that is known only once `each` had the others.
fn keys(
    db_snapshot: &DbSnapshot,
    (table, mark): (u16, u64),
    head: SetHead,
    each: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let range = Range {
        lower: chunk_key(table, mark, 1),
        upper: Some(chunk_key(table, mark, u32::MAX)),
        reverse: false,
    };
    let mut walk = ScanSource::Snapshot(db_snapshot).walk(Family::History, range);
    let mut found = 0_u64;
    while walk.advance()? {
        let damaged = || StorageError::damaged("set of rows alive", walk.key());
        let mut rest = walk.value();
        while !rest.is_empty() {
            let length = take_varint(&mut rest).ok_or_else(damaged)?;
            let length = usize::try_from(length).map_err(|_| damaged())?;
            let (key, tail) = rest.split_at_checked(length).ok_or_else(damaged)?;
            each(key)?;
            found += 1;
            rest = tail;
        }
    }
    match found == head.live {
        true => Ok(()),
        false => {
            let head = chunk_key(table, mark, 0);
            Err(StorageError::damaged("set of rows alive", &head))
        }
    }
}

/// What events after a mark and up to an index did to rows of a table.
#[derive(Default)]
struct ChangesSince {
    /// By key, whether the last event that named the row deleted it.
    changed: BTreeMap<Vec<u8>, bool>,
    /// Whether rows were deleted by rule: by a predicate, which names none.
    deleted_by_rule: bool,
}

impl ChangesSince {
    fn read(
        db_snapshot: &DbSnapshot,
        table: u16,
        (mark, last): (u64, u64),
    ) -> Result<Self, StorageError> {
        let range = Range {
            lower: (mark + 1).to_be_bytes().to_vec(),
            upper: last.checked_add(1).map(|end| end.to_be_bytes().to_vec()),
            reverse: false,
        };
        let mut walk = ScanSource::Snapshot(db_snapshot).walk(Family::Changes, range);
        let mut found = Self::default();
        while walk.advance()? {
            let each = &mut |operation, key: &[u8]| match operation {
                Operation::Rule => found.deleted_by_rule = true,
                _ => {
                    let deleted = operation == Operation::Delete;
                    found.changed.insert(key.to_vec(), deleted);
                }
            };
            changes::of_table(walk.value(), table, each)
                .ok_or_else(|| StorageError::damaged("change", walk.key()))?;
        }
        Ok(found)
    }
}

/// Which deleted rows or entries a scan would skip.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkippedDeleted {
    /// Rows that were ever deleted.
    Rows,
    /// Entries of a secondary index that were deleted after the index of the log that a query is
    /// about.
    Entries,
}

/// The keys of all rows of a table that may have been live at an index, in order: none where a scan
/// is cheaper, or where its set, or a change since, is damaged: a scan needs neither.
/// `deleted_fraction` returns the fraction, 0 to 1, of what was deleted that lies in the range of
/// the scan.
pub(crate) fn candidates(
    db_snapshot: &DbSnapshot,
    table: u16,
    index: u64,
    skipped: SkippedDeleted,
    deleted_fraction: impl FnOnce(&Database) -> f64,
) -> Result<Option<Vec<Vec<u8>>>, StorageError> {
    match cheaper_candidates(db_snapshot, (table, index), skipped, deleted_fraction) {
        Err(error) if error.is_damage() => Ok(None),
        found => found,
    }
}

fn cheaper_candidates(
    db_snapshot: &DbSnapshot,
    (table, index): (u16, u64),
    skipped: SkippedDeleted,
    deleted_fraction: impl FnOnce(&Database) -> f64,
) -> Result<Option<Vec<Vec<u8>>>, StorageError> {
    let interval = db_snapshot.database().mark_interval();
    let mark = index / interval * interval;
    // Changes below the floor are pruned, so rows created since the mark would be missed; the set
    // itself may have been written while pruning ran.
    if mark < position::floor_of(db_snapshot)? {
        return Ok(None);
    }
    let Some(mark_head) = head(db_snapshot, table, mark)? else {
        return Ok(None);
    };
    let Some((_, newest_head)) = newest(db_snapshot, table)? else {
        return Ok(None);
    };
    let newest_head = newest_head?;
    let skips = match skipped {
        SkippedDeleted::Rows => newest_head.deleted.saturating_mul(DELETED_ROW_COST),
        SkippedDeleted::Entries => newest_head.deleted.saturating_sub(mark_head.deleted),
    };
    let event_cost = (index - mark).saturating_mul(EVENT_COST);
    let lookup_cost = mark_head.live.saturating_mul(LOOKUP_COST);
    let lookup_cost = lookup_cost.saturating_add(event_cost);
    if skips <= lookup_cost {
        return Ok(None);
    }
    #[allow(clippy::cast_precision_loss)]
    let scan_cost = skips as f64 * deleted_fraction(db_snapshot.database());
    #[allow(clippy::cast_precision_loss)]
    if scan_cost <= lookup_cost as f64 {
        return Ok(None);
    }
    let mut all = ChangesSince::read(db_snapshot, table, (mark, index))?.changed;
    keys(db_snapshot, (table, mark), mark_head, &mut |key| {
        if !all.contains_key(key) {
            all.insert(key.to_vec(), false);
        }
        Ok(())
    })?;
    all.retain(|_, deleted| !*deleted);
    Ok(Some(all.into_keys().collect()))
}

/// A set that is being written.
struct SetDraft<'a> {
    db: &'a Arc<Database>,
    table: u16,
    mark: u64,
    chunk: Vec<u8>,
    chunks: u32,
    live: u64,
}

impl<'a> SetDraft<'a> {
    fn new(db: &'a Arc<Database>, table: u16, mark: u64) -> Self {
        Self {
            db,
            table,
            mark,
            chunk: Vec::new(),
            chunks: 0,
            live: 0,
        }
    }

    fn add(&mut self, key: &[u8]) -> Result<(), StorageError> {
        varint(&mut self.chunk, key.len() as u64);
        self.chunk.extend_from_slice(key);
        self.live += 1;
        match self.chunk.len() < CHUNK_BYTES {
            true => Ok(()),
            false => self.put_chunk(),
        }
    }

    fn put(&self, chunk: u32, value: &[u8]) -> Result<(), StorageError> {
        let mut batch = TableBatch::new(self.db);
        let key = chunk_key(self.table, self.mark, chunk);
        batch.put(Family::History, &key, value);
        batch.write()
    }

    fn put_chunk(&mut self) -> Result<(), StorageError> {
        self.chunks += 1;
        self.put(self.chunks, &self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    fn finish(mut self, deleted: u64) -> Result<(), StorageError> {
        if !self.chunk.is_empty() {
            self.put_chunk()?;
        }
        let mut head = Vec::new();
        for number in [self.live, deleted] {
            varint(&mut head, number);
        }
        self.put(0, &head)
    }
}

/// Builds the sets of live rows that are due: of every table whose past is kept, at its next mark.
/// Returns the newest mark built; none if nothing was due. The writer may continue meanwhile.
///
/// Tables in `left_out` are passed over. One of which something cannot be read that its set needs
/// is added to them, and the others have their turn.
///
/// # Errors
/// The first failed read or write, once the others had their turn; calling it again begins that set
/// anew.
pub(crate) fn build_due_sets(
    db: &Arc<Database>,
    registry: &Registry,
    position: &Position,
    left_out: &mut BTreeMap<&'static str, StorageError>,
) -> Result<Option<u64>, StorageError> {
    build_each(registry, left_out, |table| {
        build_due_set(db, table, position)
    })
}

/// The same, with what builds the set of a table.
pub(crate) fn build_each(
    registry: &Registry,
    left_out: &mut BTreeMap<&'static str, StorageError>,
    mut build: impl FnMut(u16) -> Result<Option<u64>, StorageError>,
) -> Result<Option<u64>, StorageError> {
    let (mut made, mut failed) = (None, None);
    for table in registry.tables() {
        if table.history() != History::Full || left_out.contains_key(table.name()) {
            continue;
        }
        match build(table.id()) {
            Ok(mark) => made = made.max(mark),
            Err(error) if error.is_single_entry() => {
                left_out.insert(table.name(), error);
            }
            // What cannot be read of one may be a block that no other one lies in.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(made), Err)
}

/// Builds the set of one table that is due, and answers its mark. One that was built and cannot be
/// read is built anew.
fn build_due_set(
    db: &Arc<Database>,
    table: u16,
    position: &Position,
) -> Result<Option<u64>, StorageError> {
    let interval = db.mark_interval();
    let db_snapshot = DbSnapshot::new(Arc::clone(db));
    let found = match newest(&db_snapshot, table) {
        Err(error) if error.is_damage() => newest_by_marks(&db_snapshot, table, position)?,
        found => found?,
    };
    drop(db_snapshot);
    let (mark, before) = match found.filter(|(mark, _)| *mark >= position.floor) {
        Some((mark, Ok(head))) => (mark.saturating_add(interval), Some((mark, head))),
        Some((mark, Err(_))) => (mark, None),
        None => (position.floor.next_multiple_of(interval), None),
    };
    if mark > position.index {
        return Ok(None);
    }
    let Some(before) = before else {
        build_by_walk(db, table, mark, 0)?;
        return Ok(Some(mark));
    };
    match build_next_set(db, table, before, mark) {
        // The set before it or the changes since, and which of them is not known: a walk needs
        // neither, and gives the same keys.
        Err(error) if error.is_damage() => {
            let (known, head) = before;
            build_by_walk(db, table, known, head.deleted)?;
            build_by_walk(db, table, mark, head.deleted)?;
        }
        built => built?,
    }
    Ok(Some(mark))
}

/// A set of a table by a full scan, as the first one is made. What had been deleted before it
/// counts as far as it is known: it only says what a scan would cost.
fn build_by_walk(
    db: &Arc<Database>,
    table: u16,
    mark: u64,
    deleted: u64,
) -> Result<(), StorageError> {
    let db_snapshot = DbSnapshot::new(Arc::clone(db));
    let mut draft = SetDraft::new(db, table, mark);
    let range = Scan::all().absolute(&table.to_be_bytes());
    let mut rows = PastRows::walked(&db_snapshot, range, mark);
    while rows.advance()? {
        draft.add(&rows.key()[2..])?;
    }
    draft.finish(deleted)
}

/// The next set of a table: those of the one before it that are still live, and those created
/// since.
fn build_next_set(
    db: &Arc<Database>,
    table: u16,
    (before, known): (u64, SetHead),
    mark: u64,
) -> Result<(), StorageError> {
    let db_snapshot = DbSnapshot::new(Arc::clone(db));
    let ChangesSince {
        changed,
        deleted_by_rule,
    } = ChangesSince::read(&db_snapshot, table, (before, mark))?;
    let mut draft = SetDraft::new(db, table, mark);
    let mut lookup = Lookup::new(&db_snapshot, mark);
    let mut add = |key: &[u8], live: bool| {
        // A deletion by rule names no rows, so whether one met this row is looked up.
        if !live || (deleted_by_rule && !lookup.find(&[&table.to_be_bytes()[..], key].concat())?) {
            return Ok(());
        }
        draft.add(key)
    };
    let (mut changes, mut created) = (changed.into_iter().peekable(), 0);
    keys(&db_snapshot, (table, before), known, &mut |key| {
        while let Some((new, deleted)) = changes.next_if(|(new, _)| new.as_slice() < key) {
            created += 1;
            add(&new, !deleted)?;
        }
        let own = changes.next_if(|(own, _)| own.as_slice() == key);
        add(key, own.is_none_or(|(_, deleted)| !deleted))
    })?;
    for (new, deleted) in changes {
        created += 1;
        add(&new, !deleted)?;
    }
    // What a damaged head says may be any number.
    let ever = known.deleted.saturating_add(known.live);
    let deleted = ever.saturating_add(created).saturating_sub(draft.live);
    draft.finish(deleted)
}
