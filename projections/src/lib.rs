//! drover-projections: everything derived from the log.
//!
//! **What it is.** One RocksDB database per server, filled by *apply* alone: `state` rows with their
//! secondary indexes, and beside them `history`, `changes`, `postings`, `outcomes` and `digests`.
//! Whatever it holds can be thrown away and built again from the log.
//!
//! **How it is written.** [`Projections::open`] gives one [`Writer`]; whoever holds that token is the
//! only writer. It takes decoded events in the order of the log, checks each one's guards, runs its
//! apply function in a [`Txn`] that sees everything before it, and writes what came of it with the
//! applied index in one batch. Then it becomes visible, and waiters are woken ([`Watch`]). A
//! [`Fold`] is the same writer for filling a whole database: it writes each row once, sorted.
//!
//! **How it is read.** [`Projections::view`] gives a [`View`]: a consistent read at one applied
//! index, cheap to take, held two seconds at most. A query that both sides need is written over
//! [`Read`].
//!
//! **What it must not know.** No Raft, no network, no clock, no randomness, no threads: the same log
//! gives the same bytes on every server, however it is cut into batches. Old events are upcast
//! before they come here.
//!
//! **Invariants.** The stored position, rows, indexes and digests belong to one index, also after a
//! crash (no log of RocksDB's own, atomic flush). A refused event leaves nothing but its outcome
//! (EV-20). An index entry exists exactly if its row yields it (EV-17). Encodings of keys
//! ([`key`]), rows ([`canonical`]), digests ([`digest`]) and the tables' numbers ([`tables`]) are
//! for ever.
//!
//! Start reading at [`table`], then [`txn`] and [`writer`].
#![deny(missing_docs)]

pub mod apply;
mod engine;
mod past;
pub mod query;
mod read;
mod store;
pub mod tables;

pub use drover_filter as filter;

pub use engine::{
    canonical, digest, error, key, maintenance, outcome, scan, serving, table, txn, watch,
};
pub use past::{changes, history};
pub use read::{change_cursor, followed, inspect, lists, page, trail, view};
pub use store::{snapshot, writer};
pub use tables::claims;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

pub use change_cursor::ChangeCursor;
pub use changes::{Change, Operation};
pub use digest::{Digest, TableDigest};
pub use engine::at_hand::at_hand;
pub use engine::db::{Options, damage_mark};
pub use error::{StorageError, hex, unhex};
pub use followed::{ChangedRow, Follow, Followed};
pub use history::Version;
pub use inspect::{Difference, TableSize};
pub use key::{AsKey, Id, Key};
pub use lists::{List, ListSnapshot};
pub use outcome::{Applied, Outcome, Refused, Rejection, Reply, VarOutcome};
pub use past::prune::Pruned;
pub use read::kept::{Kept, kept_outcomes};
pub use scan::{Prefix, Scan};
pub use store::switch::{Former, Unswitched};
pub use table::{Entries, History, Index, IndexDef, StreamKey, Table};
pub use tables::Registry;
pub use txn::{Ctx, Read, Txn};
pub use view::{Cursor, EntryRef, IndexCursor, Position, RowRef, View};
pub use watch::{Interest, Waiter, Watch};
pub use writer::{DIGEST_EVERY, Fold, Writer};

use engine::db::{Database, Family};
use view::Visible;
use watch::Written;

/// The projections of one server.
pub struct Projections {
    /// The database in use; the writer puts another in its place ([`Writer::switch`]).
    db: RwLock<Arc<Database>>,
    visible: RwLock<Arc<Visible>>,
    watch: Watch,
    registry: &'static Registry,
    options: Options,
    lists: lists::Lists,
    followers: followed::Followers,
    full: AtomicBool,
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
}

impl Projections {
    /// Opens the database at `path`, or makes an empty one, with drover's tables.
    pub fn open(
        path: impl AsRef<Path>,
        options: Options,
    ) -> Result<(Arc<Self>, Writer), StorageError> {
        Self::open_with(path.as_ref(), options, tables::registry())
    }

    pub(crate) fn open_with(
        path: &Path,
        options: Options,
        registry: &'static Registry,
    ) -> Result<(Arc<Self>, Writer), StorageError> {
        let db = Database::open(path, &options)?;
        snapshot::drop_partial(&db)?;
        let visible = Arc::new(writer::load(&db, registry)?);
        let projections = Arc::new(Self {
            db: RwLock::new(db),
            visible: RwLock::new(Arc::clone(&visible)),
            watch: Watch::default(),
            registry,
            options,
            lists: lists::Lists::default(),
            followers: followed::Followers::default(),
            full: AtomicBool::new(false),
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
            visible: self.visible(),
            past: None,
        }
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
        writer::flushed(&self.database())
    }

    /// Writes everything applied to disk and waits for it; answers the flushed index. Any thread
    /// may call this.
    pub fn flush(&self) -> Result<u64, StorageError> {
        let db = self.database();
        db.flush(true)?;
        Ok(writer::flushed(&db)?.index)
    }

    /// Ends what RocksDB does by itself, for good: nothing is written any more, and the end of the
    /// process waits for no compaction. Any thread may call this.
    pub fn settle(&self) {
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

    /// Reads everything there is, with its checksums, and computes every table's digest again.
    ///
    /// # Errors
    /// The first block that is not what was written, with its file; a table whose rows do not give
    /// the digest that was kept.
    pub fn verify(&self) -> Result<(), StorageError> {
        let db = self.database();
        for family in Family::ALL {
            let mut walk = scan::Source::Live(&db).walk(family, Scan::all().absolute(&[]));
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
            flushed: writer::flushed(&db)?.index,
            cache: db.cache_usage() as u64,
            write_buffers: sum("rocksdb.cur-size-all-mem-tables"),
            files: sum("rocksdb.total-sst-files-size"),
            rows: db.property(Family::Rows, "rocksdb.estimate-num-keys"),
            waiting: self.watch.waiting() as u64,
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

    /// Puts another database in the place of the one in use; answers that one.
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

    pub(crate) fn lists(&self) -> &lists::Lists {
        &self.lists
    }

    pub(crate) fn followers(&self) -> &followed::Followers {
        &self.followers
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }
}
