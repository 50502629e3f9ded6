//! Where the past ends: what lies below the horizon is forgotten.
//!
//! The floor is raised first and is on the disk before anything goes, so no reader is ever shown a
//! past with holes: a view from before keeps what it sees, a later one refuses the question. What
//! is forgotten twice is forgotten once; a crash on the way costs another walk.

use rocksdb::WriteBatch;

use crate::engine::db::{Database, Family};
use crate::engine::error::StorageError;
use crate::engine::outcome::outcome_key;
use crate::engine::registry::Registry;
use crate::engine::scan::{Scan, ScanSource};
use crate::engine::staged::{PutEntries, TableBatch};
use crate::past::alive;
use crate::past::history;

/// Entries deleted in one batch.
const BATCH: usize = 4_096;
/// Where it is kept how far what lies below the floor was forgotten.
pub(crate) const PRUNED: &[u8] = b"pruned";

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Pruned {
    /// Ended versions of rows.
    pub versions: u64,
    /// Dead index entries.
    pub entries: u64,
    pub postings: u64,
}

/// Forgets what only questions below the floor could want: changes, postings and outcomes up to it,
/// and of every key the versions and index entries that had ended by then. The writer may continue
/// meanwhile.
///
/// # Errors
/// A failed read or write; the next call continues.
pub(crate) fn prune(
    db: &Database,
    registry: &Registry,
    floor: u64,
) -> Result<Pruned, StorageError> {
    let mut pruned = Pruned::default();
    if floor == 0 || pruned_to(db)? == Some(floor) {
        return Ok(pruned);
    }
    let mut batch = WriteBatch::default();
    let next = (floor + 1).to_be_bytes();
    for family in [Family::Changes, Family::Digests] {
        batch.delete_range_cf(db.family(family), &[0; 8][..], &next[..]);
    }
    // A set of live rows is of use only together with the changes since.
    for table in registry.tables() {
        let (from, to) = alive::sets_below(table.id(), floor);
        batch.delete_range_cf(db.family(Family::History), &from[..], &to[..]);
    }
    let (from, to) = (outcome_key(0), outcome_key(floor + 1));
    batch.delete_range_cf(db.family(Family::Meta), &from[..], &to[..]);
    db.write(batch)?;
    sweep(db, Family::History, |key, value| {
        let Some((end, version)) = history::end_of(registry, key, value)? else {
            return Ok(false);
        };
        let gone = end <= floor;
        match version {
            true => pruned.versions += u64::from(gone),
            false => pruned.entries += u64::from(gone),
        }
        Ok(gone)
    })?;
    sweep(db, Family::Postings, |key, _| {
        let index = key.last_chunk::<8>().copied().map(u64::from_be_bytes);
        let gone = index.is_some_and(|index| index <= floor);
        pruned.postings += u64::from(gone);
        Ok(gone)
    })?;
    let mut batch = TableBatch::new(db);
    batch.put(Family::Meta, PRUNED, &floor.to_le_bytes());
    batch.write()?;
    db.flush(true)?;
    Ok(pruned)
}

/// Up to which floor everything was forgotten that could be.
fn pruned_to(db: &Database) -> Result<Option<u64>, StorageError> {
    let value = db.get(Family::Meta, PRUNED)?;
    let bytes = value.map(|value| value.as_ref().try_into());
    let bytes = bytes.transpose();
    let bytes = bytes.map_err(|_| StorageError::damaged("pruned", PRUNED))?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Deletes the entries of a family that are gone.
fn sweep(
    db: &Database,
    family: Family,
    mut gone: impl FnMut(&[u8], &[u8]) -> Result<bool, StorageError>,
) -> Result<(), StorageError> {
    let mut walk = ScanSource::Live(db).walk(family, Scan::all().absolute(&[]));
    let mut batch = WriteBatch::default();
    while walk.advance()? {
        if gone(walk.key(), walk.value())? {
            batch.delete_cf(db.family(family), walk.key());
        }
        if batch.len() >= BATCH {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch)
}
