//! Whole requests, from an agent that does not answer them to a server that does.
//!
//! What is carried is a connection of the HTTP API: one request, its answer, whatever becomes of it
//! (a stream, a WebSocket). The token is the request's own; nothing of the agent that forwards it
//! counts for it (AUTH-05). What a server says of the first address is believed. A client's own
//! stands for all that come through it; by what it says they are distinguished where requests are
//! limited.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde::{Deserialize, Serialize};

use super::Streaming;
use super::duplex::{Duplex, Keepalive};
use drover_error::Refusal;
use drover_net::Peer;

/// A connection for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForwardRequest {
    /// Where the request came from first, `ip:port`.
    #[serde(rename = "Address")]
    pub address: String,
}

/// `Server.Forward`.
pub struct ServerForward;

impl Streaming for ServerForward {
    const NAME: &'static str = "Server.Forward";
    const KEEPALIVE: Keepalive = Keepalive::SESSION;
    const SEPARATE_CONNECTIONS: bool = true;
    type Req = ForwardRequest;
}

/// The HTTP API, as it answers what was forwarded. `http` knows `server`, which holds this for
/// `endpoints`: with the API itself there the three would know each other in a circle.
pub trait Web: Send + Sync {
    /// Answers what comes over the stream, as from this peer.
    fn answer(&self, peer: Peer, stream: Duplex) -> BoxFuture<'static, ()>;

    /// Answers a request that a call stands for, with the rights of the token that it carries. The
    /// call is what is counted and limited, so the request is not.
    ///
    /// # Errors
    /// 413 for an answer that is longer than one of a call may be.
    fn ask(&self, peer: Peer, question: Question) -> BoxFuture<'static, Result<Answered, Refusal>>;
}

/// A request of the HTTP API that a call stands for.
#[derive(Clone)]
pub struct Question {
    pub method: Method,
    /// The path behind `/v1/`, segment by segment, as they are meant.
    pub path: Vec<String>,
    /// The parameters.
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(&'static str, String)>,
    /// The body, JSON or nothing.
    pub body: Bytes,
}

/// Path, headers and body may hold secrets.
impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Question");
        shown.field("method", &self.method).finish_non_exhaustive()
    }
}

impl Question {
    /// A question with this method about this path.
    pub fn new(method: Method, path: &[&str]) -> Self {
        Self {
            method,
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// With a parameter; one that is empty is left out.
    #[must_use]
    pub fn text(mut self, name: &'static str, value: &str) -> Self {
        if !value.is_empty() {
            self.query.push((name, value.to_owned()));
        }
        self
    }

    /// With a number; nought is left out.
    #[must_use]
    pub fn number(self, name: &'static str, value: u64) -> Self {
        match value {
            0 => self,
            value => self.text(name, &value.to_string()),
        }
    }

    /// With something that is so or not; where it is not, it is left out.
    #[must_use]
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        match value {
            true => self.text(name, "true"),
            false => self,
        }
    }

    /// With a header; one that is empty is left out.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: String) -> Self {
        if !value.is_empty() {
            self.headers.push((name, value));
        }
        self
    }
}

/// What the HTTP API answered.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    /// The index of the state that was read, or of the change; 0 for neither.
    pub index: u64,
    /// Where the next page of a list begins; empty at the end.
    pub next_token: String,
    /// After how many seconds a refused request may be made again; 0 where none is named.
    pub retry_after: u32,
    pub body: Bytes,
}
