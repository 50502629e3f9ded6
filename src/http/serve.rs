//! The accept loop: connections in, the router on each of them, an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::request::Remote;
use crate::net::{HTTP_BUFFER, Refusals, Seldom, Visit, Visitors};

/// Longest time the headers of a further request may take, and a connection lie idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open requests have once the server is told to stop.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after the system refused a connection (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long somebody who is turned away has to take his answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// What one of too many connections is told, as Nomad tells it.
const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\n\
    Content-Length: 81\r\nConnection: close\r\n\r\n\
    Your IP is issuing too many concurrent connections, please rate limit your calls\n";

/// Who is let in, and how long he may take to say what he wants.
#[derive(Clone, Debug)]
pub struct Door {
    /// The connections there are.
    pub visitors: Arc<Visitors>,
    /// The time from connecting to the end of the first request's headers.
    pub handshake: Duration,
}

/// Serves until told to stop; open requests then have some seconds to end.
pub async fn serve(listener: TcpListener, router: Router, door: Door, stop: CancellationToken) {
    let open = TaskTracker::new();
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HTTP_BUFFER);
    let mut refusals = Refusals::default();
    let mut fault = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, remote)) => match door.visitors.enter(remote.ip()) {
                Some(visit) => {
                    let visitor = Visitor {
                        stream,
                        remote,
                        visit,
                        handshake: door.handshake,
                    };
                    open.spawn(visitor.connect(&builder, &router, stop.clone()));
                }
                None => turn_away(stream, &mut refusals),
            },
            Err(error) => {
                if fault.is_due() {
                    tracing::warn!(%error, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    open.close();
    if tokio::time::timeout(GRACE, open.wait()).await.is_err() {
        tracing::info!("requests were still open at the end");
    }
}

/// Tells one of too many why; where there are far too many, the connection just ends.
fn turn_away(mut stream: TcpStream, refusals: &mut Refusals) {
    if refusals.word() {
        tokio::spawn(async move {
            let told = tokio::time::timeout(FAREWELL, async {
                stream.write_all(TOO_MANY.as_bytes()).await?;
                stream.shutdown().await
            });
            if let Ok(Err(error)) = told.await {
                tracing::trace!(%error, "nobody heard that he is one too many");
            }
        });
    }
}

/// Somebody who was let in.
struct Visitor {
    stream: TcpStream,
    remote: SocketAddr,
    visit: Visit,
    handshake: Duration,
}

impl Visitor {
    /// Serves him until he goes, or until told to stop: then what he asked last is answered.
    fn connect(
        self,
        builder: &Builder,
        router: &Router,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (remote, visit, handshake) = (self.remote, self.visit, self.handshake);
        if let Err(error) = self.stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot switch off delays");
        }
        let spoke = Arc::new(AtomicBool::new(false));
        let router = router.clone();
        let service = {
            let spoke = Arc::clone(&spoke);
            service_fn(move |mut request: hyper::Request<Incoming>| {
                spoke.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(Remote(remote));
                router.clone().call(request)
            })
        };
        let connection = builder
            .serve_connection(TokioIo::new(self.stream), service)
            .with_upgrades();
        async move {
            let _visit = visit;
            let mut connection = std::pin::pin!(connection);
            let late = tokio::time::sleep(handshake);
            let mut late = std::pin::pin!(late);
            let (mut in_time, mut stopping) = (false, false);
            let ended = loop {
                tokio::select! {
                    ended = connection.as_mut() => break ended,
                    () = &mut late, if !in_time => {
                        if !spoke.load(Ordering::Relaxed) {
                            return tracing::trace!(%remote, "asked nothing in time");
                        }
                        in_time = true;
                    }
                    () = stop.cancelled(), if !stopping => {
                        connection.as_mut().graceful_shutdown();
                        stopping = true;
                    }
                }
            };
            if let Err(error) = ended {
                tracing::trace!(%error, %remote, "connection ended");
            }
        }
    }
}
