//! openraft's state machine: a handle to the applier, a thread of its own that owns the fold.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self as blocking, RecvTimeoutError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, Snapshot, SnapshotMeta};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fold::{Fold, FoldError, FoldPosition};
use super::log_store::decode_entry;
use super::snapshot::{Builder, SnapshotDir, Snapshots};
use super::types::{Entry, LogId, Response, StoredMembership, TypeConfig, log_id};
use crate::log::LogEngine;

/// Entries handed to the applier at a time.
const CHUNK: usize = 1024;
/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(100);
/// Chunks handed over and not yet applied.
const AHEAD: usize = 2;

/// The applier met an event it cannot read and waits for a newer program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The index of that event.
    pub index: u64,
    /// What is the matter.
    pub reason: String,
}

impl std::fmt::Display for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, reason } = self;
        write!(
            f,
            "parked before index {index}, a newer drover is needed: {reason}"
        )
    }
}

type Chunk = Vec<(Entry, Option<ApplyResponder<TypeConfig>>)>;
type Control = Box<dyn FnOnce(&mut dyn Fold) + Send>;

enum Command {
    Apply(Chunk, oneshot::Sender<io::Result<()>>),
    Control(Control),
    Stop(oneshot::Sender<()>),
}

/// The handle openraft holds.
pub struct StateMachine {
    applier: Applier,
    log: Arc<LogEngine>,
    membership: StoredMembership,
    snapshots: Snapshots,
}

/// Talks to the applier thread; clones talk to the same.
#[derive(Clone)]
pub(super) struct Applier {
    tx: blocking::Sender<Command>,
    parked: Arc<Mutex<Option<Parked>>>,
}

impl Applier {
    pub(super) fn parked(&self) -> Option<Parked> {
        self.parked.lock().clone()
    }

    /// Ends the applier's thread; when this returns, the fold is dropped.
    pub(super) async fn stop(&self) {
        let (tx, rx) = oneshot::channel();
        if self.tx.send(Command::Stop(tx)).is_ok() {
            let _ = rx.await;
        }
    }

    /// Runs `f` on the applier's thread between two chunks.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut dyn Fold) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (tx, rx) = oneshot::channel();
        let control: Control = Box::new(move |fold| {
            let _ = tx.send(f(fold));
        });
        self.tx
            .send(Command::Control(control))
            .map_err(|_| stopped())?;
        rx.await.map_err(|_| stopped())
    }
}

impl Applier {
    /// As [`Applier::with`], for a thread that may wait.
    pub(super) fn with_waiting<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut dyn Fold) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (tx, rx) = blocking::sync_channel(1);
        let control: Control = Box::new(move |fold| {
            let _ = tx.send(f(fold));
        });
        self.tx
            .send(Command::Control(control))
            .map_err(|_| stopped())?;
        rx.recv().map_err(|_| stopped())
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the applier has stopped")
}

impl StateMachine {
    /// Starts the applier over `fold`. Snapshots lie in `snapshots`.
    ///
    /// # Errors
    /// If the thread cannot be started or the last membership cannot be read.
    pub fn new(
        fold: Box<dyn Fold>,
        log: Arc<LogEngine>,
        snapshots: PathBuf,
    ) -> io::Result<StateMachine> {
        let snapshots = Snapshots::open(snapshots)?;
        let membership = match fold.place() {
            Some(place) => last_membership(&log, &snapshots, place)?,
            None => StoredMembership::default(),
        };
        let (tx, rx) = blocking::channel();
        let parked = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&parked);
        std::thread::Builder::new()
            .name("applier".to_owned())
            .spawn(move || run(fold, &rx, &shared))?;
        let applier = Applier { tx, parked };
        Ok(StateMachine {
            applier,
            log,
            membership,
            snapshots,
        })
    }

    pub(super) fn applier(&self) -> Applier {
        self.applier.clone()
    }

    async fn place(&self) -> io::Result<Option<FoldPosition>> {
        self.applier.with(|fold| fold.place()).await
    }
}

/// The membership last applied: an entry of the log, or in the snapshot this state came from.
fn last_membership(
    log: &LogEngine,
    snapshots: &Snapshots,
    place: FoldPosition,
) -> io::Result<StoredMembership> {
    let (first, next) = log.bounds();
    if place.membership >= first && place.membership < next {
        let entry = log
            .read(place.membership)?
            .map(|e| decode_entry(&e))
            .transpose()?;
        if let Some((id, m)) = entry.and_then(|e| Some((e.log_id(), e.get_membership()?))) {
            return Ok(StoredMembership::new(Some(id), m));
        }
    }
    match snapshots.current()? {
        Some((head, _)) => Ok(head.membership()),
        None => Ok(StoredMembership::default()),
    }
}

/// What the applier has taken from its queue and not done.
#[derive(Default)]
struct Work {
    /// In order; the first is being applied.
    chunks: VecDeque<(Pending, oneshot::Sender<io::Result<()>>)>,
    /// The disk is full: the first chunk is tried again now and then.
    full: bool,
}

/// Entries with the callers that wait for them.
#[derive(Default)]
struct Pending {
    entries: Vec<Entry>,
    responders: VecDeque<Option<ApplyResponder<TypeConfig>>>,
}

impl From<Chunk> for Pending {
    fn from(chunk: Chunk) -> Pending {
        let (entries, responders): (Vec<_>, VecDeque<_>) = chunk.into_iter().unzip();
        Pending {
            entries,
            responders,
        }
    }
}

fn run(mut fold: Box<dyn Fold>, rx: &blocking::Receiver<Command>, parked: &Mutex<Option<Parked>>) {
    let mut work = Work::default();
    loop {
        let next = if work.full {
            rx.recv_timeout(FULL_RETRY)
        } else {
            rx.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(Command::Control(f)) => f(&mut *fold),
            Ok(Command::Stop(done)) => {
                drop(fold);
                let _ = done.send(());
                return;
            }
            Ok(Command::Apply(chunk, done)) => work.chunks.push_back((chunk.into(), done)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if parked.lock().is_none() && !advance(&mut *fold, &mut work, parked) {
            return;
        }
    }
}

/// Applies what there is; false if the database failed.
fn advance(fold: &mut dyn Fold, work: &mut Work, parked: &Mutex<Option<Parked>>) -> bool {
    while let Some((pending, _)) = work.chunks.front_mut() {
        let result = apply(fold, pending);
        let full = matches!(result, Err(FoldError::NoSpace(_)));
        match &result {
            Err(FoldError::NoSpace(reason)) if !work.full => {
                tracing::error!(
                    reason,
                    "the disk is full: nothing is applied until there is space"
                );
            }
            Ok(()) if work.full => tracing::info!("there is space again: applying continues"),
            _ => {}
        }
        work.full = full;
        match result {
            Ok(()) => {
                if let Some((_, done)) = work.chunks.pop_front() {
                    let _ = done.send(Ok(()));
                }
            }
            Err(FoldError::NoSpace(_)) => return true,
            Err(FoldError::Unreadable { index, reason }) => {
                tracing::error!(index, reason, "the applier parks: a newer drover is needed");
                // The chunk stays unanswered: to openraft the entry is still being applied.
                *parked.lock() = Some(Parked { index, reason });
                return true;
            }
            Err(e) => {
                tracing::error!(error = %e, "the applier stops");
                if let Some((_, done)) = work.chunks.pop_front() {
                    let _ = done.send(Err(io::Error::other(e)));
                }
                return false;
            }
        }
    }
    true
}

/// Applies the entries; those that are done are taken out, whatever comes after them.
fn apply(fold: &mut dyn Fold, pending: &mut Pending) -> Result<(), FoldError> {
    let Pending {
        entries,
        responders,
    } = pending;
    let mut count = 0;
    let result = fold.apply(entries, &mut |index, outcome| {
        count += 1;
        if let Some(Some(responder)) = responders.pop_front() {
            responder.send(Response { index, outcome });
        }
    });
    entries.drain(..count);
    result
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotDir;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let place = self.place().await?;
        Ok((
            place.map(|p| log_id(p.term, p.index)),
            self.membership.clone(),
        ))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut ahead = VecDeque::new();
        loop {
            let mut chunk: Chunk = Vec::new();
            while chunk.len() < CHUNK {
                let Some(item) = entries.next().await else {
                    break;
                };
                let (entry, responder) = item?;
                if let Some(m) = entry.get_membership() {
                    self.membership = StoredMembership::new(Some(entry.log_id()), m);
                }
                chunk.push((entry, responder));
            }
            let last = chunk.len() < CHUNK;
            if !chunk.is_empty() {
                let (tx, rx) = oneshot::channel();
                self.applier
                    .tx
                    .send(Command::Apply(chunk, tx))
                    .map_err(|_| stopped())?;
                ahead.push_back(rx);
            }
            while ahead.len() > if last { 0 } else { AHEAD } {
                let rx = ahead.pop_front().expect("longer than a number");
                rx.await.map_err(|_| stopped())??;
            }
            if last {
                return Ok(());
            }
        }
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let applier = self.applier.clone();
        Builder::new(
            applier,
            Arc::clone(&self.log),
            self.snapshots.clone(),
            self.membership.clone(),
        )
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<openraft::alias::CommittedLeaderIdOf<TypeConfig>, u64, super::Member>,
        snapshot: SnapshotDir,
    ) -> io::Result<()> {
        let head = snapshot.head()?;
        // The receiver need not have waited for the disk.
        snapshot.put_head(&head)?;
        // Before the tables say that they hold it: a start whose log does not reach as far
        // continues from it.
        let snapshot = self.snapshots.add(&head, snapshot)?;
        let state = snapshot.state();
        self.applier.with(move |fold| fold.load(&state)).await??;
        if let Some((index, range)) = head.base() {
            self.log.set_base(index, range);
        }
        self.membership = meta.last_membership.clone();
        self.snapshots.keep_only(&snapshot)
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<
        Option<
            Snapshot<
                openraft::alias::CommittedLeaderIdOf<TypeConfig>,
                u64,
                super::Member,
                SnapshotDir,
            >,
        >,
    > {
        // At its start Raft loads what is newer than what is applied. Where the log leads there, it
        // leads there with all that was between.
        let next = self.applier.with(|fold| fold.place()).await?;
        let next = next.map_or(0, |place| place.index + 1);
        let current = match self.log.bounds().0 <= next {
            true => self.snapshots.newest_below(next)?,
            false => self.snapshots.current()?,
        };
        Ok(current.map(|(head, dir)| Snapshot {
            meta: head.meta(),
            snapshot: dir,
        }))
    }
}
