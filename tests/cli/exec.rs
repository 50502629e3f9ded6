//! `drover alloc exec`: through pipes and on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

use crate::support::{Session, service};

/// A job that runs; its allocation.
fn running(session: &Session, job: &str) -> String {
    session.file("web.hcl", &service(job, "1", ""));
    session.done("job run -detach web.hcl");
    session.wait_allocs(job, "running", 1).remove(0)
}

#[test]
fn mod_23_a_command_runs_beside_a_task_and_its_exit_code_is_this_ones() {
    let mut session = Session::new("exec");
    let id = running(&session, "exec-web");
    let short = &id[..8];
    session.run(&format!(
        "alloc exec {short} /bin/sh -c 'echo out; echo err >&2; exit 7'"
    ));
    session.run(&format!("exec {short} echo -n -task x"));
    session.run("alloc exec -job -group app -task main exec-web echo by its job");
    session.run(&format!("alloc exec -i=false {short} cat"));
    session.run(&format!("alloc exec {short} /bin/sh -c 'kill -9 $$'"));
    session.run(&format!("alloc exec {short}"));
    session.run(&format!("alloc exec -task nope {short} ls"));
    session.run(&format!("alloc exec {short} /nowhere/at/all"));
    session.run(&format!("alloc exec -e ab {short} ls"));
    session.run(&format!("alloc exec -t -i=false {short} ls"));
    session.run("alloc exec 00000000 ls");
    let text: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let through = session.answered(&format!("alloc exec -t=false {short} cat"), &text);
    assert_eq!(
        (through.code, through.stdout == text),
        (0, true),
        "{}",
        through.stderr
    );
    session.done("job stop -purge -detach exec-web");
    session.check();
}

/// The command on a terminal of its own, as a user who types sees it.
struct Typed {
    child: std::process::Child,
    terminal: File,
    slave: File,
    /// How the terminal was before the command had it.
    before: Termios,
    seen: Arc<Mutex<String>>,
}

impl Typed {
    fn start(session: &Session, words: &[&str]) -> Self {
        let master =
            posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("it works");
        grantpt(&master).expect("it works");
        unlockpt(&master).expect("it works");
        let slave = ptsname_r(&master).expect("it works");
        let slave = File::options()
            .read(true)
            .write(true)
            .open(slave)
            .expect("it works");
        let before = tcgetattr(&slave).expect("it works");
        let end = || Stdio::from(slave.try_clone().expect("it works"));
        let child = session
            .command(words)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("it works");
        let terminal = File::from(master.as_fd().try_clone_to_owned().expect("it works"));
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut from, into) = (terminal.try_clone().expect("it works"), Arc::clone(&seen));
        std::thread::spawn(move || {
            let _held = master;
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buf) {
                *into.lock().expect("it works") += &String::from_utf8_lossy(&buf[..n]);
            }
        });
        Self {
            child,
            terminal,
            slave,
            before,
            seen,
        }
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("it works");
    }

    fn sees(&self, text: &str) {
        let seen = wait_for(text, LONG, || {
            let seen = self.seen.lock().expect("it works").clone();
            ensure!(seen.contains(text), "{seen:?}");
            Ok::<_, anyhow::Error>(())
        });
        seen.expect("it works");
    }

    fn resize(&self, rows: u16, columns: u16) {
        let rows = format!("rows {rows} cols {columns}");
        let stty = Command::new("stty")
            .args(rows.split(' '))
            .stdin(Stdio::from(self.slave.try_clone().expect("it works")))
            .status();
        assert!(stty.expect("it works").success());
        // The terminal's session gets no signal, so the command gets it here.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGWINCH).expect("it works");
    }

    fn ends(mut self) -> Option<i32> {
        let ended = wait_for("the end", LONG, || {
            let ended = self.child.try_wait()?;
            ensure!(
                ended.is_some(),
                "it goes on: {:?}",
                self.seen.lock().expect("it works")
            );
            Ok::<_, anyhow::Error>(ended)
        });
        ended.expect("it works").and_then(|status| status.code())
    }
}

#[test]
fn mod_23_a_terminal_is_lent_and_given_back() {
    let session = Session::new("terminal");
    let id = running(&session, "terminal-web");
    let shell = ["alloc", "exec", id.as_str(), "/bin/sh"];
    // By the command's own end, by the escape, by a signal.
    for (last, code) in [("exit 5\r", 5), ("\r~.", 1), ("", 143)] {
        let mut typed = Typed::start(&session, &shell);
        let before = typed.before.clone();
        typed.types("test -t 0 && echo on a $((1 + 1))nd terminal\r");
        typed.sees("on a 2nd terminal");
        let raw = tcgetattr(&typed.slave).expect("it works");
        assert_ne!(raw.local_flags, before.local_flags);
        for number in 0..1_000 {
            typed.resize(20 + number % 50, 80 + number % 60);
        }
        typed.resize(33, 77);
        typed.types("while test \"$(stty size)\" != '33 77'; do :; done; echo size $((6 * 7))\r");
        typed.sees("size 42");
        // What interrupts goes to the command.
        let waits = "trap 'echo caught $((20 + 2)); exit' INT; echo waits $((30 + 3)); \
                     while :; do sleep 0.1; done";
        typed.types(&format!("sh -c \"{}\"\r", waits.replace('$', "\\$")));
        typed.sees("waits 33");
        typed.types("\u{3}");
        typed.sees("caught 22");
        if last.is_empty() {
            let pid = Pid::from_raw(typed.child.id().cast_signed());
            kill(pid, Signal::SIGTERM).expect("it works");
        }
        typed.types(last);
        let slave = typed.slave.try_clone().expect("it works");
        assert_eq!(typed.ends(), Some(code), "{last:?}");
        let after = tcgetattr(&slave).expect("it works");
        assert_eq!(after.local_flags, before.local_flags, "{last:?}");
        assert_eq!(after.input_flags, before.input_flags);
        assert_eq!(after.output_flags, before.output_flags);
    }
    session.done("job stop -purge -detach terminal-web");
}

#[test]
fn mod_23_a_caller_that_is_killed_takes_its_command_along() {
    let session = Session::new("killed");
    let id = running(&session, "killed-web");
    let words = [
        "alloc",
        "exec",
        &id,
        "/bin/sh",
        "-c",
        "echo $$; exec sleep 1000",
    ];
    let mut child = session
        .command(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it works");
    let mut line = Vec::new();
    let mut out = child.stdout.take().expect("it works");
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("it works");
        line.push(byte[0]);
    }
    let place = format!(
        "/proc/{}/stat",
        String::from_utf8(line).expect("it works").trim()
    );
    assert!(std::fs::exists(&place).expect("it works"));
    child.kill().expect("it works");
    child.wait().expect("it works");
    let gone = wait_for("the command's end", LONG, || {
        let stat = std::fs::read_to_string(&place).unwrap_or_default();
        ensure!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        Ok::<_, anyhow::Error>(())
    });
    gone.expect("it works");
    session.done("job stop -purge -detach killed-web");
}
