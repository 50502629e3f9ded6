//! A consistent read of all projections at one applied index.
//!
//! Views are cheap: all of one index share a database snapshot. A view pins what it sees, so it
//! lives two seconds at most; a reader that waits or writes slowly takes a new one.

use std::sync::Arc;

use drover_events::Topic;

use crate::engine::db::{Database, DbSnapshot, Family};
use crate::engine::digest::{Sums, TableDigest};
use crate::engine::error::StorageError;
use crate::engine::key::AsKey;
use crate::engine::layer::absolute;
use crate::engine::outcome::{Rejection, outcome_key};
use crate::engine::position::Position;
use crate::engine::registry::Registry;
use crate::engine::row;
use crate::engine::scan::{EntryCursor, Range, Scan, ScanSource};
use crate::engine::table::{History, Index, Table};
use crate::engine::txn::{ReadRows, Rows, encoded, primary_key};
use crate::past::changes::{self, Change};
use crate::past::history::{self, Version};
use crate::past::walks::{PastEntries, PastRows};

/// What is visible at one index.
pub(crate) struct Visible {
    pub(crate) db_snapshot: DbSnapshot,
    pub(crate) position: Position,
    pub(crate) digests: Sums,
    pub(crate) tables: Vec<u64>,
    pub(crate) registry: &'static Registry,
}

impl Visible {
    pub(crate) fn new(
        db: &Arc<Database>,
        position: Position,
        digests: Sums,
        tables: Vec<u64>,
        registry: &'static Registry,
    ) -> Self {
        Self {
            db_snapshot: DbSnapshot::new(Arc::clone(db)),
            position,
            digests,
            tables,
            registry,
        }
    }
}

/// A consistent read at one applied index. Cloning is free.
#[derive(Clone)]
pub struct View {
    /// How often the tables had been made again, read before what they hold was: tables are shown
    /// before they are counted, so it may be too old, and is never too new.
    pub(crate) made: u64,
    pub(crate) visible: Arc<Visible>,
    pub(crate) past: Option<Past>,
}

/// The earlier event after which a view shows the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    index: u64,
    time: i64,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("index", &self.index())
            .finish_non_exhaustive()
    }
}

impl View {
    /// This view, as the state was after the event at `index`, whose time is `time` (Unix
    /// nanoseconds); none if that was not applied yet, or if the past does not reach so far back
    /// here ([`Position::floor`]). Rows, indexes and walks are of the past then, but for tables
    /// whose past is not kept ([`crate::table::History`]): those are empty.
    pub fn as_of(&self, index: u64, time: i64) -> Option<Self> {
        let (newest, floor) = (self.visible.position.index, self.visible.position.floor);
        let past = (index < newest).then_some(Past { index, time });
        (floor..=newest).contains(&index).then(|| Self {
            made: self.made,
            visible: Arc::clone(&self.visible),
            past,
        })
    }

    /// The newest state that this view knows.
    #[must_use]
    pub fn present(&self) -> Self {
        Self {
            made: self.made,
            visible: Arc::clone(&self.visible),
            past: None,
        }
    }

    /// How often the tables had been made again when it was taken, at least: what a reader finds in
    /// this view may be otherwise in any whose number is another.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Whether this view shows an earlier state than the newest it knows.
    pub fn is_past(&self) -> bool {
        self.past.is_some()
    }

    /// The index that the view shows: the last applied one, unless it is of the past.
    pub fn index(&self) -> u64 {
        self.past
            .map_or(self.visible.position.index, |past| past.index)
    }

    /// The time of the last event that the view shows, Unix nanoseconds.
    pub fn time(&self) -> i64 {
        self.past
            .map_or(self.visible.position.time, |past| past.time)
    }

    /// Index, term, time and membership of what is applied, whatever the view shows of it.
    pub fn position(&self) -> Position {
        self.visible.position
    }

    /// The index of the last event that changed the table; 0 for an untouched one. A view of the
    /// past answers with its own index where the table changed since.
    pub fn table_index<T: Table>(&self) -> u64 {
        self.last_changed_at(T::ID)
    }

    /// As [`View::table_index`], by the table's number.
    pub fn last_changed_at(&self, table: u16) -> u64 {
        let tables = &self.visible.tables;
        tables
            .get(usize::from(table))
            .map_or(0, |index| self.index().min(*index))
    }

    pub(crate) fn source(&self) -> ScanSource<'_> {
        ScanSource::Snapshot(&self.visible.db_snapshot)
    }

    /// A walk over rows as the view shows them.
    pub(crate) fn walk_rows(&self, range: Range) -> EntryCursor<'_> {
        match self.past {
            Some(past) => PastRows::new(&self.visible.db_snapshot, range, past.index).into_walk(),
            None => self.source().walk(Family::Rows, range),
        }
    }

    /// Whether a view of the past has nothing of a table.
    fn forgot<T: Table>(&self) -> bool {
        self.past.is_some() && T::HISTORY != History::Full
    }

    /// The row with this key.
    pub fn get<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<Option<T::Row>, StorageError> {
        Ok(self.get_modified::<T>(key)?.map(|(row, _)| row))
    }

    /// The row with this key and the index of the event that wrote it.
    pub fn get_modified<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Option<(T::Row, u64)>, StorageError> {
        self.get_encoded::<T>(&encoded::<T>(key))
    }

    pub(crate) fn get_encoded<T: Table>(
        &self,
        key: &[u8],
    ) -> Result<Option<(T::Row, u64)>, StorageError> {
        if self.forgot::<T>() {
            return Ok(None);
        }
        let value = self
            .visible
            .db_snapshot
            .get(Family::Rows, &absolute::<T>(key))?;
        if let Some(past) = self.past {
            let decode = |body: &[u8]| row::decode_body::<T>(key, body);
            let at = (T::ID, key);
            return history::at(self.source(), at, value.as_deref(), past.index, decode);
        }
        let Some(value) = value else {
            return Ok(None);
        };
        let (modified, _, body) = row::split(key, &value)?;
        Ok(Some((row::decode_body::<T>(key, body)?, modified)))
    }

    /// The index of the event that last wrote the row, without decoding it.
    pub fn modify_index<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Option<u64>, StorageError> {
        self.modified_encoded::<T>(&encoded::<T>(key))
    }

    /// Whether there is such a row, without decoding it.
    pub fn contains<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<bool, StorageError> {
        Ok(self.modify_index::<T>(key)?.is_some())
    }

    pub(crate) fn modified_encoded<T: Table>(
        &self,
        key: &[u8],
    ) -> Result<Option<u64>, StorageError> {
        if self.past.is_some() {
            return Ok(self.get_encoded::<T>(key)?.map(|(_, modified)| modified));
        }
        let value = self
            .visible
            .db_snapshot
            .get(Family::Rows, &absolute::<T>(key))?;
        Ok(value.and_then(|value| row::modified(&value)))
    }

    /// The guard that says the row is as this view sees it, or absent as it is here.
    pub fn guard<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<drover_events::Guard, StorageError> {
        let key = encoded::<T>(key);
        let modified = self.modified_encoded::<T>(&key)?;
        let (table, key) = (T::ID, bytes::Bytes::copy_from_slice(&key));
        Ok(match modified {
            Some(index) => drover_events::Guard::RowAt { table, key, index },
            None => drover_events::Guard::RowAbsent { table, key },
        })
    }

    /// The rows of a range of the table, in key order.
    pub fn scan<T: Table>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<T::Row, StorageError>> + '_ {
        let mut cursor = self.cursor::<T>(&scan);
        std::iter::from_fn(move || cursor.next_row().transpose())
    }

    /// The rows of one group of an index, in the index's order.
    pub fn by_index<I: Index>(&self, group: impl AsKey<I::Group>) -> Found<'_, I::Table> {
        Box::new(self.by_index_scan::<I>(Scan::with_key_prefix(group)))
    }

    /// The rows of a range of an index: keys are group ‖ order ‖ primary key.
    pub fn by_index_scan<I: Index>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<<I::Table as Table>::Row, StorageError>> + '_ {
        let mut cursor = self.index_cursor::<I>(&scan);
        std::iter::from_fn(move || cursor.next_row().transpose())
    }

    /// The rows of a range of the table with their encoded keys.
    pub fn scan_keyed<T: Table>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<(Vec<u8>, T::Row), StorageError>> + '_ {
        let mut cursor = self.cursor::<T>(&scan);
        std::iter::from_fn(move || cursor.next_keyed().transpose())
    }

    /// The rows of a range of an index with the encoded keys of their entries.
    pub fn by_index_keyed<I: Index>(
        &self,
        scan: Scan,
    ) -> impl Iterator<Item = Result<(Vec<u8>, <I::Table as Table>::Row), StorageError>> + '_ {
        let mut cursor = self.index_cursor::<I>(&scan);
        std::iter::from_fn(move || cursor.next_keyed().transpose())
    }

    /// A walk over a range of the table that decodes only what its caller reads.
    pub fn cursor<T: Table>(&self, scan: &Scan) -> Cursor<'_, T> {
        let mut range = scan.absolute(&T::ID.to_be_bytes());
        if self.forgot::<T>() {
            range.upper = Some(range.lower.clone());
        }
        Cursor {
            walk: self.walk_rows(range),
            table: std::marker::PhantomData,
        }
    }

    /// A walk over a range of an index that reads only the rows its caller wants.
    pub fn index_cursor<I: Index>(&self, scan: &Scan) -> IndexCursor<'_, I> {
        let walk = match self.past {
            Some(_) => Entries::Unopened(scan.clone()),
            None => {
                let [high, low] = I::Table::ID.to_be_bytes();
                let range = scan.absolute(&[high, low, I::NO]);
                Entries::Present(self.source().walk(Family::Index, range))
            }
        };
        IndexCursor {
            view: self,
            walk,
            index: std::marker::PhantomData,
        }
    }

    /// The digests of all tables, by number.
    pub fn digests(&self) -> Vec<TableDigest> {
        let tables = self.visible.registry.tables();
        tables
            .map(|table| TableDigest {
                table: table.id(),
                name: table.name(),
                digest: self.visible.digests.get(table.id()),
            })
            .collect()
    }

    /// The digests as they were kept at a multiple of 1,024; none if that index was not applied
    /// here.
    pub fn digests_at(&self, index: u64) -> Result<Option<Vec<TableDigest>>, StorageError> {
        let key = index.to_be_bytes();
        let Some(value) = self.visible.db_snapshot.get(Family::Digests, &key)? else {
            return Ok(None);
        };
        let digests = Sums::decode(&value).ok_or_else(|| StorageError::damaged("digests", &key))?;
        let tables = self.visible.registry.tables();
        let digests = tables.map(|table| TableDigest {
            table: table.id(),
            name: table.name(),
            digest: digests.get(table.id()),
        });
        Ok(Some(digests.collect()))
    }

    /// The digest of the table with this number, computed again from all of its rows.
    pub fn digest_of_rows(
        &self,
        table: u16,
    ) -> Result<crate::engine::digest::Digest, StorageError> {
        let prefix = table.to_be_bytes();
        let mut walk = self.walk_rows(Scan::all().absolute(&prefix));
        let mut sum = crate::engine::digest::Digest::default();
        while walk.advance()? {
            let key = &walk.key()[2..];
            let body = row::body(key, walk.value())?;
            sum.add(&crate::engine::digest::Digest::of_row(table, key, body));
        }
        Ok(sum)
    }

    /// The row as it was after the event at `index`; for tables with full history, at or above the
    /// horizon.
    pub fn get_at<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
        index: u64,
    ) -> Result<Option<T::Row>, StorageError> {
        self.get_at_encoded::<T>(&encoded::<T>(key), index)
    }

    /// As [`View::get_at`], by an encoded key as a [`Change`] carries it.
    pub fn get_at_encoded<T: Table>(
        &self,
        key: &[u8],
        index: u64,
    ) -> Result<Option<T::Row>, StorageError> {
        let living = self
            .visible
            .db_snapshot
            .get(Family::Rows, &absolute::<T>(key))?;
        let decode = |body: &[u8]| row::decode_body::<T>(key, body);
        let at = (T::ID, key);
        let found = history::at(self.source(), at, living.as_deref(), index, decode)?;
        Ok(found.map(|(row, _)| row))
    }

    /// Every version of a row, oldest first, the living one last.
    pub fn versions<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Vec<Version<T::Row>>, StorageError> {
        let key = encoded::<T>(key);
        let mut versions = history::versions::<T>(self.source(), &key)?;
        if let Some((row, from)) = self.get_encoded::<T>(&key)? {
            versions.push(Version {
                from,
                until: None,
                deleted: false,
                row,
            });
        }
        Ok(versions)
    }

    /// What the events from `first` on changed, one event at a time, up to this view's index.
    pub fn changes(
        &self,
        first: u64,
    ) -> impl Iterator<Item = Result<Vec<Change>, StorageError>> + '_ {
        changes::walk(self.source(), first, self.index())
    }

    /// The indexes posted under a stream key (or `*`, for changes by rule) from `first` on.
    pub fn postings(
        &self,
        topic: Topic,
        namespace: &str,
        key: &str,
        first: u64,
    ) -> impl Iterator<Item = Result<u64, StorageError>> + '_ {
        changes::postings(self.source(), (topic, namespace, key), first)
    }

    /// Why the event at this index changed nothing; none if it was applied.
    pub fn rejection(&self, index: u64) -> Result<Option<Rejection>, StorageError> {
        let key = outcome_key(index);
        let Some(value) = self.visible.db_snapshot.get(Family::Meta, &key)? else {
            return Ok(None);
        };
        rmp_serde::from_slice(&value)
            .map(Some)
            .map_err(|_| StorageError::damaged("outcome", &key))
    }
}

impl ReadRows for View {
    fn row<T: Table>(&self, key: impl AsKey<T::Key>) -> Result<Option<Arc<T::Row>>, StorageError> {
        Ok(self.get::<T>(key)?.map(Arc::new))
    }

    fn rows<T: Table>(&self, scan: Scan) -> Rows<'_, T> {
        Box::new(self.scan::<T>(scan).map(|row| row.map(Arc::new)))
    }

    fn rows_by<I: Index>(&self, scan: Scan) -> Rows<'_, I::Table> {
        Box::new(self.by_index_scan::<I>(scan).map(|row| row.map(Arc::new)))
    }
}

/// Rows a view found.
pub type Found<'a, T> = Box<dyn Iterator<Item = Result<<T as Table>::Row, StorageError>> + 'a>;

/// A walk over a table's rows.
pub struct Cursor<'a, T> {
    walk: EntryCursor<'a>,
    table: std::marker::PhantomData<T>,
}

/// A row under a cursor, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// The encoded key.
    pub key: &'a [u8],
    value: &'a [u8],
}

impl<T: Table> Cursor<'_, T> {
    /// The next row, not decoded.
    pub fn advance(&mut self) -> Result<Option<RowRef<'_>>, StorageError> {
        if !self.walk.advance()? {
            return Ok(None);
        }
        Ok(Some(RowRef {
            key: &self.walk.key()[2..],
            value: self.walk.value(),
        }))
    }

    /// The next row, decoded.
    pub fn next_row(&mut self) -> Result<Option<T::Row>, StorageError> {
        self.advance()?.map(|row| row.decode::<T>()).transpose()
    }

    /// The next row and its encoded key.
    fn next_keyed(&mut self) -> Result<Option<Keyed<T::Row>>, StorageError> {
        let row = self.advance()?;
        row.map(|row| Ok((row.key.to_vec(), row.decode::<T>()?)))
            .transpose()
    }
}

/// A row behind its key: of the table, or of the index it was found by.
type Keyed<R> = (Vec<u8>, R);

impl RowRef<'_> {
    /// The index of the event that wrote it.
    pub fn modified(&self) -> Result<u64, StorageError> {
        row::modified(self.value).ok_or_else(|| StorageError::damaged("row", self.key))
    }

    /// Its canonical MessagePack.
    pub fn body(&self) -> Result<&[u8], StorageError> {
        row::body(self.key, self.value)
    }

    /// The row.
    pub fn decode<T: Table>(&self) -> Result<T::Row, StorageError> {
        row::decode_body::<T>(self.key, self.body()?)
    }
}

/// A walk over an index.
pub struct IndexCursor<'a, I> {
    pub(crate) view: &'a View,
    walk: Entries<'a>,
    index: std::marker::PhantomData<I>,
}

/// Where an index cursor's entries come from.
enum Entries<'a> {
    Present(EntryCursor<'a>),
    /// A walk over the past that has read nothing yet.
    Unopened(Scan),
    Past(Box<PastEntries<'a>>),
}

/// An index entry under a cursor.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'a> {
    /// group ‖ order ‖ primary key.
    pub key: &'a [u8],
    /// The primary key.
    pub primary: &'a [u8],
}

impl<I: Index> IndexCursor<'_, I> {
    /// The next entry; its row is not read.
    pub fn advance(&mut self) -> Result<Option<EntryRef<'_>>, StorageError> {
        if let (Entries::Unopened(scan), Some(past)) = (&self.walk, self.view.past)
            && I::Table::HISTORY == History::Full
        {
            let entries = PastEntries::new::<I>(&self.view.visible.db_snapshot, scan, past.index)?;
            self.walk = Entries::Past(Box::new(entries));
        }
        let key = match &mut self.walk {
            Entries::Unopened(_) => return Ok(None),
            Entries::Present(walk) => {
                if !walk.advance()? {
                    return Ok(None);
                }
                &walk.key()[3..]
            }
            Entries::Past(walk) => {
                if !walk.advance()? {
                    return Ok(None);
                }
                walk.key()
            }
        };
        Ok(Some(EntryRef {
            key,
            primary: primary_key::<I>(key)?,
        }))
    }

    /// The row of the next entry.
    pub fn next_row(&mut self) -> Result<Option<<I::Table as Table>::Row>, StorageError> {
        let view = self.view;
        let entry = self.advance()?;
        entry.map(|entry| entry.row::<I>(view)).transpose()
    }

    /// The row of the next entry, and the entry's key.
    fn next_keyed(&mut self) -> Result<Option<Keyed<<I::Table as Table>::Row>>, StorageError> {
        let view = self.view;
        let entry = self.advance()?;
        entry
            .map(|entry| Ok((entry.key.to_vec(), entry.row::<I>(view)?)))
            .transpose()
    }
}

impl EntryRef<'_> {
    fn row<I: Index>(&self, view: &View) -> Result<<I::Table as Table>::Row, StorageError> {
        match view.get_encoded::<I::Table>(self.primary)? {
            Some((row, _)) => Ok(row),
            None => Err(StorageError::damaged("index entry (no row)", self.key)),
        }
    }
}
