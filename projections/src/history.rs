//! `history`: ended versions of rows, and dead index entries.
//!
//! `0 ‖ table (u16 BE) ‖ key ‖ from (u64 BE)` → the version that began at `from`, with the index at
//! which it ended. The living version is in `rows` only: a row costs nothing here until it is
//! changed or deleted, and a deletion needs no tombstone beside the version it ends.
//!
//! `1 ‖ table (u16 BE) ‖ index (u8) ‖ group ‖ death (u64 BE) ‖ order ‖ key` → birth (varint).
//! A group as of N is its living entries with birth ≤ N and its dead ones with birth ≤ N < death.

use crate::db::Family;
use crate::error::StorageError;
use crate::key::{Key, KeyBuf};
use crate::layer::EventSink;
use crate::row::{self, Stored};
use crate::scan::{Range, Source, Walk};
use crate::table::{Entry, Index, Table};

const VERSION: u8 = 0;
const DEAD: u8 = 1;

fn version_prefix(table: u16, key: &[u8]) -> KeyBuf {
    let mut out = KeyBuf::new();
    out.push(VERSION);
    out.extend_from_slice(&table.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// Writes the version that an event ends, and the entries that go with it.
pub(crate) fn end_version<T: Table>(
    key: &[u8],
    base: &Stored<T>,
    state: Option<&Stored<T>>,
    sink: &mut EventSink<'_>,
) -> Result<(), StorageError> {
    let family = sink.db.family(Family::History);
    let mut at = version_prefix(T::ID, key);
    base.modified.encode(&mut at);
    sink.scratch.clear();
    row::write_past(
        sink.scratch,
        sink.index,
        state.is_none(),
        base.body(sink.canonical)?,
    );
    sink.batch.put_cf(family, &at, &*sink.scratch);
    for (entry, birth) in base.entries.list.iter().zip(&base.births) {
        if state.is_none_or(|state| state.birth(&entry.bytes).is_none()) {
            sink.scratch.clear();
            row::varint(sink.scratch, *birth);
            let dead = dead_key(T::ID, entry, sink.index);
            sink.batch.put_cf(family, &dead, &*sink.scratch);
        }
    }
    Ok(())
}

fn dead_key(table: u16, entry: &Entry, death: u64) -> KeyBuf {
    let (group, rest) = entry.bytes.split_at(usize::from(entry.group_end));
    let mut out = KeyBuf::new();
    out.push(DEAD);
    out.extend_from_slice(&table.to_be_bytes());
    out.extend_from_slice(group);
    death.encode(&mut out);
    out.extend_from_slice(rest);
    out
}

/// The row as of an index: none if it did not exist then.
pub(crate) fn at<T: Table>(
    source: Source<'_>,
    key: &[u8],
    living: Option<&[u8]>,
    index: u64,
) -> Result<Option<T::Row>, StorageError> {
    if let Some(value) = living {
        let (modified, _, body) = row::split(key, value)?;
        if modified <= index {
            return row::decode_body::<T>(key, body).map(Some);
        }
    }
    let lower = version_prefix(T::ID, key);
    let mut upper = lower.clone();
    index.saturating_add(1).encode(&mut upper);
    let range = Range {
        lower: lower.to_vec(),
        upper: Some(upper.to_vec()),
        reverse: true,
    };
    let mut walk = source.walk(Family::History, range);
    if !walk.advance()? {
        return Ok(None);
    }
    let (until, _, body) = row::split_past(walk.key(), walk.value())?;
    if until <= index {
        return Ok(None);
    }
    row::decode_body::<T>(key, body).map(Some)
}

/// One version of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Version<R> {
    /// The index of the event that wrote it.
    pub from: u64,
    /// The index of the event that ended it; none while it lives.
    pub until: Option<u64>,
    /// Whether that event deleted the row.
    pub deleted: bool,
    /// The row.
    pub row: R,
}

/// The ended versions of a row, oldest first.
pub(crate) fn versions<T: Table>(
    source: Source<'_>,
    key: &[u8],
) -> Result<Vec<Version<T::Row>>, StorageError> {
    let prefix = version_prefix(T::ID, key);
    let range = Range {
        upper: crate::key::prefix_end(&prefix),
        lower: prefix.to_vec(),
        reverse: false,
    };
    let mut walk = source.walk(Family::History, range);
    let mut versions = Vec::new();
    while walk.advance()? {
        let damaged = || StorageError::damaged("past row", walk.key());
        let tail = &walk.key()[prefix.len()..];
        let from = u64::from_be_bytes(tail.try_into().map_err(|_| damaged())?);
        let (until, deleted, body) = row::split_past(walk.key(), walk.value())?;
        versions.push(Version {
            from,
            until: Some(until),
            deleted,
            row: row::decode_body::<T>(key, body)?,
        });
    }
    Ok(versions)
}

/// Calls `note` with every index from `first` on at which a version of the row began, and with
/// that of its deletion. The living version's is in `rows`.
pub(crate) fn moments(
    source: Source<'_>,
    table: u16,
    key: &[u8],
    first: u64,
    mut note: impl FnMut(u64),
) -> Result<(), StorageError> {
    let prefix = version_prefix(table, key);
    let range = Range {
        upper: crate::key::prefix_end(&prefix),
        lower: prefix.to_vec(),
        reverse: true,
    };
    let mut walk = source.walk(Family::History, range);
    while walk.advance()? {
        let from = walk.key().last_chunk::<8>().copied();
        let from = from.ok_or_else(|| StorageError::damaged("past row", walk.key()))?;
        let (until, deleted, _) = row::split_past(walk.key(), walk.value())?;
        if deleted {
            note(until);
        }
        if until < first {
            break;
        }
        note(u64::from_be_bytes(from));
    }
    Ok(())
}

/// The entries of a group that died at `first` or later, whenever they were born: order ‖ key.
pub(crate) fn dead_since<I: Index>(
    source: Source<'_>,
    group: &[u8],
    first: u64,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let (mut walk, group_end) = walk_dead::<I>(source, group, first);
    let mut entries = Vec::new();
    while walk.advance()? {
        entries.push(walk.key()[group_end + 8..].to_vec());
    }
    Ok(entries)
}

/// The dead entries of a group from a death on, and where the group ends in their keys.
fn walk_dead<'a, I: Index>(source: Source<'a>, group: &[u8], death: u64) -> (Walk<'a>, usize) {
    let mut lower = KeyBuf::new();
    lower.push(DEAD);
    lower.extend_from_slice(&I::Table::ID.to_be_bytes());
    lower.push(I::NO);
    lower.extend_from_slice(group);
    let upper = crate::key::prefix_end(&lower);
    let group_end = lower.len();
    death.encode(&mut lower);
    let range = Range {
        lower: lower.to_vec(),
        upper,
        reverse: false,
    };
    (source.walk(Family::History, range), group_end)
}

/// The entries of a group that died after an index and were born at or before it: order ‖ key.
pub(crate) fn dead_entries<I: Index>(
    source: Source<'_>,
    group: &[u8],
    index: u64,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let (mut walk, group_end) = walk_dead::<I>(source, group, index.saturating_add(1));
    let mut entries = Vec::new();
    while walk.advance()? {
        let birth = row::take_varint(&mut walk.value());
        if birth.ok_or_else(|| StorageError::damaged("dead entry", walk.key()))? <= index {
            entries.push(walk.key()[group_end + 8..].to_vec());
        }
    }
    Ok(entries)
}
