//! One agent for the suite, and sessions of commands against it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use regex::{Captures, Regex};
use serde_json::Value;

/// The program.
pub(crate) const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// The agent of the suite, which ends with it.
pub(crate) struct Shared {
    agent: Agent,
    /// Held open: when this process is gone, the agent is ended and its directory removed.
    _watchdog: std::process::Child,
}

/// The agent of the suite: server and client.
pub(crate) fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory").keep();
        let setup = Setup::dev(DROVER, &dir.join("data")).expect("free ports");
        let agent = setup.start().expect("the agent starts");
        let ready = wait_for("the node", LONG, || -> Result<()> {
            let nodes = agent.http().json("/v1/nodes")?;
            ensure!(nodes[0]["Status"] == "ready", "not ready: {nodes}");
            Ok(())
        });
        ready.expect("its client registers");
        let mut watchdog = Command::new("/bin/sh");
        watchdog.args([
            "-c",
            "read -r gone; kill -TERM \"$0\"; sleep 2; kill -KILL \"$0\"; rm -rf \"$1\"",
        ]);
        watchdog.arg(agent.pid().to_string()).arg(&dir);
        watchdog
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Shared {
            agent,
            _watchdog: watchdog.spawn().expect("a shell"),
        }
    })
}

/// A lone server of a test's own, for what would disturb others.
pub(crate) fn alone() -> (Agent, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::server(DROVER, &dir.path().join("data")).expect("free ports");
    (setup.start().expect("the agent starts"), dir)
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Both outputs.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Commands in a namespace and a directory of their own.
pub(crate) struct Session {
    address: String,
    namespace: String,
    dir: tempfile::TempDir,
    golden: PathBuf,
    reported: String,
    words: Mutex<Words>,
}

impl Session {
    /// One against the suite's agent; its name is that of its namespace and of its golden file.
    pub(crate) fn new(name: &str) -> Session {
        let session = Session::at(name, &shared().agent);
        let made = session.quiet(&format!("namespace apply {name}"));
        assert_eq!(made.code, 0, "{}", made.stderr);
        session
    }

    /// One against another agent, in the default namespace.
    pub(crate) fn at(name: &str, agent: &Agent) -> Session {
        Session::to(name, &agent.addr().to_string())
    }

    /// One against whatever listens at this address.
    pub(crate) fn to(name: &str, address: &str) -> Session {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden");
        Session {
            address: address.to_owned(),
            namespace: name.to_owned(),
            dir: tempfile::tempdir().expect("a directory"),
            golden: golden.join(format!("{name}.txt")),
            reported: String::new(),
            words: Mutex::default(),
        }
    }

    /// The same with another address, a recorder's for example.
    pub(crate) fn through(mut self, address: &str) -> Session {
        address.clone_into(&mut self.address);
        self
    }

    /// In this namespace.
    pub(crate) fn within(mut self, namespace: &str) -> Session {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// A path in the session's directory, which its commands run in.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file in the session's directory.
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// The program with these words, to be run.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(DROVER);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NOMAD_")) {
            command.env_remove(name);
        }
        command
            .args(words)
            .current_dir(self.dir.path())
            .env("NOMAD_ADDR", format!("http://{}", self.address))
            .env("NOMAD_NAMESPACE", &self.namespace)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs words and gives them an input.
    pub(crate) fn words(&self, words: &[&str], input: &str) -> Ran {
        let mut child = self.command(words).spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that reads no input may be gone.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let pid = child.id();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(child.wait_with_output()));
        let output = end.recv_timeout(LONG).unwrap_or_else(|_| {
            // What waits for ever is a fault of its own.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            let printed = end.recv().ok().and_then(Result::ok);
            let printed = printed.map_or_else(Vec::new, |output| output.stdout);
            let printed = String::from_utf8_lossy(&printed);
            panic!("{words:?} did not end in {LONG:?}: {printed}")
        });
        let output = output.expect("the program ends");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a line of words that stays out of the golden file; a word in single quotes is one.
    pub(crate) fn quiet(&self, line: &str) -> Ran {
        self.answered(line, "")
    }

    /// The same with an input.
    pub(crate) fn answered(&self, line: &str, input: &str) -> Ran {
        let words = split(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.words(&words, input)
    }

    /// The same, and it is expected to succeed; what it printed.
    pub(crate) fn done(&self, line: &str) -> String {
        let ran = self.quiet(line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.all());
        ran.stdout
    }

    /// Runs a line, and its output belongs into the golden file.
    pub(crate) fn run(&mut self, line: &str) -> Ran {
        let ran = self.quiet(line);
        let mut reported = format!("$ drover {line}\n{}", ran.stdout);
        if !reported.ends_with('\n') {
            reported.push('\n');
        }
        for line in ran.stderr.lines() {
            reported.push_str(&format!("! {line}\n"));
        }
        if ran.code != 0 {
            reported.push_str(&format!("(exit {})\n", ran.code));
        }
        let mut words = self.words.lock().expect("not poisoned");
        let reported = words.replaced(&reported, &self.address, self.dir.path());
        self.reported.push_str(&reported);
        self.reported.push('\n');
        ran
    }

    /// Compares what was printed with the golden file.
    pub(crate) fn check(self) {
        if std::env::var_os("DROVER_BLESS").is_some() {
            std::fs::write(&self.golden, &self.reported).expect("written");
            return;
        }
        let golden = std::fs::read_to_string(&self.golden).unwrap_or_default();
        if golden == self.reported {
            return;
        }
        let differs = golden
            .lines()
            .zip(self.reported.lines())
            .position(|(a, b)| a != b);
        panic!(
            "{} says otherwise from line {:?} on; DROVER_BLESS=1 writes it anew.\nNow:\n{}",
            self.golden.display(),
            differs.map(|line| line + 1),
            self.reported
        );
    }

    /// A client of the API.
    pub(crate) fn http(&self) -> Http {
        Http::new(self.address.parse().expect("an address"))
    }

    /// JSON of a path, in the session's namespace.
    pub(crate) fn json(&self, path: &str) -> Result<Value> {
        let sign = if path.contains('?') { '&' } else { '?' };
        self.http()
            .json(&format!("{path}{sign}namespace={}", self.namespace))
    }

    /// Waits until the JSON of a path is as wanted.
    pub(crate) fn wait(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for(path, LONG, || -> Result<Value> {
            let value = self.json(path)?;
            ensure!(wanted(&value), "not as wanted: {value:#}");
            Ok(value)
        })
        .expect("it comes")
    }

    /// Waits until so many allocations of a job have this status; their ids, the newest first.
    pub(crate) fn wait_allocs(&self, job: &str, status: &str, count: usize) -> Vec<String> {
        let path = format!("/v1/job/{job}/allocations");
        let has = |one: &&Value| one["ClientStatus"] == status && one["DesiredStatus"] == "run";
        let all = self.wait(&path, |all| {
            all.as_array()
                .is_some_and(|all| all.iter().filter(has).count() == count)
        });
        let mut all: Vec<&Value> = all.as_array().into_iter().flatten().filter(has).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one["CreateIndex"].as_u64()));
        all.iter()
            .filter_map(|one| Some(one["ID"].as_str()?.to_owned()))
            .collect()
    }
}

/// A line's words; one in single quotes may hold spaces.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What differs from run to run, by what stands for it.
#[derive(Default)]
struct Words {
    ids: BTreeMap<String, usize>,
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

impl Words {
    fn replaced(&mut self, reported: &str, address: &str, dir: &Path) -> String {
        let reported = reported.replace(&dir.display().to_string(), "DIR");
        let reported = reported.replace(address, "ADDRESS");
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = pattern(&format!(r"\b{}\b", regex::escape(host.trim())));
        let reported = host.replace_all(&reported, "HOST");
        // Their beginning is a time.
        let requests = pattern(r"(Request ID +?= )\S+");
        let reported = requests.replace_all(&reported, "${1}REQUEST");
        let ids = pattern(r"\b([0-9a-f]{8})(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\b");
        let reported = ids.replace_all(&reported, |found: &Captures<'_>| {
            let next = self.ids.len() + 1;
            let number = *self.ids.entry(found[1].to_owned()).or_insert(next);
            match found.get(2) {
                Some(_) => format!("id{number:06}-0000-0000-0000-000000000000"),
                None => format!("id{number:06}"),
            }
        });
        let times = pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z");
        let reported = times.replace_all(&reported, "YYYY-MM-DDThh:mm:ssZ");
        let indexes = pattern(r"(?i)(index[a-z-]*:? *=? *)\d+");
        let reported = indexes.replace_all(&reported, "${1}N");
        let ages = pattern(r"\b(\d+(mo|[ydhms]))+ ago\b");
        if !ages.is_match(&reported) {
            return reported.into_owned();
        }
        // The width of columns depends on ages.
        let reported = ages.replace_all(&reported, "T ago");
        pattern(r"(\S)  +")
            .replace_all(&reported, "$1  ")
            .into_owned()
    }
}

/// A service that waits, each version with its own environment.
pub(crate) fn service(id: &str, version: &str, update: &str) -> String {
    task(
        id,
        version,
        update,
        "command = \"/bin/sleep\"\n        args    = [\"300\"]",
    )
}

/// A service whose task is this.
pub(crate) fn task(id: &str, version: &str, update: &str, config: &str) -> String {
    let least = match update.contains("min_healthy_time") {
        true => "",
        false => "      min_healthy_time  = \"50ms\"\n",
    };
    format!(
        r#"job "{id}" {{
  group "app" {{
    update {{
{least}      healthy_deadline  = "30s"
      progress_deadline = "60s"
      {update}
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "main" {{
      driver = "raw_exec"
      config {{
        {config}
      }}
      env {{
        VERSION = "{version}"
      }}
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

/// Where the agent of the suite listens.
pub(crate) fn shared_address() -> String {
    shared().agent.addr().to_string()
}
