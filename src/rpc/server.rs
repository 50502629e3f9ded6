//! Offers a service on a port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, join};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::client::Dialing;
use super::service::{Call, Dispatch};
use super::wire::{
    CONNECTION_WINDOW, ERROR_HEADER, MAX_BODY, NODE_HEADER, PATH, STRANGER_BODY, STREAM_WINDOW,
    TIMEOUT_HEADER, TOKEN_HEADER, VERSION, VERSION_HEADER, code_name,
};
use crate::error::{ApiError, Code};
use crate::net::body::{BEGIN, Rules, gather};
use crate::net::{BODIES, Budget, Hold, MOST_CONNECTIONS, STRANGERS, Visitors};

/// How many calls one connection may have open: every simulated node waits in one.
const MAX_STREAMS: u32 = 100_000;
/// Calls under way of callers that proved nothing.
const STRANGE_CALLS: usize = 4_096;
/// How long such a call may take, its body included.
const STRANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest headers of a call, bytes.
const MAX_HEADERS: u32 = 8 << 10;
/// What a connection begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How many calls that their callers gave up may wait in a connection: a busy server must not take
/// impatience for an attack and cut off everybody who shares the connection.
const MAX_GIVEN_UP: usize = 100_000;
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

/// What callers may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The connections there are.
    pub visitors: Arc<Visitors>,
    /// The time from connecting until the rules of HTTP/2 are agreed on.
    pub handshake: Duration,
    /// How often a silent peer is asked whether it is there.
    pub keep_alive: Duration,
    /// What the bodies of known callers share with the API's.
    pub bodies: Arc<Budget>,
    /// What the bodies of all others share.
    pub strangers: Arc<Budget>,
    /// Calls of all others under way.
    pub turns: Arc<Budget>,
}

impl Limits {
    /// So many connections of one address, so long a handshake, and this for known bodies.
    #[must_use]
    pub fn new(per_client: Option<u32>, handshake: Duration, bodies: Arc<Budget>) -> Self {
        Self {
            visitors: Visitors::new(per_client, MOST_CONNECTIONS),
            handshake,
            keep_alive: Dialing::default().keep_alive,
            bodies,
            strangers: Budget::new(STRANGERS),
            turns: Budget::new(STRANGE_CALLS),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(None, Duration::from_secs(5), Budget::new(BODIES))
    }
}

/// Serves calls from `listener` until the answer is dropped.
///
/// # Errors
/// The listener has no address.
pub fn serve(
    listener: TcpListener,
    service: Arc<dyn Dispatch>,
    limits: Limits,
) -> std::io::Result<RpcServer> {
    let addr = listener.local_addr()?;
    let accept = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => match limits.visitors.enter(peer.ip()) {
                        Some(visit) => {
                            let (service, limits) = (service.clone(), limits.clone());
                            connections.spawn(async move {
                                let _visit = visit;
                                connection(stream, peer, service, limits).await;
                            });
                        }
                        None => tracing::debug!(%peer, "rpc: too many connections"),
                    },
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

async fn connection(
    mut stream: TcpStream,
    peer: SocketAddr,
    service: Arc<dyn Dispatch>,
    limits: Limits,
) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!("rpc: no TCP_NODELAY: {e}");
    }
    let mut first = [0; PREFACE.len()];
    let said = tokio::time::timeout(limits.handshake, stream.read_exact(&mut first)).await;
    if !matches!(said, Ok(Ok(_))) || first != *PREFACE {
        tracing::debug!(%peer, "rpc: no HTTP/2 in time");
        return;
    }
    let keep_alive = limits.keep_alive;
    let answer = hyper::service::service_fn(move |request| {
        let (service, limits) = (service.clone(), limits.clone());
        async move { Ok::<_, Infallible>(answer(request, peer, service, limits).await) }
    });
    let (read, write) = stream.into_split();
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_GIVEN_UP)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(keep_alive)
        .serve_connection(TokioIo::new(join(PREFACE.chain(read), write)), answer)
        .await;
    if let Err(e) = served {
        tracing::debug!(%peer, "rpc: connection ended: {e}");
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    service: Arc<dyn Dispatch>,
    limits: Limits,
) -> Response<Full<Bytes>> {
    match call(request, peer, service, &limits).await {
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
    limits: &Limits,
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
        node: text(NODE_HEADER),
    };
    let room = Room::of(&call, peer, &service, limits).await?;
    let timeout = timeout.min(room.timeout);
    let mut hold = room.bodies.hold(peer.ip());
    let taken = gather(request.into_body(), room.rules, &mut hold);
    let body = tokio::time::timeout(timeout, taken)
        .await
        .map_err(|_| late(&name))??;
    tokio::time::timeout(timeout, service.dispatch(&name, call, body))
        .await
        .unwrap_or_else(|_| Err(late(&name)))
}

fn late(name: &str) -> ApiError {
    ApiError::new(Code::Timeout, format!("{name} took too long"))
}

/// What one call may take.
struct Room<'l> {
    bodies: &'l Arc<Budget>,
    rules: Rules,
    timeout: Duration,
    /// One of the turns of those who are not known.
    _turn: Option<Hold>,
}

impl<'l> Room<'l> {
    async fn of(
        call: &Call,
        peer: SocketAddr,
        service: &Arc<dyn Dispatch>,
        limits: &'l Limits,
    ) -> Result<Self, ApiError> {
        // Taken before he is looked up, so that looking up is bounded as well.
        let mut turn = limits.turns.hold(peer.ip());
        let strange = turn.try_take(1);
        let named = !call.node.is_empty() || !call.token.is_empty();
        if (strange.is_ok() || named) && service.knows(call).await {
            return Ok(Self {
                bodies: &limits.bodies,
                rules: rules(MAX_BODY, true),
                timeout: DEFAULT_TIMEOUT,
                _turn: None,
            });
        }
        strange.map_err(|refusal| ApiError::new(Code::Unavailable, refusal.message))?;
        Ok(Self {
            bodies: &limits.strangers,
            rules: rules(STRANGER_BODY, false),
            timeout: STRANGE_TIMEOUT,
            _turn: Some(turn),
        })
    }
}

fn rules(limit: usize, patient: bool) -> Rules {
    Rules {
        limit,
        linger: false,
        patient,
        begin: BEGIN,
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
