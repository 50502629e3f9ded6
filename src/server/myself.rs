//! This server's identity: an id that is made once and kept, a name, and where it is reached.

use std::path::Path;

use crate::config::Config;
use crate::log::atomic_file;
use crate::raft::{Member, raft_node_id};

use super::StartError;

/// This server as others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Myself {
    /// A UUID, kept in `<data_dir>/server/node-id`.
    pub id: String,
    /// The number Raft knows it by.
    pub number: u64,
    /// `<node name>.<region>`.
    pub name: String,
    /// Where other servers and clients reach it, `host:port`.
    pub rpc_addr: String,
    /// Where its HTTP API answers, `host:port`.
    pub http_addr: String,
}

impl Myself {
    /// Reads the id from `dir`, or makes it.
    pub(super) fn load_or_create(config: &Config, dir: &Path) -> Result<Self, StartError> {
        let path = dir.join("node-id");
        let id = kept_id(dir, &path).map_err(|source| StartError::Files {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            number: raft_node_id(&id),
            id: id.to_string(),
            name: format!("{}.{}", config.node_name(), config.region),
            rpc_addr: config.rpc_advertise()?,
            http_addr: config.http_advertise()?,
        })
    }

    /// As Raft's membership knows it.
    pub fn member(&self) -> Member {
        Member {
            id: self.id.clone(),
            name: self.name.clone(),
            rpc_addr: self.rpc_addr.clone(),
            http_addr: self.http_addr.clone(),
        }
    }
}

fn kept_id(dir: &Path, path: &Path) -> std::io::Result<uuid::Uuid> {
    std::fs::create_dir_all(dir)?;
    match std::fs::read_to_string(path) {
        Ok(text) => uuid::Uuid::parse_str(text.trim()).map_err(|error| {
            std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("not a UUID: {error}"),
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if has_files(&dir.join("log"))? {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::NotFound,
                    "it is missing, though there is a log: under another id this server would \
                     wait for the one that the log names. Put the file back",
                ));
            }
            let id = uuid::Uuid::new_v4();
            atomic_file::put(path, id.to_string().as_bytes())?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

fn has_files(dir: &Path) -> std::io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut files) => Ok(files.next().is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_kept_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = Config::dev();
        let first = Myself::load_or_create(&config, dir.path()).expect("settles");
        assert_eq!(
            Myself::load_or_create(&config, dir.path()).expect("settles"),
            first
        );
        std::fs::write(dir.path().join("node-id"), "nonsense").expect("writes");
        let error = Myself::load_or_create(&config, dir.path()).expect_err("is no UUID");
        assert!(error.to_string().contains("node-id"), "{error}");
    }
}
