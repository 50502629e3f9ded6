//! The restart policy: what follows when a task ended (client facts, restart tracker).

use drover_events::gojson::format_duration;
use drover_events::model::RestartPolicy;
use serde::{Deserialize, Serialize};

use crate::clock::Jitter;

/// Why a restart is to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ran and ended.
    Exit {
        /// Exit code 0, no signal, no error.
        success: bool,
    },
    /// It could not be started.
    StartError {
        /// Another attempt may help.
        recoverable: bool,
    },
    /// A restart was requested, and it ended for that.
    RestartRequested,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start again after `delay` nanoseconds.
    Restart {
        /// Nanoseconds.
        delay: i64,
        /// For the event.
        reason: String,
    },
    /// It has failed.
    Fail {
        /// For the event.
        reason: String,
    },
    /// It is done.
    Done,
}

/// Counts restarts within an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartTracker {
    count: i64,
    interval_start: i64,
    jitter: Jitter,
}

/// Restarts of a task that ended well.
const NO_RESTARTS: &str = "Policy allows no restarts";
const UNRECOVERABLE: &str = "Error was unrecoverable";
const WITHIN_POLICY: &str = "Restart within policy";
const DELAYED: &str = "Exceeded allowed attempts, applying a delay";

impl RestartTracker {
    /// A tracker that has counted nothing; `seed` decides the delays' random part.
    pub fn new(seed: u64) -> Self {
        Self {
            count: 0,
            interval_start: 0,
            jitter: Jitter(seed),
        }
    }

    /// Decides, and counts. `on_success` says that a task that ended well is started again.
    pub fn next(
        &mut self,
        policy: &RestartPolicy,
        on_success: bool,
        cause: Cause,
        now: i64,
    ) -> Decision {
        if cause == Cause::RestartRequested {
            return Decision::Restart {
                delay: 0,
                reason: String::new(),
            };
        }
        let finished = cause == Cause::Exit { success: true } && !on_success;
        if policy.attempts == 0 {
            return if finished {
                Decision::Done
            } else {
                fail(NO_RESTARTS)
            };
        }
        if now > self.interval_start.saturating_add(policy.interval) {
            self.count = 0;
            self.interval_start = now;
        }
        self.count += 1;
        if cause == (Cause::StartError { recoverable: false }) {
            return fail(UNRECOVERABLE);
        }
        if finished {
            return Decision::Done;
        }
        if self.count > policy.attempts {
            return self.exhausted(policy, now);
        }
        let spread = self.jitter.below(policy.delay) / 4;
        Decision::Restart {
            delay: policy.delay.saturating_add(spread),
            reason: WITHIN_POLICY.to_owned(),
        }
    }

    fn exhausted(&self, policy: &RestartPolicy, now: i64) -> Decision {
        if policy.mode == "fail" {
            return fail(&format!(
                "Exceeded allowed attempts {} in interval {} and mode is \"fail\"",
                policy.attempts,
                format_duration(policy.interval)
            ));
        }
        let end = self.interval_start.saturating_add(policy.interval);
        Decision::Restart {
            delay: (end - now).max(0),
            reason: DELAYED.to_owned(),
        }
    }
}

fn fail(reason: &str) -> Decision {
    Decision::Fail {
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    const CRASH: Cause = Cause::Exit { success: false };
    const FINE: Cause = Cause::Exit { success: true };

    fn policy(attempts: i64, mode: &str) -> RestartPolicy {
        RestartPolicy {
            attempts,
            interval: 100 * SECOND,
            delay: 8 * SECOND,
            mode: mode.into(),
            ..RestartPolicy::default()
        }
    }

    #[test]
    fn cl_29_restarts_within_the_policy_and_then_fails() {
        let mut tracker = RestartTracker::new(7);
        for _ in 0..2 {
            let Decision::Restart { delay, reason } =
                tracker.next(&policy(2, "fail"), true, CRASH, 1000 * SECOND)
            else {
                panic!("within policy");
            };
            assert!((8 * SECOND..=10 * SECOND).contains(&delay), "{delay}");
            assert_eq!(reason, WITHIN_POLICY);
        }
        let last = tracker.next(&policy(2, "fail"), true, CRASH, 1001 * SECOND);
        let reason = "Exceeded allowed attempts 2 in interval 1m40s and mode is \"fail\"";
        assert_eq!(last, fail(reason));
        // The interval is over: the count begins again.
        let again = tracker.next(&policy(2, "fail"), true, CRASH, 1101 * SECOND);
        assert!(matches!(again, Decision::Restart { .. }));
    }

    #[test]
    fn cl_29_mode_delay_waits_for_the_end_of_the_interval() {
        let mut tracker = RestartTracker::new(7);
        tracker.next(&policy(1, "delay"), true, CRASH, 1000 * SECOND);
        let second = tracker.next(&policy(1, "delay"), true, CRASH, 1030 * SECOND);
        assert_eq!(
            second,
            Decision::Restart {
                delay: 70 * SECOND,
                reason: DELAYED.into()
            }
        );
    }

    #[test]
    fn cl_29_the_table_of_the_other_causes() {
        let none = policy(0, "fail");
        let one = policy(1, "fail");
        let mut t = RestartTracker::new(7);
        assert_eq!(t.next(&none, false, FINE, 0), Decision::Done);
        assert_eq!(t.next(&none, true, FINE, 0), fail(NO_RESTARTS));
        assert_eq!(t.next(&none, false, CRASH, 0), fail(NO_RESTARTS));
        assert_eq!(t.next(&one, false, FINE, 0), Decision::Done);
        let broken = Cause::StartError { recoverable: false };
        assert_eq!(t.next(&one, true, broken, 0), fail(UNRECOVERABLE));
        let requested = t.next(&none, true, Cause::RestartRequested, 0);
        assert_eq!(
            requested,
            Decision::Restart {
                delay: 0,
                reason: String::new()
            }
        );
    }

    #[test]
    fn cl_29_the_same_seed_gives_the_same_delays() {
        let run = |seed| RestartTracker::new(seed).next(&policy(1, "fail"), true, CRASH, 1);
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
