//! Folders, marks and mounts on the disk of a node.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;

use crate::mounts::{MountError, Root};

/// Makes a folder and those above it.
pub(crate) async fn folder(path: &Path) -> Result<(), MountError> {
    let made = fs::create_dir_all(path).await;
    made.map_err(|error| MountError::Io("make", path.to_owned(), error))
}

/// Makes the empty file of a user, so that it outlives the machine.
pub(crate) async fn marked(path: &Path) -> Result<(), MountError> {
    let above = path.parent().unwrap_or(path);
    folder(above).await?;
    let file = fs::File::create(path).await;
    let kept = async {
        file?.sync_all().await?;
        fs::File::open(above).await?.sync_all().await
    };
    kept.await
        .map_err(|error| MountError::Io("make", path.to_owned(), error))
}

pub(crate) async fn removed(path: &Path) -> Result<(), MountError> {
    match fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::Io("remove", path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

/// Removes what a plugin leaves of a place. Never what lies in it: where something is still
/// mounted, or a folder holds something, it is an error.
pub(crate) async fn gone(path: &Path) -> Result<(), MountError> {
    if is_mount(path).await? {
        let text = format!(
            "the plugin says that it is done with {}, and something is mounted there",
            path.display()
        );
        return Err(MountError::Lie(text));
    }
    let removed = match fs::symlink_metadata(path).await {
        Ok(found) if found.is_dir() => fs::remove_dir(path).await,
        Ok(_) => fs::remove_file(path).await,
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::Io("remove", path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

/// What is kept although it is empty: the folder of a namespace, which others may be about to use.
pub(crate) const NAMESPACE: usize = 2;
/// The folder of all allocations.
pub(crate) const ALLOCATIONS: usize = 1;

/// Removes the folders above a path that are empty, but for the first ones.
pub(crate) async fn emptied(root: &Root, below: &Path, kept: usize) {
    let mut above = below.parent();
    while let Some(path) = above.filter(|path| path.components().count() > kept) {
        if fs::remove_dir(root.host.join(path)).await.is_err() {
            return;
        }
        above = path.parent();
    }
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

/// Whether something is mounted at a path: the kernel is asked for its list, for looking at the
/// path itself may hang with the storage.
pub(crate) async fn is_mount(path: &Path) -> Result<bool, MountError> {
    let list = Path::new("/proc/self/mountinfo");
    let failed = |error| MountError::Io("read", list.to_owned(), error);
    // The list has no links in it; of the path's own end nothing is asked.
    let above = match path.parent() {
        Some(above) => match fs::canonicalize(above).await {
            Ok(above) => above,
            Err(_) => return Ok(false),
        },
        None => PathBuf::new(),
    };
    let wanted = above.join(path.file_name().unwrap_or_default());
    let wanted = escaped(&wanted.to_string_lossy());
    let mounts = fs::read(list).await.map_err(failed)?;
    let mounts = String::from_utf8_lossy(&mounts);
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(wanted.as_str())))
}

/// A path as the kernel lists it.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}
