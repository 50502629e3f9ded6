//! A log saved as one file, and made the base of a new epoch again.
//!
//! [`save`] writes a backup ([`manifest`] says what is in it, [`tar`] how it is packed) and
//! [`inspect`] checks one; [`restore`] makes it the base of a new epoch of the log, and [`adopt`]
//! ends that at the next start. [`base`] signs the state that a log continues from.
//!
//! What it must not know: HTTP, what an event means, how Raft decides.
//!
//! Invariants: nothing here changes a table: a log is written, and what follows from it is applied.
//! What a kill leaves behind is either gone on with or removed.

pub mod adopt;
pub mod base;
pub mod inspect;
pub mod manifest;
pub mod restore;
pub mod save;
pub mod tar;

use super::error::{ArchiveError, sync_dir};
