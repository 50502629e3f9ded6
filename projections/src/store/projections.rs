//! What all other code holds: the database in use, what is visible of it, and its waiters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::engine::db::{Database, DatabaseOptions, Family};
use crate::engine::error::StorageError;
use crate::engine::position::{self, Position};
use crate::engine::registry::Registry;
use crate::engine::scan::{Scan, ScanSource};
use crate::engine::unreadable;
use crate::engine::watch::{Watch, Written};
use crate::read::followed::{Followed, Followers, Notifies};
use crate::read::lists::{List, ListSnapshot, Listed, Lists};
use crate::read::view::{View, Visible};
use crate::store::load::load;
use crate::store::snapshot;
use crate::store::writer::Writer;
use crate::tables;

/// The projections of one server.
pub struct Projections {
    /// The database in use; the writer puts another in its place ([`Writer::switch`]).
    db: RwLock<Arc<Database>>,
    visible: RwLock<Arc<Visible>>,
    watch: Watch,
    registry: &'static Registry,
    options: DatabaseOptions,
    lists: Lists,
    followers: Followers,
    full: AtomicBool,
    /// Nanoseconds that apply waited for flushes.
    waited: AtomicU64,
    /// Flushes that were due while no thread could be had for one.
    threadless: AtomicU64,
}

/// Sizes and positions, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The last applied index.
    pub applied: u64,
    /// The index a crash would leave.
    pub flushed: u64,
    /// Bytes in the block cache, write buffers included.
    pub cache: u64,
    /// Bytes in write buffers.
    pub write_buffers: u64,
    /// Bytes of the files on disk.
    pub files: u64,
    /// Rows, roughly.
    pub rows: u64,
    /// Waiters registered.
    pub waiting: u64,
    /// Whether the database slows writes down: proposals are to be refused until it does not.
    pub stalled: bool,
    /// How long apply has waited for flushes, all in all: the disk does not keep up.
    pub waited: Duration,
    /// How often a flush was due and no thread could be had for it: it is tried again with the next
    /// batch.
    pub threadless: u64,
}

impl Projections {
    /// Opens the database at `path`, or makes an empty one, with drover's tables.
    pub fn open(
        path: impl AsRef<Path>,
        options: DatabaseOptions,
    ) -> Result<(Arc<Self>, Writer), StorageError> {
        Self::open_with(path.as_ref(), options, tables::registry())
    }

    pub(crate) fn open_with(
        path: &Path,
        options: DatabaseOptions,
        registry: &'static Registry,
    ) -> Result<(Arc<Self>, Writer), StorageError> {
        let db = Database::open(path, &options)?;
        snapshot::drop_partial(&db)?;
        let visible = Arc::new(load(&db, registry)?);
        let projections = Arc::new(Self {
            db: RwLock::new(db),
            visible: RwLock::new(Arc::clone(&visible)),
            watch: Watch::default(),
            registry,
            options,
            lists: Lists::default(),
            followers: Followers::default(),
            full: AtomicBool::new(false),
            waited: AtomicU64::new(0),
            threadless: AtomicU64::new(0),
        });
        projections
            .watch
            .notify(visible.position.index, &[], &Written::default());
        let writer = Writer::new(Arc::clone(&projections), &visible);
        Ok((projections, writer))
    }

    /// A consistent read at the applied index.
    pub fn view(&self) -> View {
        View {
            made: unreadable::made(),
            visible: self.visible(),
            past: None,
        }
    }

    /// The list as of now, if nothing is left to be read or rendered for it.
    pub fn list_if_ready<L: List>(&self) -> Option<ListSnapshot> {
        self.lists.ready::<L>(|| self.view())
    }

    /// The list as of now. This never waits for others that render it.
    pub fn list<L: List>(&self) -> Result<Listed, StorageError> {
        self.lists.list::<L>(&self.options, || self.view())
    }

    /// Follows the rows of some tables from now on.
    pub fn follow(&self, tables: &[u16]) -> Followed {
        self.followers.follow(tables)
    }

    /// The last applied index; 0 before the first.
    pub fn applied_index(&self) -> u64 {
        self.watch.applied()
    }

    /// Change notices.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The position a crash would leave: the log is needed from there on.
    pub fn flushed(&self) -> Result<Position, StorageError> {
        position::flushed(&self.database())
    }

    /// Writes everything applied to disk and waits for it; returns the flushed index. Any thread
    /// may call this.
    pub fn flush(&self) -> Result<u64, StorageError> {
        let db = self.database();
        db.flush(true)?;
        Ok(position::flushed(&db)?.index)
    }

    /// Ends what RocksDB does by itself, for good: nothing is written any more, and the end of the
    /// process waits for no compaction. Any thread may call this.
    pub fn stop_background_work(&self) {
        self.database().raw().cancel_all_background_work(true);
    }

    /// Whether the last batch found no space on the disk. The writer's owner applies it again until
    /// there is.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    pub(crate) fn note_wait(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn note_threadless(&self) {
        self.threadless.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads everything there is, with its checksums, and computes every table's digest again.
    ///
    /// # Errors
    /// The first block that is not what was written, with its file; a table whose rows do not give
    /// the digest that was kept.
    pub fn verify(&self) -> Result<(), StorageError> {
        let db = self.database();
        for family in Family::ALL {
            let mut walk = ScanSource::Live(&db).walk(family, Scan::all().absolute(&[]));
            while walk.advance()? {}
        }
        let view = self.view();
        for table in view.digests() {
            if view.digest_of_rows(table.table)? != table.digest {
                let table = table.name;
                return Err(StorageError::Digest { table });
            }
        }
        Ok(())
    }

    /// Leaves a mark by which the next start knows that what lies here cannot be trusted.
    pub fn mark_damaged(&self, why: &str) {
        self.database().mark_damage(why);
    }

    /// Makes a copy of the database at `path`, which must not exist; files are linked where the
    /// file system can.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<(), StorageError> {
        let db = self.database();
        rocksdb::checkpoint::Checkpoint::new(db.raw())
            .and_then(|checkpoint| checkpoint.create_checkpoint(path.as_ref()))
            .map_err(StorageError::database("make a checkpoint"))
    }

    /// Sizes and positions.
    pub fn stats(&self) -> Result<Stats, StorageError> {
        let db = self.database();
        let sum = |name: &str| {
            Family::ALL
                .map(|family| db.property(family, name))
                .iter()
                .sum()
        };
        Ok(Stats {
            applied: self.applied_index(),
            flushed: position::flushed(&db)?.index,
            cache: db.cache_usage() as u64,
            write_buffers: sum("rocksdb.cur-size-all-mem-tables"),
            files: sum("rocksdb.total-sst-files-size"),
            rows: db.property(Family::Rows, "rocksdb.estimate-num-keys"),
            waiting: self.watch.waiting() as u64,
            waited: Duration::from_nanos(self.waited.load(Ordering::Relaxed)),
            threadless: self.threadless.load(Ordering::Relaxed),
            stalled: db.property(Family::Rows, "rocksdb.is-write-stopped") > 0
                || db.property(Family::Rows, "rocksdb.actual-delayed-write-rate") > 0,
        })
    }

    pub(crate) fn visible(&self) -> Arc<Visible> {
        Arc::clone(&self.visible.read())
    }

    pub(crate) fn show(&self, visible: Visible) {
        *self.visible.write() = Arc::new(visible);
    }

    pub(crate) fn database(&self) -> Arc<Database> {
        Arc::clone(&self.db.read())
    }

    /// Puts another database in the place of the one in use; returns that one.
    pub(crate) fn put_database(&self, db: Arc<Database>) -> Arc<Database> {
        std::mem::replace(&mut *self.db.write(), db)
    }

    /// Where the files of the database in use lie.
    pub fn path(&self) -> PathBuf {
        self.database().raw().path().to_owned()
    }

    pub(crate) fn registry(&self) -> &'static Registry {
        self.registry
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.lists
    }

    pub(crate) fn followers(&self) -> &Followers {
        &self.followers
    }

    pub(crate) fn options(&self) -> &DatabaseOptions {
        &self.options
    }
}

impl Notifies for Projections {
    fn follow(&self, tables: &[u16]) -> Followed {
        self.followers.follow(tables)
    }
}
