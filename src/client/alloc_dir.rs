//! The directories of an allocation.
//!
//! ```text
//! <alloc_dir>                                     0711  the agent's
//! <alloc_dir>/<alloc id>                          0711  the agent's
//! <alloc_dir>/<alloc id>/alloc                    1777  the agent's: no task can move these
//! <alloc_dir>/<alloc id>/alloc/{data,tmp}         0777, 1777
//! <alloc_dir>/<alloc id>/alloc/logs               0755  the agent's: tasks read, the agent writes
//! <alloc_dir>/<alloc id>/<task>                   0711  the task's user's: it works there
//! <alloc_dir>/<alloc id>/<task>/local             0755  the task's user's
//! <alloc_dir>/<alloc id>/<task>/{secrets,private} 0700  the task's user's, the agent's
//! <alloc_dir>/<alloc id>/<task>/tmp               1777
//! ```
//!
//! An agent that is not root cannot give anything away: everything is its own user's then, and so
//! are its tasks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Gid, Uid};
use tokio::sync::Semaphore;

use crate::beneath::{self, FileError, Owner};
use crate::env::TaskPaths;

/// The allocation's own directory, which all its tasks share.
const SHARED: &str = "alloc";
/// Every process that knows the name may pass.
pub const PASS: u32 = 0o711;
/// Everybody may write.
const OPEN: u32 = 0o777;
/// As [`OPEN`], but only owners may remove and rename.
const STICKY: u32 = 0o1777;
/// The owner may write, everybody may read.
const READ: u32 = 0o755;
/// The owner's alone.
const OWN: u32 = 0o700;
/// What users may never read of a task's directory.
const HIDDEN: [&str; 2] = ["secrets", "private"];
/// How many threads may look at files of one allocation at a time. Whatever a task made may hold
/// them up for ever; this is all it gets.
const TURNS: usize = 8;

/// Names directories of one allocation; makes and removes them.
#[derive(Clone, Debug)]
pub struct AllocDir {
    parent: PathBuf,
    id: String,
    turns: Arc<Semaphore>,
}

impl AllocDir {
    /// The directories of allocation `id` below the client's `alloc_dir`.
    pub fn new(alloc_dir: &Path, id: &str) -> Self {
        Self {
            parent: alloc_dir.to_owned(),
            id: id.to_owned(),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// The top.
    pub fn root(&self) -> PathBuf {
        self.parent.join(&self.id)
    }

    /// What the tasks share.
    pub fn shared(&self) -> PathBuf {
        self.root().join(SHARED)
    }

    /// Where log files are.
    pub fn logs(&self) -> PathBuf {
        self.shared().join("logs")
    }

    /// A task's top.
    pub fn task(&self, task: &str) -> PathBuf {
        self.root().join(task)
    }

    /// Directories as a task without file system isolation sees them.
    pub fn paths(&self, task: &str) -> TaskPaths {
        let root = self.task(task);
        TaskPaths {
            alloc: self.shared(),
            local: root.join("local"),
            secrets: root.join("secrets"),
            root,
        }
    }

    /// A reader of this allocation's files takes a permit of these first, and keeps it until
    /// it is done.
    pub fn turns(&self) -> Arc<Semaphore> {
        self.turns.clone()
    }

    /// Makes what the tasks share; nothing changes when it is there.
    pub fn build(&self) -> io::Result<()> {
        make_path(&self.parent)?;
        let root = beneath::make_dir(beneath::open_dir(&self.parent)?, &self.id, PASS, None)?;
        let shared = beneath::make_dir(&root, SHARED, STICKY, None)?;
        beneath::make_dir(&shared, "data", OPEN, None)?;
        beneath::make_dir(&shared, "logs", READ, None)?;
        beneath::make_dir(&shared, "tmp", STICKY, None)?;
        Ok(())
    }

    /// Makes a task's own directories, for the user it runs as (empty for the agent's); nothing
    /// changes when they are there.
    ///
    /// # Errors
    /// Something else has one of their names, or there is no such user.
    pub fn build_task(&self, task: &str, user: &str) -> io::Result<()> {
        let owner = owner(user)?;
        let root = beneath::make_dir(self.open()?, own_name(task)?, PASS, owner)?;
        beneath::make_dir(&root, "local", READ, owner)?;
        beneath::make_dir(&root, "secrets", OWN, owner)?;
        beneath::make_dir(&root, "private", OWN, None)?;
        beneath::make_dir(&root, "tmp", STICKY, None)?;
        Ok(())
    }

    /// Writes a file below a task's `local`, with the directories on its way.
    ///
    /// # Errors
    /// The path leads out, or goes through a link.
    pub fn write_local(&self, task: &str, user: &str, path: &Path, data: &[u8]) -> io::Result<()> {
        let owner = owner(user)?;
        let root = beneath::open_dir_in(self.open()?, own_name(task)?)?;
        let mut dir = beneath::open_dir_in(root, "local")?;
        let mut parts = path.components().filter_map(|part| match part {
            std::path::Component::CurDir => None,
            part => Some(part.as_os_str().to_string_lossy().into_owned()),
        });
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the file has no name");
        let mut name = parts.next().ok_or_else(no_name)?;
        for next in parts {
            dir = beneath::make_dir(&dir, &name, READ, owner)?;
            name = next;
        }
        let mut file = beneath::write(&dir, &name, false, 0o644, owner)?;
        io::Write::write_all(&mut file, data)
    }

    /// Takes `alloc/data` and the tasks' `local` over from a predecessor on this node.
    ///
    /// # Errors
    /// What is to be taken is no directory: a link would make files of others ours.
    pub fn take_over(&self, from: &Self, tasks: &[String]) -> io::Result<()> {
        let (old_root, new_root) = (from.open()?, self.open()?);
        let all = tasks.iter().map(|task| (task.as_str(), "local", PASS));
        for (parent, name, mode) in all.chain([(SHARED, "data", STICKY)]) {
            let old = match beneath::open_dir_in(&old_root, parent) {
                Ok(old) => old,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            let new = beneath::make_dir(&new_root, parent, mode, None)?;
            beneath::move_dir(old.as_fd(), new.as_fd(), name)?;
        }
        Ok(())
    }

    /// Removes everything.
    pub fn destroy(&self) -> io::Result<()> {
        match beneath::open_dir(&self.parent) {
            Ok(parent) => beneath::remove_tree(parent, &self.id),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Opens the top.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(&self) -> io::Result<OwnedFd> {
        beneath::open_dir(&self.root())
    }

    /// What lies at a path that a user gave, as [`beneath::find`] does; what holds secrets is
    /// refused, whatever way leads there.
    ///
    /// # Errors
    /// [`FileError::Escapes`], [`FileError::Secret`], or that nothing is there.
    pub fn find(&self, path: &str) -> Result<OwnedFd, FileError> {
        let root = self.open()?;
        let found = beneath::find(&root, Path::new(path))?;
        let (top, real) = (beneath::real_path(&root)?, beneath::real_path(&found)?);
        let mut parts = real
            .strip_prefix(&top)
            .map_err(|_| FileError::Escapes)?
            .iter();
        let task = parts.next();
        let hidden = parts.next().is_some_and(|n| HIDDEN.iter().any(|h| n == *h));
        match task {
            Some(task) if task != SHARED && hidden => Err(FileError::Secret),
            _ => Ok(found),
        }
    }
}

/// A task named as what they share would have its directory there.
fn own_name(task: &str) -> io::Result<&str> {
    if task == SHARED {
        let text = format!("a task cannot be named {task:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(task)
}

/// Makes a directory with those above it, so that tasks can pass; what is there stays as it is.
pub fn make_path(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_path(above)?;
    }
    match std::fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        other => other?,
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(PASS);
    std::fs::set_permissions(path, mode)
}

/// A task's user, where the agent is root and can give something away.
fn owner(user: &str) -> io::Result<Owner> {
    if user.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let found = nix::unistd::User::from_name(user)?;
    let found = found.ok_or_else(|| io::Error::other(format!("unknown user {user}")))?;
    let (uid, gid) = (found.uid.as_raw(), found.gid.as_raw());
    Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
}

#[cfg(test)]
#[path = "alloc_dir_test.rs"]
mod tests;
