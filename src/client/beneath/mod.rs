//! Files in directories that tasks can write to.
//!
//! The owner of a task decides what lies in its directories: links that lead out, pipes and devices
//! that hold up every process that opens them, names that change while they are looked at, trees
//! that are a hundred thousand levels deep. So nothing is named twice here: the kernel resolves a
//! path once, beneath a directory that is open already, and everything after that is done with the
//! descriptor.
//!
//! It must not know: allocations, tasks, requests. All its functions wait as file systems do: they
//! belong on threads that may wait.

mod remove;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

pub use remove::remove_tree;

/// Names that are renamed all the time are resolved again so often.
const TRIES: usize = 100;
/// Opening a directory that is there.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Why a file is not given.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path, or a link on it, leads out of the directory.
    #[error("path escapes the allocation directory")]
    Escapes,
    /// It holds secrets.
    #[error("Reading secret file prohibited")]
    Secret,
    /// It is a directory.
    #[error("is a directory")]
    Directory,
    /// It is a pipe, a socket or a device.
    #[error("is no regular file")]
    Special,
    /// An error of the file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::XDEV => Self::Escapes,
            other => Self::Io(other.into()),
        }
    }
}

/// The owner of what is made.
pub type Owner = Option<(Uid, Gid)>;

/// Opens a directory by a path of the agent's own; its last part may not be a link.
///
/// # Errors
/// The directory does not exist.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::open(path, DIRECTORY, Mode::empty())?)
}

/// Opens a directory by its name in another; a link is refused.
///
/// # Errors
/// The directory does not exist, or something else has its name.
pub fn open_dir_in(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(fs::openat(
        parent,
        one_part(name)?,
        DIRECTORY,
        Mode::empty(),
    )?)
}

/// A name that is one part of a path, and no way up.
fn one_part(name: &str) -> io::Result<&str> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        let text = format!("{name:?} is no name for a file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(name)
}

/// Makes a directory, or takes the one that is there, and sets its mode and owner; a link or a file
/// of that name is refused.
///
/// # Errors
/// Something else has its name, or an error of the file system.
pub fn make_dir(parent: impl AsFd, name: &str, mode: u32, owner: Owner) -> io::Result<OwnedFd> {
    match fs::mkdirat(&parent, one_part(name)?, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let dir = open_dir_in(parent, name)?;
    if let Some((uid, gid)) = owner {
        fs::fchown(&dir, Some(uid), Some(gid))?;
    }
    // After the owner: a change of it takes bits away.
    fs::fchmod(&dir, Mode::from_raw_mode(mode))?;
    Ok(dir)
}

/// Resolves a path that a user gave, once: neither `..` nor a link may lead out of `root`. What is
/// found is not opened for reading, so that nothing happens to it.
///
/// # Errors
/// [`FileError::Escapes`], or that nothing is there.
pub fn find(root: impl AsFd, path: &Path) -> Result<OwnedFd, FileError> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let inside = match inside.as_os_str().is_empty() {
        true => Path::new("."),
        false => inside,
    };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match fs::openat2(&root, inside, flags, Mode::empty(), how) {
            // Something above was renamed meanwhile.
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
            Ok(found) => return Ok(found),
        }
    }
    Err(FileError::Io(io::ErrorKind::WouldBlock.into()))
}

/// Where what a descriptor stands for lies now.
///
/// # Errors
/// `/proc` is not there.
pub fn real_path(found: impl AsFd) -> io::Result<PathBuf> {
    let link = own_link(&found);
    let path = fs::readlinkat(fs::CWD, link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

fn own_link(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// What it is.
///
/// # Errors
/// An error of the file system.
pub fn stat(found: impl AsFd) -> io::Result<Stat> {
    Ok(fs::fstat(found)?)
}

/// What kind of file it is.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a found file for reading. Only regular files are opened at all: a pipe would hold us up,
/// and a device may do something.
///
/// # Errors
/// It is no regular file, or may not be read.
pub fn read(found: impl AsFd) -> Result<File, FileError> {
    match kind(&stat(&found)?) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileError::Directory),
        _ => return Err(FileError::Special),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // The link stands for the very file that was looked at, wherever it is now.
    Ok(fs::open(own_link(&found), flags, Mode::empty())?.into())
}

/// A name in a directory, and what it is; links are not followed.
pub type DirEntry = (String, Stat);

/// What lies in a found directory, `most` entries of it at most; whether there are more.
///
/// # Errors
/// It is no directory, or may not be read.
pub fn entries(found: impl AsFd, most: usize) -> io::Result<(Vec<DirEntry>, bool)> {
    entries_where(found, most, |_| true)
}

/// The same of those with certain names alone: the others are no matter, however many they are.
///
/// # Errors
/// As [`entries`].
pub fn entries_where(
    found: impl AsFd,
    most: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> io::Result<(Vec<DirEntry>, bool)> {
    let dir = fs::openat(found, ".", DIRECTORY, Mode::empty())?;
    let mut out = Vec::new();
    for entry in fs::Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || !wanted(name.to_bytes()) {
            continue;
        }
        if out.len() == most {
            return Ok((out, true));
        }
        // What vanished meanwhile is not there.
        if let Ok(stat) = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            out.push((name.to_string_lossy().into_owned(), stat));
        }
    }
    Ok((out, false))
}

/// Opens a regular file of a directory for reading; `None` when it does not exist, or something
/// else has its name.
///
/// # Errors
/// An error of the file system.
pub fn regular(dir: impl AsFd, name: &str) -> io::Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match fs::openat(dir, one_part(name)?, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match read(found) {
        Ok(file) => Ok(Some(file)),
        Err(FileError::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}

/// Opens a file for writing, makes it if it does not exist; at its end with `append`, else it is
/// empty then. Links, pipes, devices and files with a second name are refused.
///
/// # Errors
/// Something else has its name, or an error of the file system.
pub fn write(
    dir: impl AsFd,
    name: &str,
    append: bool,
    mode: u32,
    owner: Owner,
) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let flags = if append {
        flags | OFlags::APPEND
    } else {
        flags
    };
    let file = fs::openat(dir, one_part(name)?, flags, Mode::RUSR | Mode::WUSR)?;
    let stat = fs::fstat(&file)?;
    if kind(&stat) != FileType::RegularFile || stat.st_nlink != 1 {
        let text = format!("{name}: something else than a file of its own has this name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if let Some((uid, gid)) = owner {
        fs::fchown(&file, Some(uid), Some(gid))?;
    }
    fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    if !append {
        fs::ftruncate(&file, 0)?;
    }
    Ok(file.into())
}

/// Moves a directory of one directory into another, where it takes the place of an empty one;
/// `false` when it does not exist. A link or a file of that name is refused.
///
/// # Errors
/// Something else has its name, or an error of the file system.
pub fn move_dir(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match fs::statat(from, one_part(name)?, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if kind(&stat) == FileType::Directory => {}
        Ok(_) => {
            let text = format!("{name} of the former allocation is not a directory");
            return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
        }
        Err(Errno::NOENT) => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    match fs::unlinkat(to, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    fs::renameat(from, name, to, name)?;
    // Whatever had the name by then: only a directory stays.
    open_dir_in(to, name).map(|_| true)
}

#[cfg(test)]
mod tests;
