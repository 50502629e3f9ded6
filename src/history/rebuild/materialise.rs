//! The whole state of any index, made from the log in a directory of its own.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use drover_migrations::schema;
use drover_projections::{DatabaseOptions, Projections, View};
use serde_json::json;

use super::{RebuildError, RebuildProgress, Stage, at};
use crate::history::replay::{self, ReplayError, StateAt};
use crate::log::ReadOnlyLog;

/// A state to be made.
#[derive(Clone, Debug)]
pub struct Materialise<'a> {
    /// The log; a server may be writing it.
    pub log_dir: PathBuf,
    /// The index after whose event the state is wanted.
    pub index: u64,
    /// A directory that does not exist yet: `projections` in it will be the database.
    pub out: PathBuf,
    /// Whether the rows are written as NDJSON too, a file per table in `tables`.
    pub json: bool,
    /// Set when the caller wants it no more.
    pub cancelled: &'a AtomicBool,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Materialised {
    pub state: StateAt,
    /// Entries folded.
    pub entries: u64,
    /// Rows of every table that has some, by name.
    pub rows: Vec<(&'static str, u64)>,
}

impl Materialise<'_> {
    /// Folds the log to the index.
    ///
    /// # Errors
    /// The index is beyond what is committed, the log does not reach back to its beginning or is
    /// damaged, the directory exists. What was made by then is removed.
    pub fn run(
        &self,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Materialised, RebuildError> {
        let log = ReadOnlyLog::open(&self.log_dir)?;
        if let Some(damage) = log.damage() {
            return Err(damage.clone().into());
        }
        let next = log.committed().map_or(0, |last| last + 1);
        let wanted = self.index;
        if wanted >= next {
            return Err(ReplayError::Short { wanted, next }.into());
        }
        fs::create_dir(&self.out).map_err(RebuildError::file(&self.out))?;
        let made = self.make(&log, progress);
        if made.is_err() {
            // Half a state would be taken for a whole one.
            let _ = fs::remove_dir_all(&self.out);
        }
        made
    }

    fn make(
        &self,
        log: &ReadOnlyLog,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Materialised, RebuildError> {
        let path = self.out.join("projections");
        let options = DatabaseOptions::default();
        schema::prepare(&path, &options)?;
        let (projections, writer) = Projections::open(&path, options)?;
        let (mut fold, first) = replay::begin(&self.log_dir, log, writer, replay::FOLD_BYTES)?;
        if first > self.index + 1 {
            let (wanted, first) = (self.index, first - 1);
            return Err(ReplayError::Gone { wanted, first }.into());
        }
        let entries = replay::feed(log, first, self.index, &mut |batch| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(ReplayError::Cancelled);
            }
            fold.apply(batch)?;
            progress(at(Stage::Fold, replay::reached(batch), self.index));
            Ok(())
        })?;
        drop(fold.finish()?);
        let view = projections.view();
        let sizes = view.sizes()?;
        if self.json {
            self.write_tables(&view)?;
        }
        let state = StateAt::of_view(&view);
        self.write_manifest(&state)?;
        let rows = sizes.iter().filter(|size| size.rows > 0);
        Ok(Materialised {
            state,
            entries,
            rows: rows.map(|size| (size.name, size.rows)).collect(),
        })
    }

    fn write_tables(&self, view: &View) -> Result<(), RebuildError> {
        let dir = self.out.join("tables");
        fs::create_dir(&dir).map_err(RebuildError::file(&dir))?;
        for table in drover_projections::tables::registry().tables() {
            let path = dir.join(format!("{}.ndjson", table.name()));
            let mut file: Option<BufWriter<fs::File>> = None;
            let mut failed = None;
            view.each_row(table, &mut |index, row| {
                let line = json!({"Table": table.name(), "Index": index, "Row": row});
                let written = open_once(&mut file, &path).and_then(|file| writeln!(file, "{line}"));
                failed = written.err();
                failed.is_none()
            })?;
            let flushed = file.map_or(Ok(()), |mut file| file.flush());
            let done = failed.map_or(flushed, Err);
            done.map_err(RebuildError::file(&path))?;
        }
        Ok(())
    }

    fn write_manifest(&self, state: &StateAt) -> Result<(), RebuildError> {
        let tables = state.digests.iter();
        let digests: serde_json::Map<_, _> = tables
            .map(|table| (table.name.to_owned(), table.digest.to_hex().into()))
            .collect();
        let manifest = json!({"Index": state.index, "Time": state.time, "Digests": digests});
        let path = self.out.join("state.json");
        fs::write(&path, format!("{manifest:#}\n")).map_err(RebuildError::file(&path))
    }
}

/// The file, made when the first row is written.
fn open_once<'a>(
    file: &'a mut Option<BufWriter<fs::File>>,
    path: &Path,
) -> std::io::Result<&'a mut BufWriter<fs::File>> {
    match file {
        Some(open) => Ok(open),
        None => Ok(file.insert(BufWriter::new(fs::File::create(path)?))),
    }
}
