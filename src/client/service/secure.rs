//! TLS for HTTPS health checks of services. The certificate must be signed by an authority that
//! this machine trusts and be for the address called, unless the check has `tls_skip_verify`.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use drover_error::chain;
use drover_net::tls::{Trusted, client, explain, system_roots};

/// The protocol of the checks, offered in the handshake (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";
/// How long the system's root certificates are not read again: they are files, and change.
const FRESH: Duration = Duration::from_secs(300);

/// A TLS configuration, or in words why there is none.
type Config = Result<Arc<ClientConfig>, String>;

static VERIFYING: SystemTrust = SystemTrust::new();
static UNVERIFIED: LazyLock<Config> = LazyLock::new(|| config(Trusted::Anybody));

fn config(trusted: Trusted) -> Config {
    client(trusted, None, PROTOCOL).map_err(|error| chain(&error))
}

/// The TLS configuration made of the system's root certificates, which are read again after
/// [`FRESH`].
struct SystemTrust(Mutex<Authorities>);

/// The authorities of a machine, and when the reading of them began.
struct Authorities {
    known: Option<(Instant, Arc<ClientConfig>)>,
    /// They are being read: the caller that began it may be gone, and the next one waits for it.
    reading: Option<(Instant, JoinHandle<Config>)>,
}

impl SystemTrust {
    const fn new() -> Self {
        Self(Mutex::const_new(Authorities {
            known: None,
            reading: None,
        }))
    }

    /// Trusts them as they are at `now`, or were a short time before. `read` waits for the disk, on
    /// a thread for that; callers meanwhile wait for the same. What was read counts from when
    /// that began, however late a caller comes for it.
    async fn config(&self, now: Instant, read: fn() -> RootCertStore) -> Config {
        let is_fresh = |since: Instant| now.saturating_duration_since(since) < FRESH;
        let mut kept = self.0.lock().await;
        if let Some((since, known)) = &kept.known
            && is_fresh(*since)
        {
            return Ok(Arc::clone(known));
        }
        loop {
            let (since, reading) = kept.reading.get_or_insert_with(|| {
                let read = move || config(Trusted::These(read()));
                (now, tokio::task::spawn_blocking(read))
            });
            let (since, made) = (*since, reading.await);
            kept.reading = None;
            // A reading that another caller began may have ended without a result (it panicked, or
            // its runtime was shut down), or be too old by now: begin again.
            if since != now && (made.is_err() || !is_fresh(since)) {
                continue;
            }
            let made = made.map_err(|error| format!("this machine's authorities: {error}"))??;
            kept.known = Some((since, Arc::clone(&made)));
            return Ok(made);
        }
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
        true => UNVERIFIED.clone(),
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, ThreadId};

    use drover_events::model::ServiceCheck;
    use drover_events::model::status::check as status;
    use drover_testkit::LONG;
    use futures_util::FutureExt;
    use rustls::ServerConfig;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::*;
    use crate::service::check::look;
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

    /// Takes one caller; its connection and request, if the handshake succeeds.
    async fn accept_request(
        listener: TcpListener,
        config: Arc<ServerConfig>,
    ) -> Option<(TlsStream<TcpStream>, String)> {
        let (stream, _) = listener.accept().await.expect("a caller");
        let mut stream = TlsAcceptor::from(config).accept(stream).await.ok()?;
        let mut request = vec![0; 1024];
        let n = stream.read(&mut request).await.ok()?;
        let request = String::from_utf8_lossy(&request[..n]).into_owned();
        (n > 0).then_some((stream, request))
    }

    /// Answers one caller; its request, if the handshake succeeds.
    async fn answer(listener: TcpListener, config: Arc<ServerConfig>) -> Option<String> {
        let (mut stream, request) = accept_request(listener, config).await?;
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(text).await.ok()?;
        stream.flush().await.ok()?;
        Some(request)
    }

    /// A check of a page over TLS on this machine.
    fn probe(port: u16, skip_verify: bool, timeout: Duration) -> Probe {
        Probe {
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
                timeout: i64::try_from(timeout.as_nanos()).expect("it is short"),
                tls_skip_verify: skip_verify,
                ..ServiceCheck::default()
            },
        }
    }

    #[tokio::test]
    async fn a_page_over_tls_is_looked_at_and_its_certificate_unless_told_not_to() {
        let trust = Trust::new();
        for skip_verify in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let port = listener.local_addr().expect("bound").port();
            let served = tokio::spawn(answer(listener, server(&trust)));
            let found = look(&probe(port, skip_verify, Duration::from_secs(5)), 0).await;
            let requested = served.await.expect("served");
            if skip_verify {
                assert_eq!(found.status, status::SUCCESS, "{}", found.output);
                assert!(requested.expect("a request").starts_with("GET /health "));
            } else {
                assert_eq!(found.status, status::FAILURE);
                let text = "nomad: no TLS with 127.0.0.1: ";
                assert!(found.output.starts_with(text), "{}", found.output);
                assert_eq!(requested, None);
            }
        }
    }

    /// Its end is where the connection ends, without an end of TLS.
    #[tokio::test]
    async fn a_page_of_a_service_that_does_not_end_tls_is_taken_as_it_came() {
        let trust = Trust::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let config = server(&trust);
        let served = tokio::spawn(async move {
            let (mut stream, _) = accept_request(listener, config).await.expect("a request");
            let text = b"HTTP/1.1 503 No\r\n\r\nbusy";
            stream.write_all(text).await.expect("writes");
            stream.flush().await.expect("writes");
            let (mut plain, _) = stream.into_inner();
            plain.shutdown().await.expect("ends");
            // Until the other side has closed it too.
            plain.read(&mut [0; 1]).await
        });
        let found = look(&probe(port, true, Duration::from_secs(20)), 0).await;
        let (code, output) = (found.status_code, found.output.as_str());
        assert_eq!((code, output), (503, "busy"));
        let closed = tokio::time::timeout(LONG, served)
            .await
            .expect("it is closed");
        // It may have closed with bytes unread: then the connection is reset, and this read fails.
        drop(closed.expect("served"));
    }

    #[tokio::test]
    async fn a_look_that_takes_too_long_leaves_no_connection() {
        let trust = Trust::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let config = server(&trust);
        let served = tokio::spawn(async move {
            let (mut stream, _) = accept_request(listener, config).await.expect("a request");
            // It never answers, and waits until nobody is there any more.
            let end = stream.read(&mut [0; 1]).await;
            assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        });
        let found = look(&probe(port, true, Duration::from_secs(2)), 0).await;
        assert_eq!(found.output, "nomad: no answer in time");
        let closed = tokio::time::timeout(LONG, served).await;
        closed.expect("it is closed").expect("served");
    }

    #[tokio::test]
    async fn a_read_that_nobody_waited_for_counts_from_when_it_began() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        static GATE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        fn read() -> RootCertStore {
            let _open = GATE.lock();
            READS.fetch_add(1, Ordering::SeqCst);
            RootCertStore::empty()
        }
        let began = Instant::now();
        let system = || {
            let system = SystemTrust::new();
            let held = GATE.lock();
            // The caller is gone before it is there.
            assert!(system.config(began, read).now_or_never().is_none());
            drop(held);
            system
        };
        let soon = FRESH - Duration::from_secs(1);
        let one = system();
        one.config(began + soon, read).await.expect("trusts");
        assert_eq!(READS.load(Ordering::SeqCst), 1, "it waits for the same");
        one.config(began + FRESH, read).await.expect("trusts");
        assert_eq!(READS.load(Ordering::SeqCst), 2, "it is too old by then");
        let other = system();
        other.config(began + FRESH, read).await.expect("trusts");
        assert_eq!(READS.load(Ordering::SeqCst), 4, "so is this");
    }

    #[tokio::test]
    async fn the_machines_authorities_are_read_aside_and_again_after_a_while() {
        static READ_ON: OnceLock<ThreadId> = OnceLock::new();
        fn read() -> RootCertStore {
            READ_ON.get_or_init(|| thread::current().id());
            RootCertStore::empty()
        }
        let system = SystemTrust::new();
        let began = Instant::now();
        let at = |after: Duration| system.config(began + after, read);
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
