//! Requests that a client's agent writes anew for the servers: what of them is a body stays one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::Bytes;
use drover_testkit::{LONG, wait_for};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::World;
use crate::bad_input::protocol::{LAST, LEADER, contradict, exchange_with};

/// A request over HTTP/2 that says another length of its body than it has; its status and answer,
/// or nothing where it is cut off.
async fn of_another_length(addr: SocketAddr, length: &str, body: &str) -> Option<(u16, String)> {
    let stream = tokio::net::TcpStream::connect(addr)
        .await
        .expect("it listens");
    let shaken =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    let request = hyper::Request::put(format!("http://{addr}/v1/jobs"))
        .header("content-length", length)
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request");
    let answer = sender.send_request(request).await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

#[test]
fn no_body_passes_as_a_request_on_its_way_through_a_clients_agent() {
    let world = World::start();
    let mut http = world.client.http();
    wait_for("the way to the server", LONG, || -> Result<()> {
        let answer = http.get("/v1/jobs")?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .expect("it forwards");
    let addr = world.client.addr();
    contradict(addr, &["HTTP/1.1 400", "HTTP/1.1 503"]);
    // A request in a body is a body, however its length is said; the next request is answered.
    let length = LEADER.len();
    for headers in [
        format!("Content-Length: {length}\r\n\r\n{LEADER}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{LEADER}\r\n0\r\n\r\n"),
        format!(
            "Connection: content-length, transfer-encoding\r\nContent-Length: {length}\r\n\r\n\
             {LEADER}"
        ),
    ] {
        for method in ["PUT", "GET", "DELETE"] {
            let request =
                format!("{method} /v1/evaluation/none HTTP/1.1\r\nHost: x\r\n{headers}{LAST}");
            let answer = exchange_with(addr, request.as_bytes(), false);
            let what = format!("{method} {headers:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{what}");
            assert!(answer.starts_with("HTTP/1.1 4"), "{what}");
            assert_eq!(answer.matches("HTTP/1.1 200").count(), 0, "{what}");
            assert!(
                answer.contains("HTTP/1.1 404"),
                "the next is answered: {what}"
            );
        }
    }
    // Headers that a connection keeps to itself are no way to take a token away, or a length.
    let request = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Nomad-Token: a\r\n\
                   Connection: x-nomad-token, host\r\n\r\n";
    let answer = exchange_with(addr, format!("{request}{LAST}").as_bytes(), false);
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer:?}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer:?}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (length, body) in [("900", "{}"), ("1", "{}"), ("0", LEADER)] {
        let reported = runtime.block_on(of_another_length(addr, length, body));
        let refused = reported.as_ref().is_none_or(|(status, _)| *status >= 400);
        assert!(refused, "{length} {body:?}: {reported:?}");
    }
    let next = http.get("/v1/jobs").expect("an answer");
    assert_eq!(next.status, 200, "{}", next.text());
    for agent in [&world.client, &world.server] {
        let log = agent.log_tail(usize::MAX);
        assert!(!log.contains("panic"), "{log}");
    }
}
