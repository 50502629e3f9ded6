//! The state as files: what a Raft snapshot carries, and how a server takes one in.
//!
//! A snapshot is a directory of sorted table files (`rows`, `index`) and `manifest.json`, written
//! from one view. It holds every table, derived ones too, and nothing of the past: history, changes,
//! postings and outcomes are filled from the log. The reader computes every digest again before it
//! believes what it took in. A server that dies half-way opens empty and requests the snapshot
//! again.

use std::fs;
use std::io;
use std::path::Path;

use rocksdb::{IngestExternalFileOptions, SstFileWriter, WriteBatch};
use serde::{Deserialize, Serialize};

use crate::engine::db::{Database, Family};
use crate::engine::digest::Digest;
use crate::engine::error::StorageError;
use crate::engine::maintenance::HEADER;
use crate::engine::position::{self, Position};
use crate::engine::scan::{Scan, ScanSource};
use crate::engine::staged::{TableBatch, WriteEntries};
use crate::engine::unreadable;
use crate::read::view::View;
use crate::store::load::load;
use crate::store::projections::Projections;
use crate::store::writer::Writer;

const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const INSTALLING: &[u8] = b"installing";
/// The families a snapshot holds.
const FAMILIES: [Family; 2] = [Family::Rows, Family::Index];
/// After how many bytes of a file it is looked whether there is space for as many more.
const STEP: u64 = 8 << 20;

/// Whether so many more bytes may be written.
pub type SpaceCheck<'a> = &'a dyn Fn(u64) -> io::Result<()>;

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Manifest {
    /// The layout of these files.
    pub format: u32,
    /// The applied index.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
    /// The index of the last membership entry.
    pub membership: u64,
    /// Every table, by number.
    pub tables: Vec<TableManifest>,
    /// The files beside the manifest.
    pub files: Vec<FileManifest>,
}

/// A table of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TableManifest {
    /// Its `Table::ID`.
    #[serde(rename = "ID")]
    pub id: u16,
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// Its digest, in hexadecimal.
    pub digest: String,
}

/// A file of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FileManifest {
    /// The file's name in the directory.
    pub name: String,
    /// The family it belongs to.
    pub family: String,
    /// Bytes.
    pub size: u64,
}

impl Manifest {
    /// Writes the manifest beside its files.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn put(&self, dir: &Path) -> Result<(), StorageError> {
        let path = dir.join(MANIFEST);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| StorageError::Snapshot(error.to_string()))?;
        fs::write(&path, text).map_err(file_error("write", &path))
    }
}

impl View {
    /// Writes the state into `dir`, which is made if need be, as files of at most about
    /// `file_size` bytes each, as long as there is space: `fits` is called before each file, and
    /// again and again while it is written.
    ///
    /// # Errors
    /// What `fits` answers, as that of a file that cannot be written.
    pub fn write_snapshot(
        &self,
        dir: &Path,
        file_size: u64,
        fits: SpaceCheck<'_>,
    ) -> Result<Manifest, StorageError> {
        fs::create_dir_all(dir).map_err(file_error("create", dir))?;
        let position = self.position();
        let mut manifest = Manifest {
            format: FORMAT,
            index: position.index,
            term: position.term,
            time: position.time,
            membership: position.membership,
            ..Manifest::default()
        };
        for table in self.digests() {
            manifest.tables.push(TableManifest {
                id: table.table,
                name: table.name.to_owned(),
                rows: 0,
                digest: table.digest.to_hex(),
            });
        }
        for family in FAMILIES {
            self.write_family((dir, fits), family, file_size, &mut manifest)?;
        }
        manifest.put(dir)?;
        Ok(manifest)
    }

    fn write_family(
        &self,
        (dir, fits): (&Path, SpaceCheck<'_>),
        family: Family,
        file_size: u64,
        manifest: &mut Manifest,
    ) -> Result<(), StorageError> {
        let source = ScanSource::Snapshot(&self.visible.db_snapshot);
        let mut walk = source.walk(family, Scan::all().absolute(&[]));
        let mut more = walk.advance()?;
        while more {
            let name = format!("{}-{:05}.sst", family.name(), manifest.files.len());
            let path = dir.join(&name);
            let step = STEP.min(file_size);
            let mut granted = step;
            fits(step).map_err(file_error("write", &path))?;
            let options = self.visible.db_snapshot.database().file_options(family);
            let mut file = SstFileWriter::create(&options);
            let failed = StorageError::database("write a snapshot");
            let mut write = || -> Result<Result<(), rocksdb::Error>, StorageError> {
                if let Err(error) = file.open(&path) {
                    return Ok(Err(error));
                }
                while more && file.file_size() < file_size {
                    if let Err(error) = file.put(walk.key(), walk.value()) {
                        return Ok(Err(error));
                    }
                    if family == Family::Rows {
                        count_row(manifest, walk.key());
                    }
                    more = walk.advance()?;
                    if file.file_size() > granted {
                        granted = file.file_size() + step;
                        fits(step).map_err(file_error("write", &path))?;
                    }
                }
                Ok(file.finish())
            };
            write()?.map_err(failed)?;
            let size = fs::metadata(&path)
                .map_err(file_error("read", &path))?
                .len();
            manifest.files.push(FileManifest {
                name,
                family: family.name().to_owned(),
                size,
            });
        }
        Ok(())
    }
}

fn count_row(manifest: &mut Manifest, key: &[u8]) {
    let Some(number) = key.first_chunk::<2>() else {
        return;
    };
    let number = u16::from_be_bytes(*number);
    if let Some(table) = manifest.tables.iter_mut().find(|table| table.id == number) {
        table.rows += 1;
    }
}

/// Bytes in memory that count in any case.
const IN_MEMORY: u64 = 16 << 20;

impl Projections {
    /// Bytes of the files that [`View::write_snapshot`] would write now, roughly. What is in memory
    /// only may be the same rows again and again: little more of it counts than there is in files.
    pub fn snapshot_bytes(&self) -> u64 {
        let db = self.database();
        let bytes = |family| {
            let in_files = db.property(family, "rocksdb.live-sst-files-size");
            let in_memory = db.property(family, "rocksdb.cur-size-all-mem-tables");
            in_files + in_memory.min(in_files + IN_MEMORY)
        };
        FAMILIES.map(bytes).iter().sum()
    }
}

/// Reads a snapshot's manifest.
pub fn read_manifest(dir: &Path) -> Result<Manifest, StorageError> {
    let path = dir.join(MANIFEST);
    let text = fs::read(&path).map_err(file_error("read", &path))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|source| StorageError::Manifest { path, source })?;
    if manifest.format != FORMAT {
        let found = manifest.format;
        return Err(StorageError::Snapshot(format!("its format is {found}")));
    }
    Ok(manifest)
}

impl Writer {
    /// Replaces everything by the snapshot in `dir`; its past is gone until it is filled from the
    /// log. The files are copied, not moved.
    ///
    /// # Errors
    /// A snapshot with a wrong digest, an unknown table or a damaged file is refused; what was here
    /// before is gone then if files had been taken in, and the database opens empty. A table that
    /// it does not name is younger than it, and has no rows.
    pub fn install(&mut self, dir: &Path) -> Result<Position, StorageError> {
        let manifest = read_manifest(dir)?;
        let projections = std::sync::Arc::clone(self.projections());
        let registry = projections.registry();
        let known = |id: u16| registry.tables().any(|table| table.id() == id);
        if let Some(table) = manifest.tables.iter().find(|table| !known(table.id)) {
            let (id, name) = (table.id, &table.name);
            return Err(StorageError::Snapshot(format!(
                "its table {name} ({id}) is not known here"
            )));
        }
        let db = projections.database();
        clear(&db, true)?;
        for family in FAMILIES {
            let files: Vec<_> = manifest
                .files
                .iter()
                .filter(|file| file.family == family.name())
                .map(|file| dir.join(&file.name))
                .collect();
            if !files.is_empty() {
                let mut options = IngestExternalFileOptions::default();
                options.set_move_files(false);
                db.raw()
                    .ingest_external_file_cf_opts(db.family(family), &options, files)
                    .map_err(StorageError::database("take in a snapshot"))?;
            }
        }
        let mut digests = crate::engine::digest::Sums::default();
        let taken = View {
            made: unreadable::made(),
            visible: std::sync::Arc::new(load(&db, registry)?),
            past: None,
        };
        let none = Digest::default().to_hex();
        for table in registry.tables() {
            let digest: Digest = taken.digest_of_rows(table.id())?;
            let listed = manifest.tables.iter().find(|one| one.id == table.id());
            if digest.to_hex() != *listed.map_or(&none, |listed| &listed.digest) {
                return Err(StorageError::Digest {
                    table: table.name(),
                });
            }
            *digests.of(table.id()) = digest;
        }
        // Indexes have no digest, but every block has a checksum.
        let mut walk = ScanSource::Live(&db).walk(Family::Index, Scan::all().absolute(&[]));
        while walk.advance()? {}
        let position = Position {
            index: manifest.index,
            term: manifest.term,
            time: manifest.time,
            membership: manifest.membership,
            begun: true,
            floor: manifest.index,
        };
        let mut batch = TableBatch::new(&db);
        position::put_position(&mut batch, &position, &digests);
        position::put_floor(&mut batch, position.floor);
        batch.delete(Family::Meta, INSTALLING);
        batch.write()?;
        db.flush(true)?;
        self.restart()?;
        unreadable::made_again();
        Ok(position)
    }
}

/// Deletes everything but the schema's header; `installing` stays behind as a mark that what
/// follows is not complete.
fn clear(db: &Database, installing: bool) -> Result<(), StorageError> {
    let header = db.get(Family::Meta, HEADER)?.map(|value| value.to_vec());
    let mut batch = WriteBatch::default();
    for family in Family::ALL {
        batch.delete_range_cf(db.family(family), &[][..], &[0xff; 128][..]);
    }
    if let Some(header) = header {
        batch.put_cf(db.family(Family::Meta), HEADER, header);
    }
    if installing {
        batch.put_cf(db.family(Family::Meta), INSTALLING, [1]);
    }
    db.write(batch)?;
    db.flush(true)
}

/// Empties a database whose last snapshot was not taken in completely.
pub(crate) fn drop_partial(db: &Database) -> Result<(), StorageError> {
    if db.get(Family::Meta, INSTALLING)?.is_some() {
        clear(db, false)?;
    }
    Ok(())
}

pub(crate) fn file_error(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::File {
        doing,
        path,
        source,
    }
}
