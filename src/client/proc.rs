//! Reading `/proc`: start times, process trees and their resource use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One process as `/proc/<pid>/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// Process id.
    pub pid: i32,
    /// State letter (`R`, `S`, `Z`, …).
    pub state: char,
    /// Parent process id.
    pub ppid: i32,
    /// CPU time in user mode, clock ticks.
    pub utime: u64,
    /// CPU time in the kernel, clock ticks.
    pub stime: u64,
    /// When it started, clock ticks since boot: with the pid, a name that is never reused.
    pub start: u64,
    /// Resident memory, pages.
    pub rss_pages: u64,
}

/// CPU and memory of one process tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Per process: user ticks, system ticks, resident bytes.
    pub pids: BTreeMap<i32, PidUsage>,
}

/// CPU and memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        utime: at(14)?.parse().ok()?,
        stime: at(15)?.parse().ok()?,
        start: at(22)?.parse().ok()?,
        rss_pages: at(24)?.parse().ok()?,
    })
}

/// Reads one process; `None` when it is gone.
pub fn stat(pid: i32) -> Option<ProcStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
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

/// All processes below `root`, without `root`, parents first.
pub fn descendants(root: i32) -> Vec<ProcStat> {
    let mut out = Vec::new();
    let mut todo = vec![root];
    while let Some(pid) = todo.pop() {
        for child in children(pid) {
            if let Some(stat) = stat(child) {
                todo.push(child);
                out.push(stat);
            }
        }
    }
    out
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = format!("/proc/{pid}/task");
    let Ok(threads) = fs::read_dir(&tasks) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => out.extend(numbers(&list)),
            Err(_) if !Path::new(&format!("/proc/{pid}/task/{pid}/children")).exists() => {
                return scan_children(pid);
            }
            Err(_) => {}
        }
    }
    out
}

fn numbers(list: &str) -> impl Iterator<Item = i32> {
    list.split_ascii_whitespace().filter_map(|p| p.parse().ok())
}

fn scan_children(parent: i32) -> Vec<i32> {
    let Ok(dir) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| stat(*pid).is_some_and(|s| s.ppid == parent))
        .collect()
}

/// CPU and memory of everything below `root` (not of `root` itself).
pub fn tree_usage(root: i32) -> TreeUsage {
    let page = procfs::page_size();
    let pids = descendants(root)
        .into_iter()
        .filter(|s| s.state != 'Z')
        .map(|s| {
            (
                s.pid,
                PidUsage {
                    user: s.utime,
                    system: s.stime,
                    rss: s.rss_pages * page,
                },
            )
        })
        .collect();
    TreeUsage { pids }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_with_odd_commands_are_read() {
        let line = "42 (a b) c) S 7 42 42 0 -1 4194304 1 2 3 4 11 12 0 0 20 0 1 0 9876 100 55 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.pid, stat.ppid, stat.state), (42, 7, 'S'));
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
