//! Whether the database in use is what the log gives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_migrations::schema::{self, LATEST};
use drover_projections::{Difference, Options, Projections, View};

use super::switch::with_ending;
use super::{Progress, RebuildError, Stage, at, lock};
use crate::replay::{self, ReplayError, StateAt};

/// A comparison to be done.
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The log.
    pub log_dir: PathBuf,
    /// The database in use.
    pub live: PathBuf,
    /// Its sizes.
    pub options: Options,
    /// Whether every entry of every family is compared, not only the digests of the tables.
    pub whole: bool,
    /// Set by whoever wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// What came of it.
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
    pub differences: Vec<Difference>,
}

impl Checked {
    /// Whether the database is what the log gives.
    pub fn is_well(&self) -> bool {
        self.damaged.is_empty() && self.different.is_empty() && self.differences.is_empty()
    }
}

/// Differences told at most.
const MOST: usize = 20;

impl Check<'_> {
    /// Folds the log to where the database stands, into a database of its own that is gone
    /// afterwards, and compares. The database in use is not changed.
    ///
    /// # Errors
    /// [`RebuildError`]; what is different is no error.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Checked, RebuildError> {
        let _lock = lock(&self.log_dir)?;
        super::switch::settle_locked(&self.live)?;
        let found = schema::version_of(&self.live, &self.options)?;
        if found != LATEST {
            return Err(RebuildError::Schema {
                path: self.live.clone(),
                found: found.0,
            });
        }
        let (live, _writer) = Projections::open(&self.live, self.options.clone())?;
        let position = live.view().position();
        if !position.begun {
            return Err(RebuildError::Empty);
        }
        let scratch = Scratch::make(with_ending(&self.live, "-verify"))?;
        let last = position.index;
        let log = replay::open(&self.log_dir, Some(last))?;
        schema::prepare(&scratch.0, &self.options)?;
        let (fresh, writer) = Projections::open(&scratch.0, self.options.clone())?;
        let (mut fold, first) = replay::begin(&self.log_dir, &log, writer, replay::FOLD_BYTES)?;
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
        drop(fold.finish()?);
        let mut checked = self.compare(&live.view(), &fresh.view(), progress)?;
        checked.entries = entries;
        Ok(checked)
    }

    fn compare(
        &self,
        live: &View,
        fresh: &View,
        progress: &mut dyn FnMut(Progress),
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
