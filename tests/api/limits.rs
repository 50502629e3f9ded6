//! What callers from outside may take: memory, connections, time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use drover::error::Code;
use drover::rpc::RpcError;
use drover::rpc::caller::{Caller, Servers};
use drover::rpc::client::Pool;
use drover::rpc::methods::{Empty, StatusPing};
use drover_testkit::{LONG, wait_for};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_stream::wrappers::ReceiverStream;

use crate::support;

/// Addresses of this machine that callers come from.
const ADDRESSES: u8 = 20;
/// Slow connections of each.
const CONNECTIONS: usize = 50;
/// What every other slow connection sends of a body, bytes.
const SENT: usize = 4 << 20;
/// Connections of each address that open calls, and the calls of each: as many as may be open of
/// one that proved nothing.
const CALLERS: usize = 5;
const CALLS: usize = 100;
/// Calls in all.
const STREAMS: usize = ADDRESSES as usize * CALLERS * CALLS;
/// What all of this may add to the resident memory: bodies, twice while they grow, and buffers. It
/// sends 2 GB.
const BOUND: u64 = 700 << 20;

pub(crate) async fn connect(from: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, from), 0)))?;
    socket.connect(to).await
}

#[derive(Default)]
struct Seen {
    connected: AtomicUsize,
    /// Connections that have half a request, and those that have half a body.
    ended: [AtomicUsize; 2],
    opened: AtomicUsize,
    answered: AtomicUsize,
    over: AtomicUsize,
}

/// Says half of what it wants, and then nothing until the server has had enough.
async fn slow(from: u8, to: SocketAddr, body: bool, seen: Arc<Seen>) {
    let Ok(mut stream) = connect(from, to).await else {
        return;
    };
    seen.connected.fetch_add(1, Ordering::Relaxed);
    let head: &[u8] = match body {
        true => b"PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n",
        false => b"GET /v1/jobs HTTP/1.1\r\nHost: ",
    };
    if stream.write_all(head).await.is_ok() && body {
        let _ = stream.write_all(&vec![b' '; SENT]).await;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    seen.ended[usize::from(body)].fetch_add(1, Ordering::Relaxed);
}

/// Opens calls whose bodies never come.
async fn streams(from: u8, to: SocketAddr, seen: Arc<Seen>) {
    let Ok(stream) = connect(from, to).await else {
        return;
    };
    let shaken =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let Ok((sender, connection)) = shaken else {
        return;
    };
    tokio::spawn(connection);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let (mut sender, seen) = (sender.clone(), Arc::clone(&seen));
        calls.spawn(async move {
            let (begin, pieces) = tokio::sync::mpsc::channel(1);
            let piece = Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"\x81")));
            let _ = begin.send(piece).await;
            let request = hyper::Request::post("http://x/rpc/Node.UpdateStatus")
                .header("drover-rpc", "1")
                .header("x-nomad-token", "nobody's")
                .header("drover-node", "none")
                .body(StreamBody::new(ReceiverStream::new(pieces)))
                .expect("a request");
            seen.opened.fetch_add(1, Ordering::Relaxed);
            // A caller with an answer was heard. A connection that is slow at first is not.
            if sender.send_request(request).await.is_ok() {
                seen.answered.fetch_add(1, Ordering::Relaxed);
            }
            seen.over.fetch_add(1, Ordering::Relaxed);
            drop(begin);
        });
    }
    while calls.join_next().await.is_some() {}
}

#[test]
fn slow_connections_and_open_streams_leave_memory_and_others_alone() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many files as are allowed");
    let running = support::server();
    let mut http = running.http();
    support::register(&mut http, &support::job("seen", 1));
    let before = running.agent.resident_bytes().expect("a size");
    let seen = Arc::new(Seen::default());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (api, rpc) = (running.agent.addr(), running.agent.rpc_addr());
    for from in 0..ADDRESSES {
        for number in 0..CONNECTIONS {
            let seen = Arc::clone(&seen);
            runtime.spawn(slow(from + 2, api, number % 2 == 0, seen));
        }
        for _ in 0..CALLERS {
            runtime.spawn(streams(from + 2, rpc, Arc::clone(&seen)));
        }
    }
    let connections = usize::from(ADDRESSES) * CONNECTIONS;
    let mut most = 0;
    wait_for("all to be there", LONG, || {
        most = most.max(running.agent.resident_bytes()?);
        let (connected, opened) = (&seen.connected, &seen.opened);
        let (connected, opened) = (
            connected.load(Ordering::Relaxed),
            opened.load(Ordering::Relaxed),
        );
        anyhow::ensure!(
            connected == connections && opened >= STREAMS,
            "{connected} connections, {opened} streams"
        );
        Ok(())
    })
    .expect("they come");
    for _ in 0..50 {
        let jobs = http.json("/v1/jobs").expect("others are served");
        assert_eq!(jobs[0]["ID"], "seen");
        most = most.max(running.agent.resident_bytes().expect("a size"));
    }
    // Every connection that does not continue is closed, those with half a body last.
    wait_for("the slow ones to end", Duration::from_secs(180), || {
        most = most.max(running.agent.resident_bytes()?);
        let ended = [0, 1].map(|body: usize| seen.ended[body].load(Ordering::Relaxed));
        let over = seen.over.load(Ordering::Relaxed);
        anyhow::ensure!(
            ended.iter().sum::<usize>() == connections && over == STREAMS,
            "{ended:?} of {connections} connections and {over} of {STREAMS} calls ended"
        );
        Ok(())
    })
    .expect("nobody stays for ever");
    let answered = seen.answered.load(Ordering::Relaxed);
    assert!(answered > STREAMS / 2, "the server heard {answered} calls");
    let grown = most.saturating_sub(before);
    assert!(grown < BOUND, "{} MiB more than before", grown >> 20);
}

#[test]
fn an_address_has_so_many_connections_and_is_told_so() {
    let running = support::server_with("limits {\n  http_max_conns_per_client = 5\n}\n");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let api = running.agent.addr();
    runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..5 {
            let mut stream = connect(9, api).await.expect("a connection");
            ask(&mut stream).await;
            open.push(stream);
        }
        let mut sixth = connect(9, api).await.expect("a connection");
        let mut answer = String::new();
        let _ = sixth.read_to_string(&mut answer).await;
        assert!(
            answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
            "{answer}"
        );
        let text = "Your IP is issuing too many concurrent connections, please rate limit your \
            calls\n";
        assert!(answer.ends_with(text), "{answer}");
        ask(&mut connect(10, api).await.expect("another address")).await;
        drop(open.pop());
        let begun = std::time::Instant::now();
        loop {
            let mut again = connect(9, api).await.expect("a connection");
            if try_ask(&mut again).await.starts_with("HTTP/1.1 200") {
                break;
            }
            assert!(begun.elapsed() < LONG, "the place is not given back");
        }
    });
}

/// Sends a request and reads the beginning of the answer; the connection stays open.
async fn try_ask(stream: &mut TcpStream) -> String {
    let _ = stream
        .write_all(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut answer = vec![0; 1_024];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

async fn ask(stream: &mut TcpStream) {
    let answer = try_ask(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn the_quota_and_the_highest_priority_of_the_file_are_in_force() {
    let config = "server {\n  variables_quota = \"1K\"\n  job_max_priority = 200\n}\n";
    let running = support::server_with(config);
    let mut http = running.http();
    let items = json!({"Items": {"text": "x".repeat(600)}});
    let written = http.put("/v1/var/first", &items).expect("an answer");
    assert_eq!(written.status, 200, "{}", written.text());
    let refused = http.put("/v1/var/second", &items).expect("an answer");
    let text = refused.text();
    assert_eq!(refused.status, 500, "{text}");
    assert!(text.contains("variables quota exceeded"), "{text}");
    assert!(text.contains("would pass the 1000 they may take"), "{text}");
    let missing = http.get("/v1/var/second").expect("an answer");
    assert_eq!(missing.status, 404, "{}", missing.text());
    let mut high = support::job("high", 1);
    high["Job"]["Priority"] = json!(150);
    support::register(&mut http, &high);
    assert_eq!(support::json_of(&mut http, "/v1/job/high")["Priority"], 150);
    high["Job"]["Priority"] = json!(201);
    let refused = http.put("/v1/jobs", &high).expect("an answer");
    let text = refused.text();
    assert_eq!(refused.status, 500, "{text}");
    assert!(
        text.contains("job priority must be between [1, 200]"),
        "{text}"
    );
    // The priority of a job's evaluation has the same bound.
    let mut looked = support::job("looked", 1);
    looked["EvalPriority"] = json!(150);
    let eval = support::register(&mut http, &looked);
    let eval = support::json_of(&mut http, &format!("/v1/evaluation/{eval}"));
    assert_eq!(eval["Priority"], 150);
    looked["EvalPriority"] = json!(201);
    let stopped = |priority: u32| format!("/v1/job/looked?eval_priority={priority}");
    for refused in [
        http.put("/v1/jobs", &looked).expect("an answer"),
        http.send("DELETE", &stopped(201), &[]).expect("an answer"),
    ] {
        let text = refused.text();
        assert_eq!(refused.status, 400, "{text}");
        assert_eq!(text, "Eval priority must be between 1 and 200 inclusively");
    }
    let stopped = http.send("DELETE", &stopped(150), &[]).expect("an answer");
    assert_eq!(stopped.status, 200, "{}", stopped.text());
}

/// What a file says of calls holds on the port that they come to.
#[test]
fn auth_09_an_agent_takes_so_many_calls_a_second_as_its_file_says() {
    let running = support::server_with(
        "limits {\n  rpc_max_requests_per_identity = 1\n  request_burst = \"1s\"\n}\n",
    );
    let at = running.agent.rpc_addr().to_string();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused = runtime.block_on(async {
        let caller = Caller::network(Pool::new(1), Servers::new(vec![at]), "");
        for _ in 0..2_000 {
            if let Err(refused) = caller.once::<StatusPing>(&Empty {}, LONG).await {
                return Some(refused);
            }
        }
        None
    });
    let Some(RpcError::Api(refused)) = refused else {
        panic!("it is never too much: {refused:?}");
    };
    assert_eq!(refused.code, Code::TooManyRequests, "{refused}");
}
