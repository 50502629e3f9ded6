//! Commands: intentions that may be refused, and the events they become.
//!
//! A command lives in memory on the leader. [`Command::decide`] is a pure function of a view, the
//! command and a stamp; the proposer (`crate::raft`) encodes what it answers, once, and calls it
//! again on a fresh view when apply refused the event. Authentication and authorisation are over
//! before a command exists. No clock, no randomness and no I/O but the view in here.

use drover_events::{Event, EventId, Guard};
use drover_projections::View;

use crate::error::ApiError;

/// What the proposer gives to a decision: nothing else may differ between two runs.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The id the event will have.
    pub id: EventId,
    /// The leader's clock in Unix nanoseconds. The event's own time may be a little later.
    pub now: i64,
}

/// What should happen, and what must still be so when it does.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The event.
    pub event: Event,
    /// Checked by apply before anything is written.
    pub guards: Vec<Guard>,
}

impl Decision {
    /// An event that needs no guard.
    pub fn free(event: impl Into<Event>) -> Decision {
        Decision {
            event: event.into(),
            guards: Vec::new(),
        }
    }
}

/// An intention.
pub trait Command: Send + Sync + 'static {
    /// Reads the view and answers the event that should happen.
    ///
    /// # Errors
    /// The refusal, in the words of Nomad's API.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError>;
}
