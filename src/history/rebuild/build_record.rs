//! The record in a database that is being built: which program builds it, from which log, and what
//! was compared so far.

use std::fs;
use std::path::{Path, PathBuf};

use drover_migrations::schema::LATEST;
use serde::{Deserialize, Serialize};

use super::RebuildError;
use super::switch::unused;
use crate::base::version::VERSION;
use crate::log::ReadableLog;
use crate::log::atomic_file;

/// What [`Compared::with`] says of the old database.
pub(super) const OLD: &str = "the old database";
/// What it says of a signed checkpoint.
pub(super) const CHECKPOINT: &str = "the signed checkpoint";

/// A comparison of digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Compared {
    /// With what.
    pub with: String,
    /// At which index.
    pub index: u64,
    /// The tables that are different.
    pub different: Vec<String>,
}

impl Compared {
    /// Whether the new database is not what was signed.
    pub(super) fn is_forged(&self) -> bool {
        self.with == CHECKPOINT && !self.different.is_empty()
    }
}

/// What lies in a database that is being built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct BuildRecord {
    version: String,
    schema: u32,
    epoch: String,
    pub(super) compared: Vec<Compared>,
}

fn path(database: &Path) -> PathBuf {
    database.join("rebuild.json")
}

impl BuildRecord {
    /// The record of the database that a rebuild continues with: one that this program began from
    /// this log, or else a new one in an empty directory.
    pub(super) fn take_up(work: &Path, log: &dyn ReadableLog) -> Result<BuildRecord, RebuildError> {
        let wanted = BuildRecord {
            version: VERSION.to_owned(),
            schema: LATEST.0,
            epoch: hex::encode(log.epoch().id),
            compared: Vec::new(),
        };
        let text = match fs::read(path(work)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(RebuildError::file(work)(error)),
        };
        let Some(text) = text else {
            // Without a record it is the former database, which was replaced, or one that was
            // refused.
            if work.exists() {
                let retired = unused(work);
                fs::rename(work, &retired).map_err(RebuildError::file(work))?;
            }
            return Ok(wanted);
        };
        let found: BuildRecord = serde_json::from_slice(&text).unwrap_or_default();
        let same = BuildRecord {
            compared: found.compared.clone(),
            ..wanted.clone()
        };
        if found == same {
            return Ok(found);
        }
        fs::remove_dir_all(work).map_err(RebuildError::file(work))?;
        Ok(wanted)
    }

    /// Writes the record.
    pub(super) fn write(&self, work: &Path) -> Result<(), RebuildError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        atomic_file::put(&path(work), &text).map_err(RebuildError::file(work))
    }

    /// Removes the record, if it exists: no build is running there any more.
    pub(super) fn remove(database: &Path) -> Result<(), RebuildError> {
        match fs::remove_file(path(database)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(RebuildError::file(database)(error))
            }
            _ => Ok(()),
        }
    }
}
