//! Requests on their way to a server that answers them.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::OnUpgrade;
use hyper::{StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::front::Incoming;
use super::request::{Remote, Request};
use super::socket::SocketLine;
use super::state::Settings;
use crate::error::{Code, Refusal};
use crate::rpc::RpcError;
use crate::rpc::caller::Caller;
use crate::rpc::duplex::{Duplex, bytes_of};
use crate::rpc::forward::{ForwardRequest, ServerForward};

/// Headers of the connection they come over (RFC 9110 section 7.6.1).
const OF_THE_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];

/// Counts a request that another server answers against the address that it comes from.
///
/// # Errors
/// 429.
pub(super) fn knock(settings: &Settings, parts: &Parts) -> Result<(), Refusal> {
    match parts.extensions.get::<Remote>() {
        Some(from) => settings.rates.take_of_address(from.0.ip()),
        None => Ok(()),
    }
}

/// Takes that back of a request that comes to be answered here: there it is counted.
pub(super) fn unknock(settings: &Settings, incoming: &Incoming) {
    if let Some(from) = incoming.extensions().get::<Remote>() {
        settings.rates.give_back_of_address(from.0.ip());
    }
}

/// Sends a request to a server, and answers with its response as it comes.
///
/// # Errors
/// 503 where no server takes it.
pub(super) async fn send(
    caller: &Caller,
    incoming: Incoming,
    looking: Duration,
) -> Result<Response, Refusal> {
    let requested = forward_request(&incoming);
    let stream = caller.reach::<ServerForward>(&requested, looking).await;
    over(stream.map_err(unreached)?, incoming).await
}

/// The call to a server that is to answer a request.
pub(super) fn forward_request(incoming: &Incoming) -> ForwardRequest {
    let address = incoming.extensions().get::<Remote>();
    ForwardRequest {
        address: address.map_or_else(String::new, |remote| remote.0.to_string()),
    }
}

/// Sends a request over a stream to a server that took it, and answers with its response as it
/// comes. Nothing of it was sent before.
///
/// # Errors
/// 503 where the server is lost: it may have done what was requested.
pub(super) async fn over(stream: Duplex, mut incoming: Incoming) -> Result<Response, Refusal> {
    let broken = |error: hyper::Error| {
        Refusal::new(Code::Unavailable, format!("the server was lost: {error}"))
    };
    let io = TokioIo::new(bytes_of(stream));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
        .await
        .map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a forwarded request ended");
        }
    });
    let upgrade = incoming.extensions_mut().remove::<OnUpgrade>();
    let line = incoming.extensions_mut().remove::<SocketLine>();
    rewrite(&mut incoming, upgrade.is_some())?;
    let mut response = sender.send_request(incoming).await.map_err(broken)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let there = hyper::upgrade::on(&mut response);
        let held = line.map(|line| line.hold());
        tokio::spawn(async move {
            let _held = held;
            let Some(here) = upgrade else { return };
            let (Ok(here), Ok(there)) = tokio::join!(here, there) else {
                return;
            };
            let (mut here, mut there) = (TokioIo::new(here), TokioIo::new(there));
            let _ = copy_bidirectional(&mut here, &mut there).await;
        });
    } else {
        for name in OF_THE_CONNECTION {
            response.headers_mut().remove(name);
        }
    }
    Ok(response.map(Body::new))
}

/// The same for a request whose body was taken in already.
///
/// # Errors
/// 503 where no server takes it.
pub(super) async fn whole(
    caller: &Caller,
    request: &Request,
    looking: Duration,
) -> Result<Response, Refusal> {
    let mut incoming = Incoming::new(Body::new(Full::new(request.body.clone())));
    *incoming.method_mut() = request.method.clone();
    incoming.headers_mut().clone_from(&request.headers);
    incoming.headers_mut().remove(header::CONTENT_LENGTH);
    let unreadable = |_| Refusal::bad_request("the target cannot be forwarded");
    *incoming.uri_mut() = request.target().parse().map_err(unreadable)?;
    if let Some(address) = request.remote {
        incoming.extensions_mut().insert(Remote(address));
    }
    send(caller, incoming, looking).await
}

/// Why no server took a request.
pub(super) fn unreached(error: RpcError) -> Refusal {
    match error {
        RpcError::Api(error) => error,
        other => {
            let text = format!("no server answers: {other}; drover agent-info names them");
            Refusal::new(Code::Unavailable, text)
        }
    }
}

/// Makes of a request of one connection one of another.
fn rewrite(incoming: &mut Incoming, becomes: bool) -> Result<(), Refusal> {
    let unreadable = |_| Refusal::bad_request("the target cannot be forwarded");
    let host = incoming.uri().authority().map(|host| host.to_string());
    let target = incoming.uri().path_and_query();
    let target = target.cloned().unwrap_or(PathAndQuery::from_static("/"));
    *incoming.uri_mut() = Uri::try_from(target.as_str()).map_err(unreadable)?;
    *incoming.version_mut() = Version::HTTP_11;
    let headers: &mut HeaderMap = incoming.headers_mut();
    let upgrade = headers.get(header::UPGRADE).cloned().filter(|_| becomes);
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
    // What came over HTTP/2 names its host otherwise.
    if !headers.contains_key(header::HOST) {
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        if let Ok(host) = HeaderValue::from_str(&host) {
            headers.insert(header::HOST, host);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::rpc::duplex::Keepalive;

    #[tokio::test]
    async fn what_was_of_one_connection_goes_over_no_other() {
        let (near, far) = Duplex::pair(Keepalive::SESSION);
        let server = tokio::spawn(async move {
            let (mut far, mut head) = (bytes_of(far), Vec::<u8>::new());
            while !head.ends_with(b"\r\n\r\n") {
                let read = far.read_buf(&mut head).await.unwrap();
                assert!(read > 0, "it ends early");
            }
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            far.write_all(answer).await.unwrap();
            (far, String::from_utf8(head).unwrap())
        });
        // As it comes over HTTP/2.
        let request = hyper::Request::get("https://here.example/v1/jobs?prefix=a")
            .version(Version::HTTP_2)
            .header("proxy-authorization", "canary");
        let request = request.body(Body::empty()).unwrap();
        let answer = over(near, request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        let (_far, head) = server.await.unwrap();
        let line = "GET /v1/jobs?prefix=a HTTP/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains("host: here.example\r\n"), "{head}");
        assert!(!head.contains("canary"), "{head}");
    }
}
