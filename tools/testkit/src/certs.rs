//! Authorities and certificates for tests, good ones and bad ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// An authority that signs every certificate that a test wants, and the directory with its files.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate's file.
    pub cert: PathBuf,
    pub key: PathBuf,
}

const DAY: i64 = 24 * 3600;

fn moment(seconds: i64) -> Result<Duration> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let at = i64::try_from(now.as_secs())? + seconds;
    Ok(Duration::from_secs(u64::try_from(at)?))
}

impl Authority {
    /// A new one whose certificate is `dir/ca.pem`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn make(dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(1970, 1, 1) + moment(-DAY)?;
        params.not_after = date_time_ymd(1970, 1, 1) + moment(365 * DAY)?;
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("ca.pem"), issuer.pem())?;
        Ok(Self {
            issuer,
            dir: dir.to_owned(),
        })
    }

    /// Its own certificate.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// What a client goes by that trusts it and shows no certificate.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn trusted(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file())?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// Signs a certificate for these machines and addresses, valid for a day more and 90 days;
    /// its files begin with `name`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn issue(&self, name: &str, names: &[&str]) -> Result<Pair> {
        self.issue_for(name, names, -1..90)
    }

    /// The same, valid for these days from now.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn issue_for(
        &self,
        name: &str,
        names: &[&str],
        days: std::ops::Range<i64>,
    ) -> Result<Pair> {
        self.issue_within(name, names, days.start * DAY..days.end * DAY)
    }

    /// The same, valid for these seconds from now.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn issue_within(
        &self,
        name: &str,
        names: &[&str],
        seconds: std::ops::Range<i64>,
    ) -> Result<Pair> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = date_time_ymd(1970, 1, 1) + moment(seconds.start)?;
        params.not_after = date_time_ymd(1970, 1, 1) + moment(seconds.end)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let pair = Pair {
            cert: self.dir.join(format!("{name}.pem")),
            key: self.dir.join(format!("{name}-key.pem")),
        };
        std::fs::write(&pair.cert, certificate.pem()).context("a certificate")?;
        std::fs::write(&pair.key, key.serialize_pem()).context("a key")?;
        Ok(pair)
    }

    /// The files of an agent: `tls { … }` with these settings beside them, as HCL.
    #[must_use]
    pub fn block(&self, pair: &Pair, settings: &str) -> String {
        format!(
            "tls {{\n  ca_file = {:?}\n  cert_file = {:?}\n  key_file = {:?}\n  {settings}\n}}\n",
            self.file(),
            pair.cert,
            pair.key
        )
    }
}

/// The names of a good server.
pub const SERVER: &[&str] = &["server.global.nomad", "localhost", "127.0.0.1"];
/// The names of a good client.
pub const CLIENT: &[&str] = &["client.global.nomad", "localhost", "127.0.0.1"];

/// An authority in a directory that vanishes with it.
pub struct Trust {
    /// The authority that signs.
    pub authority: Authority,
    /// Where everything lies.
    pub dir: tempfile::TempDir,
}

impl Trust {
    /// One that no agent knows yet.
    ///
    /// # Panics
    /// When nothing can be written.
    #[allow(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::make(dir.path()).expect("an authority");
        Self { authority, dir }
    }

    /// A certificate with its key, of this authority.
    ///
    /// # Panics
    /// When nothing can be written.
    pub fn issue(&self, name: &str, names: &[&str]) -> Pair {
        self.authority.issue(name, names).expect("a certificate")
    }
}
