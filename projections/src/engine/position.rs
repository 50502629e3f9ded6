//! How far a database has come, as it says itself.

use crate::engine::db::{Database, DbSnapshot, Family};
use crate::engine::digest::Sums;
use crate::engine::error::StorageError;
use crate::engine::staged::PutEntries;

/// Where apply stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last applied index; 0 before the first.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
    /// The index of the last applied membership entry.
    pub membership: u64,
    /// Whether anything was applied: the first entry has index 0.
    pub begun: bool,
    /// The index of the snapshot that was taken in last. What happened up to it is not kept here:
    /// changes, history and outcomes begin behind it. 0 where everything is here.
    pub floor: u64,
}

pub(crate) const APPLIED: &[u8] = b"applied";
const SUMS: &[u8] = b"digests";
pub(crate) const FLOOR: &[u8] = b"floor";

/// Writes the position and the digests.
pub(crate) fn put_position(out: &mut dyn PutEntries, position: &Position, digests: &Sums) {
    let mut bytes = Vec::new();
    digests.encode(&mut bytes);
    out.put(Family::Meta, SUMS, &bytes);
    out.put(Family::Meta, APPLIED, &encode_position(position));
}

/// Writes where the past begins that is kept here.
pub(crate) fn put_floor(out: &mut dyn PutEntries, floor: u64) {
    out.put(Family::Meta, FLOOR, &floor.to_le_bytes());
}

/// Where the past begins that a snapshot of a database keeps.
pub(crate) fn floor_of(db_snapshot: &DbSnapshot) -> Result<u64, StorageError> {
    decode_floor(db_snapshot.get(Family::Meta, FLOOR)?.as_deref())
}

pub(crate) fn decode_floor(value: Option<&[u8]>) -> Result<u64, StorageError> {
    let Some(bytes) = value else {
        return Ok(0);
    };
    let bytes = bytes.try_into();
    let bytes = bytes.map_err(|_| StorageError::damaged("floor", FLOOR))?;
    Ok(u64::from_le_bytes(bytes))
}

fn encode_position(position: &Position) -> [u8; 32] {
    let mut out = [0; 32];
    out[..8].copy_from_slice(&position.index.to_le_bytes());
    out[8..16].copy_from_slice(&position.term.to_le_bytes());
    out[16..24].copy_from_slice(&position.time.to_le_bytes());
    out[24..].copy_from_slice(&position.membership.to_le_bytes());
    out
}

pub(crate) fn decode_position(bytes: &[u8]) -> Option<Position> {
    let (chunks, []) = bytes.as_chunks::<8>() else {
        return None;
    };
    let [index, term, time, membership] = chunks else {
        return None;
    };
    Some(Position {
        index: u64::from_le_bytes(*index),
        term: u64::from_le_bytes(*term),
        time: i64::from_le_bytes(*time),
        membership: u64::from_le_bytes(*membership),
        begun: true,
        floor: 0,
    })
}

/// What a database that was just opened or filled says of itself: the position, and the digests.
pub(crate) fn stored(db: &Database) -> Result<(Position, Sums), StorageError> {
    let mut position = match db.get(Family::Meta, APPLIED)? {
        Some(value) => {
            decode_position(&value).ok_or_else(|| StorageError::damaged("position", APPLIED))?
        }
        None => Position::default(),
    };
    position.floor = decode_floor(db.get(Family::Meta, FLOOR)?.as_deref())?;
    let digests = match db.get(Family::Meta, SUMS)? {
        Some(value) => {
            Sums::decode(&value).ok_or_else(|| StorageError::damaged("digests", SUMS))?
        }
        None => Sums::default(),
    };
    Ok((position, digests))
}

/// The position that a crash would leave.
pub(crate) fn flushed(db: &Database) -> Result<Position, StorageError> {
    match db.get_flushed(Family::Meta, APPLIED)? {
        Some(value) => {
            decode_position(&value).ok_or_else(|| StorageError::damaged("position", APPLIED))
        }
        None => Ok(Position::default()),
    }
}
