//! Connections to servers, shared by all calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::SendRequest;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex as SyncMutex;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::RpcError;
use super::service::Call;
use super::wire::{
    CONNECTION_WINDOW, MAX_BODY, NODE_HEADER, PATH, STREAM_WINDOW, TIMEOUT_HEADER, TOKEN_HEADER,
    VERSION, VERSION_HEADER, refusal,
};

/// How connections are made and kept (`rpc` of the agent's configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialing {
    /// How long a connection may take.
    pub timeout: Duration,
    /// How often a silent server is asked whether it is there.
    pub keep_alive: Duration,
}

impl Default for Dialing {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

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
    slots: Vec<Mutex<Option<Sender>>>,
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

    fn connections(&self, addr: &str) -> Arc<Connections> {
        let mut servers = self.servers.lock();
        let connections = servers.entry(addr.to_owned()).or_insert_with(|| {
            let slots = (0..self.per_server).map(|_| Mutex::new(None)).collect();
            Arc::new(Connections {
                dialing: self.dialing,
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
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{addr}{PATH}{name}"))
            .header(VERSION_HEADER, VERSION)
            .header(TIMEOUT_HEADER, timeout.as_millis().to_string())
            .header(TOKEN_HEADER, call.token)
            .header(NODE_HEADER, call.node)
            .body(Full::new(body))
            .map_err(|e| RpcError::Malformed(format!("cannot call {name} at {addr:?}: {e}")))?;
        tokio::time::timeout(timeout, self.send(addr, request))
            .await
            .unwrap_or(Err(RpcError::TimedOut(name)))
    }

    async fn send(&self, addr: &str, request: Request<Full<Bytes>>) -> Result<Bytes, RpcError> {
        let lost = |e: hyper::Error| RpcError::Unreachable(format!("{addr}: {e}"));
        let mut sender = self.connections(addr).sender(addr).await?;
        let response = sender.send_request(request).await.map_err(lost)?;
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
}

impl Connections {
    async fn sender(&self, addr: &str) -> Result<Sender, RpcError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let mut slot = self.slots[turn].lock().await;
        if let Some(sender) = slot.as_ref().filter(|s| !s.is_closed()) {
            return Ok(sender.clone());
        }
        let sender = dial(addr, self.dialing).await?;
        *slot = Some(sender.clone());
        Ok(sender)
    }
}

async fn dial(addr: &str, how: Dialing) -> Result<Sender, RpcError> {
    let failed = |e: &dyn std::fmt::Display| RpcError::Unreachable(format!("{addr}: {e}"));
    let stream = tokio::time::timeout(how.timeout, TcpStream::connect(addr))
        .await
        .map_err(|e| failed(&e))?
        .map_err(|e| failed(&e))?;
    stream.set_nodelay(true).map_err(|e| failed(&e))?;
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(how.keep_alive)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| failed(&e))?;
    tokio::spawn(async move {
        if let Err(e) = connection.await {
            tracing::debug!("rpc: connection ended: {e}");
        }
    });
    Ok(sender)
}
