//! openraft's network over a small transport: bytes to a member, bytes back.
//!
//! The transport is given by the servers' RPC; a lone server has [`Alone`]. Requests and answers
//! are MessagePack of openraft's messages, entries being opaque payloads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use openraft::AnyError;
use openraft::OptionalSend;
use openraft::alias::SnapshotOf;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::snapshot::SnapshotDir;
use super::types::{Member, TypeConfig, Vote};

/// A message of Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Entries and heartbeats.
    Append,
    Vote,
    /// A vote that changes nothing.
    PreVote,
    /// Hands leadership over.
    TransferLeader,
}

impl Method {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Append => "Raft.Append",
            Method::Vote => "Raft.Vote",
            Method::PreVote => "Raft.PreVote",
            Method::TransferLeader => "Raft.TransferLeader",
        }
    }
}

/// Why a message did not get through.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There is no way to the member for now; try later.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The connection broke; try again at once.
    #[error("connection: {0}")]
    Broken(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The member answered with an error.
    #[error("the server refused: {0}")]
    Refused(String),
}

/// Carries messages between servers.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and waits for the answer.
    fn call<'a>(
        &'a self,
        target: &'a Member,
        method: Method,
        request: Vec<u8>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>>;

    /// Streams the files of a snapshot's directory; `vote` goes with them. Answers what
    /// [`RaftNode::install`](super::RaftNode::install) answered there.
    fn send_snapshot<'a>(
        &'a self,
        target: &'a Member,
        vote: Vec<u8>,
        dir: PathBuf,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>>;
}

/// The transport of a server that has no peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Transport for Alone {
    fn call<'a>(
        &'a self,
        target: &'a Member,
        _: Method,
        _: Vec<u8>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        let error = TransportError::Unreachable(format!("{target}: this server has no peers"));
        Box::pin(async move { Err(error) })
    }

    fn send_snapshot<'a>(
        &'a self,
        target: &'a Member,
        _: Vec<u8>,
        _: PathBuf,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        let error = TransportError::Unreachable(format!("{target}: this server has no peers"));
        Box::pin(async move { Err(error) })
    }
}

pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TransportError> {
    rmp_serde::to_vec_named(value).map_err(|e| TransportError::Refused(e.to_string()))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TransportError> {
    rmp_serde::from_slice(bytes).map_err(|e| TransportError::Refused(e.to_string()))
}

/// Makes the connections openraft requests.
#[derive(Clone)]
pub(super) struct Network {
    transport: Arc<dyn Transport>,
    this: u64,
}

impl Network {
    pub(super) fn new(transport: Arc<dyn Transport>, this: u64) -> Network {
        Network { transport, this }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer {
        Peer {
            transport: Arc::clone(&self.transport),
            this: self.this,
            target,
            member: node.clone(),
        }
    }
}

/// One peer as openraft talks to it.
pub(super) struct Peer {
    transport: Arc<dyn Transport>,
    this: u64,
    target: u64,
    member: Member,
}

impl Peer {
    async fn call<Req: Serialize, Res: DeserializeOwned>(
        &self,
        method: Method,
        kind: RPCTypes,
        request: &Req,
        option: &RPCOption,
    ) -> Result<Res, RPCError<TypeConfig>> {
        let ttl = option.hard_ttl();
        let sent = async {
            let bytes = encode(request)?;
            let call = self.transport.call(&self.member, method, bytes, ttl);
            let answer = tokio::time::timeout(ttl, call)
                .await
                .map_err(|_| TransportError::TimedOut(ttl))??;
            decode(&answer)
        };
        sent.await.map_err(|e| match e {
            TransportError::Unreachable(_) | TransportError::Refused(_) => {
                RPCError::Unreachable(Unreachable::new(&AnyError::new(&e)))
            }
            TransportError::Broken(_) => RPCError::Network(NetworkError::new(&AnyError::new(&e))),
            TransportError::TimedOut(timeout) => RPCError::Timeout(Timeout {
                action: kind,
                id: self.this,
                target: self.target,
                timeout,
            }),
        })
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotDir;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Method::Append, RPCTypes::AppendEntries, &rpc, &option)
            .await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Method::Vote, RPCTypes::Vote, &rpc, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Method::PreVote, RPCTypes::Vote, &rpc, &option)
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, SnapshotDir>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let unreachable =
            |e: TransportError| StreamingError::Unreachable(Unreachable::new(&AnyError::new(&e)));
        let vote = encode(&vote).map_err(unreachable)?;
        let dir = snapshot.snapshot.path().to_owned();
        let sent = self.transport.send_snapshot(&self.member, vote, dir);
        let answer = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            answer = sent => answer.map_err(unreachable)?,
        };
        decode(&answer).map_err(unreachable)
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(
            Method::TransferLeader,
            RPCTypes::TransferLeader,
            &req,
            &option,
        )
        .await
    }
}
