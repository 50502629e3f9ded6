//! Control groups (version 2) as a net around a task's processes: what is in one can be killed at
//! once, however fast it forks and whoever its parent is now.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The group of all tasks where the configuration names none.
const PARENT: &str = "drover.slice";
/// How deep groups that a task made within its own are looked for.
const DEPTH: usize = 8;

/// The group below which runs get theirs, made if it is not there: `named` by the configuration, or
/// our own. `None` where there is no version 2, or we may not make groups.
pub fn parent(named: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let name = match named.trim_matches('/') {
        "" => PARENT,
        name => name,
    };
    let path = mount(&mounts)?.join(name);
    fs::create_dir_all(&path).ok()?;
    // The file is younger than the file system.
    path.join("cgroup.kill").exists().then_some(path)
}

fn mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| path.into())
    })
}

/// The group of the task within that of its run.
const TASK: &str = "task";

/// Makes the group of a run and enters it; a process that writes `0` to the answered file is the
/// run's task from then on. Neither is in the agent's own group any more, so whoever ends that, a
/// service manager for one, ends the agent alone.
///
/// # Errors
/// The kernel said no.
pub fn make(path: &Path) -> io::Result<File> {
    let task = path.join(TASK);
    fs::create_dir_all(&task)?;
    enter(path)?;
    File::options().write(true).open(task.join("cgroup.procs"))
}

fn enter(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), "0")
}

/// Kills everything of a run's task. A group that is gone holds nothing.
pub fn kill(path: &Path) {
    let _ = fs::write(path.join(TASK).join("cgroup.kill"), "1");
}

/// Leaves the group of a run, for it to be removed.
pub fn leave(path: &Path) {
    if let Some(above) = path.parent() {
        let _ = enter(above);
    }
    remove(path);
}

/// Removes a group and those in it, once they are empty; others stay.
pub fn remove(path: &Path) {
    remove_below(path, DEPTH);
}

fn remove_below(path: &Path, depth: usize) {
    if fs::remove_dir(path).is_ok() || depth == 0 {
        return;
    }
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path(), depth - 1);
        }
    }
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_beside_the_first() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount("proc /proc proc rw 0 0\n"), None);
    }
}
