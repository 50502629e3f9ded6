//! Replay: folds the log from its beginning into fresh projections and answers their digests.
//!
//! What the command line's `log replay` and every rebuild ([`super::rebuild`]) are made of, and
//! every test of "applied state equals replay". It opens the log read-only, so a server may be
//! running; it never touches that server's projections. Offline, [`catch_up`] brings those up to
//! the log first.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use drover_events::Recorded;
use drover_migrations::DecodeError;
use drover_migrations::schema::{self, SchemaError};
use drover_projections::{
    DatabaseOptions, Fold, Projections, StorageError, TableDigest, View, Writer,
};

use crate::log::{LogError, ReadOnlyLog, ReadableLog};
use crate::raft::snapshot::{SnapshotDir, SnapshotHead};

/// Events applied at a time.
const BATCH: usize = 4096;
/// Batches decoded ahead of the one that is applied.
const AHEAD: usize = 4;
/// Bytes that a fold holds before it writes a generation.
pub const FOLD_BYTES: usize = 256 << 20;
/// The same of [`unfold`], which happens beside a server that serves.
pub const UNFOLD_BYTES: usize = 64 << 20;
/// How long the log may take to show an index that a running server named.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a replay begins again because the log's beginning was dropped under it.
const ATTEMPTS: usize = 5;

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read, or is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The event at an index cannot be decoded.
    #[error("the event at index {index} cannot be read")]
    Decode {
        /// Where.
        index: u64,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// A database failed.
    #[error("projections")]
    Storage(#[from] StorageError),
    /// A database has a schema that this program does not know.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The log does not reach the requested index.
    #[error("the log ends before index {wanted}: {next} is next")]
    Short {
        /// The requested index.
        wanted: u64,
        /// The index after the last one.
        next: u64,
    },
    /// The log begins above zero, and the state it continues from is missing.
    #[error("the log begins at index {first}, and no state is kept that it continues from")]
    NoBeginning {
        /// The first index there is.
        first: u64,
    },
    /// The caller wants it no more.
    #[error("cancelled")]
    Cancelled,
    /// There is hardly any space left, and what serves needs it.
    #[error(
        "the disk is full: {} MiB are free in {}, {} are needed",
        free >> 20,
        path.display(),
        needed >> 20
    )]
    NoSpace {
        /// Where something was to be written.
        path: PathBuf,
        /// Bytes that are free there.
        free: u64,
        /// Bytes that must be.
        needed: u64,
    },
    /// The state that the log continues from cannot be read.
    #[error("the state that the log continues from cannot be read")]
    Base(#[source] std::io::Error),
    /// The state that the log continues from is not the one that was written.
    #[error("the snapshot {} is damaged", path.display())]
    Foundation {
        /// The snapshot.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: StorageError,
    },
    /// The index lies below the state that the log continues from.
    #[error("the state at index {wanted} is gone: what is kept begins at {first}")]
    Gone {
        /// The requested index.
        wanted: u64,
        /// The first one there is.
        first: u64,
    },
}

impl ReplayError {
    /// Whether it can succeed once there is space on the disk again.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Storage(error) | Self::Schema(SchemaError::Storage(error)) => {
                error.is_out_of_space()
            }
            Self::Log(error) => error.is_full(),
            Self::NoSpace { .. } => true,
            _ => false,
        }
    }
}

/// State at an index.
#[derive(Clone, Debug, PartialEq)]
pub struct StateAt {
    /// The last applied index.
    pub index: u64,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
    /// The digest of every table.
    pub digests: Vec<TableDigest>,
}

impl StateAt {
    /// What projections show now.
    pub fn of(projections: &Projections) -> StateAt {
        Self::of_view(&projections.view())
    }

    /// What a view shows.
    pub fn of_view(view: &View) -> StateAt {
        StateAt {
            index: view.index(),
            time: view.time(),
            digests: view.digests(),
        }
    }

    /// The names of the tables whose digests differ; compares nothing if the indexes differ.
    pub fn differences(&self, other: &StateAt) -> Option<Vec<String>> {
        if self.index != other.index || self.digests.len() != other.digests.len() {
            return None;
        }
        let pairs = self.digests.iter().zip(&other.digests);
        Some(
            pairs
                .filter(|(a, b)| a != b)
                .map(|(a, _)| a.name.to_string())
                .collect(),
        )
    }
}

/// What a replay did.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The state it ended with.
    pub state: StateAt,
    /// Entries folded, Raft's own included.
    pub entries: u64,
    /// How long it took.
    pub took: Duration,
}

/// Folds the log in `log_dir` from its beginning to `to` (to the last committed index it knows of,
/// if `None`) into new projections in `scratch`, an empty directory. `progress` is called with the
/// index reached after each batch, and the last one. Where the server drops what is being read, it
/// begins again with what is kept.
///
/// # Errors
/// Damage, an event that cannot be read, a log that is too short or does not begin at its epoch's
/// first index.
pub fn replay(
    log_dir: &Path,
    scratch: &Path,
    to: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let log = open(log_dir, to)?;
        let first = log.bounds().0;
        let done = replay_once((log_dir, &log), scratch, to, progress);
        let moved = || ReadOnlyLog::open(log_dir).is_ok_and(|now| now.bounds().0 > first);
        if done.is_ok() || attempt == ATTEMPTS || !moved() {
            return done;
        }
        std::fs::remove_dir_all(scratch).map_err(ReplayError::Base)?;
    }
}

fn replay_once(
    (log_dir, log): (&Path, &ReadOnlyLog),
    scratch: &Path,
    to: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    let began = Instant::now();
    let last = to
        .or_else(|| log.committed())
        .unwrap_or(log.bounds().1.saturating_sub(1));
    let (projections, writer) = Projections::open(scratch, DatabaseOptions::default())?;
    let (entries, writer) = unfold_fast((log_dir, log), last, writer, progress)?;
    drop(writer);
    let state = StateAt::of(&projections);
    Ok(Replayed {
        state,
        entries,
        took: began.elapsed(),
    })
}

/// As [`unfold`], from the earliest state beside the log or behind what the projections have.
fn unfold_fast(
    (log_dir, log): (&Path, &ReadOnlyLog),
    last: u64,
    writer: Writer,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, Writer), ReplayError> {
    let begun = begin(log_dir, log, writer, FOLD_BYTES)?;
    fold_up_to(log, begun, last, &mut |at, last| {
        progress(at, last);
        Ok(())
    })
}

/// Is called with the index that a fold reached after each batch, and the last one; its error ends
/// the fold.
pub type FoldStep<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), ReplayError>;

/// Lets a fold that stands just before the index `from` continue up to `last`, and commits it.
fn fold_up_to(
    log: &dyn ReadableLog,
    (mut fold, from): (Fold, u64),
    last: u64,
    step: FoldStep<'_>,
) -> Result<(u64, Writer), ReplayError> {
    let entries = match last + 1 {
        next if next == from && fold.position().begun => 0,
        next if next < from => {
            return Err(ReplayError::Gone {
                wanted: last,
                first: from.saturating_sub(1),
            });
        }
        _ => feed(log, from, last, &mut |batch| {
            fold.apply(batch)?;
            step(reached(batch), last)
        })?,
    };
    Ok((entries, fold.finish()?))
}

/// Folds a log from the state it continues from, or from nothing, up to `last` into projections
/// that are empty and have no readers meanwhile: each row is written once.
///
/// # Errors
/// As [`replay`]; a state whose digests are not those it says; a `last` below that state.
pub fn unfold(
    log: &ReadOnlyLog,
    base: Option<&SnapshotDir>,
    last: u64,
    mut writer: Writer,
    step: FoldStep<'_>,
) -> Result<Writer, ReplayError> {
    let from = match base {
        Some(base) => lay(base, &mut writer)? + 1,
        None => log.bounds().0,
    };
    let fold = writer.fold(UNFOLD_BYTES)?;
    Ok(fold_up_to(log, (fold, from), last, step)?.1)
}

/// Continues behind what [`unfold`] gave, in the same way.
///
/// # Errors
/// As [`replay`]; a `last` below what there is.
pub fn unfold_on(
    log: &dyn ReadableLog,
    last: u64,
    writer: Writer,
    step: FoldStep<'_>,
) -> Result<Writer, ReplayError> {
    let fold = writer.fold(UNFOLD_BYTES)?;
    let from = fold.position().index + 1;
    Ok(fold_up_to(log, (fold, from), last, step)?.1)
}

/// Folds the entries `from..=last` into projections that stand just before them; nothing if `last`
/// is below `from`.
///
/// # Errors
/// As [`replay`].
pub fn go_on(
    log: &dyn ReadableLog,
    from: u64,
    last: u64,
    writer: &mut Writer,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, ReplayError> {
    match from > last {
        true => Ok(0),
        false => fold(log, from, last, writer, progress),
    }
}

/// Lets empty projections begin with a snapshot; answers its index.
pub(crate) fn lay(base: &SnapshotDir, writer: &mut Writer) -> Result<u64, ReplayError> {
    let installed = writer.install(&base.state());
    let position = installed.map_err(|source| match source.is_damage() {
        true => ReplayError::Foundation {
            path: base.path().to_owned(),
            source,
        },
        false => source.into(),
    })?;
    Ok(position.index)
}

/// The state that a log continues from: the earliest kept beside it that the log follows without a
/// gap; none where the log begins with nothing.
///
/// # Errors
/// A log that begins above zero with no such state; files that cannot be read.
pub fn foundation(
    log_dir: &Path,
    log: &dyn ReadableLog,
) -> Result<Option<SnapshotDir>, ReplayError> {
    let (first, epoch) = (log.bounds().0, log.epoch());
    match foundations(log_dir, log)?.into_iter().next() {
        None if first != epoch.first_index && first != 0 => Err(ReplayError::NoBeginning { first }),
        found => Ok(found),
    }
}

/// All states beside a log that it follows without a gap, earliest first; none where it begins at
/// zero.
///
/// # Errors
/// Files that cannot be read.
pub fn foundations(log_dir: &Path, log: &dyn ReadableLog) -> Result<Vec<SnapshotDir>, ReplayError> {
    let (first, epoch) = (log.bounds().0, log.epoch());
    if first == 0 {
        return Ok(Vec::new());
    }
    let beside = log_dir.parent().unwrap_or(Path::new(".")).join("snapshots");
    let mut all = SnapshotDir::all(&beside).map_err(ReplayError::Base)?;
    let follows = |head: &SnapshotHead| head.base().is_some_and(|(index, _)| index + 1 >= first);
    all.retain(|(head, _)| head.epoch == epoch.id && follows(head));
    Ok(all.into_iter().map(|(_, dir)| dir).collect())
}

/// Brings the projections in `path`, of a server that is not running, to the schema of this program
/// and to the last committed index the log knows of; every byte of them is read and every digest
/// computed again. Answers their state.
///
/// # Errors
/// As [`replay`]; a newer schema; a database that is damaged, with the file.
pub fn catch_up(log_dir: &Path, path: &Path) -> Result<StateAt, ReplayError> {
    let projections = fill(log_dir, path, &DatabaseOptions::default(), &mut |_, _| ())?;
    projections.verify()?;
    Ok(StateAt::of(&projections))
}

/// Applies to the projections in `path`, which are made if need be, what the log has beyond them up
/// to its last committed index.
///
/// # Errors
/// As [`replay`], and a newer schema.
pub fn fill(
    log_dir: &Path,
    path: &Path,
    options: &DatabaseOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Arc<Projections>, ReplayError> {
    let log = open(log_dir, None)?;
    schema::prepare(path, options)?;
    let (projections, mut writer) = Projections::open(path, options.clone())?;
    let position = projections.view().position();
    let Some(last) = log.committed() else {
        return Ok(projections);
    };
    if !position.begun {
        let (_, mut writer) = unfold_fast((log_dir, &log), last, writer, progress)?;
        writer.flush()?;
    } else if last > position.index {
        fold(&log, position.index + 1, last, &mut writer, progress)?;
        writer.flush()?;
    }
    Ok(projections)
}

/// Where a server keeps its log and its projections under a data directory.
pub fn places(data_dir: &Path) -> (PathBuf, PathBuf) {
    let server = data_dir.join("server");
    (server.join("log"), server.join("projections"))
}

/// Opens the log; waits until it shows `to`, which a running server may have named just now.
pub(crate) fn open(log_dir: &Path, to: Option<u64>) -> Result<ReadOnlyLog, ReplayError> {
    let mut log = ReadOnlyLog::open(log_dir)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(damage) = log.damage() {
            return Err(damage.clone().into());
        }
        let (_, next) = log.bounds();
        match to {
            Some(wanted) if wanted >= next => {
                if Instant::now() > deadline {
                    return Err(ReplayError::Short { wanted, next });
                }
                log.refresh()?;
            }
            _ => return Ok(log),
        }
    }
}

/// Applies a part of the log in batches.
fn fold(
    log: &dyn ReadableLog,
    from: u64,
    last: u64,
    writer: &mut Writer,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, ReplayError> {
    feed(log, from, last, &mut |batch| {
        writer.apply_each(batch, drop)?;
        progress(reached(batch), last);
        Ok(())
    })
}

/// The index of a batch's last event.
pub(crate) fn reached(batch: &[Recorded]) -> u64 {
    batch.last().map_or(0, |recorded| recorded.index)
}

/// Continues as a fold behind what projections have; empty ones begin with the state that the log
/// continues from. Answers the next index too.
pub(crate) fn begin(
    log_dir: &Path,
    log: &dyn ReadableLog,
    writer: Writer,
    memory: usize,
) -> Result<(Fold, u64), ReplayError> {
    let mut fold = writer.fold(memory)?;
    if !fold.position().begun
        && let Some(base) = foundation(log_dir, log)?
    {
        let mut writer = fold.finish()?;
        lay(&base, &mut writer)?;
        fold = writer.fold(memory)?;
    }
    let position = fold.position();
    let next = match position.begun {
        true => position.index + 1,
        false => log.bounds().0,
    };
    Ok((fold, next))
}

/// Hands the entries `from..=last` over in batches; they are read and decoded on a thread of their
/// own, ahead of what is done with them. Answers how many there were.
///
/// # Errors
/// As [`replay`]; the first error of `apply` ends it.
pub fn feed(
    log: &dyn ReadableLog,
    from: u64,
    last: u64,
    apply: &mut dyn FnMut(&[Recorded]) -> Result<(), ReplayError>,
) -> Result<u64, ReplayError> {
    let (tx, rx) = mpsc::sync_channel::<Vec<Recorded>>(AHEAD);
    let next = std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(log, from, last, &tx));
        for batch in rx {
            apply(&batch)?;
        }
        // It ends by itself: the channel is closed, or its other end is gone.
        reader.join().unwrap_or(Ok(from))
    })?;
    if next <= last {
        return Err(ReplayError::Short { wanted: last, next });
    }
    Ok(next - from)
}

/// Sends the entries `from..=last` in batches; answers the index after the last one sent.
fn read(
    log: &dyn ReadableLog,
    from: u64,
    last: u64,
    tx: &mpsc::SyncSender<Vec<Recorded>>,
) -> Result<u64, ReplayError> {
    let mut batch = Vec::with_capacity(BATCH);
    let mut next = from;
    for found in log.scan(from) {
        let entry = found?;
        if entry.index > last {
            break;
        }
        let recorded =
            drover_migrations::decode(&entry.body).map_err(|source| ReplayError::Decode {
                index: entry.index,
                source,
            })?;
        batch.push(recorded);
        next = entry.index + 1;
        if batch.len() == BATCH || entry.index == last {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if tx.send(full).is_err() {
                break;
            }
        }
    }
    Ok(next)
}

#[cfg(test)]
#[path = "replay_test.rs"]
mod tests;
