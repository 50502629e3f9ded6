//! Connections to servers, shared by all calls.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex as SyncMutex;
use rustls::ClientConfig;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::duplex::{Duplex, Half, Keepalive, Outgoing};
use super::methods::{Empty, StatusPing};
use super::service::Call;
use super::wire::{
    self, CONNECTION_WINDOW, MAX_BODY, NODE_HEADER, PATH, STREAM_WINDOW, TIMEOUT_HEADER, TLS_ONLY,
    TOKEN_HEADER, VERSION, VERSION_HEADER, refusal,
};
use super::{Rpc, RpcError};
use drover_net::Stream;
use drover_net::tls::{Fault, Loader, explain};

/// How connections are made and kept (`rpc` of the agent's configuration).
#[derive(Clone, Debug)]
pub struct Dialing {
    /// How long a connection may take.
    pub timeout: Duration,
    /// How often a silent server is pinged.
    pub keep_alive: Duration,
    /// The certificates.
    pub tls: Arc<Loader>,
    /// The most that waits in the system to be sent, bytes; none: as it likes. What waits there
    /// holds up whatever comes after it.
    pub unsent: Option<u32>,
}

impl Default for Dialing {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
            tls: Loader::clear(),
            unsent: None,
        }
    }
}

/// Of connections for streams: on a slow one a sign of life comes through beside much else.
const UNSENT: u32 = 256 << 10;

type Sender = SendRequest<Outgoing>;

/// A connection, and why it ended once it has.
#[derive(Clone, Debug)]
struct Connection {
    sender: Sender,
    /// What was encrypted with, if anything was.
    tls: Option<Arc<ClientConfig>>,
    /// Whether nothing more goes over it, but what does already.
    left: CancellationToken,
    ended: watch::Receiver<Option<String>>,
}

/// The connection that a stream goes over.
#[derive(Debug)]
pub struct Carrier {
    addr: String,
    line: Connection,
    dialing: Dialing,
}

impl Carrier {
    /// Where the server is.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Nothing more is begun on it: the server wants callers to come by another.
    pub fn leave(&self) {
        self.line.left.cancel();
    }

    /// Ready once what is begun now goes over another connection: it was left, or certificates
    /// were loaded anew here. Where it broke, the stream says so.
    pub async fn parts(&self) {
        let mut reloads = self.dialing.tls.reloads();
        while self.line.serves(&self.dialing) {
            tokio::select! {
                () = self.line.left.cancelled() => return,
                // No error: the loader that says so is held here.
                _ = reloads.changed() => {}
            }
        }
    }
}

/// How long a connection that breaks may take to say why.
const WHY: Duration = Duration::from_millis(200);

impl Connection {
    /// Whether a call may go over it: it stands, and is made as one would be made now. What was
    /// begun before certificates were loaded anew ends where it was begun.
    fn serves(&self, how: &Dialing) -> bool {
        let now = how.tls.dial().map(|(config, _)| config);
        let same = match (&self.tls, &now) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same && !self.left.is_cancelled() && !self.sender.is_closed()
    }

    /// An error of a request in words: often the connection knows better why than the request.
    async fn lost(&mut self, addr: &str, error: &hyper::Error) -> RpcError {
        let mut text = in_words(error);
        if error.is_canceled() || error.is_closed() {
            let why = tokio::time::timeout(WHY, self.ended.wait_for(Option::is_some)).await;
            if let Ok(Ok(why)) = why
                && let Some(why) = why.as_deref()
            {
                why.clone_into(&mut text);
            }
        }
        RpcError::Unreachable(format!("{addr}: {text}"))
    }
}

/// Connections by address; each carries any number of calls at once.
#[derive(Clone, Debug)]
pub struct Pool {
    per_server: usize,
    dialing: Dialing,
    servers: Arc<SyncMutex<HashMap<String, Arc<Connections>>>>,
}

#[derive(Debug)]
struct Connections {
    dialing: Dialing,
    slots: Vec<Mutex<Option<Connection>>>,
    turn: AtomicUsize,
}

impl Pool {
    /// A pool with so many connections to each server.
    pub fn new(per_server: usize) -> Self {
        Self::dialing(per_server, Dialing::default())
    }

    /// The same, with connections that are made and kept as configured.
    pub fn dialing(per_server: usize, dialing: Dialing) -> Self {
        Self {
            per_server: per_server.max(1),
            dialing,
            servers: Arc::default(),
        }
    }

    /// Another pool of as many connections for streams, made and kept the same way.
    #[must_use]
    pub fn for_streams(&self) -> Self {
        let dialing = Dialing {
            unsent: Some(UNSENT),
            ..self.dialing.clone()
        };
        Self::dialing(self.per_server, dialing)
    }

    fn connections(&self, addr: &str) -> Arc<Connections> {
        let mut servers = self.servers.lock();
        let connections = servers.entry(addr.to_owned()).or_insert_with(|| {
            let slots = (0..self.per_server).map(|_| Mutex::new(None)).collect();
            Arc::new(Connections {
                dialing: self.dialing.clone(),
                slots,
                turn: AtomicUsize::new(0),
            })
        });
        connections.clone()
    }

    /// Calls a method by name, as `call` says who, and waits for its answer, `timeout` long.
    ///
    /// # Errors
    /// The refusal, or why there was no answer.
    pub async fn call(
        &self,
        addr: &str,
        name: &'static str,
        call: Call,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RpcError> {
        let body = Outgoing::Whole(Full::new(body));
        let request = request(addr, name, &call, body, timeout)?;
        let answered = async { taken(addr, self.send(addr, &call, request).await?.0).await };
        tokio::time::timeout(timeout, answered)
            .await
            .unwrap_or(Err(RpcError::TimedOut(name)))
    }

    /// Opens a stream by name, which begins with a message; it is accepted within `timeout`. Beside
    /// it is the connection that it goes over.
    ///
    /// # Errors
    /// The refusal, or why there was no answer.
    pub async fn open(
        &self,
        addr: &str,
        (name, keepalive): (&'static str, Keepalive),
        call: Call,
        first: Bytes,
        timeout: Duration,
    ) -> Result<(Duplex, Carrier), RpcError> {
        let (half, body) = Half::new(keepalive);
        half.first(first);
        let request = request(addr, name, &call, Outgoing::Flow(body), timeout)?;
        let opened = async {
            let (response, line) = self.send(addr, &call, request).await?;
            let carrier = Carrier {
                addr: addr.to_owned(),
                line,
                dialing: self.dialing.clone(),
            };
            match response.status() {
                StatusCode::OK => Ok((half.join(response.into_body()), carrier)),
                _ => Err(taken(addr, response).await.err().unwrap_or_else(|| {
                    RpcError::Malformed(format!("{addr} opens no stream {name}"))
                })),
            }
        };
        tokio::time::timeout(timeout, opened)
            .await
            .unwrap_or(Err(RpcError::TimedOut(name)))
    }

    async fn send(
        &self,
        addr: &str,
        call: &Call,
        request: Request<Outgoing>,
    ) -> Result<(Response<Incoming>, Connection), RpcError> {
        let mut line = self.connections(addr).line(addr, call).await?;
        match line.sender.send_request(request).await {
            Ok(response) => Ok((response, line)),
            Err(error) => Err(line.lost(addr, &error).await),
        }
    }
}

/// Takes a whole answer in.
async fn taken(addr: &str, response: Response<Incoming>) -> Result<Bytes, RpcError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_BODY)
        .collect()
        .await
        .map_err(|e| RpcError::Unreachable(format!("{addr}: {e}")))?
        .to_bytes();
    if head.status == StatusCode::OK {
        Ok(body)
    } else {
        Err(RpcError::Api(refusal(head.status, &head.headers, &body)))
    }
}

fn request(
    addr: &str,
    name: &str,
    call: &Call,
    body: Outgoing,
    timeout: Duration,
) -> Result<Request<Outgoing>, RpcError> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{addr}{PATH}{name}"))
        .header(VERSION_HEADER, VERSION)
        .header(TIMEOUT_HEADER, timeout.as_millis().to_string())
        .header(TOKEN_HEADER, &call.token)
        .header(NODE_HEADER, &call.node)
        .body(body)
        .map_err(|e| RpcError::Malformed(format!("cannot call {name} at {addr:?}: {e}")))
}

impl Connections {
    async fn line(&self, addr: &str, call: &Call) -> Result<Connection, RpcError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[turn].lock().await;
        if let Some(line) = slot.as_ref().filter(|line| line.serves(&self.dialing)) {
            return Ok(line.clone());
        }
        let mut line = dial(addr, &self.dialing).await?;
        if !call.node.is_empty() {
            introduce(&mut line, addr, call, self.dialing.timeout).await?;
        }
        *slot = Some(line.clone());
        Ok(line)
    }
}

/// Says who calls before anything else is sent: until a node proved itself, a connection has few
/// streams, and calls that wait would take them all. What is answered does not matter.
async fn introduce(
    line: &mut Connection,
    addr: &str,
    call: &Call,
    timeout: Duration,
) -> Result<(), RpcError> {
    let nothing = Outgoing::Whole(Full::new(wire::encode(&Empty::default())?));
    let request = request(addr, StatusPing::NAME, call, nothing, timeout)?;
    let answered = tokio::time::timeout(timeout, line.sender.send_request(request)).await;
    match answered {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(line.lost(addr, &e).await),
        Err(_) => Err(RpcError::TimedOut(StatusPing::NAME)),
    }
}

async fn dial(addr: &str, how: &Dialing) -> Result<Connection, RpcError> {
    let failed = |e: &dyn std::fmt::Display| RpcError::Unreachable(format!("{addr}: {e}"));
    let (stream, tls) = tokio::time::timeout(how.timeout, reach(addr, how))
        .await
        .map_err(|e| failed(&e))?
        .map_err(|e| failed(&e))?;
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(how.keep_alive)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| failed(&in_words(&e)))?;
    let (report, ended) = watch::channel(None);
    tokio::spawn(async move {
        if let Err(e) = connection.await {
            let why = in_words(&e);
            tracing::debug!("rpc: connection ended: {why}");
            report.send_replace(Some(why));
        }
    });
    Ok(Connection {
        sender,
        tls,
        left: CancellationToken::new(),
        ended,
    })
}

async fn connect(addr: &str, unsent: Option<u32>) -> io::Result<TcpStream> {
    let Some(unsent) = unsent else {
        return TcpStream::connect(addr).await;
    };
    let mut failed = io::ErrorKind::NotFound.into();
    for addr in lookup_host(addr).await? {
        let socket = match addr {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_send_buffer_size(unsent)?;
        match socket.connect(addr).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection to a server, encrypted where this agent is configured so.
async fn reach(addr: &str, how: &Dialing) -> Result<(Stream, Option<Arc<ClientConfig>>), String> {
    let stream = connect(addr, how.unsent).await;
    let stream = stream.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let Some((config, name)) = how.tls.dial() else {
        return Ok((Stream::Tcp(stream), None));
    };
    let shaken = TlsConnector::from(Arc::clone(&config))
        .connect(name, stream)
        .await;
    let stream = shaken.map_err(|error| {
        let (fault, why) = explain(&error);
        format!(
            "TLS: the server is not taken, or does not take us: {why}{}",
            advice(fault)
        )
    })?;
    Ok((Stream::Tls(Box::new(stream.into())), Some(config)))
}

/// What to do about a handshake that failed.
fn advice(fault: Fault) -> &'static str {
    match fault {
        Fault::NotTls => "; set tls { rpc = true } on the server too, or leave it out here",
        Fault::UnknownAuthority => "; tls.ca_file here must be of the authority that signed it",
        Fault::Name => "; tls.verify_server_hostname here demands server.<region>.nomad",
        Fault::Refused | Fault::WantsCertificate => {
            "; tls.cert_file here must be for client.<region>.nomad or server.<region>.nomad and \
             of the authority in the server's tls.ca_file"
        }
        Fault::Time | Fault::Incompatible | Fault::Other => "",
    }
}

/// An error with what it came from: only there a connection's end says why.
fn in_words(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            let (fault, why) = explain(error);
            if matches!(fault, Fault::Refused | Fault::WantsCertificate) {
                return format!("TLS: {why}{}", advice(fault));
            }
        }
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    match text.contains(TLS_ONLY) {
        true => format!("{text}; set tls {{ rpc = true }} here"),
        false => text,
    }
}
