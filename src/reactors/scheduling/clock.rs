//! One clock for timers: Unix nanoseconds that never go back.

use std::time::{Duration, Instant};

use crate::server::unix_nanos;

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
