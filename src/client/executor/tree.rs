//! Ending process trees whole.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use super::cgroup::Groups;
use crate::proc::{self, ProcStat};

/// How often a tree is looked at again for processes that were made meanwhile.
const PASSES: usize = 50;
/// The pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// How often a tree is killed that does not end, by a process that is not its reaper.
const ATTEMPTS: usize = 250;

/// Kills everything below `root` that lives; how many processes that were.
pub(super) fn kill_below(root: i32) -> usize {
    kill_all(|| proc::descendants(root))
}

/// Kills a session that a process below `root` began: all that are in it, and all below that
/// process.
pub(super) fn kill_session(root: i32, leader: i32) {
    kill_all(|| {
        let mut all = proc::descendants(root);
        all.retain(|process| process.session == leader || process.pid == leader);
        all.extend(proc::descendants(leader));
        all
    });
}

/// All are stopped first, until no new one shows: what is stopped makes no children, so a tree
/// cannot grow faster than it is killed.
fn kill_all(find: impl Fn() -> Vec<ProcStat>) -> usize {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for _ in 0..PASSES {
        let before = all.len();
        for process in find() {
            if process.state != 'Z' && known.insert((process.pid, process.start)) {
                proc::signal(process.pid, process.start, Signal::STOP);
                all.push(process);
            }
        }
        if all.len() == before {
            break;
        }
    }
    for process in &all {
        proc::signal(process.pid, process.start, Signal::KILL);
    }
    all.len()
}

/// Ends an executor and all below it from outside: what it adopted would have no owner without it.
pub(super) fn end(executor: i32, start: u64, groups: &Groups) {
    for _ in 0..ATTEMPTS {
        groups.kill();
        if !proc::is_alive(executor, start) || kill_below(executor) == 0 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    proc::signal(executor, start, Signal::KILL);
}
