//! How fresh a read must be, and waiting until it is.

use openraft::errors::{LinearizableReadError, RaftError};
use openraft::raft::ReadPolicy;

use super::node::{Leadership, RaftNode};
use super::types::TypeConfig;
use crate::error::{Code, Refusal};

/// The freshness a read requests, in the terms of Nomad's API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The leader's state; a leader cut off for less than its lease may answer.
    #[default]
    Default,
    /// The leader's state, after a majority has confirmed that it leads.
    Consistent,
    /// Whatever this server has applied.
    Stale,
}

impl RaftNode {
    /// Returns when a view taken afterwards is as fresh as requested.
    ///
    /// # Errors
    /// [`Code::NoLeader`] if this server does not lead (the caller forwards to
    /// [`leadership`](RaftNode::leadership)'s member) or cannot confirm that it does.
    pub async fn read_barrier(&self, consistency: Consistency) -> Result<(), Refusal> {
        if consistency == Consistency::Stale {
            return Ok(());
        }
        if let Some(parked) = self.parked() {
            return Err(Refusal::new(Code::NoLeader, parked.to_string()));
        }
        let leading = matches!(*self.leadership.borrow(), Leadership::Leading { .. });
        if !leading {
            let fault = self.fault().map(|why| Refusal::new(Code::NoLeader, why));
            return Err(fault.unwrap_or_else(no_leader));
        }
        // No other server can lead, and all that was acknowledged is applied here.
        if self.raft.voter_ids().take(2).count() == 1 {
            return Ok(());
        }
        if consistency == Consistency::Default
            && self
                .raft
                .ensure_linearizable(ReadPolicy::LeaseRead)
                .await
                .is_ok()
        {
            return Ok(());
        }
        let confirmed = self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
        confirmed.map(|_| ()).map_err(
            |e: RaftError<TypeConfig, LinearizableReadError<TypeConfig>>| {
                tracing::debug!(error = %e, "cannot confirm leadership");
                no_leader()
            },
        )
    }
}

pub(crate) fn no_leader() -> Refusal {
    Refusal::new(Code::NoLeader, "No cluster leader")
}
