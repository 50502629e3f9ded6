//! Whether what a running server shows is what its log gives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_migrations::schema;
use drover_projections::{DatabaseOptions, Projections};

use super::check::{Checked, Scratch};
use super::online::{OnlineSettings, give_way_and};
use super::switch::with_ending;
use super::{RebuildError, RebuildProgress, Stage, at};
use crate::history::replay::{self, ReplayError, StateAt};
use crate::history::reserve::DiskReserve;
use crate::log::LogEngine;

/// A verification to be done beside a server that serves.
pub struct LiveCheck<'a> {
    /// Where the database is at home.
    pub home: PathBuf,
    /// The server's log.
    pub log: &'a LogEngine,
    /// What is served.
    pub projections: &'a Projections,
    /// The sizes of the database that is folded into, and gone afterwards.
    pub options: DatabaseOptions,
    /// How much memory, how fast, how much space is left to the server.
    pub settings: OnlineSettings,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

impl LiveCheck<'_> {
    /// Folds the log to the index that is served now and compares the digest of every table; the
    /// rows that are served are read, and their digests computed again.
    ///
    /// # Errors
    /// [`RebuildError`]; what is different is no error.
    pub fn run(
        &self,
        progress: &mut (dyn FnMut(RebuildProgress) + Send),
    ) -> Result<Checked, RebuildError> {
        give_way_and(|| self.check(progress))
    }

    fn check(&self, progress: &mut dyn FnMut(RebuildProgress)) -> Result<Checked, RebuildError> {
        let state = StateAt::of(self.projections);
        let damaged = self.damaged(progress)?;
        let scratch = Scratch::make(with_ending(&self.home, "-verify"))?;
        let space = DiskReserve::of(
            &scratch.0,
            self.settings.reserve + self.settings.memory as u64,
        );
        schema::prepare(&scratch.0, &self.options)?;
        let (fresh, writer) = Projections::open(&scratch.0, self.options.clone())?;
        let (log_dir, memory) = (self.log.dir(), self.settings.memory);
        let (fold, first) = replay::begin(log_dir, self.log, writer, memory)?;
        let mut fold = fold.rows_only();
        let entries = replay::feed(self.log, first, state.index, &mut |batch| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ReplayError::Cancelled);
            }
            space.check()?;
            fold.apply(batch)?;
            progress(at(Stage::Fold, replay::reached(batch), state.index));
            Ok(())
        })?;
        drop(fold.finish()?);
        let different = state.differences(&StateAt::of(&fresh));
        Ok(Checked {
            different: different.unwrap_or_default(),
            state,
            entries,
            damaged,
            differences: Vec::new(),
        })
    }

    /// The tables whose rows do not give the digest that is kept, each read from a view of its own.
    fn damaged(
        &self,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Vec<String>, RebuildError> {
        let mut damaged = Vec::new();
        for table in StateAt::of(self.projections).digests {
            let view = self.projections.view();
            progress(at(Stage::Verify, 0, view.index()));
            let kept = view
                .digests()
                .into_iter()
                .find(|one| one.table == table.table);
            let rows = view.digest_of_rows(table.table)?;
            if kept.is_some_and(|kept| kept.digest != rows) {
                damaged.push(table.name.to_owned());
            }
        }
        Ok(damaged)
    }
}
