//! Where an archive lies: a directory, or a bucket of a server that speaks S3.
//!
//! Objects are written whole or not at all, and read back before anything relies on them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::ArchiveError;
use super::s3::Bucket;
use crate::log::{FileLayer, RealFiles, parent_dir};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// What a file is called until it is whole.
const DRAFT: &str = "tmp";

/// Which archive, and how to get there. What is absent is taken from the environment
/// (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArchiveLocation {
    /// `file:///directory`, a path, or `s3://bucket/prefix`.
    pub url: String,
    /// The address of the server that speaks S3.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The key's id.
    pub access_key_id: Option<String>,
    /// The key; it is not shown.
    pub secret_access_key: Option<String>,
}

impl std::fmt::Debug for ArchiveLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveLocation")
            .field("url", &self.url)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

/// An archive that is open.
#[derive(Clone)]
pub struct Store {
    at: At,
    url: String,
}

#[derive(Clone)]
enum At {
    Dir(Arc<dyn FileLayer>, PathBuf),
    /// A bucket, and what all names begin with: nothing, or a path with a `/` at its end.
    Bucket(Box<Bucket>, String),
}

/// Length and hash of an object.
pub type Sum = (u64, [u8; 32]);

fn bucket(location: &ArchiveLocation) -> Result<Option<Store>, ArchiveError> {
    let Some(rest) = location.url.strip_prefix("s3://") else {
        return Ok(None);
    };
    let rest = rest.trim_end_matches('/');
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = match prefix {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let at = At::Bucket(Box::new(Bucket::open(location, bucket)?), prefix);
    let url = format!("s3://{rest}");
    Ok(Some(Store { at, url }))
}

fn directory(location: &ArchiveLocation) -> Result<PathBuf, ArchiveError> {
    let url = &location.url;
    let dir = PathBuf::from(url.strip_prefix("file://").unwrap_or(url));
    match dir.is_absolute() {
        true => Ok(dir),
        false => Err(ArchiveError::Refused(format!(
            "{url:?} is no archive: it must be file:///directory or s3://bucket/prefix"
        ))),
    }
}

impl Store {
    /// Opens an archive; a directory is made, a server not contacted yet.
    ///
    /// # Errors
    /// A text that is not such a URL; a directory that cannot be made.
    pub fn open(location: &ArchiveLocation) -> Result<Self, ArchiveError> {
        if let Some(store) = bucket(location)? {
            return Ok(store);
        }
        let dir = directory(location)?;
        let made = RealFiles.create_dir(&dir);
        made.map_err(ArchiveError::file("create", &dir))?;
        Self::find(location)
    }

    /// Opens an archive that is to be read: a directory must be there.
    ///
    /// # Errors
    /// A text that is not such a URL; no such directory.
    pub fn find(location: &ArchiveLocation) -> Result<Self, ArchiveError> {
        if let Some(store) = bucket(location)? {
            return Ok(store);
        }
        let dir = directory(location)?;
        let url = location.url.trim_end_matches('/').to_owned();
        match dir.is_dir() {
            true => Ok(Self {
                at: At::Dir(Arc::new(RealFiles), dir),
                url,
            }),
            false => Err(ArchiveError::Refused(format!(
                "there is no archive at {url}"
            ))),
        }
    }

    /// A part of this archive, with a name of its own.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        Self {
            at: match &self.at {
                At::Dir(files, dir) => At::Dir(Arc::clone(files), dir.join(name)),
                At::Bucket(bucket, prefix) => {
                    At::Bucket(bucket.clone(), format!("{prefix}{name}/"))
                }
            },
            url: format!("{}/{name}", self.url),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its directory, where it is one.
    pub fn dir(&self) -> Option<&Path> {
        match &self.at {
            At::Dir(_, dir) => Some(dir),
            At::Bucket(..) => None,
        }
    }

    /// The objects in it, by name, with their bytes.
    ///
    /// # Errors
    /// What cannot be read.
    pub async fn list(&self) -> Result<BTreeMap<String, u64>, ArchiveError> {
        let dir = match &self.at {
            At::Bucket(bucket, prefix) => {
                let found = bucket.list(prefix).await?;
                let within = |(name, bytes): (String, u64)| {
                    Some((name.strip_prefix(prefix.as_str())?.to_owned(), bytes))
                };
                return Ok(found.into_iter().filter_map(within).collect());
            }
            At::Dir(_, dir) => dir.clone(),
        };
        blocking(move || {
            let mut found = BTreeMap::new();
            walk(&dir, "", &mut found).map_err(ArchiveError::file("list", &dir))?;
            Ok(found)
        })
        .await
    }

    /// Length and hash of an object, read whole; none if there is no such object.
    ///
    /// # Errors
    /// What cannot be read.
    pub async fn sum(&self, name: &str) -> Result<Option<Sum>, ArchiveError> {
        match &self.at {
            At::Bucket(bucket, prefix) => {
                let mut hash = Sha256::new();
                let mut take = |piece: &[u8]| {
                    hash.update(piece);
                    Ok(())
                };
                let read = bucket.read(&format!("{prefix}{name}"), &mut take).await?;
                Ok(read.map(|bytes| (bytes, hash.finalize().into())))
            }
            At::Dir(files, dir) => {
                let (files, path) = (Arc::clone(files), dir.join(name));
                blocking(move || sum_there(&*files, &path)).await
            }
        }
    }

    /// Reads an object into a new file.
    ///
    /// # Errors
    /// There is no such object, or it cannot be read or written.
    pub async fn fetch(&self, name: &str, to: &Path) -> Result<(), ArchiveError> {
        let path = match &self.at {
            At::Bucket(bucket, prefix) => {
                let mut file = File::create(to).map_err(ArchiveError::file("create", to))?;
                let mut take = |piece: &[u8]| {
                    file.write_all(piece)
                        .map_err(ArchiveError::file("write", to))
                };
                let read = bucket.read(&format!("{prefix}{name}"), &mut take).await?;
                let gone = || ArchiveError::Refused(format!("{}/{name} is gone", self.url));
                return read.map(drop).ok_or_else(gone);
            }
            At::Dir(_, dir) => dir.join(name),
        };
        let to = to.to_owned();
        blocking(move || {
            let copied = fs::copy(&path, &to);
            copied.map(drop).map_err(ArchiveError::file("read", &path))
        })
        .await
    }

    /// Writes a file as an object, and reads it back: what is there is what is here when this
    /// returns, and on the disk where it is a directory. What is there already and is the same is
    /// left as it is; answers whether it was written.
    ///
    /// # Errors
    /// What cannot be read or written; another object under that name, unless it may `replace` it.
    pub async fn put(&self, name: &str, from: &Path, replace: bool) -> Result<bool, ArchiveError> {
        let path = from.to_owned();
        let own = blocking(move || sum_of(&path)).await?;
        let url = &self.url;
        match self.sum(name).await? {
            Some(there) if there == own => {
                self.make_durable(name).await?;
                return Ok(false);
            }
            Some(_) if !replace => {
                return Err(ArchiveError::Refused(format!(
                    "{url}/{name} is there and is not this server's: name another place"
                )));
            }
            _ => {}
        }
        match &self.at {
            At::Bucket(bucket, prefix) => {
                bucket.write(&format!("{prefix}{name}"), from).await?;
            }
            At::Dir(files, dir) => {
                let (from, to) = (from.to_owned(), dir.join(name));
                let files = Arc::clone(files);
                blocking(move || write(&*files, &from, &to)).await?;
            }
        }
        match self.sum(name).await? {
            Some(there) if there == own => Ok(true),
            _ => Err(ArchiveError::Refused(format!(
                "{url}/{name} is not what was written"
            ))),
        }
    }

    /// Makes what is there already durable: its writer may have been killed before syncing it.
    async fn make_durable(&self, name: &str) -> Result<(), ArchiveError> {
        let At::Dir(files, dir) = &self.at else {
            return Ok(());
        };
        let (files, path) = (Arc::clone(files), dir.join(name));
        blocking(move || {
            let synced = files.open(&path, false).and_then(|file| file.sync());
            synced.map_err(ArchiveError::file("sync", &path))?;
            sync_above(&*files, &path)
        })
        .await
    }
}

#[cfg(test)]
impl Store {
    /// A directory of another disk.
    pub(crate) fn on(files: Arc<dyn FileLayer>, dir: &Path) -> Self {
        Self {
            at: At::Dir(files, dir.to_owned()),
            url: format!("file://{}", dir.display()),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ArchiveError::Refused(error.to_string()))?
}

/// The whole files below a directory, by their names from there.
fn walk(dir: &Path, under: &str, found: &mut BTreeMap<String, u64>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = format!("{under}{}", name.to_string_lossy());
        let kind = fs::metadata(&path)?;
        if kind.is_dir() {
            walk(&path, &format!("{name}/"), found)?;
        } else if path.extension().is_none_or(|ending| ending != DRAFT) {
            found.insert(name, kind.len());
        }
    }
    Ok(())
}

/// Copies a file under another name first; it has its own when it is whole and on the disk.
fn write(files: &dyn FileLayer, from: &Path, to: &Path) -> Result<(), ArchiveError> {
    let dir = parent_dir(to);
    let made = files.create_dir(dir);
    made.map_err(ArchiveError::file("create", dir))?;
    let draft = PathBuf::from(format!("{}.{DRAFT}", to.display()));
    let copied = File::open(from).and_then(|mut from| {
        let file = files.create(&draft, 0)?;
        let (mut buffer, mut at) = (vec![0; CHUNK], 0);
        loop {
            match from.read(&mut buffer)? {
                0 => break,
                got => file.write_at(&buffer[..got], at)?,
            }
            at = from.stream_position()?;
        }
        file.sync()?;
        files.rename(&draft, to)
    });
    copied.map_err(|source| {
        let _ = files.remove(&draft);
        ArchiveError::file("write", to)(source)
    })?;
    sync_above(files, to)
}

/// Makes the names of a file and of the directories above it durable, which may be new as well.
fn sync_above(files: &dyn FileLayer, path: &Path) -> Result<(), ArchiveError> {
    for dir in path.ancestors().skip(1).take(4) {
        files
            .sync_dir(dir)
            .map_err(ArchiveError::file("sync", dir))?;
    }
    Ok(())
}

fn sum_of(path: &Path) -> Result<Sum, ArchiveError> {
    let found = sum_there(&RealFiles, path)?;
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    found.ok_or_else(|| ArchiveError::file("read", path)(gone()))
}

/// Length and hash of a file, if it is there.
fn sum_there(files: &dyn FileLayer, path: &Path) -> Result<Option<Sum>, ArchiveError> {
    let failed = || ArchiveError::file("read", path);
    let file = match files.open(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed())?,
    };
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read_at(&mut buffer, bytes).map_err(failed())? {
            0 => return Ok(Some((bytes, hash.finalize().into()))),
            got => {
                hash.update(&buffer[..got]);
                bytes += got as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_fake_disk::{FakeDisk, Op};

    fn on(disk: &FakeDisk) -> Store {
        Store::on(Arc::new(disk.clone()), Path::new("/archive"))
    }

    #[tokio::test]
    async fn what_an_archive_took_is_there_whenever_the_power_goes() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("segment");
        fs::write(&own, "a sealed segment ".repeat(300)).unwrap();
        let name = "epoch/server/log/00000000000000000000.seal";
        let wanted = fs::read(&own).unwrap();
        let path = Path::new("/archive").join(name);
        for op in [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
            for (at, seed) in (0..9).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
                let disk = FakeDisk::default();
                disk.create_dir(Path::new("/archive")).unwrap();
                disk.fail(op, at, 1);
                let place = format!("{op:?} {at} failed, seed {seed}");
                let first = on(&disk).put(name, &own, false).await;
                if first.is_err() {
                    // Killed, and done again: what is there counts once it is there for certain.
                    assert!(disk.failed() == 1, "{place}: {first:?}");
                    on(&disk).put(name, &own, false).await.unwrap();
                }
                let cut = disk.power_cut(seed).content(&path);
                assert!(cut.as_ref() == Some(&wanted), "{place}: it is lost");
            }
        }
    }
}
