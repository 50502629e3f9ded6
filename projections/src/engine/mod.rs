//! The database itself: RocksDB, column families, keys, rows, digests and what writes them.

pub(crate) mod at_hand;
pub mod canonical;
pub(crate) mod db;
pub mod digest;
pub mod error;
pub(crate) mod generations;
pub(crate) mod keeper;
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
pub mod watch;
