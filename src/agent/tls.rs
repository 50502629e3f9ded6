//! What the configuration says of TLS, for those who speak it.

use crate::config::Config;
use crate::net::tls::{Role, Settings};

/// The settings of an agent so configured.
pub(super) fn settings(config: &Config) -> Settings {
    let tls = &config.tls;
    let roles = [
        (config.server.enabled, Role::Server),
        (config.client.enabled, Role::Client),
    ];
    Settings {
        http: tls.http,
        rpc: tls.rpc,
        ca_file: tls.ca_file.clone(),
        cert_file: tls.cert_file.clone(),
        key_file: tls.key_file.clone(),
        verify_names: tls.verify_server_hostname,
        verify_https_client: tls.verify_https_client,
        rpc_upgrade_mode: tls.rpc_upgrade_mode,
        cipher_suites: tls.tls_cipher_suites.clone(),
        prefer_own_suites: tls.tls_prefer_server_cipher_suites,
        min_version: tls.tls_min_version.clone(),
        region: config.region.clone(),
        roles: roles
            .into_iter()
            .filter_map(|(enabled, role)| enabled.then_some(role))
            .collect(),
    }
}
