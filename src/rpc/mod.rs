//! RPC between servers and with clients: HTTP/2 and MessagePack behind one typed trait.
//!
//! A method is a type that implements [`Rpc`]: its name as Nomad has it, its request, its answer. A
//! [`service::Service`] holds the handlers by name; [`server`] offers it on a port of its own,
//! [`caller::Caller`] reaches it, over connections or, within one process, directly.
//!
//! `POST /rpc/<Name>`, body and answer MessagePack maps with Nomad's field names. Headers:
//! `drover-rpc` (the version of these rules, 1), `drover-timeout-ms` (how long the caller waits),
//! `x-nomad-token` and `drover-node` (who calls: a node's secret and its id). A refusal has the
//! HTTP status of its code, the code in `drover-error` and the text as body. A caller is looked up
//! before its body is taken in: one that has proved nothing gets little memory, little time and no
//! wait ([`server::CallerLimits`]), and where no node has proved itself on a connection, it has few
//! streams. So a client that makes one for a node begins with a call in its name (`Status.Ping`).
//!
//! A [`Streaming`] method has the same head and two bodies that go on ([`duplex`]): a node's
//! standing `Node.Control`, over which a server dials it; `Node.Session`, which the node opens then
//! ([`sessions`]); `Server.Forward`, a whole request of the HTTP API ([`forward`]), for the leader
//! ([`whereabouts`]). Only a caller that proved itself opens one. What much comes over goes by
//! connections apart from calls, so that no heartbeat waits for it.
//!
//! A server calls a client the same way round ([`requested`]): it dials a session, names a method
//! in it, and the client's own handlers answer. [`csi`] and [`host_volume`] have the methods of
//! volumes, both ways; [`volumes`] those of people and their tools, who have a token and no node.
//!
//! It must not know: what a method means. That is in `endpoints` of the crate `drover`: a view is
//! read, or a command submitted, and nothing else.

pub mod caller;
pub mod client;
pub mod csi;
pub mod duplex;
pub mod forward;
mod guest;
pub mod host_volume;
mod measure;
pub mod methods;
pub mod requested;
#[cfg(test)]
mod requested_test;
pub mod server;
pub mod service;
pub mod sessions;
pub mod updates;
pub mod volumes;
pub mod whereabouts;
mod wire;

pub use wire::encode;

use serde::Serialize;
use serde::de::DeserializeOwned;

use drover_error::Refusal;

/// One method.
pub trait Rpc: 'static {
    /// Its name, as in `Node.Register`.
    const NAME: &'static str;
    /// The request.
    type Req: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What is answered.
    type Res: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// One method whose two bodies stream: the request comes first, as a message.
pub trait Streaming: 'static {
    /// Its name, as in `Node.Control`.
    const NAME: &'static str;
    /// How often each end says something.
    const PACE: duplex::Pace;
    /// Whether it goes over a connection apart from calls: much may come over it, and heartbeats do
    /// not wait for it.
    const APART: bool = false;
    /// The request.
    type Req: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Why a call brought no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    /// The method refused or failed.
    #[error(transparent)]
    Api(#[from] Refusal),
    /// No server was reached, or the connection broke before the answer.
    #[error("rpc: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("rpc: no answer to {0} in time")]
    TimedOut(&'static str),
    /// Request or answer cannot be read.
    #[error("rpc: {0}")]
    Malformed(String),
}

impl RpcError {
    /// After how long the caller may try again, where the answer says so.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Api(e) if e.retry_after > 0 => {
                Some(std::time::Duration::from_secs(e.retry_after.into()))
            }
            _ => None,
        }
    }

    /// The wait before the next try: the one that the answer names, or else this.
    pub fn retry_after_or(&self, wait: std::time::Duration) -> std::time::Duration {
        self.retry_after().unwrap_or(wait)
    }

    /// Another server, or the same a little later, may answer.
    pub fn is_transient(&self) -> bool {
        use drover_error::Code;
        match self {
            Self::Api(e) => matches!(
                e.code,
                Code::NoLeader | Code::Unavailable | Code::Timeout | Code::TooManyRequests
            ),
            Self::Unreachable(_) | Self::TimedOut(_) => true,
            Self::Malformed(_) => false,
        }
    }
}
