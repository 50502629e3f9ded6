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
//! before its body is taken in: one that has proved nothing gets little memory and little time
//! ([`server::CallerLimits`]) and may not hold a blocking query; a connection on which no node has
//! proved itself has few streams. So a client that makes a connection for a node begins with a
//! call in the node's name (`Status.Ping`).
//!
//! A [`Streaming`] method has the same head and two bodies that go on ([`duplex`]): a node's
//! standing `Node.Control`, over which a server dials it; `Node.Session`, which the node opens then
//! ([`sessions`]); `Server.Forward`, a whole request of the HTTP API ([`forward`]), for the leader
//! ([`leader_locator`]). Only a caller that proved itself opens one. Streams that may carry much go
//! over connections of their own, so that no heartbeat waits behind them.
//!
//! Servers call clients in the other direction, over a session ([`client_calls`]): the server
//! dials one, names a method in it, and the client's own handlers answer. [`csi`] and
//! [`host_volume`] have the methods of volumes, both ways; [`volumes`] those for people and their
//! tools, which have a token and are no nodes.
//!
//! This crate must not know what a method means. That is in `endpoints` of the crate `drover`,
//! where a handler reads a view or submits a command, and does nothing else.

pub mod caller;
pub mod client;
pub mod client_calls;
#[cfg(test)]
mod client_calls_test;
pub mod csi;
pub mod duplex;
pub mod forward;
mod guest;
pub mod host_volume;
pub mod leader_locator;
mod measure;
pub mod methods;
pub mod server;
pub mod service;
pub mod sessions;
pub mod updates;
pub mod volumes;
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
    /// How often each end sends something, and how long its silence is borne.
    const KEEPALIVE: duplex::Keepalive;
    /// Whether it goes over other connections than calls do: what may carry much would hold up the
    /// heartbeats among them.
    const SEPARATE_CONNECTIONS: bool = false;
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
