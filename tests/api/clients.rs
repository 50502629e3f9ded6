//! The clients of `src/docs/consuming-events.md`, run as they stand there. (kcat is run where there
//! is a broker.)

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use drover_testkit::{LONG, client, has_program, skip};

use crate::support::{Running, job, register, server};

/// A program that prints, and ends with the value that stands for it.
struct Printing {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Printing {
    fn start(command: &mut Command, running: &Running) -> Self {
        let addr = format!("http://{}", running.agent.addr());
        let child = command.env("NOMAD_ADDR", addr).env_remove("NOMAD_TOKEN");
        let mut child = child.stdout(Stdio::piped()).spawn().expect("it runs");
        let out = child.stdout.take().expect("its output");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The lines up to one with a text in it, that one included.
    fn until(&self, text: &str, limit: Duration) -> Vec<String> {
        let end = Instant::now() + limit;
        let mut seen: Vec<String> = Vec::new();
        while seen.last().is_none_or(|line| !line.contains(text)) {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            seen.push(line.unwrap_or_else(|error| panic!("no {text}: {error}: {seen:?}")));
        }
        seen
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn jobs(running: &Running, ids: &[&str]) {
    ids.iter().for_each(|id| {
        register(&mut running.http(), &job(id, 0));
    });
}

#[test]
fn the_shell_client_follows_registrations() {
    if let Some(missing) = ["curl", "jq"].into_iter().find(|name| !has_program(name)) {
        skip("the shell client", &format!("needs {missing}"));
        return;
    }
    let running = server();
    jobs(&running, &["one"]);
    let mut command = Command::new("sh");
    // It is a pipe, which ends with the agent.
    let printing = Printing::start(command.args(["-c", &client("curl")]), &running);
    let first = printing.until("/one", LONG);
    assert!(
        first[0].ends_with(" JobRegistered default/one"),
        "{first:?}"
    );
    jobs(&running, &["two"]);
    let next = printing.until("/two", LONG);
    assert!(next.len() <= 2, "what was told is not told again: {next:?}");
}

#[test]
fn the_python_client_goes_on_where_it_was() {
    if !has_program("python3") {
        skip("the Python client", "needs python3");
        return;
    }
    let running = server();
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("client.py");
    fs::write(&program, client("python")).expect("written");
    jobs(&running, &["one", "two"]);
    let position = dir.path().join("position");
    let start = || {
        let mut command = Command::new("python3");
        Printing::start(command.arg(&program).env("POSITION", &position), &running)
    };
    let of = |lines: &[String]| -> Vec<u64> {
        let index = |line: &String| line.split(' ').next().and_then(|word| word.parse().ok());
        lines
            .iter()
            .map(|line| index(line).expect("an index"))
            .collect()
    };
    let printing = start();
    let before = of(&printing.until("Job/default/two", LONG));
    assert!(
        before.windows(2).all(|two| two[0] < two[1]) && before[0] == 1,
        "{before:?}"
    );
    drop(printing);
    jobs(&running, &["three"]);
    let after = of(&start().until("Job/default/three", LONG));
    // Of what was printed last the position may not have been kept.
    let last = before.last().expect("some");
    assert!(
        after[0] >= *last && after[0] <= last + 3,
        "{before:?} {after:?}"
    );
}

#[test]
fn the_go_client_reads_server_sent_events() {
    if !has_program("go") {
        skip("the Go client", "needs go");
        return;
    }
    let running = server();
    jobs(&running, &["one"]);
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("main.go"), client("go")).expect("written");
    let built = Command::new("go")
        .args(["build", "-o", "client", "main.go"])
        .current_dir(dir.path())
        .env("GOTOOLCHAIN", "local")
        .output()
        .expect("go runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let mut command = Command::new(dir.path().join("client"));
    let printing = Printing::start(&mut command, &running);
    let first = printing.until("default/one", LONG);
    assert!(
        first
            .last()
            .is_some_and(|line| line.contains(" JobRegistered ")),
        "{first:?}"
    );
    jobs(&running, &["two"]);
    printing.until("default/two", LONG);
}
