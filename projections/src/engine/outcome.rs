//! What becomes of an event in apply: a reply, or a refusal that leaves nothing behind.
//!
//! [`Refused`] is what an apply function returns; [`Rejection`] is what is kept of it in `outcomes`
//! and handed to the proposer, which decides again. A storage failure is neither: it stops the
//! applier.

use drover_events::model::{VariableEncrypted, VariableMetadata};
use serde::{Deserialize, Serialize};

use crate::engine::error::StorageError;

/// What applying an event returns to its proposer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reply {
    /// Nothing beyond the index.
    #[default]
    None,
    /// How many rows a rule touched.
    Count(u64),
    /// Whether a check-and-set took place.
    Cas(bool),
    /// One page of a rule: how many rows it touched, and where the next page begins (empty: this
    /// was the last).
    Page {
        /// Rows of this page.
        count: u64,
        /// The token of the next page.
        next: String,
    },
    /// What became of an operation on a variable.
    Variable(Box<VarOutcome>),
    /// Encoded value whose shape the command and the apply function of one resource share.
    Bytes(Vec<u8>),
}

/// What became of an operation on a variable; a conflict is a normal result (VAR-03).
#[derive(Clone, Debug, PartialEq)]
pub enum VarOutcome {
    /// It was written.
    Written(VariableMetadata),
    /// It was removed; none if it was not there.
    Deleted(Option<VariableMetadata>),
    /// It is not as the caller knows it: this is there (without index where nothing is).
    Conflict(VariableEncrypted),
}

/// Why an apply function stopped. Everything it wrote for this event is taken back (EV-20).
#[derive(Debug)]
pub enum Refused {
    /// The world moved since the decision; the leader decides again.
    Rejected(Rejection),
    /// The database failed; the applier stops.
    Storage(StorageError),
}

impl Refused {
    /// A refusal by rule, with the text an operator reads (EV-18).
    pub fn because(message: impl Into<String>) -> Self {
        Self::Rejected(Rejection::Rule {
            message: message.into(),
        })
    }
}

impl From<StorageError> for Refused {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// Why an event changed nothing. Kept in `outcomes` under the event's index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// A guard did not hold.
    Guard {
        /// Its position in the envelope, from 0.
        position: u32,
        /// The modify index found (0: no such row), or the number of rows counted.
        found: u64,
    },
    /// An invariant that apply checks did not hold.
    Rule {
        /// The text for an operator.
        message: String,
    },
}

/// What became of one event.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It changed the state.
    Applied(Reply),
    /// It changed nothing.
    Rejected(Rejection),
}

/// The outcome of the event at an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The event's index.
    pub index: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// Where an outcome lies among the database's own entries.
pub(crate) fn outcome_key(index: u64) -> [u8; 9] {
    let mut key = [b'o'; 9];
    key[1..].copy_from_slice(&index.to_be_bytes());
    key
}
