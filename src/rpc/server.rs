//! Offers a service on a port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Dialing;
use super::duplex::{Half, OutBody};
use super::guest::{Answer, Guest, StreamSlot, Wire};
use super::service::{Call, Dispatch};
use super::wire::{
    CONNECTION_WINDOW, ERROR_HEADER, MAX_BODY, NODE_HEADER, PATH, RETRY_HEADER, STRANGER_BODY,
    STREAM_WINDOW, TIMEOUT_HEADER, TOKEN_HEADER, VERSION, VERSION_HEADER, code_name,
};
use drover_error::{Code, Refusal};
use drover_net::body::{BEGIN, BodyRules, Linger, gather};
use drover_net::tls::{Loader, Port};
use drover_net::{
    Arrival, BODIES, Budget, Door, Hold, Host, LEAVING, Listener, PARTING, Patience, Peer,
    Prefixed, STRANGERS, Visitors, accept, most_connections, reloaded, until,
};

/// How many calls one connection may have open once a node proved itself on it: every simulated
/// node waits in one.
const MAX_STREAMS: u32 = 100_000;
/// Calls under way of callers that proved nothing.
const STRANGE_CALLS: usize = 4_096;
/// How long such a call may take, its body included.
const STRANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// Callers that say who they are and are looked up.
const LOOKUPS: usize = 256;
/// How long that may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take to be sent, whatever its length.
const SENDING: Duration = Duration::from_secs(30);
/// The longest headers of a call, bytes.
const MAX_HEADERS: u32 = 8 << 10;
/// What a connection begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How many calls that their callers gave up may wait in a connection: a busy server must not take
/// impatience for an attack and cut off all callers that share the connection.
const MAX_GIVEN_UP: usize = 100_000;
/// How long a call may take that names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(330);
/// The answer to a caller that speaks clear text where TLS is spoken: rules of HTTP/2, empty, and
/// the end (INADEQUATE_SECURITY) with the word of [`super::wire::TLS_ONLY`].
const REBUFF: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x20\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c\
    this port takes TLS only";

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct RpcServer {
    addr: SocketAddr,
    stop: CancellationToken,
}

impl RpcServer {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What callers may take.
#[derive(Clone, Debug)]
pub struct CallerLimits {
    /// The connections there are.
    pub visitors: Arc<Visitors>,
    /// The time from connecting until the rules of HTTP/2 are agreed on.
    pub handshake: Patience,
    /// The certificates.
    pub tls: Arc<Loader>,
    /// How often a silent peer is pinged.
    pub keep_alive: Duration,
    /// What the bodies of known callers share with the API's.
    pub bodies: Arc<Budget>,
    /// What the bodies of all others share.
    pub strangers: Arc<Budget>,
    /// Calls of all others under way, until their answers are sent.
    pub turns: Arc<Budget>,
    /// Callers being looked up.
    pub lookups: Arc<Budget>,
    /// How long an answer may take to be sent.
    pub sending: Duration,
    /// Over how long a time connections are closed once certificates were loaded anew: not all
    /// agents dial anew at once.
    pub parting: Duration,
    /// How long what is open on them may go on then.
    pub leaving: Duration,
}

impl CallerLimits {
    /// So many connections of one address, so long a handshake, and this for known bodies.
    #[must_use]
    pub fn new(per_client: Option<u32>, handshake: Duration, bodies: Arc<Budget>) -> Self {
        Self {
            visitors: Visitors::new(per_client, most_connections()),
            handshake: Patience::new(handshake),
            tls: Loader::clear(),
            keep_alive: Dialing::default().keep_alive,
            bodies,
            strangers: Budget::new(STRANGERS),
            turns: Budget::new(STRANGE_CALLS),
            lookups: Budget::new(LOOKUPS),
            sending: SENDING,
            parting: PARTING,
            leaving: LEAVING,
        }
    }
}

impl Default for CallerLimits {
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
    limits: CallerLimits,
) -> std::io::Result<RpcServer> {
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let door = Door {
        visitors: Arc::clone(&limits.visitors),
        patience: limits.handshake.clone(),
        tls: Arc::clone(&limits.tls),
        port: Port::Rpc,
    };
    let calls = Arc::new(Calls { service, limits });
    tokio::spawn(accept(Listener::Tcp(listener), calls, door, stop.clone()));
    Ok(RpcServer { addr, stop })
}

/// The methods behind a door.
struct Calls {
    service: Arc<dyn Dispatch>,
    limits: CallerLimits,
}

impl Host for Calls {
    const NAME: &'static str = "rpc";
    const TOO_MANY: &'static [u8] = b"";
    const TLS_ONLY: &'static [u8] = REBUFF;

    async fn receive(&self, arrival: Arrival) {
        let stop = arrival.stop.clone();
        tokio::select! {
            () = connection(arrival, &self.service, &self.limits) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn connection(arrival: Arrival, service: &Arc<dyn Dispatch>, limits: &CallerLimits) {
    let Arrival {
        mut stream,
        peer,
        due,
        reloads,
        ..
    } = arrival;
    let mut first = [0; PREFACE.len()];
    let read = tokio::time::timeout_at(due, stream.read_exact(&mut first)).await;
    if !matches!(read, Ok(Ok(_))) || first != *PREFACE {
        tracing::debug!(%peer, "rpc: no HTTP/2 in time");
        return;
    }
    let (keep_alive, leaving) = (limits.keep_alive, limits.leaving);
    let mut reload = std::pin::pin!(reloaded(reloads, limits.parting));
    let guest = Guest::new(limits.sending);
    let entered = Arc::clone(&guest);
    let from = Arc::new(peer.clone());
    let (service, limits) = (Arc::clone(service), limits.clone());
    let answer = hyper::service::service_fn(move |request| {
        let (service, limits) = (service.clone(), limits.clone());
        let from = Arc::clone(&from);
        // Counted here, before anything is done for it.
        let place = entered.enter();
        // On the heap: a stream that is answered for hours does not keep the memory of how it
        // began.
        Box::pin(async move {
            Ok::<_, Infallible>(answer(request, &from, service, limits, place).await)
        })
    });
    let wire = Wire {
        stream: Prefixed::new(PREFACE, stream),
        guest: Arc::clone(&guest),
    };
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_GIVEN_UP)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(keep_alive)
        .serve_connection(TokioIo::new(wire), answer);
    let mut served = std::pin::pin!(served);
    let mut gone_by = None;
    loop {
        tokio::select! {
            served = served.as_mut() => {
                if let Err(e) = served {
                    tracing::debug!(%peer, "rpc: connection ended: {e}");
                }
                return;
            }
            () = guest.outstayed() => {
                tracing::debug!(%peer, "rpc: connection ended: too much is open or not taken");
                return;
            }
            () = until(gone_by) => return tracing::debug!(%peer, "rpc: closed: new certificates"),
            // What is under way comes to its end; the next call shows what its caller has now, and
            // streams that stand are to move.
            () = reload.as_mut(), if gone_by.is_none() => {
                gone_by = Some(Instant::now() + leaving);
                served.as_mut().graceful_shutdown();
                guest.parting().cancel();
            }
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: &Peer,
    service: Arc<dyn Dispatch>,
    limits: CallerLimits,
    mut place: StreamSlot,
) -> Response<Answer> {
    match call(request, peer, service, &limits, &mut place).await {
        Ok(CallResponse::Whole(body)) => Response::new(place.answer(body)),
        Ok(CallResponse::Flow(body)) => Response::new(place.stream(body)),
        Err(e) => {
            let mut response = Response::new(place.answer(Bytes::from(e.message)));
            *response.status_mut() = StatusCode::from_u16(drover_net::status(e.code))
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if let Ok(code) = code_name(e.code).parse() {
                response.headers_mut().insert(ERROR_HEADER, code);
            }
            if e.retry_after > 0 {
                let after = e.retry_after.into();
                response.headers_mut().insert(RETRY_HEADER, after);
            }
            response
        }
    }
}

/// What is answered to a call.
enum CallResponse {
    Whole(Bytes),
    Flow(OutBody),
}

async fn call(
    request: Request<Incoming>,
    peer: &Peer,
    service: Arc<dyn Dispatch>,
    limits: &CallerLimits,
    place: &mut StreamSlot,
) -> Result<CallResponse, Refusal> {
    if place.guest().is_ended() {
        return Err(Refusal::new(Code::Unavailable, "the connection ends"));
    }
    let text = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let Some(name) = request.uri().path().strip_prefix(PATH).map(str::to_owned) else {
        return Err(Refusal::new(
            Code::NotFound,
            "this port serves calls below /rpc/ only",
        ));
    };
    if request.method() != Method::POST {
        return Err(Refusal::new(
            Code::MethodNotAllowed,
            "calls are POST requests",
        ));
    }
    let version = text(VERSION_HEADER);
    if version != VERSION {
        let text = format!("rpc version {version:?} is not spoken here, but {VERSION}");
        return Err(Refusal::new(Code::BadRequest, text));
    }
    let timeout = text(TIMEOUT_HEADER).parse().map_or(DEFAULT_TIMEOUT, |ms| {
        Duration::from_millis(ms).min(DEFAULT_TIMEOUT)
    });
    let call = Call {
        addr: peer.ip().to_string(),
        certificate: peer.certificate.clone(),
        token: text(TOKEN_HEADER),
        node: text(NODE_HEADER),
        parting: place.guest().parting().clone(),
        ..Call::default()
    };
    let mut space = CallAllowance::of(&call, peer, &service, limits, place.guest()).await?;
    place.keep(space.turn.take());
    let timeout = timeout.min(space.timeout);
    if let Some(keepalive) = service.streams(&name) {
        if space.strange {
            return Err(Refusal::permission_denied());
        }
        let (half, body) = Half::new(keepalive);
        let stream = half.join(request.into_body());
        return tokio::time::timeout(timeout, service.open(&name, call, stream))
            .await
            .unwrap_or_else(|_| Err(late(&name)))
            .map(|()| CallResponse::Flow(body));
    }
    let mut hold = space.bodies.hold(peer.ip());
    let taken = gather(request.into_body(), space.rules, &mut hold);
    let body = tokio::time::timeout(timeout, taken)
        .await
        .map_err(|_| late(&name))??;
    tokio::time::timeout(timeout, service.dispatch(&name, call, body))
        .await
        .unwrap_or_else(|_| Err(late(&name)))
        .map(CallResponse::Whole)
}

fn late(name: &str) -> Refusal {
    Refusal::new(Code::Timeout, format!("{name} took too long"))
}

/// What one call may take.
struct CallAllowance<'l> {
    bodies: &'l Arc<Budget>,
    rules: BodyRules,
    timeout: Duration,
    /// Whether no caller proved itself.
    strange: bool,
    /// One of the turns of callers that are not known.
    turn: Option<Hold>,
}

impl<'l> CallAllowance<'l> {
    async fn of(
        call: &Call,
        peer: &Peer,
        service: &Arc<dyn Dispatch>,
        limits: &'l CallerLimits,
        guest: &Guest,
    ) -> Result<Self, Refusal> {
        if guest.is_proved() || looked_up(call, peer, service, limits).await? {
            guest.prove();
            return Ok(Self {
                bodies: &limits.bodies,
                rules: rules(MAX_BODY, true),
                timeout: DEFAULT_TIMEOUT,
                strange: false,
                turn: None,
            });
        }
        let mut turn = limits.turns.hold(peer.ip());
        turn.try_take(1).map_err(unavailable)?;
        Ok(Self {
            bodies: &limits.strangers,
            rules: rules(STRANGER_BODY, false),
            timeout: STRANGE_TIMEOUT,
            strange: true,
            turn: Some(turn),
        })
    }
}

/// Whether the caller is what it says it is. A caller may say anything, so only so many are looked
/// up at once, and for so long; one that finds them all taken has to try again.
async fn looked_up(
    call: &Call,
    peer: &Peer,
    service: &Arc<dyn Dispatch>,
    limits: &CallerLimits,
) -> Result<bool, Refusal> {
    let mut lookup = limits.lookups.hold(peer.ip());
    lookup.try_take(1).map_err(unavailable)?;
    let known = tokio::time::timeout(LOOKUP_TIMEOUT, service.knows(call)).await;
    known.map_err(|_| Refusal::new(Code::Unavailable, "looking the caller up took too long"))
}

fn unavailable(refusal: Refusal) -> Refusal {
    Refusal::new(Code::Unavailable, refusal.message)
}

fn rules(limit: usize, patient: bool) -> BodyRules {
    BodyRules {
        limit,
        linger: Linger::Never,
        patient,
        begin: BEGIN,
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
