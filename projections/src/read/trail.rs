//! What an audit asks: any row by its table's number, when a row changed, and what differs between
//! two indexes.
//!
//! Keys are encoded, as a [`Change`](crate::Change) carries them, and rows are JSON with the names
//! of the model, so that whoever asks needs no table's type. Who asks says how values with a
//! class are shown.
//!
//! Only tables with full history have a past; of the others nothing is told.

use std::collections::BTreeSet;

use drover_events::mask::Redact;
use serde_json::Value;

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Id, Key};
use crate::engine::registry::TableInfo;
use crate::engine::row;
use crate::engine::scan::{Prefix, Range, Scan, ScanSource, Walk};
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
        match self.history() {
            History::Full => {}
            History::Derived | History::None => return Ok(None),
        }
        let stored = [&self.id().to_be_bytes(), key].concat();
        let living = view.visible.frozen.get(Family::Rows, &stored)?;
        let shown = |body: &[u8]| self.json(key, body, Some(redact));
        let at = (self.id(), key);
        let found = history::at(view.source(), at, living.as_deref(), index, shown)?;
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

/// A row of one side of a comparison: its key, its modify index, its stored bytes.
type Side = Option<(Vec<u8>, u64, Vec<u8>)>;

fn side(walk: &mut Walk<'_>) -> Result<Side, StorageError> {
    if !walk.advance()? {
        return Ok(None);
    }
    let key = &walk.key()[2..];
    let (modified, _, body) = row::split(key, walk.value())?;
    Ok(Some((key.to_vec(), modified, body.to_vec())))
}

/// Walks both states side by side. Rows written by the same event are equal and not decoded.
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
            (Some(left), Some(right)) if order.is_eq() => left.1 == right.1 || left.2 == right.2,
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
    pub fn moments_of(
        &self,
        table: u16,
        key: &[u8],
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        let last = self.index();
        let mut found = BTreeSet::new();
        let mut note = |index: u64| {
            if (first..=last).contains(&index) {
                found.insert(index);
            }
        };
        let stored = [&table.to_be_bytes(), key].concat();
        if let Some(value) = self.visible.frozen.get(Family::Rows, &stored)? {
            note(row::modified(&value).ok_or_else(|| StorageError::damaged("row", key))?);
        }
        history::moments(self.source(), table, key, first, note)?;
        Ok(found)
    }

    /// As [`View::moments_of`], by the key itself.
    pub fn moments<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        self.moments_of(T::ID, &encoded::<T>(key), first)
    }

    /// The encoded keys with this prefix that rows of the table have or ever had, in order, `limit`
    /// at most.
    pub fn keys_ever<T: Table>(
        &self,
        prefix: Prefix,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        self.keys_in::<T>(&Scan::prefix(prefix), limit)
    }

    /// The identifiers that begin so and that rows of the table have or ever had, `limit` at most.
    pub fn ids_ever<T: Table<Key = Id>>(
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
        let frozen = ScanSource::Frozen(&self.visible.frozen);
        let table = T::ID.to_be_bytes();
        let mut keys = BTreeSet::new();
        let mut living = frozen.walk(Family::Rows, scan.absolute(&table));
        while keys.len() < limit && living.advance()? {
            keys.insert(living.key()[table.len()..].to_vec());
        }
        let range = scan.absolute(&table);
        let range = Range {
            lower: history::version_key(&range.lower, &[]),
            upper: range.upper.as_deref().map(history::version_bound),
            reverse: false,
        };
        let mut ended = frozen.walk(Family::History, range);
        let mut gone = BTreeSet::new();
        while gone.len() < limit && ended.advance()? {
            let Some(key) = history::key_of_version(ended.key()) else {
                break;
            };
            gone.insert(key[table.len()..].to_vec());
        }
        keys.append(&mut gone);
        Ok(keys.into_iter().take(limit).collect())
    }
}
