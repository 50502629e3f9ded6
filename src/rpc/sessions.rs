//! Sessions to nodes: a node holds one stream open, and answers over it when it is dialled.
//!
//! A server cannot reach a client: it has no address that counts, and may be behind anything. So
//! the client keeps a `Node.Control` open; each session that is wanted is named on it, and the
//! client opens a `Node.Session` that carries the name. Both go over connections that the client
//! made. Whichever server holds the stream of a node is the one that reaches it: the others get a
//! session by way of it (`Node.Dial`).
//!
//! Invariants: a session goes to the node that was dialled, which proved itself again when it
//! opened it; a name is good once; a caller that gives up waiting leaves nothing behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::duplex::{Duplex, Keepalive, Outflow};
use super::methods::{Empty, StatusPing};
use super::service::Dispatch;
use super::{RpcError, Streaming};
use drover_error::{Code, Refusal};

/// How long a node that is dialled has to answer.
const DIALLING: Duration = Duration::from_secs(8);

/// How much longer that may take by way of another server.
const ON_THE_WAY: Duration = Duration::from_secs(2);

/// How long another server has to say that it is there at all: none is waited for that does not,
/// though it may be the one that the node held on to.
const THERE: Duration = Duration::from_secs(3);

/// Sessions of one node that are wanted and not opened yet.
const WAITING: usize = 256;

/// A node keeps itself reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlRequest {
    #[serde(rename = "NodeID")]
    pub node_id: String,
}

/// `Node.Control`.
pub struct NodeControl;

impl Streaming for NodeControl {
    const NAME: &'static str = "Node.Control";
    const KEEPALIVE: Keepalive = Keepalive::STANDING;
    type Req = ControlRequest;
}

/// A node opens a session for which it was dialled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRequest {
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The name of the session, from [`Dial`].
    #[serde(rename = "Session")]
    pub session: String,
}

/// `Node.Session`.
pub struct NodeSession;

impl Streaming for NodeSession {
    const NAME: &'static str = "Node.Session";
    const KEEPALIVE: Keepalive = Keepalive::SESSION;
    const SEPARATE_CONNECTIONS: bool = true;
    type Req = SessionRequest;
}

/// `Node.Dial`: another server wants a session to a node that holds on to this one.
pub struct NodeDial;

impl Streaming for NodeDial {
    const NAME: &'static str = "Node.Dial";
    const KEEPALIVE: Keepalive = Keepalive::SESSION;
    const SEPARATE_CONNECTIONS: bool = true;
    type Req = ControlRequest;
}

/// What a node is sent over its control stream. Without a name: to open another stream over another
/// connection, for this one is to go; sessions that are wanted over it meanwhile are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dial {
    /// The name of the session that is wanted.
    #[serde(rename = "Session")]
    pub session: String,
}

/// The nodes that this server reaches.
#[derive(Debug)]
pub struct Sessions {
    /// How long a node that is dialled has to answer.
    patience: Duration,
    /// How long another server has to say that it is there.
    there: Duration,
    nodes: Mutex<HashMap<String, ControlStream>>,
    wanted: Mutex<HashMap<String, SessionOrder>>,
    turn: AtomicU64,
    own: OnceLock<LocalClient>,
    others: OnceLock<Others>,
}

/// The client of the same process: this server calls it without a session.
struct LocalClient {
    node: String,
    handlers: Option<Arc<dyn Dispatch>>,
    answers: Answers,
}

/// What answers in a session to the client of the same process, to its end.
pub type Answers = Box<dyn Fn(Duplex) -> BoxFuture<'static, ()> + Send + Sync>;

/// The other servers.
struct Others {
    caller: Caller,
    addrs: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Others").field(&(self.addrs)()).finish()
    }
}

impl std::fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Own").field(&self.node).finish()
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            patience: DIALLING,
            there: THERE,
            nodes: Mutex::default(),
            wanted: Mutex::default(),
            turn: AtomicU64::default(),
            own: OnceLock::new(),
            others: OnceLock::new(),
        }
    }
}

/// The control stream of a node.
#[derive(Debug)]
struct ControlStream {
    turn: u64,
    outflow: Outflow,
}

/// A session that is wanted: its node was dialled, and has not opened it yet.
#[derive(Debug)]
struct SessionOrder {
    node: String,
    answered: oneshot::Sender<Duplex>,
}

impl Sessions {
    /// The client of the same process, from now on; it stays.
    pub fn own(&self, node: &str, handlers: Option<Arc<dyn Dispatch>>, answers: Answers) {
        let node = node.to_owned();
        // Set once: a server has one client.
        let _ = self.own.set(LocalClient {
            node,
            handlers,
            answers,
        });
    }

    /// The other servers, from now on: `addrs` says where they are, `caller` calls them.
    pub fn beside(&self, caller: Caller, addrs: Box<dyn Fn() -> Vec<String> + Send + Sync>) {
        // Set once, as the server starts.
        let _ = self.others.set(Others { caller, addrs });
    }

    /// What answers for a node in this process.
    pub(super) fn near(&self, node: &str) -> Option<Arc<dyn Dispatch>> {
        let own = self.own.get().filter(|own| own.node == node);
        own.and_then(|own| own.handlers.clone())
    }

    /// Whether a node holds a stream here.
    #[must_use]
    pub fn reaches(&self, node: &str) -> bool {
        self.nodes.lock().contains_key(node)
    }

    /// How many nodes do.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.lock().len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a node reachable by its control stream until that ends. A newer stream of the same
    /// node takes the place of an older one.
    pub fn hold(self: &Arc<Self>, node: &str, stream: Duplex) {
        self.hold_until(node, stream, CancellationToken::new());
    }

    /// The same; the node is to open another stream once `parting` is cancelled.
    pub fn hold_until(self: &Arc<Self>, node: &str, stream: Duplex, parting: CancellationToken) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let Duplex {
            mut inflow,
            outflow,
        } = stream;
        let older = self
            .nodes
            .lock()
            .insert(node.to_owned(), ControlStream { turn, outflow });
        if let Some(older) = older {
            older.outflow.end();
        }
        metrics::gauge!("drover.rpc.nodes_reachable").set(self.len() as f64);
        let (sessions, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move {
            let mut notified = false;
            let ended = loop {
                tokio::select! {
                    next = inflow.next() => match next {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(broken) => break Some(broken),
                    },
                    () = parting.cancelled(), if !notified => {
                        notified = true;
                        sessions.part(&node, turn);
                    }
                }
            };
            tracing::debug!(node, ?ended, "control stream ended");
            let mut nodes = sessions.nodes.lock();
            if nodes.get(&node).is_some_and(|held| held.turn == turn) {
                nodes.remove(&node);
            }
            metrics::gauge!("drover.rpc.nodes_reachable").set(nodes.len() as f64);
        });
    }

    /// Notifies a node that this stream of its is to go.
    fn part(&self, node: &str, turn: u64) {
        let mut nodes = self.nodes.lock();
        let held = nodes.get_mut(node).filter(|held| held.turn == turn);
        if let Some(held) = held {
            // A stream that cannot be notified is about to end anyway.
            let _ = held.outflow.message(&Dial::default());
        }
    }

    /// Takes a session that the node opened for whoever dialled it.
    ///
    /// # Errors
    /// 404: this node was not dialled for it, or nobody waits for it any more.
    pub fn join(&self, request: &SessionRequest, stream: Duplex) -> Result<(), Refusal> {
        let mut wanted = self.wanted.lock();
        let of_node = |wanted: &SessionOrder| wanted.node == request.node_id;
        if !wanted.get(&request.session).is_some_and(of_node) {
            return Err(Refusal::not_found("no such session is wanted"));
        }
        let answered = wanted
            .remove(&request.session)
            .map(|wanted| wanted.answered);
        drop(wanted);
        if let Some(answered) = answered {
            // A caller that gave up in this moment breaks the stream by dropping it.
            let _ = answered.send(stream);
        }
        Ok(())
    }

    /// Whether a node may be reached: it holds a stream here, or may hold one at another server.
    #[must_use]
    pub fn may_reach(&self, node: &str) -> bool {
        let others = || {
            self.others
                .get()
                .is_some_and(|all| !(all.addrs)().is_empty())
        };
        self.near(node).is_some() || self.reaches(node) || others()
    }

    /// Opens a session to a node, by way of whichever server it holds on to.
    ///
    /// # Errors
    /// 404 `No path to node`; 503 where it does not answer, or a server does not that may reach it.
    pub async fn dial(self: &Arc<Self>, node: &str) -> Result<Duplex, Refusal> {
        match self.dial_here(node).await {
            Err(error) if error.code == Code::NotFound => self.dial_elsewhere(node).await,
            dialled => dialled,
        }
    }

    /// Requests it of all other servers at once: the one that the node holds on to dials it. The
    /// first that has it is enough; a server that is not there is not waited for.
    async fn dial_elsewhere(&self, node: &str) -> Result<Duplex, Refusal> {
        let Some(others) = self.others.get() else {
            return Err(no_path());
        };
        let request = ControlRequest {
            node_id: node.to_owned(),
        };
        // It takes its time with a node that does not answer.
        let patience = self.patience + ON_THE_WAY;
        let began = Instant::now();
        let mut asking: FuturesUnordered<_> = (others.addrs)()
            .into_iter()
            .map(|addr| {
                let (caller, request) = (others.caller.at(&addr), &request);
                async move {
                    let opens = async || match caller.open::<NodeDial>(request, patience).await {
                        // A connection that stood from before says nothing of a server that has
                        // ended it since: a new one does.
                        Err(RpcError::Unreachable(_)) => {
                            let left = patience.saturating_sub(began.elapsed());
                            caller.open::<NodeDial>(request, left).await
                        }
                        opened => opened,
                    };
                    let opened = tokio::select! {
                        opened = opens() => opened,
                        () = away(&caller, self.there) => Err(RpcError::TimedOut(NodeDial::NAME)),
                    };
                    (opened, addr)
                }
            })
            .collect();
        let mut refused = no_path();
        while let Some((answer, addr)) = asking.next().await {
            match answer {
                Ok(stream) => return Ok(stream),
                Err(RpcError::Api(error)) if error.code == Code::NotFound => {}
                // It is about this server, not about the caller that wants something of the node.
                Err(RpcError::Api(error)) if error.code == Code::PermissionDenied => {
                    tracing::warn!(
                        addr,
                        "a server does not know this one: set tls {{ rpc = true }}"
                    );
                }
                Err(RpcError::Api(error)) => refused = error,
                // It may be the one that the node holds on to.
                Err(RpcError::TimedOut(_)) => refused = given_up(node, &addr),
                Err(error) => {
                    tracing::debug!(node, addr, %error, "a server cannot be called for a node");
                }
            }
        }
        Err(refused)
    }

    /// Opens a session to a node that holds on to this server, or is in its process.
    ///
    /// # Errors
    /// 404 `No path to node`; 503 where it does not answer.
    pub async fn dial_here(self: &Arc<Self>, node: &str) -> Result<Duplex, Refusal> {
        if let Some(own) = self.own.get().filter(|own| own.node == node) {
            let (near, far) = Duplex::pair(NodeSession::KEEPALIVE);
            tokio::spawn((own.answers)(far));
            return Ok(near);
        }
        let session = uuid::Uuid::new_v4().to_string();
        let (answered, answer) = oneshot::channel();
        let wanted = SessionOrder {
            node: node.to_owned(),
            answered,
        };
        {
            let mut all = self.wanted.lock();
            if all.len() >= WAITING
                && all.values().filter(|one| one.node == node).count() >= WAITING
            {
                return Err(silent(node));
            }
            all.insert(session.clone(), wanted);
        }
        let _forgotten = Forget {
            sessions: self,
            session: &session,
        };
        let dial = Dial {
            session: session.clone(),
        };
        let lost = {
            let mut nodes = self.nodes.lock();
            let held = nodes.get_mut(node).ok_or_else(no_path)?;
            held.outflow.message(&dial).map_err(|_| no_path())?;
            held.outflow.gone()
        };
        tokio::select! {
            answered = tokio::time::timeout(self.patience, answer) => match answered {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(_)) | Err(_) => Err(silent(node)),
            },
            () = lost => Err(no_path()),
        }
    }
}

/// Ready once a server has not answered for so long, however often it was pinged. It
/// is pinged over the connections that sessions go over.
async fn away(caller: &Caller, there: Duration) {
    let caller = caller.clone().beside_streams();
    match caller.call::<StatusPing>(&Empty {}, there).await {
        Ok(_) | Err(RpcError::Api(_)) => std::future::pending().await,
        Err(_) => {}
    }
}

/// Forgets a session that is waited for no more.
struct Forget<'s> {
    sessions: &'s Sessions,
    session: &'s str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.sessions.wanted.lock().remove(self.session);
    }
}

/// The refusal where a node is not reached, as Nomad words it.
#[must_use]
pub fn no_path() -> Refusal {
    Refusal::not_found("No path to node")
}

fn given_up(node: &str, addr: &str) -> Refusal {
    let text = format!("node {node:?} is not reached: the server at {addr} does not answer");
    Refusal::new(Code::Unavailable, text)
}

fn silent(node: &str) -> Refusal {
    let text =
        format!("node {node:?} does not answer; what its agent says of it is in the agent's log");
    Refusal::new(Code::Unavailable, text)
}

#[cfg(test)]
#[path = "sessions_test.rs"]
mod tests;
