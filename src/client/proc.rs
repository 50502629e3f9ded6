//! Reading `/proc`: start times, process trees and their resource use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::process::Child;

/// One process as `/proc/<pid>/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// Process id.
    pub pid: i32,
    /// State letter (`R`, `S`, `Z`, …).
    pub state: char,
    /// Parent process id.
    pub ppid: i32,
    /// The session it is in: the id of the process that began it.
    pub session: i32,
    /// CPU time in user mode, clock ticks.
    pub utime: u64,
    /// CPU time in the kernel, clock ticks.
    pub stime: u64,
    /// When it started, clock ticks since boot: with the pid, a name that is never reused.
    pub start: u64,
    /// Resident memory, pages.
    pub rss_pages: u64,
}

/// A group of processes that is not to outlive this value.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// That of a child which began a group of its own.
    pub(crate) fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    /// Kills all of it, once.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // It has ended by itself, or does now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// What is left of it may stay.
    pub(crate) fn spare(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// CPU and memory of one process tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUsage {
    /// Per process: user ticks, system ticks, resident bytes.
    pub pids: BTreeMap<i32, PidUsage>,
    /// What control groups count of all of it; nothing of what an older executor looked at.
    #[serde(default)]
    pub group: GroupUsage,
}

/// What control groups count of a task, each where one does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUsage {
    /// Page cache, bytes.
    pub cache: Option<u64>,
    /// Swapped out, bytes.
    pub swap: Option<u64>,
    /// In how many periods it was held back until now.
    pub throttled_periods: Option<u64>,
    /// For how long it was, nanoseconds.
    pub throttled_time: Option<u64>,
}

/// CPU and memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidUsage {
    /// User time, clock ticks.
    pub user: u64,
    /// System time, clock ticks.
    pub system: u64,
    /// Resident bytes.
    pub rss: u64,
}

/// Clock ticks per second; the kernel's user-visible constant on Linux.
pub const TICKS_PER_SECOND: u64 = 100;

/// Parses one line of `/proc/<pid>/stat`; the command may hold spaces and parentheses.
pub fn parse_stat(line: &str) -> Option<ProcStat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let pid = line.get(..open)?.trim().parse().ok()?;
    let mut rest = line.get(close + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    let fields: Vec<&str> = rest.collect();
    // fields[0] is field 4 (ppid) of proc_pid_stat(5).
    let at = |field: usize| fields.get(field - 4);
    Some(ProcStat {
        pid,
        state,
        ppid: at(4)?.parse().ok()?,
        session: at(6)?.parse().ok()?,
        utime: at(14)?.parse().ok()?,
        stime: at(15)?.parse().ok()?,
        start: at(22)?.parse().ok()?,
        rss_pages: at(24)?.parse().ok()?,
    })
}

/// Reads one process; `None` when it is gone.
pub fn stat(pid: i32) -> Option<ProcStat> {
    // A process gives itself whatever name it likes, also one that is no text.
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&line))
}

/// Sends a signal to the very process that started at `start`; one that is gone gets none.
pub fn signal(pid: i32, start: u64, signal: Signal) {
    let Some(fd) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return;
    };
    // Looked at after the descriptor is there: from then on it stands for one process only.
    if stat(pid).is_some_and(|s| s.start == start) {
        let _ = pidfd_send_signal(&fd, signal);
    }
}

/// True when `pid` is the very process that started at `start`, and not a zombie.
pub fn is_alive(pid: i32, start: u64) -> bool {
    stat(pid).is_some_and(|s| s.start == start && s.state != 'Z')
}

/// This boot's id: start times of another boot mean nothing.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}

/// One look at which process is whose child, for queries about many trees: all there are, by their
/// parents. Reading the children of each from the kernel costs a file for every thread instead.
#[derive(Debug)]
pub struct Processes {
    all: BTreeMap<i32, Vec<ProcStat>>,
    at: i64,
}

impl Processes {
    /// Looks.
    pub fn now() -> Self {
        let at = drover_base::clock::unix_nanos();
        Self {
            all: by_parent(),
            at,
        }
    }

    /// What another caller saw that looked later than then (unix nanoseconds) and not longer ago
    /// than this; what is seen now where no caller did.
    pub fn lately(age: Duration, since: i64) -> Arc<Self> {
        static LAST: Mutex<Option<Arc<Processes>>> = Mutex::new(None);
        let mut last = LAST.lock();
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let oldest = drover_base::clock::unix_nanos().saturating_sub(age);
        match &*last {
            Some(seen) if seen.at > since && seen.at >= oldest => Arc::clone(seen),
            _ => Arc::clone(last.insert(Arc::new(Self::now()))),
        }
    }

    /// When it was looked, unix nanoseconds.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// All processes below `root`, without `root`, parents first.
    pub fn below(&self, root: i32) -> Vec<ProcStat> {
        below(root, |pid| self.all.get(&pid).cloned().unwrap_or_default())
    }

    /// CPU and memory of everything below `root` (not of `root` itself).
    pub fn usage(&self, root: i32) -> TreeUsage {
        used(self.below(root))
    }
}

/// CPU and memory of these, as far as they live.
pub fn used(all: Vec<ProcStat>) -> TreeUsage {
    let page = procfs::page_size();
    let alive = all.into_iter().filter(|s| s.state != 'Z');
    let usage = |s: ProcStat| PidUsage {
        user: s.utime,
        system: s.stime,
        rss: s.rss_pages * page,
    };
    TreeUsage {
        pids: alive.map(|s| (s.pid, usage(s))).collect(),
        group: GroupUsage::default(),
    }
}

/// All processes below `root`, without `root`, parents first.
pub fn descendants(root: i32) -> Vec<ProcStat> {
    // Where the kernel lists children, one tree is found faster so.
    if Path::new("/proc/thread-self/children").exists() {
        below(root, |pid| {
            children(pid).into_iter().filter_map(stat).collect()
        })
    } else {
        Processes::now().below(root)
    }
}

fn below(root: i32, children: impl Fn(i32) -> Vec<ProcStat>) -> Vec<ProcStat> {
    let mut out = Vec::new();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        let below = children(pid);
        todo.extend(below.iter().map(|child| child.pid));
        out.extend(below);
    }
    out
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten().filter_map(|thread| {
        #[cfg(test)]
        tests::LISTS.with(|lists| lists.set(lists.get() + 1));
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        Some(numbers(&list).collect::<Vec<_>>())
    });
    lists.flatten().collect()
}

fn numbers(list: &str) -> impl Iterator<Item = i32> {
    list.split_ascii_whitespace().filter_map(|p| p.parse().ok())
}

fn by_parent() -> BTreeMap<i32, Vec<ProcStat>> {
    #[cfg(test)]
    tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
    let mut out: BTreeMap<i32, Vec<ProcStat>> = BTreeMap::new();
    let Ok(dir) = fs::read_dir("/proc") else {
        return out;
    };
    for entry in dir.flatten() {
        let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(stat) = pid.and_then(stat) {
            out.entry(stat.ppid).or_default().push(stat);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How often all processes were looked at, and how many threads' children.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
        pub(super) static LISTS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn the_use_of_many_trees_takes_one_look_however_many_threads_they_have() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let all = Processes::now();
        for _ in 0..3 {
            assert!(all.usage(me).pids.contains_key(&id));
            assert!(all.below(id).is_empty());
        }
        assert_eq!((LOOKS.take(), LISTS.take()), (1, 0));
        // A caller that looks soon after another gets what that one saw, unless it is too old for
        // it.
        let hour = Duration::from_secs(3600);
        let first = Processes::lately(hour, 0);
        LOOKS.take();
        let same = Processes::lately(hour, first.at() - 1);
        assert!(same.at() >= first.at());
        assert_eq!(LOOKS.take(), 0, "the look of another caller will do");
        assert!(Processes::lately(hour, same.at()).at() > same.at());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn stat_lines_with_odd_commands_are_read() {
        let line = "42 (a b) c) S 7 42 41 0 -1 4194304 1 2 3 4 11 12 0 0 20 0 1 0 9876 100 55 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.pid, stat.ppid, stat.state), (42, 7, 'S'));
        assert_eq!(stat.session, 41);
        assert_eq!(
            (stat.utime, stat.stime, stat.start, stat.rss_pages),
            (11, 12, 9876, 55)
        );
        assert!(parse_stat("").is_none());
        assert!(parse_stat("1 (x").is_none());
    }

    #[test]
    fn own_process_is_alive_under_its_own_start_time_only() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap();
        assert!(is_alive(me, stat.start));
        assert!(!is_alive(me, stat.start + 1));
    }

    #[test]
    fn descendants_hold_a_child() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let id = i32::try_from(child.id()).unwrap();
        assert!(descendants(me).iter().any(|s| s.pid == id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            !descendants(me)
                .iter()
                .any(|s| s.pid == id && s.state != 'Z')
        );
    }
}
