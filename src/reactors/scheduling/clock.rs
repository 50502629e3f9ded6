//! One clock for timers: Unix nanoseconds that never go back.

use std::time::Instant;

use crate::server::unix_nanos;

/// The time at the start, and how long ago that was.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    unix: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            unix: unix_nanos(),
        }
    }
}

impl Clock {
    /// Unix nanoseconds.
    pub fn now(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.unix.saturating_add(passed)
    }
}
