//! The fold: the same apply, but each row is written once per generation, as sorted files.
//!
//! A write batch pays for every row version: the write buffer, the flush, the compactions. A fold
//! holds what it writes ([`Staged`]) until a *generation* is full, writes it sorted into files, and
//! lets the database take the files in. What comes of it equals, entry by entry, what batches give.
//!
//! **A crash.** The files lie in `staging` inside the database. Once all of them are synced, a
//! manifest names them; from then on the generation is part of the database, no matter which
//! process takes it in. The file with the position is taken in last. Without a manifest the files
//! are nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_events::Recorded;
use rocksdb::{IngestExternalFileOptions, SstFileWriter};
use serde::{Deserialize, Serialize};

use super::{DIGEST_EVERY, GuardedEntry, Writer};
use crate::engine::db::{Database, Family};
use crate::engine::digest::TableDigest;
use crate::engine::error::StorageError;
use crate::engine::position::{Position, put_position};
use crate::engine::scan::ScanSource;
use crate::engine::staged::{self, PutEntries, Staged, StagedOverlay};
use crate::engine::watch::Written;
use crate::store::projections::Projections;
use crate::store::snapshot::{FileManifest, file_error};

/// Bytes after which a file ends, as they are on disk.
const FILE_BYTES: u64 = 64 << 20;
const STAGING: &str = "staging";
const MANIFEST: &str = "generation.json";
/// The families, in the order in which the database takes them in: the position last.
const ORDER: [Family; 7] = [
    Family::History,
    Family::Changes,
    Family::Postings,
    Family::Digests,
    Family::Index,
    Family::Rows,
    Family::Meta,
];

/// The files of a generation, in the order in which they are taken in.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Generation {
    files: Vec<FileManifest>,
}

/// A writer that folds: for filling a database that has no reader meanwhile.
pub struct Fold {
    writer: Writer,
    db: Arc<Database>,
    staged: Staged,
    changed: Vec<u16>,
    /// Bytes of rows whose batch is not written yet, roughly: one that is written often counts
    /// often.
    unsettled: usize,
    limit: usize,
    staging: PathBuf,
    generations: u64,
    /// Whether what apply never reads is left out.
    rows_only: bool,
    /// Whether an error left half of an event behind: what is staged is then never written.
    broken: bool,
}

impl Writer {
    /// Continues as a fold that holds about `limit` bytes at most. What a fold that was killed had
    /// finished is taken in first.
    ///
    /// # Errors
    /// The database or the file system fails.
    pub fn fold(mut self, limit: usize) -> Result<Fold, StorageError> {
        let db = self.projections.database();
        let staging = db.raw().path().join(STAGING);
        if staging.join(MANIFEST).exists() {
            take_in(&db, &staging)?;
            self.restart()?;
        }
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_error("remove", &staging)(error));
            }
            _ => {}
        }
        fs::create_dir(&staging).map_err(file_error("create", &staging))?;
        let mut staged = Staged::default();
        staged.rows.database_is_empty = !self.position.begun;
        Ok(Fold {
            writer: self,
            db,
            staged,
            changed: Vec::new(),
            unsettled: 0,
            // The sizes of a generation's runs are kept in 32 bits.
            limit: limit.clamp(1, 1 << 30),
            staging,
            generations: 0,
            rows_only: false,
            broken: false,
        })
    }
}

impl Fold {
    /// Leaves out history, changes, postings and outcomes: for a caller that needs digests alone.
    #[must_use]
    pub fn rows_only(mut self) -> Self {
        self.rows_only = true;
        self
    }

    /// Applies entries in the order of the log, and commits when enough is staged. After an error
    /// the fold is to be dropped; what was committed stays.
    ///
    /// # Errors
    /// As [`Writer::apply`].
    pub fn apply(&mut self, entries: &[Recorded]) -> Result<(), StorageError> {
        self.apply_all(entries)
    }

    pub(crate) fn apply_all<E: GuardedEntry>(&mut self, entries: &[E]) -> Result<(), StorageError> {
        let result = entries.iter().try_for_each(|entry| self.one(entry));
        self.broken |= result.is_err();
        result
    }

    fn one<E: GuardedEntry>(&mut self, entry: &E) -> Result<(), StorageError> {
        let Staged { rows, write_only } = &mut self.staged;
        let below = StagedOverlay {
            source: ScanSource::Live(&self.db),
            staged: Some(rows),
        };
        let ctx = self.writer.advance(entry)?;
        let out: &mut dyn PutEntries = match self.rows_only {
            true => &mut Nothing,
            false => write_only,
        };
        self.writer
            .apply_entry(entry, &ctx, (below, out), &mut self.changed)?;
        self.unsettled += self.writer.weigh_touched()?;
        self.writer.touched.clear();
        // Digests are kept at some indexes only; how much is staged is looked at each time.
        let full = self.staged.bytes().saturating_add(self.unsettled) >= self.limit;
        if full || ctx.index.is_multiple_of(DIGEST_EVERY) {
            self.write_up_to_position()?;
            if self.staged.bytes() >= self.limit {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Brings rows, indexes and digests to the position.
    fn write_up_to_position(&mut self) -> Result<(), StorageError> {
        let mut changed = std::mem::take(&mut self.changed);
        let below = StagedOverlay {
            source: ScanSource::Live(&self.db),
            staged: Some(&self.staged.rows),
        };
        self.writer.write_table_indexes(below, &mut changed)?;
        self.writer.write_staged(&mut self.staged, &changed)?;
        changed.clear();
        self.changed = changed;
        self.unsettled = 0;
        Ok(())
    }

    /// The digests of all tables where the fold stands.
    ///
    /// # Errors
    /// Those of the database.
    pub fn digests(&mut self) -> Result<Vec<TableDigest>, StorageError> {
        self.write_up_to_position()?;
        let tables = self.writer.projections.registry().tables();
        let digests = tables.map(|table| TableDigest {
            table: table.id(),
            name: table.name(),
            digest: self.writer.digests.get(table.id()),
        });
        Ok(digests.collect())
    }

    /// Where the fold stands; what is not committed yet is counted.
    pub fn position(&self) -> Position {
        self.writer.position
    }

    /// The index a crash would leave; none before the first commit of a new database.
    pub fn committed(&self) -> Option<u64> {
        let position = self.writer.projections.visible().position;
        position.begun.then_some(position.index)
    }

    /// Puts everything staged into the database, on disk.
    ///
    /// # Errors
    /// The database or the file system fails: the database is as it was, or what was to be taken
    /// in is taken in by the next [`Writer::fold`].
    pub fn commit(&mut self) -> Result<(), StorageError> {
        let position = self.writer.position;
        if self.broken || !position.begun || self.committed() == Some(position.index) {
            return Ok(());
        }
        self.broken = true;
        self.write_up_to_position()?;
        put_position(
            &mut self.staged.write_only,
            &self.writer.position,
            &self.writer.digests,
        );
        self.generations += 1;
        let files = self.write_files()?;
        write_manifest(&self.staging, &Generation { files })?;
        take_in(&self.db, &self.staging)?;
        self.staged = Staged::default();
        self.writer.projections.lists().forget();
        self.writer
            .publish(&Arc::clone(&self.db), &[], &Written::default());
        self.broken = false;
        Ok(())
    }

    /// Writes a generation's files: what apply reads on this thread, the rest on another.
    fn write_files(&self) -> Result<Vec<FileManifest>, StorageError> {
        let (db, staging, generation) = (&*self.db, &*self.staging, self.generations);
        let Staged {
            rows: staged_rows,
            write_only,
        } = &self.staged;
        let files = |family, entries: &mut dyn Iterator<Item = staged::StagedEntry<'_>>| {
            write_family(db, (family, entries), staging, generation)
        };
        let rest = || -> Result<Vec<Vec<FileManifest>>, StorageError> {
            Ok(vec![
                files(Family::History, &mut write_only.history.sorted())?,
                files(Family::Changes, &mut write_only.changes.sorted())?,
                files(Family::Postings, &mut write_only.postings.sorted())?,
                files(Family::Digests, &mut write_only.digests.sorted())?,
                files(Family::Meta, &mut write_only.meta.sorted())?,
            ])
        };
        let (rest, rows) = std::thread::scope(|scope| {
            let rest = scope.spawn(rest);
            let rows = [Family::Index, Family::Rows]
                .into_iter()
                .map(|family| files(family, &mut staged_rows.entries(family)))
                .collect::<Result<Vec<_>, _>>();
            // A panic over there is one here too.
            (rest.join(), rows)
        });
        let rest = rest.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut all: Vec<_> = rest.into_iter().chain(rows?).flatten().collect();
        all.sort_by_key(|file| ORDER.iter().position(|family| family.name() == file.family));
        Ok(all)
    }

    /// Commits, and returns a writer that continues in batches. After an error it continues behind
    /// what was committed.
    ///
    /// # Errors
    /// As [`Fold::commit`].
    pub fn finish(mut self) -> Result<Writer, StorageError> {
        self.commit()?;
        fs::remove_dir_all(&self.staging).map_err(file_error("remove", &self.staging))?;
        let mut writer = self.writer;
        if self.broken {
            writer.restart()?;
        }
        writer.flush_at = writer.position.index;
        writer.flushed = writer.position.index;
        Ok(writer)
    }

    /// The projections that are filled; they show what was committed.
    pub fn projections(&self) -> &Arc<Projections> {
        self.writer.projections()
    }
}

/// Takes entries that are never read.
struct Nothing;

impl PutEntries for Nothing {
    fn put(&mut self, _: Family, _: &[u8], _: &[u8]) {}
}

/// Writes the entries of a family into files of a bounded size.
fn write_family(
    db: &Database,
    (family, entries): (Family, &mut dyn Iterator<Item = staged::StagedEntry<'_>>),
    dir: &Path,
    generation: u64,
) -> Result<Vec<FileManifest>, StorageError> {
    let options = db.file_options(family);
    let failed = StorageError::database("write a generation");
    let mut files: Vec<FileManifest> = Vec::new();
    let write = || -> Result<(), rocksdb::Error> {
        let mut file: Option<SstFileWriter<'_>> = None;
        for (key, value) in entries {
            let open = match &mut file {
                Some(open) => open,
                None => {
                    let name = format!("{generation:06}-{}-{:03}.sst", family.name(), files.len());
                    let new = SstFileWriter::create(&options);
                    new.open(dir.join(&name))?;
                    files.push(FileManifest {
                        name,
                        family: family.name().to_owned(),
                        size: 0,
                    });
                    file.insert(new)
                }
            };
            match value {
                Some(value) => open.put(key, value)?,
                None => open.delete(key)?,
            }
            if open.file_size() >= FILE_BYTES
                && let Some(mut full) = file.take()
            {
                full.finish()?;
            }
        }
        file.map_or(Ok(()), |mut last| last.finish())
    };
    write().map_err(failed)?;
    Ok(files)
}

/// Names the files of a finished generation: from here on it counts.
fn write_manifest(staging: &Path, generation: &Generation) -> Result<(), StorageError> {
    let path = staging.join(MANIFEST);
    let text = serde_json::to_vec_pretty(generation)
        .map_err(|error| StorageError::Snapshot(error.to_string()))?;
    let new = staging.join("generation.new");
    fs::write(&new, text).map_err(file_error("write", &new))?;
    for file in [new.as_path(), staging] {
        sync(file)?;
    }
    fs::rename(&new, &path).map_err(file_error("write", &path))?;
    sync(staging)
}

fn sync(path: &Path) -> Result<(), StorageError> {
    fs::File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(file_error("sync", path))
}

/// Lets the database take in the files of a finished generation that it does not have yet. A file
/// that is gone is in the database already; one that is taken in twice changes nothing.
fn take_in(db: &Database, staging: &Path) -> Result<(), StorageError> {
    let manifest = staging.join(MANIFEST);
    let text = fs::read(&manifest).map_err(file_error("read", &manifest))?;
    let generation: Generation =
        serde_json::from_slice(&text).map_err(|source| StorageError::Manifest {
            path: manifest.clone(),
            source,
        })?;
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    for family in ORDER {
        let of_family = |file: &&FileManifest| file.family == family.name();
        let files = generation.files.iter().filter(of_family);
        let paths = files.map(|file| staging.join(&file.name));
        let left: Vec<PathBuf> = paths.filter(|path| path.exists()).collect();
        if !left.is_empty() {
            db.raw()
                .ingest_external_file_cf_opts(db.family(family), &options, left)
                .map_err(db.failed("take in a generation"))?;
        }
    }
    fs::remove_file(&manifest).map_err(file_error("remove", &manifest))
}

#[cfg(test)]
#[path = "fold_test.rs"]
mod tests;
