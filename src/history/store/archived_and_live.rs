//! An archive, and the log that continues it, joined as one directory that every tool reads.
//!
//! The directory has the form of a server's. What lies on this machine is linked; what lies
//! elsewhere is fetched, each file once. An archive may hold the copies of several servers: the
//! one that is read is the first that is whole and is what was signed, a server's own before those
//! of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use super::ArchiveError;
use super::location::Store;
use crate::error::chain;
use crate::history::proof::{Verify, verify};
use crate::log::{JOINED_MARKER, ReadOnlyLog};

/// What is to be joined.
pub struct Join<'a> {
    /// The archive: one server's copy of one epoch, or what holds several.
    pub store: &'a Store,
    /// The server's directory whose log continues it, if there is one.
    pub server: Option<&'a Path>,
    /// An empty directory to make it in.
    pub to: &'a Path,
}

/// What was joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The URL of the copy that is read.
    pub url: String,
    /// The copies that were not taken because they are wrong: their URLs, and what is wrong.
    pub wrong: Vec<(String, String)>,
}

/// One server's copy of one epoch's log.
#[derive(Clone, Debug, Default)]
struct Copy {
    /// Where it lies in the archive; nothing where it is the archive.
    at: String,
    /// Its objects, with their bytes.
    objects: BTreeMap<String, u64>,
}

impl Copy {
    /// The epoch in its place, if that names one.
    fn epoch(&self) -> Option<&str> {
        let first = self.at.split('/').next()?;
        let is_id = first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(first)
    }

    /// The first and the last of its segments.
    fn ends(&self) -> (Option<&String>, Option<&String>) {
        let mut segments = self.objects.keys().filter(|name| name.starts_with("log/"));
        (segments.next(), segments.next_back())
    }
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
    /// Joins them. `progress` is called with how many bytes were fetched, and of how many.
    ///
    /// # Errors
    /// An archive that cannot be read, holds nothing, or is not that of the log; files that cannot
    /// be made. Where every copy is wrong, the first is there to be looked at.
    pub async fn run(
        &self,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Joined, ArchiveError> {
        let own = match self.server {
            Some(server) => Some(ReadOnlyLog::open(&server.join("log"))?),
            None => None,
        };
        let copies = self.copies(own.as_ref()).await?;
        let mut joined = Joined::default();
        if let [only] = copies.as_slice() {
            self.lay_out(only, own.as_ref(), progress).await?;
            joined.url = self.url_of(only);
            return Ok(joined);
        }
        for copy in &copies {
            let laid_out = self.lay_out(copy, own.as_ref(), progress).await;
            let wrong = match laid_out {
                Ok(()) => self.what_is_wrong().await?,
                Err(error) => Some(chain(&error)),
            };
            let Some(wrong) = wrong else {
                joined.url = self.url_of(copy);
                return Ok(joined);
            };
            joined.wrong.push((self.url_of(copy), wrong));
            self.clear()?;
        }
        // The verification that follows says more than the first fault here.
        let first = copies.first().expect("no copy is refused before");
        self.lay_out(first, own.as_ref(), progress).await?;
        joined.url = self.url_of(first);
        Ok(joined)
    }

    fn url_of(&self, copy: &Copy) -> String {
        match copy.at.as_str() {
            "" => self.store.url().to_owned(),
            at => format!("{}/{at}", self.store.url()),
        }
    }

    fn clear(&self) -> Result<(), ArchiveError> {
        fs::remove_dir_all(self.to).map_err(file("remove", self.to))?;
        make(self.to)
    }

    /// The first thing that is not as it was signed.
    async fn what_is_wrong(&self) -> Result<Option<String>, ArchiveError> {
        let to = self.to.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            verify(&to.join("log"), &to, &Verify::default(), &mut |_, _| ())
        });
        let found = found.await;
        match found.map_err(|error| ArchiveError::Refused(error.to_string()))? {
            Ok(verified) => Ok(verified.findings.into_iter().next().map(|one| one.what)),
            Err(error) => Ok(Some(chain(&error))),
        }
    }

    /// Makes the directory of a copy and the log that continues it.
    async fn lay_out(
        &self,
        copy: &Copy,
        own: Option<&ReadOnlyLog>,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<(), ArchiveError> {
        let store = match copy.at.as_str() {
            "" => self.store.clone(),
            at => self.store.within(at),
        };
        let log_dir = self.to.join("log");
        make(&log_dir)?;
        // What the log still has itself is read there.
        let held: BTreeSet<String> = match (own, self.server) {
            (Some(own), Some(server)) => link_log(own, &server.join("log"), &log_dir)?,
            _ => BTreeSet::new(),
        };
        let wanted = |name: &str| match name.strip_prefix("log/") {
            Some(segment) => !held.contains(segment) && is_below(segment, &held),
            None => name.starts_with("snapshots/") || own.is_none(),
        };
        let names = copy.objects.iter().filter(|(name, _)| wanted(name));
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
        let marker = log_dir.join(JOINED_MARKER);
        fs::write(&marker, "").map_err(file("write", &marker))
    }

    /// The copies of the epoch that is meant, in the order in which they are tried.
    async fn copies(&self, own: Option<&ReadOnlyLog>) -> Result<Vec<Copy>, ArchiveError> {
        let url = self.store.url();
        let all = self.store.list().await?;
        let mut copies = copies_in(&all);
        if let (true, Some(own)) = (copies.is_empty(), own) {
            // No segment was dropped yet: what there is of the log is here.
            let epoch = hex::encode(own.epoch().id);
            if all.keys().any(|name| name.contains(&epoch)) {
                return Ok(vec![Copy::default()]);
            }
        }
        if copies.is_empty() {
            return Err(ArchiveError::Refused(format!("{url} holds no log")));
        }
        match own {
            Some(own) => {
                let wanted = hex::encode(own.epoch().id);
                copies.retain(|copy| copy.epoch().is_none_or(|epoch| epoch == wanted));
                if copies.is_empty() {
                    return Err(ArchiveError::Refused(format!(
                        "{url} holds nothing of the log of epoch {wanted}"
                    )));
                }
            }
            None => {
                let epochs: BTreeSet<_> = copies.iter().map(Copy::epoch).collect();
                if epochs.len() > 1 {
                    let list: Vec<_> = copies.iter().map(|copy| self.url_of(copy)).collect();
                    return Err(ArchiveError::Refused(format!(
                        "{url} holds the logs of several epochs; name one of them: {}",
                        list.join(", ")
                    )));
                }
            }
        }
        let id = self.server.and_then(|server| {
            let id = fs::read_to_string(server.join("node-id")).ok()?;
            Some(id.trim().to_owned())
        });
        let is_own = |copy: &Copy| id.as_deref().is_some_and(|id| copy.at.ends_with(id));
        copies.sort_by(|a, b| {
            let order = |copy: &Copy| {
                let (first, last) = copy.ends();
                (!is_own(copy), first.cloned(), Reverse(last.cloned()))
            };
            order(a).cmp(&order(b))
        });
        Ok(copies)
    }
}

/// Whether a segment begins below all that are held.
fn is_below(segment: &str, held: &BTreeSet<String>) -> bool {
    held.first().is_none_or(|first| segment < first.as_str())
}

/// Every copy among an archive's objects.
fn copies_in(all: &BTreeMap<String, u64>) -> Vec<Copy> {
    let place = |name: &String| {
        let (dir, _) = name.rsplit_once('/')?;
        match dir.strip_suffix("log")? {
            "" => Some(String::new()),
            above => above.strip_suffix('/').map(str::to_owned),
        }
    };
    let places: BTreeSet<String> = all.keys().filter_map(place).collect();
    let copy = |at: String| {
        let prefix = match at.as_str() {
            "" => String::new(),
            at => format!("{at}/"),
        };
        let inside = |(name, bytes): (&String, &u64)| {
            let name = name.strip_prefix(&prefix)?;
            // An archive may come from anywhere: no name in it leads out of the directory.
            let mut parts = Path::new(name).components();
            let inside = parts.all(|part| matches!(part, Component::Normal(_)));
            inside.then(|| (name.to_owned(), *bytes))
        };
        let objects = all.iter().filter_map(inside).collect();
        Copy { at, objects }
    };
    places.into_iter().map(copy).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_in_an_archive_leads_out_of_the_directory() {
        let names = [
            "e/log/1.seal",
            "e/snapshots/../../../x",
            "e//etc/x",
            "e/head",
        ];
        let all = names.map(|name| (name.to_owned(), 1)).into();
        let copies = copies_in(&all);
        let [copy] = copies.as_slice() else {
            panic!("{copies:?}");
        };
        let found: Vec<_> = copy.objects.keys().map(String::as_str).collect();
        assert_eq!((copy.at.as_str(), found), ("e", vec!["head", "log/1.seal"]));
    }
}
