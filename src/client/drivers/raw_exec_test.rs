//! The `raw_exec` driver: its configuration, starts that fail, and executors that do not obey.

use std::time::Instant;

use drover_testkit::{LONG, eventually, so};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::*;
use crate::env::TaskPaths;
use crate::executor::executor_test::launcher;
use crate::proc;

fn block(config: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(config).unwrap()
}

#[test]
fn drv_06_a_configuration_names_all_its_problems() {
    let config = block(json!({"comand": "x", "args": 3, "oom_score_adj": -5,
        "work_dir": "a", "cgroup_v1_override": {}, "cgroup_v2_override": "x"}));
    let text = RawExecConfig::read(&config).unwrap_err();
    for part in [
        "missing command",
        "args: expected",
        "comand: unknown key",
        "oom_score_adj must not be negative or above 1000",
        "work_dir must be an absolute path",
        "cgroup_v1_override is not supported by this client",
        "cgroup_v2_override is not supported by this client",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn drv_06_every_option_of_raw_exec_reaches_its_executor() {
    let runs = Runs {
        launcher: Launcher::current(),
        dir: "/nowhere".into(),
        cgroups: Parents::default(),
    };
    let env = ["A", "AWS_KEY", "AWS_ID", "B"];
    let task = TaskConfig {
        config: block(json!({"command": "run", "args": ["-v", 3],
            "oom_score_adj": 500, "work_dir": "/srv", "denied_envvars": ["AWS_*", "B"]})),
        env: env.map(|name| (name.to_owned(), "1".to_owned())).into(),
        ..TaskConfig::default()
    };
    let reported = spec(&task, &runs).unwrap();
    assert_eq!((&*reported.command, reported.oom_score_adj), ("run", 500));
    assert_eq!(reported.args, ["-v", "3"]);
    assert_eq!(reported.cwd, Path::new("/srv"));
    assert_eq!(reported.env, [("A".to_owned(), "1".to_owned())]);
    // It shares all with the host that the host has.
    assert_eq!(
        (reported.namespaces, reported.capabilities),
        Default::default()
    );
}

/// A task whose files are below `root`.
fn task(root: &Path, config: Value) -> TaskConfig {
    TaskConfig {
        alloc_id: "a".into(),
        task: "web".into(),
        run: 1,
        config: block(config),
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        paths: TaskPaths {
            root: root.to_owned(),
            ..TaskPaths::default()
        },
        log_dir: root.join("logs"),
        log_max_files: 2,
        log_max_bytes: 1 << 20,
        ..TaskConfig::default()
    }
}

#[tokio::test]
async fn only_a_command_that_cannot_be_started_is_not_tried_again() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("taken"), "where a directory should be").unwrap();
    for (runs, command, recoverable) in [
        ("runs", "/nowhere/at/all", false),
        ("taken", "/bin/true", true),
    ] {
        let driver = RawExec::new(true, launcher(), tmp.path().join(runs));
        let config = task(tmp.path(), json!({"command": command}));
        let Err(error) = driver.start(config).await else {
            panic!("{command} in {runs} starts");
        };
        assert_eq!(error.recoverable, recoverable, "{error}");
        let reported = "failed to launch command with executor: ";
        assert!(error.message.starts_with(reported), "{error}");
    }
}

#[tokio::test]
async fn an_executor_that_does_not_obey_is_ended_after_the_grace_and_some_patience() {
    let tmp = tempfile::tempdir().unwrap();
    let runs = Runs {
        launcher: launcher(),
        dir: tmp.path().join("runs"),
        cgroups: Parents::default(),
    };
    let config = json!({"command": "/bin/sh", "args": ["-c", "exec sleep 1000"]});
    let task = task(tmp.path(), config);
    let spec = spec(&task, &runs).unwrap();
    let dir = runs.run_dir(&task.alloc_id, &task.task, task.run);
    let executor = runs.launcher.launch(&dir, &spec).await.unwrap();
    let state = executor.state().clone();
    let (grace, stuck) = (Duration::from_millis(100), Duration::from_millis(200));
    let process = Process {
        stuck,
        ..Process::new(executor, task.run)
    };
    // It stands still, and takes notice of nothing.
    let pid = Pid::from_raw(state.executor_pid).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let requested = Instant::now();
    process.stop("SIGTERM", grace).unwrap();
    let exit = tokio::time::timeout(LONG, process.wait()).await.unwrap();
    assert!(
        requested.elapsed() >= grace + stuck,
        "{:?}",
        requested.elapsed()
    );
    assert_eq!((exit.exit_code, exit.signal), (137, 9), "{}", exit.error);
    let gone = || so(!proc::is_alive(state.task_pid, state.task_start));
    eventually("the task is gone", LONG, gone).await.unwrap();
}
