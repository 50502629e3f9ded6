//! Tasks in control groups of this host: which devices they have, what is counted of them, and what
//! becomes of groups that no agent knows any more.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_testkit::LONG;
use rustix::process::Signal;

use super::cgroup::{self, Parents};
use super::executor_test::{Run, launcher, until};
use super::measure::Measure;
use super::sweep;
use super::world_test::{Apart, can, named};
use super::{device_program, devices};
use crate::drivers::{Device, TaskLimits};

/// Groups of a test; they are removed with this.
struct Places(Parents);

impl Places {
    fn new(what: &str) -> Self {
        let name = format!("drover-{what}-{}", std::process::id());
        Self(Parents::of_host(&name))
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.unified.iter().chain(self.0.v1.values())
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.all().for_each(|path| cgroup::remove(path));
    }
}

#[tokio::test]
async fn drv_06_a_task_has_the_devices_that_it_is_given_with_the_rights_that_it_is_given() {
    if !can("rights to devices") {
        return;
    }
    let places = Places::new("devices");
    if !places.0.hold_devices() {
        return drover_testkit::skip("rights to devices", "nothing here holds them");
    }
    rights_are_held(&places.0).await;
    // Where version 1 holds them, version 2 can as well, and is made to.
    let mut unified = places.0.clone();
    let by_v1 = unified.v1.remove(devices::CONTROLLER).is_some();
    if by_v1 && unified.unified.is_some() && device_program::can_load() {
        unified.device_programs = true;
        rights_are_held(&unified).await;
    }
}

async fn rights_are_held(parents: &Parents) {
    let device = |host: &str, task: &str, permissions: &str| Device {
        host_path: host.into(),
        task_path: task.into(),
        permissions: permissions.into(),
        ..Device::default()
    };
    // A shell says where its own redirection fails, whatever the command would do.
    let script = "try() { if (eval \"$1\") 2>/dev/null; then echo yes; else echo no; fi; }; \
                  for at in both read write; do \
                  try \": < /dev/$at\"; try \": > /dev/$at\"; done; \
                  try 'mknod /made c 1 5'; try 'mknod /made c 1 8'; \
                  try 'mknod /made b 7 0'; \
                  try ': > /dev/null'; try 'test $(head -c 1 /dev/urandom | wc -c) = 1'";
    let apart = Apart::new();
    let mut spec = apart.spec(script);
    spec.user = "root".into();
    spec.devices = vec![
        device("/dev/random", "/dev/both", "rwm"),
        device("/dev/zero", "/dev/read", "r"),
        device("/dev/full", "/dev/write", "w"),
    ];
    parents.run("a.1", &mut spec);
    let (text, exit) = apart.end(&spec).await;
    let stderr = apart.run.out("stderr");
    assert_eq!((exit.exit_code, exit.error.as_str()), (0, ""), "{stderr}");
    let text: Vec<String> = text
        .lines()
        .map(|line| line.chars().filter(char::is_ascii_lowercase).collect())
        .collect();
    let wanted = [["yes", "yes"], ["yes", "no"], ["no", "yes"], ["no", "yes"]];
    assert_eq!(text[..8], wanted.concat(), "{stderr}");
    assert_eq!(text[8], "no", "of a device that it was not given");
    assert_eq!(text[9..], ["yes", "yes"]);

    // What is no device is not given, and what cannot be held is not begun.
    let second = Apart::new();
    let mut spec = second.spec("echo no");
    spec.devices = vec![device("/etc/passwd", "/dev/mine", "rw")];
    parents.run("a.2", &mut spec);
    let error = second.launch(&spec).await.unwrap_err().to_string();
    assert!(error.contains("device /etc/passwd: it is none"), "{error}");
}

#[tokio::test]
async fn what_control_groups_count_of_a_task_is_in_its_samples() {
    if !can("counting by control groups") {
        return;
    }
    let places = Places::new("counted");
    if let Some(why) = places.0.missing() {
        return drover_testkit::skip("counting by control groups", why);
    }
    let run = Run::new();
    let mut spec = run.shell("exec sleep 1000");
    spec.limits = TaskLimits {
        cpu_shares: 100,
        memory: 64 << 20,
        ..TaskLimits::default()
    };
    places.0.run("a.1", &mut spec);
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    let mut measures = executor.measure(LONG).await.unwrap();
    let reported = tokio::time::timeout(LONG, measures.next()).await;
    let usage = match reported {
        Ok(Measure::Sample { usage, .. }) => usage,
        other => panic!("no sample at once: {other:?}"),
    };
    assert!(usage.group.cache.is_some(), "{usage:?}");
    assert_eq!(usage.group.throttled_periods, Some(0), "{usage:?}");
    assert_eq!(usage.group.throttled_time, Some(0), "{usage:?}");
    executor
        .stop(Signal::KILL.as_raw(), Duration::ZERO)
        .unwrap();
    executor.wait().await;
}

#[tokio::test]
async fn drv_06_groups_that_no_run_has_are_emptied_and_removed_and_no_others() {
    if !can("control groups of lost runs") {
        return;
    }
    let places = Places::new("sweep");
    if places.all().next().is_none() {
        return drover_testkit::skip("control groups of lost runs", "this host has none");
    }
    let runs = tempfile::tempdir().unwrap();
    let run_dir = |alloc: &str| runs.path().join(alloc).join("web").join("1");
    let another = Path::new("/another/agent/tasks");
    let mut all = Vec::new();
    for (alloc, of, is_lost) in [
        ("a1", runs.path(), true),
        ("a2", runs.path(), false),
        ("a3", another, true),
    ] {
        let mut run = Run::new();
        run.dir.0 = run_dir(alloc);
        let mark = format!("7{alloc}{}", std::process::id()).replace('a', "");
        let mut spec = run.shell(&format!("setsid sleep {mark} & exec sleep {mark}"));
        let name = sweep::name(of, alloc);
        places.0.holding().run(&name, &mut spec);
        let executor = launcher().launch(&run.dir, &spec).await.unwrap();
        until("both run", || named(&mark).len() == 2).await;
        if is_lost {
            fs::remove_dir_all(&run.dir.0).unwrap();
        }
        let groups = spec.cgroup.into_iter().chain(spec.cgroups_v1.into_values());
        let groups: Vec<PathBuf> = groups.collect();
        assert!(!groups.is_empty() && groups.iter().all(|group| group.exists()));
        all.push((alloc, mark, groups, executor, run));
    }
    let (dir, parents) = (runs.path().to_owned(), places.0.clone());
    let swept = tokio::task::spawn_blocking(move || sweep::sweep(&dir, &parents));
    assert_eq!(
        swept.await.unwrap().unwrap(),
        all[0].2.len(),
        "one of each kind"
    );
    for (alloc, mark, groups, executor, _run) in &all {
        let swept = *alloc == "a1";
        until(alloc, || named(mark).is_empty() == swept).await;
        assert!(
            groups.iter().all(|group| group.exists() != swept),
            "{alloc}"
        );
        executor.end();
        until("nothing is left of the test", || named(mark).is_empty()).await;
        groups.iter().for_each(|group| cgroup::kill(group));
        until("its groups are gone", || {
            groups.iter().for_each(|group| cgroup::remove(group));
            groups.iter().all(|group| !group.exists())
        })
        .await;
    }
}
