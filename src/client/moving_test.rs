//! Control streams and certificates that are loaded anew: at the client, at the server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_testkit::certs::{Authority, Pair};
use drover_testkit::{LONG, eventually_async};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::control::{Answers, DialSettings, stand};
use drover_net::tls::{Loader, Role, TlsSettings};
use drover_rpc::Streaming as _;
use drover_rpc::caller::{Caller, Servers};
use drover_rpc::client::{Dialing, Pool};
use drover_rpc::duplex::{Duplex, Keepalive, relay};
use drover_rpc::methods::{Empty, StatusPing};
use drover_rpc::server::{CallerLimits, serve};
use drover_rpc::service::Access::Public;
use drover_rpc::service::{Call, Service};
use drover_rpc::sessions::{ControlRequest, NodeControl, NodeSession, SessionRequest, Sessions};

/// Sends back what it receives.
struct Echo;

impl Answers for Echo {
    fn answer(&self, mut stream: Duplex) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Ok(Some(data)) = stream.inflow.data().await {
                if stream.outflow.send(data).await.is_err() {
                    return;
                }
            }
        })
    }
}

/// The streams of nodes, and whose certificates they came with.
#[derive(Default)]
struct Reached {
    sessions: Arc<Sessions>,
    came: Mutex<Vec<String>>,
    /// What the streams go through, the control streams and those of sessions: aborted, the two
    /// ends receive no more of each other.
    between: Mutex<[Vec<AbortOnDropHandle<()>>; 2]>,
}

impl Reached {
    /// The other end of a stream, through something that may be cut.
    fn through(&self, kind: usize, keepalive: Keepalive, stream: Duplex) -> Duplex {
        let (near, far) = Duplex::pair(keepalive);
        let between = AbortOnDropHandle::new(tokio::spawn(relay(stream, far)));
        self.between.lock()[kind].push(between);
        near
    }

    /// Cuts all streams of a kind, and nothing else.
    fn cut(&self, kind: usize) {
        self.between.lock()[kind].clear();
    }
}

const CONTROL: usize = 0;
const SESSION: usize = 1;

fn service(reached: &Arc<Reached>) -> Service<Reached> {
    Service::new(Arc::clone(reached))
        .method::<StatusPing, _, _>(Public, async |_, _: Call, Empty {}| Ok(Empty {}))
        .stream::<NodeControl, _, _>(
            Public,
            |reached: Arc<Reached>, call: Call, requested: ControlRequest, stream| async move {
                let shown = call.certificate.map(|shown| shown.common_name.clone());
                let sessions = &reached.sessions;
                let stream = reached.through(CONTROL, NodeControl::KEEPALIVE, stream);
                sessions.hold_until(&requested.node_id, stream, call.parting);
                reached.came.lock().push(shown.unwrap_or_default());
                Ok(())
            },
        )
        .stream::<NodeSession, _, _>(
            Public,
            |reached: Arc<Reached>, _: Call, requested: SessionRequest, stream| async move {
                let stream = reached.through(SESSION, NodeSession::KEEPALIVE, stream);
                reached.sessions.join(&requested, stream)
            },
        )
}

fn settings(authority: &Path, pair: &Pair) -> TlsSettings {
    TlsSettings {
        rpc: true,
        ca_file: Some(authority.to_owned()),
        cert_file: Some(pair.cert.clone()),
        key_file: Some(pair.key.clone()),
        verify_names: true,
        region: "global".to_owned(),
        roles: vec![Role::Server],
        ..TlsSettings::default()
    }
}

async fn echoes(stream: &mut Duplex, word: &'static str) {
    let sent = stream.outflow.send(Bytes::from_static(word.as_bytes()));
    sent.await.expect("it is open");
    let back = tokio::time::timeout(LONG, stream.inflow.data());
    assert_eq!(back.await.unwrap().unwrap().unwrap(), word);
}

async fn came(reached: &Reached, whose: &[&str]) {
    let all = eventually_async("control streams", LONG, async || {
        let came = reached.came.lock().clone();
        if came.len() >= whose.len() {
            Ok(came)
        } else {
            Err(format!("{came:?}"))
        }
    });
    assert_eq!(all.await.unwrap(), whose);
    assert!(reached.sessions.reaches("n1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_02_control_streams_move_to_connections_with_the_certificates_of_now() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path()).unwrap();
    let names = ["server.global.nomad", "localhost", "127.0.0.1"];
    let issue = |name: &str| settings(&authority.file(), &authority.issue(name, &names).unwrap());
    let reached = Arc::<Reached>::default();
    let serving = Loader::open(&issue("one")).unwrap();
    let limits = CallerLimits {
        tls: Arc::clone(&serving),
        parting: Duration::ZERO,
        ..CallerLimits::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(listener, Arc::new(service(&reached)), limits).unwrap();
    let loader = Loader::open(&issue("first")).unwrap();
    let dialing = Dialing {
        tls: Arc::clone(&loader),
        ..Dialing::default()
    };
    let servers = Servers::new(vec![rpc.addr().to_string()]);
    let caller = Caller::network(Pool::dialing(1, dialing), servers, "").of_node("n1");
    let way = Arc::new(DialSettings {
        caller,
        node: Box::new(|| "n1".to_owned()),
        answers: Arc::new(Echo),
        turns: Arc::new(Semaphore::new(8)),
    });
    let _standing = AbortOnDropHandle::new(tokio::spawn(stand(way)));
    came(&reached, &["first"]).await;
    let mut session = reached.sessions.dial("n1").await.unwrap();
    echoes(&mut session, "before").await;
    loader.reload(&issue("second")).unwrap();
    came(&reached, &["first", "second"]).await;
    serving.reload(&issue("two")).unwrap();
    came(&reached, &["first", "second", "second"]).await;
    // What was under way continues, and the node is dialled over the stream of now.
    echoes(&mut session, "after").await;
    let mut again = reached.sessions.dial("n1").await.unwrap();
    echoes(&mut again, "anew").await;
    assert_eq!(reached.came.lock().len(), 3, "no more than were requested");
}

/// A control stream breaks off while both agents live: sessions with the node continue, and it
/// is dialled over the stream that it opens anew. A session that breaks off says so, and the next
/// is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_a_control_stream_that_breaks_alone_is_opened_anew_and_cuts_no_session() {
    let reached = Arc::<Reached>::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(
        listener,
        Arc::new(service(&reached)),
        CallerLimits::default(),
    )
    .unwrap();
    let servers = Servers::new(vec![rpc.addr().to_string()]);
    let way = Arc::new(DialSettings {
        caller: Caller::network(Pool::new(1), servers, "").of_node("n1"),
        node: Box::new(|| "n1".to_owned()),
        answers: Arc::new(Echo),
        turns: Arc::new(Semaphore::new(8)),
    });
    let _standing = AbortOnDropHandle::new(tokio::spawn(stand(way)));
    came(&reached, &[""]).await;
    let mut session = reached.sessions.dial("n1").await.unwrap();
    echoes(&mut session, "before").await;
    reached.cut(CONTROL);
    came(&reached, &["", ""]).await;
    echoes(&mut session, "after").await;
    let mut another = reached.sessions.dial("n1").await.unwrap();
    echoes(&mut another, "anew").await;
    reached.cut(SESSION);
    for cut in [&mut session, &mut another] {
        let broken = tokio::time::timeout(LONG, cut.inflow.data()).await;
        let broken = broken.expect("at once").unwrap_err();
        assert_eq!(broken.0, "the connection broke off");
    }
    let mut third = reached.sessions.dial("n1").await.unwrap();
    echoes(&mut third, "again").await;
    assert_eq!(reached.came.lock().len(), 2, "its control stream stood");
}
