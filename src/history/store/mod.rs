//! Where segments of a log are kept that a server drops, and how they are read from there.
//!
//! A [`Store`] is a directory or a bucket; [`archiver`] copies what is to be dropped from a log to
//! one; [`archived_and_live`] reads it from there, with the log that continues it.
//!
//! What it must not know: HTTP, what an event means, when something is dropped.
//!
//! Invariants: objects are written whole or not at all, and read back before anything relies on
//! them.

pub mod archived_and_live;
pub mod archiver;
pub mod location;
#[cfg(feature = "s3")]
mod s3;
#[cfg(not(feature = "s3"))]
#[path = "s3_absent.rs"]
mod s3;

#[cfg(test)]
mod base_test;

pub use self::location::{ArchiveLocation, Store};
use super::backup::base;
use super::error::ArchiveError;
#[cfg(test)]
use super::testing;
