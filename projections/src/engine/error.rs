//! What can go wrong between the projections and their database.

use std::path::PathBuf;

use crate::engine::unreadable;

/// A failure of storage. It stops the applier: a business refusal is never one of these.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The database cannot be opened.
    #[error("cannot open the projections at {path}")]
    Open {
        /// Where it lies.
        path: PathBuf,
        /// RocksDB's reason.
        #[source]
        source: rocksdb::Error,
    },
    /// RocksDB refused a read or a write.
    #[error("the projections' database failed to {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// RocksDB's reason.
        #[source]
        source: rocksdb::Error,
    },
    /// The read needs the disk, which this thread must not wait for.
    #[error("the read needs the disk, which this thread must not wait for")]
    WouldBlock,
    /// The file system refused.
    #[error("cannot {doing} {path}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file or directory that it was about.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A stored row is no valid MessagePack of its type. The decoder's reason is not kept: it
    /// quotes values of the row, which may be secret, and this is logged and answered.
    #[error("a row of table {table} cannot be decoded (key {key})")]
    Row {
        /// Its `Table::NAME`.
        table: &'static str,
        /// The encoded key in hexadecimal.
        key: String,
    },
    /// A row cannot be encoded.
    #[error("a row of table {table} cannot be encoded")]
    Encode {
        /// Its `Table::NAME`.
        table: &'static str,
        /// The encoder's reason.
        #[source]
        source: crate::engine::canonical::CanonicalError,
    },
    /// Stored bytes are shorter than their fixed part or of an unknown format.
    #[error("a stored {what} is damaged (key {key})")]
    Damaged {
        /// What kind of entry.
        what: &'static str,
        /// The key in hexadecimal.
        key: String,
    },
    /// The digest of a table does not match its rows.
    #[error("the digest of table {table} does not match its rows")]
    Digest {
        /// Its `Table::NAME`.
        table: &'static str,
    },
    /// The log skipped or repeated an index.
    #[error("entry {got} cannot follow {applied}")]
    OutOfOrder {
        /// The last applied index.
        applied: u64,
        /// The index that came.
        got: u64,
    },
    /// The database has a schema this binary does not know.
    #[error("the projections have schema {found}, this binary knows {known}")]
    Schema {
        /// The stored version.
        found: u32,
        /// The version of this binary.
        known: u32,
    },
    /// A manifest, which says what the files beside it are, cannot be decoded.
    #[error("{} is damaged", path.display())]
    Manifest {
        /// Where it lies.
        path: PathBuf,
        /// The decoder's reason.
        #[source]
        source: serde_json::Error,
    },
    /// A snapshot is of another format, or names an unknown table.
    #[error("the snapshot is not usable: {0}")]
    Snapshot(String),
}

/// The error as the caller sees it.
impl From<StorageError> for drover_error::Refusal {
    fn from(error: StorageError) -> Self {
        Self::internal(format!(
            "state could not be read: {}",
            drover_error::chain(&error)
        ))
    }
}

impl StorageError {
    /// Wraps a RocksDB error with what was being done.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(rocksdb::Error) -> Self {
        move |source| Self::Database { doing, source }
    }

    /// Whether it can succeed once there is space on the disk again.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Database { source, .. } | Self::Open { source, .. } => {
                let text = source.as_ref();
                let full = ["No space left on device", "NoSpace", "Disk quota exceeded"];
                full.iter().any(|full| text.contains(full))
            }
            Self::File { source, .. } => {
                use std::io::ErrorKind::{QuotaExceeded, StorageFull};
                matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether stored bytes are not what was written: the log is the way back.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Database { source, .. } | Self::Open { source, .. } => {
                source.kind() == rocksdb::ErrorKind::Corruption
            }
            Self::Row { .. }
            | Self::Damaged { .. }
            | Self::Digest { .. }
            | Self::Manifest { .. } => true,
            _ => false,
        }
    }

    /// Only one row, or one entry of an index, is unreadable: a scan may skip it.
    pub fn is_single_entry(&self) -> bool {
        matches!(self, Self::Row { .. } | Self::Damaged { .. })
    }

    /// A row of this table that is no valid MessagePack, its key in hexadecimal.
    pub(crate) fn row(table: &'static str, key: &[u8]) -> Self {
        unreadable::record();
        Self::Row {
            table,
            key: hex::encode(key),
        }
    }

    /// A damaged entry, its key in hexadecimal.
    pub(crate) fn damaged(what: &'static str, key: &[u8]) -> Self {
        unreadable::record();
        Self::Damaged {
            what,
            key: hex::encode(key),
        }
    }
}
