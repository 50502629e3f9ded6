//! Frames, and commands beside a real task under a real executor.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_testkit::{LONG, eventually, so};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::drivers::raw_exec::RawExec;
use crate::drivers::{Driver, Recovered, RunningTask, TaskConfig, TaskError};
use crate::env::TaskPaths;
use crate::executor::cgroup::{self, Parents};
use crate::executor::executor_test::launcher;
use crate::proc;

#[test]
fn mod_18_mod_23_frames_of_exec_are_nomads() {
    let data = || b"h\xffllo".to_vec();
    let (height, width) = (24, 80);
    for (frame, text) in [
        (ExecIn::Stdin(data()), r#"{"stdin":{"data":"aP9sbG8="}}"#),
        (ExecIn::CloseStdin, r#"{"stdin":{"close":true}}"#),
        (
            ExecIn::Resize { height, width },
            r#"{"tty_size":{"height":24,"width":80}}"#,
        ),
        (
            ExecIn::Resize { height: 0, width },
            r#"{"tty_size":{"width":80}}"#,
        ),
        (ExecIn::Heartbeat, "{}"),
    ] {
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
        assert_eq!(serde_json::from_str::<ExecIn>(text).unwrap(), frame);
    }
    for (frame, text) in [
        (ExecOut::Stdout(data()), r#"{"stdout":{"data":"aP9sbG8="}}"#),
        (ExecOut::StdoutClosed, r#"{"stdout":{"close":true}}"#),
        (ExecOut::Stderr(data()), r#"{"stderr":{"data":"aP9sbG8="}}"#),
        (ExecOut::StderrClosed, r#"{"stderr":{"close":true}}"#),
        (
            ExecOut::Exited { code: 0 },
            r#"{"exited":true,"result":{}}"#,
        ),
        (
            ExecOut::Exited { code: 137 },
            r#"{"exited":true,"result":{"exit_code":137}}"#,
        ),
        (ExecOut::Heartbeat, "{}"),
    ] {
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
        assert_eq!(serde_json::from_str::<ExecOut>(text).unwrap(), frame);
    }
}

#[test]
fn a_frame_may_hold_several_things_or_what_nobody_knows() {
    let both = br#"{"stdin":{"data":"aGk=","close":true},"tty_size":{"height":-1,"width":99999}}"#;
    let resize = ExecIn::Resize {
        height: 0,
        width: u16::MAX,
    };
    let wanted = [resize, ExecIn::Stdin(b"hi".to_vec()), ExecIn::CloseStdin];
    assert_eq!(ExecIn::of(both).unwrap(), wanted);
    assert!(serde_json::from_slice::<ExecIn>(both).is_err());
    for alive in [
        "{}",
        r#"{"stdin":{}}"#,
        r#"{"other":1}"#,
        r#"{"stdin":null}"#,
    ] {
        assert_eq!(ExecIn::of(alive.as_bytes()).unwrap(), [ExecIn::Heartbeat]);
    }
    for bad in ["", "[", "3", r#"{"stdin":{"data":"%"}}"#, r#"{"stdin":4}"#] {
        assert!(ExecIn::of(bad.as_bytes()).is_err(), "{bad}");
    }
}

/// A task that runs until it is requested to end.
struct Task {
    running: Arc<dyn RunningTask>,
    root: tempfile::TempDir,
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.running.stop("SIGKILL", Duration::ZERO);
    }
}

/// A command, and the other ends of it.
struct Beside {
    to: mpsc::Sender<ExecIn>,
    from: mpsc::Receiver<ExecOut>,
}

impl Task {
    async fn start() -> Self {
        Self::with("", None).await
    }

    /// As this user, in a control group below this one.
    async fn with(user: &str, group: Option<std::path::PathBuf>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let driver =
            RawExec::new(true, launcher(), root.path().join("runs")).in_cgroups(&Parents {
                unified: group,
                ..Parents::default()
            });
        let config = json!({"command": "/bin/sh", "args": ["-c", "exec sleep 1000"]});
        let Value::Object(config) = config else {
            unreachable!()
        };
        let env = [("PATH", "/usr/bin:/bin"), ("GREETING", "hi")];
        let task = TaskConfig {
            alloc_id: "a".into(),
            task: "web".into(),
            user: user.to_owned(),
            config: config.into_iter().collect(),
            env: env
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            paths: TaskPaths {
                root: root.path().to_owned(),
                ..TaskPaths::default()
            },
            log_dir: root.path().join("logs"),
            log_max_files: 2,
            log_max_bytes: 1 << 20,
            ..TaskConfig::default()
        };
        driver.start(task.clone()).await.unwrap();
        // As an agent that began again does.
        match driver.recover(task, None).await.unwrap() {
            Recovered::Live(running) => Self { running, root },
            _ => panic!("it lives"),
        }
    }

    async fn run(&self, script: &str, tty: bool) -> Beside {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).into();
        self.beside(command, tty).await.unwrap()
    }

    async fn beside(&self, command: Vec<String>, tty: bool) -> Result<Beside, TaskError> {
        let (to, input) = mpsc::channel(4);
        let (output, from) = mpsc::channel(4);
        let wires = Wires { input, output };
        let command = ExecCommand { command, tty };
        self.running.exec(command, wires).await?;
        Ok(Beside { to, from })
    }
}

impl Beside {
    async fn send(&self, text: &str) {
        let sent = self.to.send(ExecIn::Stdin(text.as_bytes().to_vec())).await;
        sent.unwrap();
    }

    /// All that comes to the end: output, errors, exit code.
    async fn end(self) -> (String, String, i32) {
        let rest = tokio::time::timeout(LONG, self.rest()).await;
        rest.expect("it ends in time")
    }

    async fn rest(mut self) -> (String, String, i32) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(one) = self.from.recv().await {
            match one {
                ExecOut::Stdout(data) => out.extend(data),
                ExecOut::Stderr(data) => err.extend(data),
                ExecOut::Exited { code } => {
                    assert_eq!(self.from.recv().await, None, "nothing comes after it");
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (text(out), text(err), code);
                }
                ExecOut::StdoutClosed | ExecOut::StderrClosed | ExecOut::Heartbeat => {}
            }
        }
        panic!("it ends without an exit code: {out:?} {err:?}");
    }

    /// What comes until a text is in it.
    async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let next = tokio::time::timeout(LONG, self.from.recv()).await;
            match next.unwrap_or_else(|_| panic!("no {text:?} in {seen:?}")) {
                Some(ExecOut::Stdout(data)) => seen += &String::from_utf8_lossy(&data),
                other => panic!("{other:?} before {text:?}: {seen:?}"),
            }
        }
        seen
    }
}

async fn gone(pid: &str) {
    let place = format!("/proc/{}", pid.trim());
    let id = pid.trim().parse().expect("a process id");
    let gone = || so(!Path::new(&place).exists() || proc::stat(id).is_none_or(|s| s.state == 'Z'));
    eventually("the process to end", LONG, gone).await.unwrap();
}

#[tokio::test]
async fn mod_23_a_command_runs_as_the_task_does() {
    let task = Task::start().await;
    let root = task.root.path().canonicalize().unwrap();
    let script = "echo $GREETING $TERM; pwd; echo oops >&2; cat; test -t 0 || exit 3";
    let beside = task.run(script, false).await;
    beside.send("one\n").await;
    beside.send("two\n").await;
    beside.to.send(ExecIn::CloseStdin).await.unwrap();
    let wanted = format!("hi\n{}\none\ntwo\n", root.display());
    assert_eq!(beside.end().await, (wanted, "oops\n".to_owned(), 3));
    for (script, code) in [("exit 0", 0), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let (.., ended) = task.run(script, false).await.end().await;
        assert_eq!(ended, code, "{script}");
    }
    // A caller that has no input to give is gone from that side: it ends.
    let Beside { to, from } = task.run("cat; exit 4", false).await;
    drop(to);
    let (to, _) = mpsc::channel(1);
    assert_eq!(Beside { to, from }.end().await.2, 4);
}

#[tokio::test]
async fn mod_23_a_command_has_the_rights_of_the_task_and_is_held_as_it_is() {
    if !nix::unistd::geteuid().is_root() {
        return drover_testkit::skip("a task of another user", "needs root");
    }
    let group = cgroup::parent(&format!("drover-exec-{}.slice", std::process::id()));
    let task = Task::with("nobody", group.clone()).await;
    for tty in [false, true] {
        let script = "id -un; grep CapEff /proc/self/status; cat /proc/self/cgroup; \
                      test ! -t 0 || { test -w $(tty) && echo owns; }";
        let (out, _, code) = task.run(script, tty).await.end().await;
        assert!(out.starts_with("nobody"), "{code} {out}");
        assert!(out.contains("0000000000000000"), "{out}");
        assert_eq!(out.contains("owns"), tty, "{out}");
        let within = format!("/drover-exec-{}.slice/a.", std::process::id());
        assert!(group.is_none() || out.contains(&within), "{out}");
    }
    task.running.stop("SIGKILL", Duration::ZERO).unwrap();
    task.running.wait().await;
    let removed = || match &group {
        Some(group) => {
            cgroup::remove(group);
            so(!group.exists())
        }
        None => Ok(()),
    };
    eventually("the group to go", LONG, removed).await.unwrap();
}

#[tokio::test]
async fn mod_23_a_command_that_is_not_there_is_told() {
    let task = Task::start().await;
    let refused = task.beside(vec!["/nowhere/at/all".into()], false).await;
    let text = refused.err().expect("refused").to_string();
    assert!(
        text.contains("/nowhere/at/all") && text.contains("No such file"),
        "{text}"
    );
    let long = "x".repeat(300 << 10);
    let refused = task.beside(vec!["/bin/true".into(), long], false).await;
    let text = refused.err().expect("refused").to_string();
    assert_eq!(text, "the command is too long");
}

#[tokio::test]
async fn mod_23_a_command_on_a_terminal_leads_a_session_and_sees_its_size() {
    let task = Task::start().await;
    let script = "trap 'echo now $(stty size)' WINCH; \
                  test -t 0 && test -t 2 && echo on $(stty size) $TERM; \
                  test $(ps -o sid= -p $$) = $$ && echo leads; \
                  while :; do read -r line || continue; echo got $line; \
                  test $line = end && exit 5; done";
    let (height, width) = (33, 77);
    let mut beside = task.run(script, true).await;
    let seen = beside.until("leads").await;
    assert!(seen.contains("xterm"), "{seen}");
    for (height, width) in (1..1_000).map(|n| (n, n)).chain([(height, width)]) {
        let resize = ExecIn::Resize { height, width };
        beside.to.send(resize).await.unwrap();
    }
    // The shell reports it between two commands; a signal may end what it reads.
    let reported = async {
        let mut seen = String::new();
        while !seen.contains("now 33 77") {
            beside.send("x\n").await;
            seen = beside.until("got x").await;
        }
    };
    tokio::time::timeout(LONG, reported)
        .await
        .expect("it is reported");
    beside.send("end\n").await;
    assert_eq!(beside.end().await.2, 5);
    // The end of the input is what a terminal has for it, also within a line.
    let beside = task.run("cat; exit 7", true).await;
    beside.send("part").await;
    beside.to.send(ExecIn::CloseStdin).await.unwrap();
    let (out, _, code) = beside.end().await;
    assert_eq!(code, 7);
    assert!(out.contains("part"), "{out:?}");
}

#[tokio::test]
async fn mod_23_a_command_ends_with_its_task() {
    for tty in [false, true] {
        let task = Task::start().await;
        let mut beside = task.run("echo $$; exec sleep 1000", tty).await;
        let pid = beside.until("\n").await;
        task.running
            .stop("SIGTERM", Duration::from_secs(60))
            .unwrap();
        let ended = tokio::time::timeout(LONG, beside.end()).await;
        assert_eq!(ended.expect("it ends").2, 137, "on a terminal: {tty}");
        gone(&pid).await;
        task.running.wait().await;
        let refused = task.beside(vec!["/bin/true".into()], tty).await;
        assert!(matches!(refused.err(), Some(TaskError::NotRunning)));
    }
}

#[tokio::test]
async fn mod_23_a_command_nobody_waits_for_is_killed_with_all_it_began() {
    let task = Task::start().await;
    for tty in [false, true] {
        // One below it, and one that has lost its parent.
        let script =
            "trap '' HUP; sleep 1000 & echo a $!; (sleep 1000 & echo b $!) ; echo c $$ all; wait";
        let mut beside = task.run(script, tty).await;
        let seen = beside.until("all").await;
        drop(beside);
        let pids: Vec<_> = seen
            .split_whitespace()
            .filter(|word| word.parse::<i32>().is_ok())
            .collect();
        assert_eq!(pids.len(), 3, "{seen:?}");
        for pid in pids {
            gone(pid).await;
        }
    }
    // The task continues.
    assert_eq!(task.run("exit 0", false).await.end().await.2, 0);
}

#[tokio::test]
async fn mod_23_what_a_command_leaves_behind_holds_nobody_and_ends_with_the_task() {
    let task = Task::start().await;
    let (out, _, code) = task
        .run("sleep 1000 & echo $!; exit 9", false)
        .await
        .end()
        .await;
    assert_eq!(code, 9);
    // One that writes for ever is left as well.
    let (.., code) = task.run("yes & exit 8", false).await.end().await;
    assert_eq!(code, 8);
    assert!(Path::new("/proc").join(out.trim()).exists());
    task.running.stop("SIGKILL", Duration::ZERO).unwrap();
    task.running.wait().await;
    gone(&out).await;
}

#[tokio::test]
async fn mod_23_who_does_not_read_takes_no_memory() {
    let task = Task::start().await;
    let piece = vec![b'x'; 32 << 10];
    let mut beside = task.run("echo $$; exec sleep 1000", false).await;
    let pid = beside.until("\n").await;
    let mut sent = 0;
    let fills = async {
        loop {
            let piece = ExecIn::Stdin(piece.clone());
            let wait = Duration::from_millis(500);
            match tokio::time::timeout(wait, beside.to.send(piece)).await {
                Ok(done) => done.unwrap(),
                Err(_) => return,
            }
            sent += 1;
        }
    };
    tokio::time::timeout(LONG, fills).await.expect("it is full");
    assert!(
        sent <= 16,
        "{sent} pieces for a pipe of two and four on the way"
    );
    drop(beside);
    gone(&pid).await;
    // Neither does one whose output is not taken: it waits.
    let mut beside = task.run("echo $$; exec yes", false).await;
    let pid = beside.until("\n").await;
    let pid = pid.lines().next().unwrap().to_owned();
    let full = || so(beside.from.len() >= 4);
    eventually("the channel to be full", LONG, full)
        .await
        .unwrap();
    drop(beside);
    gone(&pid).await;
}

#[tokio::test]
async fn mod_23_too_many_commands_at_once_are_refused() {
    let task = Task::start().await;
    let mut all = Vec::new();
    let refused = loop {
        let command = ["sleep", "1000"].map(str::to_owned).into();
        match task.beside(command, false).await {
            Ok(beside) => all.push(beside),
            Err(refused) => break refused.to_string(),
        }
        assert!(all.len() <= 64);
    };
    assert!(
        refused.starts_with("64 commands run beside this task"),
        "{refused}"
    );
    all.clear();
    let again = async || {
        let command = vec!["true".to_owned()];
        task.beside(command, false).await.map_err(|e| e.to_string())
    };
    let beside = drover_testkit::eventually_async("space", LONG, again)
        .await
        .unwrap();
    assert_eq!(beside.end().await.2, 0);
}
