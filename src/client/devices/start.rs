//! One run of a plugin's process: its start, what it says, and its end.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use drover_plugins::handshake::{self, Address, COOKIE, PORTS, VERSIONS};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::proc::{self, Group};
use drover_config::PluginConfig;

/// The environment variable by which a plugin's processes are found again: the id of their run.
pub(super) const RUN_ID: &str = "DROVER_PLUGIN_RUN";
/// How long a plugin may take until it says where it listens.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// The longest line that is taken in, bytes.
const LINE: u64 = 64 << 10;
/// How long a file that is just being written is left alone.
const BUSY: Duration = Duration::from_millis(50);
/// How many times killed processes are checked to be gone, and how long it waits between.
const LOOKS: usize = 500;
const BETWEEN: Duration = Duration::from_millis(10);

/// A process; when this is dropped, its process group is killed. What left that group is found by
/// [`end_run`].
pub(super) struct Started {
    child: Child,
    /// Ends all of its process group when dropped.
    _group: Group,
    stdout: Option<BufReader<ChildStdout>>,
    /// The tasks that put its output into the agent's log.
    log_tasks: Vec<AbortOnDropHandle<()>>,
    name: String,
}

impl Started {
    /// Starts a file, with the id of its run in its environment.
    pub(super) async fn begin(
        (name, file): (&str, &Path),
        config: &PluginConfig,
        env: &BTreeMap<String, String>,
        run_id: &str,
    ) -> Result<Self, String> {
        let mut command = Command::new(file);
        command
            .args(&config.args)
            .env_clear()
            .envs(env)
            .envs([COOKIE, VERSIONS])
            .envs(PORTS)
            .env(RUN_ID, run_id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = loop {
            match command.spawn() {
                // It is being replaced.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(BUSY).await,
                other => break other.map_err(|error| format!("{}: {error}", file.display()))?,
            }
        };
        let group = Group::of(&child);
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = child.stderr.take().map(BufReader::new);
        let log_tasks = stderr.map(|from| logged(name.to_owned(), from));
        Ok(Self {
            child,
            _group: group,
            stdout,
            log_tasks: log_tasks.into_iter().collect(),
            name: name.to_owned(),
        })
    }

    /// Where it says that it listens.
    pub(super) async fn address(&mut self) -> Result<Address, String> {
        let ended = || "it ended before it reported where it listens".to_owned();
        let mut stdout = self.stdout.take().ok_or_else(ended)?;
        let late = |_| format!("it did not report within {HANDSHAKE:?} where it listens");
        let first_line = timeout(HANDSHAKE, line(&mut stdout)).await.map_err(late)?;
        let address = handshake::parse(&first_line.ok_or_else(ended)?)?;
        self.log_tasks.push(logged(self.name.clone(), stdout));
        Ok(address)
    }

    /// Waits for its end; says how it ended.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("it ended: {status}"),
            Err(error) => format!("it is lost: {error}"),
        }
    }
}

/// The next line, without its end; one that is too long comes in pieces, one each call.
async fn line(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let read = from.take(LINE).read_until(b'\n', &mut bytes).await;
    match read {
        Ok(1..) => Some(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()),
        _ => None,
    }
}

/// Puts what a plugin says into the agent's log: until it ends, or the other end is closed.
fn logged(
    name: String,
    mut from: BufReader<impl AsyncRead + Send + Unpin + 'static>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(line) = line(&mut from).await {
            tracing::debug!(plugin = name, "{line}");
        }
    }))
}

/// Ends the processes of a run, and waits until they are gone.
///
/// # Errors
/// They do not end.
pub(super) async fn end_run(run_id: &str) -> Result<(), String> {
    for _ in 0..LOOKS {
        let run_id = run_id.to_owned();
        let killed = tokio::task::spawn_blocking(move || kill_run(&run_id)).await;
        match killed.map_err(|error| error.to_string())? {
            0 => return Ok(()),
            _ => sleep(BETWEEN).await,
        }
    }
    Err("a former process of it does not end".to_owned())
}

/// Kills the processes of a run; how many there were.
fn kill_run(run_id: &str) -> usize {
    let wanted = format!("{RUN_ID}={run_id}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut count = 0;
    for pid in pids {
        // The start time is read first: if the pid is reused after that, `signal` does not hit the
        // new process.
        let Some(found) = proc::stat(pid).filter(|found| found.state != 'Z') else {
            continue;
        };
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if env
            .split(|byte| *byte == 0)
            .any(|one| one == wanted.as_bytes())
        {
            proc::signal(pid, found.start, Signal::KILL);
            count += 1;
        }
    }
    count
}
