//! What one caller from outside may take: answers that it does not read, bodies that are made into
//! more than they are, files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;
use bytes::Bytes;
use drover_testkit::{LONG, Setup, wait_for};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::limits::connect;
use crate::support;

/// Connections of a caller that reads no answers, and the streams that it opens on each.
const CONNECTIONS: u8 = 4;
const STREAMS: usize = 20_000;
/// What that may add to the resident memory. Each stream would keep some 4 KB: 320 MB.
const UNREAD: u64 = 100 << 20;

/// Calls again and again and gives no credit for the answers, until the connection ends.
async fn unread(from: u8, to: std::net::SocketAddr) -> usize {
    let stream = connect(from, to).await.expect("a connection");
    stream.set_nodelay(true).expect("no delays");
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    let mut answers = Vec::new();
    while answers.len() < STREAMS {
        let request = hyper::Request::post("http://x/rpc/Node.UpdateStatus")
            .header("drover-rpc", "1")
            .header("drover-node", "none")
            .body(Full::new(Bytes::from_static(b"\x80")))
            .expect("a request");
        if sender.ready().await.is_err() {
            break;
        }
        match sender.send_request(request).await {
            Ok(answer) => answers.push(answer),
            Err(_) => break,
        }
    }
    answers.len()
}

#[test]
fn answers_that_a_stranger_does_not_read_leave_memory_alone() {
    let running = support::server();
    let mut http = running.http();
    support::register(&mut http, &support::job("seen", 1));
    let before = running.agent.resident_bytes().expect("a size");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rpc = running.agent.rpc_addr();
    let calls: Vec<_> = (0..CONNECTIONS)
        .map(|from| runtime.spawn(unread(from + 2, rpc)))
        .collect();
    let (mut most, begun) = (0, Instant::now());
    while calls.iter().any(|call| !call.is_finished()) {
        let jobs = http.json("/v1/jobs").expect("others are served");
        assert_eq!(jobs[0]["ID"], "seen");
        assert!(begun.elapsed() < LONG, "they do not end");
        most = most.max(running.agent.resident_bytes().expect("a size"));
    }
    for call in calls {
        let opened = runtime.block_on(call).expect("it ends");
        assert!(opened < 200, "{opened} streams");
    }
    let grown = most.saturating_sub(before);
    assert!(grown < UNREAD, "{} MiB more than before", grown >> 20);
}

/// Bodies at once, and their length: what one address may have under way.
const BODIES: usize = 4;
const LENGTH: usize = 15 << 20;
/// What they may add to the resident memory: themselves, twice while they grow, and little more.
/// Each used to be made into half a gigabyte.
const DECODED: u64 = 220 << 20;

#[test]
fn what_a_body_says_that_jobs_do_not_have_is_not_made_into_anything() {
    let running = support::server();
    let before = running.agent.resident_bytes().expect("a size");
    let (begin, end) = ("{\"Job\":{\"ID\":\"z\",\"x\":[", "{}]}}");
    let body = format!("{begin}{}{end}", "{\"a\":0},".repeat(LENGTH / 8));
    let body = Arc::new(body);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let api = running.agent.addr();
    let answered = Arc::new(AtomicUsize::new(0));
    for _ in 0..BODIES {
        let (body, answered) = (Arc::clone(&body), Arc::clone(&answered));
        runtime.spawn(async move {
            let mut stream = connect(2, api).await.expect("a connection");
            let length = body.len();
            let head = format!(
                "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.expect("sent");
            stream.write_all(body.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
            answered.fetch_add(1, Ordering::Relaxed);
        });
    }
    let mut most = 0;
    wait_for("the answers", 3 * LONG, || {
        most = most.max(running.agent.resident_bytes()?);
        let answered = answered.load(Ordering::Relaxed);
        ensure!(answered == BODIES, "{answered} of {BODIES}");
        Ok(())
    })
    .expect("all are answered");
    let grown = most.saturating_sub(before);
    assert!(grown < DECODED, "{} MiB more than before", grown >> 20);
}

#[test]
fn connections_leave_files_for_allocations_and_a_task_gets_the_limit_that_was_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("drover");
    let binary = env!("CARGO_BIN_EXE_drover");
    let script = format!("#!/bin/sh\nulimit -Sn 300\nulimit -Hn 600\nexec {binary} \"$@\"\n");
    fs::write(&program, script).expect("writes");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let setup = Setup::dev(program, &dir.path().join("data")).expect("free ports");
    let agent = setup.start().expect("the agent starts");
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.pid())).expect("limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<&str> = files.expect("a line").split_whitespace().skip(3).collect();
    assert_eq!(numbers[..2], ["600", "600"], "raised to what is allowed");
    let mut http = agent.http();
    http.json("/v1/jobs").expect("the agent answers");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let streams = runtime.block_on(async {
        let mut open = Vec::new();
        for number in 0..700 {
            let Ok(mut stream) = connect(2 + (number % 8) as u8, agent.addr()).await else {
                continue;
            };
            let requested = b"GET /v1/event/stream HTTP/1.1\r\nHost: x\r\n\r\n";
            if stream.write_all(requested).await.is_ok() {
                open.push(stream);
            }
        }
        open
    });
    let job = serde_json::json!({"Job": {
        "ID": "files", "Name": "files", "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 3, "Tasks": [{
            "Name": "t", "Driver": "raw_exec",
            "Config": {"command": "/bin/sh", "args": ["-c", "ulimit -Sn"]},
        }]}],
    }});
    support::register(&mut http, &job);
    let allocs = wait_for("all are over", LONG, || {
        let all = http.json("/v1/job/files/allocations")?;
        let all = all.as_array().cloned().unwrap_or_default();
        let done = all.iter().filter(|one| one["ClientStatus"] == "complete");
        ensure!(all.len() == 3 && done.count() == 3, "{all:#?}");
        Ok(all)
    })
    .expect("there are files left for them");
    let id = allocs[0]["ID"].as_str().expect("an id");
    let path = format!("/v1/client/fs/logs/{id}?task=t&type=stdout&plain=true");
    assert_eq!(http.get(&path).expect("an answer").text(), "300");
    drop(streams);
    let reported = agent.log_tail(10_000).matches("cannot accept").count();
    assert!(reported <= 1, "{reported} warnings");
}
