//! Settings and material for tests.

use std::sync::Arc;

use drover_testkit::certs::Pair;
pub(crate) use drover_testkit::certs::{CLIENT, SERVER, Trust};

use super::{Loader, Role, TlsSettings};

/// What an authority's certificates are good for here.
pub(crate) trait Material {
    /// TLS for everything, names verified.
    fn settings(&self, role: Role, pair: &Pair) -> TlsSettings;
    /// The material of a good server.
    fn server(&self) -> Arc<Loader>;
    /// The material of a good client.
    fn client(&self) -> Arc<Loader>;
}

impl Material for Trust {
    fn settings(&self, role: Role, pair: &Pair) -> TlsSettings {
        TlsSettings {
            http: role == Role::Server,
            rpc: true,
            ca_file: Some(self.authority.file()),
            cert_file: Some(pair.cert.clone()),
            key_file: Some(pair.key.clone()),
            verify_names: true,
            region: "global".to_owned(),
            roles: vec![role],
            ..TlsSettings::default()
        }
    }

    fn server(&self) -> Arc<Loader> {
        let pair = self.issue("server", SERVER);
        Loader::open(&self.settings(Role::Server, &pair)).expect("loads")
    }

    fn client(&self) -> Arc<Loader> {
        let pair = self.issue("client", CLIENT);
        Loader::open(&self.settings(Role::Client, &pair)).expect("loads")
    }
}
