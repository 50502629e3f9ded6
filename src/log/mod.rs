//! The log engine: plain segment files with one writer thread, the source of truth of a server.
//!
//! What it is: an append-only sequence of entries, numbered without gaps, of which everything that
//! was reported durable survives any crash. [`LogEngine`] writes, [`ReadOnlyLog`] reads the same
//! files from another process while a server runs, [`tools`] reads and checks them for the command
//! line.
//!
//! What it must not know: Raft, events, projections. An [`Entry`] is an index, a registered kind,
//! a time, and bytes. Of kind and time the log uses only this: it counts the entries of each kind,
//! keeps the earliest and latest time of each segment, and finds entries by time. Vote, committed
//! position and purge position are *local records*: values of this server, named by the caller,
//! opaque to the log, stored in its files and not part of the sequence. The server's log, the
//! client's journal and the request log are all this engine with other [`LogOptions`].
//!
//! Invariants:
//! 1. One thread writes. A batch takes all that is queued, writes it with one `pwrite`, syncs
//!    once, and fires the callbacks in the order of the calls. Local records take the same queue.
//! 2. An entry can be read as soon as `append` returns; it is acknowledged only when synced.
//! 3. A segment receives its first frame only after the one before it was synced to its end, so
//!    only the last segment can have an unsynced tail.
//! 4. A frame's checksum is seeded with its segment's random seed: what a recycled file held
//!    before is never taken for a frame.
//! 5. Damage at or above the highest offset known durable is an unsynced tail: cut and reported.
//!    Damage below it is corruption: named by segment, offset and index, and never served.
//! 6. What is committed is never truncated; only what is committed is sealed.
//! 7. After a failed sync nothing is written any more (the kernel may have dropped the pages).
//!    Opening the log writes what was not known to be durable once more, before it counts.
//! 8. The persisted committed index is written after the entry it refers to, and never covers an
//!    entry that is unwritten or that a queued truncation may remove.
//!
//! Start reading at `engine.rs` (the calls), then `writer.rs` (the batches), `open.rs` (recovery),
//! `format.rs` (the bytes), `tree.rs` (the proof).

pub mod atomic_file;
mod copy;
mod engine;
mod error;
mod file;
mod format;
mod housekeeper;
mod open;
mod options;
mod readonly;
mod retention;
mod rotate;
mod scan;
mod sealed;
mod segment;
mod segment_set;
mod state;
mod times;
pub mod tools;
mod tree;
mod writer;

#[cfg(test)]
extern crate self as drover_log;
/// The source of the crate `drover-fake-disk`, compiled into these tests too; the alias above makes
/// its paths `drover_log::…` mean this crate.
#[cfg(test)]
pub mod fake;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod engine_test;
#[cfg(test)]
mod fault_test;

pub use copy::{CopyFile, read_back};
pub use engine::LogEngine;
pub use error::LogError;
pub use file::parent_dir;
pub use file::{FileLayer, LogFile, RealFiles};
// An empty file of this name in a log's directory says that its dropped segments lie there again.
pub use format::JOINED_MARKER;
pub use format::{Entry, Epoch};
pub use open::{OpenReport, TruncatedTail};
pub use options::{LogOptions, OnFull};
pub use readonly::ReadOnlyLog;
pub use retention::RetentionPolicy;
pub use scan::{ReadableLog, Scan};
pub use segment::SegmentInfo;
pub use state::{DiskSpace, OnSynced};
pub use times::{last_index_at_or_before, time_of};
pub use tree::{CompactRange, Hash, leaf_hash, node_hash};
