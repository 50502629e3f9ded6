use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::testing::{CLIENT, Material as _, SERVER, Trust};
use super::super::{PeerCertificate, explain};
use super::*;

/// What one side of a connection saw of the other.
#[derive(Debug)]
struct Seen {
    kind: Option<HandshakeKind>,
    version: Option<ProtocolVersion>,
    suite: Option<CipherSuite>,
    peer: Option<PeerCertificate>,
}

/// One connection of an agent to another's RPC port, with a word there and back: what the server
/// saw, or what each of them says went wrong.
async fn meet(server: &Loader, client: &Loader) -> Result<(Seen, Seen), (String, String)> {
    let config = server.wanted(Port::Rpc).tls.expect("TLS");
    meet_by(config, client.dial().expect("TLS")).await
}

/// The same of two peers that may show what no agent loads.
async fn meet_by(
    config: Arc<ServerConfig>,
    (dialling, name): (Arc<ClientConfig>, ServerName<'static>),
) -> Result<(Seen, Seen), (String, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async {
        let (stream, _) = listener.accept().await?;
        let mut stream = TlsAcceptor::from(config).accept(stream).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await?;
        let state = stream.get_ref().1;
        Ok::<_, std::io::Error>(Seen {
            kind: state.handshake_kind(),
            version: state.protocol_version(),
            suite: state.negotiated_cipher_suite().map(|suite| suite.suite()),
            peer: state
                .peer_certificates()
                .and_then(|c| PeerCertificate::of(&c[0])),
        })
    };
    let calling = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(dialling).connect(name, stream).await?;
        stream.write_all(b"word").await?;
        let mut word = Vec::new();
        stream.read_to_end(&mut word).await?;
        let state = stream.get_ref().1;
        Ok::<_, std::io::Error>(Seen {
            kind: state.handshake_kind(),
            version: state.protocol_version(),
            suite: state.negotiated_cipher_suite().map(|suite| suite.suite()),
            peer: state
                .peer_certificates()
                .and_then(|c| PeerCertificate::of(&c[0])),
        })
    };
    match tokio::join!(serving, calling) {
        (Ok(server), Ok(client)) => Ok((server, client)),
        (server, client) => {
            let text = |of: Result<Seen, std::io::Error>| match of {
                Ok(_) => String::new(),
                Err(error) => explain(&error).1,
            };
            Err((text(server), text(client)))
        }
    }
}

#[tokio::test]
async fn agents_know_each_other_by_their_certificates_and_go_on_where_they_left() {
    let trust = Trust::new();
    let (server, client) = (trust.server(), trust.client());
    let (seen, reported) = meet(&server, &client).await.expect("they meet");
    let caller = seen.peer.expect("a certificate");
    assert_eq!(caller.role, Some(Role::Client));
    assert_eq!(
        (caller.region.as_str(), caller.common_name.as_str()),
        ("global", "client")
    );
    assert_eq!(
        reported.peer.expect("a certificate").role,
        Some(Role::Server)
    );
    assert_eq!(seen.version, Some(ProtocolVersion::TLSv1_3));
    assert_eq!(seen.kind, Some(HandshakeKind::Full));
    let (again, _) = meet(&server, &client).await.expect("they meet again");
    assert_eq!(again.kind, Some(HandshakeKind::Resumed));
    let known = again.peer.expect("the certificate of the first time");
    assert_eq!(known.role, Some(Role::Client));
}

/// An agent refuses to load such a certificate itself; a peer that shows it does so without drover.
#[tokio::test]
async fn who_shows_a_certificate_that_has_expired_or_is_not_valid_yet_is_not_taken() {
    let trust = Trust::new();
    let (server, client) = (trust.server(), trust.client());
    let (_, name) = client.dial().expect("TLS");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(trust.authority.file()).unwrap();
    roots.add(root).unwrap();
    for (days, word, good) in [
        (-20..-3, "expired", false),
        (3..20, "valid", false),
        (-1..9, "", true),
    ] {
        let shown = |who: &str, names: &[&str]| {
            let name = format!("{who}{}", days.start);
            let pair = trust
                .authority
                .issue_for(&name, names, days.clone())
                .unwrap();
            let chain = vec![CertificateDer::from_pem_file(&pair.cert).unwrap()];
            (chain, PrivateKeyDer::from_pem_file(&pair.key).unwrap())
        };
        let (chain, key) = shown("client", CLIENT);
        let calling = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain, key)
            .unwrap();
        let taking = server.wanted(Port::Rpc).tls.expect("TLS");
        let met = meet_by(taking, (Arc::new(calling), name.clone())).await;
        match met {
            Ok(_) => assert!(good, "{days:?}: it was taken"),
            Err((seen, reported)) => assert!(!good && seen.contains(word), "{seen}, {reported}"),
        }
        let (chain, key) = shown("server", SERVER);
        let serving = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let met = meet_by(Arc::new(serving), client.dial().expect("TLS")).await;
        match met {
            Ok(_) => assert!(good, "{days:?}: it was taken"),
            Err((seen, reported)) => {
                assert!(!good && reported.contains(word), "{seen}, {reported}")
            }
        }
    }
}

#[tokio::test]
async fn who_has_no_certificate_of_the_authority_or_not_its_name_is_not_taken() {
    let (trust, foreign) = (Trust::new(), Trust::new());
    let (server, client) = (trust.server(), trust.client());
    let (_, reported) = meet(&server, &foreign.client())
        .await
        .expect_err("another authority");
    assert!(reported.contains("unknown authority"), "{reported}");

    // A client that is configured to trust the server, and is not trusted itself.
    let pair = foreign.issue("alien", CLIENT);
    let mut settings = foreign.settings(Role::Client, &pair);
    let bundle = foreign.dir.path().join("both.pem");
    let read = |path| std::fs::read_to_string(path).unwrap();
    let both = read(trust.authority.file()) + &read(foreign.authority.file());
    std::fs::write(&bundle, both).unwrap();
    settings.ca_file = Some(bundle);
    let alien = Loader::open(&settings).unwrap();
    let (seen, reported) = meet(&server, &alien).await.expect_err("not trusted");
    assert!(seen.contains("unknown authority"), "{seen}");
    assert!(
        reported.contains("does not take the certificate"),
        "{reported}"
    );

    // A certificate of the authority that is for something else.
    let pair = trust.issue("cli", &["cli.global.nomad", "localhost"]);
    let mut settings = trust.settings(Role::Client, &pair);
    settings.verify_names = false;
    let cli = Loader::open(&settings).unwrap();
    let (seen, reported) = meet(&server, &cli).await.expect_err("for something else");
    assert!(
        seen.contains("for cli.global.nomad, localhost, not for client.global"),
        "{seen}"
    );
    assert!(
        reported.contains("does not take the certificate"),
        "{reported}"
    );

    // A client's certificate where a server should be, names verified or not.
    let pair = trust.issue("client", CLIENT);
    let as_client = TlsSettings {
        verify_names: false,
        ..trust.settings(Role::Client, &pair)
    };
    let impostor = Loader::open(&as_client).unwrap();
    for (caller, wanted) in [(&client, "server.global.nomad"), (&impostor, "a server")] {
        let (_, reported) = meet(&impostor, caller).await.expect_err("a client");
        assert!(
            reported.contains(&format!("not for {wanted}")),
            "{reported}"
        );
    }
    // A server of another region may call, and is no server of this one.
    let pair = trust.issue("eu", &["server.eu.nomad"]);
    let eu = TlsSettings {
        region: "eu".to_owned(),
        verify_names: true,
        ..trust.settings(Role::Server, &pair)
    };
    let eu = Loader::open(&eu).unwrap();
    let (_, reported) = meet(&eu, &client).await.expect_err("another region");
    assert!(
        reported.contains("for server.eu.nomad, not for server.global.nomad"),
        "{reported}"
    );
}

#[tokio::test]
async fn versions_and_suites_are_those_that_are_set() {
    let trust = Trust::new();
    let pair = trust.issue("server", SERVER);
    let with = |version: &str, suites: &str| {
        Loader::open(&TlsSettings {
            min_version: version.to_owned(),
            cipher_suites: suites.to_owned(),
            ..trust.settings(Role::Server, &pair)
        })
        .unwrap()
    };
    let newest = with("tls13", "TLS_AES_128_GCM_SHA256");
    let (seen, _) = meet(&newest, &trust.client()).await.expect("they meet");
    assert_eq!(seen.version, Some(ProtocolVersion::TLSv1_3));
    let other = with("tls13", "TLS_CHACHA20_POLY1305_SHA256");
    let (seen, reported) = meet(&newest, &other).await.expect_err("nothing in common");
    for text in [seen, reported] {
        assert!(
            text.contains("no version or cipher suite in common"),
            "{text}"
        );
    }
}

/// Agents offer the newest version each time; a peer that offers the older one alone is no agent.
#[tokio::test]
async fn who_speaks_the_older_version_alone_is_taken_where_that_is_the_lowest() {
    let trust = Trust::new();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(trust.authority.file()).unwrap();
    roots.add(root).unwrap();
    let pair = trust.issue("client", CLIENT);
    let chain = vec![CertificateDer::from_pem_file(&pair.cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
    let calling = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let calling = Arc::new(calling);
    let (_, name) = trust.client().dial().expect("TLS");
    let pair = trust.issue("server", SERVER);
    for (lowest, taken) in [("tls12", true), ("", true), ("tls13", false)] {
        let server = Loader::open(&TlsSettings {
            min_version: lowest.to_owned(),
            ..trust.settings(Role::Server, &pair)
        });
        let config = server.unwrap().wanted(Port::Rpc).tls.expect("TLS");
        match meet_by(config, (Arc::clone(&calling), name.clone())).await {
            Ok((seen, _)) => {
                assert!(taken, "{lowest}: it was taken");
                assert_eq!(seen.version, Some(ProtocolVersion::TLSv1_2));
            }
            Err((seen, reported)) => {
                let why = "no version or cipher suite in common";
                assert!(!taken && seen.contains(why), "{lowest}: {seen}, {reported}");
            }
        }
    }
}

#[tokio::test]
async fn the_agents_order_of_suites_counts_where_it_is_set_else_the_callers() {
    const ONE: &str = "TLS_AES_256_GCM_SHA384";
    const OTHER: &str = "TLS_CHACHA20_POLY1305_SHA256";
    let trust = Trust::new();
    let pair = trust.issue("server", SERVER);
    let with = |first: &str, second: &str, prefer_own_suites| {
        Loader::open(&TlsSettings {
            cipher_suites: format!("{first},{second}"),
            prefer_own_suites,
            ..trust.settings(Role::Server, &pair)
        })
        .unwrap()
    };
    let caller = with(OTHER, ONE, false);
    let (seen, _) = meet(&with(ONE, OTHER, false), &caller).await.unwrap();
    assert_eq!(
        seen.suite,
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256)
    );
    let (seen, _) = meet(&with(ONE, OTHER, true), &caller).await.unwrap();
    assert_eq!(seen.suite, Some(CipherSuite::TLS13_AES_256_GCM_SHA384));
}

#[tokio::test]
async fn env_02_what_is_loaded_anew_reaches_new_handshakes_and_nothing_broken_does() {
    let trust = Trust::new();
    let pair = trust.issue("server", SERVER);
    let settings = trust.settings(Role::Server, &pair);
    let server = Loader::open(&settings).unwrap();
    let client = trust.client();
    meet(&server, &client).await.expect("they meet");

    std::fs::write(&pair.cert, "broken").unwrap();
    let error = server.reload(&settings).expect_err("broken").to_string();
    assert!(
        error.contains("cert_file") && error.contains("server.pem"),
        "{error}"
    );
    meet(&server, &client).await.expect("the old one is served");

    // Another authority altogether: sessions of the old one open nothing.
    let other = Trust::new();
    let pair = other.issue("server", SERVER);
    server
        .reload(&other.settings(Role::Server, &pair))
        .expect("loads");
    meet(&server, &client).await.expect_err("the old authority");
    meet(&server, &other.client()).await.expect("the new one");
    server.reload(&TlsSettings::default()).expect("off");
    assert!(server.wanted(Port::Rpc).tls.is_none() && server.dial().is_none());
}

#[test]
fn the_end_of_a_certificate_is_among_the_metrics() {
    let (telemetry, recorder) =
        drover_telemetry::build(&drover_telemetry::TelemetryOptions::default());
    let one = Expiry {
        setting: "cert_file",
        path: "/c.pem".into(),
        until: 1_000,
    };
    metrics::with_local_recorder(&recorder, || one.observe(400));
    let text = telemetry.prometheus();
    let wanted = "drover_tls_expires_in_seconds{setting=\"cert_file\"} 600";
    assert!(text.lines().any(|line| line == wanted), "{text}");
    drover_testkit::lint::check(&text);
}

#[test]
fn an_end_is_told_a_month_before() {
    let of = |until| Expiry {
        setting: "cert_file",
        path: "/c.pem".into(),
        until,
    };
    let (now, day) = (1_800_000_000, 24 * 3600);
    assert_eq!(of(now + 31 * day).warning(now), None);
    let soon = of(now + 12 * day).warning(now).expect("soon");
    assert!(
        soon.contains("tls.cert_file /c.pem expires in 12 days"),
        "{soon}"
    );
    let next = of(now + day + 1).warning(now).expect("soon");
    assert!(next.contains("expires in 1 day, "), "{next}");
    assert!(
        of(now - 1)
            .warning(now)
            .expect("over")
            .contains("has expired")
    );
}
