//! What is known of volumes, in a file that several plugins may share.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// How many ids were given.
    pub(crate) given: u64,
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) nodes: BTreeMap<String, Node>,
}

/// What a volume is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Folder,
    Device,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: i64,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) source: Option<Source>,
    /// The segments it lies in; none where there is no topology.
    pub(crate) place: BTreeMap<String, String>,
    /// By node.
    pub(crate) attached: BTreeMap<String, Use>,
    /// By node and path.
    pub(crate) staged: BTreeMap<String, BTreeMap<PathBuf, Use>>,
    /// By node and path.
    pub(crate) published: BTreeMap<String, BTreeMap<PathBuf, Use>>,
}

/// What a volume was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    Volume(String),
    Snapshot(String),
}

/// How a volume is used at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// The access mode, by its name in the specification.
    pub(crate) access: String,
    pub(crate) readonly: bool,
    pub(crate) fs_type: String,
    pub(crate) flags: Vec<String>,
    /// From where it is published.
    pub(crate) staging: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) volume: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: i64,
    /// Nanoseconds since 1970.
    pub(crate) made: i64,
}

/// What a node part reported of itself when it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) place: BTreeMap<String, String>,
    pub(crate) max_volumes: i64,
}

impl Volume {
    /// Whether anything on this node uses it.
    pub(crate) fn is_used_on(&self, node: &str) -> bool {
        let some = |uses: &BTreeMap<String, BTreeMap<PathBuf, Use>>| {
            uses.get(node).is_some_and(|paths| !paths.is_empty())
        };
        some(&self.staged) || some(&self.published)
    }

    /// Whether anything uses it anywhere.
    pub(crate) fn is_used(&self) -> bool {
        let nodes = self.staged.keys().chain(self.published.keys());
        !self.attached.is_empty() || nodes.into_iter().any(|node| self.is_used_on(node))
    }
}

/// The folder with all of it.
pub(crate) struct Store {
    pub(crate) folder: PathBuf,
}

impl Store {
    pub(crate) fn open(folder: &Path) -> Result<Store> {
        for below in ["volumes", "snapshots"] {
            fs::create_dir_all(folder.join(below)).with_context(|| folder.display().to_string())?;
        }
        let folder = folder.canonicalize()?;
        Ok(Store { folder })
    }

    /// Changes what is known, alone among all that share it. Nothing is kept of a change that
    /// fails, but its error.
    pub(crate) fn change<A, E: From<anyhow::Error>>(
        &self,
        change: impl FnOnce(&mut State) -> Result<A, E>,
    ) -> Result<A, E> {
        let _alone = self.lock()?;
        let before = self.read()?;
        let mut state = before.clone();
        let answer = change(&mut state)?;
        if state != before {
            self.write(&state)?;
        }
        Ok(answer)
    }

    fn lock(&self) -> Result<Flock<File>> {
        let file = File::create(self.folder.join("lock"))?;
        let locked = Flock::lock(file, FlockArg::LockExclusive);
        locked.map_err(|(_, error)| anyhow::Error::from(error).context("lock"))
    }

    fn read(&self) -> Result<State> {
        let path = self.folder.join("state.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).context("state.json"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(State::default()),
            Err(error) => Err(error).context("state.json"),
        }
    }

    fn write(&self, state: &State) -> Result<()> {
        replace(
            &self.folder.join("state.json"),
            &serde_json::to_vec_pretty(state)?,
        )
    }

    /// Where the bytes of a volume lie.
    pub(crate) fn volume(&self, id: &str) -> PathBuf {
        self.folder.join("volumes").join(id)
    }

    /// Where the bytes of a snapshot lie.
    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.folder.join("snapshots").join(id)
    }
}

/// Puts a file in the place of another, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)?;
    Ok(())
}
