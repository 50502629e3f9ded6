//! drover-projections: everything derived from the log.
//!
//! **What it is.** One RocksDB database per server, filled by *apply* alone: `state` rows with their
//! secondary indexes, and beside them `history`, `changes`, `postings`, `outcomes` and `digests`.
//! Whatever it holds can be thrown away and built again from the log.
//!
//! **How it is written.** [`Projections::open`] gives one [`Writer`]; the holder of that token is
//! the only writer. It takes decoded events in the order of the log, checks each one's guards, runs
//! its apply function in a [`Txn`] that sees everything before it, and writes what came of it with
//! the applied index in one batch. Then it becomes visible, and waiters are woken ([`Watch`]). A
//! [`Fold`] is the same writer for filling a whole database: it writes each row once, sorted.
//!
//! **How it is read.** [`Projections::view`] gives a [`View`]: a consistent read at one applied
//! index, cheap to take, held two seconds at most. A query that both sides need is written over
//! [`ReadRows`].
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
//! **Its modules**, each of which says what it must not know. One further down imports those above,
//! and none those below: `cargo xtask graph` prints it, and `tidy` refuses a circle.
//!
//! | module | what |
//! |---|---|
//! | `engine` | the database itself: keys, rows, digests, layers, transactions, waiters |
//! | `past` | what was: history, changes, postings, walks over then, where it ends |
//! | `read` | views, cursors, pages, lists from memory, followers |
//! | [`tables`] | what drover's tables are; of the others they know the engine alone |
//! | [`query`] | queries over tables that apply and decisions share |
//! | [`apply`] | what events do to tables |
//! | `store` | what puts all together: [`Projections`], [`Writer`], snapshots, switching |
//!
//! This root only re-exports what others use, and no module imports it.
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
    canonical, digest, error, key, maintenance, outcome, position, scan, serving, table, txn,
    unreadable, watch,
};
pub use past::{changes, history};
pub use read::{change_cursor, followed, inspect, lists, page, trail, view};
pub use store::{snapshot, writer};
pub use tables::claims;

pub use change_cursor::ChangeCursor;
pub use changes::{Change, Operation};
pub use digest::{Digest, TableDigest};
pub use engine::at_hand::at_hand;
pub use engine::db::{DatabaseOptions, damage_mark};
pub use error::StorageError;
pub use followed::{ChangedRow, Follow, Followed, Notifies};
pub use history::Version;
pub use inspect::{EntryDifference, TableSize};
pub use key::{AsKey, Id, Key};
pub use lists::{List, ListSnapshot};
pub use outcome::{Applied, Outcome, Refused, Rejection, Reply, VarOutcome};
pub use past::prune::Pruned;
pub use position::Position;
pub use read::rejections::{RejectedEvents, rejected_events};
pub use scan::{Prefix, Scan};
pub use store::projections::{Projections, Stats};
pub use store::switch::{Former, Unswitched};
pub use table::{Entries, History, Index, IndexDef, StreamKey, Table};
pub use tables::Registry;
pub use txn::{Ctx, ReadRows, Txn};
pub use view::{Cursor, EntryRef, IndexCursor, RowRef, View};
pub use watch::{Interest, Waiter, Watch};
pub use writer::{DIGEST_EVERY, Fold, Writer};
