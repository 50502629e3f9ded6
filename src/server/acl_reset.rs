//! The file by which an operator who has lost all tokens may have one again.

use std::io::Read as _;

use super::Server;

/// The file, in the server's directory.
const FILE: &str = "acl-bootstrap-reset";
/// More than any index has digits.
const LONGEST: u64 = 64;

impl Server {
    /// The index in the file with which ACLs may be bootstrapped again; 0 where it holds no index.
    pub fn acl_bootstrap_reset(&self) -> u64 {
        let path = self.dir.join(FILE);
        let mut text = String::new();
        let read = std::fs::File::open(&path)
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        match read {
            Ok(_) => text.trim().parse().unwrap_or_else(|_| {
                tracing::warn!(path = %path.display(), "the file holds no index");
                0
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the file cannot be read");
                0
            }
        }
    }
}
