//! The database itself: what a table is, where its rows lie, and how an event changes them.
//!
//! **What it is.** RocksDB ([`db`]) with the codecs that are for ever ([`key`], [`canonical`],
//! [`row`], [`digest`]), cursors over ranges of it ([`scan`]), and the writer's machinery: an
//! overlay for each table ([`layer`]) over what is stored or staged ([`staged`]), both read as one
//! ([`merge`]), which apply functions see as a transaction ([`txn`]); decoded rows that stay in
//! memory from one batch to the next ([`generations`]); and up to which event all that was written
//! ([`position`]). A table is a type ([`table`]) or a number ([`registry`]). Beside that stand
//! waiters for a change ([`watch`]), reads that wait for nothing ([`at_hand`]), reads on threads
//! that serve ([`serving`]), raw entries for migrations ([`maintenance`]), whether rows were met
//! that cannot be read ([`unreadable`]), and how a process ends under a database ([`at_exit`]).
//!
//! **What it must not know.** No table of drover's, no event's payload, no view and no past. It
//! reports each event's replaced and changed rows, of tables whose past is kept, to a
//! [`history_writer::HistoryWriter`], and iterates cursors that other modules build
//! ([`scan::DynCursor`]); it never reads history. It imports no other top-level module of this
//! crate.
//!
//! **Invariants.** All that a batch wrote is there, or nothing of it. A transaction that is refused
//! leaves its layers as they were. A row's index entries are exactly those that it yields, and its
//! table's digest holds it once. The same writes give the same bytes, however they are cut.
//!
//! Start reading at [`table`], then [`txn`] and [`layer`].

pub(crate) mod at_exit;
pub(crate) mod at_hand;
pub mod canonical;
pub(crate) mod db;
pub mod digest;
pub mod error;
pub(crate) mod generations;
pub(crate) mod history_writer;
pub mod key;
pub(crate) mod layer;
pub mod maintenance;
pub(crate) mod merge;
pub mod outcome;
pub mod position;
pub(crate) mod registry;
pub(crate) mod row;
pub mod scan;
pub mod serving;
pub(crate) mod staged;
pub mod table;
pub mod txn;
pub mod unreadable;
pub mod watch;
