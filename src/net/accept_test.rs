use std::sync::atomic::AtomicUsize;

use drover_testkit::eventually_async;
use tokio_rustls::TlsConnector;

use super::super::tls::Role;
use super::super::tls::testing::{CLIENT, Material as _, SERVER, Trust};
use super::*;

const SOON: Duration = Duration::from_secs(30);

/// Answers each connection with who is there, and panics when a test wants it.
#[derive(Default)]
struct Echo {
    received: AtomicUsize,
}

impl Host for Echo {
    const NAME: &'static str = "test";
    const TOO_MANY: &'static [u8] = b"too many";
    const EXCEEDED: Option<&'static str> = Some("nomad.test.exceeded");
    const TLS_ONLY: &'static [u8] = b"TLS only";

    async fn receive(&self, mut arrival: Arrival) {
        self.received.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 5];
        if timeout_at(arrival.due, arrival.stream.read_exact(&mut bytes))
            .await
            .is_err()
        {
            return;
        }
        assert_ne!(&bytes, b"panic", "as it was told");
        let certificate = arrival.peer.certificate.as_ref();
        let role = certificate.and_then(|certificate| certificate.role);
        let reported = match arrival.reloads.has_changed() {
            Ok(true) => ", to show it again",
            _ => "",
        };
        let text = format!("{} {role:?}{reported}", arrival.peer.ip());
        let _ = arrival.stream.write_all(text.as_bytes()).await;
        let _ = arrival.stream.shutdown().await;
    }
}

struct Open {
    address: std::net::SocketAddr,
    host: Arc<Echo>,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<TaskTracker>,
}

async fn open(tls: Arc<Loader>, port: Port, per_client: u32, patience: Duration) -> Open {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = Door {
        visitors: Visitors::new(Some(per_client), 1_000),
        patience: Patience::new(patience),
        tls,
        port,
    };
    let (host, stop) = (Arc::new(Echo::default()), CancellationToken::new());
    let listener = Listener::Tcp(listener);
    let ended = tokio::spawn(accept(listener, Arc::clone(&host), door, stop.clone()));
    Open {
        address,
        host,
        stop,
        ended,
    }
}

impl Open {
    async fn say(&self, text: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let _ = stream.write_all(text).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn say_encrypted(&self, client: &Loader, text: &[u8]) -> String {
        let (config, name) = client.dial().unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .unwrap();
        stream.write_all(text).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn a_panic_of_one_connection_ends_that_one_and_gives_its_place_back() {
    let open = open(Loader::clear(), Port::Http, 1, SOON).await;
    for _ in 0..3 {
        assert_eq!(open.say(b"panic").await, "");
        // The place is free a moment after the end is seen.
        let next = eventually_async("the next one", SOON, async || {
            match &*open.say(b"hello").await {
                "127.0.0.1 None" => Ok(()),
                other => Err(other.to_owned()),
            }
        });
        next.await.unwrap();
    }
    open.stop.cancel();
    open.ended.await.unwrap().wait().await;
}

#[test]
fn who_is_one_too_many_is_counted_by_nomads_name_as_well() {
    let (telemetry, recorder) =
        drover_telemetry::build(&drover_telemetry::TelemetryOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let visits = async {
        let open = open(Loader::clear(), Port::Http, 1, SOON).await;
        let _first = TcpStream::connect(open.address).await.unwrap();
        assert_eq!(open.say(b"").await, "too many");
    };
    metrics::with_local_recorder(&recorder, || runtime.unwrap().block_on(visits));
    let text = telemetry.prometheus();
    for counted in [
        "drover_connections_refused_total{port=\"test\"} 1",
        "nomad_test_exceeded 1",
    ] {
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}

#[tokio::test]
async fn tls_and_clear_text_are_told_apart_by_the_first_byte() {
    let trust = Trust::new();
    let (server, client) = (trust.server(), trust.client());
    let closed = open(Arc::clone(&server), Port::Rpc, 0, SOON).await;
    assert_eq!(closed.say(b"hello").await, "TLS only");
    assert_eq!(
        closed.say_encrypted(&client, b"hello").await,
        "127.0.0.1 Some(Client)"
    );
    assert_eq!(closed.host.received.load(Ordering::Relaxed), 1);

    let clear = open(Loader::clear(), Port::Rpc, 0, SOON).await;
    assert_eq!(clear.say(b"hello").await, "127.0.0.1 None");
    assert_eq!(clear.say(b"\x16\x03\x01\x02\x00\x01").await, "", "closed");
    assert_eq!(clear.host.received.load(Ordering::Relaxed), 1);

    let pair = trust.issue("both", SERVER);
    let mut settings = trust.settings(Role::Server, &pair);
    settings.rpc_upgrade_mode = true;
    let upgrading = Loader::open(&settings).unwrap();
    let both = open(upgrading, Port::Rpc, 0, SOON).await;
    assert_eq!(both.say(b"hello").await, "127.0.0.1 None");
    assert_eq!(
        both.say_encrypted(&client, b"hello").await,
        "127.0.0.1 Some(Client)"
    );
}

#[tokio::test]
async fn who_says_nothing_or_half_a_handshake_is_sent_away_and_hinders_nobody() {
    let trust = Trust::new();
    let (server, client) = (trust.server(), trust.client());
    let open = open(server, Port::Rpc, 3, Duration::from_millis(300)).await;
    let mut silent = TcpStream::connect(open.address).await.unwrap();
    let mut half = TcpStream::connect(open.address).await.unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00\x01\x00")
        .await
        .unwrap();
    assert_eq!(
        open.say_encrypted(&client, b"hello").await,
        "127.0.0.1 Some(Client)"
    );
    for stream in [&mut silent, &mut half] {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        ended.expect("it ends by itself").ok();
        assert_eq!(rest, b"");
    }
    assert_eq!(open.host.received.load(Ordering::Relaxed), 1);
    // Garbage within the handshake ends it as well.
    let reported = open.say(b"\x16\x03\x01\x00\x05hello").await;
    assert!(!reported.contains("127.0.0.1"), "{reported}");
}

#[tokio::test]
async fn a_socket_of_this_machine_is_listened_on_and_vanishes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    // One that no process listens on any more is replaced, one in use is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::unix(path.clone()).unwrap();
    let taken = Listener::unix(path.clone()).expect_err("somebody listens");
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let door = Door {
        visitors: Visitors::new(None, 10),
        patience: Patience::new(SOON),
        tls: Loader::clear(),
        port: Port::Http,
    };
    let (host, stop) = (Arc::new(Echo::default()), CancellationToken::new());
    let ended = tokio::spawn(accept(listener, host, door, stop.clone()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "127.0.0.1 None");
    stop.cancel();
    ended.await.unwrap().wait().await;
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    Listener::unix(path.clone()).expect_err("not a socket");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}

#[tokio::test]
async fn env_02_who_shook_hands_before_a_reload_and_speaks_after_it_is_told() {
    let trust = Trust::new();
    let (server, client) = (trust.server(), trust.client());
    let open = open(Arc::clone(&server), Port::Rpc, 2, SOON).await;
    let (config, name) = client.dial().unwrap();
    let early = TcpStream::connect(open.address).await.unwrap();
    let early = TlsConnector::from(config).connect(name, early).await;
    let mut early = early.unwrap();
    let pair = trust.issue("next", SERVER);
    server.reload(&trust.settings(Role::Server, &pair)).unwrap();
    early.write_all(b"hello").await.unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "127.0.0.1 Some(Client), to show it again");
    assert_eq!(
        open.say_encrypted(&client, b"hello").await,
        "127.0.0.1 Some(Client)"
    );
}

/// What was verified once goes on without being verified again; its time counts all the same.
#[tokio::test]
async fn a_session_goes_on_no_longer_than_the_certificate_it_was_opened_with() {
    use rustls::HandshakeKind::{Full, Resumed};
    let trust = Trust::new();
    let open = open(trust.server(), Port::Rpc, 10, SOON).await;
    let pair = trust.authority.issue_within("soon", CLIENT, -60..4);
    let settings = trust.settings(Role::Client, &pair.unwrap());
    let client = Loader::open(&settings).unwrap();
    let meet = async || {
        let (config, name) = client.dial().unwrap();
        let stream = TcpStream::connect(open.address).await.unwrap();
        let connected = TlsConnector::from(config).connect(name, stream).await;
        let mut stream = connected.unwrap();
        let kind = stream.get_ref().1.handshake_kind();
        // It may be refused by then.
        let _ = stream.write_all(b"hello").await;
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        (kind, read.ok().map(|_| answer))
    };
    let served = || Some("127.0.0.1 Some(Client)".to_owned());
    assert_eq!(meet().await, (Some(Full), served()));
    let mut resumed = 0;
    let ends = eventually_async("its time to be over", SOON, async || match meet().await {
        (Some(Resumed), None) => Ok(()),
        (Some(Resumed), Some(answer)) => {
            resumed += 1;
            Err(answer)
        }
        other => panic!("{other:?}"),
    });
    ends.await.unwrap();
    assert!(resumed > 0, "it went on while it was good");
    let received = open.host.received.load(Ordering::Relaxed);
    assert_eq!(received, resumed + 1, "whoever was refused is not let in");
    open.stop.cancel();
    open.ended.await.unwrap().wait().await;
}
