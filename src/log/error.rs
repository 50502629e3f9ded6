//! Everything that can go wrong in the log engine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of the log engine. Cloned to every callback of a failed batch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system refused an operation.
    #[error("log: {op} {}", path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// No space left; nothing of this call was kept, and the log continues when there is space.
    #[error("log: no space left on the device of {}", path.display())]
    DiskFull {
        /// The log's directory or file.
        path: PathBuf,
    },
    /// Damage in what had been durable. The log refuses to serve it.
    #[error(
        "log: corruption in segment {segment} at offset {offset}, index {index}: {what}; \
         put the file back from a copy or from the archive, or restore a backup"
    )]
    Corrupt {
        segment: String,
        /// Byte offset of the damaged frame or block.
        offset: u64,
        /// Index of the first entry that cannot be read.
        index: u64,
        /// What is wrong there.
        what: String,
    },
    /// The file's format is newer than this program.
    #[error("log: segment {segment} has format version {version}, which this version cannot read")]
    Format {
        segment: String,
        /// The version found.
        version: u32,
    },
    /// Appended entries must follow the last one without a gap.
    #[error("log: index {got} appended where {expected} is next")]
    Gap {
        /// The next index.
        expected: u64,
        /// The index that was given.
        got: u64,
    },
    /// A body longer than the log's limit.
    #[error("log: entry {index} has {len} bytes, more than {max}")]
    TooLarge {
        /// Index of the entry.
        index: u64,
        /// Bytes of its body.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// An attempt to remove what is committed.
    #[error("log: cannot truncate after {after}: committed up to {committed}")]
    Committed {
        /// The index to keep.
        after: u64,
        /// The committed index.
        committed: u64,
    },
    /// The index is below the first one kept.
    #[error("log: index {index} is below the first one kept, {first}")]
    Purged {
        /// The requested index.
        index: u64,
        /// The first index there is.
        first: u64,
    },
    /// Another process has the log open for writing.
    #[error("log: {} is in use by another process", path.display())]
    Locked {
        /// The log's directory.
        path: PathBuf,
    },
    /// An earlier write or sync failed; the log takes no more until it is opened again.
    #[error("log: stopped after an earlier failure: {0}")]
    Stopped(String),
    /// The log was closed.
    #[error("log: closed")]
    Closed,
}

impl LogError {
    pub(super) fn io(op: &'static str, path: &Path, source: io::Error) -> LogError {
        if source.kind() == io::ErrorKind::StorageFull
            || source.kind() == io::ErrorKind::QuotaExceeded
        {
            return LogError::DiskFull {
                path: path.to_owned(),
            };
        }
        LogError::Io {
            op,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    pub(super) fn corrupt(segment: &str, offset: u64, index: u64, what: &str) -> LogError {
        LogError::Corrupt {
            segment: segment.to_owned(),
            offset,
            index,
            what: what.to_owned(),
        }
    }

    /// Whether the call may succeed later without opening the log again.
    pub fn is_full(&self) -> bool {
        matches!(self, LogError::DiskFull { .. })
    }
}

impl From<LogError> for io::Error {
    fn from(e: LogError) -> io::Error {
        let kind = match &e {
            LogError::DiskFull { .. } => io::ErrorKind::StorageFull,
            LogError::Corrupt { .. } => io::ErrorKind::InvalidData,
            LogError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}
