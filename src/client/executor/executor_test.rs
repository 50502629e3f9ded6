//! The executor as a real process: this test binary starts itself, and becomes the executor before
//! the test harness makes threads (the executor must be the only thread of its process).

use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_testkit::LONG;

use super::files::{ExecSpec, RunDir};
use super::launch::{Executor, LaunchError, Launcher, RunStatus};
use crate::proc;

const MARK: &str = "DROVER_TEST_EXECUTOR";
/// Names a directory: the process becomes an agent that runs the allocation in it.
pub(crate) const AGENT: &str = "DROVER_TEST_AGENT";

#[expect(
    unsafe_code,
    reason = "the harness offers no way to run before its threads"
)]
// SAFETY: the loader calls what lies in this section, with this signature, once, before main.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = become_something_else;

extern "C" fn become_something_else() {
    if let Some(dir) = std::env::var_os(AGENT) {
        crate::alloc::runner_test::agent(Path::new(&dir));
    }
    if std::env::var_os(super::keyring_test::ASK).is_some() {
        super::keyring_test::report();
    }
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let dir = std::env::args_os()
        .next_back()
        .expect("the run directory is the last argument");
    std::process::exit(super::run(Path::new(&dir)));
}

/// Starts executors as this very test binary.
pub(crate) fn launcher() -> Launcher {
    Launcher {
        program: std::env::current_exe().unwrap(),
        args: Vec::new(),
        env: vec![(MARK.to_owned(), "1".to_owned())],
    }
}

pub(super) struct Run {
    _tmp: tempfile::TempDir,
    pub(super) dir: RunDir,
    pub(super) logs: PathBuf,
}

impl Run {
    pub(super) fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let logs = tmp.path().join("logs");
        Self {
            dir: RunDir(tmp.path().join("run-1")),
            logs,
            _tmp: tmp,
        }
    }

    pub(super) fn shell(&self, script: &str) -> ExecSpec {
        ExecSpec {
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("GREETING".into(), "hi".into()),
            ],
            cwd: "/".into(),
            log_dir: self.logs.clone(),
            log_name: "web".into(),
            log_max_files: 3,
            log_max_bytes: 1 << 20,
            ..ExecSpec::default()
        }
    }

    pub(super) fn out(&self, stream: &str) -> String {
        std::fs::read_to_string(self.logs.join(format!("web.{stream}.0"))).unwrap_or_default()
    }
}

pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let ask = || condition().then_some(()).ok_or("not yet");
    drover_testkit::eventually(what, LONG, ask).await.unwrap();
}

#[tokio::test]
async fn drv_08_output_and_exit_code_are_recorded() {
    let run = Run::new();
    let spec = run.shell("echo $GREETING; echo oops >&2; exit 7");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    let exit = executor.wait().await;
    assert_eq!(
        (exit.exit_code, exit.signal, exit.error.as_str()),
        (7, 0, "")
    );
    assert_eq!(run.out("stdout"), "hi\n");
    assert_eq!(run.out("stderr"), "oops\n");
    assert!(matches!(Executor::find(&run.dir).await.unwrap(), RunStatus::Exited(e) if e == exit));
}

#[tokio::test]
async fn drv_08_a_command_that_is_not_there_is_told_at_once() {
    let run = Run::new();
    let spec = ExecSpec {
        command: "/nowhere/at/all".into(),
        ..run.shell("")
    };
    let error = launcher().launch(&run.dir, &spec).await.unwrap_err();
    assert!(matches!(&error, LaunchError::NotStarted(e) if e.contains("/nowhere/at/all")));
    // The executor that tried is no child of ours any more, not even a dead one.
    let held = std::fs::read_to_string(run.dir.lock()).unwrap();
    let pid: i32 = held.trim().parse().unwrap();
    until("it is buried", || proc::stat(pid).is_none()).await;
}

#[tokio::test]
async fn drv_06_a_stop_signals_first_and_then_kills_the_whole_tree() {
    let run = Run::new();
    // The first process ignores the signal; a grandchild leaves its session.
    let spec = run
        .shell("trap 'echo caught' INT; setsid sleep 1000 & echo up; while :; do sleep 0.02; done");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    until("the script is up", || run.out("stdout").contains("up")).await;
    let root = executor.state().executor_pid;
    until("the tree has grown", || proc::descendants(root).len() >= 2).await;
    let tree = proc::descendants(root);
    executor.stop(2, Duration::from_millis(300)).unwrap();
    let exit = executor.wait().await;
    assert_eq!(exit.signal, 9);
    assert!(run.out("stdout").contains("caught"));
    for process in tree {
        assert!(
            !proc::is_alive(process.pid, process.start),
            "{process:?} is left"
        );
    }
}

#[tokio::test]
async fn drv_08_a_signal_reaches_the_task() {
    let run = Run::new();
    let spec = run.shell("trap 'exit 5' USR1; echo up; while :; do sleep 0.02; done");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    until("the script is up", || run.out("stdout").contains("up")).await;
    executor.signal(10).unwrap();
    assert_eq!(executor.wait().await.exit_code, 5);
    assert!(executor.signal(10).is_err());
}

#[tokio::test]
async fn what_an_executor_writes_is_for_its_own_user_only() {
    let run = Run::new();
    let executor = launcher()
        .launch(&run.dir, &run.shell("sleep 1000"))
        .await
        .unwrap();
    let status = format!("/proc/{}/status", executor.state().executor_pid);
    let status = std::fs::read_to_string(status).unwrap();
    assert!(status.contains("\nUmask:\t0077\n"), "{status}");
    executor.stop(9, Duration::ZERO).unwrap();
    executor.wait().await;
}

#[tokio::test]
async fn drv_08_a_live_task_is_found_again_and_never_started_twice() {
    let run = Run::new();
    let spec = run.shell("trap 'exit 3' TERM; echo started; while :; do sleep 0.02; done");
    let first = launcher().launch(&run.dir, &spec).await.unwrap();
    let RunStatus::Live(again) = Executor::find(&run.dir).await.unwrap() else {
        panic!("the task lives");
    };
    assert_eq!(again.state(), first.state());
    // A second executor for the same run refuses.
    assert!(launcher().launch(&run.dir, &spec).await.is_err());
    until("the script is up", || run.out("stdout").contains("started")).await;
    again.stop(15, Duration::from_secs(10)).unwrap();
    assert_eq!(again.wait().await.exit_code, 3);
    assert_eq!(run.out("stdout"), "started\n");
}

#[tokio::test]
async fn drv_08_a_run_that_was_given_up_starts_nothing_later() {
    let run = Run::new();
    std::fs::create_dir_all(&run.dir.0).unwrap();
    assert!(matches!(
        Executor::find(&run.dir).await.unwrap(),
        RunStatus::NeverStarted
    ));
    assert!(
        launcher()
            .launch(&run.dir, &run.shell("echo no"))
            .await
            .is_err()
    );
    assert_eq!(run.out("stdout"), "");
}

#[tokio::test]
async fn drv_08_a_killed_executor_is_told_and_its_task_is_killed() {
    let run = Run::new();
    let executor = launcher()
        .launch(&run.dir, &run.shell("sleep 1000"))
        .await
        .unwrap();
    let state = executor.state().clone();
    let pid = rustix::process::Pid::from_raw(state.executor_pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let exit = executor.wait().await;
    assert!(exit.error.contains("killed"), "{exit:?}");
    until("the task is gone", || {
        !proc::is_alive(state.task_pid, state.task_start)
    })
    .await;
}
