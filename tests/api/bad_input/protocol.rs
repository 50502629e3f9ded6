//! What is no HTTP, or HTTP at its edges: pipelining, slow bodies, headers that contradict.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::Bad;
use drover_testkit::LONG;

/// A connection of our own.
fn connect(bad: &Bad) -> TcpStream {
    connect_to(bad.running.agent.addr())
}

fn connect_to(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream.set_write_timeout(Some(LONG)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// What comes back for these bytes until the connection ends.
fn exchange(bad: &Bad, bytes: &[u8], half_closed: bool) -> String {
    exchange_with(bad.running.agent.addr(), bytes, half_closed)
}

/// The same of an agent at this address.
pub(crate) fn exchange_with(addr: SocketAddr, bytes: &[u8], half_closed: bool) -> String {
    let mut stream = connect_to(addr);
    stream.write_all(bytes).expect("it takes bytes");
    if half_closed {
        stream.shutdown(Shutdown::Write).expect("half a close");
    }
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("an answer, then an end");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until this text has come `count` times.
fn until(stream: &mut TcpStream, text: &str, count: usize) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        if shown.matches(text).count() >= count {
            return shown;
        }
        let length = stream.read(&mut piece).expect("an answer in time");
        assert!(length > 0, "the connection ended after {shown:?}");
        answer.extend_from_slice(&piece[..length]);
    }
}

pub(crate) const LEADER: &str = "GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n";
pub(crate) const LAST: &str = "GET /v1/nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn a_head_that_is_none_is_answered_and_ends_its_own_connection() {
    let bad = Bad::start();
    let long = |what: &str, length| what.replace("{}", &"y".repeat(length));
    for (head, status) in [
        ("GET /v1/jobs HTTP/9.9\r\n\r\n".to_owned(), "400"),
        ("GET  /v1/jobs HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET /v1/jobs\r\n\r\n".to_owned(), "400"),
        (
            "GET /v1/job/a\0b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
            "400",
        ),
        ("G\u{1}T /v1/jobs HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (
            "GET /v1/jobs HTTP/1.1\r\nHo st: x\r\n\r\n".to_owned(),
            "400",
        ),
        (
            long("GET /v1/jobs?{} HTTP/1.1\r\nHost: x\r\n\r\n", 70_000),
            "414",
        ),
        (
            long("GET /v1/jobs HTTP/1.1\r\nX-A: {}\r\n\r\n", 600_000),
            "431",
        ),
        (
            format!("GET /v1/jobs HTTP/1.1\r\n{}\r\n", "X-A: y\r\n".repeat(500)),
            "431",
        ),
    ] {
        let answer = exchange(&bad, head.as_bytes(), false);
        let begin: String = head.chars().take(60).collect();
        let line = answer.lines().next().unwrap_or_default();
        assert!(line.contains(status), "{begin:?}: {line:?}");
    }
    bad.end();
}

#[test]
fn bytes_that_are_no_text_in_a_target_are_refused() {
    let bad = Bad::start();
    for target in [
        &b"/v1/job/\xff\xfe"[..],
        b"/v1/jobs?prefix=\xff\xfe",
        b"/v1/jobs?\xc3\x28=1",
    ] {
        let request = [
            b"GET ",
            target,
            b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        ];
        let answer = exchange(&bad, &request.concat(), false);
        assert!(answer.starts_with("HTTP/1.1 400"), "{target:?}: {answer:?}");
    }
    bad.end();
}

#[test]
fn noise_ends_only_its_own_connection() {
    let bad = Bad::start();
    for noise in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"\r\n\r\n\r\n",
        b"GET /v1/jobs",
        b"PRI * HT",
        b"",
    ] {
        // Whatever comes back, the connection ends once the other side is closed.
        exchange(&bad, noise, true);
    }
    bad.end();
}

#[test]
fn headers_that_contradict_each_other_never_let_a_body_pass_as_a_request() {
    let bad = Bad::start();
    contradict(bad.running.agent.addr(), &["HTTP/1.1 400"]);
    bad.end();
}

/// Requests with headers that contradict each other: no part of a body is answered as a request,
/// and broken chunks get these statuses, if any.
pub(crate) fn contradict(addr: SocketAddr, broken: &[&str]) {
    let inner = LEADER;
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n".to_owned(),
        "Content-Length: -5\r\n".to_owned(),
        "Content-Length: 5x\r\n".to_owned(),
        "Content-Length: 99999999999999999999999\r\n".to_owned(),
        "Transfer-Encoding: gzip\r\n".to_owned(),
    ] {
        let request = format!("PUT /v1/jobs HTTP/1.1\r\nHost: x\r\n{headers}\r\n{inner}");
        let answer = exchange_with(addr, request.as_bytes(), false);
        assert!(answer.starts_with("HTTP/1.1 4"), "{headers:?}: {answer:?}");
        assert!(!answer.contains(" 200 "), "{headers:?}: {answer:?}");
    }
    // Where both forms of length are given the chunks count, and what follows is a new request.
    let both = format!(
        "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\
         Connection: close\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n{inner}"
    );
    let answer = exchange_with(addr, both.as_bytes(), false);
    assert!(
        answer.starts_with("HTTP/1.1 400") && !answer.contains(" 200 "),
        "{answer:?}"
    );
    for chunks in ["zz\r\n", "ffffffffffffffffff\r\n", "-1\r\n", "2\r\n{}x\r\n"] {
        let request = format!(
            "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        let answer = exchange_with(addr, request.as_bytes(), true);
        let reported = broken.iter().any(|status| answer.starts_with(status));
        assert!(answer.is_empty() || reported, "{chunks:?}: {answer:?}");
        assert!(!answer.contains(" 200 "), "{chunks:?}: {answer:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_and_none_waits_for_the_next() {
    let bad = Bad::start();
    let answer = exchange(
        &bad,
        format!("{}{LAST}", LEADER.repeat(50)).as_bytes(),
        false,
    );
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 50);
    assert!(answer.rfind("HTTP/1.1 404") > answer.rfind("HTTP/1.1 200"));
    let wrong = "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{";
    let answer = exchange(
        &bad,
        format!("{}{LEADER}{LAST}", wrong.repeat(20)).as_bytes(),
        false,
    );
    assert_eq!(answer.matches("HTTP/1.1 400").count(), 20);
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1);
    // The first answer comes although the second request is not whole yet.
    let mut stream = connect(&bad);
    let (half, rest) = LAST.split_at(20);
    stream
        .write_all(format!("{LEADER}{half}").as_bytes())
        .expect("it takes bytes");
    until(&mut stream, "HTTP/1.1 200", 1);
    stream
        .write_all(rest.as_bytes())
        .expect("it takes the rest");
    until(&mut stream, "HTTP/1.1 404", 1);
    bad.end();
}

#[test]
fn a_body_may_come_slowly_and_may_break_off() {
    let bad = Bad::start();
    let body = "{\"Job\": {\"ID\": 7}}";
    let head = format!(
        "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = connect(&bad);
    stream.write_all(head.as_bytes()).expect("it takes bytes");
    for byte in body.as_bytes().chunks(1) {
        stream.write_all(byte).expect("it takes bytes");
        // Others are served meanwhile, and so each byte is a packet of its own.
        let leader = bad
            .running
            .http()
            .get("/v1/status/leader")
            .expect("an answer");
        assert_eq!(leader.status, 200);
    }
    let answer = until(&mut stream, "found number 7", 1);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let broken = exchange(&bad, format!("{head}{{").as_bytes(), true);
    assert!(broken.contains("failed to read request body"), "{broken}");
    bad.end();
}

#[test]
fn who_asks_for_leave_to_send_too_much_is_refused_at_once() {
    let bad = Bad::start();
    let head = "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
                Content-Length: 99999999999\r\n\r\n";
    let answer = until(
        &mut {
            let mut s = connect(&bad);
            s.write_all(head.as_bytes()).expect("bytes");
            s
        },
        "allowed",
        1,
    );
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    bad.end();
}
