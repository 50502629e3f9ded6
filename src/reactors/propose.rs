//! How reactors change the state: by proposing events they have decided on.

use std::sync::Arc;

use drover_events::{Event, EventId, Guard};
use drover_projections::Rejection;
use futures_util::future::BoxFuture;

use crate::error::ApiError;

/// An event that was decided on, under an id its successors may already be guarded by.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The event's id.
    pub id: EventId,
    /// What happened, if the guards hold.
    pub event: Event,
    /// What it rests on.
    pub guards: Vec<Guard>,
    /// The reactor that decided.
    pub reactor: &'static str,
    /// The index of the event this one follows from.
    pub cause: Option<u64>,
}

impl Decided {
    /// An event with a new id.
    pub fn new(reactor: &'static str, event: impl Into<Event>) -> Self {
        Self {
            id: EventId(*uuid::Uuid::now_v7().as_bytes()),
            event: event.into(),
            guards: Vec::new(),
            reactor,
            cause: None,
        }
    }

    /// Adds a guard.
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    /// Says what it follows from.
    pub fn caused_by(mut self, index: u64) -> Self {
        self.cause = Some(index).filter(|index| *index > 0);
        self
    }
}

/// The end of a proposed event.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Its index.
    pub index: u64,
    /// Why it changed nothing, if so.
    pub rejection: Option<Rejection>,
}

/// The end of a proposed event, once it is applied here.
pub type Settling = BoxFuture<'static, Result<Settled, ApiError>>;

/// Proposes events. Those that are queued one after the other are committed in that order.
pub trait Propose: Send + Sync + 'static {
    /// Queues an event; it is in its place when the outer future is done, and applied when the
    /// inner one is.
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<Settling, ApiError>>;
}

/// Proposes an event and waits for its end.
pub async fn propose(proposer: &Arc<dyn Propose>, decided: Decided) -> Result<Settled, ApiError> {
    proposer.queue(decided).await?.await
}
