//! On which cores tasks run, by control groups: tasks with reserved cores have those and no others,
//! and tasks without share the rest, less what an operator keeps for the machine. A task cannot
//! leave its group, whatever it requests of the kernel for itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::cgroup::{self, Parents};
use super::files::ExecSpec;
use crate::env::cpu_set;

pub(super) const CONTROLLER: &str = "cpuset";
/// Its file of cores.
const CPUS: &str = "cpuset.cpus";
/// That of memory, which version 1 wants filled in first.
const MEMS: &str = "cpuset.mems";

/// The cores that the tasks of one agent have.
#[derive(Debug, Default)]
pub(crate) struct Cores {
    /// What no task gets.
    kept: Vec<u16>,
    /// By the groups of tasks.
    runs: Mutex<ByGroup>,
}

type ByGroup = BTreeMap<PathBuf, RunOnCores>;

/// What a run has of the cores.
#[derive(Debug)]
struct RunOnCores {
    /// None for a task that shares.
    reserved: Vec<u16>,
    /// It is a former agent's and was not found again: nobody may ever end it here.
    is_former: bool,
}

impl RunOnCores {
    /// Whether what it reserved is nobody else's. The group of a run that begins may be empty, or
    /// not there yet; a former agent's run is over where nothing runs in its group any more.
    fn holds(&self, group: &Path) -> bool {
        let is_over = self.is_former && cgroup::is_empty(group);
        !is_over && !self.reserved.is_empty()
    }
}

impl Cores {
    /// No task gets these.
    pub(crate) fn keeping(kept: Vec<u16>) -> Self {
        Self {
            kept,
            runs: Mutex::default(),
        }
    }

    /// Runs of a former agent, before the first of them is found again: what one of them reserved
    /// is shared with no other until it ends, or nothing runs in its group.
    pub(crate) fn restore(&self, parents: &Parents, specs: Vec<ExecSpec>) {
        let mut runs = self.runs.lock();
        for spec in specs {
            // Nothing runs in a group that is gone.
            if let Some(group) = parents.cpuset(&spec).filter(|group| group.exists()) {
                let run = RunOnCores {
                    reserved: spec.cores,
                    is_former: true,
                };
                runs.insert(group, run);
            }
        }
    }

    /// A run begins, or was found again. One that has no cores reserved gets those that it shares.
    pub(crate) fn begin(&self, parents: &Parents, spec: &mut ExecSpec) {
        let Some(group) = parents.cpuset(spec) else {
            return;
        };
        let mut runs = self.runs.lock();
        let run = RunOnCores {
            reserved: spec.cores.clone(),
            is_former: false,
        };
        runs.insert(group, run);
        if spec.cores.is_empty() {
            spec.shared_cores = self.free(&runs, parents);
        } else {
            self.share(&runs, parents);
        }
    }

    /// A run is over: its cores are everybody's again.
    pub(crate) fn end(&self, parents: &Parents, spec: &ExecSpec) {
        let Some(group) = parents.cpuset(spec) else {
            return;
        };
        let mut runs = self.runs.lock();
        let ended = runs.remove(&group);
        if ended.is_some_and(|run| !run.reserved.is_empty()) {
            self.share(&runs, parents);
        }
    }

    /// Decides the shared cores anew: a group was made that was not there when that was last done,
    /// or what was left of a former agent's runs may have ended.
    pub(crate) fn share_anew(&self, parents: &Parents) {
        self.share(&self.runs.lock(), parents);
    }

    /// Cores that no task reserved; all that tasks may have where every one of them is reserved.
    fn free(&self, runs: &ByGroup, parents: &Parents) -> Vec<u16> {
        let all = parents
            .cpuset_parent()
            .map_or_else(Vec::new, |parent| of_group(&parent));
        let all = without(all, |core| self.kept.contains(core));
        let held = runs.iter().filter(|(group, run)| run.holds(group));
        let taken: Vec<u16> = held.flat_map(|(_, run)| run.reserved.clone()).collect();
        without(all, |core| taken.contains(core))
    }

    /// Writes the cores that are left to the groups of the tasks that share them.
    fn share(&self, runs: &ByGroup, parents: &Parents) {
        let cores = cpu_set(&self.free(runs, parents));
        for (group, _) in runs.iter().filter(|(_, run)| run.reserved.is_empty()) {
            // One that is not there yet has them from its specification, one that is gone needs
            // none.
            if let Err(e) = fs::write(group.join(CPUS), &cores)
                && e.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("a task keeps the cores it has: {}: {e}", group.display());
            }
        }
    }
}

/// Those that are not taken; all where nothing would be left.
fn without(all: Vec<u16>, is_taken: impl Fn(&u16) -> bool) -> Vec<u16> {
    let free: Vec<u16> = all.iter().copied().filter(|core| !is_taken(core)).collect();
    if free.is_empty() { all } else { free }
}

/// Keeps what is in a group to these cores; to those of the group above where there are none.
pub(super) fn keep(group: &Path, cores: &[u16]) -> io::Result<()> {
    let above = group.parent().unwrap_or(group);
    for (file, value) in [(MEMS, String::new()), (CPUS, cpu_set(cores))] {
        let path = group.join(file);
        let of = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let value = match value.is_empty() {
            // What was written there before stays.
            true if !of(path.clone()).trim().is_empty() => continue,
            true => of(above.join(file)),
            false => value,
        };
        // Version 2 takes an empty one for that of the group above; version 1 never has one.
        if !value.trim().is_empty() {
            let explained =
                |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
            fs::write(&path, value.trim()).map_err(explained)?;
        }
    }
    Ok(())
}

/// The cores of a group.
fn of_group(group: &Path) -> Vec<u16> {
    let effective = fs::read_to_string(group.join("cpuset.cpus.effective"));
    let list = effective.or_else(|_| fs::read_to_string(group.join(CPUS)));
    drover_config::core_list(&list.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drv_06_cores_that_are_reserved_are_nobody_elses_until_their_run_is_over() {
        let tmp = tempfile::tempdir().unwrap();
        let parents = Parents {
            v1: [(CONTROLLER.to_owned(), tmp.path().to_owned())].into(),
            ..Parents::default()
        };
        fs::write(tmp.path().join(CPUS), "0-3,6\n").unwrap();
        fs::write(tmp.path().join(MEMS), "0\n").unwrap();
        let cores = Cores::default();
        let begin = |name: &str, reserved: &[u16]| {
            let mut spec = ExecSpec {
                cores: reserved.to_vec(),
                ..ExecSpec::default()
            };
            parents.run(name, &mut spec);
            cores.begin(&parents, &mut spec);
            fs::create_dir(tmp.path().join(name)).unwrap();
            let own = if reserved.is_empty() {
                &spec.shared_cores
            } else {
                &spec.cores
            };
            keep(&tmp.path().join(name), own).unwrap();
            cores.share_anew(&parents);
            spec
        };
        let of = |name: &str| fs::read_to_string(tmp.path().join(name).join(CPUS)).unwrap();
        let _one = begin("one", &[]);
        assert_eq!(of("one"), "0-3,6");
        assert_eq!(
            fs::read_to_string(tmp.path().join("one").join(MEMS)).unwrap(),
            "0"
        );
        let two = begin("two", &[1, 6]);
        assert_eq!(
            (of("one"), of("two")),
            ("0,2-3".to_owned(), "1,6".to_owned())
        );
        let _three = begin("three", &[]);
        assert_eq!(of("three"), "0,2-3");
        let four = begin("four", &[0, 2, 3]);
        assert_eq!(of("one"), "0-3,6", "none are left: they share with all");
        cores.end(&parents, &two);
        assert_eq!(
            (of("one"), of("four")),
            ("1,6".to_owned(), "0,2-3".to_owned())
        );
        cores.end(&parents, &four);
        cores.end(&parents, &four);
        assert_eq!(
            (of("one"), of("three")),
            ("0-3,6".to_owned(), "0-3,6".to_owned())
        );
    }

    #[test]
    fn cores_of_a_former_agents_run_are_everybodys_once_nothing_runs_in_its_group() {
        let tmp = tempfile::tempdir().unwrap();
        let parents = Parents {
            v1: [(CONTROLLER.to_owned(), tmp.path().to_owned())].into(),
            ..Parents::default()
        };
        fs::write(tmp.path().join(CPUS), "0-3\n").unwrap();
        let spec = |name: &str, reserved: &[u16]| {
            let mut spec = ExecSpec {
                cores: reserved.to_vec(),
                ..ExecSpec::default()
            };
            parents.run(name, &mut spec);
            spec
        };
        let all = [("lives", [0_u16]), ("deep", [1]), ("ended", [2])];
        let procs = |name: &str| tmp.path().join(name).join("cgroup.procs");
        for (name, running) in [
            ("lives", "7\n"),
            ("deep", ""),
            ("deep/own", "8\n"),
            ("ended", ""),
        ] {
            fs::create_dir(tmp.path().join(name)).unwrap();
            fs::write(procs(name), running).unwrap();
        }
        let cores = Cores::default();
        cores.restore(&parents, all.map(|(name, own)| spec(name, &own)).into());
        let shared = || {
            let mut next = spec("next", &[]);
            cores.begin(&parents, &mut next);
            next.shared_cores
        };
        assert_eq!(shared(), [2, 3]);
        // Its executor lives and has not begun the task yet.
        fs::write(procs("ended"), "9\n").unwrap();
        assert_eq!(shared(), [3]);
        fs::remove_dir_all(tmp.path().join("lives")).unwrap();
        fs::write(procs("ended"), "").unwrap();
        assert_eq!(shared(), [0, 2, 3]);
        // What runs on the cores that were left gets those that are free now.
        fs::create_dir(tmp.path().join("next")).unwrap();
        cores.share_anew(&parents);
        let of_next = fs::read_to_string(tmp.path().join("next").join(CPUS));
        assert_eq!(of_next.unwrap(), "0,2-3");
        // One that is found again is this agent's to end.
        let mut found = spec("ended", &[2]);
        cores.begin(&parents, &mut found);
        assert_eq!(shared(), [0, 3]);
        cores.end(&parents, &found);
        assert_eq!(shared(), [0, 2, 3]);
    }

    #[test]
    fn cores_that_are_kept_for_the_machine_are_not_shared() {
        let tmp = tempfile::tempdir().unwrap();
        let parents = Parents {
            v1: [(CONTROLLER.to_owned(), tmp.path().to_owned())].into(),
            ..Parents::default()
        };
        fs::write(tmp.path().join(CPUS), "0-3\n").unwrap();
        let shared = |kept: &[u16], reserved: &[u16]| {
            let cores = Cores::keeping(kept.to_vec());
            let mut one = ExecSpec {
                cores: reserved.to_vec(),
                ..ExecSpec::default()
            };
            parents.run("one", &mut one);
            cores.begin(&parents, &mut one);
            let mut two = ExecSpec::default();
            parents.run("two", &mut two);
            cores.begin(&parents, &mut two);
            two.shared_cores
        };
        assert_eq!(shared(&[], &[]), [0, 1, 2, 3]);
        assert_eq!(shared(&[0, 9], &[]), [1, 2, 3]);
        assert_eq!(shared(&[0], &[1]), [2, 3]);
        assert_eq!(shared(&[0], &[1, 2, 3]), [1, 2, 3], "still not that");
        assert_eq!(shared(&[0, 1, 2, 3], &[]), [0, 1, 2, 3], "it has to run");
    }
}
