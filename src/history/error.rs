//! Why something of a log's history cannot be written to files, or read from them.

use std::io;
use std::path::{Path, PathBuf};

use crate::log::LogError;

/// Why an export, an import or a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was written to was closed, or is full.
    #[error("cannot write")]
    Write(#[source] io::Error),
    /// The event at an index cannot be read by this program.
    #[error("the event at index {index} cannot be read")]
    Decode {
        /// Where.
        index: u64,
        /// Why.
        #[source]
        source: drover_migrations::DecodeError,
    },
    /// A line that is to be imported.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The disk is too full for it.
    #[error("{0}")]
    NoSpace(String),
    /// It cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl ArchiveError {
    /// What was read or written failed so; a disk that is full has a kind of its own.
    pub(super) fn io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull => Self::NoSpace(error.to_string()),
            _ => Self::Write(error),
        }
    }

    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
}

/// Makes a rename or a new name in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), ArchiveError> {
    crate::log::atomic_file::sync_dir(dir).map_err(ArchiveError::file("sync", dir))
}
