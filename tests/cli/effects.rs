//! What flags change of what is shown: output of tasks, files, logs of agents, captures; and a
//! variable that changes what is said.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::recorder::Recorder;
use crate::support::{DROVER, Session, shared_address, task};

/// A command that keeps running, and the lines that it prints.
struct Following {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    fn begin(session: &Session, line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut child = session.command(&words).spawn().expect("the program starts");
        let printed = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (reported, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in printed.map_while(Result::ok) {
                // A test that has seen enough is gone.
                let _ = reported.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line with this in it; what may cause it is done until it is there.
    fn heard(&self, part: &str, again: impl Fn()) -> String {
        let heard = wait_for(part, LONG, || {
            again();
            let mut lines = self.lines.try_iter();
            lines.find(|line| line.contains(part)).ok_or("not yet")
        });
        heard.expect("it is printed")
    }

    /// What else it prints until it ends, and its exit code.
    fn rest(mut self) -> (Vec<String>, Option<i32>) {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {rest:?}"),
            }
        }
        let status = self.child.wait().expect("it ends");
        (rest, status.code())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended already; both calls are for the case that it has not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A task that is over when `main` begins.
const BEFORE: &str = r#"task "before" {
      driver = "raw_exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/echo"
        args    = ["prepared"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
    task "main" {"#;

/// An allocation of two tasks that have printed what they print, into `local/out` as well; `main`
/// ends when there is a file `local/end`.
fn printing(session: &Session, job: &str) -> String {
    let script = "for n in 1 2 3 4 5; do echo line $n; done | tee local/out; echo warned >&2; \
        until [ -e local/end ]; do sleep 0.1; done; echo last";
    let config = format!("command = \"/bin/sh\"\n        args    = [\"-c\", {script:?}]");
    let text = task(job, "1", "", &config).replace("task \"main\" {", BEFORE);
    session.file("web.hcl", &text);
    session.done("job run -detach web.hcl");
    let id = session.wait_allocs(job, "running", 1).remove(0);
    for (file, size) in [
        ("main.stdout.0", 35),
        ("main.stderr.0", 7),
        ("before.stdout.0", 9),
    ] {
        let stat = format!("/v1/client/fs/stat/{id}?path=alloc/logs/{file}");
        session.wait(&stat, |file| file["Size"] == size);
    }
    id
}

#[test]
fn output_is_shown_by_task_and_kind_from_its_end_and_to_its_end() {
    let session = Session::new("printed");
    let id = printing(&session, "printed-web");
    let whole = "line 1\nline 2\nline 3\nline 4\nline 5\n";
    for (flags, expected) in [
        ("-task main", whole),
        ("-stdout -task main", whole),
        ("-stderr -task main", "warned\n"),
        ("-task before", "prepared\n"),
        ("-tail -n 2 -task main", "line 4\nline 5\n"),
        ("-tail -c 9 -task main", "4\nline 5\n"),
    ] {
        let shown = session.done(&format!("alloc logs {flags} {id}"));
        assert_eq!(shown, expected, "{flags}");
    }
    let shown = session.done("alloc logs -job -tail -n 1 -task main printed-web");
    assert_eq!(shown, "line 5\n");
    let ran = session.quiet(&format!("alloc logs {id}"));
    let refused = ran.code == 1 && ran.stderr.contains("Please specify the task.");
    assert!(refused, "{}", ran.all());

    let follow = |line: &str| Following::begin(&session, line);
    let file = follow(&format!("alloc fs -f -tail -n 2 {id} main/local/out"));
    assert_eq!(file.heard("line", || ()), "line 4");
    assert_eq!(file.heard("line", || ()), "line 5");
    let output = follow(&format!("alloc logs -f -tail -n 1 -task main {id}"));
    assert_eq!(output.heard("line", || ()), "line 5");
    let inside = |script: &str| {
        let line = format!("alloc exec -task main {id} /bin/sh -c '{script}'");
        session.done(&line);
    };
    inside("echo more >> local/out");
    assert_eq!(file.heard("more", || ()), "more");
    // A file may grow later: following it ends when it is gone.
    inside("rm local/out");
    assert_eq!(file.rest(), (vec![], Some(0)));
    // Output ends with its task, and so does what runs in it, if it has not ended before.
    let line = format!("alloc exec -task main {id} /bin/sh -c 'touch local/end'");
    let ended = session.quiet(&line);
    assert!([0, 137].contains(&ended.code), "{}", ended.all());
    assert_eq!(output.rest(), (vec!["last".to_owned()], Some(0)));
    session.done("job stop -purge -detach printed-web");
}

/// A server, and clients of the classes red and blue beside it.
struct Machines {
    server: Agent,
    red: Agent,
    _blue: Agent,
    /// Ids of the clients, red and blue.
    nodes: [String; 2],
    _dir: tempfile::TempDir,
}

impl Machines {
    fn begin() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut setup = Setup::server(DROVER, &dir.path().join("server")).expect("free ports");
        setup.config.push_str("enable_debug = true\n");
        let server = setup.start().expect("the server starts");
        let client = |class: &str| {
            let config = format!(
                "enable_debug = true\nclient {{\n  enabled = true\n  node_class = {class:?}\n  \
                 servers = [\"{}\"]\n}}\n",
                server.rpc_addr()
            );
            let setup = Setup {
                config,
                dev: false,
                ..Setup::dev(DROVER, &dir.path().join(class)).expect("free ports")
            };
            setup.spawn().expect("the client starts")
        };
        let (red, blue) = (client("red"), client("blue"));
        let nodes = ["red", "blue"].map(|class| node(&server, class));
        Self {
            server,
            red,
            _blue: blue,
            nodes,
            _dir: dir,
        }
    }
}

/// The id of the client of a class, once it answers.
fn node(server: &Agent, class: &str) -> String {
    let mut http = server.http();
    let id = wait_for("the node", LONG, || {
        let nodes = http.json("/v1/nodes")?;
        let mut nodes = nodes.as_array().into_iter().flatten();
        let found = nodes.find(|one| one["NodeClass"] == class && one["Status"] == "ready");
        let id = found.and_then(|one| one["ID"].as_str());
        id.map(str::to_owned).context("it is not there yet")
    });
    let id = id.expect("it registers");
    let metadata = format!("/v1/client/metadata?node_id={id}");
    wait_for("its client", LONG, || http.json(&metadata)).expect("it is there");
    id
}

/// What an agent logs on a signal to reload.
const RELOADS: &str = "Reloading configuration";

fn reload(agent: &Agent) {
    let answer = agent.http().put("/v1/agent/reload", &Value::Null);
    answer.expect("an answer");
}

#[test]
fn a_log_is_shown_in_the_form_and_of_the_agent_that_flags_name() {
    let machines = Machines::begin();
    let session = Session::at("told", &machines.server).within("default");
    let reported = |flags: &str, agent: &Agent| {
        let monitor = Following::begin(&session, &format!("monitor {flags}"));
        monitor.heard(RELOADS, || reload(agent))
    };
    let server = &machines.server;
    let plain = reported("", server);
    assert!(
        plain.contains(" INFO ") && !plain.contains("reload.rs:"),
        "{plain}"
    );
    let placed = reported("-log-include-location", server);
    assert!(placed.contains("reload.rs:"), "{placed}");
    let read = |line: &str| -> Value { serde_json::from_str(line).expect("JSON") };
    let fields = read(&reported("-json", server));
    assert_eq!(fields["level"], "INFO", "{fields}");
    assert_eq!(fields["filename"], Value::Null, "{fields}");
    let fields = read(&reported("-json -log-include-location", server));
    let file = fields["filename"].as_str().unwrap_or_default();
    assert!(file.ends_with("reload.rs"), "{fields}");
    // Only the client gets the signal to reload: it is its log.
    let [red, _] = &machines.nodes;
    reported(&format!("-node-id {}", &red[..8]), &machines.red);
}

/// A capture in a directory, and what its index says.
struct Captured {
    place: PathBuf,
    index: Value,
}

impl Captured {
    /// Captures while an agent has something to log.
    fn of(session: &Session, agent: &Agent, flags: &str) -> Self {
        let line = format!("operator debug -output . -interval 1s {flags}");
        let capture = Following::begin(session, &line);
        let made = capture.heard("Created debug directory: ", || reload(agent));
        let (_, place) = made.split_once(": ").expect("a directory");
        let place = session.path(place);
        assert_eq!(capture.rest(), (vec![], Some(0)), "{flags}");
        let index = fs::read(place.join("index.json")).expect("an index");
        let index = serde_json::from_slice(&index).expect("JSON");
        Self { place, index }
    }

    fn has(&self, ending: &str) -> bool {
        let files = self.index["Files"].as_array().into_iter().flatten();
        files
            .filter_map(Value::as_str)
            .any(|file| file.ends_with(ending))
    }

    fn log(&self) -> String {
        let log = self.place.join("server/leader/monitor.log");
        fs::read_to_string(log).expect("what it logged")
    }
}

#[test]
fn a_capture_is_of_the_agents_and_of_the_length_that_flags_name() {
    let machines = Machines::begin();
    let recorder = Recorder::before(machines.server.addr());
    let session = Session::at("captured", &machines.server)
        .within("default")
        .through(&recorder.address);
    let captured = |flags: &str| Captured::of(&session, &machines.server, flags);
    let [red, blue] = &machines.nodes;

    let few = captured("-duration 1s -max-nodes 1 -server-id none -pprof-duration 0s");
    let (seen, left) = match few.index["Clients"] == json!([red]) {
        true => (red, blue),
        false => (blue, red),
    };
    assert_eq!(few.index["Clients"], json!([seen]), "{:#}", few.index);
    assert_eq!(few.index["Servers"], json!([]), "{:#}", few.index);
    let why = json!({"File": format!("client/{left}"), "Reason": "-max-nodes is 1"});
    let missing = few.index["Missing"].as_array().expect("a list");
    assert!(missing.contains(&why), "{missing:?}");
    assert!(few.has("cmdline.txt") && !few.has(".prof"), "no profile");

    let some = captured("-duration 1s -node-class blue -server-id leader");
    assert_eq!(some.index["Clients"], json!([blue]), "{:#}", some.index);
    assert_eq!(some.index["Servers"], json!(["leader"]), "{:#}", some.index);
    let log = some.log();
    assert!(
        log.contains(RELOADS) && !log.contains("reload.rs:"),
        "{log}"
    );
    let sent = recorder.sent().concat();
    assert!(sent.contains("stale=false") && !sent.contains("stale=true"));
    assert!(sent.contains("seconds=1") && !sent.contains("seconds=2"));

    let far = captured(
        "-duration 2s -node-id none -server-id leader -stale -pprof-duration 2s \
         -log-include-location",
    );
    assert_eq!(far.index["Clients"], json!([]), "{:#}", far.index);
    assert!(
        far.has("server/leader/profile_0000.prof"),
        "{:#}",
        far.index
    );
    assert!(far.log().contains("reload.rs:"), "{}", far.log());
    let sent = recorder.sent().concat();
    assert!(sent.contains("stale=true") && sent.contains("seconds=2"));
}

/// A program of the shell's.
fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o700)).expect("set");
}

/// An agent whose machine has a journal that prints its own arguments; a followed journal lasts as
/// long as its agent.
fn with_journal(dir: &Path) -> Agent {
    let journal = "echo \"$@\"\ncase \"$*\" in\n\
        *--follow*) exec tail --pid=$PPID -f /dev/null ;;\nesac";
    script(&dir.join("journalctl"), journal);
    let agent = dir.join("agent");
    let place = dir.display();
    let begin = format!("PATH=\"{place}:$PATH\"\nexport PATH\nexec \"{DROVER}\" \"$@\"");
    script(&agent, &begin);
    let setup = Setup::server(agent, &dir.join("data")).expect("free ports");
    setup.start().expect("the agent starts")
}

#[test]
fn a_journal_is_read_of_a_service_since_when_flags_say_and_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let agent = with_journal(dir.path());
    let session = Session::at("journal", &agent);
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.expect("it is later").as_secs()
    };
    for (flags, back) in [("", 72 * 3600), ("-logs-since 30m", 30 * 60)] {
        let before = now();
        let line = format!("monitor export -service-name drover.service {flags}");
        let printed = session.done(&line);
        let requested = printed.trim_end().split_once(" --since=@");
        let (words, begin) = requested.expect("a beginning");
        let wanted = "--no-pager --quiet --output=short-iso --unit=drover.service";
        assert_eq!(words, wanted);
        let begin: u64 = begin.parse().expect("seconds");
        let right = before - back..=now() - back;
        assert!(right.contains(&begin), "{flags}: {begin}");
    }
    let followed = Following::begin(&session, "monitor export -service-name drover -follow");
    let requested = followed.heard("--unit=drover", || ());
    assert!(requested.ends_with(" --follow"), "{requested}");
    for (flags, why) in [
        ("-service-name ssh", "must include nomad or drover"),
        ("-service-name drover -logs-since soon", "Unknown duration"),
        ("-on-disk -follow", "Cannot follow log file"),
    ] {
        let ran = session.quiet(&format!("monitor export {flags}"));
        let refused = ran.code == 1 && ran.stderr.contains(why);
        assert!(refused, "{flags}: {}", ran.all());
    }
}

#[test]
fn user_and_password_of_the_environment_go_along_for_a_proxy() {
    let recorder = Recorder::before(shared_address().parse().expect("an address"));
    let session = Session::new("proxied").through(&recorder.address);
    session.done("job status");
    let sent = recorder.sent().concat();
    assert!(sent.contains("GET /v1/jobs") && !sent.contains("authorization:"));
    let mut command = session.command(&["job", "status"]);
    command.env("NOMAD_HTTP_AUTH", "user:pass");
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let sent = recorder.sent().concat();
    let header = "authorization: Basic dXNlcjpwYXNz\r\n";
    assert!(sent.contains(header), "{sent}");
}
