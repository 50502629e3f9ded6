//! What an audit reads: any row by its table's number, when a row changed, and what differs between
//! two indexes.
//!
//! Keys are encoded, as a [`Change`](crate::Change) carries them, and rows are JSON with the names
//! of the model, so that the caller needs no table's type. The caller passes how values with a
//! class are shown ([`Redact`]).
//!
//! Only tables with full history have a past. For other tables the functions return nothing.

use std::collections::BTreeSet;

use drover_events::mask::Redact;
use serde_json::Value;

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Id, Key};
use crate::engine::registry::TableInfo;
use crate::engine::row;
use crate::engine::scan::{EntryCursor, Prefix, Range, Scan, ScanSource};
use crate::engine::table::{History, Table};
use crate::engine::txn::encoded;
use crate::past::history;
use crate::read::view::View;

/// How much a comparison may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Rows it may look at.
    pub rows: u64,
    /// Differing keys it may find.
    pub keys: usize,
}

/// Where a comparison of two states stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparisonPage {
    /// The encoded keys of rows that differ, in order.
    pub keys: Vec<Vec<u8>>,
    /// The last key looked at, where the budget ended before the table did.
    pub last: Option<Vec<u8>>,
}

impl TableInfo {
    /// The row with this encoded key after the event at `index`, as JSON, its confidential values
    /// as `redact` shows them; none where it did not exist, or where the table's past is not kept.
    pub fn row_at(
        &self,
        view: &View,
        key: &[u8],
        index: u64,
        redact: &dyn Redact,
    ) -> Result<Option<Value>, StorageError> {
        let shown = |body: &[u8]| self.json(key, body, Some(redact));
        self.read_at(view, key, index, shown)
    }

    /// Whether [`Self::row_at`] has a row; the row itself is not decoded.
    pub fn existed_at(&self, view: &View, key: &[u8], index: u64) -> Result<bool, StorageError> {
        let found = self.read_at(view, key, index, |_| Ok(()))?;
        Ok(found.is_some())
    }

    fn read_at<R>(
        &self,
        view: &View,
        key: &[u8],
        index: u64,
        decode: impl FnOnce(&[u8]) -> Result<R, StorageError>,
    ) -> Result<Option<R>, StorageError> {
        match self.history() {
            History::Full => {}
            History::Derived | History::None => return Ok(None),
        }
        let stored = [&self.id().to_be_bytes(), key].concat();
        let live = view.visible.db_snapshot.get(Family::Rows, &stored)?;
        let at = (self.id(), key);
        let found = history::at(view.source(), at, live.as_deref(), index, decode)?;
        Ok(found.map(|(row, _)| row))
    }

    /// The keys above one (encoded; none: all) whose rows differ between two views.
    pub fn differing(
        &self,
        before: &View,
        after: &View,
        above: Option<&[u8]>,
        budget: &mut Budget,
    ) -> Result<ComparisonPage, StorageError> {
        match self.history() {
            History::Full => differing(self.id(), (before, after), above, budget),
            History::Derived | History::None => Ok(ComparisonPage::default()),
        }
    }
}

/// A row of one side of a comparison: its key, and where it can be read its modify index and its
/// stored bytes.
type Side = Option<(Vec<u8>, Option<(u64, Vec<u8>)>)>;

fn side(walk: &mut EntryCursor<'_>) -> Result<Side, StorageError> {
    let found = match walk.advance() {
        Ok(false) => return Ok(None),
        Ok(true) => row::split(&walk.key()[2..], walk.value())
            .map(|(modified, _, body)| (modified, body.to_vec())),
        Err(error) => Err(error),
    };
    let read = match found {
        Ok(read) => Some(read),
        // The walk stands at it, and goes on behind it.
        Err(error) if error.is_single_entry() && walk.key().len() >= 2 => None,
        Err(error) => return Err(error),
    };
    Ok(Some((walk.key()[2..].to_vec(), read)))
}

/// Walks both states side by side. Rows written by the same event are equal and not decoded; one
/// that cannot be read equals none.
fn differing(
    table: u16,
    (before, after): (&View, &View),
    above: Option<&[u8]>,
    budget: &mut Budget,
) -> Result<ComparisonPage, StorageError> {
    let mut found = ComparisonPage::default();
    let scan = match above {
        None => Scan::all(),
        Some(key) => Scan::all().after(key),
    };
    let range = scan.absolute(&table.to_be_bytes());
    let (mut old, mut new) = (before.walk_rows(range.clone()), after.walk_rows(range));
    let (mut left, mut right) = (side(&mut old)?, side(&mut new)?);
    while left.is_some() || right.is_some() {
        let order = match (&left, &right) {
            (Some((left, ..)), Some((right, ..))) => left.cmp(right),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        let equal = match (&left, &right) {
            (Some((_, Some(left))), Some((_, Some(right)))) if order.is_eq() => {
                left.0 == right.0 || left.1 == right.1
            }
            _ => false,
        };
        let at = if order.is_le() { &left } else { &right };
        let key = at.as_ref().map(|(key, ..)| key.clone()).unwrap_or_default();
        if !equal {
            found.keys.push(key.clone());
            budget.keys = budget.keys.saturating_sub(1);
        }
        budget.rows = budget.rows.saturating_sub(1);
        if order.is_le() {
            left = side(&mut old)?;
        }
        if order.is_ge() {
            right = side(&mut new)?;
        }
        let more = left.is_some() || right.is_some();
        if more && (budget.keys == 0 || budget.rows == 0) {
            found.last = Some(key);
            break;
        }
    }
    Ok(found)
}

impl View {
    /// The indexes from `first` on, up to this view's, at which the row with this encoded key of
    /// a table was written or deleted.
    pub fn change_indexes_of(
        &self,
        table: u16,
        key: &[u8],
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        let last = self.index();
        let mut found = BTreeSet::new();
        let mut add = |index: u64| {
            if (first..=last).contains(&index) {
                found.insert(index);
            }
        };
        let stored = [&table.to_be_bytes(), key].concat();
        if let Some(value) = self.visible.db_snapshot.get(Family::Rows, &stored)? {
            add(row::modified(&value).ok_or_else(|| StorageError::damaged("row", key))?);
        }
        history::change_indexes(self.source(), table, key, first, add)?;
        Ok(found)
    }

    /// As [`View::change_indexes_of`], by the key itself.
    pub fn change_indexes<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        self.change_indexes_of(T::ID, &encoded::<T>(key), first)
    }

    /// The encoded keys with this prefix of rows of the table, deleted ones included, in order,
    /// `limit` at most.
    pub fn keys_including_deleted<T: Table>(
        &self,
        prefix: Prefix,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        self.keys_in::<T>(&Scan::prefix(prefix), limit)
    }

    /// The identifiers that begin with `text` of rows of the table, deleted ones included, `limit`
    /// at most.
    pub fn ids_including_deleted<T: Table<Key = Id>>(
        &self,
        text: &str,
        limit: usize,
    ) -> Result<Vec<String>, StorageError> {
        let mut ids = Vec::new();
        for scan in Scan::id_prefix(&Prefix::new(), text) {
            for key in self.keys_in::<T>(&scan, limit)? {
                let id = Id::from_bytes(&key).map_err(|_| StorageError::damaged("key", &key))?;
                ids.push(id.into_string());
            }
        }
        ids.truncate(limit);
        Ok(ids)
    }

    fn keys_in<T: Table>(&self, scan: &Scan, limit: usize) -> Result<Vec<Vec<u8>>, StorageError> {
        let db_snapshot = ScanSource::Snapshot(&self.visible.db_snapshot);
        let table = T::ID.to_be_bytes();
        let mut keys = BTreeSet::new();
        let mut live = db_snapshot.walk(Family::Rows, scan.absolute(&table));
        while keys.len() < limit && live.advance()? {
            keys.insert(live.key()[table.len()..].to_vec());
        }
        let range = scan.absolute(&table);
        let range = Range {
            lower: history::version_key(&range.lower, &[]),
            upper: range.upper.as_deref().map(history::version_bound),
            reverse: false,
        };
        let mut versions = db_snapshot.walk(Family::History, range);
        let mut old_keys = BTreeSet::new();
        while old_keys.len() < limit && versions.advance()? {
            let Some(key) = history::key_of_version(versions.key()) else {
                break;
            };
            old_keys.insert(key[table.len()..].to_vec());
        }
        keys.append(&mut old_keys);
        Ok(keys.into_iter().take(limit).collect())
    }
}
