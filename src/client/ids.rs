//! The node's id and its secret: plain files, made once.

use std::fs;
use std::io;
use std::path::Path;

use uuid::Uuid;

use drover_log::atomic_file;

#[derive(Clone, PartialEq, Eq)]
pub struct NodeIds {
    /// Public.
    pub id: String,
    /// What it proves its identity with.
    pub secret: String,
}

impl std::fmt::Debug for NodeIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeIds")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl NodeIds {
    /// Ids that are forgotten with the process.
    pub fn random() -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            secret: Uuid::new_v4().to_string(),
        }
    }

    /// Reads `client-id` and `secret-id` in `dir`, or makes them (mode 0600, synced).
    ///
    /// # Errors
    /// What the file system says; a file with something else than an id in it is refused.
    pub fn load(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self {
            id: load(&dir.join("client-id"))?,
            secret: load(&dir.join("secret-id"))?,
        })
    }
}

fn load(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let id = text.trim().to_lowercase();
            Uuid::parse_str(&id).map(|_| id).map_err(|e| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: {e}", path.display()),
                )
            })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::new_v4().to_string();
            atomic_file::put_private(path, id.as_bytes())?;
            Ok(id)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn mod_24_ids_are_made_once_and_only_the_owner_reads_them() {
        let tmp = tempfile::tempdir().unwrap();
        let first = NodeIds::load(tmp.path()).unwrap();
        assert_eq!(NodeIds::load(tmp.path()).unwrap(), first);
        let mode = fs::metadata(tmp.path().join("secret-id"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(tmp.path().join("client-id"), first.id.to_uppercase()).unwrap();
        assert_eq!(NodeIds::load(tmp.path()).unwrap().id, first.id);
        fs::write(tmp.path().join("client-id"), "nonsense").unwrap();
        assert!(NodeIds::load(tmp.path()).is_err());
    }

    /// A node under a new id is another node: its allocations have no node.
    #[test]
    fn mod_24_an_id_that_cannot_be_read_is_not_replaced() {
        let tmp = tempfile::tempdir().unwrap();
        let first = NodeIds::load(tmp.path()).unwrap();
        let path = tmp.path().join("client-id");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert!(NodeIds::load(tmp.path()).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, &first.id).unwrap();
        assert_eq!(NodeIds::load(tmp.path()).unwrap(), first);
    }
}
