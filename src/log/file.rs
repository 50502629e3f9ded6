//! The file layer: what the engine requests of the operating system, and nothing more.
//!
//! A trait because the crash tests need a disk that drops unsynced writes, tears them, flips bits
//! and runs full.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a lock is tried before it counts as held.
const LOCK_TRIES: u32 = 25;
/// Time between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// One file of a log.
pub trait LogFile: Send + Sync {
    /// Writes all of `buf` at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes all written data, and the metadata needed to read it, durable.
    fn sync(&self) -> io::Result<()>;
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;
    /// Cuts the file, or makes it longer by zeros.
    fn set_size(&self, size: u64) -> io::Result<()>;
}

/// A directory of log files.
pub trait FileLayer: Send + Sync {
    /// Creates the directory and those above it; those that were not there are on the disk when
    /// this returns.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// As [`create_dir`](Self::create_dir), a directory that only its owner may enter.
    fn create_private_dir(&self, dir: &Path) -> io::Result<()>;
    /// Names of what is in `dir`, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates (or truncates) a file and allocates `size` bytes, which read as zeros.
    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>>;
    /// Creates an empty file that only its owner may read, in the place of what is there.
    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Opens an existing file.
    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn LogFile>>;
    /// Renames a file or a directory within its directory, replacing a file that has the name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it, in no order.
    fn remove_tree(&self, dir: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive right to write in `dir` until the answer is dropped; `None` if another
    /// process has it.
    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl LogFile for File {
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, buf, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match FileExt::read_at(self, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }
}

impl FileLayer for RealFiles {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Ok(()) => self.sync_dir(parent_dir(dir)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && parent_dir(dir) != dir => {
                self.create_dir(parent_dir(dir))?;
                self.create_dir(dir)
            }
            Err(e) => Err(e),
        }
    }

    fn create_private_dir(&self, dir: &Path) -> io::Result<()> {
        self.create_dir(parent_dir(dir))?;
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            made => made.and_then(|()| self.sync_dir(parent_dir(dir))),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        if size > 0 {
            allocate(&file, size).inspect_err(|_| {
                let _ = fs::remove_file(path);
            })?;
        }
        Ok(Arc::new(file))
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        // One that is there may have another owner's mode.
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Arc::new(options.open(path)?))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(
            OpenOptions::new().read(true).write(write).open(path)?,
        ))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let path = dir.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // A process that was just forked holds what its parent had open until it runs its own
        // program, so a lock that was let go may seem held for a moment.
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Box::new(file))),
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(fs::TryLockError::Error(e)) => return Err(e),
            }
        }
        Ok(None)
    }
}

/// The directory that a path lies in.
pub fn parent_dir(path: &Path) -> &Path {
    let above = path.parent().unwrap_or(path);
    match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    }
}

/// Reserves the blocks; a file system that cannot is only given the length.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(size),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sync that does nothing would go unnoticed until the power goes: what cannot be synced
    /// shows that the kernel is called.
    #[test]
    fn a_sync_is_one_of_the_kernel() {
        let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
        let pipe = File::from(read_end);
        let refused = LogFile::sync(&pipe).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        let refused = RealFiles.sync_dir(Path::new("/proc/self")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
    }

    #[test]
    fn directories_are_made_with_those_above_them_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        RealFiles.create_dir(&deep).unwrap();
        RealFiles.create_dir(&deep).unwrap();
        assert!(deep.is_dir());
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        RealFiles.create_dir(&file).unwrap_err();
        RealFiles.create_dir(&file.join("below")).unwrap_err();
    }

    #[test]
    fn a_private_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "what another left").unwrap();
        let file = RealFiles.create_private(&path).unwrap();
        file.write_at(b"mine", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
