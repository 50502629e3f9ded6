//! From command to committed event.
//!
//! A command is decided in its caller's task on a fresh view and encoded once. One task stamps the
//! time, so that time order is index order, and hands what waits to openraft together. If apply
//! refused the event because the world had moved, the command is decided again.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drover_events::actor::Actor;
use drover_events::codec::{CodecError, Draft};
use drover_events::{Envelope, Event, EventId};
use drover_projections::{Outcome, Projections, Rejection, Reply, View};
use futures_util::StreamExt;
use openraft::raft::WriteResult;
use tokio::sync::{mpsc, oneshot, watch};

use super::node::{Inner, Leadership, RaftNode};
use super::read::no_leader;
use super::types::{Payload, Response, TypeConfig};
use crate::commands::{Command, Decision, Stamp, refuse_later};
use crate::error::{ApiError, Code};
use crate::log::Space;

/// How often a refused command is decided again.
const TRIES: u32 = 5;
/// Events handed to openraft at a time.
const BATCH: usize = 4096;
/// Bytes handed to openraft at a time, roughly.
const BATCH_BYTES: usize = 4 << 20;
/// Submissions that may wait for the proposer.
const QUEUE: usize = 8192;

/// Where a command comes from: what the envelope says beside the event.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Who acts.
    pub actor: Actor,
    /// Names the request, and with it the whole chain of events.
    pub request_id: String,
    /// The index of the event this one follows from.
    pub cause: Option<u64>,
    /// W3C trace parent, or empty.
    pub trace: String,
}

/// A committed and applied event.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Its index.
    pub index: u64,
    /// What apply answered.
    pub reply: Reply,
}

/// The events a leader proposes before anything else: `LeaderElected` and what must follow it.
pub type FirstEvents = Arc<dyn Fn(&View) -> Vec<Event> + Send + Sync>;

/// What a decision leaves to be done.
enum Decided {
    Draft(Draft),
    Nothing(Committed),
}

struct Submission {
    draft: Draft,
    answer: oneshot::Sender<Result<Response, ApiError>>,
}

/// Submits commands; clones share one queue.
#[derive(Clone)]
pub struct Proposer {
    tx: mpsc::Sender<Submission>,
    projections: Arc<Projections>,
    node: Arc<RaftNode>,
    ready: watch::Receiver<Option<u64>>,
}

impl Proposer {
    /// Starts the proposer task on Raft's thread. `this` is the actor of the leader's own events.
    pub fn start(
        node: Arc<RaftNode>,
        projections: Arc<Projections>,
        this: Actor,
        first: FirstEvents,
    ) -> Proposer {
        let (tx, rx) = mpsc::channel(QUEUE);
        let (ready_tx, ready) = watch::channel(None);
        let task = Task {
            raft: node.raft.clone(),
            projections: Arc::clone(&projections),
            leadership: node.leadership(),
            ready: ready_tx,
            this,
            first,
            last_time: 0,
        };
        node.handle.spawn(task.run(rx));
        Proposer {
            tx,
            projections,
            node,
            ready,
        }
    }

    /// The term in which commands are taken: this server leads and its first events are applied.
    pub fn ready(&self) -> watch::Receiver<Option<u64>> {
        self.ready.clone()
    }

    /// Decides, replicates and applies a command.
    ///
    /// # Errors
    /// The command's own refusal; [`Code::NoLeader`] where this server does not lead;
    /// [`Code::Unavailable`] while the disk is full; [`Code::PayloadTooLarge`];
    /// [`Code::Conflict`] if the world moved under every try. After `NoLeader` the event may
    /// still become committed by the next leader.
    pub async fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> Result<Committed, ApiError> {
        let mut tried = 0;
        loop {
            let draft = match self.decide(&*command, &origin)? {
                Decided::Draft(draft) => draft,
                Decided::Nothing(committed) => return Ok(committed),
            };
            let response = self.propose(draft).await?;
            let rejection = match response.outcome {
                Some(Outcome::Applied(reply)) => {
                    return Ok(Committed {
                        index: response.index,
                        reply,
                    });
                }
                Some(Outcome::Rejected(rejection)) => rejection,
                None => {
                    return Ok(Committed {
                        index: response.index,
                        reply: Reply::None,
                    });
                }
            };
            tried += 1;
            if tried > TRIES {
                return Err(refused(&rejection));
            }
            tracing::debug!(index = response.index, ?rejection, tried, "decided again");
            let jitter = rand::random::<u64>() % (1000 << tried);
            tokio::time::sleep(Duration::from_micros(jitter)).await;
        }
    }

    fn decide(&self, command: &dyn Command, origin: &Origin) -> Result<Decided, ApiError> {
        if self.ready.borrow().is_none() {
            return Err(no_leader());
        }
        if self.node.log.space() != Space::Enough {
            return Err(ApiError::new(
                Code::Unavailable,
                "no space left for the log",
            ));
        }
        let view = self.projections.view();
        let stamp = Stamp {
            id: new_id(),
            now: now(),
        };
        let index = view.index();
        let decision = command.decide(&view, &stamp)?;
        drop(view);
        Ok(match decision {
            Decision::Event { event, guards } => {
                Decided::Draft(encode(origin, stamp.id, guards, event)?)
            }
            Decision::Nothing(reply) => Decided::Nothing(Committed { index, reply }),
        })
    }

    /// Queues an event that is decided already, under an id its successors may be guarded by. It
    /// is in its place among all events when this returns; the answer comes once it is applied.
    /// It is not decided again when apply refuses it.
    ///
    /// # Errors
    /// As for [`Proposer::submit`], but for a refusal, which is in the answer.
    pub async fn queue(
        &self,
        id: EventId,
        event: Event,
        guards: Vec<drover_events::Guard>,
        origin: &Origin,
    ) -> Result<impl Future<Output = Result<Response, ApiError>> + Send + 'static, ApiError> {
        if self.ready.borrow().is_none() {
            return Err(no_leader());
        }
        if self.node.log.space() != Space::Enough {
            return Err(ApiError::new(
                Code::Unavailable,
                "no space left for the log",
            ));
        }
        let draft = encode(origin, id, guards, event)?;
        let (answer, wait) = oneshot::channel();
        let submission = Submission { draft, answer };
        self.tx.send(submission).await.map_err(|_| no_leader())?;
        Ok(async move { wait.await.map_err(|_| no_leader())? })
    }

    async fn propose(&self, draft: Draft) -> Result<Response, ApiError> {
        let (answer, wait) = oneshot::channel();
        self.tx
            .send(Submission { draft, answer })
            .await
            .map_err(|_| no_leader())?;
        wait.await.map_err(|_| no_leader())?
    }
}

fn encode(
    origin: &Origin,
    id: EventId,
    guards: Vec<drover_events::Guard>,
    event: Event,
) -> Result<Draft, ApiError> {
    refuse_later(event.kind())?;
    let envelope = Envelope {
        time: 0,
        id,
        actor: origin.actor.clone(),
        request_id: origin.request_id.clone(),
        cause: origin.cause,
        trace: origin.trace.clone(),
        guards,
        event,
    };
    Draft::encode(&envelope).map_err(|e| match e {
        CodecError::TooLarge { .. } => ApiError::new(Code::PayloadTooLarge, e.to_string()),
        other => ApiError::new(Code::Internal, other.to_string()),
    })
}

fn refused(rejection: &Rejection) -> ApiError {
    match rejection {
        Rejection::Rule { message } => ApiError::new(Code::Refused, message.clone()),
        Rejection::Guard { .. } => ApiError::new(
            Code::Conflict,
            "the object changed while the request was being decided",
        ),
    }
}

fn new_id() -> EventId {
    EventId(*uuid::Uuid::now_v7().as_bytes())
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The one task that stamps.
struct Task {
    raft: Inner,
    projections: Arc<Projections>,
    leadership: watch::Receiver<Leadership>,
    ready: watch::Sender<Option<u64>>,
    this: Actor,
    first: FirstEvents,
    last_time: i64,
}

impl Task {
    async fn run(mut self, mut rx: mpsc::Receiver<Submission>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                changed = self.leadership.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.turn().await;
                }
                n = rx.recv_many(&mut batch, BATCH) => {
                    if n == 0 {
                        break;
                    }
                    self.hand_over(&mut batch).await;
                }
            }
        }
        self.ready.send_replace(None);
    }

    /// Leadership changed.
    async fn turn(&mut self) {
        let now = self.leadership.borrow_and_update().clone();
        let Leadership::Leading { term } = now else {
            self.ready.send_replace(None);
            return;
        };
        let view = self.projections.view();
        self.last_time = self.last_time.max(view.time());
        let events = (self.first)(&view);
        drop(view);
        for event in events {
            if let Err(e) = self.own(term, event).await {
                tracing::warn!(error = %e, "a leader's first event failed");
                return;
            }
        }
        self.ready.send_replace(Some(term));
    }

    /// Proposes one of the leader's own events and waits until it is applied.
    async fn own(&mut self, term: u64, event: Event) -> Result<(), ApiError> {
        let request_id = format!("leader-{term}");
        let origin = Origin {
            actor: self.this.clone(),
            request_id,
            ..Origin::default()
        };
        let draft = encode(&origin, new_id(), Vec::new(), event)?;
        let (answer, wait) = oneshot::channel();
        self.hand_over(&mut vec![Submission { draft, answer }])
            .await;
        wait.await.map_err(|_| no_leader())?.map(|_| ())
    }

    /// Stamps a batch and gives it to openraft; the answers are waited for elsewhere.
    async fn hand_over(&mut self, batch: &mut Vec<Submission>) {
        let mut rest = batch.drain(..).peekable();
        while rest.peek().is_some() {
            let mut bytes = 0;
            let (mut payloads, mut answers) = (Vec::new(), Vec::new());
            while let Some(s) = rest.next_if(|_| bytes < BATCH_BYTES) {
                bytes += s.draft.size();
                self.last_time = self.last_time.max(now());
                payloads.push(Payload::from(s.draft.stamp(self.last_time)));
                answers.push(s.answer);
            }
            match self.raft.client_write_many(payloads).await {
                Ok(mut results) => {
                    tokio::spawn(async move {
                        for answer in answers {
                            let result = results.next().await;
                            let _ = answer.send(outcome(result));
                        }
                    });
                }
                Err(e) => {
                    tracing::warn!(error = %e, "raft has stopped");
                    for answer in answers {
                        let _ = answer.send(Err(no_leader()));
                    }
                }
            }
        }
    }
}

type Written = Result<WriteResult<TypeConfig>, openraft::errors::Fatal<TypeConfig>>;

fn outcome(result: Option<Written>) -> Result<Response, ApiError> {
    match result {
        Some(Ok(Ok(written))) => Ok(written.response),
        Some(Ok(Err(e))) => {
            tracing::debug!(error = %e, "not the leader");
            Err(no_leader())
        }
        Some(Err(e)) => Err(ApiError::new(
            Code::Internal,
            format!("raft has stopped: {e}"),
        )),
        None => Err(no_leader()),
    }
}
