//! What leaves a server as files, and how it comes back: exports, backups, what is kept elsewhere.
//!
//! - [`export`] writes events as lines of JSON, [`parquet`] as files for analysts, both with what
//!   became of each ([`outcomes`]); [`import`] makes a log of such lines again.
//! - [`save`] writes a backup, one file ([`manifest`] says what is in it); [`inspect`] checks one;
//!   [`restore`] makes it the base of a new epoch of the log, and [`adopt`] ends that at the next
//!   start.
//! - [`base`] signs the state that a log goes on from; [`keep`] copies what is to be dropped from a
//!   log to a [`store`] elsewhere; [`joined`] reads it from there, with the log that goes on.
//!
//! What it must not know: HTTP, what an event means, how Raft decides.
//!
//! Invariants:
//! 1. Nothing here changes a table: a log is written, and what follows from it is applied.
//! 2. What is written has its final name only when it is whole and on the disk; what a kill leaves
//!    behind is either gone on with or removed.
//! 3. Whatever is read back is checked against what was said of it before anybody relies on it.

pub mod adopt;
pub mod base;
pub mod export;
pub mod import;
pub mod inspect;
pub mod joined;
pub mod keep;
pub mod manifest;
pub mod outcomes;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet_absent.rs"]
pub mod parquet;
#[cfg(feature = "parquet")]
mod parquet_dir;
pub mod restore;
#[cfg(feature = "s3")]
mod s3;
#[cfg(not(feature = "s3"))]
#[path = "s3_absent.rs"]
mod s3;
pub mod save;
pub mod store;
pub mod tar;

#[cfg(test)]
mod base_test;
#[cfg(test)]
mod lines_test;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod parquet_test;
#[cfg(test)]
mod testing;

use std::io;
use std::path::{Path, PathBuf};

use crate::log::LogError;

/// Why an export, an import or a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file.
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
    /// It cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl ArchiveError {
    fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
}

/// Makes a rename or a new name in a directory durable.
fn sync_dir(dir: &Path) -> Result<(), ArchiveError> {
    crate::log::atomic_file::sync_dir(dir).map_err(ArchiveError::file("sync", dir))
}
