//! What callers of the RPC port may take before they proved who they are.

use std::sync::Arc;
use std::time::Duration;

use drover_testkit::eventually;
use futures_util::StreamExt as _;
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::super::guest::FEW_STREAMS;
use super::*;
use crate::caller::{Caller, Servers};
use crate::client::Pool;
use crate::service::{Access, Service};
use crate::{Rpc, RpcError};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Text(String);

struct Length;

impl Rpc for Length {
    const NAME: &'static str = "Test.Length";
    type Req = Text;
    type Res = u64;
}

struct Never;

impl Rpc for Never {
    const NAME: &'static str = "Test.Never";
    type Req = Text;
    type Res = u64;
}

const SOON: Duration = Duration::from_secs(30);

/// A server that knows one node, `known` with the secret `s`.
async fn start(limits: CallerLimits) -> RpcServer {
    let service = Service::new(Arc::new(()))
        .known_by(async |_, call: Call| call.node == "known" && call.token == "s")
        .method::<Length, _, _>(Access::Public, async |_, _, text: Text| {
            Ok(text.0.len() as u64)
        })
        .method::<Never, _, _>(Access::Public, async |_, _, _| std::future::pending().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(listener, Arc::new(service), limits).unwrap()
}

/// Waits until so many turns of a budget are free.
async fn free(what: &str, budget: &Budget, wanted: usize) {
    let seen = || match budget.free() {
        free if free == wanted => Ok(()),
        free => Err(format!("{free} are free, not {wanted}")),
    };
    eventually(what, SOON, seen).await.unwrap();
}

/// A turn is kept until the answer is sent, which the caller may see a moment earlier.
async fn given_back(limits: &CallerLimits) {
    free("the turns", &limits.turns, STRANGE_CALLS).await;
}

fn caller(server: &RpcServer, node: &str) -> Caller {
    let servers = Servers::new(vec![server.addr().to_string()]);
    Caller::network(Pool::new(1), servers, "s").of_node(node)
}

#[tokio::test]
async fn who_proved_nothing_sends_little() {
    let limits = CallerLimits::default();
    let server = start(limits.clone()).await;
    let text = |bytes| Text("x".repeat(bytes));
    let long = STRANGER_BODY + 1;
    let known = caller(&server, "known");
    assert_eq!(
        known.once::<Length>(&text(long), SOON).await.unwrap(),
        long as u64
    );
    for node in ["", "other"] {
        let stranger = caller(&server, node);
        let short = stranger.once::<Length>(&text(1_000), SOON).await;
        assert_eq!(short.unwrap(), 1_000);
        let refused = stranger.once::<Length>(&text(long), SOON).await;
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refused.code, Code::PayloadTooLarge, "{node}");
    }
    assert_eq!(limits.bodies.free(), BODIES, "all is given back");
    assert_eq!(limits.strangers.free(), STRANGERS);
    given_back(&limits).await;
}

#[tokio::test]
async fn a_body_is_charged_while_it_comes_to_whom_it_is_from() {
    for (node, left) in [
        ("known", (BODIES - 1_000, STRANGERS)),
        ("", (BODIES, STRANGERS - 1_000)),
    ] {
        let limits = CallerLimits::default();
        let server = start(limits.clone()).await;
        let stream = TcpStream::connect(server.addr()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let piece = Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 1_000])));
        let half = futures_util::stream::iter([piece]).chain(futures_util::stream::pending());
        let body = http_body_util::StreamBody::new(half);
        let request = Request::post("http://x/rpc/Test.Length")
            .header(VERSION_HEADER, VERSION)
            .header(TOKEN_HEADER, "s")
            .header(NODE_HEADER, node)
            .body(body)
            .unwrap();
        let answer = tokio::spawn(sender.send_request(request));
        free("its body", &limits.bodies, left.0).await;
        free("a stranger's body", &limits.strangers, left.1).await;
        answer.abort();
        connection.abort();
        free("what it took", &limits.bodies, BODIES).await;
        free("what a stranger took", &limits.strangers, STRANGERS).await;
    }
}

#[tokio::test]
async fn calls_of_strangers_take_turns_and_those_of_nodes_do_not() {
    let limits = CallerLimits {
        turns: Budget::new(40),
        ..CallerLimits::default()
    };
    let server = start(limits.clone()).await;
    let stranger = caller(&server, "");
    // A quarter of the turns for one address.
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let stranger = stranger.clone();
            tokio::spawn(async move { stranger.once::<Never>(&Text::default(), SOON).await })
        })
        .collect();
    free("ten calls that wait", &limits.turns, 30).await;
    let refused = stranger.once::<Length>(&Text::default(), SOON).await;
    let Err(RpcError::Api(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.code, Code::Unavailable);
    let known = caller(&server, "known");
    assert_eq!(
        known.once::<Length>(&Text::default(), SOON).await.unwrap(),
        0
    );
    for call in waiting {
        call.abort();
    }
    free("the turns", &limits.turns, 40).await;
    assert!(
        stranger
            .once::<Length>(&Text::default(), SOON)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn who_says_nothing_or_something_else_is_sent_away_and_so_is_one_too_many() {
    let limits = CallerLimits::new(Some(0), Duration::from_millis(300), Budget::new(BODIES));
    let server = start(limits).await;
    for opening in [
        &b""[..],
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, opening)
            .await
            .unwrap();
        let mut end = [0; 16];
        let read = tokio::time::timeout(SOON, stream.read(&mut end)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{opening:?} stays");
    }
    let limits = CallerLimits::new(Some(1), SOON * 4, Budget::new(BODIES));
    let server = start(limits).await;
    let one = TcpStream::connect(server.addr()).await.unwrap();
    let mut two = TcpStream::connect(server.addr()).await.unwrap();
    let read = tokio::time::timeout(SOON, two.read(&mut [0; 16])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "the second stays");
    drop(one);
}

type Requested = hyper::client::conn::http2::SendRequest<http_body_util::Full<Bytes>>;

/// A caller who gives no room for answers.
async fn mean(server: &RpcServer) -> (Requested, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

/// Calls, and does not take what is answered.
async fn ask(sender: &mut Requested, node: &str) -> Option<Response<Incoming>> {
    let request = Request::post("http://x/rpc/Test.Length")
        .header(VERSION_HEADER, VERSION)
        .header(TOKEN_HEADER, "s")
        .header(NODE_HEADER, node)
        .body(http_body_util::Full::new(Bytes::from_static(b"\xa1x")))
        .unwrap();
    sender.ready().await.ok()?;
    sender.send_request(request).await.ok()
}

#[tokio::test]
async fn a_turn_is_kept_until_the_answer_is_sent_and_a_connection_until_it_must_be() {
    let limits = CallerLimits::default();
    let server = start(limits.clone()).await;
    let (mut sender, connection) = mean(&server).await;
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(ask(&mut sender, "").await.expect("an answer"));
    }
    assert_eq!(limits.turns.free(), STRANGE_CALLS - 10, "nothing is sent");
    drop((sender, answers));
    connection.abort();
    given_back(&limits).await;
    // Who never takes them is sent away, known or not.
    for node in ["", "known"] {
        let limits = CallerLimits {
            sending: Duration::from_millis(200),
            ..CallerLimits::default()
        };
        let server = start(limits.clone()).await;
        let (mut sender, connection) = mean(&server).await;
        let _answer = ask(&mut sender, node).await.expect("an answer");
        let ended = tokio::time::timeout(SOON, connection).await;
        ended.expect("the connection ends").unwrap();
        given_back(&limits).await;
    }
}

#[tokio::test]
async fn a_connection_has_few_streams_until_a_node_proved_itself_on_it() {
    let server = start(CallerLimits {
        sending: SOON * 10,
        ..CallerLimits::default()
    });
    let server = server.await;
    for (node, most) in [("", FEW_STREAMS), ("other", FEW_STREAMS), ("known", 500)] {
        let (mut sender, _connection) = mean(&server).await;
        let mut answers = Vec::new();
        while answers.len() < 500 {
            let Some(answer) = ask(&mut sender, node).await else {
                break;
            };
            answers.push(answer);
        }
        assert!(answers.len() <= most + 1, "{node:?}: {}", answers.len());
        assert!(answers.len() >= most, "{node:?}: {}", answers.len());
    }
    // A client begins with the node's name, so that many wait over one connection from the start.
    let known = caller(&server, "known");
    let all: Vec<_> = (0..1_000)
        .map(|_| {
            let known = known.clone();
            tokio::spawn(async move { known.once::<Length>(&Text::default(), SOON).await })
        })
        .collect();
    for call in all {
        assert_eq!(call.await.unwrap().unwrap(), 0);
    }
}

#[tokio::test]
async fn who_names_a_node_is_looked_up_within_a_number_and_a_node_does_not_wait_for_it() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let service = Service::new(Arc::new(()))
        .known_by(move |_, call: Call| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                match call.node.as_str() {
                    "stuck" => std::future::pending().await,
                    node => node == "known",
                }
            }
        })
        .method::<Length, _, _>(Access::Public, async |_, _, text: Text| {
            Ok(text.0.len() as u64)
        });
    let limits = CallerLimits {
        lookups: Budget::new(40),
        ..CallerLimits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = serve(listener, Arc::new(service), limits.clone()).unwrap();
    let known = caller(&server, "known");
    assert_eq!(
        known.once::<Length>(&Text::default(), SOON).await.unwrap(),
        0
    );
    let (mut waiting, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let (mut sender, connection) = mean(&server).await;
        waiting.push(tokio::spawn(async move { ask(&mut sender, "stuck").await }));
        streams.push(connection);
    }
    free("ten look-ups", &limits.lookups, 30).await;
    let before = lookups.load(Ordering::Relaxed);
    for _ in 0..50 {
        let (mut sender, _connection) = mean(&server).await;
        let refused = ask(&mut sender, "stuck").await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(lookups.load(Ordering::Relaxed), before, "no other was");
    // A node that proved itself on its connection is not looked up again.
    assert_eq!(
        known.once::<Length>(&Text::default(), SOON).await.unwrap(),
        0
    );
    for call in waiting {
        call.abort();
    }
}

#[tokio::test]
async fn nothing_is_read_from_a_stranger_who_reads_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const SHORT: Duration = Duration::from_millis(50);
    let guest = Guest::new(SOON);
    let (mut theirs, stream) = tokio::io::duplex(64);
    let mut wire = Wire {
        stream,
        guest: Arc::clone(&guest),
    };
    theirs.write_all(b"first").await.unwrap();
    assert_eq!(wire.read(&mut [0; 64]).await.unwrap(), 5);
    wire.write_all(&[0; 64]).await.unwrap();
    theirs.write_all(b"more").await.unwrap();
    let blocked = tokio::time::timeout(SHORT, wire.write_all(b"x")).await;
    assert!(blocked.is_err(), "there is no room");
    let mut read = [0; 64];
    let held = tokio::time::timeout(SHORT, wire.read(&mut read)).await;
    assert!(held.is_err(), "the caller takes its answers first");
    guest.prove();
    assert_eq!(wire.read(&mut read).await.unwrap(), 4, "a node is trusted");
}
