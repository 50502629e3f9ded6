//! The keystore: a directory with one wrapped file per root key.
//!
//! `wrap.key` holds the key-encryption key, random and readable by the server's user only. It is
//! made when the first keystore is opened. A key's file is written beside its final name, synced,
//! renamed, and the directory synced, so that after a crash it is there whole or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{ALGORITHM, KeyringError, RootKey, cipher};
use drover_log::atomic_file;
use drover_log::{FileLayer, RealFiles};

/// The file with the key-encryption key.
const WRAP_FILE: &str = "wrap.key";

/// The directory with the server's root keys.
pub struct Keystore {
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
    wrap: Zeroizing<[u8; 32]>,
}

/// A root key as its file holds it.
#[derive(Serialize, Deserialize)]
struct WrappedKey {
    version: u32,
    id: String,
    algorithm: String,
    create_time: i64,
    wrapped: String,
}

impl Keystore {
    /// Opens the directory, and makes it with a new key-encryption key where there is none.
    ///
    /// # Errors
    /// [`KeyringError::Io`], or [`KeyringError::Damaged`] for a key-encryption key of a wrong size.
    pub fn open(dir: &Path) -> Result<Keystore, KeyringError> {
        Self::open_on(Arc::new(RealFiles), dir)
    }

    /// As [`open`](Self::open), over a file layer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(files: Arc<dyn FileLayer>, dir: &Path) -> Result<Keystore, KeyringError> {
        let made = files.create_private_dir(dir);
        made.map_err(|source| io_error(dir, source))?;
        let path = dir.join(WRAP_FILE);
        let mut wrap = Zeroizing::new([0; 32]);
        match atomic_file::read_on(&*files, &path).map(Zeroizing::new) {
            Ok(bytes) if bytes.len() == wrap.len() => wrap.copy_from_slice(&bytes),
            Ok(_) => {
                let reason = "expected 32 bytes".to_owned();
                return Err(KeyringError::Damaged { path, reason });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                aws_lc_rs::rand::fill(wrap.as_mut_slice()).map_err(|_| KeyringError::Random)?;
                replace(&*files, dir, WRAP_FILE, wrap.as_slice())?;
            }
            Err(source) => return Err(io_error(&path, source)),
        }
        let dir = dir.to_owned();
        Ok(Keystore { files, dir, wrap })
    }

    /// Gives a directory the key that wraps what is in it, as it was kept elsewhere.
    ///
    /// # Errors
    /// [`KeyringError::Io`], or [`KeyringError::Damaged`] for a key of a wrong size.
    pub fn put_wrap(dir: &Path, wrap: &[u8]) -> Result<(), KeyringError> {
        let path = dir.join(WRAP_FILE);
        if wrap.len() != 32 {
            let reason = "expected 32 bytes".to_owned();
            return Err(KeyringError::Damaged { path, reason });
        }
        let made = RealFiles.create_private_dir(dir);
        made.map_err(|source| io_error(dir, source))?;
        replace(&RealFiles, dir, WRAP_FILE, wrap)
    }

    /// Opens a keystore to read it: nothing is made. `None` where there is no keystore.
    ///
    /// # Errors
    /// As those of [`Keystore::open`].
    pub fn existing(dir: &Path) -> Result<Option<Keystore>, KeyringError> {
        let there = dir.join(WRAP_FILE).try_exists();
        match there.map_err(|source| io_error(dir, source))? {
            true => Self::open(dir).map(Some),
            false => Ok(None),
        }
    }

    /// Writes a key. When this returns, the file and its name are on the disk.
    ///
    /// # Errors
    /// [`KeyringError::Io`].
    pub fn save(&self, key: &RootKey) -> Result<(), KeyringError> {
        let place = place(key.id());
        let sealed = cipher::seal(&self.wrap, &place, key.bytes()).ok_or(KeyringError::Random)?;
        let file = WrappedKey {
            version: 1,
            id: key.id().to_owned(),
            algorithm: ALGORITHM.to_owned(),
            create_time: key.create_time(),
            wrapped: STANDARD.encode(sealed),
        };
        let name = file_name(key.id());
        let text = serde_json::to_vec_pretty(&file).map_err(|error| KeyringError::Damaged {
            path: self.dir.join(&name),
            reason: error.to_string(),
        })?;
        replace(&*self.files, &self.dir, &name, &text)
    }

    /// Reads one key.
    ///
    /// # Errors
    /// [`KeyringError::MissingKey`] when there is no such file, [`KeyringError::Damaged`] when it
    /// cannot be unwrapped.
    pub fn load(&self, id: &str) -> Result<RootKey, KeyringError> {
        let path = self.dir.join(file_name(id));
        let text = match atomic_file::read_on(&*self.files, &path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(KeyringError::MissingKey(id.to_owned()));
            }
            Err(source) => return Err(io_error(&path, source)),
        };
        let damaged = |reason: &str| KeyringError::Damaged {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        let file: WrappedKey =
            serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        if file.version != 1 || file.algorithm != ALGORITHM {
            return Err(damaged("unknown version or algorithm"));
        }
        if file.id != id {
            return Err(damaged("the file holds another key"));
        }
        let sealed = STANDARD
            .decode(&file.wrapped)
            .map_err(|_| damaged("not base64"))?;
        let clear = cipher::open(&self.wrap, &place(id), &sealed)
            .ok_or_else(|| damaged("wrapped by another key, or changed"))?;
        let mut bytes = Zeroizing::new([0; 32]);
        if clear.len() != bytes.len() {
            return Err(damaged("wrong length"));
        }
        bytes.copy_from_slice(&clear);
        Ok(RootKey::from_bytes(file.id, file.create_time, bytes))
    }

    /// The ids of all keys that have a file, sorted.
    ///
    /// # Errors
    /// [`KeyringError::Io`].
    pub fn ids(&self) -> Result<Vec<String>, KeyringError> {
        let names = self.files.list(&self.dir);
        let names = names.map_err(|source| io_error(&self.dir, source))?;
        let ids = names.iter().filter_map(|name| name.strip_suffix(".json"));
        let mut ids: Vec<_> = ids.map(str::to_owned).collect();
        ids.sort();
        Ok(ids)
    }

    /// Removes a key's file; one that is gone already is no error.
    ///
    /// # Errors
    /// [`KeyringError::Io`].
    pub fn remove(&self, id: &str) -> Result<(), KeyringError> {
        let path = self.dir.join(file_name(id));
        match self.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(&path, error)),
            _ => {
                let synced = self.files.sync_dir(&self.dir);
                synced.map_err(|source| io_error(&self.dir, source))
            }
        }
    }
}

/// An id comes from this program or from a server of the same cluster; it never leaves the
/// directory even if it should look like a path.
fn file_name(id: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    format!("{}.json", id.chars().map(plain).collect::<String>())
}

/// What a wrapped key is bound to.
fn place(id: &str) -> Vec<u8> {
    format!("drover root key\0{id}").into_bytes()
}

fn io_error(path: &Path, source: io::Error) -> KeyringError {
    KeyringError::Io {
        path: path.to_owned(),
        source,
    }
}

fn replace(
    files: &dyn FileLayer,
    dir: &Path,
    name: &str,
    content: &[u8],
) -> Result<(), KeyringError> {
    let path = dir.join(name);
    atomic_file::put_private_on(files, &path, content).map_err(|source| io_error(&path, source))
}
