//! Raft's progress in this server, as its log reports it: what it becomes by votes, and how long it
//! takes until entries that it leads are on its disk and committed.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

use crate::telemetry::took;

/// Batches on their way whose commit is timed; what comes while there are more is not.
const MOST: usize = 4_096;

/// What a server is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Follower,
    Candidate,
    Leader,
}

impl Role {
    /// Counts a server that becomes one.
    fn count(self) {
        let name = match self {
            Self::Follower => "nomad.raft.state.follower",
            Self::Candidate => "nomad.raft.state.candidate",
            Self::Leader => "nomad.raft.state.leader",
        };
        metrics::counter!(name).increment(1);
    }
}

/// Follows the votes, entries and commits that a server's log is given.
#[derive(Debug)]
pub(super) struct LogPace {
    /// The number Raft knows this server by.
    this: u64,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    role: Role,
    /// The last index of each batch that this server sends out as the leader, and since when.
    sent: VecDeque<(u64, Instant)>,
}

impl LogPace {
    /// A server that has just started: it follows.
    pub(super) fn new(this: u64) -> Self {
        let role = Role::Follower;
        role.count();
        let sent = VecDeque::new();
        Self {
            this,
            now: Mutex::new(Now { role, sent }),
        }
    }

    /// A vote was saved: for whom, and whether a majority has given it.
    pub(super) fn voted(&self, number: u64, committed: bool) {
        let role = match (number == self.this, committed) {
            (false, _) => Role::Follower,
            (true, false) => Role::Candidate,
            (true, true) => Role::Leader,
        };
        let mut now = self.now.lock();
        // A server that stands again does so in another term.
        if role != now.role || role == Role::Candidate {
            role.count();
            now.sent.clear();
        }
        now.role = role;
    }

    /// Entries up to this index are about to be written; since when, where this server leads.
    pub(super) fn writes(&self, last: u64) -> Option<Instant> {
        let mut now = self.now.lock();
        if now.role != Role::Leader {
            return None;
        }
        let began = Instant::now();
        if now.sent.len() < MOST {
            now.sent.push_back((last, began));
        }
        Some(began)
    }

    /// Entries up to this index are committed.
    pub(super) fn committed(&self, index: u64) {
        let mut now = self.now.lock();
        while let Some((last, began)) = now.sent.front().copied()
            && last <= index
        {
            now.sent.pop_front();
            took("nomad.raft.commitTime", began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{TelemetryOptions, build};

    #[test]
    fn elections_are_counted_and_what_a_leader_sends_is_timed_until_it_is_committed() {
        let (telemetry, recorder) = build(&TelemetryOptions::default());
        let of = |name: &str| {
            let text = telemetry.prometheus();
            let line = format!("nomad_raft_{name} ");
            let value = text.lines().find_map(|other| other.strip_prefix(&line));
            value.map_or(0, |value| value.parse::<u64>().unwrap())
        };
        let roles = || ["follower", "candidate", "leader"].map(|role| of(&format!("state_{role}")));
        metrics::with_local_recorder(&recorder, || {
            let pace = LogPace::new(7);
            assert_eq!(roles(), [1, 0, 0]);
            assert!(pace.writes(3).is_none(), "it follows");
            pace.voted(7, false);
            pace.voted(7, false);
            assert_eq!(roles(), [1, 2, 0], "nobody had a majority");
            pace.voted(7, true);
            assert_eq!(roles(), [1, 2, 1]);
            assert!(pace.writes(5).is_some() && pace.writes(9).is_some());
            pace.committed(4);
            assert_eq!(of("commitTime_count"), 0, "the first of a batch");
            pace.committed(5);
            assert_eq!(of("commitTime_count"), 1);
            pace.voted(8, false);
            pace.voted(8, true);
            assert_eq!(roles(), [2, 2, 1]);
            pace.committed(9);
            assert_eq!(of("commitTime_count"), 1, "another one leads");
            assert!(pace.writes(10).is_none());
        });
    }
}
