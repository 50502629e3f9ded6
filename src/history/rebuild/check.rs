//! Whether the database in use is what the log gives.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_migrations::schema::{self, LATEST};
use drover_projections::{DatabaseOptions, EntryDifference, Position, Projections, View, Writer};

use super::switch::with_ending;
use super::{RebuildError, RebuildProgress, Stage, at, forget_below, lock};
use crate::history::replay::{self, ReplayError, StateAt};

/// A verification to be done.
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The log beside which the database was built; its lock is held.
    pub log_dir: PathBuf,
    /// What is folded instead, where more is known of the log: it, joined with its archive.
    pub from: Option<PathBuf>,
    /// The database in use.
    pub live: PathBuf,
    /// Its sizes.
    pub options: DatabaseOptions,
    /// Whether every entry of every family is compared, not only the digests of the tables.
    pub whole: bool,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// The result of a verification.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The state of the database, with the digests it keeps.
    pub state: StateAt,
    /// Entries folded.
    pub entries: u64,
    /// Tables whose rows do not give the digest that is kept.
    pub damaged: Vec<String>,
    /// Tables whose digest is not what the log gives.
    pub different: Vec<String>,
    /// The first entries that are not what the log gives, where all were compared.
    pub differences: Vec<EntryDifference>,
}

impl Checked {
    /// Whether the database is what the log gives.
    pub fn is_well(&self) -> bool {
        self.damaged.is_empty() && self.different.is_empty() && self.differences.is_empty()
    }
}

/// Differences shown at most.
const MOST: usize = 20;

impl Check<'_> {
    /// Folds the log to where the database stands, into a database of its own that is gone
    /// afterwards, and compares. The database in use is not changed, but for what a kill left of
    /// the past that can no longer be queried, where every entry is compared.
    ///
    /// # Errors
    /// [`RebuildError`]; what is different is no error.
    pub fn run(&self, progress: &mut dyn FnMut(RebuildProgress)) -> Result<Checked, RebuildError> {
        let _lock = lock(&self.log_dir)?;
        super::switch::finish_switch_locked(&self.live)?;
        let found = schema::version_of(&self.live, &self.options)?;
        if found != LATEST {
            return Err(RebuildError::Schema {
                path: self.live.clone(),
                found: found.0,
            });
        }
        let (mut live, mut writer) = Projections::open(&self.live, self.options.clone())?;
        let position = live.view().position();
        if !position.begun {
            return Err(RebuildError::Empty);
        }
        if self.whole {
            // What was forgotten is, to its end: a kill may have come before.
            live.prune()?;
            (live, writer) = self.again((live, writer), &self.live)?;
        }
        let scratch = Scratch::make(with_ending(&self.live, "-verify"))?;
        let (fresh, entries) = self.folded(position, &scratch.0, progress)?;
        let mut checked = self.compare(&live.view(), &fresh.view(), progress)?;
        checked.entries = entries;
        drop(writer);
        Ok(checked)
    }

    /// Folds the log up to a position into a new database.
    fn folded(
        &self,
        position: Position,
        scratch: &Path,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(Arc<Projections>, u64), RebuildError> {
        let last = position.index;
        let log_dir = self.from.as_ref().unwrap_or(&self.log_dir);
        let log = replay::open(log_dir, Some(last))?;
        schema::prepare(scratch, &self.options)?;
        let (fresh, writer) = Projections::open(scratch, self.options.clone())?;
        let (mut fold, first) = replay::begin(log_dir, &log, writer, replay::FOLD_BYTES)?;
        if first > last + 1 {
            // They are of another log, or of a former epoch of this one.
            let first = first - 1;
            return Err(ReplayError::Gone {
                wanted: last,
                first,
            }
            .into());
        }
        if !self.whole {
            fold = fold.rows_only();
        }
        let entries = replay::feed(&log, first, last, &mut |batch| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ReplayError::Cancelled);
            }
            fold.apply(batch)?;
            progress(at(Stage::Fold, replay::reached(batch), last));
            Ok(())
        })?;
        let mut writer = fold.finish()?;
        if !self.whole {
            return Ok((fresh, entries));
        }
        forget_below(position.floor, &mut writer)?;
        let (fresh, _) = self.again((fresh, writer), scratch)?;
        Ok((fresh, entries))
    }

    /// Opens a database again: views of before show what was forgotten since.
    fn again(
        &self,
        open: (Arc<Projections>, Writer),
        path: &Path,
    ) -> Result<(Arc<Projections>, Writer), RebuildError> {
        drop(open);
        Ok(Projections::open(path, self.options.clone())?)
    }

    fn compare(
        &self,
        live: &View,
        fresh: &View,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Checked, RebuildError> {
        let state = StateAt::of_view(live);
        let different = state.differences(&StateAt::of_view(fresh));
        let mut checked = Checked {
            different: different.unwrap_or_default(),
            state,
            entries: 0,
            damaged: Vec::new(),
            differences: Vec::new(),
        };
        let last = live.index();
        progress(at(Stage::Verify, last, last));
        for table in &checked.state.digests {
            if live.digest_of_rows(table.table)? != table.digest {
                checked.damaged.push(table.name.to_owned());
            }
        }
        if self.whole {
            checked.differences = live.differences(fresh, MOST, &mut |_| ())?;
        }
        Ok(checked)
    }
}

/// A directory that is gone when this is.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn make(path: PathBuf) -> Result<Scratch, RebuildError> {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(RebuildError::file(&path)(error));
            }
            _ => {}
        }
        std::fs::create_dir(&path).map_err(RebuildError::file(&path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
