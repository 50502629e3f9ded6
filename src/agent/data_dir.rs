//! Where an agent keeps its files: a directory that is named, or a temporary one in `-dev`.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// The data directory of a running agent. A temporary one vanishes with it.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    temporary: bool,
}

impl DataDir {
    /// Makes the directory that `config` names, or a temporary one where `-dev` names none.
    pub(super) fn make(config: &Config) -> io::Result<Self> {
        let Some(path) = &config.data_dir else {
            return Self::temporary();
        };
        std::fs::create_dir_all(path)?;
        let path = path.canonicalize()?;
        Ok(Self {
            path,
            temporary: false,
        })
    }

    fn temporary() -> io::Result<Self> {
        let name = format!("drover-dev-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self {
            path: path.canonicalize()?,
            temporary: true,
        })
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
        if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "temporary data is left behind");
        }
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
}
