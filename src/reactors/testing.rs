//! Proposers for tests: one that does nothing, and one that applies at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::envelope::{Envelope, Recorded};
use drover_events::{Actor, Event, EventId, Guard};
use drover_projections::{Options, Outcome, Projections, Reply, Writer};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::propose::{Decided, Propose, Settled, Settling};
use crate::commands::{Command, Decision, Stamp};
use crate::error::ApiError;
use crate::raft::Committed;

/// Refuses everything.
pub(crate) struct Idle;

impl Propose for Idle {
    fn queue(&self, _: Decided) -> BoxFuture<'_, Result<Settling, ApiError>> {
        async { Err(ApiError::internal("nothing is proposed here")) }.boxed()
    }

    fn submit(
        &self,
        _: Arc<dyn Command>,
        _: &'static str,
    ) -> BoxFuture<'_, Result<Committed, ApiError>> {
        async { Err(ApiError::internal("nothing is proposed here")) }.boxed()
    }
}

/// A server of one without Raft: what is proposed is applied, in order, under the next index.
pub(crate) struct Direct {
    pub projections: Arc<Projections>,
    inner: Mutex<Inner>,
    /// Events are queued but not applied while this is set.
    pub held: AtomicBool,
    arrived: tokio::sync::Notify,
    _dir: tempfile::TempDir,
}

struct Inner {
    writer: Writer,
    index: u64,
    time: i64,
    waiting: Vec<(Recorded, tokio::sync::oneshot::Sender<Settled>)>,
}

impl Direct {
    pub(crate) fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (projections, writer) = Projections::open(dir.path(), Options::dev()).unwrap();
        let inner = Inner {
            writer,
            index: 0,
            time: 1,
            waiting: Vec::new(),
        };
        Arc::new(Self {
            projections,
            inner: Mutex::new(inner),
            held: AtomicBool::new(false),
            arrived: tokio::sync::Notify::new(),
            _dir: dir,
        })
    }

    /// Applies an event at once.
    pub(crate) fn apply(&self, event: impl Into<Event>) -> (u64, Outcome) {
        self.apply_as(EventId([0xaa; 16]), event)
    }

    /// Applies an event at once, under an id of its own.
    pub(crate) fn apply_as(&self, id: EventId, event: impl Into<Event>) -> (u64, Outcome) {
        let mut inner = self.inner.lock();
        let recorded = inner.record(id, event.into(), Vec::new());
        inner.apply(recorded)
    }

    /// Applies an event with what it rests on, as it was decided some time ago.
    pub(crate) fn apply_guarded(&self, event: Event, guards: Vec<Guard>) -> (u64, Outcome) {
        let mut inner = self.inner.lock();
        let recorded = inner.record(EventId([0xab; 16]), event, guards);
        inner.apply(recorded)
    }

    /// Replaces everything by a snapshot, as a server does that fell far behind.
    pub(crate) fn install(&self, dir: &std::path::Path) {
        let mut inner = self.inner.lock();
        inner.index = inner.writer.install(dir).unwrap().index;
    }

    /// Decides a command and applies what it says.
    pub(crate) fn command(&self, command: &dyn Command) -> Result<(u64, Outcome), ApiError> {
        let stamp = Stamp {
            id: EventId(*uuid::Uuid::now_v7().as_bytes()),
            now: self.time(),
        };
        match command.decide(&self.projections.view(), &stamp)? {
            Decision::Nothing(reply) => Ok((0, Outcome::Applied(reply))),
            Decision::Event { event, guards } | Decision::Page { event, guards } => {
                let mut inner = self.inner.lock();
                let recorded = inner.record(stamp.id, event, guards);
                Ok(inner.apply(recorded))
            }
        }
    }

    fn time(&self) -> i64 {
        crate::clock::unix_nanos()
    }

    /// Applies what was held back.
    pub(crate) fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        let mut inner = self.inner.lock();
        for (recorded, answer) in std::mem::take(&mut inner.waiting) {
            let _ = answer.send(inner.settle(recorded));
        }
    }

    /// Waits until so many events are held back.
    pub(crate) async fn holds(&self, count: usize) {
        let held = async {
            loop {
                let arrived = self.arrived.notified();
                if self.inner.lock().waiting.len() >= count {
                    return;
                }
                arrived.await;
            }
        };
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, held).await.unwrap();
    }
}

impl Inner {
    fn record(&mut self, id: EventId, event: Event, guards: Vec<Guard>) -> Recorded {
        self.time = self.time.max(crate::clock::unix_nanos());
        let envelope = Envelope {
            time: self.time,
            id,
            actor: Actor::server("test", "test"),
            request_id: String::new(),
            cause: None,
            trace: String::new(),
            guards,
            event,
        };
        let kind = envelope.event.kind();
        Recorded {
            index: 0,
            term: 1,
            kind,
            time: self.time,
            envelope: Some(envelope),
        }
    }

    fn apply(&mut self, mut recorded: Recorded) -> (u64, Outcome) {
        self.index += 1;
        let index = self.index;
        recorded.index = index;
        let mut applied = self.writer.apply(&[recorded]).unwrap();
        (index, applied.remove(0).outcome)
    }

    fn settle(&mut self, recorded: Recorded) -> Settled {
        let (index, outcome) = self.apply(recorded);
        let rejection = match outcome {
            Outcome::Rejected(rejection) => Some(rejection),
            Outcome::Applied(_) => None,
        };
        Settled { index, rejection }
    }
}

impl Propose for Direct {
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<Settling, ApiError>> {
        let mut inner = self.inner.lock();
        let recorded = inner.record(decided.id, decided.event, decided.guards);
        let settling: Settling = if self.held.load(Ordering::SeqCst) {
            let (answer, wait) = tokio::sync::oneshot::channel();
            inner.waiting.push((recorded, answer));
            self.arrived.notify_one();
            async move { wait.await.map_err(|_| ApiError::internal("dropped")) }.boxed()
        } else {
            let settled = inner.settle(recorded);
            async move { Ok(settled) }.boxed()
        };
        async move { Ok(settling) }.boxed()
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        _: &'static str,
    ) -> BoxFuture<'_, Result<Committed, ApiError>> {
        let result = self.command(&*command).map(|(index, outcome)| Committed {
            index,
            reply: match outcome {
                Outcome::Applied(reply) => reply,
                Outcome::Rejected(_) => Reply::None,
            },
        });
        async move { result }.boxed()
    }
}
