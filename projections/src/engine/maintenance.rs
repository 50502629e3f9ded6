//! The database while it is brought to a newer schema: raw entries, no views, no writer.
//!
//! For the steps of `drover-migrations` alone. A step reads raw entries of one family and writes
//! changes together with the schema's header in one batch, which is on disk when
//! [`Maintenance::write`] returns: a crash leaves the header and what it describes at one moment.

use std::path::Path;
use std::sync::Arc;

use rocksdb::WriteBatch;

use crate::engine::db::{Database, DatabaseOptions, Family};
use crate::engine::error::StorageError;

/// Where the header lies among the database's own entries.
pub(crate) const HEADER: &[u8] = b"schema";
const APPLIED: &[u8] = b"applied";

/// The families a step may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyPart {
    /// Rows: table number (u16 BE) ‖ key → row.
    Rows,
    /// Index entries: table number ‖ index number ‖ group ‖ order ‖ key → birth.
    Index,
    /// Ended versions.
    History,
    /// Changes by event.
    Changes,
    /// Indexes by stream key.
    Postings,
}

impl FamilyPart {
    fn family(self) -> Family {
        match self {
            Self::Rows => Family::Rows,
            Self::Index => Family::Index,
            Self::History => Family::History,
            Self::Changes => Family::Changes,
            Self::Postings => Family::Postings,
        }
    }
}

/// One raw change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawChange {
    /// Write this entry.
    Put(FamilyPart, Vec<u8>, Vec<u8>),
    /// Remove this entry.
    Delete(FamilyPart, Vec<u8>),
}

/// A raw entry: key and value.
pub type RawEntry = (Vec<u8>, Vec<u8>);

/// A database that no other process has open.
pub struct Maintenance {
    db: Arc<Database>,
}

impl Maintenance {
    /// Opens the database at `path`, or makes an empty one.
    pub fn open(path: impl AsRef<Path>, options: &DatabaseOptions) -> Result<Self, StorageError> {
        Ok(Self {
            db: Database::open(path.as_ref(), options)?,
        })
    }

    /// The schema's header, as it was written last; none in a database from before there was one,
    /// and in a new one.
    pub fn header(&self) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self
            .db
            .get(Family::Meta, HEADER)?
            .map(|value| value.to_vec()))
    }

    /// Whether nothing was ever applied here.
    pub fn is_new(&self) -> Result<bool, StorageError> {
        Ok(self.db.get(Family::Meta, APPLIED)?.is_none())
    }

    /// At most `limit` raw entries of a part behind `after` (from the start: empty), in key order.
    pub fn entries(
        &self,
        part: FamilyPart,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<RawEntry>, StorageError> {
        let mut cursor = self.db.raw().raw_iterator_cf(self.db.family(part.family()));
        cursor.seek(after);
        let mut entries = Vec::new();
        while let Some((key, value)) = cursor.item() {
            if after.is_empty() || key != after {
                entries.push((key.to_vec(), value.to_vec()));
            }
            if entries.len() >= limit {
                break;
            }
            cursor.next();
        }
        cursor
            .status()
            .map_err(StorageError::database("read raw entries"))?;
        Ok(entries)
    }

    /// Writes changes and the header in one batch, and waits until it is on disk.
    pub fn write(&self, changes: &[RawChange], header: &[u8]) -> Result<(), StorageError> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                RawChange::Put(part, key, value) => {
                    batch.put_cf(self.db.family(part.family()), key, value);
                }
                RawChange::Delete(part, key) => {
                    batch.delete_cf(self.db.family(part.family()), key);
                }
            }
        }
        batch.put_cf(self.db.family(Family::Meta), HEADER, header);
        self.db.write(batch)?;
        self.db.flush(true)
    }
}
