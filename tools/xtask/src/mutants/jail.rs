//! Where changed code runs: it may kill every process it finds and remove whatever it names.
//!
//! Processes of their own, so that a signal to a wrong number meets none but its own; every
//! directory read-only except an own `/tmp`; bounds on memory and time; and when it is over,
//! nothing of it is left.
//!
//! Starting takes longer than most tests: a process of the tests is started once, stops before
//! its `main`, and runs each test in a copy of itself (`probe.rs.in`). As the first process of
//! its jail it outlives whatever a test does, and ends and buries what a test leaves running.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::build::Executable;

/// Mounts are made without a table of them, which would be written to the real `/run`.
const SETUP: &str = r#"
set -e
mount -n -t proc proc /proc
mount -n -t tmpfs -o size=2g tmpfs /mnt
mkdir /mnt/out
mount -n --bind "$OUT" /mnt/out
mount -n -o remount,bind,ro /
if [ -w /sys ]; then mount -n -o remount,bind,ro /sys; fi
mount -n --move /mnt /tmp
chmod 1777 /tmp
ulimit -v 16000000
ulimit -c 0
exec "$@"
"#;

pub(super) const NO_JAIL: &str = "changed code kills and removes at random: it is only run where \
                       `unshare` (1) can give it processes and mounts of its own, as root";

/// So many tests one process may run together; as many arguments stand there to be replaced.
pub(crate) const TOGETHER: usize = 32;

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Which change is in force.
#[derive(Clone, Copy)]
pub(crate) enum With {
    /// None.
    Nothing,
    /// None, and what is reached is written down.
    Trace,
    Change(usize),
}

/// One place to run in; one run at a time.
pub(crate) struct Jail {
    out: PathBuf,
    servers: Mutex<BTreeMap<PathBuf, Server>>,
}

/// A process that runs tests in copies of itself.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Jail {
    /// `out` is the one folder that stays, as `/tmp/out`.
    pub(crate) fn new(out: &Path) -> Result<Self> {
        std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        Ok(Self {
            out: out.to_owned(),
            servers: Mutex::default(),
        })
    }

    /// Runs tests of an executable together, until their end or the time is over: how that was,
    /// and how long it took.
    pub(crate) fn run(
        &self,
        executable: &Executable,
        names: &[&str],
        with: With,
        limit: Duration,
    ) -> Result<(End, Duration)> {
        ensure!(names.len() <= TOGETHER, "too many tests for one process");
        let mut servers = self.servers.lock().expect("no holder panics");
        if !servers.contains_key(&executable.path) {
            let server = self.start(executable)?;
            servers.insert(executable.path.clone(), server);
        }
        let server = servers.get_mut(&executable.path).expect("it was started");
        let with = match with {
            With::Nothing => "-".to_owned(),
            With::Trace => "trace".to_owned(),
            With::Change(id) => id.to_string(),
        };
        let limit = limit.as_millis();
        let ended = server.ask(&format!("{with}\t{limit}\t{}\n", names.join("\t")))?;
        if ended.0 == End::TimedOut {
            // What ran on is gone with its jail.
            servers.remove(&executable.path);
        }
        Ok(ended)
    }

    /// The next test runs in a place where none ran before.
    pub(crate) fn renew(&self) {
        self.servers.lock().expect("no holder panics").clear();
    }

    fn start(&self, executable: &Executable) -> Result<Server> {
        let mut child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .args(["--mount", "--propagation", "private"])
            .args(["sh", "-c", SETUP, "sh"])
            .arg(&executable.path)
            .args(["--exact", "--test-threads", "2"])
            .args(["no test has this name"; TOGETHER])
            .current_dir(&executable.folder)
            .env("CARGO_MANIFEST_DIR", &executable.folder)
            .env("DROVER_MUTANT_SERVE", "1")
            .env("OUT", &self.out)
            .env("TMPDIR", "/tmp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("unshare")?;
        let input = child.stdin.take().context("it was requested")?;
        let output = child.stdout.take().context("it was requested")?;
        let mut server = Server {
            child,
            input,
            output: BufReader::new(output),
        };
        ensure!(server.line()? == "ready", NO_JAIL);
        Ok(server)
    }

    /// What a run wrote to `/tmp/out/NAME`, which is removed.
    pub(crate) fn take(&self, name: &str) -> Result<String> {
        let path = self.out.join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            text => text?,
        };
        std::fs::remove_file(path)?;
        Ok(text)
    }
}

impl Server {
    fn ask(&mut self, request: &str) -> Result<(End, Duration)> {
        self.input.write_all(request.as_bytes()).context("a jail")?;
        let line = self.line()?;
        let (end, took) = line.split_once(' ').context("a jail answers")?;
        let end = match end {
            "passed" => End::Passed,
            "failed" => End::Failed,
            "late" => End::TimedOut,
            _ => bail!("a jail answers {line:?}"),
        };
        Ok((end, Duration::from_micros(took.parse()?)))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
