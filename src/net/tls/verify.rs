//! Who may be at the other end of a connection between agents.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::{PeerCertificate, Role};

/// A certificate of the authority that is for something else.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is for {names}, not for {wanted}")]
pub(super) struct NotFor {
    names: String,
    wanted: String,
}

fn not_for(peer: &PeerCertificate, wanted: &str) -> Error {
    let names = match peer.names.as_slice() {
        [] => "no name".to_owned(),
        names => names.join(", "),
    };
    let wanted = wanted.to_owned();
    let why: Arc<dyn std::error::Error + Send + Sync> = Arc::new(NotFor { names, wanted });
    Error::InvalidCertificate(CertificateError::Other(OtherError(why)))
}

fn read(shown: &CertificateDer<'_>) -> Result<PeerCertificate, Error> {
    PeerCertificate::of(shown).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// What is required of a server that is called over RPC: a certificate of the authority, for a
/// server of the region by name where names are verified, and never one for a client.
pub(super) struct Servers {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// The region, where names are verified.
    pub(super) region: Option<String>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Servers {
    pub(super) fn verify(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(shown)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        let peer = read(shown)?;
        match &self.region {
            Some(region) if !peer.is(Role::Server, region) => {
                Err(not_for(&peer, &Role::Server.in_region(region)))
            }
            None if !peer.may_be_server() => Err(not_for(&peer, "a server")),
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Callers with a certificate of the authority, whatever it is for.
pub(super) fn known_callers(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = Arc::clone(roots);
    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| format!("tls.ca_file: {error}"))
}

/// What is required of a caller of the RPC port: a certificate of the authority and, where names
/// are verified, one for a server, or for a client of the region.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) known: Arc<dyn ClientCertVerifier>,
    /// The region, where names are verified.
    pub(super) region: Option<String>,
}

impl ClientCertVerifier for Agents {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .known
            .verify_client_cert(end_entity, intermediates, now)?;
        let Some(region) = &self.region else {
            return Ok(verified);
        };
        let peer = read(end_entity)?;
        // A server may be of another region: servers call each other across regions.
        if peer.role == Some(Role::Server) || peer.is(Role::Client, region) {
            return Ok(verified);
        }
        Err(not_for(&peer, &Role::Client.in_region(region)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}
