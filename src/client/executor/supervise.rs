//! The executor's own loop: start, follow, stop, record.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

use super::cgroup::Groups;
use super::files::{
    ExecSpec, ExecState, ExitRecord, RunDir, SIGNALLED, StopRequest, read_json, write_json,
};
use super::guests::Guests;
use super::keyring;
use super::output::Output;
use super::rotate::Rotator;
use super::spawn::{self, SpawnTarget};
use super::tree::{PAUSE, kill_below};
use super::world::World;
use crate::isolation::TaskLimits;
use crate::proc;

/// How long output is still read after everything is dead; pipes held by strangers must not keep
/// us.
const DRAIN: Duration = Duration::from_secs(2);
/// The exit code of what was killed, also as a shell shows it of its child.
const OF_KILLED: i32 = SIGNALLED + Signal::SIGKILL as i32;
/// What Nomad says of a task that was killed for its memory.
const OOM: &str = "OOM Killed";
/// How long an end is tried to be written on a disk that is full.
const RECORD: Duration = Duration::from_secs(10);

/// Runs the executor for one run directory; the exit code of the process.
pub fn run(dir: &Path) -> i32 {
    let dir = RunDir(dir.to_owned());
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
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

/// Makes the run ours; a run that has an executor, or is over, is left as it is.
fn own(dir: &RunDir) -> io::Result<std::fs::File> {
    let mut lock = dir
        .try_lock()?
        .ok_or_else(|| io::Error::other("another executor owns this run"))?;
    if dir.cancelled().exists() || dir.state().exists() || dir.exit().exists() {
        return Err(io::Error::other("this run is over"));
    }
    // An agent that waits in vain for a word of us knows which process to end.
    lock.set_len(0)?;
    lock.write_all(
        rustix::process::getpid()
            .as_raw_nonzero()
            .to_string()
            .as_bytes(),
    )?;
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
    own_keys()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = catch_signals()?;
    let mut following = Following::start(dir, spec)?;
    let exit = announce(dir, &following).and_then(|()| following.follow(dir, &signals));
    // Whatever went wrong, nothing else would end what is left.
    following.end_all();
    record(dir, &exit?)
}

/// Lets go of the agent's keys. Without root the task is the agent's own user, who may read them in
/// other ways; there a keyring beyond the user's quota keeps no task from running.
fn own_keys() -> io::Result<()> {
    match keyring::leave() {
        Err(e) if !rustix::process::geteuid().is_root() => {
            let _ = writeln!(io::stderr(), "executor: {e}");
            Ok(())
        }
        left => left,
    }
}

fn announce(dir: &RunDir, following: &Following) -> io::Result<()> {
    let task = following.task;
    let init = following.world.as_ref().map(|world| world.init);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let state = ExecState {
        executor_pid: own,
        executor_start: start_of(own),
        task_pid: task.as_raw(),
        task_start: start_of(task.as_raw()),
        init_pid: init.map_or(0, Pid::as_raw),
        boot_id: proc::boot_id(),
        started_at: now(),
    };
    write_json(&dir.state(), &state)?;
    report(&state);
    Ok(())
}

/// Writes how the task ended; a disk that is full may have space again soon.
fn record(dir: &RunDir, exit: &ExitRecord) -> io::Result<()> {
    let until = Instant::now() + RECORD;
    loop {
        match write_json(&dir.exit(), exit) {
            Err(e) if e.kind() == io::ErrorKind::StorageFull && Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
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

/// The loop's state while the task runs.
struct Following {
    spec: ExecSpec,
    task: Pid,
    outputs: [Output; 2],
    guests: Guests,
    groups: Groups,
    /// The files by which one enters them.
    doors: Vec<File>,
    world: Option<World>,
    ended: Option<ExitRecord>,
    kill_at: Option<Instant>,
}

impl Following {
    fn start(dir: &RunDir, spec: ExecSpec) -> io::Result<Self> {
        let (out_read, out_write) = io::pipe()?;
        let (err_read, err_write) = io::pipe()?;
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
        let groups = Groups::of(&spec);
        let ends = (out_write.into(), err_write.into());
        let begun = begin(&spec, &groups, ends);
        if begun.is_err() {
            // An init, if there is one, dies with us.
            groups.leave();
        }
        let (task, doors, world) = begun?;
        let guests = Guests::open(dir).unwrap_or_else(|e| {
            let _ = writeln!(io::stderr(), "executor: no commands beside the task: {e}");
            Guests::default()
        });
        Ok(Self {
            spec,
            task,
            outputs,
            guests,
            groups,
            doors,
            world,
            ended: None,
            kill_at: None,
        })
    }

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
            let place = SpawnTarget {
                spec: &self.spec,
                groups: &self.doors,
                world: self.world.as_ref(),
            };
            self.guests.serve(place, self.ended.is_none());
            let left = self.reap();
            if let Some(exit) = &self.ended {
                self.guests.task_ended(exit.exit_code);
            }
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_tree();
            }
            if let Some(exit) = &self.ended {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + DRAIN);
                let exit = exit.clone();
                if left {
                    self.kill_tree();
                    continue;
                }
                let open = self.outputs.iter().any(|o| o.fd().is_some());
                if !open || until <= Instant::now() {
                    return Ok(exit);
                }
            }
        }
    }

    /// Kills until nothing is left: a reaper without children has no descendants.
    fn end_all(&mut self) {
        while self.reap() {
            self.kill_tree();
            std::thread::sleep(PAUSE);
        }
        self.groups.leave();
    }

    fn wait_for_something(&self, signals: &SignalFd, until: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let open = self.outputs.iter().filter_map(Output::fd);
        fds.extend(open.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.guests.fds());
        let now = Instant::now();
        let wait = if until.is_some() {
            Some(PAUSE)
        } else {
            let due = self.kill_at.into_iter().chain(self.guests.due()).min();
            due.map(|at| at.saturating_duration_since(now).max(PAUSE))
        };
        let timeout = wait.map_or(PollTimeout::NONE, |d| {
            PollTimeout::try_from(d.as_millis()).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The agent requests the end: send the signal, and set the time for the hard end.
    fn stop(&mut self, dir: &RunDir) {
        let request: StopRequest = read_json(&dir.stop()).ok().flatten().unwrap_or_default();
        if self.ended.is_none() {
            let signal = Signal::try_from(request.signal).unwrap_or(Signal::SIGKILL);
            let _ = kill(self.task, signal);
        }
        let at = Instant::now() + Duration::from_millis(request.grace_ms);
        self.kill_at = Some(self.kill_at.map_or(at, |old| old.min(at)));
    }

    /// Takes the statuses of all children, adopted ones included; whether any are left.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            // Any number may be a signal's, also one that has no name.
            let signal = status.terminating_signal().unwrap_or(0);
            let code = status.exit_status().unwrap_or(SIGNALLED + signal);
            let pid = Pid::from_raw(pid.as_raw_nonzero().get());
            if pid != self.task {
                self.guests.ended(pid, code);
                continue;
            }
            let oom_killed = code == OF_KILLED && self.groups.killed_for_memory() > 0;
            self.ended = Some(ExitRecord {
                exit_code: code,
                signal,
                oom_killed,
                error: if oom_killed {
                    OOM.to_owned()
                } else {
                    String::new()
                },
                finished_at: now(),
                ..ExitRecord::default()
            });
        }
        // Only this process can have taken its status; but if so, it must not be waited for for
        // ever.
        self.ended.get_or_insert_with(|| ExitRecord {
            error: "the end of the task was not seen".to_owned(),
            finished_at: now(),
            ..ExitRecord::default()
        });
        false
    }

    /// Kills everything below us.
    fn kill_tree(&self) {
        self.groups.kill();
        kill_below(rustix::process::getpid().as_raw_nonzero().get());
    }
}

/// Makes what holds the task, and starts it there.
fn begin(
    spec: &ExecSpec,
    groups: &Groups,
    ends: (OwnedFd, OwnedFd),
) -> io::Result<(Pid, Vec<File>, Option<World>)> {
    let is_limited = spec.limits != TaskLimits::default() || !spec.devices.is_empty();
    let doors = match groups.make(spec) {
        Err(e) if is_limited => {
            let text = format!("cannot limit the task: {e}");
            return Err(io::Error::new(e.kind(), text));
        }
        Err(e) => {
            // The tree of processes is ended all the same, only less surely.
            let _ = writeln!(io::stderr(), "executor: no control group: {e}");
            Vec::new()
        }
        Ok(doors) => doors,
    };
    let apart = spec.namespaces.mount.then(|| World::make(spec));
    let world = apart.transpose()?;
    let place = SpawnTarget {
        spec,
        groups: &doors,
        world: world.as_ref(),
    };
    let task = spawn::spawn(place, ends)?;
    Ok((task, doors, world))
}

fn start_of(pid: i32) -> u64 {
    proc::stat(pid).map_or(0, |s| s.start)
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}
