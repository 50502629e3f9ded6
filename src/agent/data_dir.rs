//! Where an agent keeps its files: a directory that is named, or a temporary one in `-dev`.

use std::fs::{File, Permissions};
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
/// What others may do who replace what is in a directory.
const WRITE: u32 = 0o022;
/// The bit that keeps those who may write a directory from what others have in it.
const STICKY: u32 = 0o1000;
/// The files by which a server's directory is known. Not `log`: many directories have one that are
/// no agent's.
const OF_SERVER: &[&str] = &["node-id", "projections"];
/// Those of a client's.
const OF_CLIENT: &[&str] = &["client-id", "secret-id"];
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
            self.make_own(config, &config.server_dir(&self.path), OF_SERVER)?;
        }
        if config.client.enabled {
            self.make_own(config, &config.client_dir(&self.path), OF_CLIENT)?;
            let allocs = config.alloc_dir(&self.path);
            make_path(&allocs)?;
            let allocs = allocs.canonicalize()?;
            // A directory that the operator chose elsewhere has the mode that the operator gave it.
            if self.holds(&allocs) {
                warn(&allocs, self.take_back(&allocs, PASS, &[])?);
            }
        }
        Ok(())
    }

    /// Makes a directory for the agent, or takes one that is there back from others.
    fn make_own(&self, config: &Config, dir: &Path, known_by: &[&str]) -> io::Result<()> {
        make_path(dir)?;
        let dir = dir.canonicalize()?;
        let mode = mode_of(config, &self.path, &dir);
        warn(&dir, self.take_back(&dir, mode, known_by)?);
        Ok(())
    }

    /// Takes a directory back from others, if it is the agent's: whatever was made in the data
    /// directory, and elsewhere what is empty or has a file that it is known by. Answers what is
    /// wrong with it further.
    fn take_back(&self, path: &Path, mode: u32, known_by: &[&str]) -> io::Result<Vec<String>> {
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
            Some(dir) => match self.not_ours(dir, path, known_by)? {
                None => change(dir, mode)?,
                why => why,
            },
        };
        let mode_now = match is_right || why.is_some() {
            true => meta.mode(),
            false => mode,
        };
        let before = meta.mode() & 0o7777;
        let stays = |why: String| {
            format!("the mode of this directory stays {before:o}, not {mode:o}: {why}")
        };
        let all = why.map(stays).into_iter();
        Ok(all.chain(writers(meta.uid(), mode_now)).collect())
    }

    /// Why a directory's mode is not the agent's to change; none where it is.
    fn not_ours(&self, dir: &File, path: &Path, known_by: &[&str]) -> io::Result<Option<String>> {
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
        let is_known = |name: &[u8]| known_by.iter().any(|known| known.as_bytes() == name);
        let (known, _) = beneath::entries_where(dir, 1, is_known)?;
        let (others, _) = beneath::entries_where(dir, 1, |name| name != EMPTY_DISK)?;
        Ok(match known.is_empty() && !others.is_empty() {
            true => Some(format!("it has files, and none of an agent: {ELSEWHERE}")),
            false => None,
        })
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
    let others = mode & WRITE != 0 && mode & STICKY == 0;
    others.then(|| {
        "others may write this directory: make it the agent's alone (chmod go-w)".to_owned()
    })
}

fn warn(path: &Path, all: impl IntoIterator<Item = String>) {
    for why in all {
        tracing::warn!(path = %path.display(), "{why}");
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

    /// A server with this data directory.
    fn server(data_dir: PathBuf) -> Config {
        let mut config = Config {
            data_dir: Some(data_dir),
            ..Config::default()
        };
        config.server.enabled = true;
        config
    }

    #[test]
    fn only_a_directory_that_is_an_agents_is_taken_back() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let chosen = own.path().canonicalize().expect("is there").join("srv");
        std::fs::create_dir(&chosen).expect("makes");
        let data = DataDir::make(&server(chosen.join("below/data"))).expect("makes");
        let apart = DataDir::make(&server(own.path().join("apart"))).expect("makes");
        std::fs::remove_dir_all(chosen.join("below")).expect("removes");
        for (data, file, before, after, why) in [
            (&apart, "lost+found", 0o755, 0o700, None),
            (
                &apart,
                "www",
                0o755,
                0o755,
                Some("files, and none of an agent"),
            ),
            (
                &apart,
                "log",
                0o775,
                0o775,
                Some("files, and none of an agent"),
            ),
            (&apart, "node-id", 0o1755, 0o1755, Some("for everybody")),
            (&apart, "node-id", 0o755, 0o700, None),
            (
                &data,
                "",
                0o755,
                0o755,
                Some("the data directory lies in it"),
            ),
            (&data, "", 0o700, 0o700, None),
        ] {
            if !file.is_empty() {
                std::fs::write(chosen.join(file), "").expect("writes");
            }
            set_mode(&chosen, before).expect("sets");
            let wrong = data.take_back(&chosen, OWN, OF_SERVER).expect("looks");
            assert_eq!(mode(&chosen), after, "{file} {before:o}");
            let wrong = wrong.join("; ");
            match why {
                Some(why) => assert!(wrong.contains(why), "{wrong}"),
                None => assert_eq!(wrong, "", "{file} {before:o}"),
            }
            let others = wrong.contains("others may write this directory");
            assert_eq!(others, before == 0o775, "{wrong}");
        }
    }

    #[test]
    fn it_is_warned_of_who_else_may_replace_what_is_in_a_directory() {
        let me = agent_user();
        for (owner, mode, begin) in [
            (me, 0o700, ""),
            (me, 0o755, ""),
            (0, 0o711, ""),
            (me, 0o720, "others may write this directory"),
            (0, 0o702, "others may write this directory"),
            (0, 0o1777, ""),
            (me + 1, 0o700, "this directory belongs to user"),
        ] {
            let wrong = writers(owner, mode).unwrap_or_default();
            assert!(wrong.starts_with(begin), "{wrong}");
            assert_eq!(wrong.is_empty(), begin.is_empty(), "{owner} {mode:o}");
        }
    }

    #[test]
    fn a_disk_of_somebody_elses_in_the_data_directory_is_left_as_it_is() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let config = server(own.path().join("data"));
        let data = DataDir::make(&config).expect("makes");
        let disk = data.path().join("server");
        set_mode(&disk, 0o770).expect("sets");
        // No other user can give a directory away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&disk, Some(1), None).expect("gives it away");
            DataDir::make(&config).expect("makes");
            assert_eq!(mode(&disk), 0o770);
            let wrong = data.take_back(&disk, OWN, OF_SERVER).expect("looks");
            assert!(wrong[0].contains("it belongs to user 1"), "{wrong:?}");
            assert!(wrong[1].contains("who may replace"), "{wrong:?}");
        }
    }

    #[test]
    fn tasks_pass_through_a_directory_whatever_names_lead_to_theirs() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let (real, link) = (own.path().join("real"), own.path().join("link"));
        std::fs::create_dir(&real).expect("makes");
        std::os::unix::fs::symlink(&real, &link).expect("links");
        let mut config = Config::default();
        config.client.enabled = true;
        config.data_dir = Some(link.join("one"));
        config.client.alloc_dir = Some(real.join("one/allocs"));
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&real.join("one")), 0o711);
        // What lies in the data directory is the agent's, however it is named.
        set_mode(&real.join("one/allocs"), 0o755).expect("sets");
        config.data_dir = Some(real.join("one"));
        config.client.alloc_dir = Some(link.join("one/allocs"));
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&real.join("one/allocs")), 0o711);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_that_starts_leaves_tasks_their_way_through_its_state_directory() {
        let own = tempfile::tempdir().expect("a temporary directory");
        let state = own.path().join("state");
        let mut config = Config {
            data_dir: Some(own.path().join("data")),
            ..Config::default()
        };
        config.client.enabled = true;
        config.client.servers = vec!["127.0.0.1:1".to_owned()];
        config.client.state_dir = Some(state.clone());
        config.client.alloc_dir = Some(state.join("allocs"));
        let data = DataDir::make(&config).expect("makes");
        let tls = crate::net::tls::Loader::clear();
        let started = crate::agent::client::run(&config, data.path(), None, &tls);
        let _client = started.expect("starts");
        assert_eq!(mode(&state), 0o711);
        assert_eq!(mode(&state.join("tasks")), 0o700);
    }
}
