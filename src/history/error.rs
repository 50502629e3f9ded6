//! Why something of a log's history cannot be written to files, or read from them.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use drover_projections::StorageError;

use super::replay::ReplayError;
use super::reserve::is_full;
use crate::error::chain;
use crate::log::LogError;

/// How every text about a full disk begins.
pub const FULL: &str = "the disk is full";

/// Why an export, an import or a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(LogError),
    #[error("cannot {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
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
    /// The disk is full, as this says.
    fn no_space(error: &dyn Error) -> Self {
        let text = chain(error);
        // What was refused for the sake of the reserve says so, and what is free, whatever of it
        // was being written.
        Self::NoSpace(match text.find(FULL) {
            Some(at) => text[at..].to_owned(),
            None => format!("{FULL}: {text}"),
        })
    }

    /// What was read or written failed so; a disk that is full has a kind of its own.
    pub(super) fn io(error: io::Error) -> Self {
        match is_full(&error) {
            true => Self::no_space(&error),
            false => Self::Write(error),
        }
    }

    /// The same of a file.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| {
            let full = is_full(&source);
            let failed = Self::File {
                doing,
                path,
                source,
            };
            match full {
                true => Self::no_space(&failed),
                false => failed,
            }
        }
    }

    /// The state that `what` names cannot be read, or not be written where the disk is full.
    pub(super) fn state(what: &str, error: &StorageError) -> Self {
        match error.is_out_of_space() {
            true => Self::no_space(error),
            false => Self::Refused(format!("{what}: {}", chain(error))),
        }
    }
}

impl From<LogError> for ArchiveError {
    fn from(error: LogError) -> Self {
        match error.is_full() {
            true => Self::no_space(&error),
            false => Self::Log(error),
        }
    }
}

impl From<ReplayError> for ArchiveError {
    fn from(error: ReplayError) -> Self {
        match error.is_out_of_space() {
            true => Self::no_space(&error),
            false => Self::Refused(chain(&error)),
        }
    }
}

/// Makes a rename or a new name in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), ArchiveError> {
    crate::log::atomic_file::sync_dir(dir).map_err(ArchiveError::file("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_is_named_whatever_found_it() {
        let path = Path::new("/srv/state");
        let os = || io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let storage = || StorageError::File {
            doing: "write",
            path: path.to_owned(),
            source: os(),
        };
        let log = || LogError::DiskFull {
            path: path.to_owned(),
        };
        let reserve = || ReplayError::NoSpace {
            path: path.to_owned(),
            free: 5 << 20,
            needed: 128 << 20,
        };
        let held = io::Error::new(io::ErrorKind::StorageFull, chain(&reserve()));
        let found: [(ArchiveError, &str); 9] = [
            (ArchiveError::io(os()), "(os error 28)"),
            (ArchiveError::file("write", path)(os()), "/srv/state"),
            (ArchiveError::file("write", path)(held), "full: 5 MiB"),
            (ArchiveError::state("the state", &storage()), "/srv/state"),
            (log().into(), "/srv/state"),
            (reserve().into(), "128 are needed"),
            (ReplayError::from(log()).into(), "/srv/state"),
            (ReplayError::from(storage()).into(), "(os error 28)"),
            (
                ReplayError::from(drover_migrations::schema::SchemaError::from(storage())).into(),
                "(os error 28)",
            ),
        ];
        for (error, says) in found {
            let ArchiveError::NoSpace(text) = &error else {
                panic!("{error:?}")
            };
            assert!(text.starts_with("the disk is full: "), "{text}");
            assert_eq!(text.matches(FULL).count(), 1, "{text}");
            assert!(text.contains(says), "{text}");
        }
        // Anything else is what it was.
        let other = || io::Error::from(io::ErrorKind::PermissionDenied);
        let file = ArchiveError::file("write", path)(other());
        assert!(matches!(file, ArchiveError::File { .. }), "{file:?}");
        let damaged = StorageError::Snapshot("its format is 9".to_owned());
        let state = ArchiveError::state("the state", &damaged);
        assert!(matches!(state, ArchiveError::Refused(_)), "{state:?}");
        let closed = ArchiveError::from(LogError::Closed);
        assert!(matches!(closed, ArchiveError::Log(_)), "{closed:?}");
    }
}
