//! Commands: a caller's intention, in memory on the leader, which may be refused.
//!
//! A command reads a view and says which event should happen ([`Command::decide`]); that is a pure
//! function of the view, the command and the stamp. The caller was identified before. Between the
//! decision and the commit the world may move: what the decision rests on is in its guards, and
//! every invariant is checked again by apply.
//!
//! A command's file has the name of its resource, as in `events/src` and `projections/src/apply`.
//! It must not know: HTTP, RPC, Raft, clocks, randomness. Times and ids come with the command or
//! the stamp.

pub mod acl;
pub mod alloc;
pub mod cluster;
pub mod csi;
#[cfg(test)]
mod csi_test;
pub mod deployment;
pub mod eval;
pub mod host_volume;
pub mod job;
pub mod keyring;
pub mod limits;
pub mod namespace;
pub mod node;
pub mod node_drain;
pub mod node_pool;
#[cfg(test)]
mod pages_test;
pub mod service;
#[cfg(test)]
mod small_test;
mod support;
pub mod system_jobs;
#[cfg(test)]
mod testing;
pub mod variable;

use drover_events::{Event, EventId, EventKind, Guard};
use drover_projections::{Reply, View};
use sha2::{Digest as _, Sha256};

use drover_error::{Code, Refusal};

/// What the leader gives a decision: the id its event will have, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The id of the event.
    pub id: EventId,
    /// Unix nanoseconds.
    pub now: i64,
}

impl Stamp {
    /// A UUID that follows from the event's id: the `n`th one this decision needs.
    pub fn uuid(&self, n: u64) -> String {
        let mut hash = Sha256::new();
        hash.update(b"drover stamp uuid");
        hash.update(self.id.0);
        hash.update(n.to_le_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        uuid::Builder::from_custom_bytes(bytes)
            .with_version(uuid::Version::Random)
            .into_uuid()
            .to_string()
    }
}

/// What a decision comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// This event should happen, if the guards hold when it is applied.
    Event {
        /// What should happen.
        event: Event,
        /// What it rests on.
        guards: Vec<Guard>,
    },
    /// One page of a rule that touches more rows than one event may: this should happen, and then
    /// the command is decided again. An event whose lists are too long needs no page: it is cut
    /// where it is proposed.
    Page {
        /// What should happen first.
        event: Event,
        /// What it rests on.
        guards: Vec<Guard>,
    },
    /// All is as it should be: nothing is proposed, this is the answer.
    Nothing(Reply),
}

impl Decision {
    /// An event without guards: it rests on nothing but what apply checks itself.
    pub fn unguarded(event: impl Into<Event>) -> Self {
        Self::guarded(event, Vec::new())
    }

    /// An event with guards.
    pub fn guarded(event: impl Into<Event>, guards: Vec<Guard>) -> Self {
        Self::Event {
            event: event.into(),
            guards,
        }
    }
}

/// An intention. `decide` may be called several times, each time with a newer view: after a guard
/// failed, and after a [`Decision::Page`].
pub trait Command: Send + Sync + 'static {
    /// Reads the view and says which event should happen.
    ///
    /// # Errors
    /// The refusal, in the words a client reads.
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal>;

    /// The index of the event that the decision follows from, where it is known from the state and
    /// not from the caller; none for what begins a chain.
    fn cause(&self, _view: &View) -> Option<u64> {
        None
    }

    /// Whether it goes through rows that were not read before: then the event is tried out, so that
    /// an unreadable row among them is a refusal, and does not stop the applier.
    fn is_tried(&self) -> bool {
        false
    }

    /// Whether it is so large that deciding and encoding it takes long, whatever has to be read:
    /// then that is not done by a thread that serves others.
    fn is_long(&self) -> bool {
        false
    }
}

/// Refuses an event whose apply comes later (the one list is in `drover_projections::apply`).
///
/// # Errors
/// [`Code::NotImplemented`] for such a kind.
pub fn refuse_later(kind: EventKind) -> Result<(), Refusal> {
    if drover_projections::apply::UNIMPLEMENTED.contains(&kind) {
        let text = format!("{kind} is not supported by this version");
        return Err(Refusal::new(Code::NotImplemented, text));
    }
    Ok(())
}

#[cfg(test)]
#[path = "rest_test.rs"]
mod tests;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: drover_testkit::counting::Counting = drover_testkit::counting::Counting;
