//! The directory of an export for analysts: what says how far it is, and what is removed before it
//! continues.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::ArchiveError;
use crate::log::atomic_file;

/// The ending of a file that is not whole.
pub(super) const UNFINISHED: &str = "parquet.tmp";
/// What says that an export is whole.
pub(super) const MANIFEST: &str = "export.json";
/// What says that it is not yet, and how far it is.
pub(super) const PROGRESS: &str = "unfinished.json";

/// The parts of an export that are complete on the disk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Done {
    /// The last event of a whole day.
    pub(super) last: Option<u64>,
    pub(super) events: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Done {
    /// Adds these figures to the manifest.
    pub(super) fn report(self, manifest: &mut Value) {
        manifest["Last"] = self.last.into();
        manifest["Events"] = self.events.into();
        manifest["Files"] = self.files.into();
        manifest["Bytes"] = self.bytes.into();
    }
}

/// What an export in `dir` has done already, which must be one of this log with these flags;
/// nothing where none was begun.
pub(super) fn gone_on(dir: &Path, wanted: &Value) -> Result<Done, ArchiveError> {
    // The progress is the newer one, where a kill left both.
    let found = [PROGRESS, MANIFEST].into_iter().map(|name| dir.join(name));
    let Some(path) = found.into_iter().find(|path| path.exists()) else {
        prepare(dir)?;
        return Ok(Done::default());
    };
    let read = fs::read(&path).map_err(ArchiveError::file("read", &path))?;
    let refused = |what: &str| {
        let path = path.display();
        ArchiveError::Refused(format!("{path} {what}: export to another directory"))
    };
    let head: Value = serde_json::from_slice(&read).map_err(|_| refused("is not an export's"))?;
    if head["Epoch"] != wanted["Epoch"] || head["Flags"] != wanted["Flags"] {
        return Err(refused("is of another log, or was made with other flags"));
    }
    let done = serde_json::from_value(head);
    done.map_err(|_| refused("does not say how far it is"))
}

/// Removes what lies behind the last event of a whole day.
pub(super) fn clear_behind(dir: &Path, last: Option<u64>) -> Result<(), ArchiveError> {
    let list = |dir: &Path| -> Result<Vec<PathBuf>, ArchiveError> {
        let entries = fs::read_dir(dir).map_err(ArchiveError::file("read", dir))?;
        let path = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.path());
        let paths: std::io::Result<Vec<PathBuf>> = entries.map(path).collect();
        paths.map_err(ArchiveError::file("read", dir))
    };
    let manifest = dir.join(MANIFEST);
    if manifest.exists() {
        fs::remove_file(&manifest).map_err(ArchiveError::file("remove", &manifest))?;
    }
    for day in list(dir)?.into_iter().filter(|path| path.is_dir()) {
        for kind in list(&day)?.into_iter().filter(|path| path.is_dir()) {
            for file in list(&kind)? {
                let kept = whole_file(&file).is_some_and(|first| last.is_some_and(|l| first <= l));
                if !kept {
                    fs::remove_file(&file).map_err(ArchiveError::file("remove", &file))?;
                }
            }
        }
    }
    Ok(())
}

/// The first index in a file of an export, by its name; `None` for a file that is not whole.
fn whole_file(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let index = name.strip_prefix("events-")?.strip_suffix(".parquet")?;
    index.parse().ok()
}

pub(super) fn put(dir: &Path, name: &str, content: &Value) -> Result<(), ArchiveError> {
    let path = dir.join(name);
    atomic_file::put(&path, format!("{content:#}\n").as_bytes())
        .map_err(ArchiveError::file("write", &path))
}

/// Makes the directory, or empties one in which an export was broken off.
pub(super) fn prepare(dir: &Path) -> Result<(), ArchiveError> {
    fs::create_dir_all(dir).map_err(ArchiveError::file("create", dir))?;
    let refused = |what: String| {
        let dir = dir.display();
        ArchiveError::Refused(format!("{dir} {what}: name another directory, or empty it"))
    };
    if dir.join(MANIFEST).exists() {
        return Err(refused("holds an export already".to_owned()));
    }
    let unfinished = dir.join(PROGRESS).exists();
    for entry in fs::read_dir(dir).map_err(ArchiveError::file("read", dir))? {
        let path = entry.map_err(ArchiveError::file("read", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // They are replaced, whatever a kill left of them.
        if name.starts_with(PROGRESS) || name.starts_with(MANIFEST) {
            continue;
        }
        if !unfinished || !name.starts_with("day=") {
            return Err(refused(format!("is not empty, {name} is in it")));
        }
        fs::remove_dir_all(&path).map_err(ArchiveError::file("remove", &path))?;
    }
    Ok(())
}
