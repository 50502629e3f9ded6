//! Settings and material for tests.

use std::sync::Arc;

use drover_testkit::certs::{Authority, Pair};

use super::{Loader, Role, Settings};

/// An authority in a directory that vanishes with it.
pub(crate) struct Trust {
    pub(crate) authority: Authority,
    pub(crate) dir: tempfile::TempDir,
}

/// The names of a good server and of a good client.
pub(crate) const SERVER: &[&str] = &["server.global.nomad", "localhost", "127.0.0.1"];
pub(crate) const CLIENT: &[&str] = &["client.global.nomad", "localhost", "127.0.0.1"];

impl Trust {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::make(dir.path()).expect("an authority");
        Self { authority, dir }
    }

    pub(crate) fn issue(&self, name: &str, names: &[&str]) -> Pair {
        self.authority.issue(name, names).expect("a certificate")
    }

    /// TLS for everything, names verified.
    pub(crate) fn settings(&self, role: Role, pair: &Pair) -> Settings {
        Settings {
            http: role == Role::Server,
            rpc: true,
            ca_file: Some(self.authority.file()),
            cert_file: Some(pair.cert.clone()),
            key_file: Some(pair.key.clone()),
            verify_names: true,
            region: "global".to_owned(),
            roles: vec![role],
            ..Settings::default()
        }
    }

    /// The material of a good server.
    pub(crate) fn server(&self) -> Arc<Loader> {
        let pair = self.issue("server", SERVER);
        Loader::open(&self.settings(Role::Server, &pair)).expect("loads")
    }

    /// The material of a good client.
    pub(crate) fn client(&self) -> Arc<Loader> {
        let pair = self.issue("client", CLIENT);
        Loader::open(&self.settings(Role::Client, &pair)).expect("loads")
    }
}
