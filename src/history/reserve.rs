//! The space of a disk that is left to serving requests, whatever else is written to it.

use std::path::{Path, PathBuf};

use super::replay::ReplayError;

/// Bytes that are left to it.
pub const RESERVE: u64 = 128 << 20;

/// A disk and the space of it that must stay free.
#[derive(Clone, Debug)]
pub struct DiskReserve {
    dir: PathBuf,
    needed: u64,
}

impl DiskReserve {
    /// The disk on which `path` will lie.
    pub fn of(path: &Path, needed: u64) -> Self {
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        Self { dir, needed }
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
        let Ok(stat) = rustix::fs::statvfs(&self.dir) else {
            return Ok(());
        };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
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
}
