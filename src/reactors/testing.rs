//! Proposers for tests: one that does nothing, and one that applies at once. They take a command
//! that panics, and one that touches a row which cannot be read, as the proposer does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::envelope::{Envelope, Recorded};
use drover_events::keyring::RootKeyUpserted;
use drover_events::model::RootKeyMeta;
use drover_events::{Actor, Event, EventId, Guard};
use drover_projections::maintenance::{FamilyPart, Maintenance, RawChange};
use drover_projections::{
    DatabaseOptions, Key as _, Outcome, Projections, Rejection, Reply, Table, Writer,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::commands::{Command, Decision, Stamp};
use crate::error::{Code, Refusal};
use crate::proposer::decided::{Decided, EventOutcome, PendingOutcome, Propose};
use crate::proposer::{Committed, caught, tried};

/// Refuses everything.
pub(crate) struct Idle;

impl Propose for Idle {
    fn queue(&self, _: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>> {
        async { Err(Refusal::internal("nothing is proposed here")) }.boxed()
    }

    fn submit(
        &self,
        _: Arc<dyn Command>,
        _: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        async { Err(Refusal::internal("nothing is proposed here")) }.boxed()
    }
}

/// Proposes to a [`Direct`], but for whatever names one thing: that always fails.
pub(crate) struct Faulty {
    direct: Arc<Direct>,
    bad: String,
    how: Mutex<Fault>,
}

/// What becomes of what names the bad thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error(Code),
    /// Deciding or queueing it panics.
    Panic,
    /// It is committed, and refused where it is applied.
    Refuse,
    /// A command is committed, and the answer says that it was not.
    Unstated,
    None,
}

impl Faulty {
    pub(crate) fn new(direct: &Arc<Direct>, bad: &str, how: Fault) -> Arc<Self> {
        Arc::new(Self {
            direct: Arc::clone(direct),
            bad: bad.to_owned(),
            how: Mutex::new(how),
        })
    }

    /// From now on nothing fails.
    pub(crate) fn heal(&self) {
        *self.how.lock() = Fault::None;
    }

    /// What a command that does something to the bad thing fails with.
    pub(crate) fn checked(&self, command: &dyn Command) -> Result<(), Refusal> {
        let stamp = Stamp {
            id: EventId([0xbb; 16]),
            now: self.direct.time(),
        };
        let view = self.direct.projections.view();
        caught(|| match command.decide(&view, &stamp)? {
            Decision::Event { event, .. } | Decision::Page { event, .. } => self.check(&event),
            Decision::Nothing(_) => Ok(()),
        })
    }

    fn check(&self, event: &Event) -> Result<(), Refusal> {
        let how = *self.how.lock();
        if !format!("{event:?}").contains(&self.bad) {
            return Ok(());
        }
        match how {
            Fault::None | Fault::Refuse => Ok(()),
            Fault::Unstated => Err(Refusal::new(Code::Unavailable, "it may still be committed")),
            Fault::Error(code) => Err(Refusal::new(code, "this one always fails")),
            Fault::Panic => panic!("this one always panics"),
        }
    }
}

impl Propose for Faulty {
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>> {
        let bad = format!("{:?}", decided.event).contains(&self.bad);
        let plan = matches!(decided.event, Event::PlanApplied(_));
        if plan && bad && *self.how.lock() == Fault::Refuse {
            let message = "refused where it is applied".to_owned();
            let rejection = Some(Rejection::Rule { message });
            let pending: PendingOutcome = async move {
                let index = 0;
                Ok(EventOutcome { index, rejection })
            }
            .boxed();
            return async move { Ok(pending) }.boxed();
        }
        match self.check(&decided.event) {
            Ok(()) => self.direct.queue(decided),
            Err(error) => async move { Err(error) }.boxed(),
        }
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        reactor: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        match self.checked(&*command) {
            Ok(()) => self.direct.submit(command, reactor),
            Err(error) => {
                if *self.how.lock() == Fault::Unstated {
                    let _ = self.direct.command(&*command);
                }
                async move { Err(error) }.boxed()
            }
        }
    }
}

/// A row loses its last byte, as a disk may lose it: it can be read no more, and a server that
/// applies an event which touches it stops.
pub(crate) fn spoil<T: Table>(database: &Path, key: &T::Key) {
    alter::<T>(database, key, |value| value.truncate(value.len() - 1));
}

/// Changes what is stored of a row.
pub(crate) fn alter<T: Table>(database: &Path, key: &T::Key, change: impl FnOnce(&mut Vec<u8>)) {
    let db = Maintenance::open(database, &DatabaseOptions::dev()).unwrap();
    let header = db.header().unwrap().unwrap_or_default();
    let mut own = T::ID.to_be_bytes().to_vec();
    own.extend_from_slice(&key.to_bytes());
    let rows = db.entries(FamilyPart::Rows, &[], usize::MAX).unwrap();
    let (key, mut value) = rows.into_iter().find(|(key, _)| *key == own).unwrap();
    change(&mut value);
    db.write(&[RawChange::Put(FamilyPart::Rows, key, value)], &header)
        .unwrap();
}

/// What an event changed can be read no more.
pub(crate) fn spoil_changes(database: &Path, index: u64) {
    let db = Maintenance::open(database, &DatabaseOptions::dev()).unwrap();
    let header = db.header().unwrap().unwrap_or_default();
    let key = index.to_be_bytes().to_vec();
    db.write(
        &[RawChange::Put(FamilyPart::Changes, key, vec![0xff])],
        &header,
    )
    .unwrap();
}

/// A server of one without Raft: what is proposed is applied, in order, under the next index.
pub(crate) struct Direct {
    pub projections: Arc<Projections>,
    inner: Mutex<Inner>,
    /// Events are queued but not applied while this is set.
    pub held: AtomicBool,
    arrived: tokio::sync::Notify,
    dir: tempfile::TempDir,
}

struct Inner {
    writer: Writer,
    index: u64,
    time: i64,
    waiting: Vec<(Recorded, tokio::sync::oneshot::Sender<EventOutcome>)>,
}

impl Direct {
    pub(crate) fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (projections, writer) = Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
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
            dir,
        })
    }

    /// The same after a restart, with something done to its database meanwhile. It has no other
    /// user.
    pub(crate) fn reopened(self: Arc<Self>, change: impl FnOnce(&Path)) -> Arc<Self> {
        let Self {
            projections,
            inner,
            held,
            arrived,
            dir,
        } = Arc::into_inner(self).unwrap();
        let mut inner = inner.into_inner();
        inner.writer.flush().unwrap();
        drop((projections, inner.writer));
        change(dir.path());
        let (projections, writer) = Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
        let inner = Mutex::new(Inner { writer, ..inner });
        Arc::new(Self {
            projections,
            inner,
            held,
            arrived,
            dir,
        })
    }

    /// Applies an event at once.
    pub(crate) fn apply(&self, event: impl Into<Event>) -> (u64, Outcome) {
        self.apply_as(EventId([0xaa; 16]), event)
    }

    /// The cluster's first key becomes active, as it does soon after a leader is elected.
    pub(crate) fn first_key(&self) {
        let key = RootKeyMeta {
            key_id: "11111111-1111-4111-8111-111111111111".into(),
            algorithm: "aes256-gcm".into(),
            state: "active".into(),
            ..RootKeyMeta::default()
        };
        self.apply(RootKeyUpserted {
            key,
            public_key: vec![7; 32].into(),
            rekey: false,
        });
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
    pub(crate) fn install(&self, dir: &Path) {
        let mut inner = self.inner.lock();
        inner.index = inner.writer.install(dir).unwrap().index;
    }

    /// Decides a command and applies what it says; of one in pages, the first.
    pub(crate) fn command(&self, command: &dyn Command) -> Result<(u64, Outcome), Refusal> {
        Ok(self.page(command)?.0)
    }

    /// Decides a command and applies what it says; and whether it has another page.
    fn page(&self, command: &dyn Command) -> Result<((u64, Outcome), bool), Refusal> {
        let stamp = Stamp {
            id: EventId(*uuid::Uuid::now_v7().as_bytes()),
            now: self.time(),
        };
        let view = self.projections.view();
        let decision = caught(|| command.decide(&view, &stamp))?;
        let (event, guards, more) = match decision {
            Decision::Nothing(reply) => return Ok(((0, Outcome::Applied(reply)), false)),
            Decision::Event { event, guards } => (event, guards, false),
            Decision::Page { event, guards } => (event, guards, true),
        };
        tried(&view, command.is_tried(), &event, &guards)?;
        drop(view);
        let mut inner = self.inner.lock();
        let recorded = inner.record(stamp.id, event, guards);
        Ok((inner.apply(recorded), more))
    }

    /// Decides a command and applies what it says, page by page.
    fn pages(&self, command: &dyn Command) -> Result<(u64, Outcome), Refusal> {
        for _ in 0..10_000 {
            let (applied, more) = self.page(command)?;
            if !more || matches!(applied.1, Outcome::Rejected(_)) {
                return Ok(applied);
            }
        }
        panic!("pages without end");
    }

    fn time(&self) -> i64 {
        crate::base::clock::unix_nanos()
    }

    /// Applies what was held back.
    pub(crate) fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        let mut inner = self.inner.lock();
        for (recorded, answer) in std::mem::take(&mut inner.waiting) {
            let _ = answer.send(inner.apply_recorded(recorded));
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
        let limit = drover_testkit::LONG;
        tokio::time::timeout(limit, held).await.unwrap();
    }
}

impl Inner {
    fn record(&mut self, id: EventId, event: Event, guards: Vec<Guard>) -> Recorded {
        self.time = self.time.max(crate::base::clock::unix_nanos());
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

    fn apply_recorded(&mut self, recorded: Recorded) -> EventOutcome {
        let (index, outcome) = self.apply(recorded);
        let rejection = match outcome {
            Outcome::Rejected(rejection) => Some(rejection),
            Outcome::Applied(_) => None,
        };
        EventOutcome { index, rejection }
    }
}

impl Propose for Direct {
    fn queue(&self, decided: Decided) -> BoxFuture<'_, Result<PendingOutcome, Refusal>> {
        let view = self.projections.view();
        if let Err(error) = tried(&view, false, &decided.event, &decided.guards) {
            return async move { Err(error) }.boxed();
        }
        drop(view);
        let mut inner = self.inner.lock();
        let recorded = inner.record(decided.id, decided.event, decided.guards);
        let pending: PendingOutcome = if self.held.load(Ordering::SeqCst) {
            let (answer, wait) = tokio::sync::oneshot::channel();
            inner.waiting.push((recorded, answer));
            self.arrived.notify_one();
            async move { wait.await.map_err(|_| Refusal::internal("dropped")) }.boxed()
        } else {
            let outcome = inner.apply_recorded(recorded);
            async move { Ok(outcome) }.boxed()
        };
        async move { Ok(pending) }.boxed()
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        _: &'static str,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        let result = self.pages(&*command).map(|(index, outcome)| Committed {
            index,
            is_written: index > 0,
            reply: match outcome {
                Outcome::Applied(reply) => reply,
                Outcome::Rejected(_) => Reply::None,
            },
        });
        async move { result }.boxed()
    }
}
