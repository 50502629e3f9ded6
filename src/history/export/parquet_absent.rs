//! In the place of the export as Parquet, in a program that is built without it.

use std::path::Path;

use super::ArchiveError;
use super::lines::{Export, Exported};
use crate::log::ReadOnlyLog;

/// Says that it cannot be done.
///
/// # Errors
/// Always.
pub fn write(
    _: &Export,
    _: &ReadOnlyLog,
    _: &Path,
    _: bool,
    _: &mut dyn FnMut(u64, u64),
) -> Result<Exported, ArchiveError> {
    Err(ArchiveError::Refused(
        "this drover is built without Parquet (feature parquet)".to_owned(),
    ))
}
