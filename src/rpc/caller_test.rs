use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use drover_testkit::{LONG, eventually, eventually_async, so};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::*;
use crate::server::{CallerLimits, RpcServer, serve};
use crate::service::{Access, Service};
use drover_error::{Code, Refusal};

struct Echo;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Text {
    text: String,
    bytes: usize,
}

impl Rpc for Echo {
    const NAME: &'static str = "Test.Echo";
    type Req = Text;
    type Res = Text;
}

struct Slow;

impl Rpc for Slow {
    const NAME: &'static str = "Test.Slow";
    type Req = Text;
    type Res = Text;
}

#[derive(Default)]
struct State {
    calls: AtomicUsize,
    gate: tokio::sync::Notify,
}

fn service(state: Arc<State>) -> Service<State> {
    Service::new(state)
        .method::<Echo, _, _>(
            Access::Public,
            async |state: Arc<State>, call: Call, req: Text| {
                state.calls.fetch_add(1, Ordering::Relaxed);
                match req.text.as_str() {
                    "refuse" => Err(Refusal::new(Code::PermissionDenied, "Permission denied")),
                    "busy" if state.calls.load(Ordering::Relaxed) < 3 => {
                        Err(Refusal::new(Code::NoLeader, "No cluster leader"))
                    }
                    "later" if state.calls.load(Ordering::Relaxed) < 2 => {
                        let error = Refusal::new(Code::TooManyRequests, "not now");
                        Err(error.after(1))
                    }
                    "who" => Ok(Text {
                        text: call.token,
                        bytes: 0,
                    }),
                    _ => Ok(Text {
                        text: "x".repeat(req.bytes) + &req.text,
                        bytes: req.bytes,
                    }),
                }
            },
        )
        .method::<Slow, _, _>(Access::Public, async |state: Arc<State>, _, req: Text| {
            state.gate.notified().await;
            Ok(req)
        })
}

async fn start(addr: &str, state: Arc<State>) -> RpcServer {
    serve(
        TcpListener::bind(addr).await.unwrap(),
        Arc::new(service(state)),
        CallerLimits::default(),
    )
    .unwrap()
}

fn caller(addrs: &[SocketAddr]) -> Caller {
    let servers = Servers::new(addrs.iter().map(ToString::to_string).collect());
    Caller::network(Pool::new(2), servers, "secret")
}

fn text(text: &str) -> Text {
    Text {
        text: text.into(),
        bytes: 0,
    }
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn who_is_told_when_to_come_again_comes_then_and_not_before() {
    let state = Arc::new(State::default());
    let caller = Caller::process(Arc::new(service(state.clone())), "");
    let later = text("later");
    let began = Instant::now();
    caller.call::<Echo>(&later, SOON).await.unwrap();
    assert_eq!(state.calls.swap(0, Ordering::Relaxed), 2);
    assert!(began.elapsed() >= Duration::from_secs(1));
    // Who has less time than that hears it at once.
    let refused = caller
        .call::<Echo>(&later, Duration::from_millis(900))
        .await;
    let reported = refused.unwrap_err().retry_after();
    assert_eq!(reported, Some(Duration::from_secs(1)));
    assert_eq!(state.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn mod_30_calls_come_back_over_the_network_and_within_the_process() {
    let state = Arc::new(State::default());
    let server = start("127.0.0.1:0", state.clone()).await;
    let near = Caller::process(Arc::new(service(state)), "secret");
    for caller in [caller(&[server.addr()]), near] {
        assert_eq!(
            caller.call::<Echo>(&text("hi"), SOON).await.unwrap().text,
            "hi"
        );
        assert_eq!(
            caller.call::<Echo>(&text("who"), SOON).await.unwrap().text,
            "secret"
        );
        let big = Text {
            text: String::new(),
            bytes: 3 << 20,
        };
        assert_eq!(
            caller.call::<Echo>(&big, SOON).await.unwrap().text.len(),
            3 << 20
        );
        let refused = caller
            .call::<Echo>(&text("refuse"), SOON)
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, RpcError::Api(e)
                if *e == Refusal::new(Code::PermissionDenied, "Permission denied")),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn mod_30_thousands_of_calls_wait_on_two_connections() {
    let state = Arc::new(State::default());
    let server = start("127.0.0.1:0", state.clone()).await;
    let caller = caller(&[server.addr()]).of_node("node");
    let waiting: Vec<_> = (0..3000)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.call::<Slow>(&text("w"), SOON).await })
        })
        .collect();
    // A short call passes all that wait.
    assert!(caller.call::<Echo>(&text("hi"), SOON).await.is_ok());
    for call in waiting {
        let finished = || {
            state.gate.notify_waiters();
            so(call.is_finished())
        };
        eventually("the end of a call", LONG, finished)
            .await
            .unwrap();
        assert!(call.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn hb_13_a_call_waits_for_a_server_within_its_deadline() {
    let none = caller(&[]);
    let servers = none.servers().unwrap().clone();
    let call = tokio::spawn(async move { none.call::<Echo>(&text("hi"), SOON).await });
    let server = start("127.0.0.1:0", Arc::default()).await;
    servers.refresh(&[server.addr().to_string()]);
    assert_eq!(call.await.unwrap().unwrap().text, "hi");

    let nobody = caller(&[]);
    let error = nobody
        .call::<Echo>(&text("hi"), Duration::from_millis(120))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("no servers are known"),
        "{error}"
    );
}

#[tokio::test]
async fn mod_14_a_server_that_fails_goes_to_the_end() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let server = start("127.0.0.1:0", Arc::default()).await;
    let caller = caller(&[gone, server.addr()]);
    // Whichever the client began at: it calls the one that is gone first.
    caller.servers().unwrap().failed(&server.addr().to_string());
    assert_eq!(caller.servers().unwrap().first(), Some(gone.to_string()));
    for _ in 0..3 {
        assert!(caller.call::<Echo>(&text("busy"), SOON).await.is_ok());
    }
    assert_eq!(
        caller.servers().unwrap().first(),
        Some(server.addr().to_string())
    );
}

#[tokio::test]
async fn mod_30_a_broken_connection_is_made_again() {
    let state = Arc::new(State::default());
    let server = start("127.0.0.1:0", state.clone()).await;
    let addr = server.addr();
    let caller = caller(&[addr]);
    assert!(caller.call::<Echo>(&text("a"), SOON).await.is_ok());
    drop(server);
    let bound = eventually_async("the port", LONG, async || TcpListener::bind(addr).await);
    let listener = bound.await.unwrap();
    let service = Arc::new(service(state.clone()));
    let _again = serve(listener, service, CallerLimits::default()).unwrap();
    assert_eq!(
        caller.call::<Echo>(&text("b"), SOON).await.unwrap().text,
        "b"
    );
}

#[tokio::test]
async fn mod_30_what_is_no_call_is_refused_and_the_deadline_holds() {
    let server = start("127.0.0.1:0", Arc::default()).await;
    let addr = server.addr().to_string();
    let pool = Pool::new(1);
    let call = |name, body: &'static [u8], ms| {
        let call = Call::default();
        pool.call(&addr, name, call, body.into(), Duration::from_millis(ms))
    };
    let unknown = call("Test.Nope", b"\x80", 5000).await.unwrap_err();
    assert!(
        unknown.to_string().contains("Unknown rpc method"),
        "{unknown}"
    );
    let garbage = call("Test.Echo", b"\xc1\xff", 5000).await.unwrap_err();
    assert!(matches!(garbage, RpcError::Api(e) if e.code == Code::BadRequest));
    let late = call("Test.Slow", b"\x80", 50).await.unwrap_err();
    assert!(late.is_transient(), "{late}");
}

#[test]
fn mod_14_servers_keep_their_order_but_for_one_that_failed() {
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let servers = Servers::default();
    assert_eq!(servers.first(), None);
    servers.refresh(&named(&["a", "b", "c"]));
    assert_eq!(servers.all(), named(&["a", "b", "c"]));
    servers.failed("b");
    servers.failed("nobody");
    assert_eq!(servers.first().as_deref(), Some("a"), "it was not asked");
    servers.failed("a");
    assert_eq!(servers.all(), named(&["b", "c", "a"]));
    // Who is not named goes, who is known keeps its place, who is new comes last.
    servers.refresh(&named(&["d", "a", "c"]));
    assert_eq!(servers.all(), named(&["c", "a", "d"]));
    servers.refresh(&[]);
    assert_eq!(servers.all().len(), 3, "nobody said anything");
    let many: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let mut all = Servers::new(many.clone()).all();
    assert_ne!(all, many, "clients begin at different servers");
    all.sort_by_key(|name| name.parse::<u32>().unwrap());
    assert_eq!(all, many);
}
