//! The agent's side of the executor: start it, find it again, wait for it, stop it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};

use super::cgroup::Groups;
use super::files::{
    ExecSpec, ExecState, ExitRecord, RunDir, SIGNALLED, StopRequest, read_json, write_json,
};
use super::spawn::own_limits;
use super::tree;
use crate::proc;

/// How long an executor may take to report the start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an executor that is just starting is looked at during recovery.
const START_POLL: Duration = Duration::from_millis(10);

/// Why a launch or a recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The run directory or the process could not be made or read.
    #[error("executor: {0}")]
    Io(#[from] io::Error),
    /// The executor reported that the task did not start.
    #[error("{0}")]
    NotStarted(String),
    /// The executor ended or kept silent.
    #[error("executor did not report the start of the task")]
    Silent,
}

/// How executors are started: the agent's own binary, but for tests.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    /// Arguments before the run directory.
    pub args: Vec<OsString>,
    /// Variables for the executor itself, with the run directory as the last one's value if empty.
    pub env: Vec<(String, String)>,
}

impl Launcher {
    /// `<this binary> executor <run directory>`: the very file that runs, even when an upgrade has
    /// put another in its place.
    pub fn current() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            args: vec!["executor".into()],
            env: Vec::new(),
        }
    }

    /// Starts the task described by `spec` in a new run directory and waits until it runs.
    pub async fn launch(&self, dir: &RunDir, spec: &ExecSpec) -> Result<Executor, LaunchError> {
        let (launcher, run, spec) = (self.clone(), dir.clone(), spec.clone());
        let spawned = tokio::task::spawn_blocking(move || launcher.spawn(&run, &spec)).await;
        let (child, reader) = spawned.map_err(io::Error::other)??;
        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let report = tokio::time::timeout(START_TIMEOUT, first_report(reader)).await;
        match report {
            Ok(Ok(Report::Started(state))) => Executor::follow(dir.clone(), state, Some(child)),
            Ok(Ok(Report::Failed(exit))) => {
                reap(child);
                Err(LaunchError::NotStarted(exit.error))
            }
            Ok(Err(_)) | Err(_) => {
                abandon(dir.clone(), child);
                Err(LaunchError::Silent)
            }
        }
    }

    fn spawn(&self, dir: &RunDir, spec: &ExecSpec) -> io::Result<(Child, io::PipeReader)> {
        // The end of a former run may remove the empty directories above while we make ours.
        let made = (0..3).find_map(|_| fs::create_dir_all(&dir.0).ok());
        made.map_or_else(|| fs::create_dir_all(&dir.0), Ok)?;
        write_json(&dir.spec(), spec)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.log())?;
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command
            .arg0("drover")
            .args(&self.args)
            .arg(&dir.0)
            .env_clear()
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(log);
        if let Some((_, path)) = std::env::vars_os().find(|(k, _)| k == "LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", path);
        }
        command.envs(own_limits());
        Ok((command.spawn()?, reader))
    }
}

enum Report {
    Started(ExecState),
    Failed(ExitRecord),
}

async fn first_report(pipe: tokio::net::unix::pipe::Receiver) -> io::Result<Report> {
    let mut lines = BufReader::new(pipe).lines();
    while let Some(line) = lines.next_line().await? {
        let Some(json) = line.find('{').map(|at| &line[at..]) else {
            continue;
        };
        if let Ok(state) = serde_json::from_str::<ExecState>(json) {
            return Ok(Report::Started(state));
        }
        return Ok(Report::Failed(serde_json::from_str(json)?));
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Waits for a child elsewhere, so that it leaves no zombie.
fn reap(mut child: Child) {
    std::thread::spawn(move || child.wait());
}

/// Ends an executor that keeps silent, with what it may have started: nothing of it may come later.
fn abandon(dir: RunDir, mut child: Child) {
    std::thread::spawn(move || {
        let _ = fs::write(dir.cancelled(), b"");
        let pid = i32::try_from(child.id()).unwrap_or_default();
        if let Some(stat) = proc::stat(pid) {
            tree::end(pid, stat.start, &groups_of(&dir));
        }
        child.wait()
    });
}

/// Removes what a run that is over keeps outside of its directory.
pub fn clear(dir: &RunDir) {
    groups_of(dir).remove();
}

/// The control groups of a run.
fn groups_of(dir: &RunDir) -> Groups {
    let spec: Option<ExecSpec> = read_json(&dir.spec()).ok().flatten();
    spec.as_ref().map(Groups::of).unwrap_or_default()
}

/// What a run directory says after a restart of the agent.
#[derive(Debug)]
pub enum RunStatus {
    /// The task lives.
    Live(Executor),
    /// It ended, and how.
    Exited(ExitRecord),
    /// It was never started, and never will be in this directory.
    NeverStarted,
}

/// A followed executor.
#[derive(Clone, Debug)]
pub struct Executor {
    inner: Arc<ExecutorInner>,
}

#[derive(Debug)]
struct ExecutorInner {
    dir: RunDir,
    state: ExecState,
    /// Readable once the executor ended; `None` when it had ended before we looked.
    pidfd: Option<AsyncFd<OwnedFd>>,
    child: Mutex<Option<Child>>,
}

impl Executor {
    fn follow(dir: RunDir, state: ExecState, child: Option<Child>) -> Result<Self, LaunchError> {
        let pidfd = Pid::from_raw(state.executor_pid)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .filter(|_| proc::is_alive(state.executor_pid, state.executor_start))
            .map(|pidfd| watch(pidfd, Interest::READABLE))
            .transpose()?;
        Ok(Self {
            inner: Arc::new(ExecutorInner {
                dir,
                state,
                pidfd,
                child: Mutex::new(child),
            }),
        })
    }

    /// Looks what became of a run: after a restart of the agent (DRV-08).
    ///
    /// Whatever is found, a task that this directory described is never started a second time.
    pub async fn find(dir: &RunDir) -> Result<RunStatus, LaunchError> {
        Self::find_within(dir, START_TIMEOUT).await
    }

    /// As [`Executor::find`]; an executor that says nothing for so long is ended.
    pub(super) async fn find_within(
        dir: &RunDir,
        patience: Duration,
    ) -> Result<RunStatus, LaunchError> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let run = dir.clone();
            let seen = tokio::task::spawn_blocking(move || seen(&run)).await;
            match seen.map_err(io::Error::other)?? {
                RunFiles::Live(state) => {
                    return Ok(RunStatus::Live(Self::follow(dir.clone(), state, None)?));
                }
                RunFiles::Exited(exit) => return Ok(RunStatus::Exited(exit)),
                RunFiles::NeverStarted => return Ok(RunStatus::NeverStarted),
                RunFiles::Starting if until <= tokio::time::Instant::now() => {
                    let run = dir.clone();
                    let ended = tokio::task::spawn_blocking(move || end_holder(&run)).await;
                    ended.map_err(io::Error::other)?;
                    return Err(LaunchError::Silent);
                }
                RunFiles::Starting => tokio::time::sleep(START_POLL).await,
            }
        }
    }

    /// The processes of the run.
    pub fn state(&self) -> &ExecState {
        &self.inner.state
    }

    /// Waits until the executor ended.
    pub async fn ended(&self) {
        if let Some(pidfd) = &self.inner.pidfd {
            // An error means that the reactor is gone, and with it whatever waits.
            let _ = pidfd.readable().await;
        }
    }

    /// Waits until the executor ended, and returns how the task did.
    pub async fn wait(&self) -> ExitRecord {
        self.ended().await;
        if let Some(child) = self.inner.child.lock().take() {
            reap(child);
        }
        let inner = self.inner.clone();
        let record = move || match read_json::<ExitRecord>(&inner.dir.exit()) {
            Ok(Some(exit)) => {
                // The executor may have been the last in one of them.
                clear(&inner.dir);
                exit
            }
            _ => lost(&inner.dir, &inner.state),
        };
        let read = tokio::task::spawn_blocking(record).await;
        read.unwrap_or_else(|e| ExitRecord {
            error: e.to_string(),
            ..ExitRecord::default()
        })
    }

    /// Requests the end: `signal` to the task now, everything killed after `grace`.
    ///
    /// # Errors
    /// The executor could not be notified. One that is notified and finds no request, because the
    /// disk was full, kills at once.
    pub fn stop(&self, signal: i32, grace: Duration) -> io::Result<()> {
        let Some(pidfd) = &self.inner.pidfd else {
            return Ok(());
        };
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let request = StopRequest { signal, grace_ms };
        if let Err(e) = write_json(&self.inner.dir.stop(), &request) {
            tracing::warn!("a task is killed, for its stop cannot be written down: {e}");
        }
        send(pidfd, Signal::TERM)
    }

    /// Ends everything without the executor's help; it may take a moment.
    pub fn end(&self) {
        let (state, groups) = (&self.inner.state, groups_of(&self.inner.dir));
        tree::end(state.executor_pid, state.executor_start, &groups);
    }

    /// Sends a signal to the task's first process.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the task has ended");
        let state = &self.inner.state;
        let pid = Pid::from_raw(state.task_pid).ok_or_else(gone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        if !proc::is_alive(state.task_pid, state.task_start) {
            return Err(gone());
        }
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "unknown signal"))?;
        Ok(pidfd_send_signal(&pidfd, signal)?)
    }

    /// What the task's processes use, among all.
    pub fn usage(&self, all: &proc::Processes) -> proc::TreeUsage {
        let state = &self.inner.state;
        let mut usage = all.usage(state.executor_pid);
        usage.pids.remove(&state.init_pid);
        usage
    }

    /// Where the run's files are.
    pub fn dir(&self) -> &RunDir {
        &self.inner.dir
    }
}

#[expect(
    unsafe_code,
    reason = "tokio has no safe way to watch a descriptor of our own"
)]
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the value handed over, and an OwnedFd's never changes.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}

fn send(pidfd: &AsyncFd<OwnedFd>, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(pidfd.get_ref(), signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What the files of a run say.
enum RunFiles {
    Live(ExecState),
    Exited(ExitRecord),
    NeverStarted,
    /// An executor holds it and has not reported yet what became of it.
    Starting,
}

fn seen(dir: &RunDir) -> io::Result<RunFiles> {
    if !dir.0.exists() {
        return Ok(RunFiles::NeverStarted);
    }
    // The lock is looked at first: what its holder wrote before it left is then all there.
    let free = dir.try_lock()?;
    let state: Option<ExecState> = read_json(&dir.state())?;
    if let Some(exit) = read_json::<ExitRecord>(&dir.exit())? {
        return Ok(RunFiles::Exited(exit));
    }
    Ok(match (state, free) {
        (Some(state), None) => RunFiles::Live(state),
        (Some(state), Some(_lock)) => RunFiles::Exited(lost(dir, &state)),
        (None, Some(_lock)) => {
            fs::write(dir.cancelled(), b"")?;
            RunFiles::NeverStarted
        }
        (None, None) => RunFiles::Starting,
    })
}

/// Ends the executor that holds a run without saying what became of it.
fn end_holder(dir: &RunDir) {
    let holder = fs::read_to_string(dir.lock()).ok();
    let pid = holder.and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(stat) = pid.and_then(proc::stat) {
        tree::end(stat.pid, stat.start, &groups_of(dir));
    }
}

/// The executor is gone without a record: a reboot, or it was killed. What is left of the
/// task's control group or else of its process group goes, and the end is recorded as it is.
fn lost(dir: &RunDir, state: &ExecState) -> ExitRecord {
    let same_boot = state.boot_id == proc::boot_id();
    if same_boot {
        let groups = groups_of(dir);
        groups.kill();
        groups.remove();
    }
    if same_boot
        && proc::is_alive(state.task_pid, state.task_start)
        && let Some(group) = Pid::from_raw(state.task_pid)
    {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let reason = if same_boot {
        "the executor was killed"
    } else {
        "the machine was restarted"
    };
    ExitRecord {
        exit_code: SIGNALLED + Signal::KILL.as_raw(),
        signal: Signal::KILL.as_raw(),
        error: reason.to_owned(),
        finished_at: drover_base::clock::unix_nanos(),
        ..ExitRecord::default()
    }
}
