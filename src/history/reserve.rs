//! The space of a disk that is left to serving requests, whatever else is written to it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

use super::replay::ReplayError;
use crate::error::chain;

/// Bytes that are left to it.
pub const RESERVE: u64 = 128 << 20;

/// A disk and the space of it that must stay free.
#[derive(Clone, Debug)]
pub struct DiskReserve {
    dir: PathBuf,
    needed: u64,
    /// How often there is still space, where a test says so.
    #[cfg(test)]
    looks: Option<Arc<AtomicU64>>,
}

/// Whether a file could not be written for want of space.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl DiskReserve {
    /// The disk on which `path` will lie.
    pub fn of(path: &Path, needed: u64) -> Self {
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        Self {
            dir,
            needed,
            #[cfg(test)]
            looks: None,
        }
    }

    /// A disk that has space when it is looked at so often, and none after that.
    #[cfg(test)]
    pub(crate) fn for_looks(path: &Path, looks: u64) -> Self {
        Self {
            looks: Some(Arc::new(AtomicU64::new(looks))),
            ..Self::of(path, RESERVE)
        }
    }

    /// Bytes that are free, if the file system says so.
    fn free(&self) -> Option<u64> {
        #[cfg(test)]
        if let Some(looks) = &self.looks {
            let less = |left: u64| left.checked_sub(1);
            let left = looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            return Some(left.map_or(0, |_| u64::MAX));
        }
        let stat = rustix::fs::statvfs(&self.dir).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Whether the space suffices to continue.
    ///
    /// # Errors
    /// [`ReplayError::NoSpace`].
    pub fn check(&self) -> Result<(), ReplayError> {
        self.check_for(0)
    }

    /// Whether the space suffices for so much more.
    ///
    /// # Errors
    /// [`ReplayError::NoSpace`].
    pub fn check_for(&self, bytes: u64) -> Result<(), ReplayError> {
        // A file system that does not say has space until it refuses a write.
        let Some(free) = self.free() else {
            return Ok(());
        };
        let needed = self.needed.saturating_add(bytes);
        match free < needed {
            true => Err(ReplayError::NoSpace {
                path: self.dir.clone(),
                free,
                needed,
            }),
            false => Ok(()),
        }
    }

    /// As [`check_for`](Self::check_for), for what writes files.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`].
    pub fn check_write(&self, bytes: u64) -> io::Result<()> {
        let full = |error| io::Error::new(io::ErrorKind::StorageFull, chain(&error));
        self.check_for(bytes).map_err(full)
    }
}

/// Writes as long as the disk has space beside what must stay free.
#[derive(Debug)]
pub struct ReservedWriter<W> {
    to: W,
    reserve: DiskReserve,
}

impl<W> ReservedWriter<W> {
    pub fn new(to: W, reserve: DiskReserve) -> Self {
        Self { to, reserve }
    }
}

impl<W: Write> Write for ReservedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.reserve.check_write(bytes.len() as u64)?;
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_to_a_disk_without_space_is_refused_and_writes_nothing() {
        let own = tempfile::tempdir().unwrap();
        let reserve = |needed| DiskReserve::of(&own.path().join("a"), needed);
        let mut to = ReservedWriter::new(Vec::new(), reserve(0));
        to.write_all(b"ab").unwrap();
        to.reserve = reserve(u64::MAX);
        let refused = to.write_all(b"c").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert!(refused.to_string().starts_with("the disk is full"));
        assert_eq!(to.to, b"ab");
    }
}
