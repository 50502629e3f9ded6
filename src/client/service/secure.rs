//! TLS to services whose pages are looked at. Their certificates are those of somebody whom this
//! machine trusts, and are for the address that is asked, unless a check says not to look
//! (`tls_skip_verify`).

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use drover_error::chain;
use drover_net::tls::{Trusted, client, explain, system_roots};

/// What services are asked in.
const PROTOCOL: &[u8] = b"http/1.1";
/// How long the authorities of a machine are taken for what they were: they are files, and change.
const FRESH: Duration = Duration::from_secs(300);

/// What a caller does about certificates; why there is none, in words.
type Config = Result<Arc<ClientConfig>, String>;

static VERIFYING: Machine = Machine(Mutex::const_new(None));
static TRUSTING: LazyLock<Config> = LazyLock::new(|| config(Trusted::Anybody));

fn config(trusted: Trusted) -> Config {
    client(trusted, None, PROTOCOL).map_err(|error| chain(&error))
}

/// Who trusts the authorities of this machine, since they were read.
struct Machine(Mutex<Option<(Instant, Arc<ClientConfig>)>>);

impl Machine {
    /// Trusts them as they are at `now`, or were a short time before. `read` waits for the disk, on
    /// a thread for that; who asks meanwhile waits for the same.
    async fn config(&self, now: Instant, read: fn() -> RootCertStore) -> Config {
        let mut kept = self.0.lock().await;
        if let Some((since, known)) = &*kept
            && now.saturating_duration_since(*since) < FRESH
        {
            return Ok(Arc::clone(known));
        }
        let made = tokio::task::spawn_blocking(move || config(Trusted::These(read()))).await;
        let made = made.map_err(|error| format!("this machine's authorities: {error}"))??;
        *kept = Some((now, Arc::clone(&made)));
        Ok(made)
    }
}

/// Shakes hands with a service at `host`.
///
/// # Errors
/// Why there is no TLS with it, in words.
pub(super) async fn shake(
    stream: TcpStream,
    host: &str,
    skip_verify: bool,
) -> Result<TlsStream<TcpStream>, String> {
    let config = match skip_verify {
        true => TRUSTING.clone(),
        false => VERIFYING.config(Instant::now(), system_roots).await,
    };
    shake_as(config?, stream, host).await
}

async fn shake_as(
    config: Arc<ClientConfig>,
    stream: TcpStream,
    host: &str,
) -> Result<TlsStream<TcpStream>, String> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host:?} is not a name that a certificate can have"))?;
    let shaken = TlsConnector::from(config).connect(name, stream).await;
    shaken.map_err(|error| format!("no TLS with {host}: {}", explain(&error).1))
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::thread::{self, ThreadId};

    use drover_events::model::ServiceCheck;
    use rustls::ServerConfig;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::service::check::{look, status};
    use crate::service::describe::Probe;
    use drover_net::tls::{certificates, private_key, provider};
    use drover_testkit::certs::{SERVER, Trust};

    /// A server whose authority no machine knows.
    fn server(trust: &Trust) -> Arc<ServerConfig> {
        let pair = trust.issue("server", SERVER);
        let chain = certificates(&std::fs::read(&pair.cert).expect("read")).expect("a chain");
        let key = private_key(&std::fs::read(&pair.key).expect("read")).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a server");
        Arc::new(config)
    }

    /// Answers one caller; what he asked, if he shakes hands.
    async fn answer(listener: TcpListener, config: Arc<ServerConfig>) -> Option<String> {
        let (stream, _) = listener.accept().await.expect("a caller");
        let mut stream = TlsAcceptor::from(config).accept(stream).await.ok()?;
        let mut requested = vec![0; 1024];
        let n = stream.read(&mut requested).await.ok()?;
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(text).await.ok()?;
        stream.flush().await.ok()?;
        Some(String::from_utf8_lossy(&requested[..n]).into_owned())
    }

    #[tokio::test]
    async fn a_page_over_tls_is_looked_at_and_its_certificate_unless_told_not_to() {
        let trust = Trust::new();
        for skip_verify in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let port = listener.local_addr().expect("bound").port();
            let served = tokio::spawn(answer(listener, server(&trust)));
            let probe = Probe {
                id: "c".into(),
                service: "web".into(),
                task: String::new(),
                group: "j.g[0]".into(),
                host: "127.0.0.1".into(),
                port: port.into(),
                check: ServiceCheck {
                    r#type: "http".into(),
                    protocol: "https".into(),
                    path: "/health".into(),
                    timeout: 5_000_000_000,
                    tls_skip_verify: skip_verify,
                    ..ServiceCheck::default()
                },
            };
            let found = look(&probe, 0).await;
            let requested = served.await.expect("served");
            if skip_verify {
                assert_eq!(found.status, status::SUCCESS, "{}", found.output);
                assert!(requested.expect("asked").starts_with("GET /health "));
            } else {
                assert_eq!(found.status, status::FAILURE);
                let text = "nomad: no TLS with 127.0.0.1: ";
                assert!(found.output.starts_with(text), "{}", found.output);
                assert_eq!(requested, None);
            }
        }
    }

    #[tokio::test]
    async fn the_machines_authorities_are_read_aside_and_again_after_a_while() {
        static READ_ON: OnceLock<ThreadId> = OnceLock::new();
        fn read() -> RootCertStore {
            READ_ON.get_or_init(|| thread::current().id());
            RootCertStore::empty()
        }
        let machine = Machine(Mutex::const_new(None));
        let began = Instant::now();
        let at = |after: Duration| machine.config(began + after, read);
        let first = at(Duration::ZERO).await.expect("a configuration");
        let soon = at(FRESH - Duration::from_secs(1)).await;
        let later = at(FRESH).await.expect("a configuration");
        assert!(Arc::ptr_eq(&first, &soon.expect("a configuration")));
        assert!(!Arc::ptr_eq(&first, &later), "they may have changed");
        let read_on = READ_ON.get().expect("they were read");
        assert_ne!(*read_on, thread::current().id(), "others wait for it");
    }

    #[tokio::test]
    async fn a_certificate_of_who_is_trusted_has_to_be_for_the_address() {
        let trust = Trust::new();
        let authority = std::fs::read(trust.authority.file()).expect("read");
        let mut roots = RootCertStore::empty();
        for der in certificates(&authority).expect("certificates") {
            roots.add(der).expect("an authority");
        }
        let config = config(Trusted::These(roots)).expect("a configuration");
        for (host, good) in [("127.0.0.1", true), ("other.example", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let at = listener.local_addr().expect("bound");
            let served = tokio::spawn(answer(listener, server(&trust)));
            let stream = TcpStream::connect(at).await.expect("connects");
            let shaken = shake_as(Arc::clone(&config), stream, host).await;
            assert_eq!(shaken.is_ok(), good, "{host}");
            drop(shaken);
            served.await.expect("served");
        }
    }
}
