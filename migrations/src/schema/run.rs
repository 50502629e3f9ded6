//! Runs the steps a database has not had.

use std::path::{Path, PathBuf};

use drover_projections::maintenance::{Maintenance, RawChange};
use drover_projections::{DatabaseOptions, StorageError};

use super::STEPS;
use super::version::{LATEST, SchemaHeader, SchemaVersion};

/// What one page of a step gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepProgress {
    /// Write this; the step continues at the cursor.
    More {
        /// The page's changes.
        changes: Vec<RawChange>,
        /// Where the next page begins; never empty.
        cursor: Vec<u8>,
    },
    /// Write this, and the step is done.
    Done(Vec<RawChange>),
}

/// One step of the schema. A page depends on the database and the cursor alone, so that a page
/// which was computed but not written is computed again.
pub trait Step: Sync {
    /// What it does, for the log.
    fn name(&self) -> &'static str;

    /// The page at the cursor; empty: the first.
    ///
    /// # Errors
    /// Those of the database.
    fn page(&self, db: &Maintenance, cursor: &[u8]) -> Result<StepProgress, StorageError>;
}

/// Why a database cannot be used by this binary.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A newer binary wrote it.
    #[error("{}: schema {} was written by a newer drover, this one knows {}", path.display(), found.0, known.0)]
    TooNew {
        /// Where the database is.
        path: PathBuf,
        /// The schema that it has.
        found: SchemaVersion,
        /// The newest schema known.
        known: SchemaVersion,
    },
    /// The header is unreadable.
    #[error("{}: the schema's header is damaged", path.display())]
    Damaged {
        /// Where the database is.
        path: PathBuf,
    },
    /// The database failed.
    #[error("the schema could not be brought up to date")]
    Storage(#[from] StorageError),
}

/// Brings the database at `path` to the newest schema, or makes a new one. To be called before it
/// is opened for use. Gives the schema it had.
///
/// # Errors
/// [`SchemaError::TooNew`] when a newer binary wrote it.
pub fn prepare(
    path: impl AsRef<Path>,
    options: &DatabaseOptions,
) -> Result<SchemaVersion, SchemaError> {
    let path = path.as_ref();
    let db = Maintenance::open(path, options)?;
    run(&db, path, STEPS, usize::MAX)
}

/// The schema of the database at `path`, which must exist; it is not changed.
///
/// # Errors
/// Those of the database; a header that cannot be read.
pub fn version_of(path: &Path, options: &DatabaseOptions) -> Result<SchemaVersion, SchemaError> {
    let header = Maintenance::open(path, options)?.header()?;
    let Some(bytes) = header else {
        return Ok(SchemaVersion::default());
    };
    let header = SchemaHeader::decode(&bytes).ok_or_else(|| SchemaError::Damaged {
        path: path.to_owned(),
    })?;
    Ok(header.version)
}

/// Runs steps until the database has them all, or `pages` were written (a crash, for the tests).
pub(super) fn run(
    db: &Maintenance,
    path: &Path,
    steps: &[&dyn Step],
    mut pages: usize,
) -> Result<SchemaVersion, SchemaError> {
    let newest = SchemaVersion(u32::try_from(steps.len()).unwrap_or(u32::MAX));
    let mut header = match db.header()? {
        Some(bytes) => SchemaHeader::decode(&bytes).ok_or_else(|| SchemaError::Damaged {
            path: path.to_owned(),
        })?,
        None if db.is_new()? => {
            db.write(&[], &SchemaHeader::at(newest).encode())?;
            return Ok(newest);
        }
        None => SchemaHeader::default(),
    };
    let had = header.version;
    if had > newest {
        return Err(SchemaError::TooNew {
            path: path.to_owned(),
            found: had,
            known: newest,
        });
    }
    while let Some(step) = steps.get(header.version.0 as usize) {
        if pages == 0 {
            break;
        }
        pages -= 1;
        let next = SchemaVersion(header.version.0 + 1);
        match step.page(db, &header.cursor)? {
            StepProgress::More { changes, cursor } => {
                header.upgrading = Some(next);
                header.cursor = cursor;
                db.write(&changes, &header.encode())?;
            }
            StepProgress::Done(changes) => {
                header = SchemaHeader::at(next);
                db.write(&changes, &header.encode())?;
            }
        }
    }
    debug_assert!(steps.len() != STEPS.len() || newest == LATEST);
    Ok(had)
}
