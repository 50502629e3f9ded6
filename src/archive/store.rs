//! Where an archive lies: a directory, or a bucket of a server that speaks S3.
//!
//! Objects are written whole or not at all, and read back before anybody relies on them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::s3::Bucket;
use super::{ArchiveError, sync_dir};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// What a file is called until it is whole.
const DRAFT: &str = "tmp";

/// Which archive, and how to get there. What is absent is taken from the environment
/// (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// `file:///directory`, a path, or `s3://bucket/prefix`.
    pub url: String,
    /// The address of the server that speaks S3.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// The key's id.
    pub access_key_id: Option<String>,
    /// The key; it is not shown.
    pub secret_access_key: Option<String>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
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
    Dir(PathBuf),
    /// A bucket, and what all names begin with: nothing, or a path with a `/` at its end.
    Bucket(Box<Bucket>, String),
}

/// Length and hash of an object.
pub type Sum = (u64, [u8; 32]);

fn bucket(place: &Place) -> Result<Option<Store>, ArchiveError> {
    let Some(rest) = place.url.strip_prefix("s3://") else {
        return Ok(None);
    };
    let rest = rest.trim_end_matches('/');
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = match prefix {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let at = At::Bucket(Box::new(Bucket::open(place, bucket)?), prefix);
    let url = format!("s3://{rest}");
    Ok(Some(Store { at, url }))
}

fn directory(place: &Place) -> Result<PathBuf, ArchiveError> {
    let url = &place.url;
    let dir = PathBuf::from(url.strip_prefix("file://").unwrap_or(url));
    match dir.is_absolute() {
        true => Ok(dir),
        false => Err(ArchiveError::Refused(format!(
            "{url:?} is no archive: it must be file:///directory or s3://bucket/prefix"
        ))),
    }
}

impl Store {
    /// Opens an archive; a directory is made, a server not asked yet.
    ///
    /// # Errors
    /// A URL that is none; a directory that cannot be made.
    pub fn open(place: &Place) -> Result<Self, ArchiveError> {
        if let Some(store) = bucket(place)? {
            return Ok(store);
        }
        let dir = directory(place)?;
        fs::create_dir_all(&dir).map_err(ArchiveError::file("create", &dir))?;
        Self::find(place)
    }

    /// Opens an archive that is to be read: a directory must be there.
    ///
    /// # Errors
    /// A URL that is none; no such directory.
    pub fn find(place: &Place) -> Result<Self, ArchiveError> {
        if let Some(store) = bucket(place)? {
            return Ok(store);
        }
        let dir = directory(place)?;
        let url = place.url.trim_end_matches('/').to_owned();
        match dir.is_dir() {
            true => Ok(Self {
                at: At::Dir(dir),
                url,
            }),
            false => Err(ArchiveError::Refused(format!(
                "there is no archive at {url}"
            ))),
        }
    }

    /// A part of it, with a name of its own.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        Self {
            at: match &self.at {
                At::Dir(dir) => At::Dir(dir.join(name)),
                At::Bucket(bucket, prefix) => {
                    At::Bucket(bucket.clone(), format!("{prefix}{name}/"))
                }
            },
            url: format!("{}/{name}", self.url),
        }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its directory, where it is one.
    pub fn dir(&self) -> Option<&Path> {
        match &self.at {
            At::Dir(dir) => Some(dir),
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
            At::Dir(dir) => dir.clone(),
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
        let path = match &self.at {
            At::Bucket(bucket, prefix) => {
                let mut hash = Sha256::new();
                let mut take = |piece: &[u8]| {
                    hash.update(piece);
                    Ok(())
                };
                let read = bucket.read(&format!("{prefix}{name}"), &mut take).await?;
                return Ok(read.map(|bytes| (bytes, hash.finalize().into())));
            }
            At::Dir(dir) => dir.join(name),
        };
        blocking(move || match path.exists() {
            true => Ok(Some(sum_of(&path)?)),
            false => Ok(None),
        })
        .await
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
            At::Dir(dir) => dir.join(name),
        };
        let to = to.to_owned();
        blocking(move || {
            let copied = fs::copy(&path, &to);
            copied.map(drop).map_err(ArchiveError::file("read", &path))
        })
        .await
    }

    /// Writes a file as an object, and reads it back: what is there is what is here when this
    /// returns. What is there already and is the same is left as it is; answers whether it was
    /// written.
    ///
    /// # Errors
    /// What cannot be read or written; another object under that name, unless it may `replace` it.
    pub async fn put(&self, name: &str, from: &Path, replace: bool) -> Result<bool, ArchiveError> {
        let path = from.to_owned();
        let own = blocking(move || sum_of(&path)).await?;
        let url = &self.url;
        match self.sum(name).await? {
            Some(there) if there == own => return Ok(false),
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
            At::Dir(dir) => {
                let (from, to) = (from.to_owned(), dir.join(name));
                blocking(move || write(&from, &to)).await?;
            }
        }
        match self.sum(name).await? {
            Some(there) if there == own => Ok(true),
            _ => Err(ArchiveError::Refused(format!(
                "{url}/{name} is not what was written"
            ))),
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
fn write(from: &Path, to: &Path) -> Result<(), ArchiveError> {
    let dir = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(ArchiveError::file("create", dir))?;
    let draft = PathBuf::from(format!("{}.{DRAFT}", to.display()));
    let copied = File::open(from).and_then(|mut from| {
        let mut file = File::create(&draft)?;
        io::copy(&mut from, &mut file)?;
        file.flush()?;
        file.sync_all()?;
        fs::rename(&draft, to)
    });
    copied.map_err(|source| {
        let _ = fs::remove_file(&draft);
        ArchiveError::file("write", to)(source)
    })?;
    // The directories above may be new as well.
    for dir in to.ancestors().skip(1).take(4) {
        sync_dir(dir)?;
    }
    Ok(())
}

fn sum_of(path: &Path) -> Result<Sum, ArchiveError> {
    let failed = || ArchiveError::file("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer).map_err(failed())? {
            0 => return Ok((bytes, hash.finalize().into())),
            got => {
                hash.update(&buffer[..got]);
                bytes += got as u64;
            }
        }
    }
}
