//! Where an agent keeps its files: a directory that is named, or a temporary one in `-dev`.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::client::alloc_dir::{PASS, make_path};
use crate::client::beneath;
use crate::config::Config;

/// The owner's alone.
const OWN: u32 = 0o700;
/// What everybody else may do.
const OTHERS: u32 = 0o077;
/// What others may do who replace what is in a directory.
const WRITE: u32 = 0o022;
/// The bit that keeps those who may write a directory from what others have in it.
const STICKY: u32 = 0o1000;
/// The files by which an agent's directory is known. Not `log`: many directories have one that are
/// no agent's.
const AGENT_FILES: &[&str] = &["node-id", "projections", "client-id", "secret-id"];
/// What an agent makes in the directories of its server and of its client. What is not whole yet
/// has `.tmp` behind its name.
const OWN_NAMES: &[&str] = &[
    // An operator makes this one, for the server.
    "acl-bootstrap-reset",
    "checkpoints",
    "checkpoints.archive",
    "checkpoints.keys",
    "former",
    "keystore",
    "lock",
    "log",
    "log.importing",
    "node-id",
    "projections",
    "requests",
    "restored",
    "restoring",
    "snapshots",
    "tree",
    "tree.edge",
    // A client's; it has requests too.
    "client-id",
    "csi",
    "journal",
    "secret-id",
    "tasks",
];
/// What a file system has that is empty.
const EMPTY_DISK: &[u8] = b"lost+found";
/// What there is to do about a directory that is not the agent's.
const ELSEWHERE: &str = "give the agent one of its own";
/// Why a mode stays that the agent may not change.
const DENIED: &str = "the agent may not change it";
/// How long the removal of a temporary directory is waited for.
const REMOVAL: Duration = Duration::from_secs(1);

/// The data directory of a running agent. A temporary one vanishes with it.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    temporary: bool,
}

impl DataDir {
    /// Makes the directory that `config` names, or a temporary one where `-dev` names none, and
    /// what lies in it: only the agent's user may list it; tasks may pass through it to their own
    /// directories.
    pub(super) fn make(config: &Config) -> io::Result<Self> {
        let (path, temporary) = match &config.data_dir {
            Some(path) => (path.clone(), false),
            None => (temporary(), true),
        };
        let is_new = !path.exists();
        make_path(&path)?;
        // Tasks pass through what it is and not through a link to it.
        let path = path.canonicalize()?;
        if is_new {
            set_mode(&path, mode_of(config, &path, &path))?;
        }
        let meta = path.metadata()?;
        warn(&path, writers(meta.uid(), meta.mode()));
        let made = Self { path, temporary };
        made.make_inner(config)?;
        Ok(made)
    }

    fn make_inner(&self, config: &Config) -> io::Result<()> {
        if config.server.enabled {
            self.make_own(config, &config.server_dir(&self.path))?;
        }
        if config.client.enabled {
            self.make_own(config, &config.client_dir(&self.path))?;
            let allocs = config.alloc_dir(&self.path);
            let is_new = !allocs.exists();
            make_path(&allocs)?;
            let allocs = allocs.canonicalize()?;
            // A directory that the operator chose elsewhere has the mode that the operator gave it.
            if self.holds(&allocs) {
                self.take_back(&allocs, PASS, &[])?.log(&allocs, is_new);
            }
        }
        Ok(())
    }

    /// Makes a directory for the agent, or takes one that is there back from others. It is for
    /// secrets: one in which others may replace them is refused.
    fn make_own(&self, config: &Config, named: &Path) -> io::Result<()> {
        let is_new = !named.exists();
        make_path(named)?;
        let dir = named.canonicalize()?;
        let mode = mode_of(config, &self.path, &dir);
        let taken = self.take_back(&dir, mode, &places(config, &self.path))?;
        if is_open(taken.now) {
            let (named, why) = (named.display(), taken.wrong.join("; "));
            return Err(io::Error::other(format!(
                "{named}: the agent keeps secrets there, and others may replace them \
                 (chmod go-w {named}): {why}"
            )));
        }
        taken.log(&dir, is_new);
        Ok(())
    }

    /// Takes a directory back from others, if it is the agent's: whatever was made in the data
    /// directory, and elsewhere what has nothing but what an agent makes. `places` are the
    /// directories of this one, which may lie in it.
    fn take_back(&self, path: &Path, mode: u32, places: &[PathBuf]) -> io::Result<TakenBack> {
        let dir = match beneath::open_dir(path) {
            Ok(dir) => Some(File::from(dir)),
            // Whose it is can be seen all the same.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
        let meta = match &dir {
            Some(dir) => dir.metadata()?,
            None => path.metadata()?,
        };
        let is_right = meta.mode() & OTHERS == mode & OTHERS;
        let why = match &dir {
            _ if is_right => None,
            None => Some(DENIED.to_owned()),
            Some(dir) => match self.not_ours(dir, path, places)? {
                None => change(dir, mode)?,
                why => why,
            },
        };
        let before = meta.mode() & 0o7777;
        let now = match &dir {
            Some(dir) => dir.metadata()?.mode() & 0o7777,
            None => before,
        };
        // Some file systems take a mode and keep their own.
        let kept = now & OTHERS != mode & OTHERS;
        let why = why.or_else(|| kept.then(|| DENIED.to_owned()));
        let stays = |why: String| {
            format!("the mode of this directory stays {before:o}, not {mode:o}: {why}")
        };
        let all = why.map(stays).into_iter();
        Ok(TakenBack {
            before,
            now,
            wrong: all.chain(writers(meta.uid(), now)).collect(),
        })
    }

    /// Why a directory's mode is not the agent's to change; none where it is.
    fn not_ours(&self, dir: &File, path: &Path, places: &[PathBuf]) -> io::Result<Option<String>> {
        let meta = dir.metadata()?;
        if meta.uid() != agent_user() {
            return Ok(Some(format!("it belongs to user {}", meta.uid())));
        }
        if meta.mode() & STICKY != 0 {
            return Ok(Some(format!("it is for everybody: {ELSEWHERE}")));
        }
        if self.holds(path) {
            return Ok(None);
        }
        if path != self.path && self.path.starts_with(path) {
            return Ok(Some(format!("the data directory lies in it: {ELSEWHERE}")));
        }
        let inner: Vec<&Path> = places
            .iter()
            .filter_map(|place| place.strip_prefix(path).ok())
            .collect();
        let is_place = |name: &[u8]| inner.iter().any(|place| is_named(place, name));
        let is_file = |name: &[u8]| name != EMPTY_DISK && !is_place(name);
        let one = |wanted: &dyn Fn(&[u8]) -> bool| -> io::Result<Option<String>> {
            let (found, _) = beneath::entries_where(dir, 1, wanted)?;
            Ok(found.into_iter().next().map(|(name, _)| name))
        };
        // An agent that ran here has left its files among what others have here.
        if let Some(name) = one(&|name: &[u8]| is_file(name) && !is_agents(name))? {
            let why = format!("it has files that are no agent's ({name:?}): {ELSEWHERE}");
            return Ok(Some(why));
        }
        let is_agent_file = |name: &[u8]| AGENT_FILES.iter().any(|one| one.as_bytes() == name);
        Ok(
            match one(&is_file)?.is_some() && one(&is_agent_file)?.is_none() {
                true => Some(format!("it has files, and none of an agent: {ELSEWHERE}")),
                false => None,
            },
        )
    }

    /// Whether a directory lies in the data directory.
    fn holds(&self, dir: &Path) -> bool {
        dir != self.path && dir.starts_with(&self.path)
    }

    /// Keeps a temporary directory from vanishing; answers where it lies, if it is one.
    pub(super) fn keep(&mut self) -> Option<PathBuf> {
        let temporary = std::mem::take(&mut self.temporary);
        temporary.then(|| self.path.clone())
    }

    /// The directory, absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if !self.temporary {
            return;
        }
        let (path, (report, reported)) = (self.path.clone(), mpsc::channel());
        // What tasks left in it may delay the removal; the agent's end does not wait.
        std::thread::spawn(move || report.send(remove(&path)));
        let error = match reported.recv_timeout(REMOVAL) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        tracing::warn!(path = %self.path.display(), %error, "temporary data is left behind");
    }
}

/// What became of a directory.
struct TakenBack {
    /// Its mode as it was.
    before: u32,
    now: u32,
    /// What is wrong with it further.
    wrong: Vec<String>,
}

impl TakenBack {
    /// Logs what was changed of a directory that was there, and what is wrong with it.
    fn log(self, path: &Path, is_new: bool) {
        let Self { before, now, wrong } = self;
        if before != now && !is_new {
            let path = path.display();
            tracing::info!(%path, "the mode of this directory is {now:o} now, it was {before:o}");
        }
        warn(path, wrong);
    }
}

/// The directories that the configuration names, or leaves where they usually are.
fn places(config: &Config, data_dir: &Path) -> Vec<PathBuf> {
    let all = [
        config.server_dir(data_dir),
        config.client_dir(data_dir),
        config.alloc_dir(data_dir),
        config.host_volumes_dir(data_dir),
        config.plugin_dir(data_dir),
        config.host_volume_plugin_dir(data_dir),
    ];
    all.iter().map(|place| real(place)).collect()
}

/// Whether a path is this name alone.
fn is_named(path: &Path, name: &[u8]) -> bool {
    path.as_os_str().as_bytes() == name
}

/// Whether an agent makes something of this name in the directory of its server or its client.
fn is_agents(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".tmp").unwrap_or(name);
    // Tables are made again beside those in use, and former ones are kept there.
    let beside: [&[u8]; 2] = [b"projections.", b"projections-"];
    let is_beside = beside.iter().any(|begin| name.starts_with(begin));
    is_beside || OWN_NAMES.iter().any(|own| own.as_bytes() == name)
}

fn remove(path: &Path) -> io::Result<()> {
    let parent = beneath::open_dir(path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().unwrap_or_default();
    beneath::remove_tree(parent, &name.to_string_lossy())
}

fn temporary() -> PathBuf {
    let name = format!("drover-dev-{}", uuid::Uuid::new_v4().simple());
    std::env::temp_dir().join(name)
}

/// The mode of one of the agent's directories: its own, but that tasks pass through one that theirs
/// lie in.
fn mode_of(config: &Config, data_dir: &Path, dir: &Path) -> u32 {
    let allocs = config.alloc_dir(data_dir);
    let passed = [real(&allocs), allocs]
        .iter()
        .any(|allocs| allocs.starts_with(dir));
    if config.client.enabled && passed {
        PASS
    } else {
        OWN
    }
}

/// Where a path leads that is not there yet, or not all of it.
fn real(path: &Path) -> PathBuf {
    let real = |above: &Path| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    };
    path.ancestors()
        .find_map(real)
        .unwrap_or_else(|| path.to_owned())
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Changes the mode of a directory; answers why not, where the agent may not.
fn change(dir: &File, mode: u32) -> io::Result<Option<String>> {
    match dir.set_permissions(Permissions::from_mode(mode)) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Some(DENIED.to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn agent_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Who else may replace what is in a directory of this user's with this mode.
fn writers(owner: u32, mode: u32) -> Option<String> {
    if owner != 0 && owner != agent_user() {
        return Some(format!(
            "this directory belongs to user {owner}, who may replace what is in it"
        ));
    }
    is_open(mode).then(|| {
        "others may write this directory: make it the agent's alone (chmod go-w)".to_owned()
    })
}

/// Whether others may replace what is in a directory with this mode.
fn is_open(mode: u32) -> bool {
    mode & WRITE != 0 && mode & STICKY == 0
}

fn warn(path: &Path, all: impl IntoIterator<Item = String>) {
    for why in all {
        tracing::warn!(path = %path.display(), "{why}");
    }
}

#[cfg(test)]
#[path = "data_dir_test.rs"]
mod tests;
