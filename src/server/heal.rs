//! Opening the projections, and what becomes of damaged ones: they are set aside and built again
//! from the log, which is the truth.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_migrations::schema::{self, SchemaError};
use drover_projections::{Options, Projections, Writer, damage_mark};

use super::StartError;
use crate::archive::adopt::adopt;
use crate::error::chain;
use crate::replay;

/// Opens the projections of the server in `dir`, once a restore that has happened is finished. If a
/// former run found them damaged, or opening them does, they are renamed and built again from the
/// log.
///
/// # Errors
/// What is no damage; a log that does not reach back to its beginning, or is damaged itself.
pub(super) fn open(
    dir: &Path,
    options: &Options,
) -> Result<(Arc<Projections>, Writer), StartError> {
    if adopt(dir)? {
        tracing::warn!("a backup was restored: this is a new epoch of the log");
    }
    let (log_dir, path) = (&dir.join("log"), &*dir.join("projections"));
    let mark = damage_mark(path);
    let reason = match std::fs::read_to_string(&mark) {
        Ok(reason) => reason,
        Err(_) => match try_open(path, options) {
            Err(error) if is_damage(&error) => chain(&error),
            other => return other,
        },
    };
    let aside = unused(path);
    tracing::error!(
        reason,
        aside = %aside.display(),
        "the projections are damaged: they are set aside and built again from the log"
    );
    let moved = |source| StartError::Files {
        path: path.to_owned(),
        source,
    };
    if path.exists() {
        std::fs::rename(path, &aside).map_err(moved)?;
    }
    let mut said = 0;
    let filled = replay::fill(log_dir, path, options, &mut |at, last| {
        if at >= said + REPORT_EVERY || at == last {
            said = at;
            tracing::info!(at, last, "building the projections again");
        }
    });
    drop(filled.map_err(StartError::Rebuild)?);
    if mark.exists() {
        std::fs::remove_file(&mark).map_err(moved)?;
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

/// `projections.set-aside-1`, or the next number that is free.
fn unused(path: &Path) -> PathBuf {
    let mut number = 1;
    loop {
        let aside = path.with_extension(format!("set-aside-{number}"));
        if !aside.exists() {
            return aside;
        }
        number += 1;
    }
}
