//! Opening the projections, and what becomes of damaged ones: they are built again from the log,
//! which is the truth, and set aside.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drover_migrations::schema::{self, SchemaError};
use drover_projections::{Options, Projections, Writer, damage_mark};

use super::StartError;
use crate::archive::adopt::adopt;
use crate::error::chain;
use crate::log::ReadOnlyLog;
use crate::rebuild::{self, Rebuild, RebuildError};

/// Opens the projections of the server in `dir`, once a restore that has happened is finished. If a
/// former run found them damaged, or opening them does, they are built again from the log
/// ([`crate::rebuild`]).
///
/// # Errors
/// What is no damage; a log that does not reach back to its beginning, or is damaged itself.
pub(super) fn open(
    dir: &Path,
    options: &Options,
) -> Result<(Arc<Projections>, Writer), StartError> {
    let home = dir.join("projections");
    rebuild::settle(&dir.join("log"), &home).map_err(StartError::Rebuild)?;
    if adopt(dir)? {
        tracing::warn!("a backup was restored: this is a new epoch of the log");
    }
    let (log_dir, path) = (&dir.join("log"), &*home);
    let mark = damage_mark(path);
    let reason = match std::fs::read_to_string(&mark) {
        Ok(reason) => reason,
        Err(_) => match try_open(path, options) {
            Err(error) if is_damage(&error) => chain(&error),
            other => return other,
        },
    };
    if let Ok(log) = ReadOnlyLog::open(log_dir) {
        super::signed(dir, log.epoch(), log.bounds().1)?;
    }
    tracing::error!(
        reason,
        "the projections are damaged: they are set aside and built again from the log"
    );
    let cancelled = AtomicBool::new(false);
    let rebuild = Rebuild {
        // It is what the log gives; whether that is what was signed, `log verify` tells.
        force: true,
        ..Rebuild::of(log_dir, path, options, &cancelled)
    };
    let mut said = 0;
    let rebuilt = rebuild.run(&mut |progress| {
        if progress.at >= said + REPORT_EVERY || progress.at == progress.last {
            said = progress.at;
            let (at, last) = (progress.at, progress.last);
            tracing::info!(at, last, "building the projections again");
        }
    });
    match rebuilt {
        Ok(rebuilt) => tracing::info!(
            entries = rebuilt.entries,
            took = ?rebuilt.took,
            aside = ?rebuilt.kept,
            "the projections are built again"
        ),
        // Nothing is committed: there is nothing to build, nor to lose.
        Err(RebuildError::Empty) => {
            rebuild::set_aside(path).map_err(StartError::Rebuild)?;
        }
        Err(error) => return Err(StartError::Rebuild(error)),
    }
    try_open(path, options)
}

/// How many entries lie between two lines about the progress.
const REPORT_EVERY: u64 = 500_000;

fn try_open(path: &Path, options: &Options) -> Result<(Arc<Projections>, Writer), StartError> {
    schema::prepare(path, options)?;
    Ok(Projections::open(path, options.clone())?)
}

fn is_damage(error: &StartError) -> bool {
    match error {
        StartError::Projections(error) | StartError::Schema(SchemaError::Storage(error)) => {
            error.is_damage()
        }
        StartError::Schema(SchemaError::Damaged { .. }) => true,
        _ => false,
    }
}
