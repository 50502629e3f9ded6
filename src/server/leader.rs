//! What works on volumes knows of leadership: the term, a majority's word, and the way to change
//! the state.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::commands::Command;
use crate::csi_calls::Lead;
use crate::error::Refusal;
use crate::proposer::{Committed, Origin, Proposer};
use crate::raft::{Consistency, RaftNode};
use crate::volumes::VolumeStore;

/// The record of a server.
pub(crate) struct Leader {
    proposer: Proposer,
    raft: Arc<RaftNode>,
}

impl Leader {
    /// What a server leads with.
    pub(crate) fn new(proposer: Proposer, raft: Arc<RaftNode>) -> Arc<Self> {
        Arc::new(Self { proposer, raft })
    }
}

impl Lead for Leader {
    fn term(&self) -> Option<u64> {
        *self.proposer.ready().borrow()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(self.raft.read_barrier(Consistency::Consistent))
    }
}

impl VolumeStore for Leader {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        Box::pin(self.proposer.submit(command, origin))
    }
}
