//! Opening the projections, and what becomes of damaged ones: they are built again from the log,
//! which is the truth, and retired.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use drover_migrations::schema::{self, SchemaError};
use drover_projections::{DatabaseOptions, Projections, Writer, damage_mark};

use super::StartError;
use crate::error::chain;
use crate::history::backup::adopt::adopt;
use crate::history::rebuild::{self, Rebuild, RebuildError, RebuildProgress};
use crate::history::replay::{self, ReplayError};
use crate::log::ReadOnlyLog;
use crate::raft::snapshot::SnapshotDir;

/// Opens the projections of the server in `dir`, once a restore that has happened is finished. If a
/// former run found them damaged, or opening them does, or they are not there though the log begins
/// above zero, they are built again from the log ([`rebuild`]). Damaged snapshots are retired
/// where the log continues from another one.
///
/// # Errors
/// What is no damage; a log that does not reach back to its beginning, or is damaged itself.
pub(super) fn open(
    dir: &Path,
    options: &DatabaseOptions,
) -> Result<(Arc<Projections>, Writer), StartError> {
    let home = dir.join("projections");
    rebuild::finish_switch(&dir.join("log"), &home).map_err(StartError::Rebuild)?;
    if adopt(dir)? {
        tracing::warn!("a backup was restored: this is a new epoch of the log");
    }
    let (log_dir, path) = (&dir.join("log"), &*home);
    let mark = damage_mark(path);
    let reason = match std::fs::read_to_string(&mark) {
        Ok(reason) => reason,
        Err(_) if are_lost(log_dir, path) => "they are not there".to_owned(),
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
        "the projections cannot be used: what there is of them is retired, and they are built \
         again from the log"
    );
    let cancelled = AtomicBool::new(false);
    let rebuild = Rebuild {
        // It is what the log gives; whether that is what was signed, `log verify` checks.
        force: true,
        ..Rebuild::of(log_dir, path, options, &cancelled)
    };
    let mut last_report = 0;
    let mut say = |progress: RebuildProgress| {
        if progress.at >= last_report + REPORT_EVERY || progress.at == progress.last {
            last_report = progress.at;
            let (at, last) = (progress.at, progress.last);
            tracing::info!(at, last, "building the projections again");
        }
    };
    let (mut rebuilt, snapshots) = (rebuild.run(&mut say), dir.join("snapshots"));
    let cannot = |source| StartError::Files {
        path: snapshots.clone(),
        source,
    };
    while let Err(RebuildError::Replay(error)) = &rebuilt
        && retire(error, log_dir, &snapshots).map_err(cannot)?
    {
        rebuilt = rebuild.run(&mut say);
    }
    match rebuilt {
        Ok(rebuilt) => tracing::info!(
            entries = rebuilt.entries,
            took = ?rebuilt.took,
            retired = ?rebuilt.kept,
            "the projections are built again"
        ),
        // Nothing is committed: there is nothing to build, nor to lose.
        Err(RebuildError::Empty) => {
            rebuild::retire(path).map_err(StartError::Rebuild)?;
        }
        Err(error) => return Err(StartError::Rebuild(error)),
    }
    try_open(path, options)
}

/// Whether there are no projections of a log that lost its beginning. One that begins at zero fills
/// them by being applied again.
fn are_lost(log_dir: &Path, path: &Path) -> bool {
    let reports = |log: ReadOnlyLog| {
        let first = log.bounds().0;
        first > 0 && log.committed().is_some_and(|last| last >= first)
    };
    !path.exists() && ReadOnlyLog::open(log_dir).is_ok_and(reports)
}

/// Retires the snapshot that a rebuild found damaged, where the log continues from another one;
/// answers whether it did.
fn retire(error: &ReplayError, log_dir: &Path, snapshots: &Path) -> io::Result<bool> {
    match error {
        ReplayError::Foundation { path, source } if others(log_dir) => {
            let damaged = SnapshotDir::new(path.clone());
            damaged.retire(source).map(|()| true)
        }
        ReplayError::Base(why) if why.kind() == io::ErrorKind::InvalidData => {
            SnapshotDir::retire_damaged(snapshots).map(|number| number > 0)
        }
        _ => Ok(false),
    }
}

/// Whether the log continues from more than one snapshot.
fn others(log_dir: &Path) -> bool {
    let found = ReadOnlyLog::open(log_dir).map(|log| replay::foundations(log_dir, &log));
    found.is_ok_and(|found| found.is_ok_and(|found| found.len() > 1))
}

/// How many entries lie between two lines about the progress.
const REPORT_EVERY: u64 = 500_000;

fn try_open(
    path: &Path,
    options: &DatabaseOptions,
) -> Result<(Arc<Projections>, Writer), StartError> {
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
