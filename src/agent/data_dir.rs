//! Where an agent keeps its files: a directory that is named, or a temporary one in `-dev`.

use std::fs::Permissions;
use std::io;
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
        if !path.exists() {
            make_path(&path)?;
            set_mode(&path, mode_of(config, &path, &path))?;
        }
        let path = path.canonicalize()?;
        warn_of_writers(&path);
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
            make_path(&allocs)?;
            // A directory that the operator chose elsewhere has the mode that the operator gave it.
            if allocs.starts_with(&self.path) {
                set_mode(&allocs, PASS)?;
            }
        }
        Ok(())
    }

    /// Makes a directory for the agent, or takes one that is there back from others.
    fn make_own(&self, config: &Config, dir: &Path) -> io::Result<()> {
        let was_there = dir.exists();
        make_path(dir)?;
        // Tasks pass through what it is and not through a link to it.
        let dir = dir.canonicalize()?;
        let mode = mode_of(config, &self.path, &dir);
        let below = dir != self.path && dir.starts_with(&self.path);
        match was_there && !below {
            true => take_back(&dir, mode),
            false => set_mode(&dir, mode),
        }
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

/// Takes back a directory that the operator chose, as far as it is the agent's.
fn take_back(path: &Path, mode: u32) -> io::Result<()> {
    let meta = path.metadata()?;
    if meta.mode() & OTHERS == mode & OTHERS {
        return Ok(());
    }
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    match is_own.then(|| set_mode(path, mode)) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        Some(Err(_)) | None => {
            tracing::warn!(
                path = %path.display(),
                "the agent may not change the mode of this directory: make it {mode:o}"
            );
            Ok(())
        }
    }
}

/// A user who may write a directory may replace what is in it.
fn warn_of_writers(path: &Path) {
    let mode = path.metadata().map_or(0, |meta| meta.mode());
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        tracing::warn!(
            path = %path.display(),
            "others may write the data directory: make it the agent's alone (chmod go-w)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_temporary_directory_vanishes() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config {
            data_dir: Some(own.path().join("data")),
            ..Config::default()
        };
        let kept = DataDir::make(&config).expect("makes").path().to_owned();
        assert!(kept.is_dir());
        config.data_dir = None;
        let dir = DataDir::make(&config).expect("makes");
        let path = dir.path().to_owned();
        assert!(path.is_dir());
        drop(dir);
        assert!(!path.exists());
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("is there").mode() & 0o7777
    }

    #[test]
    fn nobody_else_looks_into_what_is_not_theirs() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config {
            data_dir: Some(own.path().join("above/data")),
            ..Config::default()
        };
        config.server.enabled = true;
        let path = DataDir::make(&config).expect("makes").path().to_owned();
        assert_eq!((mode(&path), mode(&path.join("server"))), (0o700, 0o700));
        assert!(!path.join("client").exists());

        config.data_dir = Some(own.path().join("both"));
        config.client.enabled = true;
        let both = own.path().join("both");
        // What an older version made is taken back.
        for (dir, before) in [("server", 0o755), ("client", 0o777), ("alloc", 0o755)] {
            std::fs::create_dir_all(both.join(dir)).expect("makes");
            set_mode(&both.join(dir), before).expect("sets");
        }
        DataDir::make(&config).expect("makes");
        for (dir, after) in [("server", 0o700), ("client", 0o700), ("alloc", 0o711)] {
            assert_eq!(mode(&both.join(dir)), after, "{dir}");
        }
        config.data_dir = Some(own.path().join("new"));
        let path = DataDir::make(&config).expect("makes").path().to_owned();
        assert_eq!((mode(&path), mode(&path.join("alloc"))), (0o711, 0o711));

        // Where the server keeps its files elsewhere, that is taken back.
        let elsewhere = own.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).expect("makes");
        set_mode(&elsewhere, 0o755).expect("sets");
        config.server.data_dir = Some(elsewhere.clone());
        config.data_dir = Some(own.path().join("apart"));
        let path = DataDir::make(&config).expect("makes").path().to_owned();
        assert_eq!(mode(&elsewhere), 0o700);
        assert!(!path.join("server").exists());

        // Tasks pass through it where their directories lie in it.
        let link = own.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        for (named, allocs) in [
            (&path, None),
            (&link, None),
            (&link, Some(link.join("allocs"))),
        ] {
            config.server.data_dir = Some(named.clone());
            config.client.alloc_dir = allocs;
            DataDir::make(&config).expect("makes");
            assert_eq!(mode(&path), 0o711, "{}", named.display());
        }
    }

    #[test]
    fn a_directory_that_an_operator_chose_is_taken_back_as_far_as_that_is_needed_and_allowed() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config {
            data_dir: Some(own.path().join("data")),
            ..Config::default()
        };
        config.server.enabled = true;
        let chosen = own.path().join("chosen");
        std::fs::create_dir(&chosen).expect("makes");
        config.server.data_dir = Some(chosen.clone());
        // Where others may do nothing it stays as it is.
        for (before, after) in [(0o1700, 0o1700), (0o750, 0o700), (0o701, 0o700)] {
            set_mode(&chosen, before).expect("sets");
            DataDir::make(&config).expect("makes");
            assert_eq!(mode(&chosen), after, "{before:o}");
        }

        // One that is somebody else's is no reason not to start.
        let strange = match rustix::process::geteuid().is_root() {
            true => {
                set_mode(&chosen, 0o755).expect("sets");
                std::os::unix::fs::chown(&chosen, Some(1), None).expect("gives it away");
                chosen
            }
            false => PathBuf::from("/usr"),
        };
        let before = mode(&strange);
        config.server.data_dir = Some(strange.clone());
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&strange), before);
    }
}
