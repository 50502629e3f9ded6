use std::time::Duration;

use bytes::Bytes;
use drover_testkit::{LONG, eventually, so};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;
use crate::caller::Servers;
use crate::client::{Dialing, Pool};
use crate::duplex::Half;
use crate::server::{CallerLimits, serve};
use crate::service::{Access, Call, Service};
use drover_testkit::until;

const SOON: Duration = Duration::from_secs(20);

/// Agents of two releases speak with each other: these bytes stay as they are, and each is read
/// where something else stands beside it.
#[test]
fn mod_30_messages_of_sessions_are_the_bytes_they_always_were() {
    fn golden<T>(message: &T, bytes: &str)
    where
        T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let encoded = super::super::wire::encode(message).unwrap();
        assert_eq!(hex::encode(&encoded), bytes);
        let read: T = super::super::wire::decode(&encoded).unwrap();
        assert_eq!(read, *message);
        // One field more, `X: 1`, as a later release may send it.
        let more = format!("{:02x}{}a15801", encoded[0] + 1, &bytes[2..]);
        let more = hex::decode(&more).unwrap();
        let read: T = super::super::wire::decode(&more).unwrap();
        assert_eq!(read, *message);
    }
    let (node_id, session) = ("n1".to_owned(), "s7".to_owned());
    let control = ControlRequest {
        node_id: node_id.clone(),
    };
    golden(&control, "81a64e6f64654944a26e31");
    let taken = SessionRequest {
        node_id,
        session: session.clone(),
    };
    golden(&taken, "82a64e6f64654944a26e31a753657373696f6ea27337");
    golden(&Dial { session }, "81a753657373696f6ea27337");
    let forward = crate::forward::ForwardRequest {
        address: "10.0.0.1:4000".to_owned(),
    };
    golden(&forward, "81a741646472657373ad31302e302e302e313a34303030");
}

/// A node that opens the sessions for which it is dialled, and sends back what it receives.
fn echo(sessions: &Arc<Sessions>, node: &'static str) -> Duplex {
    let (near, far) = Duplex::pair(Keepalive::STANDING);
    sessions.hold(node, far);
    near
}

async fn dialled(control: &mut Duplex) -> Dial {
    let dial = timeout(SOON, control.inflow.message()).await;
    dial.expect("in time").expect("a dial")
}

#[tokio::test]
async fn mod_30_a_session_goes_to_the_node_that_was_dialled() {
    let sessions = Arc::new(Sessions::default());
    let refused = sessions.dial("n1").await.unwrap_err();
    assert_eq!(
        (refused.code, &*refused.message),
        (Code::NotFound, "No path to node")
    );
    let mut control = echo(&sessions, "n1");
    assert!(sessions.reaches("n1"));
    let dialling = tokio::spawn({
        let sessions = Arc::clone(&sessions);
        async move { sessions.dial("n1").await }
    });
    let session = dialled(&mut control).await.session;
    for (node, name) in [("n2", session.as_str()), ("n1", "another")] {
        let request = SessionRequest {
            node_id: node.to_owned(),
            session: name.to_owned(),
        };
        let (_, far) = Duplex::pair(Keepalive::SESSION);
        let refused = sessions.join(&request, far).unwrap_err();
        assert_eq!(refused.code, Code::NotFound);
    }
    let request = SessionRequest {
        node_id: "n1".to_owned(),
        session,
    };
    let (mut near, far) = Duplex::pair(Keepalive::SESSION);
    sessions.join(&request, far).unwrap();
    let mut stream = dialling.await.unwrap().unwrap();
    stream.outflow.send(Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(near.inflow.data().await.unwrap().unwrap(), "x");
    // Its name is good once.
    let (_, far) = Duplex::pair(Keepalive::SESSION);
    assert!(sessions.join(&request, far).is_err());
    assert!(sessions.wanted.lock().is_empty());
}

#[tokio::test]
async fn a_node_whose_stream_ends_is_not_reached_and_who_waits_for_it_is_told() {
    let sessions = Arc::new(Sessions::default());
    let mut control = echo(&sessions, "n1");
    let dialling = tokio::spawn({
        let sessions = Arc::clone(&sessions);
        async move { sessions.dial("n1").await }
    });
    dialled(&mut control).await;
    drop(control);
    let refused = timeout(SOON, dialling).await.expect("at once").unwrap();
    assert_eq!(refused.unwrap_err().message, "No path to node");
    assert!(!sessions.reaches("n1") && sessions.wanted.lock().is_empty());
}

#[tokio::test]
async fn a_newer_stream_of_a_node_takes_the_place_of_the_older() {
    let sessions = Arc::new(Sessions::default());
    let mut older = echo(&sessions, "n1");
    let mut newer = echo(&sessions, "n1");
    let over = timeout(SOON, older.inflow.next())
        .await
        .expect("it is told");
    assert_eq!(over, Ok(None));
    drop(older);
    let dialling = tokio::spawn({
        let sessions = Arc::clone(&sessions);
        async move { sessions.dial("n1").await.map(drop) }
    });
    dialled(&mut newer).await;
    assert!(sessions.reaches("n1"));
    dialling.abort();
    // Who gives up leaves nothing behind.
    let _ = dialling.await;
    assert!(sessions.wanted.lock().is_empty());
}

#[tokio::test]
async fn env_02_a_node_whose_connection_is_to_go_is_told_and_reached_meanwhile() {
    let sessions = Arc::new(Sessions::default());
    let (mut control, far) = Duplex::pair(Keepalive::STANDING);
    let parting = CancellationToken::new();
    sessions.hold_until("n1", far, parting.clone());
    parting.cancel();
    assert_eq!(dialled(&mut control).await, Dial::default());
    let dialling = tokio::spawn({
        let sessions = Arc::clone(&sessions);
        async move { sessions.dial("n1").await.map(drop) }
    });
    assert!(!dialled(&mut control).await.session.is_empty());
    dialling.abort();
    // Of an older stream nothing is sent over the newer.
    let (_older, far) = Duplex::pair(Keepalive::STANDING);
    let parting = CancellationToken::new();
    sessions.hold_until("n1", far, parting.clone());
    let mut newer = echo(&sessions, "n1");
    parting.cancel();
    let dialling = tokio::spawn({
        let sessions = Arc::clone(&sessions);
        async move { sessions.dial("n1").await.map(drop) }
    });
    assert!(!dialled(&mut newer).await.session.is_empty());
    dialling.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dials_at_once_wait_for_a_node_that_is_slow_to_hear_them() {
    let sessions = Arc::new(Sessions::default());
    let mut control = echo(&sessions, "n1");
    let dial = |_| {
        let sessions = Arc::clone(&sessions);
        tokio::spawn(async move { sessions.dial("n1").await.map(drop) })
    };
    let dialling: Vec<_> = (0..WAITING).map(dial).collect();
    until("all wait", || sessions.wanted.lock().len() == WAITING).await;
    assert_eq!(
        sessions.dial("n1").await.unwrap_err().code,
        Code::Unavailable
    );
    for _ in 0..WAITING {
        let request = SessionRequest {
            node_id: "n1".to_owned(),
            session: dialled(&mut control).await.session,
        };
        let (_near, far) = Duplex::pair(Keepalive::SESSION);
        sessions.join(&request, far).unwrap();
    }
    for one in dialling {
        timeout(SOON, one).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_node_that_stands_still_is_waited_for_only_so_long() {
    let sessions = Arc::new(Sessions {
        patience: Duration::from_millis(20),
        ..Sessions::default()
    });
    let _still = echo(&sessions, "n1");
    let refused = sessions.dial("n1").await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("does not answer"));
}

/// It takes connections, and that is all: its machine still stands, and nothing on it moves.
#[tokio::test]
async fn a_server_that_does_not_say_that_it_is_there_is_not_waited_for() {
    let still = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = still.local_addr().unwrap().to_string();
    let sessions = Arc::new(Sessions {
        // As good as for ever.
        patience: Duration::from_secs(24 * 3600),
        there: Duration::from_millis(20),
        ..Sessions::default()
    });
    let dialing = Dialing {
        // Nor does the connection find out by itself.
        keep_alive: sessions.patience,
        ..Dialing::default()
    };
    let caller = Caller::network(Pool::dialing(1, dialing), Servers::default(), "");
    sessions.beside(caller, Box::new(move || vec![addr.clone()]));
    let refused = timeout(LONG, sessions.dial("n1")).await;
    let refused = refused.expect("it is not waited for").unwrap_err();
    // The node may hold on to it.
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("does not answer"), "{refused}");
}

/// A connection that breaks says nothing of a server that is there.
#[tokio::test]
async fn a_server_is_asked_again_whether_it_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let caller = Caller::network(Pool::new(1), Servers::default(), "").at(&addr);
    let away = tokio::spawn(async move { away(&caller, LONG).await });
    drop(listener.accept().await.unwrap());
    let pings = Arc::new(AtomicU64::default());
    let service = Service::new(Arc::clone(&pings));
    let service = service.method::<StatusPing, _, _>(
        Access::Public,
        async |pings: Arc<AtomicU64>, _: Call, Empty {}| {
            pings.fetch_add(1, Ordering::Relaxed);
            Ok(Empty {})
        },
    );
    let _rpc = serve(listener, Arc::new(service), CallerLimits::default()).unwrap();
    let is_pinged = || so(pings.load(Ordering::Relaxed) > 0);
    eventually("it to be asked again", LONG, is_pinged)
        .await
        .unwrap();
    assert!(!away.is_finished());
    away.abort();
}

/// The other server restarts while it is called: its node has not gone anywhere.
#[tokio::test]
async fn a_server_whose_connection_breaks_is_asked_for_the_node_over_another() {
    struct Restarts {
        calls: AtomicU64,
        cut: CancellationToken,
    }
    let restarts = Arc::new(Restarts {
        calls: AtomicU64::default(),
        cut: CancellationToken::new(),
    });
    let service = Service::new(Arc::clone(&restarts))
        .method::<StatusPing, _, _>(Access::Public, async |_, _: Call, Empty {}| Ok(Empty {}))
        .stream::<NodeDial, _, _>(
            Access::Public,
            async |restarts: Arc<Restarts>, _: Call, _: ControlRequest, stream: Duplex| {
                if restarts.calls.fetch_add(1, Ordering::Relaxed) == 0 {
                    restarts.cut.cancel();
                    std::future::pending::<()>().await;
                }
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(stream)
                });
                Ok(())
            },
        );
    let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = serve(inner, Arc::new(service), CallerLimits::default()).unwrap();
    // Between them, what ends the first connections once a session to the node was wanted over
    // one.
    let outer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, to) = (outer.local_addr().unwrap().to_string(), rpc.addr());
    let cut = restarts.cut.clone();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = outer.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            let cut = match cut.is_cancelled() {
                true => CancellationToken::new(),
                false => cut.clone(),
            };
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = cut.cancelled() => {}
                }
            });
        }
    });
    let sessions = Arc::new(Sessions::default());
    let caller = Caller::network(Pool::new(1), Servers::default(), "");
    sessions.beside(caller, Box::new(move || vec![addr.clone()]));
    let dialled = timeout(LONG, sessions.dial("n1")).await.unwrap();
    dialled.expect("the server is there, and so is the node");
    assert_eq!(restarts.calls.load(Ordering::Relaxed), 2, "the first broke");
}

/// Its machine lost its power: nothing comes any more, and no end either.
#[tokio::test]
async fn a_node_that_is_gone_without_a_word_is_given_up_after_some_beats() {
    let sessions = Arc::new(Sessions::default());
    let (half, _taken_by_nobody) = Half::new(Keepalive {
        interval: Duration::from_millis(5),
        timeout: Duration::from_millis(20),
    });
    let nothing = futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    sessions.hold("n1", half.join(StreamBody::new(nothing)));
    assert!(sessions.reaches("n1"));
    let gone = || so(!sessions.reaches("n1"));
    eventually("it to be given up", LONG, gone).await.unwrap();
}
