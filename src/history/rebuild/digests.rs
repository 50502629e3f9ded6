//! Whether the tables that the log gives are those that were signed and recorded.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::cluster::DigestRecorded;
use drover_events::{Event, Recorded};
use drover_projections::{DatabaseOptions, Fold, Projections, StorageError, View};

use super::{RebuildError, RebuildProgress, Stage, at};
use crate::history::proof::{Checkpoint, CheckpointFile, Finding, state_digest};
use crate::history::replay::{self, ReplayError};
use crate::log::ReadOnlyLog;

/// A check of digests to be done.
#[derive(Clone, Debug)]
pub struct DigestCheck<'a> {
    /// The log; a server may be writing it.
    pub log_dir: PathBuf,
    /// What was recorded elsewhere of the tables, beside the checkpoints: by bases, by a backup.
    pub also: Vec<Checkpoint>,
    /// The last index that is folded, if not all is.
    pub to: Option<u64>,
    /// Checkpoints above this one are left out: a server that writes beside may have signed more
    /// than was verified.
    pub signed_to: u64,
    /// An empty directory for what is folded.
    pub scratch: PathBuf,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// The result of the comparison.
#[derive(Clone, Debug, Default)]
pub struct DigestsChecked {
    /// Entries folded.
    pub entries: u64,
    /// Checkpoints whose tables are those of the log.
    pub checkpoints: u64,
    /// What was recorded elsewhere, of which the same is true.
    pub also: u64,
    /// Recorded digests that are those of the log.
    pub recorded: u64,
    /// What is not, the first first.
    pub findings: Vec<Finding>,
}

/// A fold that stops at every checkpoint.
struct DigestWalk {
    fold: Fold,
    /// Each with whether it lies beside the log.
    checkpoints: VecDeque<(Checkpoint, bool)>,
    /// The last index whose tables were signed and are right.
    good: Option<u64>,
    recorded: Vec<(u64, DigestRecorded)>,
    checked: DigestsChecked,
}

impl DigestCheck<'_> {
    /// Folds the log and compares the digest of all tables at every checkpoint beside it, and every
    /// digest that an event recorded. Whether a checkpoint's signature is right is checked
    /// elsewhere ([`crate::history::proof::verify()`]).
    ///
    /// # Errors
    /// The log cannot be read or folded; what is different is a finding.
    pub fn run(
        &self,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<DigestsChecked, RebuildError> {
        let log = ReadOnlyLog::open(&self.log_dir)?;
        let Some(last) = log.committed() else {
            return Ok(DigestsChecked::default());
        };
        let last = self.to.map_or(last, |to| to.min(last));
        let (projections, writer) = Projections::open(&self.scratch, DatabaseOptions::default())?;
        let (fold, first) = replay::begin(&self.log_dir, &log, writer, replay::FOLD_BYTES)?;
        let mut walk = DigestWalk {
            fold: fold.rows_only(),
            checkpoints: self.checkpoints(first, last)?,
            good: None,
            recorded: Vec::new(),
            checked: DigestsChecked::default(),
        };
        walk.checked.entries = replay::feed(&log, first, last, &mut |batch| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ReplayError::Cancelled);
            }
            walk.apply(batch)?;
            progress(at(Stage::Fold, replay::reached(batch), last));
            Ok(())
        })?;
        drop(walk.fold.finish()?);
        let mut checked = walk.checked;
        for (index, recorded) in walk.recorded {
            match unlike(&projections.view(), &recorded)? {
                Some(tables) if tables.is_empty() => checked.recorded += 1,
                Some(tables) => checked.findings.push(Finding {
                    index: Some(index),
                    what: format!(
                        "the tables {} at index {} are not what the event at {index} recorded",
                        tables.join(", "),
                        recorded.at
                    ),
                }),
                None => {}
            }
        }
        Ok(checked)
    }

    /// The checkpoints of the states that the fold comes by, in order.
    fn checkpoints(
        &self,
        first: u64,
        last: u64,
    ) -> Result<VecDeque<(Checkpoint, bool)>, RebuildError> {
        let Some(server) = self.log_dir.parent() else {
            return Ok(VecDeque::new());
        };
        let all = CheckpointFile::checkpoints(server)
            .map_err(|error| RebuildError::file(server)(std::io::Error::other(error)))?;
        let also = self.also.iter().map(|one| (one.clone(), false));
        let signed = all.into_iter().filter(|one| one.index <= self.signed_to);
        let all = signed.map(|one| (one, true)).chain(also);
        let mut all: Vec<_> = all
            .filter(|(one, _)| (first..=last).contains(&one.index))
            .collect();
        all.sort_by_key(|(checkpoint, _)| checkpoint.index);
        Ok(all.into())
    }
}

impl DigestWalk {
    fn apply(&mut self, mut batch: &[Recorded]) -> Result<(), ReplayError> {
        for recorded in batch {
            if let Some(Event::DigestRecorded(event)) =
                recorded.envelope.as_ref().map(|envelope| &envelope.event)
            {
                self.recorded
                    .push((recorded.index, DigestRecorded::clone(event)));
            }
        }
        while let Some(first) = batch.first() {
            let due = self.due();
            let due = due.filter(|due| *due <= replay::reached(batch));
            let Some(due) = due else {
                self.fold.apply(batch)?;
                break;
            };
            let (now, later) = batch.split_at((due + 1).saturating_sub(first.index) as usize);
            self.fold.apply(now)?;
            batch = later;
            // A backup may be of the index that was signed last.
            while self.due() == Some(due) {
                self.compare(due)?;
            }
        }
        Ok(())
    }

    /// The index of the next checkpoint.
    fn due(&self) -> Option<u64> {
        self.checkpoints.front().map(|(one, _)| one.index)
    }

    /// Compares the tables as they are with the checkpoint that is due.
    fn compare(&mut self, index: u64) -> Result<(), ReplayError> {
        let Some((checkpoint, beside)) = self.checkpoints.pop_front() else {
            return Ok(());
        };
        if state_digest(&self.fold.digests()?) == checkpoint.state {
            match beside {
                true => self.checked.checkpoints += 1,
                false => self.checked.also += 1,
            }
            self.good = Some(index);
            return Ok(());
        }
        let from = self.good.map_or(0, |good| good + 1);
        self.checked.findings.push(Finding {
            index: Some(from),
            what: format!(
                "the tables that the log gives are not those that were signed at index {index}: \
                 they part between {from} and {index}"
            ),
        });
        // What follows parts as well.
        self.checkpoints.clear();
        Ok(())
    }
}

/// The tables whose digests are not those that were recorded; an empty list where digests were not
/// kept at that index. Tables that the record does not name are not compared.
///
/// # Errors
/// Those of the database.
pub fn unlike(
    view: &View,
    recorded: &DigestRecorded,
) -> Result<Option<Vec<&'static str>>, StorageError> {
    let Some(kept) = view.digests_at(recorded.at)? else {
        return Ok(None);
    };
    let unlike = kept.iter().filter(|table| {
        let digest = recorded.digests.get(&table.table);
        digest.is_some_and(|digest| digest.as_ref() != table.digest.0)
    });
    Ok(Some(unlike.map(|table| table.name).collect()))
}
