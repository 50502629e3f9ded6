//! How reactors change the state: by proposing events they have decided on.

use std::sync::Arc;

use drover_events::actor::Actor;
use drover_events::{Event, EventId, Guard};
use drover_projections::{Outcome, Rejection, View};
use futures_util::future::BoxFuture;

use super::{Committed, Origin, Proposer};
use crate::commands::{Command, Decision, Stamp};
use crate::error::Refusal;

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
pub struct EventOutcome {
    pub index: u64,
    /// Why it changed nothing, if so.
    pub rejection: Option<Rejection>,
}

/// The end of a proposed event, once it is applied here.
pub type PendingOutcome = BoxFuture<'static, Result<EventOutcome, Refusal>>;

/// A command of a reactor, with the event that it follows from.
pub struct Following {
    /// What is to be done.
    pub command: Arc<dyn Command>,
    /// The index of what was seen.
    pub cause: u64,
}

impl Command for Following {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        self.command.decide(view, stamp)
    }

    fn cause(&self, view: &View) -> Option<u64> {
        let seen = Some(self.cause).filter(|index| *index > 0);
        seen.or_else(|| self.command.cause(view))
    }

    fn is_tried(&self) -> bool {
        self.command.is_tried()
    }

    fn is_long(&self) -> bool {
        self.command.is_long()
    }
}

/// Proposes events. Those that are queued one after the other are committed in that order.
pub trait Propose: Send + Sync + 'static {
    /// Queues an event; it is in its place when the outer future is done, and applied when the
    /// inner one is.
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>>;

    /// Submits a command in the name of a reactor; it is decided again when the world moves. One
    /// that panics is refused like any other (`caught`), so that a caller with many to submit
    /// continues with the next.
    fn submit(
        &self,
        command: Arc<dyn Command>,
        reactor: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>>;
}

/// Proposes an event and waits for its end.
pub async fn propose(
    proposer: &Arc<dyn Propose>,
    decided: Decided,
) -> Result<EventOutcome, Refusal> {
    proposer.queue(decided).await?.await
}

/// Proposes through Raft, as this server.
#[derive(Clone)]
pub struct RaftPropose {
    proposer: Proposer,
    server: String,
}

impl RaftPropose {
    /// `server` is this server's id, the actor of what its reactors do.
    pub fn new(proposer: Proposer, server: impl Into<String>) -> Self {
        Self {
            proposer,
            server: server.into(),
        }
    }
}

impl Propose for RaftPropose {
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>> {
        Box::pin(async move {
            let origin = Origin {
                actor: Actor::server(&self.server, decided.reactor),
                request_id: decided.id.to_string(),
                cause: decided.cause,
                trace: String::new(),
            };
            let Decided {
                id, event, guards, ..
            } = decided;
            let answer = self.proposer.queue(id, event, guards, &origin).await?;
            let pending: PendingOutcome = Box::pin(async move {
                let response = answer.await?;
                let rejection = match response.outcome {
                    Some(Outcome::Rejected(rejection)) => Some(rejection),
                    Some(Outcome::Applied(_)) | None => None,
                };
                Ok(EventOutcome {
                    index: response.index,
                    rejection,
                })
            });
            Ok(pending)
        })
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        reactor: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        Box::pin(async move {
            let origin = Origin {
                actor: Actor::server(&self.server, reactor),
                request_id: uuid::Uuid::now_v7().to_string(),
                ..Origin::default()
            };
            self.proposer.submit(command, origin).await
        })
    }
}
