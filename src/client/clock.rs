//! Time and chance for the client, behind one seam so that tests can set both.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use drover_base::chance::split_mix;
use drover_base::clock::unix_nanos;

/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: i64 = 1_000_000;

/// A duration from nanoseconds; negative ones are zero.
pub fn nanos(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

/// Where the client gets the time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// One that a test moves by hand.
    Manual(Arc<Mutex<i64>>),
}

impl Clock {
    /// Now, unix nanoseconds.
    pub fn now(&self) -> i64 {
        match self {
            Self::System => unix_nanos(),
            Self::Manual(now) => *now.lock(),
        }
    }

    /// Nanoseconds since some moment that stays the same: it never runs backwards, whatever becomes
    /// of the time of day.
    pub fn passed(&self) -> i64 {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Self::System => i64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(i64::MAX),
            Self::Manual(now) => *now.lock(),
        }
    }
}

/// A small seeded generator: jitter needs no more, and a state machine that owns one stays a pure
/// function of its state.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Jitter(pub u64);

impl Jitter {
    /// A generator whose numbers no other has.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number in `0..limit`; 0 when the limit is not above 0.
    pub fn below(&mut self, limit: i64) -> i64 {
        match u64::try_from(limit) {
            Ok(limit) if limit > 0 => i64::try_from(self.draw() % limit).unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_part_is_below_its_limit_and_nothing_without_one() {
        let mut jitter = Jitter(7);
        for limit in [i64::MIN, -1, 0, 1] {
            assert_eq!(jitter.below(limit), 0);
        }
        let drawn: Vec<i64> = (0..100).map(|_| jitter.below(10)).collect();
        assert!((0..10).all(|number| drawn.contains(&number)), "{drawn:?}");
        assert!(drawn.iter().all(|number| (0..10).contains(number)));
    }
}
