//! Tasks that do not want to end, and tasks that get at what is not theirs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup;
use super::executor_test::{Run, launcher, until};
use super::files::RunDir;
use super::launch::{Executor, RunStatus};
use crate::proc;

const SHORT: Duration = Duration::from_millis(200);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn pid_in(text: &str) -> Option<i32> {
    text.lines().next()?.trim().parse().ok()
}

fn alive(pid: i32) -> bool {
    proc::stat(pid).is_some_and(|stat| stat.state != 'Z')
}

#[tokio::test]
async fn drv_06_what_a_task_left_behind_is_gone_before_its_end_is_told() {
    let run = Run::new();
    let pids = tempfile::tempdir().unwrap();
    let here = pids.path().display();
    // Ten that left their session and parent and ignore whatever can be ignored, and make new ones
    // as long as they live.
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do \
         (setsid sh -c 'trap \"\" INT TERM HUP; : > {here}/$$; \
         while :; do (sleep 0.01 &); sleep 0.01; done' &); done; \
         until [ $(ls {here} | wc -l) -eq 10 ]; do sleep 0.02; done"
    );
    let executor = launcher().launch(&run.dir, &run.shell(&script)).await;
    let exit = executor.unwrap().wait().await;
    assert_eq!((exit.exit_code, exit.error.as_str()), (0, ""));
    let left: Vec<i32> = fs::read_dir(pids.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| alive(*pid))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn drv_06_a_process_whose_name_is_no_text_is_ended_too() {
    let run = Run::new();
    fs::create_dir_all(&run.logs).unwrap();
    let odd = run.logs.join(OsStr::from_bytes(b"\xff\xfe(no) text"));
    fs::copy("/bin/sleep", &odd).unwrap();
    let script = format!(
        "cd {}; ./*text 1000 & echo $!; sleep 1000",
        run.logs.display()
    );
    let executor = launcher()
        .launch(&run.dir, &run.shell(&script))
        .await
        .unwrap();
    until("it runs", || pid_in(&run.out("stdout")).is_some()).await;
    let pid = pid_in(&run.out("stdout")).unwrap();
    until("it is what it is called", || {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(b"\xff\xfe")
    })
    .await;
    executor.stop(15, Duration::ZERO).unwrap();
    executor.wait().await;
    assert!(!alive(pid));
}

#[tokio::test]
async fn drv_06_a_stop_that_cannot_be_written_down_kills() {
    let run = Run::new();
    let script = "trap '' INT; echo $$; while :; do sleep 0.05; done";
    let executor = launcher()
        .launch(&run.dir, &run.shell(script))
        .await
        .unwrap();
    until("it is up", || pid_in(&run.out("stdout")).is_some()).await;
    fs::create_dir(run.dir.stop().with_extension("tmp")).unwrap();
    executor.stop(2, Duration::from_secs(3600)).unwrap();
    let exit = executor.wait().await;
    assert_eq!((exit.signal, exit.exit_code), (9, 137));
}

#[tokio::test]
async fn drv_06_an_executor_that_hangs_is_ended_with_its_task() {
    let run = Run::new();
    let script = "setsid sleep 1000 & echo $!; sleep 1000";
    let executor = launcher()
        .launch(&run.dir, &run.shell(script))
        .await
        .unwrap();
    until("it is up", || pid_in(&run.out("stdout")).is_some()).await;
    let pid = pid_in(&run.out("stdout")).unwrap();
    kill(
        Pid::from_raw(executor.state().executor_pid),
        Signal::SIGSTOP,
    )
    .unwrap();
    executor.stop(15, Duration::ZERO).unwrap();
    let ending = executor.clone();
    tokio::task::spawn_blocking(move || ending.end())
        .await
        .unwrap();
    let exit = executor.wait().await;
    assert_eq!((exit.signal, exit.exit_code), (9, 137));
    assert!(exit.error.contains("killed"));
    until("nothing is left", || {
        !alive(pid) && !alive(executor.state().task_pid)
    })
    .await;
}

#[tokio::test]
async fn drv_08_a_task_ended_by_a_signal_has_the_exit_code_of_shells() {
    for (signal, code) in [(2, 130), (9, 137), (15, 143), (40, 168)] {
        let run = Run::new();
        let spec = run.shell(&format!("echo up; kill -{signal} $$; sleep 1000"));
        let exit = launcher()
            .launch(&run.dir, &spec)
            .await
            .unwrap()
            .wait()
            .await;
        assert_eq!((exit.exit_code, exit.signal), (code, signal));
    }
}

#[tokio::test]
async fn drv_06_a_task_of_a_user_has_its_rights_and_nothing_of_ours() {
    if !is_root() {
        return drover_testkit::skip("a task of another user", "not root");
    }
    let run = Run::new();
    let mut spec = run.shell(
        "id -un; id -u; id -g; umask; pwd; cat /proc/self/oom_score_adj; \
         (cd /proc/self/fd && echo *); grep -c . /proc/self/status; grep SigBlk /proc/self/status; \
         cat /proc/$PPID/environ 2>/dev/null || echo closed; true > /etc/x 2>/dev/null || echo no",
    );
    (spec.user, spec.oom_score_adj) = ("nobody".into(), 777);
    // One that everybody we start inherits.
    let leak = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 200).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    assert_eq!(executor.wait().await.exit_code, 0);
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let text = run.out("stdout");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "nobody".to_owned(),
        nobody.uid.to_string(),
        nobody.gid.to_string(),
        "0022".to_owned(),
        "/".to_owned(),
        "777".to_owned(),
    ];
    assert_eq!(
        lines[..6],
        expected.each_ref().map(String::as_str),
        "{text}"
    );
    // Besides the three at most the shell's own, and the one that reads the directory.
    let open: Vec<&str> = lines[6].split(' ').collect();
    assert!(
        open.iter()
            .all(|fd| ["0", "1", "2", "3", "10"].contains(fd)),
        "{text}"
    );
    assert!(lines[8].ends_with("0000000000000000"), "{text}");
    assert_eq!(lines[9..], ["closed", "no"], "{text}");
}

#[tokio::test]
async fn drv_06_an_unknown_user_is_told_and_nothing_starts() {
    let run = Run::new();
    let mut spec = run.shell("echo no");
    spec.user = "no-such-user".into();
    let error = launcher().launch(&run.dir, &spec).await.unwrap_err();
    assert!(error.to_string().contains("no-such-user"), "{error}");
    assert_eq!(run.out("stdout"), "");
}

#[tokio::test]
async fn mod_12_a_pipe_in_place_of_a_log_file_holds_nobody_up() {
    let run = Run::new();
    fs::create_dir_all(&run.logs).unwrap();
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&run.logs.join("web.stdout.0"), mode).unwrap();
    let executor = launcher()
        .launch(&run.dir, &run.shell("echo hi"))
        .await
        .unwrap();
    assert_eq!(executor.wait().await.exit_code, 0);
    let log = fs::read_to_string(run.logs.join("web.stdout.1")).unwrap();
    assert_eq!(log, "hi\n");
}

#[tokio::test]
async fn drv_08_a_run_whose_executor_says_nothing_is_ended() {
    let run = Run::new();
    fs::create_dir_all(&run.dir.0).unwrap();
    // It holds the run and never says a word.
    let held = run.dir.try_lock().unwrap().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    fs::write(run.dir.lock(), child.id().to_string()).unwrap();
    let found = Executor::find_within(&run.dir, SHORT).await;
    assert!(found.is_err());
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
    drop(held);
    let found = Executor::find(&RunDir(run.dir.0.clone())).await.unwrap();
    assert!(matches!(found, RunStatus::NeverStarted));
}

#[tokio::test]
async fn drv_06_a_control_group_ends_what_a_killed_executor_left() {
    let Some(parent) = cgroup::parent(&format!("drover-test-{}.slice", std::process::id())) else {
        return drover_testkit::skip("control groups", "no cgroup v2 of our own");
    };
    let run = Run::new();
    let mut spec = run.shell("setsid sleep 1000 & echo $!; sleep 1000");
    let group = parent.join("run");
    spec.cgroup = Some(group.clone());
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    until("it is up", || pid_in(&run.out("stdout")).is_some()).await;
    let pid = pid_in(&run.out("stdout")).unwrap();
    let members = fs::read_to_string(group.join("task/cgroup.procs")).unwrap();
    assert!(
        members.lines().any(|line| line == pid.to_string()),
        "{members}"
    );
    kill(
        Pid::from_raw(executor.state().executor_pid),
        Signal::SIGKILL,
    )
    .unwrap();
    assert!(executor.wait().await.error.contains("killed"));
    until("nothing is left", || !alive(pid)).await;

    // One that ends as it should leaves no group.
    let run = Run::new();
    let mut spec = run.shell("setsid sleep 1000 & sleep 1000");
    spec.cgroup = Some(parent.join("second"));
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    executor.stop(15, SHORT).unwrap();
    executor.wait().await;
    assert!(!parent.join("second").exists());
    until("the groups can go", || {
        cgroup::remove(&parent);
        !parent.exists()
    })
    .await;
}
