//! How others are called over TLS: which peers a caller trusts, and what the caller shows.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, RootCertStore};

use super::anybody::Anybody;
use super::provider;

/// Which servers a caller trusts.
#[derive(Debug)]
pub enum Trusted {
    /// A peer with a certificate of one of these authorities, for the name that is called.
    These(RootCertStore),
    /// Any peer, whatever certificate it shows.
    Anybody,
}

/// The certificate that a caller shows, with its chain, and its key.
pub type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Why no caller can be configured so.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The cryptography goes with no version of TLS.
    #[error("no version of TLS can be spoken")]
    Versions(#[source] Error),
    /// The key is another one's.
    #[error("the key is not the key of the certificate")]
    Key(#[source] Error),
}

/// The configuration of a caller for this protocol.
///
/// # Errors
/// [`CallerError`].
pub fn client(
    trusted: Trusted,
    own: Option<Own>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, CallerError> {
    let provider = Arc::new(provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(CallerError::Versions)?;
    let builder = match trusted {
        Trusted::These(roots) => builder.with_root_certificates(roots),
        Trusted::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(CallerError::Key)?,
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}
