//! How two databases change places, and what is kept of the old ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drover_projections::damage_mark;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::RebuildError;
use super::mark::Mark;

/// Where a new database is built beside one in use.
pub fn beside(live: &Path) -> PathBuf {
    with_ending(live, "-rebuild")
}

/// A path of the same directory whose name goes on with `ending`.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// `projections.set-aside-1`, or the next number that is free.
pub(super) fn unused(path: &Path) -> PathBuf {
    let mut number = 1;
    loop {
        let aside = path.with_extension(format!("set-aside-{number}"));
        if !aside.exists() {
            return aside;
        }
        number += 1;
    }
}

/// The databases that were set aside, and their bytes.
///
/// # Errors
/// The directory cannot be read.
pub fn kept(live: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let parent = live.parent().unwrap_or(Path::new("."));
    let mut kept = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let built = with_ending(live, "-rebuild.set-aside-");
        let aside = with_ending(live, ".set-aside-");
        let is_kept = [built, aside].iter().any(|prefix| {
            let prefix = prefix.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&*prefix)
        });
        if is_kept && path.is_dir() {
            let bytes = size(&path)?;
            kept.push((path, bytes));
        }
    }
    kept.sort();
    Ok(kept)
}

/// The bytes of the files of a database.
pub(super) fn size(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let metadata = entry?.metadata()?;
        bytes += if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
    }
    Ok(bytes)
}

/// Removes the databases that were set aside; answers how many there were.
///
/// # Errors
/// One cannot be removed.
pub fn discard(live: &Path) -> Result<usize, RebuildError> {
    let kept = kept(live).map_err(RebuildError::file(live))?;
    for (path, _) in &kept {
        fs::remove_dir_all(path).map_err(RebuildError::file(path))?;
    }
    Ok(kept.len())
}

/// Sets the database aside, with the mark of its damage: the next one is new.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(live: &Path) -> Result<(), RebuildError> {
    if live.exists() {
        fs::rename(live, unused(live)).map_err(RebuildError::file(live))?;
    }
    forget_damage(live)
}

fn forget_damage(live: &Path) -> Result<(), RebuildError> {
    match fs::remove_file(damage_mark(live)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RebuildError::file(live)(error))
        }
        _ => Ok(()),
    }
}

/// Puts the new database in the place of the one in use, in one step; answers where the old one is
/// kept. After a crash on the way the new one is in use, or the old one, never none of them; the
/// next rebuild tidies up.
pub(super) fn switch(new: &Path, live: &Path) -> Result<Option<PathBuf>, RebuildError> {
    let failed = || RebuildError::file(live);
    let aside = match live.exists() {
        false => {
            fs::rename(new, live).map_err(failed())?;
            None
        }
        true => {
            let aside = unused(live);
            match exchange(new, live).map_err(failed())? {
                true => fs::rename(new, &aside).map_err(failed())?,
                false => {
                    fs::rename(live, &aside).map_err(failed())?;
                    fs::rename(new, live).map_err(failed())?;
                }
            }
            Some(aside)
        }
    };
    let parent = live.parent().unwrap_or(Path::new("."));
    fs::File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(failed())?;
    Mark::remove(live)?;
    forget_damage(live)?;
    Ok(aside)
}

/// Exchanges two paths; false where the file system cannot.
fn exchange(one: &Path, two: &Path) -> io::Result<bool> {
    use rustix::io::Errno;
    match renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
