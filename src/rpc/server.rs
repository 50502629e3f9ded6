//! Offers a service on a port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::service::{Call, Dispatch};
use super::wire::{
    CONNECTION_WINDOW, ERROR_HEADER, MAX_BODY, PATH, STREAM_WINDOW, TIMEOUT_HEADER, TOKEN_HEADER,
    VERSION, VERSION_HEADER, code_name,
};
use crate::error::{ApiError, Code};

/// How many calls one connection may have open: every simulated node waits in one.
const MAX_STREAMS: u32 = 100_000;
/// How many calls that their callers gave up may wait in a connection: a busy server must not take
/// impatience for an attack and cut off everybody who shares the connection.
const MAX_GIVEN_UP: usize = 100_000;
/// How often a silent peer is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long a call may take that names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(330);
/// After a failed accept (too many open files), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct RpcServer {
    addr: SocketAddr,
    accept: JoinHandle<()>,
}

impl RpcServer {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

/// Serves calls from `listener` until the answer is dropped.
///
/// # Errors
/// The listener has no address.
pub fn serve(listener: TcpListener, service: Arc<dyn Dispatch>) -> std::io::Result<RpcServer> {
    let addr = listener.local_addr()?;
    let accept = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(connection(stream, peer, service.clone()));
                    }
                    Err(e) => {
                        tracing::warn!("rpc: cannot accept: {e}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Ok(RpcServer { addr, accept })
}

async fn connection(stream: TcpStream, peer: SocketAddr, service: Arc<dyn Dispatch>) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!("rpc: no TCP_NODELAY: {e}");
    }
    let answer = hyper::service::service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(answer(request, peer, service).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_GIVEN_UP)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(e) = served {
        tracing::debug!(%peer, "rpc: connection ended: {e}");
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    service: Arc<dyn Dispatch>,
) -> Response<Full<Bytes>> {
    match call(request, peer, service).await {
        Ok(body) => Response::new(Full::new(body)),
        Err(e) => {
            let mut response = Response::new(Full::new(Bytes::from(e.message)));
            *response.status_mut() =
                StatusCode::from_u16(e.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if let Ok(code) = code_name(e.code).parse() {
                response.headers_mut().insert(ERROR_HEADER, code);
            }
            response
        }
    }
}

async fn call(
    request: Request<Incoming>,
    peer: SocketAddr,
    service: Arc<dyn Dispatch>,
) -> Result<Bytes, ApiError> {
    let text = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let Some(name) = request.uri().path().strip_prefix(PATH).map(str::to_owned) else {
        return Err(ApiError::new(
            Code::NotFound,
            "this port serves calls below /rpc/ only",
        ));
    };
    if request.method() != Method::POST {
        return Err(ApiError::new(
            Code::MethodNotAllowed,
            "calls are POST requests",
        ));
    }
    let version = text(VERSION_HEADER);
    if version != VERSION {
        let text = format!("rpc version {version:?} is not spoken here, but {VERSION}");
        return Err(ApiError::new(Code::BadRequest, text));
    }
    let timeout = text(TIMEOUT_HEADER).parse().map_or(DEFAULT_TIMEOUT, |ms| {
        Duration::from_millis(ms).min(DEFAULT_TIMEOUT)
    });
    let call = Call {
        addr: peer.ip().to_string(),
        token: text(TOKEN_HEADER),
    };
    let body = Limited::new(request.into_body(), MAX_BODY)
        .collect()
        .await
        .map_err(|e| ApiError::new(Code::PayloadTooLarge, format!("request body: {e}")))?
        .to_bytes();
    tokio::time::timeout(timeout, service.dispatch(&name, call, body))
        .await
        .unwrap_or_else(|_| {
            Err(ApiError::new(
                Code::Timeout,
                format!("{name} took too long"),
            ))
        })
}
