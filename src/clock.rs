//! The wall clock, read in one place, and one for timers that never goes back.
//!
//! Nothing that is replayed may ask it: time reaches events through the proposer's stamp alone.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time, Unix nanoseconds.
pub(crate) fn unix_nanos() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The time at the start, and how long ago that was.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// None for a clock that stands still.
    start: Option<Instant>,
    unix: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Some(Instant::now()),
            unix: unix_nanos(),
        }
    }
}

impl Clock {
    /// A clock that stands still at these Unix nanoseconds, for tests.
    #[cfg(test)]
    pub(crate) fn stopped(unix: i64) -> Self {
        Self { start: None, unix }
    }

    /// Unix nanoseconds.
    pub fn now(&self) -> i64 {
        let passed = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        let passed = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        self.unix.saturating_add(passed)
    }
}
