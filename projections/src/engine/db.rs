//! The database itself: seven column families, tuned small, without RocksDB's own log.
//!
//! The event log is the write-ahead log; `atomic_flush` keeps the families at one index, and the
//! applied index is written in the batch it explains.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableSlice, DBRawIterator, FlushOptions, ReadOptions, ReadTier, Snapshot, WriteBatch,
    WriteBufferManager, WriteOptions,
};

use crate::engine::error::StorageError;
use crate::engine::serving;
use crate::engine::{at_exit, at_hand};

/// The column families; their names are for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// table (u16 BE) ‖ key → the row.
    Rows,
    /// table (u16 BE) ‖ index (u8) ‖ group ‖ order ‖ key → birth (varint).
    Index,
    /// Ended versions of rows and dead index entries.
    History,
    /// index (u64 BE) → what the event changed.
    Changes,
    /// topic ‖ namespace ‖ key ‖ index → nothing.
    Postings,
    /// index (u64 BE) → the digests of all tables.
    Digests,
    /// The applied position, outcomes, the schema.
    Meta,
}

impl Family {
    pub(crate) const ALL: [Self; 7] = [
        Self::Rows,
        Self::Index,
        Self::History,
        Self::Changes,
        Self::Postings,
        Self::Digests,
        Self::Meta,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Index => "index",
            Self::History => "history",
            Self::Changes => "changes",
            Self::Postings => "postings",
            Self::Digests => "digests",
            Self::Meta => "meta",
        }
    }
}

/// How much the projections may use. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Cache of blocks, filters and indexes; write buffers are charged to it.
    pub block_cache: usize,
    /// All write buffers together.
    pub write_buffers: usize,
    /// Files kept open.
    pub max_open_files: i32,
    /// Threads for flushes and compactions.
    pub background_jobs: i32,
    /// Entries between the applied and the flushed index before a flush is started.
    pub flush_every: u64,
    /// Entries that may be lost to a crash and applied again: apply waits for a flush before there
    /// are more. Above [`DIGEST_EVERY`](crate::DIGEST_EVERY).
    pub max_unflushed: u64,
    /// How long a batch waits for that at most. The log has what is not flushed, so a disk that
    /// takes longer slows apply down, and never holds it.
    pub flush_wait: Duration,
    /// Rows written between two flushes, roughly: what a crash costs is to apply them again.
    pub flush_rows: usize,
    /// Bytes written between two flushes, roughly.
    pub flush_bytes: usize,
    /// Bytes of decoded rows the writer keeps from one batch to the next, of all tables together.
    pub kept_bytes: usize,
    /// Bytes of rendered rows kept ready, per list.
    pub list_bytes: usize,
    /// For how many indexes a list that was larger than that is taken to be so.
    pub list_again: u64,
    /// Indexes from one set of live keys to the next ([`Projections::build_due_live_sets`]); above
    /// 0.
    ///
    /// [`Projections::build_due_live_sets`]: crate::Projections::build_due_live_sets
    pub mark_interval: u64,
}

/// How long a flush waits before it is requested again where writes stand still.
const STALLED: Duration = Duration::from_millis(5);
/// [`DatabaseOptions::flush_wait`] of every agent.
const FLUSH_WAIT: Duration = Duration::from_secs(1);
/// [`DatabaseOptions::list_again`] of a server: rendering a list to see that it is too large takes
/// long.
const LIST_AGAIN: u64 = 10_000;
/// [`DatabaseOptions::mark_interval`] of a server.
const MARK_INTERVAL: u64 = 65_536;

impl DatabaseOptions {
    /// A server's sizes.
    pub fn server() -> Self {
        Self {
            block_cache: 96 << 20,
            write_buffers: 64 << 20,
            max_open_files: 512,
            background_jobs: 2,
            flush_every: 16_000,
            max_unflushed: 50_000,
            flush_wait: FLUSH_WAIT,
            flush_rows: 100_000,
            flush_bytes: 24 << 20,
            kept_bytes: 32 << 20,
            list_bytes: 32 << 20,
            list_again: LIST_AGAIN,
            mark_interval: MARK_INTERVAL,
        }
    }

    /// A development agent's sizes: everything in little memory.
    pub fn dev() -> Self {
        Self {
            block_cache: 8 << 20,
            write_buffers: 6 << 20,
            max_open_files: 128,
            background_jobs: 2,
            flush_every: 16_000,
            max_unflushed: 50_000,
            flush_wait: FLUSH_WAIT,
            flush_rows: 100_000,
            flush_bytes: 3 << 20,
            kept_bytes: 12 << 20,
            list_bytes: 4 << 20,
            list_again: LIST_AGAIN,
            mark_interval: MARK_INTERVAL,
        }
    }

    fn database(&self) -> rocksdb::Options {
        let mut options = options();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_atomic_flush(true);
        options.set_max_open_files(self.max_open_files);
        options.set_max_background_jobs(self.background_jobs);
        options.set_max_file_opening_threads(2);
        options.set_keep_log_file_num(3);
        options.set_max_log_file_size(4 << 20);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_skip_stats_update_on_db_open(true);
        options.set_allow_concurrent_memtable_write(false);
        options.set_bytes_per_sync(1 << 20);
        options
    }

    /// The family RocksDB insists on, which nothing is written to. Left to itself it would bring
    /// a cache of its own, and after a full disk wait for as much space as its write buffer has.
    fn unused(cache: &Cache) -> rocksdb::Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        let mut options = rocksdb::Options::default();
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(64 << 10);
        options
    }

    fn family(&self, family: Family, cache: &Cache) -> rocksdb::Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(16 << 10);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_format_version(5);
        if matches!(family, Family::Rows) {
            table.set_ribbon_filter(10.0);
        }
        let mut options = rocksdb::Options::default();
        options.set_block_based_table_factory(&table);
        let buffer = match family {
            // More than is written between two flushes: RocksDB begins none of its own beside them.
            Family::Rows => self.write_buffers / 2,
            Family::Index | Family::History => self.write_buffers / 3,
            _ => self.write_buffers / 6,
        };
        options.set_write_buffer_size(buffer.max(1 << 20));
        options.set_max_write_buffer_number(3);
        // Most reads of apply are for rows that are not there yet.
        options.set_memtable_prefix_bloom_ratio(0.1);
        options.set_memtable_whole_key_filtering(matches!(family, Family::Rows));
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_bottommost_compression_type(match family {
            Family::History | Family::Changes => DBCompressionType::Zstd,
            _ => DBCompressionType::Lz4,
        });
        options
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self::server()
    }
}

/// An open database.
pub(crate) struct Database {
    /// By the families' numbers: to look them up by name with every read and write takes longer
    /// than some reads.
    families: [&'static ColumnFamily; Family::ALL.len()],
    db: DB,
    cache: Cache,
    options: DatabaseOptions,
    damage: PathBuf,
}

/// The file beside a database that says that it is damaged, and how.
pub fn damage_mark(database: &Path) -> PathBuf {
    database.with_extension("damaged")
}

/// A forward or backward walk over one family.
pub(crate) type RawCursor<'a> = DBRawIterator<'a>;

/// Options to open a database with; whoever opens one has them from here, for with them the process
/// may end under threads that use it.
pub(crate) fn options() -> rocksdb::Options {
    let options = rocksdb::Options::default();
    at_exit::skip_destructors();
    options
}

impl Database {
    pub(crate) fn open(path: &Path, options: &DatabaseOptions) -> Result<Arc<Self>, StorageError> {
        let cache = Cache::new_lru_cache(options.block_cache);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            options.write_buffers,
            false,
            cache.clone(),
        );
        let mut whole = options.database();
        whole.set_write_buffer_manager(&buffers);
        // Replaces a factory that has a cache of its own.
        let mut table = BlockBasedOptions::default();
        table.disable_cache();
        whole.set_block_based_table_factory(&table);
        let families = Family::ALL.map(|family| {
            ColumnFamilyDescriptor::new(family.name(), options.family(family, &cache))
        });
        let unused = ColumnFamilyDescriptor::new("default", DatabaseOptions::unused(&cache));
        let families = families.into_iter().chain([unused]);
        let db = DB::open_cf_descriptors(&whole, path, families).map_err(|source| {
            StorageError::Open {
                path: path.to_owned(),
                source,
            }
        })?;
        let damage = damage_mark(path);
        let families = handles(&db);
        Ok(Arc::new(Self {
            families,
            db,
            cache,
            options: options.clone(),
            damage,
        }))
    }

    /// Wraps an error of RocksDB. What says that stored bytes are not what was written leaves a
    /// mark beside the database, for the process that opens it next.
    pub(crate) fn failed(
        &self,
        doing: &'static str,
    ) -> impl FnOnce(rocksdb::Error) -> StorageError + '_ {
        move |source| match source.kind() {
            rocksdb::ErrorKind::Incomplete if at_hand::only() => at_hand::missed(),
            kind => {
                if kind == rocksdb::ErrorKind::Corruption {
                    self.mark_damage(source.as_ref());
                }
                StorageError::Database { doing, source }
            }
        }
    }

    /// Leaves a mark by which the next start knows that what lies here cannot be trusted.
    pub(crate) fn mark_damage(&self, why: &str) {
        // If even this fails, the next reader of that place finds it again.
        let _ = std::fs::write(&self.damage, why);
    }

    pub(crate) fn raw(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.families[family as usize]
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        self.db
            .get_pinned_cf(self.family(family), key)
            .map_err(self.failed("read"))
    }

    /// What survives a crash: the value as of the last completed flush.
    pub(crate) fn get_flushed(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        self.db
            .get_cf_opt(self.family(family), key, &options)
            .map_err(self.failed("read"))
    }

    pub(crate) fn cursor(&self, family: Family, upper: Option<&[u8]>) -> RawCursor<'_> {
        self.db
            .raw_iterator_cf_opt(self.family(family), bounded(upper))
    }

    pub(crate) fn write(&self, batch: WriteBatch) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        options.set_memtable_insert_hint_per_batch(true);
        self.db
            .write_opt(batch, &options)
            .map_err(self.failed("write"))
    }

    /// Flushes all families to one index; `wait` until it is on disk.
    pub(crate) fn flush(&self, wait: bool) -> Result<(), StorageError> {
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        let families = Family::ALL.map(|family| self.family(family));
        loop {
            match self.db.flush_cfs_opt(&families, &options) {
                // Writes stand still because tables in memory wait for the disk: they are on their
                // way to it, and a flush can be requested again when that is over.
                Err(error) if error.kind() == rocksdb::ErrorKind::TryAgain => {
                    if !wait {
                        return Ok(());
                    }
                    std::thread::park_timeout(STALLED);
                }
                flushed => return flushed.map_err(self.failed("flush")),
            }
        }
    }

    /// How files of sorted entries are written that the family takes in later.
    pub(crate) fn file_options(&self, family: Family) -> rocksdb::Options {
        let mut options = self.options.family(family, &self.cache);
        // What a compaction finds at the bottom later is compressed as the family wants it.
        options.set_bottommost_compression_type(DBCompressionType::Lz4);
        options
    }

    /// Indexes from one set of live rows to the next.
    pub(crate) fn mark_interval(&self) -> u64 {
        self.options.mark_interval.max(1)
    }

    /// Which part of the files' bytes between two keys lies between two others, 1 where there are
    /// none; what is still in memory does not count. An absent end is that of the family.
    pub(crate) fn share(
        &self,
        family: Family,
        part: (Vec<u8>, Option<Vec<u8>>),
        all: (Vec<u8>, Option<Vec<u8>>),
    ) -> f64 {
        const END: [u8; 16] = [0xff; 16];
        let end = |end: Option<Vec<u8>>| end.unwrap_or(END.to_vec());
        let (part, all) = ((part.0, end(part.1)), (all.0, end(all.1)));
        let ranges = [
            rocksdb::Range::new(&part.0, &part.1),
            rocksdb::Range::new(&all.0, &all.1),
        ];
        let sizes = self
            .db
            .get_approximate_sizes_cf(self.family(family), &ranges);
        #[allow(clippy::cast_precision_loss)]
        match sizes[..] {
            [part, all] if all > 0 => part as f64 / all as f64,
            _ => 1.0,
        }
    }

    pub(crate) fn cache_usage(&self) -> usize {
        self.cache.get_usage()
    }

    pub(crate) fn property(&self, family: Family, name: &str) -> u64 {
        self.db
            .property_int_value_cf(self.family(family), name)
            .ok()
            .flatten()
            .unwrap_or(0)
    }
}

/// The handle of every family.
#[expect(
    unsafe_code,
    reason = "handles borrow the database that they lie beside"
)]
fn handles(db: &DB) -> [&'static ColumnFamily; Family::ALL.len()] {
    Family::ALL.map(|family| {
        let handle = db
            .cf_handle(family.name())
            .expect("every family is opened with the database");
        // SAFETY: the handle lies in a node of the database's own map, on the heap: it stays where
        // it is when the database is moved, and no family is made or dropped after the database was
        // opened. The references are kept in the same struct as the database and handed out as
        // borrows of that struct, so none outlives it.
        unsafe { std::mem::transmute::<&ColumnFamily, &'static ColumnFamily>(handle) }
    })
}

/// A snapshot of RocksDB's, with the database that it reads: a consistent read that owns both.
pub(crate) struct DbSnapshot {
    // Declared before the database, so it is released first.
    snapshot: Snapshot<'static>,
    db: Arc<Database>,
}

impl DbSnapshot {
    #[expect(
        unsafe_code,
        reason = "a RocksDB snapshot borrows the database it keeps alive"
    )]
    pub(crate) fn new(db: Arc<Database>) -> Self {
        let snapshot = db.db.snapshot();
        // SAFETY: the snapshot borrows only `db.db`, which lies in the `Arc` kept beside it: it is
        // neither moved nor dropped before the snapshot, which is declared, hence dropped, first.
        // No reference with the extended lifetime leaves this type.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        Self { snapshot, db }
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        let family = self.db.family(family);
        if !at_hand::read()? {
            let found = self.snapshot.get_pinned_cf(family, key);
            return found.map_err(self.db.failed("read"));
        }
        let options = at_hand::options();
        let found = self.snapshot.get_pinned_cf_opt(family, key, options);
        let found = found.map_err(self.db.failed("read"))?;
        at_hand::weigh(found.as_ref().map_or(0, |value| value.len()))?;
        Ok(found)
    }

    /// As [`DbSnapshot::cursor`], for walks that cannot distinguish their end from a block that is
    /// not in memory: such work is left to threads that may wait.
    pub(crate) fn cursor_of_past(&self, family: Family) -> RawCursor<'_> {
        if at_hand::only() {
            // Noted, so that the work as a whole counts as missed.
            let _ = at_hand::missed();
        }
        self.cursor(family, None)
    }

    pub(crate) fn cursor(&self, family: Family, upper: Option<&[u8]>) -> RawCursor<'_> {
        let mut options = bounded(upper);
        match at_hand::only() {
            true => options.set_read_tier(ReadTier::BlockCache),
            false => serving::read(),
        }
        self.snapshot
            .raw_iterator_cf_opt(self.db.family(family), options)
    }
}

impl DbSnapshot {
    pub(crate) fn database(&self) -> &Database {
        &self.db
    }
}

fn bounded(upper: Option<&[u8]>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(upper) = upper {
        options.set_iterate_upper_bound(upper);
    }
    options
}
