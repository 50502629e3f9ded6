//! How two databases change places, and what is kept of the old ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drover_projections::damage_mark;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::RebuildError;
use super::build_record::BuildRecord;
use crate::log::atomic_file;

/// Where a new database is built beside one in use.
pub fn beside(live: &Path) -> PathBuf {
    with_ending(live, "-rebuild")
}

/// Where a new database is built while a server serves from `live`: not there.
pub(super) fn beside_serving(home: &Path, live: &Path) -> PathBuf {
    let first = beside(home);
    match first == live {
        true => with_ending(&first, "-2"),
        false => first,
    }
}

/// The file that names the database in use, where it is not the one at `home`.
fn pointer(home: &Path) -> PathBuf {
    home.with_extension("in-use")
}

/// A pointer to another database, written and synced, but not in its place yet.
pub(super) struct Pointer {
    new: PathBuf,
    place: PathBuf,
}

impl Pointer {
    pub(super) fn prepare(home: &Path, to: &Path) -> Result<Pointer, RebuildError> {
        let place = pointer(home);
        let new = home.with_extension("in-use.new");
        let name = to.file_name().unwrap_or_default();
        fs::write(&new, name.as_encoded_bytes())
            .and_then(|()| fs::File::open(&new)?.sync_all())
            .map_err(RebuildError::file(&new))?;
        Ok(Pointer { new, place })
    }

    /// From here on a start finds the other database; [`sync_dir`] makes that lasting.
    pub(super) fn put(&self) -> io::Result<()> {
        fs::rename(&self.new, &self.place)
    }
}

/// Makes what was renamed in the directory of `path` lasting.
pub(super) fn sync_dir(path: &Path) -> Result<(), RebuildError> {
    atomic_file::sync_dir(path.parent().unwrap_or(Path::new("."))).map_err(RebuildError::file(path))
}

/// Retires the database that was in use before the current one, once no reader has it open.
pub(super) fn retire_old(home: &Path, old: &Path) -> Result<PathBuf, RebuildError> {
    let retired = unused(home);
    fs::rename(old, &retired).map_err(RebuildError::file(old))?;
    forget_damage(old)?;
    sync_dir(home)?;
    Ok(retired)
}

/// Finishes a switch that a server made while it served: the database in use comes home, the former
/// one is retired. Nothing where there is nothing to finish. Not beside a running server.
///
/// # Errors
/// Files that cannot be moved: calling it again continues. [`RebuildError::Busy`] beside a server.
pub fn finish_switch(log_dir: &Path, home: &Path) -> Result<(), RebuildError> {
    if !pointer(home).exists() {
        return Ok(());
    }
    let _lock = super::lock(log_dir)?;
    finish_switch_locked(home)
}

/// As [`finish_switch`], for a caller that holds the log's lock.
pub(crate) fn finish_switch_locked(home: &Path) -> Result<(), RebuildError> {
    let place = pointer(home);
    let name = match fs::read_to_string(&place) {
        Ok(name) => name,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(RebuildError::file(&place)(error)),
    };
    let named = home.with_file_name(&name);
    if named.is_dir() && named != home {
        if home.exists() {
            retire_old(home, home)?;
        }
        fs::rename(&named, home).map_err(RebuildError::file(&named))?;
    }
    let marks = (damage_mark(&named), damage_mark(home));
    if marks.0.exists() && named != home {
        fs::rename(&marks.0, &marks.1).map_err(RebuildError::file(&marks.0))?;
    }
    BuildRecord::remove(home)?;
    let (first, second) = (beside(home), with_ending(&beside(home), "-2"));
    if second.exists() && !first.exists() {
        fs::rename(&second, &first).map_err(RebuildError::file(&second))?;
    }
    sync_dir(home)?;
    fs::remove_file(&place).map_err(RebuildError::file(&place))?;
    sync_dir(home)
}

/// A path of the same directory whose name continues with `ending`.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// `projections.set-aside-1`, or the next number that is free.
pub(super) fn unused(path: &Path) -> PathBuf {
    let mut number = 1;
    loop {
        let retired = path.with_extension(format!("set-aside-{number}"));
        if !retired.exists() {
            return retired;
        }
        number += 1;
    }
}

/// The retired databases, and their bytes.
///
/// # Errors
/// The directory cannot be read.
pub fn kept(live: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let parent = live.parent().unwrap_or(Path::new("."));
    let mut kept = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = live.file_name().unwrap_or_default().to_string_lossy();
        let is_kept = name
            .strip_prefix(&*own)
            .and_then(|rest| rest.split_once(".set-aside-"))
            .is_some_and(|(built, _)| ["", "-rebuild", "-rebuild-2"].contains(&built));
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

/// Removes the retired databases; answers how many there were.
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

/// Retires the database, with the mark of its damage: the next one is new.
///
/// # Errors
/// It cannot be renamed.
pub fn retire(live: &Path) -> Result<(), RebuildError> {
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
/// kept. After a crash on the way the new one is in use, or the old one, and always one of the two;
/// the next rebuild tidies up.
pub(super) fn switch(new: &Path, live: &Path) -> Result<Option<PathBuf>, RebuildError> {
    let failed = || RebuildError::file(live);
    let retired = match live.exists() {
        false => {
            fs::rename(new, live).map_err(failed())?;
            None
        }
        true => {
            let retired = unused(live);
            match exchange(new, live).map_err(failed())? {
                true => fs::rename(new, &retired).map_err(failed())?,
                false => {
                    fs::rename(live, &retired).map_err(failed())?;
                    fs::rename(new, live).map_err(failed())?;
                }
            }
            Some(retired)
        }
    };
    sync_dir(live)?;
    BuildRecord::remove(live)?;
    forget_damage(live)?;
    Ok(retired)
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
