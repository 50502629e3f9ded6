//! Where apply's writes go, and where its reads look: first in what is staged, then in the
//! database.
//!
//! A batch goes into the database in one write. A fold ([`crate::Fold`]) holds what it writes until
//! a *generation* is full: rows and index entries sorted in memory, where apply reads them, and the
//! entries it never reads (history, changes, postings, digests, and in `meta` the outcomes) one
//! behind the other.
//! The same apply writes to both.

use std::collections::BTreeMap;
use std::ops::Bound;

use rocksdb::{DBPinnableSlice, WriteBatch};
use smallvec::SmallVec;

use crate::engine::db::{Database, Family};
use crate::engine::error::StorageError;
use crate::engine::merge::DirectedRange;
use crate::engine::scan::{DynCursor, EntryCursor, Range, ScanSource};

/// Takes new entries.
pub(crate) trait PutEntries {
    /// Writes an entry.
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]);
}

/// Takes new entries and removals.
pub(crate) trait WriteEntries: PutEntries {
    /// Removes an entry.
    fn delete(&mut self, family: Family, key: &[u8]);
}

/// Writes that go into the database together.
pub(crate) struct TableBatch<'a> {
    db: &'a Database,
    batch: WriteBatch,
}

impl<'a> TableBatch<'a> {
    pub(crate) fn new(db: &'a Database) -> Self {
        let batch = WriteBatch::default();
        Self { db, batch }
    }

    pub(crate) fn size(&self) -> usize {
        self.batch.size_in_bytes()
    }

    pub(crate) fn write(self) -> Result<(), StorageError> {
        self.db.write(self.batch)
    }
}

impl PutEntries for TableBatch<'_> {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.batch.put_cf(self.db.family(family), key, value);
    }
}

impl WriteEntries for TableBatch<'_> {
    fn delete(&mut self, family: Family, key: &[u8]) {
        self.batch.delete_cf(self.db.family(family), key);
    }
}

/// Where apply's reads look: first in what a fold has staged, then in the database, or in a view of
/// it where an event is only tried out.
#[derive(Clone, Copy)]
pub(crate) struct StagedOverlay<'a> {
    pub(crate) source: ScanSource<'a>,
    pub(crate) staged: Option<&'a StagedRows>,
}

/// A value of an entry, borrowed from the database or from what is staged in memory.
pub(crate) enum EntryValue<'a> {
    Stored(DBPinnableSlice<'a>),
    Staged(&'a [u8]),
}

impl std::ops::Deref for EntryValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(value) => value,
            Self::Staged(value) => value,
        }
    }
}

impl<'a> StagedOverlay<'a> {
    pub(crate) fn get(
        self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<EntryValue<'a>>, StorageError> {
        if let Some(staged) = self.staged {
            match staged.map(family).and_then(|map| map.get(key)) {
                Some(value) => return Ok(value.as_deref().map(EntryValue::Staged)),
                None if staged.database_is_empty => return Ok(None),
                None => {}
            }
        }
        Ok(self.source.get(family, key)?.map(EntryValue::Stored))
    }

    pub(crate) fn walk(self, family: Family, range: Range) -> EntryCursor<'a> {
        let staged = self
            .staged
            .and_then(|staged| Some((staged.map(family)?, staged.database_is_empty)));
        let Some((map, database_is_empty)) = staged else {
            return self.source.walk(family, range);
        };
        let reverse = range.reverse;
        let bounds = match &range.upper {
            _ if range.is_empty() => (Bound::Included(&[][..]), Bound::Excluded(&[][..])),
            Some(upper) => (
                Bound::Included(&range.lower[..]),
                Bound::Excluded(&upper[..]),
            ),
            None => (Bound::Included(&range.lower[..]), Bound::Unbounded),
        };
        let staged = DirectedRange::new(map.range::<[u8], _>(bounds), reverse);
        EntryCursor::Boxed(Box::new(StagedCursor {
            staged,
            stored: (!database_is_empty).then(|| self.source.walk(family, range)),
            stored_pending: false,
            reverse,
            current: None,
        }))
    }
}

/// Keys lie in the tree itself: comparing them costs no look elsewhere.
type StagedKey = SmallVec<[u8; 56]>;
type Map = BTreeMap<StagedKey, Option<Box<[u8]>>>;
/// What an entry costs in memory beyond its value, roughly.
const ENTRY_BYTES: usize = 160;

/// The rows and index entries of a generation. `None` is a tombstone: the key was removed.
#[derive(Default)]
pub(crate) struct StagedRows {
    rows: Map,
    index: Map,
    /// Whether the database is empty: what is not here is nowhere.
    pub(crate) database_is_empty: bool,
    bytes: usize,
}

impl StagedRows {
    fn map(&self, family: Family) -> Option<&Map> {
        match family {
            Family::Rows => Some(&self.rows),
            Family::Index => Some(&self.index),
            _ => None,
        }
    }

    fn set(&mut self, family: Family, key: &[u8], value: Option<&[u8]>) {
        let map = match family {
            Family::Rows => &mut self.rows,
            _ => &mut self.index,
        };
        let size = value.map_or(0, <[u8]>::len);
        if let Some(known) = map.get_mut(key) {
            let old = known.as_deref().map_or(0, <[u8]>::len);
            self.bytes = self.bytes + size - old.min(self.bytes);
            if value.is_none() && self.database_is_empty {
                map.remove(key);
                self.bytes = self.bytes.saturating_sub(ENTRY_BYTES);
            } else {
                *known = value.map(Box::from);
            }
        } else if value.is_some() || !self.database_is_empty {
            map.insert(key.into(), value.map(Box::from));
            self.bytes += size + ENTRY_BYTES;
        }
    }

    /// The entries of `rows` or `index` in the order of their keys. `None` is a tombstone: the key
    /// was removed.
    pub(crate) fn entries(&self, family: Family) -> impl Iterator<Item = StagedEntry<'_>> {
        let map = self.map(family).into_iter().flatten();
        map.map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}

/// A key and its value; `None` is a tombstone: the key was removed.
pub(crate) type StagedEntry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Entries of one family in the order in which they were written.
#[derive(Default)]
pub(crate) struct StagedRun {
    keys: Vec<u8>,
    values: Vec<u8>,
    ends: Vec<(u32, u32)>,
}

impl StagedRun {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        // A generation ends long before the sizes of its runs leave 32 bits.
        self.ends
            .push((self.keys.len() as u32, self.values.len() as u32));
    }

    fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + 8 * self.ends.len()
    }

    /// The entries in the order of their keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = StagedEntry<'_>> {
        let mut start = (0, 0);
        let mut entries = Vec::with_capacity(self.ends.len());
        for (key, value) in &self.ends {
            let end = (*key as usize, *value as usize);
            entries.push((&self.keys[start.0..end.0], &self.values[start.1..end.1]));
            start = end;
        }
        // Changes come sorted; of a key written twice the later entry counts.
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(b.0));
        }
        let mut entries = entries.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut entry = entries.next()?;
            while let Some(later) = entries.next_if(|later| later.0 == entry.0) {
                entry = later;
            }
            Some((entry.0, Some(entry.1)))
        })
    }
}

/// The entries of a generation that apply never reads.
#[derive(Default)]
pub(crate) struct WriteOnlyEntries {
    pub(crate) history: StagedRun,
    pub(crate) changes: StagedRun,
    pub(crate) postings: StagedRun,
    pub(crate) digests: StagedRun,
    pub(crate) meta: StagedRun,
}

impl PutEntries for WriteOnlyEntries {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        let run = match family {
            Family::History => &mut self.history,
            Family::Changes => &mut self.changes,
            Family::Postings => &mut self.postings,
            Family::Digests => &mut self.digests,
            Family::Meta => &mut self.meta,
            Family::Rows | Family::Index => {
                debug_assert!(false, "WriteOnlyEntries takes no rows");
                return;
            }
        };
        run.push(key, value);
    }
}

/// Everything that is staged for a generation.
#[derive(Default)]
pub(crate) struct Staged {
    pub(crate) rows: StagedRows,
    pub(crate) write_only: WriteOnlyEntries,
}

impl Staged {
    /// What it takes in memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let WriteOnlyEntries {
            history,
            changes,
            postings,
            digests,
            meta,
        } = &self.write_only;
        let runs = [history, changes, postings, digests, meta];
        self.rows.bytes + runs.iter().map(|run| run.bytes()).sum::<usize>()
    }
}

impl PutEntries for Staged {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        match family {
            Family::Rows | Family::Index => self.rows.set(family, key, Some(value)),
            _ => self.write_only.put(family, key, value),
        }
    }
}

impl WriteEntries for Staged {
    fn delete(&mut self, family: Family, key: &[u8]) {
        debug_assert!(matches!(family, Family::Rows | Family::Index));
        self.rows.set(family, key, None);
    }
}

/// A cursor over what is staged and the database under it, in key order; what is staged wins.
struct StagedCursor<'a> {
    staged: DirectedRange<'a, StagedKey, Option<Box<[u8]>>>,
    stored: Option<EntryCursor<'a>>,
    /// Whether the database's cursor stands on an entry that was not yet given.
    stored_pending: bool,
    reverse: bool,
    /// The staged entry it stands on; none: the database's.
    current: Option<(&'a [u8], &'a [u8])>,
}

impl DynCursor for StagedCursor<'_> {
    fn advance(&mut self) -> Result<bool, StorageError> {
        loop {
            if let Some(stored) = self.stored.as_mut().filter(|_| !self.stored_pending) {
                if stored.advance()? {
                    self.stored_pending = true;
                } else {
                    self.stored = None;
                }
            }
            let key = self.stored.as_ref().map(EntryCursor::key);
            let staged = self.staged.peek();
            let order = match (key, staged) {
                (None, None) => return Ok(false),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(key), Some((other, _))) if self.reverse => other.as_slice().cmp(key),
                (Some(key), Some((other, _))) => key.cmp(other.as_slice()),
            };
            if order.is_le() {
                self.stored_pending = false;
            }
            if order.is_lt() {
                self.current = None;
                return Ok(true);
            }
            let Some((key, value)) = staged else { continue };
            self.staged.next();
            if let Some(value) = value {
                self.current = Some((key, value));
                return Ok(true);
            }
        }
    }

    fn key(&self) -> &[u8] {
        match (self.current, &self.stored) {
            (Some((key, _)), _) => key,
            (None, Some(stored)) => stored.key(),
            (None, None) => &[],
        }
    }

    fn value(&self) -> &[u8] {
        match (self.current, &self.stored) {
            (Some((_, value)), _) => value,
            (None, Some(stored)) => stored.value(),
            (None, None) => &[],
        }
    }
}
