//! The rejected events in a database on the disk, which a running server may have open.

use std::collections::BTreeMap;
use std::path::Path;

use rocksdb::{DB, Direction, IteratorMode};

use crate::engine::db::{Family, damage_mark, options};
use crate::engine::error::StorageError;
use crate::engine::outcome::Rejection;
use crate::engine::outcome::outcome_key;
use crate::engine::position::{self, APPLIED, decode_position};

/// The rejected events in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedEvents {
    /// What was rejected up to this index is not, or not surely, kept here (pruned, about to be, or
    /// before the snapshot it began from); 0: all is.
    pub floor: u64,
    /// The last index whose outcome is on the disk.
    pub upto: u64,
    /// Why events were rejected, by their indexes.
    pub rejected: BTreeMap<u64, Rejection>,
}

/// The rejected events in the database at `path`, as of its last flush; none where there is no
/// database, or one that is damaged. Nothing is written, and a server may be running on it.
///
/// # Errors
/// What is there cannot be read.
pub fn rejected_events(path: &Path) -> Result<Option<RejectedEvents>, StorageError> {
    if !path.join("CURRENT").exists() || damage_mark(path).exists() {
        return Ok(None);
    }
    let name = Family::Meta.name();
    let db = DB::open_cf_for_read_only(&options(), path, ["default", name], false);
    let db = db.map_err(|source| StorageError::Open {
        path: path.to_owned(),
        source,
    })?;
    let failed = |source| StorageError::Database {
        doing: "read",
        source,
    };
    let Some(family) = db.cf_handle(name) else {
        return Ok(None);
    };
    let Some(position) = db.get_cf(family, APPLIED).map_err(failed)? else {
        return Ok(None);
    };
    let position =
        decode_position(&position).ok_or_else(|| StorageError::damaged("position", APPLIED))?;
    let floor = db.get_cf(family, position::FLOOR).map_err(failed)?;
    let mut events = RejectedEvents {
        floor: position::decode_floor(floor.as_deref())?,
        upto: position.index,
        rejected: BTreeMap::new(),
    };
    let (first, last) = (outcome_key(0), outcome_key(u64::MAX));
    let mode = IteratorMode::From(&first, Direction::Forward);
    for found in db.iterator_cf(family, mode) {
        let (key, value) = found.map_err(failed)?;
        if key.len() != first.len() || *key > last[..] || key[0] != first[0] {
            break;
        }
        let index = key[1..].try_into().map(u64::from_be_bytes);
        let index = index.map_err(|_| StorageError::damaged("outcome", &key))?;
        let rejection = rmp_serde::from_slice(&value);
        let rejection = rejection.map_err(|_| StorageError::damaged("outcome", &key))?;
        events.rejected.insert(index, rejection);
    }
    Ok(Some(events))
}
