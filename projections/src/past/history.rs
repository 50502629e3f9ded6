//! `history`: ended versions of rows, and dead index entries.
//!
//! `0 ‖ table (u16 BE) ‖ key ‖ from (u64 BE)` → the version that began at `from`, with the index at
//! which it ended. The living version is in `rows` only: a row costs nothing here until it is
//! changed or deleted, and a deletion needs no tombstone beside the version it ends. Its value is
//! format (1) ‖ index at which it ended (u64 LE) ‖ 1 if it ended by deletion ‖ canonical row.
//!
//! `1 ‖ table (u16 BE) ‖ index (u8) ‖ group ‖ death (u64 BE) ‖ order ‖ key` → birth (varint).
//! A group as of N is its living entries with birth ≤ N and its dead ones with birth ≤ N < death.
//!
//! `2 ‖ …`: which rows were live at some indexes (`alive`).

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::key::{Key, KeyBuf};
use crate::engine::registry::Registry;
use crate::engine::row;
use crate::engine::scan::{EntryCursor, Range, ScanSource};
use crate::engine::table::{Index, IndexEntry, Table};

const VERSION: u8 = 0;
const DEAD: u8 = 1;
/// What the value of a version begins with.
const FORMAT: u8 = 1;

fn version_prefix(table: u16, key: &[u8]) -> KeyBuf {
    let mut out = KeyBuf::new();
    out.push(VERSION);
    out.extend_from_slice(&table.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// `0 ‖ table ‖ key ‖ tail`: where versions of a row lie; `at` is table ‖ key.
pub(crate) fn version_key(at: &[u8], tail: &[u8]) -> Vec<u8> {
    [&[VERSION], at, tail].concat()
}

/// Longer than the index that follows a key: above every version of the key.
pub(crate) const ABOVE_VERSIONS: [u8; 9] = [0xff; 9];

/// Where the versions of keys below an upper bound end. A bound that includes a key is that key and
/// a zero byte; its versions lie above that.
pub(crate) fn version_bound(upper: &[u8]) -> Vec<u8> {
    match upper.split_last() {
        Some((0, key)) => version_key(key, &ABOVE_VERSIONS),
        _ => version_key(upper, &[]),
    }
}

/// table ‖ key of a version's key; none for a dead index entry.
pub(crate) fn key_of_version(entry: &[u8]) -> Option<&[u8]> {
    let (family, rest) = entry.split_first()?;
    let (key, _) = rest.split_last_chunk::<8>()?;
    (*family == VERSION).then_some(key)
}

/// The index at which a version ended or an index entry died, and whether it is a version; none for
/// what this program does not know.
pub(crate) fn end_of(
    registry: &Registry,
    key: &[u8],
    value: &[u8],
) -> Result<Option<(u64, bool)>, StorageError> {
    match key {
        [VERSION, ..] => Ok(Some((split_version(key, value)?.0, true))),
        [DEAD, high, low, no, rest @ ..] => {
            let table = registry.table(u16::from_be_bytes([*high, *low]));
            let Some(skip) = table.and_then(|table| table.skip_group(*no)) else {
                return Ok(None);
            };
            let mut rest = rest;
            skip(&mut rest).map_err(|_| StorageError::damaged("dead entry", key))?;
            let death = rest.first_chunk::<8>().copied().map(u64::from_be_bytes);
            let death = death.ok_or_else(|| StorageError::damaged("dead entry", key))?;
            Ok(Some((death, false)))
        }
        _ => Ok(None),
    }
}

/// The index at which a version began.
pub(crate) fn beginning(entry: &[u8]) -> Result<u64, StorageError> {
    let from = entry.last_chunk::<8>().copied();
    from.map(u64::from_be_bytes)
        .ok_or_else(|| StorageError::damaged("past row", entry))
}

/// Where the version of a row lies that began at an index.
pub(crate) fn begun_key(table: u16, key: &[u8], from: u64) -> KeyBuf {
    let mut at = version_prefix(table, key);
    from.encode(&mut at);
    at
}

/// Appends the stored value of an ended version.
pub(crate) fn write_version(out: &mut Vec<u8>, until: u64, deleted: bool, body: &[u8]) {
    out.push(FORMAT);
    out.extend_from_slice(&until.to_le_bytes());
    out.push(u8::from(deleted));
    out.extend_from_slice(body);
}

/// Takes an ended version apart: the index at which it ended, whether by deletion, its bytes.
pub(crate) fn split_version<'a>(
    key: &[u8],
    value: &'a [u8],
) -> Result<(u64, bool, &'a [u8]), StorageError> {
    let damaged = || StorageError::damaged("past row", key);
    let (head, body) = value.split_at_checked(10).ok_or_else(damaged)?;
    if head[0] != FORMAT || head[9] > 1 {
        return Err(damaged());
    }
    let until = row::modified(value).ok_or_else(damaged)?;
    Ok((until, head[9] == 1, body))
}

/// Where an index entry lies that died at an index.
pub(crate) fn dead_key(table: u16, entry: &IndexEntry, death: u64) -> KeyBuf {
    let (group, rest) = entry.bytes.split_at(usize::from(entry.group_end));
    let mut out = KeyBuf::new();
    out.push(DEAD);
    out.extend_from_slice(&table.to_be_bytes());
    out.extend_from_slice(group);
    death.encode(&mut out);
    out.extend_from_slice(rest);
    out
}

/// The row as of an index, decoded from its canonical bytes, and when it was written: none if it
/// did not exist then.
pub(crate) fn at<R>(
    source: ScanSource<'_>,
    (table, key): (u16, &[u8]),
    living: Option<&[u8]>,
    index: u64,
    decode: impl FnOnce(&[u8]) -> Result<R, StorageError>,
) -> Result<Option<(R, u64)>, StorageError> {
    if let Some(value) = living {
        let (modified, _, body) = row::split(key, value)?;
        if modified <= index {
            return Ok(Some((decode(body)?, modified)));
        }
    }
    let lower = version_prefix(table, key);
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
    let (until, _, body) = split_version(walk.key(), walk.value())?;
    if until <= index {
        return Ok(None);
    }
    let from = beginning(walk.key())?;
    Ok(Some((decode(body)?, from)))
}

/// One version of a row.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Version<R> {
    /// The index of the event that wrote it.
    pub from: u64,
    /// The index of the event that ended it; none while it lives.
    pub until: Option<u64>,
    /// Whether that event deleted the row.
    pub deleted: bool,
    pub row: R,
}

/// The ended versions of a row, oldest first.
pub(crate) fn versions<T: Table>(
    source: ScanSource<'_>,
    key: &[u8],
) -> Result<Vec<Version<T::Row>>, StorageError> {
    let prefix = version_prefix(T::ID, key);
    let range = Range {
        upper: crate::engine::key::prefix_end(&prefix),
        lower: prefix.to_vec(),
        reverse: false,
    };
    let mut walk = source.walk(Family::History, range);
    let mut versions = Vec::new();
    while walk.advance()? {
        let from = beginning(walk.key())?;
        let (until, deleted, body) = split_version(walk.key(), walk.value())?;
        versions.push(Version {
            from,
            until: Some(until),
            deleted,
            row: row::decode_body::<T>(key, body)?,
        });
    }
    Ok(versions)
}

/// Calls `add` with every index from `first` on at which a version of the row began, and with
/// that of its deletion. The living version's is in `rows`.
pub(crate) fn change_indexes(
    source: ScanSource<'_>,
    table: u16,
    key: &[u8],
    first: u64,
    mut add: impl FnMut(u64),
) -> Result<(), StorageError> {
    let prefix = version_prefix(table, key);
    let range = Range {
        upper: crate::engine::key::prefix_end(&prefix),
        lower: prefix.to_vec(),
        reverse: true,
    };
    let mut walk = source.walk(Family::History, range);
    while walk.advance()? {
        let from = beginning(walk.key())?;
        let (until, deleted, _) = split_version(walk.key(), walk.value())?;
        if deleted {
            add(until);
        }
        if until < first {
            break;
        }
        add(from);
    }
    Ok(())
}

/// The entries of a group that died at `first` or later, whenever they were born: order ‖ key.
pub(crate) fn dead_since<I: Index>(
    source: ScanSource<'_>,
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

/// `1 ‖ table ‖ index ‖ group`: where the dead entries of a group, or of several, begin.
fn dead_prefix<I: Index>(group: &[u8]) -> KeyBuf {
    let mut prefix = KeyBuf::new();
    prefix.push(DEAD);
    prefix.extend_from_slice(&I::Table::ID.to_be_bytes());
    prefix.push(I::NO);
    prefix.extend_from_slice(group);
    prefix
}

/// All dead entries whose groups begin so.
fn walk_under<'a, I: Index>(source: ScanSource<'a>, group: &[u8]) -> EntryCursor<'a> {
    let lower = dead_prefix::<I>(group);
    let range = Range {
        upper: crate::engine::key::prefix_end(&lower),
        lower: lower.to_vec(),
        reverse: false,
    };
    source.walk(Family::History, range)
}

/// The dead entries of a group from a death on, and where the group ends in their keys.
fn walk_dead<'a, I: Index>(
    source: ScanSource<'a>,
    group: &[u8],
    death: u64,
) -> (EntryCursor<'a>, usize) {
    let mut lower = dead_prefix::<I>(group);
    let upper = crate::engine::key::prefix_end(&lower);
    let group_end = lower.len();
    death.encode(&mut lower);
    let range = Range {
        lower: lower.to_vec(),
        upper,
        reverse: false,
    };
    (source.walk(Family::History, range), group_end)
}

/// `1 ‖ table ‖ index ‖ …`: where what begins so in an index lies among the dead entries, but for
/// the deaths that stand in their midst.
pub(crate) fn dead_key_at(at: &[u8]) -> Vec<u8> {
    [&[DEAD], at].concat()
}

/// The entries under a prefix of an index (whole groups, or the beginning of one) that died after
/// `index` and were born at or before it: group ‖ order ‖ key, not sorted.
pub(crate) fn alive_then<I: Index>(
    source: ScanSource<'_>,
    prefix: &[u8],
    index: u64,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut rest = prefix;
    let whole = I::Group::skip(&mut rest).is_ok();
    let group = &prefix[..prefix.len() - if whole { rest.len() } else { 0 }];
    let death = if whole { index.saturating_add(1) } else { 0 };
    let (mut walk, end) = match whole {
        true => walk_dead::<I>(source, group, death),
        false => (walk_under::<I>(source, group), 0),
    };
    let mut entries = Vec::new();
    while walk.advance()? {
        let damaged = || StorageError::damaged("dead entry", walk.key());
        let entry = &walk.key()[4..];
        let mut tail = entry;
        I::Group::skip(&mut tail).map_err(|_| damaged())?;
        let group_len = entry.len() - tail.len();
        debug_assert!(end == 0 || end == group_len + 4);
        let (death, order) = tail.split_first_chunk::<8>().ok_or_else(damaged)?;
        let birth = row::take_varint(&mut walk.value()).ok_or_else(damaged)?;
        if birth <= index && index < u64::from_be_bytes(*death) {
            entries.push([&entry[..group_len], order].concat());
        }
    }
    Ok(entries)
}
