//! Joined: an archive, and the log that goes on from it, as one directory that every tool reads.
//!
//! The directory has the form of a server's. What lies on this machine is linked; what lies
//! elsewhere is fetched, each file once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use drover_projections::hex;

use super::ArchiveError;
use super::store::Store;
use crate::log::{Epoch, JOINED, ReadOnlyLog};

/// What is to be joined.
pub struct Join<'a> {
    /// The archive: that of one epoch, or what holds those of several.
    pub store: &'a Store,
    /// The server's directory whose log goes on from it, if there is one.
    pub server: Option<&'a Path>,
    /// An empty directory to make it in.
    pub to: &'a Path,
}

fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ArchiveError + use<> {
    ArchiveError::file(doing, path)
}

fn make(path: &Path) -> Result<(), ArchiveError> {
    fs::create_dir_all(path).map_err(file("create", path))
}

fn link(from: &Path, to: &Path) -> Result<(), ArchiveError> {
    let from = fs::canonicalize(from).map_err(file("find", from))?;
    symlink(&from, to).map_err(file("link", to))
}

impl Join<'_> {
    /// Joins them. `progress` hears how many bytes were fetched, and of how many.
    ///
    /// # Errors
    /// An archive that cannot be read, holds nothing, or is not that of the log; files that cannot
    /// be made.
    pub async fn run(
        &self,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<(), ArchiveError> {
        let own = match self.server {
            Some(server) => Some(ReadOnlyLog::open(&server.join("log"))?),
            None => None,
        };
        let (store, objects) = self.epoch_of(own.as_ref().map(ReadOnlyLog::epoch)).await?;
        let log_dir = self.to.join("log");
        make(&log_dir)?;
        // What the log still has itself is read there.
        let held: BTreeSet<String> = match (&own, self.server) {
            (Some(own), Some(server)) => link_log(own, &server.join("log"), &log_dir)?,
            _ => BTreeSet::new(),
        };
        let wanted = |name: &str| match name.strip_prefix("log/") {
            Some(segment) => !held.contains(segment),
            None => name.starts_with("snapshots/") || own.is_none(),
        };
        let names = objects.iter().filter(|(name, _)| wanted(name));
        let names: Vec<(&String, u64)> = names.map(|(name, bytes)| (name, *bytes)).collect();
        let all = names.iter().map(|(_, bytes)| bytes).sum();
        let mut done = 0;
        for (name, bytes) in names {
            let to = self.to.join(name);
            if let Some(parent) = to.parent() {
                make(parent)?;
            }
            match store.dir() {
                Some(dir) => link(&dir.join(name), &to)?,
                None => store.fetch(name, &to).await?,
            }
            done += bytes;
            progress(done, all);
        }
        if let Some(server) = self.server {
            link_rest(server, self.to)?;
        }
        let mark = log_dir.join(JOINED);
        fs::write(&mark, "").map_err(file("write", &mark))
    }

    /// The archive of the epoch that is meant, and what is in it.
    async fn epoch_of(
        &self,
        own: Option<Epoch>,
    ) -> Result<(Store, BTreeMap<String, u64>), ArchiveError> {
        let all = self.store.list().await?;
        if all.keys().any(|name| name.starts_with("log/")) {
            return Ok((self.store.clone(), all));
        }
        let epochs: BTreeSet<&str> = all
            .keys()
            .filter_map(|name| name.split_once("/log/"))
            .map(|(epoch, _)| epoch)
            .collect();
        let url = self.store.url();
        let wanted = match (own, epochs.iter().next()) {
            (Some(own), _) => hex(&own.id),
            (None, Some(only)) if epochs.len() == 1 => (*only).to_owned(),
            (None, None) => String::new(),
            (None, Some(_)) => {
                let list: Vec<_> = epochs
                    .iter()
                    .map(|epoch| format!("{url}/{epoch}"))
                    .collect();
                return Err(ArchiveError::Refused(format!(
                    "{url} holds the logs of several epochs; name one of them: {}",
                    list.join(", ")
                )));
            }
        };
        let prefix = format!("{wanted}/");
        let inside = |(name, bytes): (&String, &u64)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_owned(), *bytes))
        };
        let found: BTreeMap<String, u64> = all.iter().filter_map(inside).collect();
        if found.is_empty() {
            let what = match own {
                Some(_) => format!("{url} holds nothing of the log of epoch {wanted}"),
                None => format!("{url} holds no log"),
            };
            return Err(ArchiveError::Refused(what));
        }
        Ok((self.store.within(&wanted), found))
    }
}

/// Links the files of a log; answers the names of its segments.
fn link_log(log: &ReadOnlyLog, from: &Path, to: &Path) -> Result<BTreeSet<String>, ArchiveError> {
    let mut names = BTreeSet::new();
    for segment in log.segments() {
        link(&from.join(&segment.name), &to.join(&segment.name))?;
        names.insert(segment.name);
    }
    Ok(names)
}

/// Links what lies beside a log: checkpoints and keys, and the bases that the archive has not.
fn link_rest(server: &Path, to: &Path) -> Result<(), ArchiveError> {
    for name in ["checkpoints", "checkpoints.keys", "keystore"] {
        let from = server.join(name);
        if from.exists() && !to.join(name).exists() {
            link(&from, &to.join(name))?;
        }
    }
    let snapshots = to.join("snapshots");
    make(&snapshots)?;
    let found: Vec<PathBuf> = super::base::all(server)?
        .into_iter()
        .map(|(_, dir)| dir.path().to_owned())
        .collect();
    for path in found {
        if let Some(name) = path.file_name()
            && !snapshots.join(name).exists()
        {
            link(&path, &snapshots.join(name))?;
        }
    }
    Ok(())
}
