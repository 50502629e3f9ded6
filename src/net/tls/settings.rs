//! The options of TLS, and the names that Nomad has for versions and suites.

use std::path::PathBuf;

use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::{Role, provider};
use drover_config as config;

/// How an agent is configured for TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// On the HTTP port.
    pub http: bool,
    /// On the RPC port, and to servers.
    pub rpc: bool,
    /// The authority's certificate.
    pub ca_file: Option<PathBuf>,
    /// The agent's certificate.
    pub cert_file: Option<PathBuf>,
    /// The agent's key.
    pub key_file: Option<PathBuf>,
    /// Names of certificates say who may be a server, who a client.
    pub verify_names: bool,
    /// Callers of the API must show a certificate.
    pub verify_https_client: bool,
    /// The RPC port takes clear text as well.
    pub rpc_upgrade_mode: bool,
    /// The suites, comma separated; empty: all.
    pub cipher_suites: String,
    /// Of the suites that both sides have, the agent's first is taken, not the caller's.
    pub prefer_own_suites: bool,
    /// The lowest version; empty: `tls12`.
    pub min_version: String,
    /// The agent's region.
    pub region: String,
    /// The agent's roles.
    pub roles: Vec<Role>,
}

/// The versions from this one on.
///
/// # Errors
/// It is not supported; the text has those that can be chosen.
pub fn min_version(name: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    Ok(match config::min_version(name)? {
        "tls13" => vec![&TLS13],
        _ => vec![&TLS13, &TLS12],
    })
}

fn name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

fn is_of_tls13(suite: SupportedCipherSuite) -> bool {
    matches!(suite, SupportedCipherSuite::Tls13(_))
}

/// The cryptography with these suites, separated by commas; all where none is named. As with
/// Nomad, those of TLS 1.3 stay where only older ones are named.
///
/// # Errors
/// A suite that is not supported; the text has those that can be chosen.
pub fn cipher_suites(names: &str) -> Result<CryptoProvider, String> {
    let mut provider = provider();
    let mut chosen = Vec::new();
    for wanted in config::cipher_suites(names)? {
        let mut all = provider.cipher_suites.iter().copied();
        chosen.extend(all.find(|suite| name(*suite) == wanted));
    }
    if chosen.is_empty() {
        return Ok(provider);
    }
    if !chosen.iter().any(|suite| is_of_tls13(*suite)) {
        let newest = provider.cipher_suites.iter().copied();
        chosen.extend(newest.filter(|suite| is_of_tls13(*suite)));
    }
    provider.cipher_suites = chosen;
    Ok(provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_config::CIPHER_SUITES;

    #[test]
    fn the_list_that_is_shown_is_what_can_be_chosen() {
        let all: Vec<String> = provider().cipher_suites.into_iter().map(name).collect();
        assert_eq!(all, CIPHER_SUITES);
        for suite in CIPHER_SUITES {
            cipher_suites(suite).expect(suite);
        }
    }

    #[test]
    fn older_suites_leave_those_of_the_newest_version() {
        let of = |names| {
            let chosen = cipher_suites(names).expect(names).cipher_suites;
            chosen.into_iter().map(name).collect::<Vec<_>>()
        };
        let old = of("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, ");
        assert_eq!(old[0], "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");
        assert_eq!(old.len(), 4);
        assert_eq!(of("TLS_AES_128_GCM_SHA256"), ["TLS_AES_128_GCM_SHA256"]);
        assert_eq!(of("").len(), CIPHER_SUITES.len());
    }

    #[test]
    fn what_is_not_supported_is_refused_with_what_is() {
        for suite in [
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "tls_aes_128_gcm_sha256",
            "x",
        ] {
            let text = cipher_suites(suite).expect_err(suite);
            assert!(
                text.contains(suite) && text.contains(CIPHER_SUITES[8]),
                "{text}"
            );
        }
        for version in ["tls10", "tls11", "TLS12", "1.3"] {
            let text = min_version(version).expect_err(version);
            assert!(
                text.contains(version) && text.contains("tls12, tls13"),
                "{text}"
            );
        }
        assert_eq!(min_version("tls13").expect("known").len(), 1);
        assert_eq!(min_version("").expect("known").len(), 2);
    }
}
