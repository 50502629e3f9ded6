//! Proofs that the log is what it says: checkpoints, inclusion, consistency, verification.
//!
//! The bodies of the log's entries are the leaves of one tree (RFC 6962). A *checkpoint* is a
//! signed statement of the tree's root at an index together with the digests of the tables there;
//! with a kept checkpoint a user can later check whether the log still begins that way, and whether
//! an event is in it, without trusting the server that answers.
//!
//! What it must not know: Raft, HTTP, what an event means.
//!
//! Invariants:
//! 1. Leaf number = log index − first index of the epoch.
//! 2. Everything here but signatures follows from the log and can be made again.
//! 3. What does not verify is named by its place; nothing is repaired silently.
//!
//! Start reading at `merkle.rs` (proofs), then `checkpoint.rs` (what is signed), `ledger.rs` (what
//! a running server keeps), `verify.rs` (what an auditor runs).

mod blocks;
mod checkpoint;
mod ledger;
mod merkle;
mod note;
mod verify;
#[cfg(test)]
mod verify_test;

use std::path::PathBuf;

pub use blocks::{BLOCK, BlockTree, Blocks, Bodies, leaves};
pub use checkpoint::{Checkpoint, CheckpointFile, Notes, origin, state_digest};
pub use ledger::{Ledger, LedgerStatus};
#[cfg(test)]
pub(crate) use merkle::proves_inclusion;
pub use merkle::{Subtrees, consistency, inclusion, proves_consistency, root};
pub use note::{NoteError, NoteKey, open, sign, text};
pub use verify::{Finding, Verified, Verify, verify};

use crate::log::LogError;

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The log cannot be read, or is damaged.
    #[error(transparent)]
    Log(LogError),
    /// The log does not reach so far.
    #[error("{wanted} entries were requested, the log has {leaves}")]
    Short {
        /// The requested size.
        wanted: u64,
        /// The leaves there are.
        leaves: u64,
    },
    /// A file beside the log.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file of the tree's upper part.
    #[error("cannot write the upper part of the tree")]
    Blocks(#[source] std::io::Error),
    /// The question makes no sense.
    #[error("{0}")]
    Question(String),
}
