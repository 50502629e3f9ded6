//! The executor's own loop: start, follow, stop, record.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::files::{ExecSpec, ExecState, ExitRecord, RunDir, StopRequest, read_json, write_json};
use super::output::Output;
use super::rotate::Rotator;
use crate::client::proc;

/// How long output is still read after everything is dead; pipes held by strangers must not keep
/// us.
const DRAIN: Duration = Duration::from_secs(2);
/// How often left-over processes are looked for while they are being killed.
const SWEEP: Duration = Duration::from_millis(20);

/// Runs the executor for one run directory; the exit code of the process.
pub fn run(dir: &Path) -> i32 {
    let dir = RunDir(dir.to_owned());
    // Fails only when it leads its group already, which is as good.
    let _ = rustix::process::setsid();
    match own(&dir).and_then(|_lock| execute(&dir).or_else(|e| give_up(&dir, &e))) {
        Ok(()) => 0,
        Err(e) => {
            let _ = writeln!(io::stderr(), "executor: {e}");
            report(&failure(&dir, &e));
            1
        }
    }
}

/// Makes the run ours; a run that is somebody's, or over, is left as it is.
fn own(dir: &RunDir) -> io::Result<std::fs::File> {
    let lock = dir
        .try_lock()?
        .ok_or_else(|| io::Error::other("another executor owns this run"))?;
    if dir.cancelled().exists() || dir.state().exists() || dir.exit().exists() {
        return Err(io::Error::other("this run is over"));
    }
    Ok(lock)
}

fn give_up(dir: &RunDir, error: &io::Error) -> io::Result<()> {
    write_json(&dir.exit(), &failure(dir, error))?;
    Err(io::Error::new(error.kind(), error.to_string()))
}

fn failure(dir: &RunDir, error: &io::Error) -> ExitRecord {
    ExitRecord {
        error: error.to_string(),
        not_started: !dir.state().exists(),
        finished_at: now(),
        ..ExitRecord::default()
    }
}

fn execute(dir: &RunDir) -> io::Result<()> {
    let spec: ExecSpec = read_json(&dir.spec())?
        .ok_or_else(|| io::Error::other("the run directory has no specification"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = catch_signals()?;
    let mut following = start(&spec)?;
    let state = ExecState {
        executor_pid: rustix::process::getpid().as_raw_nonzero().get(),
        executor_start: start_of(rustix::process::getpid().as_raw_nonzero().get()),
        task_pid: following.task.as_raw(),
        task_start: start_of(following.task.as_raw()),
        boot_id: proc::boot_id(),
        started_at: now(),
    };
    write_json(&dir.state(), &state)?;
    report(&state);
    let exit = following.follow(dir, &signals)?;
    write_json(&dir.exit(), &exit)
}

/// One line for an agent that waits for the start; an agent that died is no error.
fn report<T: serde::Serialize>(value: &T) {
    if let Ok(mut line) = serde_json::to_vec(value) {
        line.push(b'\n');
        let mut out = io::stdout();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// Blocks what is to be read from the descriptor, and what a dead agent's pipe would send; the
/// task starts with an empty mask again.
fn catch_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGPIPE,
    ] {
        set.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

fn start(spec: &ExecSpec) -> io::Result<Following> {
    let (out_read, out_write) = io::pipe()?;
    let (err_read, err_write) = io::pipe()?;
    let mut command = Command::new(&spec.command);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(out_write)
        .stderr(err_write)
        .process_group(0);
    if !spec.user.is_empty() {
        let user = nix::unistd::User::from_name(&spec.user)?
            .ok_or_else(|| io::Error::other(format!("unknown user {}", spec.user)))?;
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let log = |stream: &str| {
        (!spec.log_disabled)
            .then(|| {
                let name = format!("{}.{stream}", spec.log_name);
                Rotator::open(&spec.log_dir, &name, spec.log_max_files, spec.log_max_bytes)
            })
            .transpose()
    };
    let outputs = [
        Output::new(out_read, log("stdout")?)?,
        Output::new(err_read, log("stderr")?)?,
    ];
    reset_signals(&mut command);
    let child = command.spawn().map_err(|e| {
        io::Error::new(e.kind(), format!("failed to start {:?}: {e}", spec.command))
    })?;
    drop(command); // closes our copies of the writing ends
    let task = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    if spec.oom_score_adj != 0 {
        let path = format!("/proc/{task}/oom_score_adj");
        let _ = std::fs::write(path, spec.oom_score_adj.to_string());
    }
    Ok(Following {
        task,
        outputs,
        ended: None,
        kill_at: None,
    })
}

/// The task starts with no signal blocked or ignored, whatever the agent was started with.
#[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
fn reset_signals(command: &mut Command) {
    let reset = || {
        for signal in Signal::iterator() {
            // SAFETY: the default handler is no code of ours; the call is async-signal-safe.
            // It is refused for the two signals that cannot be caught, which have it anyway.
            let _ =
                unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) };
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: the closure calls async-signal-safe functions only and allocates nothing.
    unsafe { command.pre_exec(reset) };
}

/// The loop's state while the task runs.
struct Following {
    task: Pid,
    outputs: [Output; 2],
    ended: Option<ExitRecord>,
    kill_at: Option<Instant>,
}

impl Following {
    fn follow(&mut self, dir: &RunDir, signals: &SignalFd) -> io::Result<ExitRecord> {
        let mut buf = Vec::new();
        let mut drain_until: Option<Instant> = None;
        loop {
            self.wait_for_something(signals, drain_until)?;
            for output in &mut self.outputs {
                output.pump(&mut buf);
            }
            while let Some(info) = signals.read_signal()? {
                if info.ssi_signo == Signal::SIGTERM as u32 {
                    self.stop(dir);
                }
            }
            self.reap();
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_tree();
            }
            if let Some(exit) = &self.ended {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + DRAIN);
                let exit = exit.clone();
                let left = self.kill_tree();
                let open = self.outputs.iter().any(|o| o.fd().is_some());
                if (left == 0 && !open) || until <= Instant::now() {
                    return Ok(exit);
                }
            }
        }
    }

    fn wait_for_something(&self, signals: &SignalFd, until: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let open = self.outputs.iter().filter_map(Output::fd);
        fds.extend(open.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let now = Instant::now();
        let wait = if until.is_some() {
            Some(SWEEP)
        } else {
            self.kill_at
                .map(|at| at.saturating_duration_since(now).max(SWEEP))
        };
        let timeout = wait.map_or(PollTimeout::NONE, |d| {
            PollTimeout::try_from(d.as_millis()).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The agent asks: send the signal, and set the time for the hard end.
    fn stop(&mut self, dir: &RunDir) {
        let request: StopRequest = read_json(&dir.stop()).ok().flatten().unwrap_or_default();
        if self.ended.is_none() {
            let signal = Signal::try_from(request.signal).unwrap_or(Signal::SIGKILL);
            let _ = kill(self.task, signal);
        }
        let at = Instant::now() + Duration::from_millis(request.grace_ms);
        self.kill_at = Some(self.kill_at.map_or(at, |old| old.min(at)));
    }

    /// Takes the statuses of all children, adopted ones included.
    fn reap(&mut self) {
        loop {
            let status = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(status) => status,
            };
            if status.pid() != Some(self.task) {
                continue;
            }
            let mut exit = ExitRecord {
                finished_at: now(),
                ..ExitRecord::default()
            };
            match status {
                WaitStatus::Exited(_, code) => exit.exit_code = code,
                WaitStatus::Signaled(_, signal, _) => {
                    exit.signal = signal as i32;
                }
                _ => continue,
            }
            self.ended = Some(exit);
        }
    }

    /// Kills everything below us; how many were still there.
    fn kill_tree(&self) -> usize {
        let left: Vec<_> = proc::descendants(rustix::process::getpid().as_raw_nonzero().get())
            .into_iter()
            .filter(|p| p.state != 'Z')
            .collect();
        for process in &left {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        left.len()
    }
}

fn start_of(pid: i32) -> u64 {
    proc::stat(pid).map_or(0, |s| s.start)
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}
