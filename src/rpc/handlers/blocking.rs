//! How long a question waits for a change.

use std::time::Duration;

/// What a question waits that names no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(300);

/// The time asked for, nanoseconds, within bounds; up to a sixteenth more, so that not all come
/// back at once.
pub(super) fn wait_time(asked: i64) -> Duration {
    let asked = u64::try_from(asked).map_or(Duration::ZERO, Duration::from_nanos);
    let wait = if asked.is_zero() {
        DEFAULT_WAIT
    } else {
        asked.min(DEFAULT_WAIT)
    };
    wait + wait.mul_f64(rand::random::<f64>() / 16.0)
}
