//! What could not be written: when it is tried again.
//!
//! What fails because of itself would fail at every look, and what would mend it is unknown: other
//! tables may, or only time. So it waits for both, longer after each try, and is in the log once.

use drover_projections::unreadable;

/// Between the first try in vain and the second, nanoseconds.
const FIRST: i64 = 5_000_000_000;
/// Between two tries at the most.
const MAX_PAUSE: i64 = 300_000_000_000;

/// Something to be written, and how it went so far.
#[derive(Clone, Debug)]
pub struct Retry<T> {
    /// What is to be written.
    pub what: T,
    /// How long it waits or waited; 0 before it does.
    pause: i64,
    /// From when on it is tried, Unix nanoseconds.
    due: i64,
    /// How often the tables had been made again when it began to wait.
    made: u64,
    /// The log has why it could not be written.
    logged: bool,
}

impl<T> Retry<T> {
    /// It was not tried yet: it is due.
    pub fn new(what: T) -> Self {
        Self {
            what,
            pause: 0,
            due: 0,
            made: unreadable::made(),
            logged: false,
        }
    }

    /// Whether it is tried now: its time has come, or the tables are others.
    pub fn is_due(&self, now: i64) -> bool {
        self.is_due_after(now, unreadable::made())
    }

    fn is_due_after(&self, now: i64, made: u64) -> bool {
        now >= self.due || self.made != made
    }

    /// The same, which waits until it is tried again.
    #[must_use]
    pub fn later(self, now: i64) -> Self {
        let pause = self.pause.saturating_mul(2).clamp(FIRST, MAX_PAUSE);
        Self {
            pause,
            due: now.saturating_add(pause),
            made: unreadable::made(),
            ..self
        }
    }

    /// Whether the reason of the failure is not in the log yet. It is true once.
    pub fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.logged, true)
    }

    /// Takes from the same thing, known twice, what was found out by trying: it is due when the
    /// first of them is.
    pub fn join(&mut self, other: &Self) {
        self.due = self.due.min(other.due);
        self.pause = self.pause.max(other.pause);
        self.logged |= other.logged;
    }
}

impl<T> Retry<Vec<T>> {
    /// Cuts off what is behind the first `count`; both parts continue as the whole did.
    pub fn split_off(&mut self, count: usize) -> Self {
        Self {
            what: self.what.split_off(count),
            pause: self.pause,
            due: self.due,
            made: self.made,
            logged: self.logged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_the_longest() {
        let mut one = Retry::new(());
        assert!(one.is_due(0));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            one = one.later(7);
            pauses.push(one.due - 7);
        }
        let seconds = [5, 10, 20, 40, 80, 160, 300, 300, 300];
        assert_eq!(pauses, seconds.map(|one: i64| one * 1_000_000_000));
        assert!(!one.is_due_after(one.due - 1, one.made));
        assert!(one.is_due_after(one.due, one.made));
        assert!(one.is_due_after(one.due - 1, one.made + 1), "other tables");
    }

    #[test]
    fn why_it_fails_is_news_once_of_all_its_parts() {
        let mut whole = Retry::new(vec![1, 2, 3]);
        assert!(whole.is_news());
        let mut rest = whole.split_off(1);
        assert_eq!((&whole.what[..], &rest.what[..]), (&[1][..], &[2, 3][..]));
        assert!(!whole.is_news() && !rest.is_news());
        assert!(!rest.later(0).is_news());
    }

    #[test]
    fn what_is_known_twice_is_due_as_the_first_and_waits_as_the_second() {
        let mut waits = Retry::new(()).later(0).later(0);
        waits.is_news();
        let mut fresh = Retry::new(());
        fresh.join(&waits);
        assert!(fresh.is_due(0) && !fresh.is_news());
        assert_eq!(fresh.later(0).due, 4 * FIRST);
    }
}
