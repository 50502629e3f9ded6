//! Raft: a thin module over openraft, the log engine and the projections.
//!
//! What it is: [`RaftNode`] starts openraft on a thread of its own over a [`LogStore`] (the log
//! engine) and a [`StateMachine`] whose applier thread owns the one [`Fold`] (the projections'
//! writer). [`network`] carries Raft's messages over whatever
//! [`Transport`] it is given; [`snapshot`] is what a new server starts from.
//!
//! What it must not know: HTTP, what an event means, tables. openraft's types leave this module
//! only as [`Member`], indexes and [`Leadership`].
//!
//! Invariants:
//! 1. One entry is one event; its bytes are made once, by the leader's [`crate::proposer`].
//! 2. Only the applier can write projections; it applies in the order of the log.
//! 3. An event this server cannot read parks the applier. That is no error to openraft: the log
//!    continues to grow, reads are stale and say so, nothing is skipped.
//! 4. openraft neither snapshots nor purges of its own accord.
//!
//! Start reading at `node.rs`, then `state_machine.rs`.

mod fold;
mod log_store;
pub mod network;
mod node;
mod pace;
mod read;
pub mod seed;
pub mod snapshot;
mod state_machine;
mod types;
mod write;

#[cfg(test)]
pub(crate) mod cluster_test;
#[cfg(test)]
mod kill_test;
#[cfg(test)]
mod store_test;

pub use fold::{Discard, Fold, FoldError, FoldPosition, Observer, Projector, Save};
pub use log_store::LogStore;
pub use network::{Method, Transport, TransportError};
pub(crate) use node::fault;
pub use node::{Leadership, RaftFailure, RaftNode, RaftSettings, RaftStart};
pub use read::Consistency;
pub(crate) use read::no_leader;
pub use state_machine::{Parked, StateMachine};
pub use types::{Entry, Member, Payload, Response, TypeConfig, raft_node_id};
pub use write::LogWriter;
