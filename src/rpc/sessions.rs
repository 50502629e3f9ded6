//! Sessions to nodes: a node holds one stream open, and answers over it when it is dialled.
//!
//! A server cannot reach a client: it has no address that counts, and may be behind anything. So
//! the client keeps a `Node.Control` open; each session that is wanted is named on it, and the
//! client opens a `Node.Session` that carries the name. Both go over connections that the client
//! made. Whichever server holds the stream of a node is the one that reaches it.
//!
//! Invariants: a session goes to the node that was dialled, which proved itself again when it
//! opened it; a name is good once; who gives up waiting leaves nothing behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Streaming;
use super::duplex::{Duplex, Outflow, Pace};
use super::service::Dispatch;
use crate::error::{ApiError, Code};

/// How long a node that is dialled has to answer.
const DIALLING: Duration = Duration::from_secs(8);

/// Sessions of one node that are asked for and not answered.
const WAITING: usize = 256;

/// A node keeps itself reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlRequest {
    /// The node.
    #[serde(rename = "NodeID")]
    pub node_id: String,
}

/// `Node.Control`.
pub struct NodeControl;

impl Streaming for NodeControl {
    const NAME: &'static str = "Node.Control";
    const PACE: Pace = Pace::STANDING;
    type Req = ControlRequest;
}

/// A node takes up a session that it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRequest {
    /// The node.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The name that it was asked by.
    #[serde(rename = "Session")]
    pub session: String,
}

/// `Node.Session`.
pub struct NodeSession;

impl Streaming for NodeSession {
    const NAME: &'static str = "Node.Session";
    const PACE: Pace = Pace::SESSION;
    const APART: bool = true;
    type Req = SessionRequest;
}

/// What a node is told over its control stream. Without a name: to open another stream over
/// another connection, for this one is to go; what is asked over it meanwhile is taken up.
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
    nodes: Mutex<HashMap<String, Held>>,
    wanted: Mutex<HashMap<String, Wanted>>,
    turn: AtomicU64,
    own: OnceLock<Own>,
}

/// The client of the same process: it is asked without a session.
struct Own {
    node: String,
    handlers: Arc<dyn Dispatch>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Own").field(&self.node).finish()
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            patience: DIALLING,
            nodes: Mutex::default(),
            wanted: Mutex::default(),
            turn: AtomicU64::default(),
            own: OnceLock::new(),
        }
    }
}

/// The control stream of a node.
#[derive(Debug)]
struct Held {
    turn: u64,
    outflow: Outflow,
}

/// A session that was asked for.
#[derive(Debug)]
struct Wanted {
    node: String,
    answered: oneshot::Sender<Duplex>,
}

impl Sessions {
    /// The client of the same process, from now on; it stays.
    pub fn own(&self, node: &str, handlers: Arc<dyn Dispatch>) {
        let node = node.to_owned();
        // Set once: a server has one client.
        let _ = self.own.set(Own { node, handlers });
    }

    /// What answers for a node in this process.
    pub(super) fn near(&self, node: &str) -> Option<Arc<dyn Dispatch>> {
        let own = self.own.get().filter(|own| own.node == node);
        own.map(|own| Arc::clone(&own.handlers))
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

    /// The same; the node is told to open another stream once `parting` is cancelled.
    pub fn hold_until(self: &Arc<Self>, node: &str, stream: Duplex, parting: CancellationToken) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let Duplex {
            mut inflow,
            outflow,
        } = stream;
        let older = self
            .nodes
            .lock()
            .insert(node.to_owned(), Held { turn, outflow });
        if let Some(older) = older {
            older.outflow.end();
        }
        metrics::gauge!("drover.rpc.nodes_reachable").set(self.len() as f64);
        let (sessions, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move {
            let mut told = false;
            let ended = loop {
                tokio::select! {
                    said = inflow.next() => match said {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(broken) => break Some(broken),
                    },
                    () = parting.cancelled(), if !told => {
                        told = true;
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

    /// Tells a node that this stream of its is to go.
    fn part(&self, node: &str, turn: u64) {
        let mut nodes = self.nodes.lock();
        let held = nodes.get_mut(node).filter(|held| held.turn == turn);
        if let Some(held) = held {
            // One that cannot be told is about to end anyway.
            let _ = held.outflow.message(&Dial::default());
        }
    }

    /// Takes up a session that was asked for.
    ///
    /// # Errors
    /// 404: nobody asked this node for it, or nobody waits any more.
    pub fn join(&self, asked: &SessionRequest, stream: Duplex) -> Result<(), ApiError> {
        let mut wanted = self.wanted.lock();
        let of_node = |wanted: &Wanted| wanted.node == asked.node_id;
        if !wanted.get(&asked.session).is_some_and(of_node) {
            return Err(ApiError::not_found("no such session is wanted"));
        }
        let answered = wanted.remove(&asked.session).map(|wanted| wanted.answered);
        drop(wanted);
        if let Some(answered) = answered {
            // Who gave up in this moment breaks the stream by dropping it.
            let _ = answered.send(stream);
        }
        Ok(())
    }

    /// Opens a session to a node.
    ///
    /// # Errors
    /// 404 `No path to node`; 503 where it does not answer.
    pub async fn dial(self: &Arc<Self>, node: &str) -> Result<Duplex, ApiError> {
        let session = uuid::Uuid::new_v4().to_string();
        let (answered, answer) = oneshot::channel();
        let wanted = Wanted {
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

/// Forgets a session that nobody waits for any more.
struct Forget<'s> {
    sessions: &'s Sessions,
    session: &'s str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.sessions.wanted.lock().remove(self.session);
    }
}

/// What is said of a node that is not reached, as Nomad says it.
#[must_use]
pub fn no_path() -> ApiError {
    ApiError::not_found("No path to node")
}

fn silent(node: &str) -> ApiError {
    let text =
        format!("node {node:?} does not answer; what its agent says of it is in the agent's log");
    ApiError::new(Code::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::time::timeout;

    use super::*;
    use crate::client::agent::tests::until;

    const SOON: Duration = Duration::from_secs(20);

    /// Agents of two releases speak with each other: these bytes stay as they are, and each is read
    /// where something else stands beside it.
    #[test]
    fn mod_30_messages_of_sessions_are_the_bytes_they_always_were() {
        fn golden<T>(message: &T, bytes: &str)
        where
            T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
        {
            let encoded = super::super::wire::encode(message).unwrap();
            assert_eq!(drover_projections::hex(&encoded), bytes);
            let read: T = super::super::wire::decode(&encoded).unwrap();
            assert_eq!(read, *message);
            // One field more, `X: 1`, as a later release may send it.
            let more = format!("{:02x}{}a15801", encoded[0] + 1, &bytes[2..]);
            let more = drover_projections::unhex(&more).unwrap();
            let read: T = super::super::wire::decode(&more).unwrap();
            assert_eq!(read, *message);
        }
        let (node_id, session) = ("n1".to_owned(), "s7".to_owned());
        let control = ControlRequest {
            node_id: node_id.clone(),
        };
        golden(&control, "81a64e6f64654944a26e31");
        let taken = SessionRequest {
            node_id,
            session: session.clone(),
        };
        golden(&taken, "82a64e6f64654944a26e31a753657373696f6ea27337");
        golden(&Dial { session }, "81a753657373696f6ea27337");
        let forward = crate::rpc::forward::ForwardRequest {
            address: "10.0.0.1:4000".to_owned(),
        };
        golden(&forward, "81a741646472657373ad31302e302e302e313a34303030");
    }

    /// A node that takes up what it is asked for, and says back what it hears.
    fn echo(sessions: &Arc<Sessions>, node: &'static str) -> Duplex {
        let (near, far) = Duplex::pair(Pace::STANDING);
        sessions.hold(node, far);
        near
    }

    async fn dialled(control: &mut Duplex) -> Dial {
        let dial = timeout(SOON, control.inflow.message()).await;
        dial.expect("in time").expect("a dial")
    }

    #[tokio::test]
    async fn mod_30_a_session_goes_to_the_node_that_was_dialled() {
        let sessions = Arc::new(Sessions::default());
        let refused = sessions.dial("n1").await.unwrap_err();
        assert_eq!(
            (refused.code, &*refused.message),
            (Code::NotFound, "No path to node")
        );
        let mut control = echo(&sessions, "n1");
        assert!(sessions.reaches("n1"));
        let dialling = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.dial("n1").await }
        });
        let session = dialled(&mut control).await.session;
        for (node, name) in [("n2", session.as_str()), ("n1", "another")] {
            let asked = SessionRequest {
                node_id: node.to_owned(),
                session: name.to_owned(),
            };
            let (_, far) = Duplex::pair(Pace::SESSION);
            let refused = sessions.join(&asked, far).unwrap_err();
            assert_eq!(refused.code, Code::NotFound);
        }
        let asked = SessionRequest {
            node_id: "n1".to_owned(),
            session,
        };
        let (mut near, far) = Duplex::pair(Pace::SESSION);
        sessions.join(&asked, far).unwrap();
        let mut stream = dialling.await.unwrap().unwrap();
        stream.outflow.send(Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(near.inflow.data().await.unwrap().unwrap(), "x");
        // Its name is good once.
        let (_, far) = Duplex::pair(Pace::SESSION);
        assert!(sessions.join(&asked, far).is_err());
        assert!(sessions.wanted.lock().is_empty());
    }

    #[tokio::test]
    async fn a_node_whose_stream_ends_is_not_reached_and_who_waits_for_it_is_told() {
        let sessions = Arc::new(Sessions::default());
        let mut control = echo(&sessions, "n1");
        let dialling = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.dial("n1").await }
        });
        dialled(&mut control).await;
        drop(control);
        let refused = timeout(SOON, dialling).await.expect("at once").unwrap();
        assert_eq!(refused.unwrap_err().message, "No path to node");
        assert!(!sessions.reaches("n1") && sessions.wanted.lock().is_empty());
    }

    #[tokio::test]
    async fn a_newer_stream_of_a_node_takes_the_place_of_the_older() {
        let sessions = Arc::new(Sessions::default());
        let mut older = echo(&sessions, "n1");
        let mut newer = echo(&sessions, "n1");
        let over = timeout(SOON, older.inflow.next())
            .await
            .expect("it is told");
        assert_eq!(over, Ok(None));
        drop(older);
        let dialling = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.dial("n1").await.map(drop) }
        });
        dialled(&mut newer).await;
        assert!(sessions.reaches("n1"));
        dialling.abort();
        // Who gives up leaves nothing behind.
        let _ = dialling.await;
        assert!(sessions.wanted.lock().is_empty());
    }

    #[tokio::test]
    async fn env_02_a_node_whose_connection_is_to_go_is_told_and_reached_meanwhile() {
        let sessions = Arc::new(Sessions::default());
        let (mut control, far) = Duplex::pair(Pace::STANDING);
        let parting = CancellationToken::new();
        sessions.hold_until("n1", far, parting.clone());
        parting.cancel();
        assert_eq!(dialled(&mut control).await, Dial::default());
        let dialling = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.dial("n1").await.map(drop) }
        });
        assert!(!dialled(&mut control).await.session.is_empty());
        dialling.abort();
        // Of an older stream nothing is told over the newer.
        let (_older, far) = Duplex::pair(Pace::STANDING);
        let parting = CancellationToken::new();
        sessions.hold_until("n1", far, parting.clone());
        let mut newer = echo(&sessions, "n1");
        parting.cancel();
        let dialling = tokio::spawn({
            let sessions = Arc::clone(&sessions);
            async move { sessions.dial("n1").await.map(drop) }
        });
        assert!(!dialled(&mut newer).await.session.is_empty());
        dialling.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_dials_at_once_wait_for_a_node_that_is_slow_to_hear_them() {
        let sessions = Arc::new(Sessions::default());
        let mut control = echo(&sessions, "n1");
        let dial = |_| {
            let sessions = Arc::clone(&sessions);
            tokio::spawn(async move { sessions.dial("n1").await.map(drop) })
        };
        let dialling: Vec<_> = (0..WAITING).map(dial).collect();
        until("all wait", || sessions.wanted.lock().len() == WAITING).await;
        assert_eq!(
            sessions.dial("n1").await.unwrap_err().code,
            Code::Unavailable
        );
        for _ in 0..WAITING {
            let asked = SessionRequest {
                node_id: "n1".to_owned(),
                session: dialled(&mut control).await.session,
            };
            let (_near, far) = Duplex::pair(Pace::SESSION);
            sessions.join(&asked, far).unwrap();
        }
        for one in dialling {
            timeout(SOON, one).await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_node_that_stands_still_is_waited_for_only_so_long() {
        let sessions = Arc::new(Sessions {
            patience: Duration::from_millis(20),
            ..Sessions::default()
        });
        let _still = echo(&sessions, "n1");
        let refused = sessions.dial("n1").await.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
        assert!(refused.message.contains("does not answer"));
    }
}
