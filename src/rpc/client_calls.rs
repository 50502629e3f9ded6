//! Calls of servers to clients, each in a session of its own: a method by name, a request, an
//! answer.
//!
//! A session begins with a head, like one for a request of the HTTP API, whose method is no word of
//! HTTP and whose target is the name of a method: no path of a request is one. The client answers
//! from handlers of its own; that a session was opened proves that a server calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::duplex::{Broken, Duplex, Inflow, Outflow};
use super::service::{Call, Dispatch};
use super::sessions::Sessions;
use super::{Rpc, wire};
use drover_error::{Code, Refusal};

/// The method of the head.
pub const METHOD: &str = "RPC";

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// [`METHOD`].
    #[serde(rename = "Method")]
    pub method: String,
    /// The name of the method.
    #[serde(rename = "Target")]
    pub target: String,
}

/// What became of it; an answer follows where there is no code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Became {
    /// The code of a refusal.
    #[serde(rename = "Code")]
    code: Option<Code>,
    /// Its text.
    #[serde(rename = "Error")]
    error: String,
}

/// Why a client brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It was not called: there is no way to it.
    #[error("{0}")]
    Unreached(String),
    /// It was called, and may have done it.
    #[error("{0}")]
    Unsure(String),
    /// It answered that it did not.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl Unanswered {
    /// Whether it is certain that nothing of it is under way any more.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Unreached(_) => true,
            Self::Unsure(_) => false,
            Self::Refused(error) => error.code != Code::Timeout,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_recoverable(&self) -> bool {
        match self {
            Self::Unreached(_) | Self::Unsure(_) => true,
            // What a node fails at by itself, it may fail at for ever.
            Self::Refused(error) => !error.code.lasts() && error.code != Code::Internal,
        }
    }
}

/// The way to the clients of nodes from this server: to its own, to those that hold on to it, and
/// to those that hold on to another server.
pub trait Reach: Send + Sync {
    /// Whether there may be a way to the node.
    fn reaches(&self, node: &str) -> bool;

    /// Calls the client of a node, and waits no longer than `limit`.
    fn ask(
        &self,
        node: &str,
        method: &'static str,
        body: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unanswered>>;
}

/// Calls a method of the client of a node.
///
/// # Errors
/// Why there is no answer.
pub async fn call<R: Rpc>(
    reach: &dyn Reach,
    node: &str,
    request: &R::Req,
    limit: Duration,
) -> Result<R::Res, Unanswered> {
    let unreadable = |error: super::RpcError| Unanswered::Refused(error.into());
    let body = wire::encode(request).map_err(unreadable)?;
    let answer = reach.ask(node, R::NAME, body, limit).await?;
    let broken = |error: super::RpcError| Unanswered::Unsure(error.to_string());
    wire::decode(&answer).map_err(broken)
}

impl Reach for Arc<Sessions> {
    fn reaches(&self, node: &str) -> bool {
        self.may_reach(node)
    }

    fn ask(
        &self,
        node: &str,
        method: &'static str,
        body: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unanswered>> {
        let (sessions, node) = (Arc::clone(self), node.to_owned());
        async move {
            if let Some(handlers) = sessions.near(&node) {
                return within(&node, method, limit, handled(handlers, method, body)).await;
            }
            let stream = sessions.dial(&node).await;
            let stream = stream.map_err(|error| Unanswered::Unreached(error.message))?;
            within(&node, method, limit, exchange(stream, method, body)).await
        }
        .boxed()
    }
}

async fn within(
    node: &str,
    method: &str,
    limit: Duration,
    answer: impl Future<Output = Result<Bytes, Unanswered>>,
) -> Result<Bytes, Unanswered> {
    let late = |_| {
        Unanswered::Unsure(format!(
            "node {node:?} did not answer {method} within {limit:?}"
        ))
    };
    timeout(limit, answer).await.map_err(late)?
}

/// Calls the client of this process.
async fn handled(
    handlers: Arc<dyn Dispatch>,
    method: &'static str,
    body: Bytes,
) -> Result<Bytes, Unanswered> {
    // What was begun is ended, whether or not it is waited for.
    let answer = tokio::spawn(handlers.dispatch(method, Call::default(), body)).await;
    let ended = |_| Unanswered::Unsure("the call ended by a panic".to_owned());
    answer.map_err(ended)?.map_err(Unanswered::Refused)
}

async fn exchange(stream: Duplex, method: &str, body: Bytes) -> Result<Bytes, Unanswered> {
    let Duplex {
        mut inflow,
        mut outflow,
    } = stream;
    let lost = |broken: Broken| Unanswered::Unsure(format!("the node was lost: {broken}"));
    let head = Head {
        method: METHOD.to_owned(),
        target: method.to_owned(),
    };
    outflow.message(&head).map_err(lost)?;
    outflow.send(body).await.map_err(lost)?;
    outflow.end();
    let became: Became = inflow.message().await.map_err(lost)?;
    match became.code {
        Some(code) => Err(Unanswered::Refused(Refusal::new(code, became.error))),
        None => whole(&mut inflow).await.map_err(lost),
    }
}

/// Answers a server's call of this method, from the handlers of a client; none where it has none.
///
/// # Errors
/// The server waits for it no more.
pub async fn answer(
    handlers: Option<Arc<dyn Dispatch>>,
    method: &str,
    (mut inflow, mut outflow): (Inflow, Outflow),
) -> Result<(), Broken> {
    let body = whole(&mut inflow).await?;
    drop(inflow);
    let answered = match handlers {
        Some(handlers) => {
            let answer = handlers.dispatch(method, Call::default(), body);
            // What was begun is ended, whether or not it is waited for: a call to a plugin is not
            // cut.
            let answer = tokio::spawn(answer).await;
            answer.unwrap_or_else(|_| Err(Refusal::internal("the call ended by a panic")))
        }
        None => Err(Refusal::new(
            Code::Unavailable,
            "this node runs no CSI plugins",
        )),
    };
    let became = match &answered {
        Ok(_) => Became::default(),
        Err(error) => Became {
            code: Some(error.code),
            error: error.message.clone(),
        },
    };
    outflow.message(&became)?;
    outflow.send(answered.unwrap_or_default()).await?;
    outflow.end();
    Ok(())
}

/// A body, whole.
async fn whole(inflow: &mut Inflow) -> Result<Bytes, Broken> {
    let mut body = BytesMut::new();
    while let Some(piece) = inflow.data().await? {
        if body.len() + piece.len() > wire::MAX_BODY {
            return Err(Broken("the body is too long".to_owned()));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}
