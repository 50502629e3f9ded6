//! From command to committed event.
//!
//! A command is decided in its caller's task on a fresh view and encoded once. One task stamps the
//! time, so that time order is index order, and hands what waits to Raft together. If apply
//! refused the event because the world had moved, the command is decided again. While the disk is
//! full or apply is far behind, proposals are held back (`backpressure.rs`). What is too large for
//! one event is cut (`fit.rs`). Of what a leader begins with, the part that fails is left out
//! (`first.rs`). Reactors propose what they have decided on themselves ([`decided`]).
//!
//! What it must not know: the caller, what an event means, how Raft replicates.
//!
//! Invariants:
//! 1. Events are stamped by one task, so time order is index order.
//! 2. The bytes of an event are made once, by the leader.
//! 3. A caller is answered when its event is applied here, or with the reason why it is not known:
//!    also where a command panics while it is decided.

pub mod decided;

mod backpressure;
mod first;
pub(crate) mod fit;

#[cfg(test)]
mod deletion_test;
#[cfg(test)]
mod fault_test;
#[cfg(test)]
mod lists_test;
#[cfg(test)]
mod proposer_test;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drover_events::actor::Actor;
use drover_events::codec::{CodecError, Draft};
use drover_events::{Envelope, Event, EventId, Guard};
use drover_projections::{Outcome, Projections, Rejection, Reply, StorageError, View, unreadable};
use futures_util::StreamExt;
use smallvec::{SmallVec, smallvec};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::backpressure::Backpressure;
use self::fit::{Part, check_rows, fit};
use crate::base::clock::unix_nanos;
use crate::commands::{Command, Decision, Stamp, refuse_later};
use crate::error::{Code, Refusal, chain, panic_text};
use crate::raft::{Leadership, LogWriter, Payload, RaftNode, Response, no_leader};
use crate::table_reads::{offload, read_apart_from_api, read_long_for_decision};

/// How often a command is decided again because a guard did not hold.
const GUARD_TRIES: u32 = 5;
/// How often because apply refused it by rule: a fresh view mostly gives the refusal itself.
const RULE_TRIES: u32 = 1;
/// How long a command waits for a leader that was just elected to begin.
const BEGINNING: Duration = Duration::from_secs(2);
/// When a leader that could not begin tries again: at first, and at the most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Events handed to Raft at a time.
const BATCH: usize = 4096;
/// Bytes handed to Raft at a time, roughly.
const BATCH_BYTES: usize = 4 << 20;
/// Submissions that may wait for the proposer.
const QUEUE: usize = 8192;

/// Where a command comes from: what the envelope says beside the event.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Who submitted it.
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
    /// Where nothing had to be written, that of the state it was decided on.
    pub index: u64,
    /// What apply answered.
    pub reply: Reply,
    /// Whether the last decision wrote an event.
    pub is_written: bool,
}

/// The events a leader proposes before anything else: `LeaderElected` and what goes with it. They
/// are computed again, on a newer view, when one of them could not be proposed.
pub type FirstEvents = Arc<dyn Fn(&View) -> Result<Vec<Event>, StorageError> + Send + Sync>;

/// What a decision leaves to be done.
enum Decided {
    /// These events; the command is decided again behind them if `more`.
    Drafts {
        drafts: Drafts,
        more: bool,
    },
    Nothing(Committed),
}

/// One event, or the parts of one that was too large.
type Drafts = SmallVec<[Draft; 1]>;
type Responses = SmallVec<[Response; 1]>;

/// Events that follow one another in the log without a gap.
struct Submission {
    drafts: Drafts,
    answer: oneshot::Sender<Result<Responses, Refusal>>,
}

/// Submits commands; clones share one queue.
#[derive(Clone)]
pub struct Proposer {
    tx: mpsc::Sender<Submission>,
    projections: Arc<Projections>,
    space: Arc<Backpressure>,
    leadership: watch::Receiver<Leadership>,
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
            log: node.writer(),
            projections: Arc::clone(&projections),
            leadership: node.leadership(),
            ready: ready_tx,
            this,
            first,
            last_time: 0,
            again: None,
            delay: AGAIN.0,
        };
        node.handle().spawn(task.run(rx));
        let space = Arc::new(Backpressure::new(
            Arc::clone(node.log()),
            Arc::clone(&projections),
        ));
        Proposer {
            tx,
            projections,
            space,
            leadership: node.leadership(),
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
    /// [`Code::Unavailable`] while the disk is full or what is applied is written out too slowly,
    /// and once the log has stopped; [`Code::PayloadTooLarge`] or [`Code::BadRequest`] for an event
    /// beyond the limits that cannot be cut; [`Code::Conflict`] if the world moved under every try;
    /// [`Code::Internal`] where the command panics, or its event touches a row that cannot be read
    /// ([`Command::is_tried`]). After `NoLeader`, and after `Unavailable` that says so, the event
    /// may still become committed.
    pub async fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> Result<Committed, Refusal> {
        let (mut guards, mut rules) = (0, 0);
        loop {
            self.lead().await?;
            self.space.wait().await?;
            let decided = {
                let (own, command) = (self.clone(), Arc::clone(&command));
                let (origin, long) = (origin.clone(), command.is_long());
                let work = move || caught(|| own.decide(&*command, &origin));
                match long {
                    true => read_long_for_decision(work).await??,
                    false => read_apart_from_api(work).await??,
                }
            };
            let (drafts, more) = match decided {
                Decided::Drafts { drafts, more } => (drafts, more),
                Decided::Nothing(committed) => return Ok(committed),
            };
            let rejection = match combine(self.propose(drafts).await?) {
                Ok(_) if more => continue,
                Ok(committed) => return Ok(committed),
                Err(rejection) => rejection,
            };
            let (tried, tries) = match rejection {
                Rejection::Guard { .. } => (&mut guards, GUARD_TRIES),
                Rejection::Rule { .. } => (&mut rules, RULE_TRIES),
            };
            *tried += 1;
            if *tried > tries {
                return Err(refused(&rejection));
            }
            tracing::debug!(?rejection, tried, "decided again");
            let jitter = rand::random::<u64>() % (1000 << *tried);
            tokio::time::sleep(Duration::from_micros(jitter)).await;
        }
    }

    /// Waits while this server is elected and its first events are not applied yet. A view taken
    /// afterwards holds everything that was ever acknowledged, also after a restart.
    ///
    /// # Errors
    /// [`Code::NoLeader`] where this server does not lead, or does not begin soon.
    pub async fn lead(&self) -> Result<(), Refusal> {
        if self.ready.borrow().is_some() {
            return Ok(());
        }
        let elected = match &*self.leadership.borrow() {
            Leadership::Elected | Leadership::Leading { .. } => true,
            Leadership::Unknown | Leadership::Following(_) => false,
        };
        let mut ready = self.ready.clone();
        let began = tokio::time::timeout(BEGINNING, ready.wait_for(Option::is_some));
        if elected && matches!(began.await, Ok(Ok(_))) {
            return Ok(());
        }
        Err(self.space.or_fault(no_leader()))
    }

    fn decide(&self, command: &dyn Command, origin: &Origin) -> Result<Decided, Refusal> {
        let view = self.projections.view();
        let stamp = Stamp {
            id: new_id(),
            now: unix_nanos(),
        };
        let index = view.index();
        let decision = command.decide(&view, &stamp)?;
        if let Decision::Event { event, guards } | Decision::Page { event, guards } = &decision {
            tried(&view, command.is_tried(), event, guards)?;
        }
        let cause = origin.cause.or_else(|| command.cause(&view));
        let origin = &Origin {
            cause,
            ..origin.clone()
        };
        drop(view);
        let (event, guards, more) = match decision {
            Decision::Event { event, guards } => (event, guards, false),
            Decision::Page { event, guards } => (event, guards, true),
            Decision::Nothing(reply) => {
                return Ok(Decided::Nothing(Committed {
                    index,
                    reply,
                    is_written: false,
                }));
            }
        };
        let mut id = Some(stamp.id);
        let drafts = fit(event, guards, |event, guards| {
            encode(origin, id.take().unwrap_or_else(new_id), guards, event)
        })?;
        Ok(Decided::Drafts {
            drafts: drafts.into(),
            more,
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
        guards: Vec<Guard>,
        origin: &Origin,
    ) -> Result<impl Future<Output = Result<Response, Refusal>> + Send + 'static, Refusal> {
        self.lead().await?;
        self.space.wait().await?;
        let draft = caught(|| {
            check_rows(&event)?;
            if unreadable::is_met() {
                offload(|| tried(&self.projections.view(), false, &event, &guards))?;
            }
            encode(origin, id, guards, event).map_err(|(error, _)| error)
        })?;
        let drafts = smallvec![draft];
        let (answer, wait) = oneshot::channel();
        let submission = Submission { drafts, answer };
        let sent = self.tx.send(submission).await;
        sent.map_err(|_| self.space.or_fault(no_leader()))?;
        let space = Arc::clone(&self.space);
        Ok(async move {
            let mut responses = space.answer(wait).await?;
            responses.pop().ok_or_else(no_leader)
        })
    }

    async fn propose(&self, drafts: Drafts) -> Result<Responses, Refusal> {
        let (answer, wait) = oneshot::channel();
        let submission = Submission { drafts, answer };
        let sent = self.tx.send(submission).await;
        sent.map_err(|_| self.space.or_fault(no_leader()))?;
        self.space.answer(wait).await
    }
}

/// Works out what is to be proposed. A panic in it is a fault of this server and the caller's
/// answer, like any other refusal: one command's failure does not end the work on the others. The
/// panic's text is for the log alone: it may quote what the caller may not read.
///
/// # Errors
/// Those of the work; [`Code::Internal`] for a panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let why = panic_text(&*panic);
        tracing::error!(panic = why, "a command panicked while it was decided");
        Err(Refusal::internal("internal error"))
    })
}

/// Refuses an event that touches a row which cannot be read: the applier would stop at it, and with
/// the applier everything else. Such rows are looked for where a command requires it (`is_tried`),
/// and in all events once one was met.
pub(crate) fn tried(
    view: &View,
    is_tried: bool,
    event: &Event,
    guards: &[Guard],
) -> Result<(), Refusal> {
    if is_tried || unreadable::is_met() {
        view.try_out(event, guards)?;
    }
    Ok(())
}

/// What became of an event and its parts: the first refusal, or the last index with the replies
/// taken together.
fn combine(responses: Responses) -> Result<Committed, Rejection> {
    let mut whole = Committed {
        index: 0,
        reply: Reply::None,
        is_written: true,
    };
    for Response { index, outcome } in responses {
        let reply = match outcome {
            Some(Outcome::Rejected(rejection)) => return Err(rejection),
            Some(Outcome::Applied(reply)) => reply,
            None => Reply::None,
        };
        whole.index = index;
        whole.reply = match (whole.reply, reply) {
            (Reply::Count(before), Reply::Count(more)) => Reply::Count(before + more),
            (Reply::None, reply) => reply,
            (before, _) => before,
        };
    }
    Ok(whole)
}

/// Encodes an event; gives it back with the reason if it cannot be.
fn encode(
    origin: &Origin,
    id: EventId,
    guards: Vec<Guard>,
    event: Event,
) -> Result<Draft, (Refusal, Box<Part>)> {
    let later = refuse_later(event.kind());
    let envelope = Envelope {
        time: 0,
        id,
        actor: origin.actor.clone(),
        // What a server does by itself names no request: its first event begins a chain.
        request_id: match origin.request_id.as_str() {
            "" => id.to_string(),
            request => request.to_owned(),
        },
        cause: origin.cause,
        trace: origin.trace.clone(),
        guards,
        event,
    };
    let draft = later.and_then(|()| {
        Draft::encode(&envelope).map_err(|e| match e {
            CodecError::TooLarge { .. } => Refusal::new(Code::PayloadTooLarge, e.to_string()),
            CodecError::TooDeep(_) => Refusal::bad_request(e.to_string()),
            other => Refusal::new(Code::Internal, other.to_string()),
        })
    });
    draft.map_err(|error| (error, Box::new((envelope.event, envelope.guards))))
}

fn refused(rejection: &Rejection) -> Refusal {
    match rejection {
        Rejection::Rule { message } => Refusal::new(Code::Refused, message.clone()),
        Rejection::Guard { .. } => Refusal::new(
            Code::Conflict,
            "the object changed while the request was being decided",
        ),
    }
}

fn new_id() -> EventId {
    EventId(*uuid::Uuid::now_v7().as_bytes())
}

/// The one task that stamps.
struct Task {
    log: LogWriter,
    projections: Arc<Projections>,
    leadership: watch::Receiver<Leadership>,
    ready: watch::Sender<Option<u64>>,
    this: Actor,
    first: FirstEvents,
    last_time: i64,
    /// When beginning to lead is tried again, if it failed.
    again: Option<Instant>,
    delay: Duration,
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
                    self.delay = AGAIN.0;
                    self.turn().await;
                }
                () = until(self.again) => self.turn().await,
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

    /// Leadership changed, or this server leads and could not begin yet.
    async fn turn(&mut self) {
        self.again = None;
        let now = self.leadership.borrow_and_update().clone();
        let Leadership::Leading { term } = now else {
            self.ready.send_replace(None);
            return;
        };
        match self.begin(term).await {
            Ok(()) => {
                self.ready.send_replace(Some(term));
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, again = ?self.delay, "this server cannot begin to lead yet");
                self.again = Some(Instant::now() + self.delay);
                self.delay = (self.delay * 2).min(AGAIN.1);
            }
        }
    }

    /// Proposes the first events. One that no log can take is left out, and so are parts that no
    /// server could apply: the others are worth more, and no second try would change it.
    async fn begin(&mut self, term: u64) -> Result<(), Refusal> {
        let view = self.projections.view();
        self.last_time = self.last_time.max(view.time());
        let events = offload(|| caught(|| (self.first)(&view).map_err(Refusal::from)))?;
        drop(view);
        let origin = Origin {
            actor: self.this.clone(),
            request_id: format!("leader-{term}"),
            ..Origin::default()
        };
        for event in events {
            // On what those before it made.
            let work = || first::drafts(&self.projections.view(), event, &origin);
            let drafts = offload(work);
            if !drafts.is_empty() {
                self.own(drafts).await?;
            }
        }
        Ok(())
    }

    /// Proposes one of the leader's own events, or its parts, and waits until it is applied.
    async fn own(&mut self, drafts: Vec<Draft>) -> Result<(), Refusal> {
        let drafts = drafts.into();
        let (answer, wait) = oneshot::channel();
        self.hand_over(&mut vec![Submission { drafts, answer }])
            .await;
        wait.await.map_err(|_| no_leader())?.map(|_| ())
    }

    /// Stamps a batch and gives it to Raft; the answers are waited for elsewhere.
    async fn hand_over(&mut self, batch: &mut Vec<Submission>) {
        let mut rest = batch.drain(..).peekable();
        while rest.peek().is_some() {
            let mut bytes = 0;
            let (mut payloads, mut answers) = (Vec::new(), Vec::new());
            while let Some(s) = rest.next_if(|_| bytes < BATCH_BYTES) {
                self.last_time = self.last_time.max(unix_nanos());
                answers.push((s.drafts.len(), s.answer));
                for draft in s.drafts {
                    bytes += draft.size();
                    payloads.push(Payload::from(draft.stamp(self.last_time)));
                }
            }
            match self.log.write(payloads).await {
                Ok(mut results) => {
                    tokio::spawn(async move {
                        for (count, answer) in answers {
                            let mut all = Ok(Responses::new());
                            for _ in 0..count {
                                let result =
                                    results.next().await.unwrap_or_else(|| Err(no_leader()));
                                all = all.and_then(|mut all: Responses| {
                                    all.push(result?);
                                    Ok(all)
                                });
                            }
                            let _ = answer.send(all);
                        }
                    });
                }
                Err(error) => {
                    for (_, answer) in answers {
                        let _ = answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// Waits for the moment, for ever where no moment is given.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
