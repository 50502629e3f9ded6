//! Events of a log as files for others, and a log made of such files again.
//!
//! [`lines`] writes events as lines of JSON, [`parquet`] as files for analysts, both with what
//! became of each ([`outcomes`]); [`import`] makes a log of such lines again.
//!
//! What it must not know: HTTP, the caller, how Raft decides.
//!
//! Invariants: memory is bounded however long the log is; an export that was interrupted continues
//! where it was, and one that is not whole says so.

pub mod import;
pub mod lines;
pub mod outcomes;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet_absent.rs"]
pub mod parquet;
#[cfg(feature = "parquet")]
mod parquet_dir;

#[cfg(test)]
mod lines_test;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod parquet_test;

use super::error::{ArchiveError, sync_dir};
#[cfg(test)]
use super::testing;
