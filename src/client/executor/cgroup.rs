//! Control groups around a task's processes: what is in one can be killed at once, however fast it
//! forks and whatever its parent is now, and can be given less than all there is.
//!
//! Hosts have version 2, version 1, or both at once: then each controller is in one of them. Of
//! version 2 a run gets one group with one for its task in it; of version 1 one for its task in the
//! hierarchy of each controller.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::cores;
use super::device_program;
use super::devices;
use super::files::ExecSpec;
use crate::isolation::TaskLimits;
use crate::proc::GroupUsage;

/// The group of all tasks where the configuration names none: of version 2 and 1.
const PARENT: &str = "drover.slice";
const PARENT_V1: &str = "drover";
/// How deep groups that a task made within its own are looked for.
const DEPTH: usize = 8;
/// The controllers of version 1 that are of use.
const USED_V1: [&str; 5] = [
    "cpu",
    cores::CONTROLLER,
    devices::CONTROLLER,
    "freezer",
    "memory",
];
/// Those of version 2.
const USED: [&str; 3] = ["cpu", cores::CONTROLLER, "memory"];
/// The group of the task within that of its run, and the one of its executor.
const TASK: &str = "task";
const EXECUTOR: &str = "executor";
/// Limits on processors in version 1 and 2: from and to.
const SHARES: (u64, u64) = (2, 262_144);
const WEIGHTS: (u64, u64) = (1, 10_000);

/// The groups below which runs get theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// The group of version 2.
    pub unified: Option<PathBuf>,
    /// The groups of version 1, by controller.
    pub v1: BTreeMap<String, PathBuf>,
    /// Those of version 2 are given programs that decide about devices.
    pub device_programs: bool,
}

impl Parents {
    /// All that this host has, made if they are not there: `named` by the configuration, or our
    /// own. None where we may not make any.
    pub fn of_host(named: &str) -> Self {
        let mut out = Self {
            unified: parent(named),
            ..Self::default()
        };
        if !rustix::process::geteuid().is_root() {
            return out;
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for (controller, mount) in mounts_v1(&mounts) {
            let path = mount.join(name(named, PARENT_V1));
            let made = fs::create_dir_all(&path);
            let made = made.and_then(|()| match controller.as_str() {
                // Groups are made without any.
                cores::CONTROLLER => {
                    let made: Vec<&Path> = path.ancestors().take_while(|p| *p != mount).collect();
                    made.iter()
                        .rev()
                        .try_for_each(|path| cores::keep(path, &[]))
                }
                _ => Ok(()),
            });
            if made.is_ok() {
                out.v1.insert(controller, path);
            }
        }
        for controller in USED.iter().filter(|c| !out.v1.contains_key(**c)) {
            // A controller that could not be handed on is missing where a run needs it.
            let _ = out.unified.as_ref().map(|path| hand_on(path, controller));
        }
        let is_held = out.v1.contains_key(devices::CONTROLLER);
        out.device_programs = !is_held && out.unified.is_some() && device_program::can_load();
        out
    }

    /// Those that raw tasks are held in: nothing limits them.
    #[must_use]
    pub fn holding(&self) -> Self {
        let freezer = |controller: &str| self.unified.is_none() && controller == "freezer";
        let v1 = self.v1.iter().filter(|(controller, _)| freezer(controller));
        Self {
            unified: self.unified.clone(),
            v1: v1.map(|(c, path)| (c.clone(), path.clone())).collect(),
            device_programs: false,
        }
    }

    /// Below this groups are kept to their cores; none where nothing does that.
    pub(super) fn cpuset_parent(&self) -> Option<PathBuf> {
        let unified = self.unified.as_ref();
        let unified = unified.filter(|path| path.join("cpuset.cpus.effective").exists());
        self.v1.get(cores::CONTROLLER).or(unified).cloned()
    }

    /// The group that keeps a run to its cores.
    pub(super) fn cpuset(&self, spec: &ExecSpec) -> Option<PathBuf> {
        self.cpuset_parent()?;
        let unified = || spec.cgroup.as_ref().map(|path| path.join(TASK));
        spec.cgroups_v1
            .get(cores::CONTROLLER)
            .cloned()
            .or_else(unified)
    }

    /// Whether a task can be given less than all rights to a device.
    pub fn hold_devices(&self) -> bool {
        self.device_programs || self.v1.contains_key(devices::CONTROLLER)
    }

    /// Why tasks cannot be held and limited here; `None` where they can.
    pub fn missing(&self) -> Option<&'static str> {
        let unified = |file: &str| {
            let path = self.unified.as_ref();
            let list = path.map(|path| fs::read_to_string(path.join("cgroup.controllers")));
            let list = list.and_then(Result::ok).unwrap_or_default();
            list.split_ascii_whitespace().any(|one| one == file)
        };
        let has = |controller: &str| self.v1.contains_key(controller) || unified(controller);
        if self.unified.is_none() && self.v1.is_empty() {
            return Some("Failed to discover cgroup mount point");
        }
        if self.unified.is_none() && !self.v1.contains_key("freezer") {
            return Some("no control group kills or freezes tasks");
        }
        if !has("memory") {
            return Some("no control group limits memory");
        }
        (!has("cpu")).then_some("no control group shares processors")
    }

    /// The groups of a run: names of what is made when it starts.
    pub fn run(&self, name: &str, spec: &mut ExecSpec) {
        spec.cgroup = self.unified.as_ref().map(|path| path.join(name));
        let v1 = self.v1.iter();
        spec.cgroups_v1 = v1.map(|(c, path)| (c.clone(), path.join(name))).collect();
        spec.device_program = self.device_programs;
    }
}

fn name<'a>(named: &'a str, usual: &'a str) -> &'a str {
    match named.trim_matches('/') {
        "" => usual,
        name => name,
    }
}

/// The group of version 2 below which runs get theirs, made if it is not there. `None` where there
/// is no version 2, or we may not make groups.
pub fn parent(named: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let path = mount(&mounts)?.join(name(named, PARENT));
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

/// Where the controllers of version 1 are that are of use.
fn mounts_v1(mounts: &str) -> Vec<(String, PathBuf)> {
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let used = options.split(',').filter(|one| USED_V1.contains(one));
        let used: Vec<_> = used.map(|one| (one.to_owned(), path.into())).collect();
        (kind == "cgroup").then_some(used)
    };
    mounts.lines().filter_map(of_line).flatten().collect()
}

/// The groups of a run.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    unified: Option<PathBuf>,
    v1: BTreeMap<String, PathBuf>,
}

impl Groups {
    /// Those that a specification names.
    pub fn of(spec: &ExecSpec) -> Self {
        Self {
            unified: spec.cgroup.clone(),
            v1: spec.cgroups_v1.clone(),
        }
    }

    /// Makes them and enters that of the run; a process that writes `0` to each of the answered
    /// files is the run's task from then on. Neither is in the agent's own group any more, so
    /// a process that ends that group, a service manager for one, ends the agent alone.
    ///
    /// # Errors
    /// The kernel refused it. What was made is removed by [`Groups::leave`].
    pub fn make(&self, spec: &ExecSpec) -> io::Result<Vec<File>> {
        let (limits, given) = (spec.limits, &spec.devices);
        let own = match spec.cores.is_empty() {
            true => &spec.shared_cores,
            false => &spec.cores,
        };
        let mut doors = Vec::new();
        if let Some(path) = &self.unified {
            let task = path.join(TASK);
            let executor = path.join(EXECUTOR);
            fs::create_dir_all(&executor)?;
            enter(&executor)?;
            fs::create_dir_all(&task)?;
            self.limit_unified(path, limits)?;
            if !self.v1.contains_key(cores::CONTROLLER) && !own.is_empty() {
                hand_on(path, cores::CONTROLLER)?;
                cores::keep(&task, own)?;
            }
            if spec.device_program {
                devices::allow_unified(&task, given)?;
            }
            doors.push(door(&task)?);
        }
        for (controller, path) in &self.v1 {
            fs::create_dir_all(path)?;
            match controller.as_str() {
                cores::CONTROLLER => cores::keep(path, own)?,
                devices::CONTROLLER => devices::allow(path, given)?,
                controller => limit_v1(controller, path, limits)?,
            }
            doors.push(door(path)?);
        }
        Ok(doors)
    }

    fn limit_unified(&self, run: &Path, limits: TaskLimits) -> io::Result<()> {
        let wants = |controller: &str| match controller {
            "memory" => limits.memory > 0,
            "cpu" => limits.cpu_shares > 0,
            _ => false,
        };
        let old = |controller: &&&str| !self.v1.contains_key(**controller);
        for controller in USED.iter().filter(old).filter(|c| wants(c)) {
            hand_on(run, controller)?;
            let task = run.join(TASK);
            if *controller == "cpu" {
                put(&task, "cpu.weight", weight(limits.cpu_shares))?;
                continue;
            }
            put(&task, "memory.max", most(limits, "max"))?;
            if limits.memory_max > limits.memory {
                put(&task, "memory.low", limits.memory)?;
            }
            // Where nothing can be swapped out there is no such file.
            let _ = put(&task, "memory.swap.max", 0);
        }
        Ok(())
    }

    /// Kills everything of a run's task. A group that is gone holds nothing.
    pub fn kill(&self) {
        if let Some(path) = &self.unified {
            let _ = fs::write(path.join(TASK).join("cgroup.kill"), "1");
        } else if let Some(path) = self.v1.get("freezer") {
            kill_frozen(path);
        }
    }

    /// How often the kernel killed something in it for its memory.
    pub fn killed_for_memory(&self) -> u64 {
        let v1 = self.read_number_v1("memory", "memory.oom_control", "oom_kill");
        let unified = self.read_number_unified("memory.events", "oom_kill");
        v1.unwrap_or(0) + unified.unwrap_or(0)
    }

    /// What they count of the task, each where one of them does.
    pub fn usage(&self) -> GroupUsage {
        let memory = |name: &str| self.read_number_v1("memory", "memory.stat", name);
        let cpu = |name: &str| self.read_number_v1("cpu", "cpu.stat", name);
        let unified = |file: &str, name: &str| self.read_number_unified(file, name);
        let swap = || -> Option<u64> {
            let path = self.unified.as_ref()?.join(TASK);
            let text = fs::read_to_string(path.join("memory.swap.current")).ok()?;
            text.trim().parse().ok()
        };
        let periods = || unified("cpu.stat", "nr_throttled");
        let time = || Some(unified("cpu.stat", "throttled_usec")?.saturating_mul(1_000));
        GroupUsage {
            cache: memory("total_cache").or_else(|| unified("memory.stat", "file")),
            swap: memory("total_swap").or_else(swap),
            throttled_periods: cpu("nr_throttled").or_else(periods),
            throttled_time: cpu("throttled_time").or_else(time),
        }
    }

    fn read_number_v1(&self, controller: &str, file: &str, name: &str) -> Option<u64> {
        read_number(&self.v1.get(controller)?.join(file), name)
    }

    fn read_number_unified(&self, file: &str, name: &str) -> Option<u64> {
        read_number(&self.unified.as_ref()?.join(TASK).join(file), name)
    }

    /// Leaves the group of the run, and removes what there is.
    pub fn leave(&self) {
        if let Some(path) = &self.unified {
            // A group that hands controllers on holds no process; the top one may.
            let _ = above(path).skip(1).find(|above| enter(above).is_ok());
        }
        self.remove();
    }

    /// Removes groups and those in them, once they are empty; others stay.
    pub fn remove(&self) {
        for path in self.unified.iter().chain(self.v1.values()) {
            remove(path);
        }
    }
}

/// The number behind a name in a file of a group.
fn read_number(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.find(|(found, _)| *found == name)?;
    number.trim().parse().ok()
}

/// Groups of version 2 from one to the top.
fn above(path: &Path) -> impl Iterator<Item = &Path> {
    let is_group = |path: &&Path| path.join("cgroup.controllers").exists();
    path.ancestors().take_while(is_group)
}

/// Lets a group and all above it give a controller to those in them.
fn hand_on(path: &Path, controller: &str) -> io::Result<()> {
    let all: Vec<&Path> = above(path).collect();
    for group in all.iter().rev() {
        let file = group.join("cgroup.subtree_control");
        fs::write(&file, format!("+{controller}")).map_err(|e| at(&file, &e))?;
    }
    Ok(())
}

/// The memory that may be used; `all` where that is without a limit.
fn most(limits: TaskLimits, all: &str) -> String {
    match limits.memory.max(limits.memory_max) {
        u64::MAX => all.to_owned(),
        bytes => bytes.to_string(),
    }
}

/// Shares of version 1 as a weight of version 2: ends fall on ends.
fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(SHARES.0, SHARES.1);
    WEIGHTS.0 + (shares - SHARES.0) * (WEIGHTS.1 - WEIGHTS.0) / (SHARES.1 - SHARES.0)
}

fn limit_v1(controller: &str, path: &Path, limits: TaskLimits) -> io::Result<()> {
    match controller {
        "memory" if limits.memory > 0 => {
            put(path, "memory.limit_in_bytes", most(limits, "-1"))?;
            if limits.memory_max > limits.memory {
                put(path, "memory.soft_limit_in_bytes", limits.memory)?;
            }
            // Where nothing can be swapped out there may be no such file.
            let _ = put(path, "memory.swappiness", 0);
            Ok(())
        }
        "cpu" if limits.cpu_shares > 0 => {
            let shares = limits.cpu_shares.clamp(SHARES.0, SHARES.1);
            put(path, "cpu.shares", shares)
        }
        _ => Ok(()),
    }
}

fn put(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let file = group.join(file);
    fs::write(&file, value.to_string()).map_err(|e| at(&file, &e))
}

fn at(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn door(group: &Path) -> io::Result<File> {
    File::options().write(true).open(group.join("cgroup.procs"))
}

fn enter(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), "0")
}

/// Kills what is in a group of version 1: frozen, it makes no children meanwhile.
fn kill_frozen(path: &Path) {
    let state = path.join("freezer.state");
    let _ = fs::write(&state, "FROZEN");
    let all = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in all.lines().filter_map(|line| line.trim().parse().ok()) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = fs::write(&state, "THAWED");
}

/// Kills all that is in a group, or in those in it, where its kind can.
pub fn kill(path: &Path) {
    if path.join("cgroup.kill").exists() {
        let _ = fs::write(path.join("cgroup.kill"), "1");
    } else if path.join("freezer.state").exists() {
        kill_frozen(path);
    }
}

/// Whether no process is in a group, nor in those in it. One that cannot be read may hold some.
pub(super) fn is_empty(path: &Path) -> bool {
    is_empty_below(path, DEPTH)
}

fn is_empty_below(path: &Path, depth: usize) -> bool {
    match fs::read_to_string(path.join("cgroup.procs")) {
        // It is gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
        Ok(all) if all.trim().is_empty() => {}
        _ => return false,
    }
    let Ok(entries) = fs::read_dir(path) else {
        return !path.exists();
    };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut inner = entries.flatten().filter(is_dir);
    inner.all(|entry| depth > 0 && is_empty_below(&entry.path(), depth - 1))
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
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /m cgroup rw,memory 0 0\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount("proc /proc proc rw 0 0\n"), None);
        let v1 = [("cpu", "/sys/fs/cgroup/cpu"), ("memory", "/m")];
        let v1 = v1.map(|(c, path)| (c.to_owned(), PathBuf::from(path)));
        assert_eq!(mounts_v1(mounts), v1);
    }

    #[test]
    fn what_each_version_counts_is_read_and_nothing_else_is_told() {
        let tmp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tmp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mut groups = Groups {
            unified: Some(tmp.path().join("run")),
            v1: BTreeMap::new(),
        };
        assert_eq!(groups.usage(), GroupUsage::default());
        // A group that shares no processors counts their time all the same, and no more.
        write("run/task/cpu.stat", "usage_usec 7\nuser_usec 7\n");
        assert_eq!(groups.usage(), GroupUsage::default());
        let stat = "usage_usec 7\nnr_periods 9\nnr_throttled 3\nthrottled_usec 5\n";
        write("run/task/cpu.stat", stat);
        write("run/task/memory.stat", "anon 1\nfile 4096\nfile_mapped 2\n");
        write("run/task/memory.swap.current", "8192\n");
        let mut wanted = GroupUsage {
            cache: Some(4_096),
            swap: Some(8_192),
            throttled_periods: Some(3),
            throttled_time: Some(5_000),
        };
        assert_eq!(groups.usage(), wanted);
        write("v1/memory.stat", "cache 1\ntotal_cache 16384\n");
        write(
            "v1/cpu.stat",
            "nr_periods 9\nnr_throttled 2\nthrottled_time 6\n",
        );
        let v1 = |controller: &str| (controller.to_owned(), tmp.path().join("v1"));
        groups.v1 = ["cpu", "memory"].map(v1).into();
        wanted.cache = Some(16_384);
        (wanted.throttled_periods, wanted.throttled_time) = (Some(2), Some(6));
        assert_eq!(groups.usage(), wanted, "a controller is in one of the two");
    }

    #[test]
    fn limits_are_written_as_each_version_has_them() {
        let tmp = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(tmp.path().join(path)).unwrap_or_default();
        let limits = TaskLimits {
            cpu_shares: 500,
            memory: 64 << 20,
            memory_max: 128 << 20,
        };
        let path = |path: &str| tmp.path().join(path);
        fs::create_dir_all(path("top/parent/run/task")).unwrap();
        for group in ["top", "top/parent", "top/parent/run"] {
            fs::write(path(group).join("cgroup.controllers"), "cpu memory").unwrap();
        }
        let groups = Groups {
            unified: Some(path("top/parent/run")),
            v1: BTreeMap::new(),
        };
        groups
            .limit_unified(&path("top/parent/run"), limits)
            .unwrap();
        for group in ["top", "top/parent", "top/parent/run"] {
            assert_eq!(read(&format!("{group}/cgroup.subtree_control")), "+memory");
        }
        assert_eq!(read("top/parent/run/task/memory.max"), "134217728");
        assert_eq!(read("top/parent/run/task/memory.low"), "67108864");
        assert_eq!(read("top/parent/run/task/memory.swap.max"), "0");
        assert_eq!(read("top/parent/run/task/cpu.weight"), "19");
        fs::write(
            path("top/parent/run/task/memory.events"),
            "oom 3\noom_kill 2\n",
        )
        .unwrap();
        assert_eq!(groups.killed_for_memory(), 2);

        fs::create_dir_all(path("v1")).unwrap();
        for controller in USED_V1 {
            limit_v1(controller, &path("v1"), limits).unwrap();
        }
        assert_eq!(read("v1/memory.limit_in_bytes"), "134217728");
        assert_eq!(read("v1/memory.soft_limit_in_bytes"), "67108864");
        assert_eq!(read("v1/cpu.shares"), "500");
        let all = TaskLimits {
            memory_max: u64::MAX,
            ..limits
        };
        limit_v1("memory", &path("v1"), all).unwrap();
        groups.limit_unified(&path("top/parent/run"), all).unwrap();
        assert_eq!(read("v1/memory.limit_in_bytes"), "-1");
        assert_eq!(read("top/parent/run/task/memory.max"), "max");
        // A controller that is in version 1 is not used in version 2.
        fs::create_dir_all(path("both/task")).unwrap();
        let v1 = USED.map(|c| (c.to_owned(), path("v1")));
        let groups = Groups {
            unified: Some(path("both")),
            v1: v1.into(),
        };
        groups.limit_unified(&path("both"), limits).unwrap();
        assert_eq!(fs::read_dir(path("both/task")).unwrap().count(), 0);
        for (shares, wanted) in [
            (0, 1),
            (2, 1),
            (1024, 39),
            (262_144, 10_000),
            (u64::MAX, 10_000),
        ] {
            assert_eq!(weight(shares), wanted);
        }
    }
}
