//! The TLS settings of the configuration, for the parts that speak TLS.

use crate::config::Config;
use crate::net::tls::{Role, TlsSettings};

/// The settings of an agent so configured.
pub(super) fn settings(config: &Config) -> TlsSettings {
    let tls = &config.tls;
    let roles = [
        (config.server.enabled, Role::Server),
        (config.client.enabled, Role::Client),
    ];
    TlsSettings {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::Loader;
    use drover_testkit::certs::{SERVER, Trust};

    /// Lays a `tls` block over a configuration.
    fn read(config: &mut Config, block: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("tls.hcl");
        std::fs::write(&file, format!("tls {{\n{block}\n}}\n")).expect("written");
        crate::config::load(config, &[file]).expect("loads");
        crate::config::check(config).expect("checks");
    }

    #[test]
    fn env_03_an_authority_without_a_path_is_as_good_as_none() {
        let trust = Trust::new();
        let pair = trust.issue("server", SERVER);
        let block = format!(
            "http = true\nca_file = \"\"\ncert_file = {:?}\nkey_file = {:?}",
            pair.cert, pair.key
        );
        let mut config = Config::dev();
        read(&mut config, &block);
        let none = settings(&config);
        assert_eq!(none.ca_file, None);
        Loader::open(&none).expect("it needs none");
        config.tls.ca_file = Some(trust.authority.file());
        read(&mut config, &block);
        let earlier = settings(&config).ca_file;
        assert_eq!(earlier, Some(trust.authority.file()), "as without the line");
    }

    #[test]
    fn what_is_set_of_versions_and_suites_reaches_whoever_speaks_tls() {
        let mut config = Config::dev();
        let of = |config: &Config| {
            let all = settings(config);
            (all.cipher_suites, all.min_version, all.prefer_own_suites)
        };
        assert_eq!(of(&config), (String::new(), String::new(), false));
        read(
            &mut config,
            "tls_cipher_suites = \"TLS_AES_128_GCM_SHA256\"\ntls_min_version = \"tls13\"\n\
             tls_prefer_server_cipher_suites = true",
        );
        let wanted = ("TLS_AES_128_GCM_SHA256".to_owned(), "tls13".to_owned());
        assert_eq!(of(&config), (wanted.0, wanted.1, true));
    }
}
