//! What callers of the RPC port may take before they proved who they are.

use std::sync::Arc;
use std::time::Duration;

use drover_testkit::{LONG, eventually};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::service::Service;
use crate::rpc::{Rpc, RpcError};

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
async fn start(limits: Limits) -> RpcServer {
    let service = Service::new(Arc::new(()))
        .known_by(async |_, call: Call| call.node == "known" && call.token == "s")
        .method::<Length, _, _>(async |_, _, text: Text| Ok(text.0.len() as u64))
        .method::<Never, _, _>(async |_, _, _| std::future::pending().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(listener, Arc::new(service), limits).unwrap()
}

fn caller(server: &RpcServer, node: &str) -> Caller {
    let servers = Servers::new(vec![server.addr().to_string()]);
    Caller::network(Pool::new(1), servers, "s").of_node(node)
}

#[tokio::test]
async fn who_proved_nothing_sends_little() {
    let limits = Limits::default();
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
    assert_eq!(limits.turns.free(), STRANGE_CALLS);
}

#[tokio::test]
async fn calls_of_strangers_take_turns_and_those_of_nodes_do_not() {
    let limits = Limits {
        turns: Budget::new(40),
        ..Limits::default()
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
    let turns = |free: usize| {
        let turns = limits.turns.clone();
        eventually("the turns", LONG, move || match turns.free() {
            now if now == free => Ok(()),
            now => Err(format!("{now} are free")),
        })
    };
    turns(30).await.unwrap();
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
    turns(40).await.unwrap();
    assert!(
        stranger
            .once::<Length>(&Text::default(), SOON)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn who_says_nothing_or_something_else_is_sent_away_and_so_is_one_too_many() {
    let limits = Limits::new(Some(0), Duration::from_millis(300), Budget::new(BODIES));
    let server = start(limits).await;
    for said in [
        &b""[..],
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, said)
            .await
            .unwrap();
        let mut end = [0; 16];
        let read = tokio::time::timeout(SOON, stream.read(&mut end)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{said:?} stays");
    }
    let limits = Limits::new(Some(1), SOON * 4, Budget::new(BODIES));
    let server = start(limits).await;
    let one = TcpStream::connect(server.addr()).await.unwrap();
    let mut two = TcpStream::connect(server.addr()).await.unwrap();
    let read = tokio::time::timeout(SOON, two.read(&mut [0; 16])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "the second stays");
    drop(one);
}
