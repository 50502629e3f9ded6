//! The end of a restore: what was made beside a server's files takes their place.
//!
//! Every step is a rename that is either done or not, and the directory of the new files goes last;
//! the next start continues where a killed one stopped. The former log is kept, under
//! `former/<epoch>`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ArchiveError, sync_dir};
use crate::log::ReadOnlyLog;
use crate::log::atomic_file;

/// Where a restore is made; where the directory exists, a restore was interrupted.
pub(super) const DRAFT: &str = "restoring.tmp";
/// Where a restore lies that has happened.
pub(super) const READY: &str = "restored";
/// Where former logs are kept.
const FORMER: &str = "former";
/// The note that says under which name the former files are kept.
const NAME: &str = "former-name";

/// What belongs to a log and is kept with it.
const WITH_LOG: [&str; 6] = [
    "log",
    "snapshots",
    "checkpoints",
    "checkpoints.keys",
    "tree",
    "tree.edge",
];

/// Finishes a restore that has happened, and removes one that has not; answers whether there was
/// one to finish. A server calls it before it opens anything.
///
/// # Errors
/// Files that cannot be moved; calling it again continues.
pub fn adopt(server: &Path) -> Result<bool, ArchiveError> {
    let draft = server.join(DRAFT);
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(ArchiveError::file("remove", &draft))?;
    }
    let ready = server.join(READY);
    if !ready.exists() {
        return Ok(false);
    }
    let former = server.join(FORMER).join(former_name(server, &ready)?);
    if ready.join("projections").exists() {
        // They follow from the log.
        let old = server.join("projections");
        if old.exists() {
            fs::remove_dir_all(&old).map_err(ArchiveError::file("remove", &old))?;
        }
        let _ = fs::remove_file(drover_projections::damage_mark(&old));
        rename(&ready.join("projections"), &old)?;
    }
    // The log goes last: until it has moved, the files that belong to it are the former ones.
    for name in WITH_LOG.iter().rev() {
        let (old, new) = (server.join(name), ready.join(name));
        let due = match *name {
            "log" | "snapshots" => new.exists(),
            _ => ready.join("log").exists(),
        };
        if due && old.exists() {
            fs::create_dir_all(&former).map_err(ArchiveError::file("create", &former))?;
            rename(&old, &former.join(name))?;
        }
        if new.exists() {
            rename(&new, &old)?;
        }
    }
    take_keys(server, &ready)?;
    if former.exists() {
        sync_dir(&former)?;
    }
    sync_dir(server)?;
    fs::remove_dir_all(&ready).map_err(ArchiveError::file("remove", &ready))?;
    sync_dir(server)?;
    Ok(true)
}

/// The former logs of a server: the first index of each and its directory, the newest epoch last.
pub fn former_logs(server: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(server.join(FORMER)) else {
        return Vec::new();
    };
    let mut kept: Vec<(u64, PathBuf)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter_map(|path| {
            let log = ReadOnlyLog::open(&path.join("log")).ok()?;
            Some((log.epoch().first_index, path))
        })
        .collect();
    kept.sort();
    kept
}

fn rename(from: &Path, to: &Path) -> Result<(), ArchiveError> {
    fs::rename(from, to).map_err(ArchiveError::file("rename", from))
}

/// The name under which the former files are kept: their epoch's, noted before anything moves.
fn former_name(server: &Path, ready: &Path) -> Result<String, ArchiveError> {
    let note = ready.join(NAME);
    if let Ok(name) = fs::read_to_string(&note) {
        return Ok(name);
    }
    let epoch = ReadOnlyLog::open(&server.join("log")).map(|log| hex::encode(log.epoch().id));
    let base = epoch.unwrap_or_else(|_| "unknown".to_owned());
    let mut name = base.clone();
    let mut number = 1;
    while server.join(FORMER).join(&name).exists() {
        number += 1;
        name = format!("{base}-{number}");
    }
    atomic_file::put(&note, name.as_bytes()).map_err(ArchiveError::file("write", &note))?;
    Ok(name)
}

/// The keys come beside those that are there.
fn take_keys(server: &Path, ready: &Path) -> Result<(), ArchiveError> {
    let (from, to) = (ready.join("keystore"), server.join("keystore"));
    if !from.is_dir() {
        return Ok(());
    }
    if !to.exists() {
        return rename(&from, &to);
    }
    for (name, path) in super::save::files(&from)? {
        let place = to.join(&name);
        if name.ends_with(".json") || !place.exists() {
            rename(&path, &place)?;
        }
    }
    sync_dir(&to)
}
