//! TLS to an agent: whom the command trusts, what it shows, and what to do when that fails.

use super::conn::Trust;
use crate::net::tls::{CallerError, Fault, Trusted, client, explain, system_roots};
use crate::net::tls::{certificates, private_key};
use anyhow::{Context, Result, anyhow, bail};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How an agent is spoken to over TLS.
#[derive(Clone, Debug)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A connection that TLS does not let be; it says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotSecure(String);

impl Secure {
    /// What is needed to speak to `host`, which may name a port.
    ///
    /// # Errors
    /// A file that is no good, or an invalid name.
    pub(super) fn open(host: &str, trust: &Trust) -> Result<Self> {
        let trust = &trust.named();
        let trusted = match trust.tls_skip_verify {
            true => Trusted::Anybody,
            false => Trusted::These(roots(trust)?),
        };
        let own = match (&trust.client_cert, &trust.client_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let chain = named("-client-cert", cert, certificates)?;
                Some((chain, named("-client-key", key, private_key)?))
            }
            _ => bail!("-client-cert and -client-key are given together"),
        };
        let config = client(trusted, own, b"http/1.1").map_err(|error| no_caller(error, trust))?;
        let wanted = match trust.tls_server_name.as_str() {
            "" => bare(host),
            name => name,
        };
        let name = ServerName::try_from(wanted.to_owned())
            .map_err(|_| anyhow!("{wanted:?} is not a name that a certificate can have"))?;
        Ok(Self { config, name })
    }

    /// Shakes hands with the agent that is shown as `shown`.
    pub(super) async fn shake(
        &self,
        stream: TcpStream,
        shown: &str,
    ) -> Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let shaken = connector.connect(self.name.clone(), stream).await;
        shaken.map_err(|error| self.failed(&error, shown).into())
    }

    /// An error of a request, in words where TLS is why.
    pub(super) fn explained(&self, error: anyhow::Error, shown: &str) -> anyhow::Error {
        let io = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<std::io::Error>());
        match io.filter(|io| io.get_ref().is_some_and(|inner| inner.is::<Error>())) {
            Some(io) => self.failed(io, shown).into(),
            None => error,
        }
    }

    fn failed(&self, error: &std::io::Error, shown: &str) -> NotSecure {
        let (fault, why) = explain(error);
        let advice = match fault {
            Fault::UnknownAuthority => {
                "Name the authority's certificate with -ca-cert or NOMAD_CACERT."
            }
            Fault::Name => {
                "Use an address that its certificate is for, or name one of those names with \
                 -tls-server-name or NOMAD_TLS_SERVER_NAME."
            }
            Fault::WantsCertificate | Fault::Refused => {
                "Show a certificate of its authority with -client-cert and -client-key \
                 (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY); drover tls cert create -cli makes one."
            }
            Fault::NotTls => "If it speaks clear text, use http:// in -address or NOMAD_ADDR.",
            Fault::Time => "Its operator renews it: drover tls cert create.",
            Fault::Incompatible | Fault::Other => "",
        };
        let text = format!("no TLS with the agent at {shown}: {why}");
        NotSecure(match advice {
            "" => text,
            advice => format!("{text}\n\n{advice}"),
        })
    }
}

/// Why no connection can be made with these files, with the flags that name them.
fn no_caller(error: CallerError, trust: &Trust) -> anyhow::Error {
    match (error, &trust.client_cert, &trust.client_key) {
        (CallerError::Key(error), Some(cert), Some(key)) => {
            let (cert, key) = (cert.display(), key.display());
            let why = format!("-client-key {key} is not the key of -client-cert {cert}");
            anyhow::Error::from(error).context(why)
        }
        (error, ..) => error.into(),
    }
}

/// A host without its port.
fn bare(host: &str) -> &str {
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => host,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Reads a file that a flag names.
fn named<T>(flag: &str, path: &Path, read: fn(&[u8]) -> Result<T, String>) -> Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("{flag} {}", path.display()))?;
    read(&bytes).map_err(|why| anyhow!("{flag} {} {why}", path.display()))
}

/// The authorities that are trusted: those that are named, else those of this machine.
fn roots(trust: &Trust) -> Result<RootCertStore> {
    if trust.ca_cert.is_none() && trust.ca_path.is_none() {
        return Ok(system_roots());
    }
    let mut roots = RootCertStore::empty();
    let mut files: Vec<(&str, PathBuf)> = Vec::new();
    files.extend(trust.ca_cert.iter().map(|file| ("-ca-cert", file.clone())));
    if let Some(dir) = &trust.ca_path {
        let inside = std::fs::read_dir(dir).with_context(|| format!("-ca-path {}", dir.display()));
        for entry in inside? {
            let path = entry?.path();
            if path.is_file() {
                files.push(("-ca-path", path));
            }
        }
    }
    for (flag, file) in &files {
        for der in named(flag, file, certificates)? {
            let added = roots.add(der);
            added.with_context(|| format!("{flag} {}", file.display()))?;
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_without_its_port_or_brackets() {
        for (host, name) in [
            ("a.example:4646", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:4646", "::1"),
            ("10.0.0.1:1", "10.0.0.1"),
        ] {
            assert_eq!(bare(host), name);
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_named_with_both_flags() {
        let trust = drover_testkit::certs::Trust::new();
        let pairs = ["a", "b"].map(|name| trust.issue(name, drover_testkit::certs::SERVER));
        let [own, other] = &pairs;
        let open = |key: &Path| {
            Secure::open(
                "localhost:1",
                &Trust {
                    ca_cert: Some(trust.authority.file()),
                    client_cert: Some(own.cert.clone()),
                    client_key: Some(key.to_owned()),
                    ..Trust::default()
                },
            )
        };
        assert!(open(&own.key).is_ok());
        let text = format!("{:#}", open(&other.key).expect_err("refused"));
        let (cert, key) = (own.cert.display(), other.key.display());
        let reported = format!("-client-key {key} is not the key of -client-cert {cert}: ");
        assert!(text.starts_with(&reported), "{text}");
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_flag() {
        let dir = tempfile::tempdir().expect("a directory");
        let words = dir.path().join("words.pem");
        std::fs::write(&words, "hello").expect("written");
        let open = |trust: Trust| {
            let opened = Secure::open("localhost:1", &trust);
            format!("{:#}", opened.expect_err("refused"))
        };
        let text = open(Trust {
            ca_cert: Some(words.clone()),
            ..Trust::default()
        });
        assert!(
            text.contains("-ca-cert") && text.contains("no certificate in PEM"),
            "{text}"
        );
        let text = open(Trust {
            ca_path: Some("/nowhere".into()),
            ..Trust::default()
        });
        assert!(text.contains("-ca-path /nowhere"), "{text}");
        let text = open(Trust {
            client_cert: Some(words),
            ..Trust::default()
        });
        assert!(text.contains("given together"), "{text}");
        let name = "no name".to_owned();
        let text = open(Trust {
            tls_server_name: name,
            ..Trust::default()
        });
        assert!(text.contains("\"no name\" is not a name"), "{text}");
    }
}
