//! How long a question waits for a change.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

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

/// How far apart nodes are told of their allocations. One that waits for its turn hears of all that
/// changed for it meanwhile, and a plan for thousands of nodes does not take the processors from
/// the plans that follow it.
const APART: Duration = Duration::from_millis(1);

/// Wakes nodes one after the other.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Waits for the next turn: not at all while turns are free.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let at = self.book(now);
        if at > now {
            sleep_until(at).await;
        }
    }

    fn book(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        let at = next.map_or(now, |next| next.max(now));
        *next = Some(at + APART);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_one_after_the_other_and_none_is_waited_for_in_vain() {
        let (pace, begun) = (Pace::default(), Instant::now());
        for turn in 0..10 {
            assert_eq!(pace.book(begun), begun + APART * turn);
        }
        let later = begun + APART * 20;
        assert_eq!(pace.book(later), later);
    }
}
