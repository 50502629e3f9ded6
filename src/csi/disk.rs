//! Folders, marks and mounts on the disk of a node.
//!
//! Plugins write to the folder in which their volumes are: links that lead elsewhere, names that
//! change while they are looked at. There everything is reached from the opened folder, and no link
//! is followed on the way; what the agent itself remembers lies elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use tokio::fs;

use crate::mark::Mark;
use crate::mounts::MountError;

/// Where files of users are written before they are whole: the name of no namespace, which has no
/// such sign before such letters.
pub(crate) const UNFINISHED: &str = "%new";
/// How long the storage behind a place is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Threads that may be at a place at once.
const MOST: usize = 4;
/// Opening a folder to reach what is in it.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// No link is followed, and no way leads out.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// A place in a plugin's folder.
#[derive(Clone, Debug)]
pub(crate) struct PluginPath {
    /// The folder, which is the agent's own.
    pub root: PathBuf,
    /// The path in it.
    pub path: PathBuf,
}

/// A thread at a place; every thread that hangs with its storage would be lost.
struct Out(PathBuf);

static OUT: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

impl Out {
    /// `None` where there are too many already.
    fn at(place: &Path) -> Option<Self> {
        let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = out.entry(place.to_owned()).or_default();
        (*threads < MOST).then(|| {
            *threads += 1;
            Self(place.to_owned())
        })
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = out.get_mut(&self.0) {
            *threads -= 1;
            if *threads == 0 {
                out.remove(&self.0);
            }
        }
    }
}

impl PluginPath {
    /// On the host.
    pub(crate) fn host(&self) -> PathBuf {
        self.root.join(&self.path)
    }

    /// Does something with it, on a thread that may wait.
    async fn offload<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, MountError> {
        let (place, host) = (self.clone(), self.host());
        let Some(out) = Out::at(&host) else {
            let error = io::Error::new(io::ErrorKind::TimedOut, "its storage does not answer");
            return Err(MountError::Io(what, host, error));
        };
        let done = tokio::task::spawn_blocking(move || {
            // Until this thread is back, whether or not its caller waits for it.
            let _out = out;
            work(&place)
        });
        let done = match tokio::time::timeout(PATIENCE, done).await {
            Ok(done) => done.unwrap_or_else(|error| Err(io::Error::other(error))),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        done.map_err(|error| MountError::Io(what, host, error))
    }

    /// The folder that it lies in, and its name there.
    fn parent(&self) -> io::Result<(OwnedFd, &OsStr)> {
        let name = self.path.file_name();
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        let root = rustix::fs::open(&self.root, FOLDER, Mode::empty())?;
        let above = match self.path.parent() {
            Some(above) if above != Path::new("") => {
                rustix::fs::openat2(&root, above, FOLDER, Mode::empty(), WITHIN)?
            }
            _ => root,
        };
        Ok((above, name))
    }

    /// Makes it and those above it, as folders.
    pub(crate) async fn folder(&self) -> Result<(), MountError> {
        self.offload("make", |place| {
            std::fs::create_dir_all(&place.root)?;
            let mut at = rustix::fs::open(&place.root, FOLDER, Mode::empty())?;
            for part in &place.path {
                match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                at = rustix::fs::openat2(&at, part, FOLDER, Mode::empty(), WITHIN)?;
            }
            Ok(())
        })
        .await
    }

    /// Its folder, made with those above it.
    pub(crate) async fn above(&self) -> Result<(), MountError> {
        let path = self.path.parent().unwrap_or(&self.path).to_owned();
        let root = self.root.clone();
        PluginPath { root, path }.folder().await
    }

    /// What is there; nothing behind a link.
    pub(crate) async fn kind(&self) -> Result<Option<FileType>, MountError> {
        self.offload("look at", |place| {
            let (above, name) = match place.parent() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => found?,
            };
            match rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
                Err(Errno::NOENT) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Where it really is, and whether something is mounted there: the list is read from the
    /// kernel, for looking at the place itself may hang with the storage.
    pub(crate) async fn mounted(&self) -> Result<(PathBuf, bool), MountError> {
        self.offload("look for what is mounted at", |place| {
            let (above, name) = match place.parent() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok((place.host(), false));
                }
                found => found?,
            };
            let path = std::fs::read_link(format!("/proc/self/fd/{}", above.as_raw_fd()))?;
            let path = path.join(name);
            let is_mount = is_listed(&path)?;
            Ok((path, is_mount))
        })
        .await
    }

    /// Ends what others mounted below what is mounted there; whether there was something. Processes
    /// that see the same volume elsewhere keep what they see.
    pub(crate) async fn freed(&self) -> Result<bool, MountError> {
        self.offload("free", |place| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let (above, name) = match place.parent() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                found => found?,
            };
            let found = match rustix::fs::openat2(&above, name, flags, Mode::empty(), WITHIN) {
                Err(Errno::NOENT) => return Ok(false),
                found => found?,
            };
            let below = listed_below(&std::fs::read_link(link(&found))?)?;
            if below.is_empty() {
                return Ok(false);
            }
            let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change(link(&found), alone)?;
            // What was mounted last lies on top.
            for path in below.iter().rev() {
                let mounted = rustix::fs::openat2(&found, path, flags, Mode::empty(), WITHIN);
                match mounted.and_then(|found| unmount(link(&found), UnmountFlags::DETACH)) {
                    Ok(()) | Err(Errno::NOENT | Errno::INVAL) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(true)
        })
        .await
    }

    /// Removes what a plugin leaves of it. Never what lies in it: where something is still mounted,
    /// or a folder holds something, it is an error.
    pub(crate) async fn gone(&self) -> Result<(), MountError> {
        if self.mounted().await?.1 {
            let text = format!(
                "the plugin says that it is done with {}, and something is mounted there",
                self.host().display()
            );
            return Err(MountError::Lie(text));
        }
        self.offload("remove", |place| {
            let removed = place.parent().and_then(|(above, name)| {
                let found = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let how = match FileType::from_raw_mode(found.st_mode) {
                    FileType::Directory => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                Ok(rustix::fs::unlinkat(&above, name, how)?)
            });
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Removes the folders above it that are empty, but for the first `kept` of them.
    pub(crate) async fn emptied(&self, kept: usize) {
        let removed = self.offload("remove", move |place| {
            let PluginPath { root, path } = place.clone();
            let mut above = path.parent();
            while let Some(path) = above.filter(|path| path.components().count() > kept) {
                let (root, path) = (root.clone(), path.to_owned());
                let one = PluginPath { root, path };
                let (parent, name) = one.parent()?;
                rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
                above = above.and_then(Path::parent);
            }
            Ok(())
        });
        // One that is not empty stays, with those above it.
        let _ = removed.await;
    }
}

/// By which name a process reaches what it has open, and nothing else.
fn link(open: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

/// Where something is mounted below a path, which has no links in it, in the order in which it was.
fn listed_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescaped(point)));
    let below = points.filter_map(|point| Some(point.strip_prefix(path).ok()?.to_owned()));
    Ok(below.filter(|path| path != Path::new("")).collect())
}

/// Whether the kernel's list of mounts has a path, which has no links in it.
fn is_listed(path: &Path) -> io::Result<bool> {
    let wanted = escaped(&path.to_string_lossy());
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.any(|point| point == wanted))
}

/// Whether something is mounted at a path that was found without links.
pub(crate) async fn is_mount(path: &Path) -> Result<bool, MountError> {
    let wanted = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = wanted.parent().unwrap_or(&wanted);
        let none = ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(CWD, above, flags, Mode::empty(), none) {
            Ok(_) => is_listed(&wanted),
            Err(Errno::NOENT | Errno::LOOP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    });
    let looked = looked
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    looked.map_err(|error| MountError::Io("look at", path.to_owned(), error))
}

/// A path as the kernel lists it.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

/// A path that the kernel lists.
fn unescaped(listed: &str) -> String {
    let pairs = [
        ("\\012", "\n"),
        ("\\011", "\t"),
        ("\\040", " "),
        ("\\134", "\\"),
    ];
    pairs
        .iter()
        .fold(listed.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// What the file of a user says.
pub(crate) enum MountUser {
    Mark(Mark),
    /// It is empty, or broken off: the plugin was never called for its volume.
    Nothing,
    /// The file does not exist any more.
    Gone,
}

/// What the file of a user holds; one that is gone is no error.
pub(crate) async fn read_user(path: &Path) -> Result<MountUser, MountError> {
    match fs::read_to_string(path).await {
        Ok(text) => Ok(Mark::parse(&text).map_or(MountUser::Nothing, MountUser::Mark)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MountUser::Gone),
        Err(error) => Err(MountError::Io("read", path.to_owned(), error)),
    }
}

/// Writes the file of a user below `root`, so that it outlives the machine. It is there whole, or
/// as it was before: a reader meanwhile sees no other.
pub(crate) async fn marked(root: &Path, path: &Path, text: &[u8]) -> Result<(), MountError> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let above = path.parent().unwrap_or(path);
    let failed = |error| MountError::Io("make", path.to_owned(), error);
    if fs::read(path).await.is_ok_and(|old| old == text) {
        return Ok(());
    }
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let unfinished = root.join(UNFINISHED);
    let draft = unfinished.join(number.to_string());
    let kept = async {
        fs::create_dir_all(above).await?;
        fs::create_dir_all(&unfinished).await?;
        // One that a former agent left is written over.
        let mut file = fs::File::create(&draft).await?;
        tokio::io::AsyncWriteExt::write_all(&mut file, text).await?;
        file.sync_all().await?;
        fs::rename(&draft, path).await?;
        fs::File::open(above).await?.sync_all().await
    };
    let kept = kept.await;
    if kept.is_err() {
        // The draft is in no one's way.
        let _ = fs::remove_file(&draft).await;
    }
    kept.map_err(failed)
}

/// Removes the file of a user, and the folders above it that are empty, up to `root`.
pub(crate) async fn unmarked(root: &Path, path: &Path) -> Result<(), MountError> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(MountError::Io("remove", path.to_owned(), error));
        }
        _ => {}
    }
    // The folder of a namespace stays, which others may be about to use.
    let above = path.ancestors().skip(1);
    for folder in above.take_while(|folder| folder.parent() != Some(root)) {
        if fs::remove_dir(folder).await.is_err() {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn others(users: &Path, own: &Path) -> Result<usize, MountError> {
    let all = names(users).await?;
    let own = own.file_name().unwrap_or_default().to_string_lossy();
    Ok(all.iter().filter(|name| **name != own).count())
}

/// What lies in a folder; nothing in one that is not there.
pub(crate) async fn names(path: &Path) -> Result<Vec<String>, MountError> {
    let failed = |error| MountError::Io("read", path.to_owned(), error);
    let mut entries = match fs::read_dir(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        found.push(entry.file_name().to_string_lossy().into_owned());
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn storage_that_hangs_takes_a_few_threads_however_often_it_is_looked_at() {
        let place = PluginPath {
            root: "/of/a/lost/server".into(),
            path: "volume".into(),
        };
        let hanging: Vec<Out> = (0..MOST).filter_map(|_| Out::at(&place.host())).collect();
        assert_eq!(hanging.len(), MOST);
        let MountError::Io(_, _, error) = place.kind().await.unwrap_err() else {
            panic!("of the storage");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(hanging);
        assert!(matches!(place.kind().await, Ok(None)));
        assert!(Out::at(&place.host()).is_some());
    }
}
