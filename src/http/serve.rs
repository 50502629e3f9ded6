//! The router on each connection that is let in, over HTTP/1.1 and HTTP/2, and an orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::called;
use super::request::Remote;
use super::socket::SocketLine;
use crate::error::Refusal;
use crate::net::{
    Arrival, Door, HTTP_BUFFER, Host, LEAVING, Listener, PARTING, Peer, Prefixed, Stream, Visit,
    Visitors, accept, reloaded, until,
};
use crate::rpc::duplex::{Duplex, bytes_of};
use crate::rpc::forward::{Answered, Question, Web};

/// Longest time the headers of a further request may take, and a connection lie idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open requests have once the server is to stop.
const GRACE: Duration = Duration::from_secs(1);
/// Requests that one connection of HTTP/2 may have open.
const STREAMS: u32 = 32;
/// The answer to a caller that has too many requests open.
const TOO_MANY_REQUESTS: &str =
    "Your IP is issuing too many concurrent requests, please rate limit your calls\n";
/// What may come in over HTTP/2 before it is read, bytes: of a request, and of a connection.
const WINDOW: u32 = 64 << 10;
/// The longest headers of a request over HTTP/2, bytes.
const MAX_HEADERS: u32 = 16 << 10;
/// What HTTP/2 begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves until it is to stop; open requests then have some seconds to end.
pub async fn serve(listener: Listener, router: Router, door: Door, stop: CancellationToken) {
    let visitors = Arc::clone(&door.visitors);
    let front = Arc::new(Front { router, visitors });
    let open = accept(listener, front, door, stop).await;
    if tokio::time::timeout(GRACE, open.wait()).await.is_err() {
        tracing::info!("requests were still open at the end");
    }
}

/// The API for requests that were forwarded from other agents.
pub struct Forwarded {
    front: Arc<Front>,
    stop: CancellationToken,
}

impl Forwarded {
    /// The same routes as behind the doors of `visitors`.
    #[must_use]
    pub fn new(router: Router, visitors: Arc<Visitors>, stop: CancellationToken) -> Self {
        let front = Arc::new(Front { router, visitors });
        Self { front, stop }
    }
}

impl Web for Forwarded {
    fn answer(&self, peer: Peer, stream: Duplex) -> BoxFuture<'static, ()> {
        let front = Arc::clone(&self.front);
        // Counted as if it had come here itself.
        let Some(visit) = front.visitors.enter(&peer) else {
            let mut stream = bytes_of(stream);
            return async move {
                let _ = stream.write_all(Front::TOO_MANY).await;
                let _ = stream.shutdown().await;
                // Until it was taken.
                let _ = tokio::time::timeout(GRACE, stream.read_to_end(&mut Vec::new())).await;
            }
            .boxed();
        };
        let arrival = Arrival {
            stream: Stream::Carried(bytes_of(stream)),
            peer,
            due: Instant::now() + HEADER_TIMEOUT,
            stop: self.stop.clone(),
            reloads: watch::channel(()).1,
        };
        async move {
            let _visit = visit;
            front.first(arrival).await;
        }
        .boxed()
    }

    fn ask(&self, peer: Peer, question: Question) -> BoxFuture<'static, Result<Answered, Refusal>> {
        called::ask(self.front.router.clone(), peer, question).boxed()
    }
}

/// The routes behind a door.
struct Front {
    router: Router,
    visitors: Arc<Visitors>,
}

impl Host for Front {
    const NAME: &'static str = "http";

    /// As Nomad answers it.
    const TOO_MANY: &'static [u8] = b"HTTP/1.1 429 Too Many Requests\r\n\
        Content-Type: text/plain\r\nContent-Length: 81\r\nConnection: close\r\n\r\n\
        Your IP is issuing too many concurrent connections, please rate limit your calls\n";

    const EXCEEDED: Option<&'static str> = Some("nomad.nomad.agent.http.exceeded");

    const TLS_ONLY: &'static [u8] = b"HTTP/1.0 400 Bad Request\r\n\r\n\
        Client sent an HTTP request to an HTTPS server.\n";

    async fn receive(&self, arrival: Arrival) {
        match arrival.stream.protocol() {
            Some(b"h2") => self.second(arrival).await,
            _ => self.first(arrival).await,
        }
    }
}

/// One connection, as its requests see it.
#[derive(Clone)]
struct Visitor {
    router: Router,
    visitors: Arc<Visitors>,
    peer: Peer,
    state: Arc<ConnectionState>,
    line: SocketLine,
}

/// What is going on on a connection.
struct ConnectionState {
    /// Whether any request came.
    spoke: AtomicBool,
    /// Requests that are not answered to the end, and since when there is none.
    open: Mutex<(usize, Instant)>,
}

impl Visitor {
    fn answer(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send + use<> {
        self.state.spoke.store(true, Ordering::Relaxed);
        let extensions = request.extensions_mut();
        if let Some(address) = self.peer.address {
            extensions.insert(Remote(address));
        }
        extensions.insert(self.peer.clone());
        extensions.insert(self.line.clone());
        self.router.clone().call(request)
    }

    /// The same where several requests are open at once: they are counted, and all but one count
    /// as connections of their own, for an answer that is not taken in costs as much.
    fn counted(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send + use<> {
        let open = Open::new(&self.state);
        let visit = match self.state.open.lock().0 {
            1 => Ok(None),
            _ => self.visitors.enter(&self.peer).map(Some).ok_or(()),
        };
        let answer = visit.map(|visit| (visit, self.answer(request)));
        async move {
            let Ok((visit, answer)) = answer else {
                let refused = (StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS);
                return Ok(refused.into_response());
            };
            let answer = answer.await?;
            let counted = |body| Counted {
                body,
                _open: open,
                _visit: visit,
            };
            Ok(answer.map(|body| Body::new(counted(body))))
        }
    }
}

/// A request that is not answered to the end.
struct Open(Arc<ConnectionState>);

impl Open {
    fn new(state: &Arc<ConnectionState>) -> Self {
        state.open.lock().0 += 1;
        Self(Arc::clone(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        open.0 -= 1;
        open.1 = Instant::now();
    }
}

/// The body of an answer that counts as open until it is gone.
struct Counted {
    body: Body,
    _open: Open,
    _visit: Option<Visit>,
}

impl hyper::body::Body for Counted {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Front {
    fn visitor(&self, peer: Peer, stop: &CancellationToken) -> Visitor {
        let state = ConnectionState {
            spoke: AtomicBool::new(false),
            open: Mutex::new((0, Instant::now())),
        };
        Visitor {
            router: self.router.clone(),
            visitors: Arc::clone(&self.visitors),
            peer,
            state: Arc::new(state),
            line: SocketLine::new(stop.clone()),
        }
    }

    /// HTTP/1.1: served until its caller goes, or until it is to stop: then the last request is
    /// answered. A connection that becomes another is one until that ends.
    async fn first(&self, arrival: Arrival) {
        let visitor = self.visitor(arrival.peer.clone(), &arrival.stop);
        let line = visitor.line.clone();
        self.serve_requests(arrival, visitor).await;
        line.ended().await;
    }

    async fn serve_requests(&self, arrival: Arrival, visitor: Visitor) {
        let mut reloaded = std::pin::pin!(reloaded(reloads_of(&arrival), PARTING));
        let Arrival {
            stream, due, stop, ..
        } = arrival;
        let (of, state) = (visitor.clone(), Arc::clone(&visitor.state));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HTTP_BUFFER)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| of.answer(request)),
            )
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let mut late = std::pin::pin!(sleep_until(due));
        let (mut in_time, mut stopping, mut gone_by) = (false, false, None);
        let peer = &visitor.peer;
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = &mut late, if !in_time => {
                    if !state.spoke.load(Ordering::Relaxed) {
                        return tracing::trace!(%peer, "sent no request in time");
                    }
                    in_time = true;
                }
                () = stop.cancelled(), if !stopping => {
                    connection.as_mut().graceful_shutdown();
                    stopping = true;
                }
                () = reloaded.as_mut(), if !stopping => {
                    connection.as_mut().graceful_shutdown();
                    (stopping, gone_by) = (true, Some(Instant::now() + LEAVING));
                }
                () = until(gone_by) => return tracing::trace!(%peer, "closed: new certificates"),
            }
        };
        if let Err(error) = ended {
            tracing::trace!(%error, %peer, "connection ended");
        }
    }

    /// HTTP/2: the same, many requests at once; a connection without one is ended after a while.
    async fn second(&self, arrival: Arrival) {
        let mut reloaded = std::pin::pin!(reloaded(reloads_of(&arrival), PARTING));
        let Arrival {
            mut stream,
            peer,
            due,
            stop,
            ..
        } = arrival;
        let mut first = [0; PREFACE.len()];
        let begun = timeout_at(due, stream.read_exact(&mut first)).await;
        if !matches!(begun, Ok(Ok(_))) || first != *PREFACE {
            return tracing::trace!(%peer, "no HTTP/2 in time");
        }
        let visitor = self.visitor(peer, &stop);
        let (of, state) = (visitor.clone(), Arc::clone(&visitor.state));
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buf_size(HTTP_BUFFER / 4)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(HEADER_TIMEOUT)
            .keep_alive_timeout(HEADER_TIMEOUT)
            .serve_connection(
                TokioIo::new(Prefixed::<Stream>::new(PREFACE, stream)),
                service_fn(move |request| of.counted(request)),
            );
        let mut connection = std::pin::pin!(connection);
        let (mut stopping, mut gone_by) = (false, None);
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = idle(&state, due, HEADER_TIMEOUT), if !stopping => {
                    connection.as_mut().graceful_shutdown();
                    stopping = true;
                }
                () = stopped(&stop), if !stopping => {
                    connection.as_mut().graceful_shutdown();
                    stopping = true;
                }
                () = reloaded.as_mut(), if !stopping => {
                    connection.as_mut().graceful_shutdown();
                    (stopping, gone_by) = (true, Some(Instant::now() + LEAVING));
                }
                () = until(gone_by) => {
                    return tracing::trace!(peer = %visitor.peer, "closed: new certificates");
                }
            }
        };
        if let Err(error) = ended {
            tracing::trace!(%error, peer = %visitor.peer, "connection ended");
        }
    }
}

/// A caller that showed a certificate has to show it again once certificates were loaded anew;
/// others are left alone.
fn reloads_of(arrival: &Arrival) -> watch::Receiver<()> {
    match arrival.peer.certificate {
        Some(_) => arrival.reloads.clone(),
        None => watch::channel(()).1,
    }
}

async fn stopped(stop: &CancellationToken) {
    stop.cancelled().await;
}

/// Ready when nothing is open for so long that the connection has to end.
async fn idle(state: &ConnectionState, due: Instant, quiet: Duration) {
    loop {
        let (open, since) = *state.open.lock();
        let ends = match state.spoke.load(Ordering::Relaxed) {
            true => since + quiet,
            false => due,
        };
        let now = Instant::now();
        if open == 0 && ends <= now {
            return;
        }
        let again = if open == 0 {
            ends
        } else {
            now + HEADER_TIMEOUT
        };
        sleep_until(again).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            spoke: AtomicBool::new(false),
            open: Mutex::new((0, Instant::now())),
        })
    }

    #[tokio::test]
    async fn what_is_forwarded_counts_as_a_connection_of_who_forwards_it() {
        let router = Router::new().fallback(|| async {
            std::future::pending::<()>().await;
        });
        let visitors = Visitors::new(Some(1), 10);
        let forwarded = Forwarded::new(router, visitors, CancellationToken::new());
        let peer = Peer {
            address: Some("10.0.0.1:1".parse().unwrap()),
            ..Peer::default()
        };
        let ask = || {
            let (near, far) = Duplex::pair(crate::rpc::duplex::Keepalive::SESSION);
            let answered = forwarded.answer(peer.clone(), far);
            (bytes_of(near), tokio::spawn(answered))
        };
        let (mut first, served) = ask();
        first
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let (mut second, refused) = ask();
        let mut answer = String::new();
        second.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        drop(second);
        refused.await.unwrap();
        // A connection that ends makes space for another.
        drop(first);
        served.await.unwrap();
        let (mut third, _) = ask();
        third.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        third.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_of_many_requests_ends_when_none_is_open_for_long() {
        let (quiet, soon) = (Duration::from_millis(20), Duration::from_secs(30));
        let silent = state();
        let due = Instant::now() + quiet;
        idle(&silent, due, soon).await;
        assert!(Instant::now() >= due, "no request was sent in time");

        let busy = state();
        busy.spoke.store(true, Ordering::Relaxed);
        let open = Open::new(&busy);
        let mut ends = std::pin::pin!(idle(&busy, due, quiet));
        let waited = tokio::time::timeout(quiet * 10, ends.as_mut()).await;
        assert!(waited.is_err(), "a request is open");
        drop(open);
        let over = Instant::now();
        tokio::time::timeout(soon, ends).await.expect("it ends");
        assert!(over.elapsed() >= quiet / 2, "it was idle for a moment");
    }
}
