//! Rebuild: the projections made again from the log, beside the ones in use.
//!
//! What it is: the one way in which a database is built again, for the command line
//! (`drover projection rebuild`) and for a server that finds its own damaged at start. The log is
//! folded into `projections-rebuild`; what came of it is read again, its digests are compared with
//! those of the old database and of the last checkpoint, and the two change places. [`Check`]
//! folds the log in the same way only to compare, [`Materialise`] to show the state of any index.
//!
//! What it must not know: HTTP, the command line, what an event means.
//!
//! Invariants:
//! 1. The old database stays whole and in its place until the new one is complete, compared and on
//!    disk. Whatever fails before leaves it in use.
//! 2. They change places in one step of the file system; the old one is kept until an operator has
//!    it removed.
//! 3. Two rebuilds of one directory never run at once, nor does one beside a server that runs
//!    there.
//!    Beside a serving agent ([`Online`]) the step is a file that names the new one; its directory
//!    comes home at the next start ([`finish_switch`]).
//! 4. A rebuild that was killed continues behind the last generation that it finished, unless
//!    another drover had begun it.
//!
//! Start reading at [`Rebuild::run`].

mod build_record;
mod check;
mod digests;
mod folding;
mod live_check;
mod materialise;
mod online;
mod shown;
mod switch;
mod work;

#[cfg(test)]
mod rebuild_test;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use drover_migrations::schema::{self, LATEST, SchemaError};
use drover_projections::{DatabaseOptions, Projections, Writer};

pub use build_record::Compared;
pub use check::{Check, Checked};
pub use digests::{DigestCheck, DigestsChecked, unlike};
pub use live_check::LiveCheck;
pub use materialise::{Materialise, Materialised};
pub use online::{Online, OnlineSettings};
pub use shown::{
    CheckReport, DatabaseInfo, HeldTable, RebuildReport, ReportedDifference, RetiredDatabase,
    tables,
};
pub(crate) use switch::finish_switch_locked;
pub use switch::{beside, discard, finish_switch, kept, retire};
pub use work::{RebuildRunner, RebuildStatus};

use crate::error::chain;
use crate::history::replay::{self, ReplayError, StateAt};
use crate::log::{FileLayer, LogError, ReadOnlyLog, RealFiles};
use build_record::BuildRecord;
use folding::{Against, Folding, Pace, Stop};

/// Why there is no new database.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The log cannot be read or folded, or the rebuild was cancelled.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another rebuild, or a server, is at work there.
    #[error("{} is in use: a server runs on it, or another rebuild", path.display())]
    Busy {
        /// Whose lock is held.
        path: PathBuf,
    },
    /// What the log gives is not what was signed.
    #[error(
        "at index {index} the tables built from the log are not those of the signed checkpoint: \
         the old database stays in use (`drover log verify -digests` names the place)"
    )]
    Forged {
        /// The checkpoint's index.
        index: u64,
    },
    /// What the log gives is not what is served.
    #[error(
        "at index {index} the tables built from the log are not those in use: {}; the old database \
         stays in use unless `-force` is given",
        tables.join(", ")
    )]
    Different {
        /// Where they were compared.
        index: u64,
        tables: Vec<String>,
    },
    /// The server stops, or cannot switch.
    #[error("the server did not switch: {0}")]
    Server(String),
    /// The database is of another drover.
    #[error(
        "{} has schema {found}, this drover writes {}: start a server on it once, or rebuild it",
        path.display(),
        LATEST.0
    )]
    Schema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
    /// The log holds nothing that is committed.
    #[error("the log has no committed entry: there is nothing to build from")]
    Empty,
}

impl RebuildError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> RebuildError {
        let path = path.to_owned();
        move |source| RebuildError::File { path, source }
    }

    /// Whether it can succeed once there is space on the disk again.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            RebuildError::Replay(error) => error.is_out_of_space(),
            RebuildError::File { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Whether it was cancelled: what was built is kept, and the next run continues from there.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RebuildError::Replay(ReplayError::Cancelled))
    }
}

impl From<drover_projections::StorageError> for RebuildError {
    fn from(error: drover_projections::StorageError) -> Self {
        ReplayError::from(error).into()
    }
}

impl From<SchemaError> for RebuildError {
    fn from(error: SchemaError) -> Self {
        ReplayError::from(error).into()
    }
}

impl From<LogError> for RebuildError {
    fn from(error: LogError) -> Self {
        ReplayError::from(error).into()
    }
}

/// What a rebuild or a verification is doing, and how one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The log is folded: entries.
    Fold,
    /// The new database is read again.
    Verify,
    /// What was appended meanwhile is applied.
    CatchUp,
    /// The databases change places.
    Switch,
    /// It is complete.
    Done,
    /// It was stopped.
    Cancelled,
    /// It came to nothing.
    Failed,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Fold,
        Self::Verify,
        Self::CatchUp,
        Self::Switch,
        Self::Done,
        Self::Cancelled,
        Self::Failed,
    ];

    /// The text of a [`RebuildStatus`]; it is text there since a later release may know others.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fold => "fold",
            Self::Verify => "verify",
            Self::CatchUp => "catch up",
            Self::Switch => "switch",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// The stage of a text; none for one of a later release.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == text)
    }
}

/// How far a rebuild is.
#[derive(Clone, Copy, Debug)]
pub struct RebuildProgress {
    /// What it does.
    pub stage: Stage,
    /// The index reached.
    pub at: u64,
    /// The last index.
    pub last: u64,
}

/// A rebuild to be done.
#[derive(Clone, Debug)]
pub struct Rebuild<'a> {
    /// The log beside which the database is built; its lock is held.
    pub log_dir: PathBuf,
    /// What is folded instead, where more is known of the log: it, joined with its archive.
    pub from: Option<PathBuf>,
    /// The database in use.
    pub live: PathBuf,
    /// Its sizes.
    pub options: DatabaseOptions,
    /// Bytes held in memory before they are written.
    pub memory: usize,
    /// Entries a second at most; unlimited if `None`.
    pub rate: Option<u64>,
    /// Whether the old database goes away after the switch, with all that were kept before.
    pub discard_old: bool,
    /// Whether it switches even where the result is not what was signed.
    pub force: bool,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// What a rebuild did.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// The state of the new database.
    pub state: StateAt,
    /// The first index of this run; above the log's first where it continued a former run.
    pub from: u64,
    /// Entries folded in this run.
    pub entries: u64,
    /// How long all of it took.
    pub took: Duration,
    /// What was compared on the way.
    pub compared: Vec<Compared>,
    /// Why the old database was not compared, where it was not.
    pub old_unread: Option<String>,
    /// Where the old database is kept.
    pub kept: Option<PathBuf>,
    /// How long nothing was applied, where a server served meanwhile.
    pub cut_over: Option<Duration>,
}

impl Rebuilt {
    /// Whether the new tables are others than those that were in use.
    pub fn is_another(&self) -> bool {
        let old = self
            .compared
            .iter()
            .filter(|one| one.with == build_record::OLD);
        old.into_iter().any(|one| !one.different.is_empty())
    }
}

impl<'a> Rebuild<'a> {
    /// A rebuild of a server's projections as a server would do it.
    pub fn of(
        log_dir: &Path,
        live: &Path,
        options: &DatabaseOptions,
        cancelled: &'a AtomicBool,
    ) -> Self {
        Self {
            log_dir: log_dir.to_owned(),
            from: None,
            live: live.to_owned(),
            options: options.clone(),
            memory: replay::FOLD_BYTES,
            rate: None,
            discard_old: false,
            force: false,
            cancelled,
        }
    }

    /// Builds the new database, or continues to build it, and lets it take the old one's place.
    ///
    /// # Errors
    /// [`RebuildError`]; the old database is in use then.
    pub fn run(&self, progress: &mut dyn FnMut(RebuildProgress)) -> Result<Rebuilt, RebuildError> {
        let began = Instant::now();
        let _lock = lock(&self.log_dir)?;
        finish_switch_locked(&self.live)?;
        BuildRecord::remove(&self.live)?;
        let log_dir = self.from.as_ref().unwrap_or(&self.log_dir);
        let log = replay::open(log_dir, None)?;
        let (old, old_unread) = self.old();
        let last = last(&log, old.as_ref())?;
        let work = switch::beside(&self.live);
        let mut record = BuildRecord::take_up(&work, &log)?;
        schema::prepare(&work, &self.options)?;
        record.write(&work)?;
        let (projections, writer) = Projections::open(&work, self.options.clone())?;
        let (fold, from) = replay::begin(log_dir, &log, writer, self.memory)?;
        let mut stops = Stop::signed(log_dir, last)?;
        stops.extend(old.as_ref().map(|old| Stop {
            index: old.index,
            what: Against::Old(old.digests.clone()),
        }));
        let mut folding = Folding {
            log: &log,
            fold,
            next: from,
            entries: 0,
            pace: Pace::new(self.rate),
            cancelled: self.cancelled,
            space: &|| Ok(()),
        };
        folding.go_through(stops, last, (&mut record, &work), progress)?;
        let entries = folding.entries;
        let mut writer = folding.fold.finish()?;
        // What a reader looks up in the log must be in it.
        let begins = ReadOnlyLog::open(&self.log_dir)?.bounds().0;
        forget_below(begins.saturating_sub(1), &mut writer)?;
        drop(writer);
        progress(at(Stage::Verify, last, last));
        projections.verify()?;
        let state = StateAt::of(&projections);
        drop(projections);
        let compared = std::mem::take(&mut record.compared);
        if let Some(forged) = compared.iter().find(|one| one.is_forged())
            && !self.force
        {
            // Built again from the start next time: something in it is wrong.
            BuildRecord::remove(&work)?;
            return Err(RebuildError::Forged {
                index: forged.index,
            });
        }
        progress(at(Stage::Switch, last, last));
        let mut retired = switch::switch(&work, &self.live)?;
        if self.discard_old {
            switch::discard(&self.live)?;
            retired = None;
        }
        Ok(Rebuilt {
            state,
            from,
            entries,
            took: began.elapsed(),
            compared,
            old_unread,
            kept: retired,
            cut_over: None,
        })
    }

    /// The old database's state, or why there is none to compare with.
    fn old(&self) -> (Option<StateAt>, Option<String>) {
        if !self.live.exists() {
            return (None, None);
        }
        let found = schema::version_of(&self.live, &self.options);
        match found {
            Ok(version) if version == LATEST => {}
            Ok(version) => return (None, Some(format!("its schema is {}", version.0))),
            Err(error) => return (None, Some(chain(&error))),
        }
        match Projections::open(&self.live, self.options.clone()) {
            Ok((old, _)) if old.view().position().begun => (Some(StateAt::of(&old)), None),
            Ok(_) => (None, Some("it is empty".to_owned())),
            Err(error) => (None, Some(chain(&error))),
        }
    }
}

/// The last index: what is known to be committed, and what the old database had applied.
fn last(log: &ReadOnlyLog, old: Option<&StateAt>) -> Result<u64, RebuildError> {
    let (_, next) = log.bounds();
    let applied = old.map(|old| old.index).filter(|index| *index < next);
    log.committed().max(applied).ok_or(RebuildError::Empty)
}

/// The log's lock, which a running server holds, and every rebuild.
fn lock(log_dir: &Path) -> Result<Box<dyn std::any::Any + Send + Sync>, RebuildError> {
    let lock = RealFiles
        .lock(log_dir)
        .map_err(RebuildError::file(log_dir))?;
    lock.ok_or_else(|| RebuildError::Busy {
        path: log_dir.to_owned(),
    })
}

/// Forgets what lies below an index, as retention did in the log.
fn forget_below(floor: u64, writer: &mut Writer) -> Result<(), RebuildError> {
    if writer.projections().view().position().floor < floor {
        writer.raise_floor(floor)?;
        writer.projections().prune()?;
    }
    Ok(())
}

fn at(stage: Stage, at: u64, last: u64) -> RebuildProgress {
    RebuildProgress { stage, at, last }
}
