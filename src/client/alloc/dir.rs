//! The directories of an allocation.
//!
//! ```text
//! <alloc_dir>/<alloc id>/alloc/{data,logs,tmp}    shared
//! <alloc_dir>/<alloc id>/<task>/{local,secrets,tmp}
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::client::env::TaskPaths;

/// Why a path of an allocation is refused.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The path leads out of the allocation.
    #[error("path escapes the allocation directory")]
    Escapes,
    /// The file system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Names directories of one allocation; makes and removes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocDir {
    root: PathBuf,
}

/// Everybody may write; as in `0777`.
const OPEN: u32 = 0o777;
/// As `OPEN`, but only owners may remove.
const STICKY: u32 = 0o1777;
/// Directories of a task's own.
const TASK_DIRS: [(&str, u32); 4] = [
    ("local", OPEN),
    ("tmp", STICKY),
    ("secrets", OPEN),
    ("private", 0o700),
];

impl AllocDir {
    /// The directories of allocation `id` below the client's `alloc_dir`.
    pub fn new(alloc_dir: &Path, id: &str) -> Self {
        Self {
            root: alloc_dir.join(id),
        }
    }

    /// The top.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the tasks share.
    pub fn shared(&self) -> PathBuf {
        self.root.join("alloc")
    }

    /// Where log files are.
    pub fn logs(&self) -> PathBuf {
        self.shared().join("logs")
    }

    /// A task's top.
    pub fn task(&self, task: &str) -> PathBuf {
        self.root.join(task)
    }

    /// Directories as a task without file system isolation sees them.
    pub fn paths(&self, task: &str) -> TaskPaths {
        let root = self.task(task);
        TaskPaths {
            alloc: self.shared(),
            local: root.join("local"),
            secrets: root.join("secrets"),
            root,
        }
    }

    /// Makes what the tasks share; nothing changes when it is there.
    pub fn build(&self) -> io::Result<()> {
        fs::create_dir_all(&self.root)?;
        make(&self.shared(), OPEN)?;
        for name in ["data", "logs", "tmp"] {
            make(&self.shared().join(name), OPEN)?;
        }
        Ok(())
    }

    /// Makes a task's own directories; nothing changes when they are there.
    pub fn build_task(&self, task: &str) -> io::Result<()> {
        let root = self.task(task);
        make(&root, OPEN)?;
        TASK_DIRS
            .iter()
            .try_for_each(|(name, mode)| make(&root.join(name), *mode))
    }

    /// Takes `alloc/data` and the tasks' `local` over from a predecessor on this node.
    pub fn take_over(&self, from: &Self, tasks: &[String]) -> io::Result<()> {
        let data = "alloc/data".to_owned();
        for path in tasks.iter().map(|t| format!("{t}/local")).chain([data]) {
            let (old, new) = (from.root.join(&path), self.root.join(&path));
            if !old.is_dir() {
                continue;
            }
            if let Some(parent) = new.parent() {
                fs::create_dir_all(parent)?;
            }
            match fs::remove_dir(&new) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
            fs::rename(&old, &new)?;
        }
        Ok(())
    }

    /// Removes everything.
    pub fn destroy(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.root) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// A path that a user gave, below the top: neither `..` nor a link may lead out of it.
    ///
    /// # Errors
    /// [`DirError::Escapes`], or that nothing is there.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, DirError> {
        let mut joined = self.root.clone();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => joined.push(name),
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return Err(DirError::Escapes),
            }
        }
        let real = fs::canonicalize(&joined)?;
        if real.starts_with(fs::canonicalize(&self.root)?) {
            Ok(real)
        } else {
            Err(DirError::Escapes)
        }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn mod_01_the_tree_has_the_right_modes_and_goes_as_a_whole() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(tmp.path(), "a1");
        for _ in 0..2 {
            dir.build().unwrap();
            dir.build_task("web").unwrap();
        }
        for (path, expected) in [
            ("alloc", 0o777),
            ("alloc/data", 0o777),
            ("alloc/logs", 0o777),
            ("alloc/tmp", 0o777),
            ("web", 0o777),
            ("web/local", 0o777),
            ("web/secrets", 0o777),
            ("web/tmp", 0o1777),
        ] {
            assert_eq!(mode(&dir.root().join(path)), expected, "{path}");
        }
        dir.destroy().unwrap();
        dir.destroy().unwrap();
        assert!(!dir.root().exists());
    }

    #[test]
    fn mod_01_a_successor_takes_data_over() {
        let tmp = tempfile::tempdir().unwrap();
        let (old, new) = (
            AllocDir::new(tmp.path(), "old"),
            AllocDir::new(tmp.path(), "new"),
        );
        for dir in [&old, &new] {
            dir.build().unwrap();
        }
        old.build_task("web").unwrap();
        fs::write(old.root().join("alloc/data/db"), "rows").unwrap();
        fs::write(old.root().join("web/local/cache"), "warm").unwrap();
        new.take_over(&old, &["web".into(), "gone".into()]).unwrap();
        assert_eq!(
            fs::read_to_string(new.root().join("alloc/data/db")).unwrap(),
            "rows"
        );
        assert_eq!(
            fs::read_to_string(new.root().join("web/local/cache")).unwrap(),
            "warm"
        );
    }

    #[test]
    fn mod_23_no_path_leads_out() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(tmp.path(), "a1");
        dir.build().unwrap();
        std::os::unix::fs::symlink("/etc", dir.root().join("alloc/data/link")).unwrap();
        assert!(matches!(dir.resolve("../a2"), Err(DirError::Escapes)));
        assert!(matches!(
            dir.resolve("alloc/data/link/passwd"),
            Err(DirError::Escapes)
        ));
        assert!(matches!(dir.resolve("nothing"), Err(DirError::Io(_))));
        assert!(
            dir.resolve("/alloc/./logs")
                .unwrap()
                .ends_with("a1/alloc/logs")
        );
        assert!(dir.resolve("/").unwrap().ends_with("a1"));
    }
}
