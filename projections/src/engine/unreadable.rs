//! Whether a row was met that cannot be read: an applier stops at an event that touches it, so from
//! then on it pays to try events out first. And how often the tables were made again, which is what
//! heals such rows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether there was such a row since the process began: what was damaged once may be so again.
static MET: AtomicBool = AtomicBool::new(false);
/// How often the tables were replaced in this process.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A row was met that cannot be read.
pub(crate) fn record() {
    MET.store(true, Ordering::Relaxed);
}

/// Whether a row was met that cannot be read.
pub fn is_met() -> bool {
    MET.load(Ordering::Relaxed)
}

/// The tables are others now, made again from the log or taken from a snapshot.
pub(crate) fn made_again() {
    MADE.fetch_add(1, Ordering::Release);
}

/// How often the tables were made again: what was reported of rows before is not so any more.
pub fn made() -> u64 {
    MADE.load(Ordering::Acquire)
}
