//! Walks over tables and indexes as they were after an earlier event.
//!
//! A row that lives since before that event is still in `rows`; one that was changed or deleted
//! since left the version of then in `history`. The two never hold the same key at one index, so a
//! walk over the past is a merge of both, in key order, with the same interface as one over the
//! present. Where far more were deleted than were live, the rows are looked up by their keys
//! instead ([`crate::past::alive`]).

use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;

use crate::engine::db::{Database, DbSnapshot, Family, RawCursor};
use crate::engine::error::StorageError;
use crate::engine::row;
use crate::engine::scan::{DynCursor, EntryCursor, Range, Scan, ScanSource};
use crate::engine::table::{Entries, Index, Table};
use crate::past::alive::{self, SkippedDeleted};
use crate::past::history;

/// The rows of a range as of an index.
pub(crate) struct PastRows<'a> {
    db_snapshot: &'a DbSnapshot,
    index: u64,
    way: LookupPath<'a>,
}

/// How the rows are found.
enum LookupPath<'a> {
    /// Nothing was read yet.
    Unopened(Range),
    /// By a walk over all that is and was there.
    Merged(Box<Merged<'a>>),
    /// By their keys.
    Named(IntoIter<Vec<u8>>, Lookup<'a>),
}

impl<'a> PastRows<'a> {
    /// The rows of `range` (table ‖ key) after the event at `index`.
    pub(crate) fn new(db_snapshot: &'a DbSnapshot, range: Range, index: u64) -> Self {
        Self {
            db_snapshot,
            index,
            way: LookupPath::Unopened(range),
        }
    }

    /// As [`PastRows::new`], by a walk whatever it costs.
    pub(crate) fn walked(db_snapshot: &'a DbSnapshot, range: Range, index: u64) -> Self {
        Self {
            db_snapshot,
            index,
            way: LookupPath::Merged(Box::new(Merged::new(db_snapshot, range, index))),
        }
    }

    /// As a walk like any other.
    pub(crate) fn into_walk(self) -> EntryCursor<'a> {
        EntryCursor::Boxed(Box::new(self))
    }

    fn open(&self, range: Range) -> Result<LookupPath<'a>, StorageError> {
        let table = range.lower.first_chunk::<2>().copied();
        let table = table.filter(|_| !range.is_empty()).map(u16::from_be_bytes);
        let named = match table {
            None => None,
            Some(table) => {
                let skipped = SkippedDeleted::Rows;
                let version = |key: &[u8]| history::version_key(key, &[]);
                let fraction = |db: &Database| deleted_fraction(db, &range, 2, version);
                alive::candidates(self.db_snapshot, table, self.index, skipped, fraction)?
            }
        };
        let (Some(named), Some(table)) = (named, table) else {
            let merged = Merged::new(self.db_snapshot, range, self.index);
            return Ok(LookupPath::Merged(Box::new(merged)));
        };
        let named = named.into_iter();
        let keys = named.map(|key| [&table.to_be_bytes()[..], &key].concat());
        let mut keys: Vec<_> = keys.filter(|key| range.contains(key)).collect();
        if range.reverse {
            keys.reverse();
        }
        let lookup = Lookup::new(self.db_snapshot, self.index);
        Ok(LookupPath::Named(keys.into_iter(), lookup))
    }
}

impl DynCursor for PastRows<'_> {
    fn advance(&mut self) -> Result<bool, StorageError> {
        if let LookupPath::Unopened(range) = &mut self.way {
            let range = range.clone();
            self.way = self.open(range)?;
        }
        match &mut self.way {
            LookupPath::Unopened(_) => Ok(false),
            LookupPath::Merged(merged) => merged.advance(),
            LookupPath::Named(keys, lookup) => {
                for key in keys {
                    if lookup.find(&key)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// table ‖ key.
    fn key(&self) -> &[u8] {
        match &self.way {
            LookupPath::Unopened(_) => &[],
            LookupPath::Merged(merged) => merged.key(),
            LookupPath::Named(_, lookup) => &lookup.key,
        }
    }

    /// The value as `rows` would hold it, without the births of entries where it has ended.
    fn value(&self) -> &[u8] {
        match &self.way {
            LookupPath::Unopened(_) => &[],
            LookupPath::Merged(merged) => merged.value(),
            LookupPath::Named(_, lookup) => &lookup.value,
        }
    }
}

/// Which fraction, 0 to 1, of what was deleted of a table or an index lies in a range of it. The
/// first `of` bytes of a key name the table or the index; `place` says where in `history` what was
/// deleted under a key lies.
fn deleted_fraction(db: &Database, range: &Range, of: usize, place: fn(&[u8]) -> Vec<u8>) -> f64 {
    let all = Scan::all().absolute(&range.lower[..of]);
    let ends = |range: &Range| (place(&range.lower), range.upper.as_deref().map(place));
    db.share(Family::History, ends(range), ends(&all))
}

/// Looks rows up as they were at an index.
pub(crate) struct Lookup<'a> {
    db_snapshot: &'a DbSnapshot,
    index: u64,
    versions: RawCursor<'a>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Lookup<'a> {
    /// Rows as of an index.
    pub(crate) fn new(db_snapshot: &'a DbSnapshot, index: u64) -> Self {
        Self {
            db_snapshot,
            index,
            versions: db_snapshot.cursor_of_past(Family::History),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Finds a row by table ‖ key; false if it was not there.
    pub(crate) fn find(&mut self, at: &[u8]) -> Result<bool, StorageError> {
        self.key.clear();
        self.key.extend_from_slice(at);
        if let Some(living) = self.db_snapshot.get(Family::Rows, at)? {
            let modified = row::modified(&living);
            if modified.ok_or_else(|| StorageError::damaged("row", at))? <= self.index {
                self.value.clear();
                self.value.extend_from_slice(&living);
                return Ok(true);
            }
        }
        let tail = self.index.to_be_bytes();
        self.versions.seek_for_prev(history::version_key(at, &tail));
        let Some((entry, value)) = self.versions.item() else {
            let status = self.versions.status();
            return status
                .map(|()| false)
                .map_err(StorageError::database("walk"));
        };
        if history::key_of_version(entry) != Some(at) {
            return Ok(false);
        }
        let from = history::beginning(entry)?;
        let (until, _, body) = history::split_version(entry, value)?;
        row::write_without_entries(&mut self.value, from, body);
        Ok(self.index < until)
    }
}

/// A walk over the rows that live and those that have ended.
struct Merged<'a> {
    index: u64,
    living: EntryCursor<'a>,
    ended: Ended<'a>,
    /// Which side stands at an entry that was not yet given.
    ready: (Side, Side),
    /// Why an entry that a side stands at cannot be read: returned when its turn comes.
    damaged: (Option<StorageError>, Option<StorageError>),
    current: Current,
    reverse: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Behind,
    At,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    None,
    Living,
    Ended,
}

impl<'a> Merged<'a> {
    fn new(db_snapshot: &'a DbSnapshot, range: Range, index: u64) -> Self {
        Self {
            index,
            reverse: range.reverse,
            ended: Ended::new(db_snapshot, range.clone(), index),
            living: ScanSource::Snapshot(db_snapshot).walk(Family::Rows, range),
            ready: (Side::Behind, Side::Behind),
            damaged: (None, None),
            current: Current::None,
        }
    }

    /// Moves to the next row; false at the end. It stands at a single row that cannot be read too,
    /// and goes on behind it.
    fn advance(&mut self) -> Result<bool, StorageError> {
        match self.current {
            Current::Living => self.ready.0 = Side::Behind,
            Current::Ended => self.ready.1 = Side::Behind,
            Current::None => {}
        }
        if self.ready.0 == Side::Behind {
            let found = self.next_living();
            (self.ready.0, self.damaged.0) = or_damaged(found)?;
        }
        if self.ready.1 == Side::Behind {
            let found = self.ended.advance().map(at_or_done);
            (self.ready.1, self.damaged.1) = or_damaged(found)?;
        }
        self.current = match self.ready {
            (Side::At, Side::At) => self.first(),
            (Side::At, _) => Current::Living,
            (_, Side::At) => Current::Ended,
            _ => Current::None,
        };
        let damaged = match self.current {
            Current::Living => self.damaged.0.take(),
            Current::Ended => self.damaged.1.take(),
            Current::None => None,
        };
        damaged.map_or(Ok(self.current != Current::None), Err)
    }

    /// Which of two sides that stand at an entry comes first.
    fn first(&mut self) -> Current {
        match self.living.key().cmp(self.ended.key()) {
            // It is the living one's turn: an older version that cannot be read is not needed.
            Ordering::Equal if self.damaged.0.is_none() => {
                (self.ready.1, self.damaged.1) = (Side::Behind, None);
                Current::Living
            }
            // A row that lives and cannot be read was written after its version of then had ended.
            Ordering::Equal => {
                self.ready.0 = Side::Behind;
                Current::Ended
            }
            order if order.is_lt() != self.reverse => Current::Living,
            _ => Current::Ended,
        }
    }

    /// The next living row that was written at or before the index.
    fn next_living(&mut self) -> Result<Side, StorageError> {
        while self.living.advance()? {
            let modified = row::modified(self.living.value())
                .ok_or_else(|| StorageError::damaged("row", self.living.key()))?;
            if modified <= self.index {
                return Ok(Side::At);
            }
        }
        Ok(Side::Done)
    }

    /// table ‖ key.
    fn key(&self) -> &[u8] {
        match self.current {
            Current::Ended => self.ended.key(),
            _ => self.living.key(),
        }
    }

    /// The value as `rows` would hold it.
    fn value(&self) -> &[u8] {
        match self.current {
            Current::Ended => &self.ended.value,
            _ => self.living.value(),
        }
    }
}

fn at_or_done(found: bool) -> Side {
    if found { Side::At } else { Side::Done }
}

/// Where a side stands, and why what it stands at cannot be read, where that is a single entry.
fn or_damaged(
    found: Result<Side, StorageError>,
) -> Result<(Side, Option<StorageError>), StorageError> {
    match found {
        Ok(side) => Ok((side, None)),
        Err(error) if error.is_single_entry() => Ok((Side::At, Some(error))),
        Err(error) => Err(error),
    }
}

/// The ended versions of a range that were alive at an index, one a key at most.
struct Ended<'a> {
    cursor: RawCursor<'a>,
    range: Range,
    index: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    begun: bool,
}

impl<'a> Ended<'a> {
    fn new(db_snapshot: &'a DbSnapshot, range: Range, index: u64) -> Self {
        Self {
            cursor: db_snapshot.cursor_of_past(Family::History),
            range,
            index,
            key: Vec::new(),
            value: Vec::new(),
            begun: false,
        }
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn advance(&mut self) -> Result<bool, StorageError> {
        if self.range.is_empty() {
            return Ok(false);
        }
        match (self.begun, self.range.reverse) {
            (false, false) => self
                .cursor
                .seek(history::version_key(&self.range.lower, &[])),
            (false, true) => self.seek_last(),
            (true, _) => self.leave_key(),
        }
        self.begun = true;
        while self.read_key()? {
            if self.find_version()? {
                return Ok(true);
            }
            self.leave_key();
        }
        Ok(false)
    }

    /// To the last version of the last key below the upper bound, or somewhat above it.
    fn seek_last(&mut self) {
        match &self.range.upper {
            Some(upper) => self.cursor.seek_for_prev(history::version_bound(upper)),
            None => self
                .cursor
                .seek_for_prev(history::version_key(&[], &history::ABOVE_VERSIONS)),
        }
    }

    /// To the first entry of the next key in the walk's direction.
    fn leave_key(&mut self) {
        if self.range.reverse {
            self.cursor
                .seek_for_prev(history::version_key(&self.key, &[]));
        } else {
            self.cursor
                .seek(history::version_key(&self.key, &history::ABOVE_VERSIONS));
        }
    }

    /// Takes the key of the entry under the cursor; false where the range ends.
    fn read_key(&mut self) -> Result<bool, StorageError> {
        loop {
            let Some(entry) = self.cursor.key() else {
                self.cursor
                    .status()
                    .map_err(StorageError::database("walk"))?;
                return Ok(false);
            };
            let Some(key) = history::key_of_version(entry) else {
                // Dead index entries follow the versions; nothing precedes them.
                return Ok(false);
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            let below = self.key < self.range.lower;
            let above = self
                .range
                .upper
                .as_ref()
                .is_some_and(|upper| self.key >= *upper);
            match (below, above, self.range.reverse) {
                (false, false, _) => return Ok(true),
                (true, _, true) | (_, true, false) => return Ok(false),
                _ => self.leave_key(),
            }
        }
    }

    /// Makes the value of the version alive at the index; false if the key had none.
    fn find_version(&mut self) -> Result<bool, StorageError> {
        let mut target = self.key.clone();
        for attempt in 0..2 {
            let Some((entry, value)) = self.cursor.item() else {
                // What cannot be read is no row that was not there.
                self.cursor
                    .status()
                    .map_err(StorageError::database("walk"))?;
                return Ok(false);
            };
            if history::key_of_version(entry) != Some(self.key.as_slice()) {
                return Ok(false);
            }
            let from = history::beginning(entry)?;
            let (until, _, body) = history::split_version(entry, value)?;
            if from <= self.index {
                if self.index < until {
                    row::write_without_entries(&mut self.value, from, body);
                    return Ok(true);
                }
                if self.range.reverse {
                    // The newest version had ended by then.
                    return Ok(false);
                }
            } else if !self.range.reverse {
                // The oldest version had not begun.
                return Ok(false);
            }
            if attempt == 0 {
                target.extend_from_slice(&self.index.to_be_bytes());
                self.cursor
                    .seek_for_prev(history::version_key(&target, &[]));
            }
        }
        Ok(false)
    }
}

/// The entries of a range of one index as of an index of the log: group ‖ order ‖ key.
pub(crate) struct PastEntries<'a> {
    index: u64,
    /// None where all are among the ended.
    living: Option<EntryCursor<'a>>,
    living_ready: Side,
    ended: Peekable<IntoIter<Vec<u8>>>,
    current: Vec<u8>,
    reverse: bool,
}

impl<'a> PastEntries<'a> {
    /// The entries of `scan` after the event at `index`.
    pub(crate) fn new<I: Index>(
        db_snapshot: &'a DbSnapshot,
        scan: &Scan,
        index: u64,
    ) -> Result<Self, StorageError> {
        let [high, low] = I::Table::ID.to_be_bytes();
        let absolute = |entry: &[u8]| [&[high, low, I::NO], entry].concat();
        let range = scan.absolute(&absolute(&[]));
        let fraction = |db: &Database| deleted_fraction(db, &range, 3, history::dead_key_at);
        let (table, skipped) = (I::Table::ID, SkippedDeleted::Entries);
        let named = match range.is_empty() {
            true => Some(Vec::new()),
            false => alive::candidates(db_snapshot, table, index, skipped, fraction)?,
        };
        let (mut ended, living) = match named {
            Some(keys) => (entries_of::<I>(db_snapshot, &keys, index)?, None),
            None => {
                let source = ScanSource::Snapshot(db_snapshot);
                let ended = history::alive_then::<I>(source, scan.leading(), index)?;
                (ended, Some(source.walk(Family::Index, range.clone())))
            }
        };
        ended.retain(|entry| range.contains(&absolute(entry)));
        ended.sort_unstable();
        if range.reverse {
            ended.reverse();
        }
        Ok(Self {
            index,
            reverse: range.reverse,
            living_ready: Side::Behind,
            living,
            ended: ended.into_iter().peekable(),
            current: Vec::new(),
        })
    }

    /// Moves to the next entry; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, StorageError> {
        while self.living_ready == Side::Behind {
            let Some(walk) = &mut self.living else {
                self.living_ready = Side::Done;
                break;
            };
            if !walk.advance()? {
                self.living_ready = Side::Done;
            } else if birth(walk)? <= self.index {
                self.living_ready = Side::At;
            }
        }
        let at = self.living_ready == Side::At;
        let living = self.living.as_ref().filter(|_| at);
        let living = living.map(|walk| &walk.key()[3..]);
        let take_living = match (living, self.ended.peek()) {
            (None, None) => return Ok(false),
            (None, Some(_)) => false,
            (Some(_), None) => true,
            (Some(living), Some(ended)) => (living < ended.as_slice()) != self.reverse,
        };
        match living.filter(|_| take_living) {
            Some(living) => {
                self.current = living.to_vec();
                self.living_ready = Side::Behind;
            }
            None => self.current = self.ended.next().unwrap_or_default(),
        }
        Ok(true)
    }

    /// group ‖ order ‖ key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.current
    }
}

/// The entries of an index that rows with these keys had: group ‖ order ‖ key, not sorted.
fn entries_of<I: Index>(
    db_snapshot: &DbSnapshot,
    keys: &[Vec<u8>],
    index: u64,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut lookup = Lookup::new(db_snapshot, index);
    let mut found = Vec::new();
    for key in keys {
        let at = [&I::Table::ID.to_be_bytes()[..], key].concat();
        if !lookup.find(&at)? {
            continue;
        }
        let row = row::decode_body::<I::Table>(key, row::body(key, &lookup.value)?)?;
        let mut entries = Entries::default();
        I::entries(&row, &mut entries);
        for entry in entries.list {
            found.push([&entry.bytes[1..], key].concat());
        }
    }
    found.dedup();
    Ok(found)
}

/// The birth of the entry of a table index under a walk.
fn birth(walk: &EntryCursor<'_>) -> Result<u64, StorageError> {
    row::take_varint(&mut walk.value())
        .ok_or_else(|| StorageError::damaged("index entry", walk.key()))
}
