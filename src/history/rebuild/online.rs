//! A rebuild beside a server that serves: the log is folded while it grows, and the applier puts
//! the new database in the place of the one in use.
//!
//! Folding and reading again happen on a thread that gives way to all others. What was appended
//! meanwhile is applied in batches, until so little is left that the applier may do it itself,
//! between two batches of its own; then both databases stand at one index and are compared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drover_migrations::schema;
use drover_projections::{
    DIGEST_EVERY, DatabaseOptions, Former, Projections, StorageError, Unswitched, Writer,
};

use super::build_record::{self, BuildRecord};
use super::folding::{Against, Folding, Pace, Stop};
use super::switch::{self, Pointer};
use super::{Compared, RebuildError, RebuildProgress, Rebuilt, Stage, at};
use crate::history::replay::{self, ReplayError, StateAt};
use crate::history::reserve::{DiskReserve, RESERVE};
use crate::log::LogEngine;
use crate::raft::RaftNode;

/// Entries that a fold leaves to batches.
const FEW: u64 = 8_192;
/// Entries that the applier catches up with itself: some milliseconds.
const LAST: u64 = 256;
/// Rounds of catching up before the applier has to take over more.
const ROUNDS: u32 = 64;
/// What the rebuild's threads give way by.
const NICE: i32 = 10;
/// Readers of the old database finish within a view's life.
const READERS: Duration = Duration::from_secs(10);
/// How often they are looked after.
const LOOK: Duration = Duration::from_millis(20);

/// What an operator can request.
#[derive(Clone, Debug)]
pub struct OnlineSettings {
    /// Bytes held in memory before they are written.
    pub memory: usize,
    /// Entries a second at most; unlimited if `None`.
    pub rate: Option<u64>,
    /// Whether the old database goes away after the switch, with all that were kept before.
    pub discard_old: bool,
    /// Whether it switches even where the result is not what is in use, or was signed.
    pub force: bool,
    /// Bytes of the disk that are left to serving requests.
    pub reserve: u64,
}

impl Default for OnlineSettings {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            rate: None,
            discard_old: false,
            force: false,
            reserve: RESERVE,
        }
    }
}

/// A rebuild to be done beside a running server.
pub struct Online<'a> {
    /// Where the database is at home, whatever directory it is in now.
    pub home: PathBuf,
    /// The server's Raft node: its log, and the one that applies.
    pub node: &'a RaftNode,
    /// What is served.
    pub projections: &'a Projections,
    /// Its sizes.
    pub options: DatabaseOptions,
    /// What was requested.
    pub settings: OnlineSettings,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// What the fold gave.
struct Built {
    writer: Writer,
    from: u64,
    entries: u64,
    compared: Vec<Compared>,
}

impl Online<'_> {
    /// Builds the new database and lets it take the place of the one in use.
    ///
    /// # Errors
    /// [`RebuildError`]: the database in use is as it was. Where the disk is full, what was built
    /// is removed, since serving requests needs the space.
    pub fn run(
        &self,
        progress: &mut (dyn FnMut(RebuildProgress) + Send),
    ) -> Result<Rebuilt, RebuildError> {
        let live = self.projections.path();
        let work = switch::beside_serving(&self.home, &live);
        let done = self.attempt((&live, &work), progress);
        if done.as_ref().is_err_and(RebuildError::is_out_of_space) {
            let _ = std::fs::remove_dir_all(&work);
        }
        done
    }

    fn log(&self) -> &Arc<LogEngine> {
        self.node.log()
    }

    fn attempt(
        &self,
        (live, work): (&Path, &Path),
        progress: &mut (dyn FnMut(RebuildProgress) + Send),
    ) -> Result<Rebuilt, RebuildError> {
        let began = Instant::now();
        let space = DiskReserve::of(work, self.settings.reserve + self.settings.memory as u64);
        space.check_for(self.projections.stats()?.files)?;
        let mut record = BuildRecord::take_up(work, &**self.log())?;
        schema::prepare(work, &self.options)?;
        record.write(work)?;
        let (new, writer) = Projections::open(work, self.options.clone())?;
        let build = || self.build(writer, (&mut record, work), &space, progress);
        let mut built = give_way_and(build)?;
        self.check_signed(&built.compared, work)?;
        built.entries += self.catch_up(&mut built.writer, &space, progress)?;
        let applied = self.projections.applied_index();
        progress(at(Stage::Switch, applied, applied));
        let handed = self.hand_over(built.writer, work)?;
        drop(new);
        switch::sync_dir(&self.home)?;
        BuildRecord::remove(work)?;
        let kept = self.retire(handed.former, live)?;
        // So that a start has little to apply again.
        self.projections.flush()?;
        let mut compared = built.compared;
        compared.push(Compared {
            with: build_record::OLD.to_owned(),
            index: handed.state.index,
            different: handed.different,
        });
        Ok(Rebuilt {
            state: handed.state,
            from: built.from,
            entries: built.entries + handed.entries,
            took: began.elapsed(),
            compared,
            old_unread: None,
            kept,
            cut_over: Some(handed.took),
        })
    }

    /// Folds the log until little is left, and reads the new database again.
    fn build(
        &self,
        writer: Writer,
        (record, work): (&mut BuildRecord, &Path),
        space: &DiskReserve,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Built, RebuildError> {
        let log = &**self.log();
        let new = Arc::clone(writer.projections());
        let (fold, from) = replay::begin(log.dir(), log, writer, self.settings.memory)?;
        let mut last = self.projections.applied_index();
        let mut stops = Stop::signed(log.dir(), last)?;
        stops.extend(self.kept_digests(last)?);
        let mut folding = Folding {
            log,
            fold,
            next: from,
            entries: 0,
            pace: Pace::new(self.settings.rate),
            cancelled: self.cancelled,
            space: &|| space.check(),
        };
        folding.go_through(stops, last, (record, work), progress)?;
        while self.projections.applied_index() > last + FEW {
            last = self.projections.applied_index();
            folding.go_to(last, last, progress)?;
        }
        let entries = folding.entries;
        let writer = folding.fold.finish()?;
        progress(at(Stage::Verify, last, last));
        new.verify()?;
        Ok(Built {
            writer,
            from,
            entries,
            compared: std::mem::take(&mut record.compared),
        })
    }

    /// The digests that are kept of the database in use, at the last index that has some.
    fn kept_digests(&self, last: u64) -> Result<Option<Stop>, RebuildError> {
        let index = last / DIGEST_EVERY * DIGEST_EVERY;
        let kept = self.projections.view().digests_at(index)?;
        Ok(kept.map(|digests| Stop {
            index,
            what: Against::Old(digests),
        }))
    }

    fn check_signed(&self, compared: &[Compared], work: &Path) -> Result<(), RebuildError> {
        let forged = compared.iter().find(|one| one.is_forged());
        match forged {
            Some(forged) if !self.settings.force => {
                // Built again from the start next time: something in it is wrong.
                BuildRecord::remove(work)?;
                Err(RebuildError::Forged {
                    index: forged.index,
                })
            }
            _ => Ok(()),
        }
    }

    /// Applies what was appended meanwhile until almost nothing is left.
    fn catch_up(
        &self,
        writer: &mut Writer,
        space: &DiskReserve,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<u64, RebuildError> {
        let mut entries = 0;
        for round in 0.. {
            let last = self.projections.applied_index();
            let next = writer.applied().map_or(0, |index| index + 1);
            // Where the log grows as fast as this catches up, the applier takes over more.
            let few = LAST << (round / ROUNDS).min(4);
            if next + few > last {
                break;
            }
            space.check()?;
            entries += replay::go_on(&**self.log(), next, last, writer, &mut |at_index, last| {
                progress(at(Stage::CatchUp, at_index, last));
            })?;
            if self.cancelled.load(Ordering::Relaxed) {
                writer.flush()?;
                return Err(ReplayError::Cancelled.into());
            }
        }
        Ok(entries)
    }

    /// Lets the applier switch between two batches.
    fn hand_over(&self, writer: Writer, work: &Path) -> Result<Handed, RebuildError> {
        let pointer = Pointer::prepare(&self.home, work)?;
        let hand_over = HandOver {
            log: Arc::clone(self.log()),
            pointer,
            force: self.settings.force,
        };
        let done = self
            .node
            .with_writer(move |live| hand_over.run(live, writer))
            .map_err(|error| RebuildError::Server(error.to_string()))?;
        done.map_err(|unhanded| {
            // Closed here, not by the applier.
            drop(unhanded.writer);
            unhanded.error
        })
    }

    /// Waits for the readers of the old database, and retires it. Longer reads are not waited for.
    fn retire(&self, former: Former, live: &Path) -> Result<Option<PathBuf>, RebuildError> {
        let until = Instant::now() + READERS;
        while former.is_read() {
            if Instant::now() > until {
                // It stays where it is, and is retired at the next start.
                close_later(former);
                return Ok(Some(live.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        drop(former);
        let kept = switch::retire_old(&self.home, live)?;
        match self.settings.discard_old {
            true => switch::discard(&self.home).map(|_| None),
            false => Ok(Some(kept)),
        }
    }
}

/// Closes it once it has no readers, on a thread of its own: the last reader would wait until what
/// it has in memory is on the disk, and may be a thread that serves.
pub(super) fn close_later(former: Former) {
    let close = move || {
        while former.is_read() {
            std::thread::sleep(LOOK);
        }
        drop(former);
    };
    let thread = std::thread::Builder::new().name("former-tables".to_owned());
    if let Err(error) = thread.spawn(close) {
        tracing::warn!(%error, "the last reader of the former tables closes them");
    }
}

/// What the applier does.
struct HandOver {
    log: Arc<LogEngine>,
    pointer: Pointer,
    force: bool,
}

/// The result of a hand-over.
struct Handed {
    former: Former,
    state: StateAt,
    entries: u64,
    different: Vec<String>,
    took: Duration,
}

/// Why the hand-over failed, and what is to be closed.
struct Unhanded {
    error: RebuildError,
    writer: Option<Writer>,
}

impl Unhanded {
    fn new(error: impl Into<RebuildError>, writer: Option<Writer>) -> Box<Unhanded> {
        let error = error.into();
        Box::new(Unhanded { error, writer })
    }
}

impl HandOver {
    fn run(self, live: &mut Writer, mut new: Writer) -> Result<Handed, Box<Unhanded>> {
        let began = Instant::now();
        let last = live.applied().unwrap_or_default();
        let next = new.applied().map_or(0, |index| index + 1);
        let entries = match replay::go_on(&*self.log, next, last, &mut new, &mut |_, _| ()) {
            Ok(entries) => entries,
            Err(error) => return Err(Unhanded::new(error, Some(new))),
        };
        let different = live.differences(&new).into_iter().map(str::to_owned);
        let different = different.collect();
        let mut put = || {
            let put = self.pointer.put();
            put.map_err(|error| StorageError::Snapshot(format!("the pointer: {error}")))
        };
        match live.switch(new, self.force, &mut put) {
            Ok(former) => Ok(Handed {
                former,
                state: StateAt::of(live.projections()),
                entries,
                different,
                took: began.elapsed(),
            }),
            Err(Unswitched::Elsewhere(new)) => {
                let text = format!(
                    "it stands at index {last}, the new one at {:?}",
                    new.applied()
                );
                Err(Unhanded::new(RebuildError::Server(text), Some(new)))
            }
            Err(Unswitched::Different(new, tables)) => {
                let tables = tables.into_iter().map(str::to_owned).collect();
                let error = RebuildError::Different {
                    index: last,
                    tables,
                };
                Err(Unhanded::new(error, Some(new)))
            }
            Err(Unswitched::Failed(error)) => Err(Unhanded::new(error, None)),
        }
    }
}

/// Does the work on a thread of its own that gives way to all others, as do those that it starts.
pub(super) fn give_way_and<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let gently = || {
        // Where that is refused it is only in the way of others.
        let _ = rustix::process::setpriority_process(None, NICE);
        work()
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(gently).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
