//! Certificates and keys out of files, checked before they are used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use super::verify::{Servers, known_callers};
use super::{Certificate, Role, TlsSettings, explain};

/// Why there is no TLS with these files; names the file and the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

impl From<String> for TlsError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Something read from a file that a setting names.
pub(super) struct NamedFile<'a> {
    pub(super) setting: &'static str,
    pub(super) path: &'a Path,
}

impl NamedFile<'_> {
    fn bad(&self, why: &str) -> TlsError {
        TlsError(format!(
            "tls.{} {} {why}",
            self.setting,
            self.path.display()
        ))
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        std::fs::read(self.path).map_err(|error| self.bad(&format!("cannot be read: {error}")))
    }
}

/// All certificates of a PEM text.
///
/// # Errors
/// There is none in it, or one is damaged.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| format!("is not PEM: {error}"))?;
    if all.is_empty() {
        return Err("holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    if all.iter().any(|der| Certificate::read(der).is_none()) {
        return Err("holds a certificate that cannot be read".to_owned());
    }
    Ok(all)
}

/// The private key of a PEM text.
///
/// # Errors
/// There is none in it, or it is protected by a passphrase.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let text = String::from_utf8_lossy(pem);
        if text.contains("ENCRYPTED") {
            return "is protected by a passphrase: take that off (openssl pkey)".to_owned();
        }
        match text.contains("PRIVATE KEY-----") {
            true => format!("is not PEM: {error}"),
            false => "holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)".to_owned(),
        }
    })
}

/// The agent's certificate with its key, and those that it trusts.
pub(super) struct Material {
    pub(super) own: Arc<CertifiedKey>,
    pub(super) roots: Arc<RootCertStore>,
    /// What of it expires, and when.
    pub(super) until: Vec<(&'static str, PathBuf, i64)>,
}

/// Reads and checks all files that the settings name.
pub(super) fn read(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Material, TlsError> {
    let missing = |setting: &str| TlsError(format!("tls.{setting} is not set: TLS needs it"));
    let cert_file = settings
        .cert_file
        .as_deref()
        .ok_or_else(|| missing("cert_file"))?;
    let key_file = settings
        .key_file
        .as_deref()
        .ok_or_else(|| missing("key_file"))?;
    let cert = NamedFile {
        setting: "cert_file",
        path: cert_file,
    };
    let key = NamedFile {
        setting: "key_file",
        path: key_file,
    };
    let now = UnixTime::now();
    let chain = certificates(&cert.read()?).map_err(|why| cert.bad(&why))?;
    let first = chain.first().and_then(|der| Certificate::read(der));
    let first = first.ok_or_else(|| cert.bad("holds no certificate"))?;
    // A peer refuses the whole chain once a part of it has expired.
    let mut ends = first.until;
    for part in chain.iter().filter_map(|der| Certificate::read(der)) {
        in_time(&cert, &part, now)?;
        ends = ends.min(part.until);
    }
    let own = own(&cert, &key, chain, provider)?;
    let mut until = vec![("cert_file", cert_file.to_owned(), ends)];
    let mut roots = RootCertStore::empty();
    match settings.ca_file.as_deref() {
        Some(path) => until.extend(authorities(path, &mut roots, now)?),
        None if settings.rpc || settings.verify_https_client => return Err(missing("ca_file")),
        None => {}
    }
    let material = Material {
        own: Arc::new(own),
        roots: Arc::new(roots),
        until,
    };
    if settings.rpc {
        fits_rpc(settings, &cert, &first, &material, provider)?;
    }
    Ok(material)
}

fn own(
    cert: &NamedFile<'_>,
    key: &NamedFile<'_>,
    chain: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<CertifiedKey, TlsError> {
    let secret = private_key(&key.read()?).map_err(|why| key.bad(&why))?;
    let signer = provider.key_provider.load_private_key(secret);
    let signer = signer.map_err(|error| key.bad(&format!("holds no usable key: {error}")))?;
    let own = CertifiedKey::new(chain, signer);
    match own.keys_match() {
        Ok(()) => Ok(own),
        Err(_) => Err(key.bad(&format!(
            "is not the key of the certificate in tls.cert_file {}",
            cert.path.display()
        ))),
    }
}

fn in_time(file: &NamedFile<'_>, read: &Certificate, now: UnixTime) -> Result<(), TlsError> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if read.until < now {
        return Err(file.bad(&format!(
            "has expired: it was valid until {}",
            day(read.until)
        )));
    }
    if read.from > now {
        return Err(file.bad(&format!(
            "is not valid yet: it will be from {}",
            day(read.from)
        )));
    }
    Ok(())
}

/// A moment, to be read.
pub(super) fn day(at: i64) -> String {
    jiff::Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

/// Adds the authorities of a file to those that are trusted; one that has expired is as good as
/// none.
fn authorities(
    path: &Path,
    roots: &mut RootCertStore,
    now: UnixTime,
) -> Result<Vec<(&'static str, PathBuf, i64)>, TlsError> {
    let file = NamedFile {
        setting: "ca_file",
        path,
    };
    let mut until = Vec::new();
    let mut why = None;
    for der in certificates(&file.read()?).map_err(|why| file.bad(&why))? {
        let Some(read) = Certificate::read(&der) else {
            continue;
        };
        if let Err(error) = in_time(&file, &read, now) {
            why = Some(error);
            continue;
        }
        if !read.is_authority {
            why = Some(file.bad("holds a certificate that is no authority's (CA:TRUE)"));
            continue;
        }
        until.push(("ca_file", path.to_owned(), read.until));
        let added = roots.add(der);
        added.map_err(|error| file.bad(&format!("holds an unusable authority: {error}")))?;
    }
    match why {
        Some(why) if until.is_empty() => Err(why),
        _ => Ok(until),
    }
}

/// Whether other agents would take the certificate: better reported here than by all of them.
fn fits_rpc(
    settings: &TlsSettings,
    cert: &NamedFile<'_>,
    read: &Certificate,
    material: &Material,
    provider: &Arc<CryptoProvider>,
) -> Result<(), TlsError> {
    let (Some(first), now) = (material.own.cert.first(), UnixTime::now()) else {
        return Err(cert.bad("holds no certificate"));
    };
    let between = material.own.cert.get(1..).unwrap_or_default();
    let ca = settings.ca_file.as_deref().unwrap_or(Path::new(""));
    let refused = |error: rustls::Error| {
        let (_, why) = explain(&std::io::Error::other(error));
        let ca = ca.display();
        cert.bad(&format!(
            "would not be taken by other agents with tls.ca_file {ca}: {why}"
        ))
    };
    let callers = known_callers(&material.roots, provider)?;
    callers
        .verify_client_cert(first, between, now)
        .map_err(refused)?;
    let is_server = settings.roles.contains(&Role::Server);
    if is_server {
        let servers = Servers {
            roots: Arc::clone(&material.roots),
            algorithms: provider.signature_verification_algorithms,
            region: settings.verify_names.then(|| settings.region.clone()),
        };
        servers.verify(first, between, now).map_err(refused)?;
    } else if settings.verify_names {
        let peer = super::PeerCertificate::from(read.clone());
        if peer.role != Some(Role::Server) && !peer.is(Role::Client, &settings.region) {
            let wanted = Role::Client.in_region(&settings.region);
            return Err(cert.bad(&format!(
                "names {}, but tls.verify_server_hostname demands {wanted}",
                read.names.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "material_test.rs"]
mod tests;
