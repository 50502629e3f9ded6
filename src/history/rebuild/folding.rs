//! What every rebuild does with the log: folds it, stops to compare digests, keeps its pace.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drover_projections::{Fold, TableDigest};

use super::build_record::{self, BuildRecord};
use super::{Compared, RebuildError, RebuildProgress, Stage, at};
use crate::history::proof::{CheckpointFile, state_digest};
use crate::history::replay::{self, ReplayError};
use crate::log::ReadableLog;

/// A fold of a log that is on its way.
pub(super) struct Folding<'a> {
    pub(super) log: &'a dyn ReadableLog,
    pub(super) fold: Fold,
    /// The next index.
    pub(super) next: u64,
    /// Entries folded in this run.
    pub(super) entries: u64,
    pub(super) pace: Pace,
    pub(super) cancelled: &'a AtomicBool,
    /// Called before every batch: whether its size fits.
    pub(super) space: &'a (dyn Fn() -> Result<(), ReplayError> + Sync),
}

impl Folding<'_> {
    /// Folds up to `to`; it is interrupted between two batches.
    pub(super) fn go_to(
        &mut self,
        to: u64,
        last: u64,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), RebuildError> {
        if self.next > to {
            return Ok(());
        }
        let Self {
            log,
            fold,
            pace,
            cancelled,
            space,
            ..
        } = self;
        let fed = replay::feed(*log, self.next, to, &mut |batch| {
            space()?;
            fold.apply(batch)?;
            progress(at(Stage::Fold, replay::reached(batch), last));
            pace.wait(batch.len() as u64, cancelled);
            match cancelled.load(Ordering::Relaxed) {
                true => Err(ReplayError::Cancelled),
                false => Ok(()),
            }
        });
        match fed {
            Err(ReplayError::Cancelled) => {
                self.fold.commit()?;
                Err(ReplayError::Cancelled.into())
            }
            Err(error) => Err(error.into()),
            Ok(entries) => {
                self.entries += entries;
                self.next = to + 1;
                Ok(())
            }
        }
    }

    /// Folds up to `last`, and compares on the way; what was compared goes into its record.
    pub(super) fn go_through(
        &mut self,
        mut stops: Vec<Stop>,
        last: u64,
        (record, work): (&mut BuildRecord, &Path),
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), RebuildError> {
        stops.retain(|stop| (self.next..=last).contains(&stop.index));
        stops.sort_by_key(|stop| stop.index);
        for stop in stops {
            self.go_to(stop.index, last, progress)?;
            let compared = stop.compare(&self.fold.digests()?);
            self.fold.commit()?;
            record.compared.push(compared);
            record.write(work)?;
        }
        self.go_to(last, last, progress)
    }
}

/// An index at which digests are compared.
pub(super) struct Stop {
    pub(super) index: u64,
    pub(super) what: Against,
}

/// With what.
pub(super) enum Against {
    Old(Vec<TableDigest>),
    Checkpoint([u8; 32]),
}

impl Stop {
    /// The last checkpoint that the log reaches.
    pub(super) fn signed(log_dir: &Path, last: u64) -> Result<Vec<Stop>, RebuildError> {
        let Some(server) = log_dir.parent() else {
            return Ok(Vec::new());
        };
        let checkpoints = CheckpointFile::last_below(server, last)
            .map_err(|error| RebuildError::file(server)(std::io::Error::other(error)))?;
        Ok(checkpoints
            .into_iter()
            .map(|checkpoint| Stop {
                index: checkpoint.index,
                what: Against::Checkpoint(checkpoint.state),
            })
            .collect())
    }

    fn compare(&self, new: &[TableDigest]) -> Compared {
        let (with, different) = match &self.what {
            Against::Old(old) => {
                let pairs = old.iter().zip(new).filter(|(old, new)| old != new);
                (
                    build_record::OLD,
                    pairs.map(|(old, _)| old.name.to_owned()).collect(),
                )
            }
            Against::Checkpoint(state) if state_digest(new) == *state => {
                (build_record::CHECKPOINT, Vec::new())
            }
            Against::Checkpoint(_) => (build_record::CHECKPOINT, vec!["all tables".to_owned()]),
        };
        Compared {
            with: with.to_owned(),
            index: self.index,
            different,
        }
    }
}

/// How often a waiting fold looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps a rebuild at a rate.
pub(super) struct Pace {
    rate: Option<u64>,
    began: Instant,
    done: u64,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            began: Instant::now(),
            done: 0,
        }
    }

    /// Waits until so many more entries are due, or the fold is cancelled.
    fn wait(&mut self, entries: u64, cancelled: &AtomicBool) {
        let Some(rate) = self.rate else { return };
        self.done += entries;
        let due = Duration::from_secs_f64(self.done as f64 / rate as f64);
        while !cancelled.load(Ordering::Relaxed)
            && let Some(left) = due.checked_sub(self.began.elapsed())
        {
            std::thread::sleep(left.min(LOOK));
        }
    }
}
