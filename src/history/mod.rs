//! What a server makes of its history: it is shown, proved, explained, replayed, and kept
//! elsewhere.
//!
//! - [`record`] is what an event looks like outside, one document for every export and stream;
//!   [`audit`] shows who changed what, when and why, and [`explain`] makes a decision again and
//!   compares it with what was committed.
//! - [`proof`] signs and verifies checkpoints of the log; [`replay`] folds a log into fresh tables
//!   from outside, and [`rebuild`] makes the tables again beside the ones in use.
//! - [`export`] writes events as lines or as files for analysts and reads them again; [`backup`]
//!   saves a log whole and restores one; [`store`] is where segments that are dropped are kept.
//! - [`reserve`] is what space of a disk all of it leaves to serving requests.
//!
//! What it must not know: HTTP, the command line, reactors, how Raft decides.
//!
//! Invariants: nothing here changes a table or an event; what is written has its final name only
//! when it is whole and on the disk; what is read back is checked before anything relies on it.

pub mod audit;
pub mod backup;
pub mod error;
pub mod explain;
pub mod export;
pub mod proof;
pub mod rebuild;
pub mod record;
pub mod replay;
pub mod reserve;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;

pub use self::error::ArchiveError;
