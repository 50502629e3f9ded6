//! How long a query waits for a change.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How long a query waits that names no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(300);

/// The requested time, nanoseconds, within bounds; up to a sixteenth more, so that not all come
/// back at once.
pub(super) fn wait_time(requested: i64) -> Duration {
    let requested = u64::try_from(requested).map_or(Duration::ZERO, Duration::from_nanos);
    let wait = if requested.is_zero() {
        DEFAULT_WAIT
    } else {
        requested.min(DEFAULT_WAIT)
    };
    wait + wait.mul_f64(rand::random::<f64>() / 16.0)
}

/// How many nodes are answered about their allocations at a time.
const AT_A_TIME: u32 = 8;
/// How far apart such groups are. One that waits for its turn hears of all that changed for it
/// meanwhile.
const APART: Duration = Duration::from_millis(4);
/// The same while plans are made: a plan for thousands of nodes is not to take the processors from
/// those that follow it.
const APART_WHILE_PLACING: Duration = Duration::from_millis(20);

/// Wakes nodes one after the other, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct WakePace {
    line: tokio::sync::Mutex<WakeQueue>,
}

#[derive(Debug, Default)]
struct WakeQueue {
    /// When the next group may go.
    next: Option<Instant>,
    /// How many may still go with this one.
    left: u32,
}

impl WakePace {
    /// Waits for the next turn: not at all while turns are free.
    pub(super) async fn turn(&self, placing: impl FnOnce() -> bool) {
        let mut line = self.line.lock().await;
        if line.left == 0 {
            if let Some(next) = line.next {
                sleep_until(next).await;
            }
            let apart = if placing() {
                APART_WHILE_PLACING
            } else {
                APART
            };
            *line = WakeQueue {
                next: Some(Instant::now() + apart),
                left: AT_A_TIME,
            };
        }
        line.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_waits_as_long_as_it_says_and_a_little_more() {
        const SECOND: i64 = 1_000_000_000;
        for (requested, least) in [(SECOND, 1), (0, 300), (-1, 300), (1_000 * SECOND, 300)] {
            let least = Duration::from_secs(least);
            for _ in 0..50 {
                let wait = wait_time(requested);
                assert!(
                    (least..=least * 17 / 16).contains(&wait),
                    "{requested}: {wait:?}"
                );
            }
        }
        assert!((0..50).any(|_| wait_time(SECOND) != wait_time(SECOND)));
    }

    #[tokio::test]
    async fn turns_come_in_groups_and_further_apart_while_plans_are_made() {
        let (pace, begun) = (WakePace::default(), Instant::now());
        for _ in 0..AT_A_TIME * 2 {
            pace.turn(|| true).await;
        }
        assert!(
            begun.elapsed() >= APART_WHILE_PLACING,
            "the second group waits"
        );
        let free = pace.line.lock().await.next.unwrap();
        pace.turn(|| false).await;
        assert!(Instant::now() >= free, "and the third");
        let line = pace.line.lock().await;
        assert_eq!(line.left, AT_A_TIME - 1);
        assert!(line.next.unwrap() < Instant::now() + APART_WHILE_PLACING);
    }
}
