//! Removing a tree that another program made.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{DIRECTORY, one_part, own_link};

/// How deep we follow. What lies deeper is first moved up: a tree can be deeper than a stack, or
/// than descriptors that one process may have.
const DEPTH: usize = 32;
/// How many mounts on one directory are taken off.
const MOUNTS: usize = 100;
/// Finding a directory without opening it.
const FOUND: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes what has this name, whatever it is and however deep; nothing of that name is as good.
/// Links are removed, never followed.
///
/// # Errors
/// The first thing that could not be removed.
pub fn remove_tree(parent: impl AsFd, name: &str) -> io::Result<()> {
    let parent = parent.as_fd();
    match fs::unlinkat(parent, one_part(name)?, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let top = open_own(parent, &std::ffi::CString::new(name)?)?;
    let mut sweep = Sweep {
        top: top.as_fd(),
        moved: 0,
        removed: 0,
        failed: None,
    };
    loop {
        (sweep.removed, sweep.failed) = (0, None);
        sweep.clear(top.as_fd(), 0);
        match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // What was moved up, or made meanwhile.
            Err(Errno::NOTEMPTY) if sweep.removed > 0 => {}
            Err(e) => return Err(sweep.failed.unwrap_or_else(|| e.into())),
        }
    }
}

/// Opens a directory, also one that its owner made unreadable. What was mounted on it is taken
/// off first: those files are not ours to remove.
fn open_own(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    for _ in 0..MOUNTS {
        match fs::openat2(parent, name, DIRECTORY, Mode::empty(), how) {
            Err(Errno::ACCESS) => {
                let found = fs::openat2(parent, name, FOUND, Mode::empty(), how)?;
                fs::chmod(own_link(&found), Mode::RWXU)?;
                return fs::openat(found, ".", DIRECTORY, Mode::empty());
            }
            Err(Errno::XDEV) => {
                let mounted = fs::openat(parent, name, FOUND, Mode::empty())?;
                rustix::mount::unmount(own_link(&mounted), UnmountFlags::DETACH)?;
            }
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

struct Sweep<'a> {
    top: BorrowedFd<'a>,
    /// How many trees were moved up to the top.
    moved: u64,
    removed: u64,
    failed: Option<io::Error>,
}

impl Sweep<'_> {
    /// Removes what is in a directory, as far as it goes.
    fn clear(&mut self, dir: BorrowedFd<'_>, depth: usize) {
        let entries = match fs::Dir::read_from(dir) {
            Ok(entries) => entries,
            Err(e) => return self.fails(e),
        };
        for entry in entries {
            match entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => {
                    if let Err(e) = self.one(dir, entry.file_name(), depth) {
                        self.fails(e);
                    }
                }
                Err(e) => return self.fails(e),
            }
        }
    }

    fn fails(&mut self, error: Errno) {
        if error != Errno::NOENT {
            self.failed.get_or_insert_with(|| error.into());
        }
    }

    fn one(&mut self, dir: BorrowedFd<'_>, name: &CStr, depth: usize) -> rustix::io::Result<()> {
        let mut unlinked = fs::unlinkat(dir, name, AtFlags::empty());
        if unlinked == Err(Errno::ACCESS) {
            // A directory that its owner made read-only.
            fs::fchmod(dir, Mode::RWXU)?;
            unlinked = fs::unlinkat(dir, name, AtFlags::empty());
        }
        match unlinked {
            Err(Errno::ISDIR | Errno::PERM) => {}
            other => return other.map(|()| self.removed += 1),
        }
        let below = open_own(dir, name)?;
        if depth >= DEPTH {
            return self.move_up(dir, name);
        }
        self.clear(below.as_fd(), depth + 1);
        drop(below);
        match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            // What is still in it was reported, or goes in the next round.
            Err(Errno::NOTEMPTY) => Ok(()),
            other => other.map(|()| self.removed += 1),
        }
    }

    fn move_up(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        loop {
            self.moved += 1;
            match fs::renameat(dir, name, self.top, format!(".deep-{}", self.moved)) {
                // The name is taken: the task may have guessed it.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return other.map(|()| self.removed += 1),
            }
        }
    }
}
