//! The material in use, and the one way to put other material in its place.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

use super::material::{self, Material};
use super::verify::{Agents, Servers, known_callers};
use super::{Role, TlsError, TlsSettings, cipher_suites, min_version};

/// A port that may speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Of the API.
    Http,
    /// Between agents.
    Rpc,
}

/// How a port is spoken to.
#[derive(Clone, Debug, Default)]
pub struct PortTls {
    /// TLS, so; none: clear text.
    pub tls: Option<Arc<ServerConfig>>,
    /// Clear text as well.
    pub clear_too: bool,
}

/// A certificate of this agent's, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The setting that names its file.
    pub setting: &'static str,
    pub path: PathBuf,
    /// Unix seconds.
    pub until: i64,
}

/// How long before its end a certificate is warned of.
const SOON: i64 = 30 * 24 * 3600;

impl Expiry {
    /// What to log at `now` (Unix seconds) about a certificate that has expired, or does soon.
    #[must_use]
    pub fn warning(&self, now: i64) -> Option<String> {
        let left = self.until - now;
        let days = left / (24 * 3600);
        let (setting, path) = (self.setting, self.path.display());
        let then = match left {
            SOON.. => return None,
            0.. if days == 1 => format!("expires in 1 day, {}", self.moment()),
            0.. => format!("expires in {days} days, {}", self.moment()),
            _ => format!("has expired, {}: no peer accepts it", self.moment()),
        };
        Some(format!(
            "the certificate in tls.{setting} {path} {then}; put a new one in its place and reload \
             (SIGHUP, or PUT /v1/agent/reload)"
        ))
    }

    /// Sets the gauge of how long after `now` (Unix seconds) it ends.
    pub fn observe(&self, now: i64) {
        let left = (self.until - now) as f64;
        metrics::gauge!("drover.tls.expires_in_seconds", "setting" => self.setting).set(left);
    }

    /// When it ends, to be read.
    #[must_use]
    pub fn moment(&self) -> String {
        super::material::day(self.until)
    }
}

/// How servers are called: so, and by this name.
type Dial = (Arc<ClientConfig>, ServerName<'static>);

#[derive(Default)]
struct Loaded {
    http: Option<Arc<ServerConfig>>,
    rpc: Option<Arc<ServerConfig>>,
    rpc_clear_too: bool,
    dial: Option<Dial>,
    expiries: Vec<Expiry>,
}

/// Holds the material; each handshake reads it anew.
pub struct Loader {
    current: ArcSwap<Loaded>,
    /// Bumped where what is shown was loaded anew.
    reloads: watch::Sender<()>,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let current = self.current.load();
        f.debug_struct("Loader")
            .field("http", &current.http.is_some())
            .field("rpc", &current.rpc.is_some())
            .finish_non_exhaustive()
    }
}

impl Loader {
    /// Reads and checks what the settings name.
    ///
    /// # Errors
    /// Which file or setting is no good, and why.
    pub fn open(settings: &TlsSettings) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(load(settings)?),
            reloads: watch::Sender::default(),
        }))
    }

    /// Without any: everything in clear text.
    #[must_use]
    pub fn clear() -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::default(),
            reloads: watch::Sender::default(),
        })
    }

    /// Puts what the settings name now in place of what is in use. Connections that stand stay.
    ///
    /// # Errors
    /// Which file or setting is no good, and why; what was in use stays.
    pub fn reload(&self, settings: &TlsSettings) -> Result<(), TlsError> {
        let before = self.current.swap(Arc::new(load(settings)?));
        let encrypts = |loaded: &Loaded| loaded.rpc.is_some() || loaded.http.is_some();
        if encrypts(&before) || encrypts(&self.current.load()) {
            self.reloads.send_replace(());
        }
        Ok(())
    }

    /// Hears whenever what is shown was loaded anew.
    #[must_use]
    pub fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    /// How a port is spoken to now.
    #[must_use]
    pub fn wanted(&self, port: Port) -> PortTls {
        let current = self.current.load();
        match port {
            Port::Http => PortTls {
                tls: current.http.clone(),
                clear_too: false,
            },
            Port::Rpc => PortTls {
                tls: current.rpc.clone(),
                clear_too: current.rpc_clear_too,
            },
        }
    }

    /// How servers are called now; none: in clear text.
    #[must_use]
    pub fn dial(&self) -> Option<Dial> {
        self.current.load().dial.clone()
    }

    /// What of the material expires, and when.
    #[must_use]
    pub fn expiries(&self) -> Vec<Expiry> {
        self.current.load().expiries.clone()
    }
}

fn load(settings: &TlsSettings) -> Result<Loaded, TlsError> {
    if !settings.http && !settings.rpc {
        return Ok(Loaded::default());
    }
    let provider = Arc::new(cipher_suites(&settings.cipher_suites)?);
    let material = material::read(settings, &provider)?;
    let maker = Maker {
        settings,
        provider,
        material: &material,
    };
    let mut loaded = Loaded {
        rpc_clear_too: settings.rpc_upgrade_mode,
        ..Loaded::default()
    };
    if settings.http {
        loaded.http = Some(Arc::new(maker.http()?));
    }
    if settings.rpc {
        loaded.rpc = Some(Arc::new(maker.rpc()?));
        loaded.dial = Some(maker.dial()?);
    }
    let expiries = material.until.into_iter();
    loaded.expiries = expiries
        .map(|(setting, path, until)| Expiry {
            setting,
            path,
            until,
        })
        .collect();
    Ok(loaded)
}

struct Maker<'a> {
    settings: &'a TlsSettings,
    provider: Arc<CryptoProvider>,
    material: &'a Material,
}

impl Maker<'_> {
    fn http(&self) -> Result<ServerConfig, TlsError> {
        let verifier = match self.settings.verify_https_client {
            true => Some(known_callers(&self.material.roots, &self.provider)?),
            false => None,
        };
        let mut config = self.server(verifier)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn rpc(&self) -> Result<ServerConfig, TlsError> {
        let agents = Agents {
            known: known_callers(&self.material.roots, &self.provider)?,
            region: self.region(),
        };
        self.server(Some(Arc::new(agents)))
    }

    /// The region, where names are verified.
    fn region(&self) -> Option<String> {
        let named = self.settings.verify_names;
        named.then(|| self.settings.region.clone())
    }

    fn server(
        &self,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, TlsError> {
        let versions = min_version(&self.settings.min_version)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("tls.tls_cipher_suites: {error}"))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let own = SingleCertAndKey::from(Arc::clone(&self.material.own));
        let mut config = builder.with_cert_resolver(Arc::new(own));
        config.ignore_client_order = self.settings.prefer_own_suites;
        // Each port and each material has keys of its own: what was agreed on one port, or with an
        // authority that is gone, opens nothing elsewhere.
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()
            .map_err(|error| format!("no keys for TLS sessions: {error}"))?;
        Ok(config)
    }

    fn dial(&self) -> Result<Dial, TlsError> {
        let name = Role::Server.in_region(&self.settings.region);
        let name = ServerName::try_from(name)
            .map_err(|_| format!("region {:?} is no part of a name", self.settings.region))?;
        let servers: Arc<dyn ServerCertVerifier> = Arc::new(Servers {
            roots: Arc::clone(&self.material.roots),
            algorithms: self.provider.signature_verification_algorithms,
            region: self.region(),
        });
        let versions = min_version(&self.settings.min_version)?;
        let own = SingleCertAndKey::from(Arc::clone(&self.material.own));
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("tls.tls_cipher_suites: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(servers)
            .with_client_cert_resolver(Arc::new(own));
        Ok((Arc::new(config), name))
    }
}

#[cfg(test)]
#[path = "loader_test.rs"]
mod tests;
