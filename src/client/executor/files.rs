//! The files of a run directory: how agent and executor talk across restarts of either.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::isolation::{Device, Mount, Namespaces, TaskLimits};
use crate::proc::TreeUsage;

/// What is added to a signal's number to show it as an exit code, as shells do.
pub const SIGNALLED: i32 = 128;

/// What to run; written by the agent before the executor is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program: a path, or a name looked up in the environment's `PATH`.
    pub command: String,
    pub args: Vec<String>,
    /// The whole environment; nothing else is inherited.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// User to run as; empty for the agent's own.
    pub user: String,
    /// Value for `/proc/<pid>/oom_score_adj`; 0 leaves it alone.
    pub oom_score_adj: i32,
    /// The cores that it runs on; none: all that the agent may use.
    #[serde(default)]
    pub cores: Vec<u16>,
    /// The cores that it shares with others while it has none of its own, where groups keep it
    /// there.
    #[serde(default)]
    pub shared_cores: Vec<u16>,
    /// What is mounted for it.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Devices that it may use.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What it may use of the machine.
    #[serde(default)]
    pub limits: TaskLimits,
    /// What it has for itself.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// Directory of the log files.
    pub log_dir: PathBuf,
    /// Log files are named `<log_name>.stdout.N` and `<log_name>.stderr.N`.
    pub log_name: String,
    /// How many files of each stream are kept.
    pub log_max_files: u64,
    /// Size at which a file is rotated, bytes.
    pub log_max_bytes: u64,
    /// Throw output away.
    pub log_disabled: bool,
    /// The directory in which its mounts are made.
    #[serde(default)]
    pub root: PathBuf,
    /// The root is all that it sees of files, and these in it, as far as the host has them; none:
    /// it sees the host's.
    #[serde(default)]
    pub chroot: Option<Vec<Mount>>,
    /// The rights that it has at most, and can never exceed; none: those of its user.
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
    /// A control group (version 2) for the run, to be made.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// The same of version 1, by controller.
    #[serde(default)]
    pub cgroups_v1: BTreeMap<String, PathBuf>,
    /// That of version 2 is given a program that decides about devices.
    #[serde(default)]
    pub device_program: bool,
}

/// Rights as the kernel's bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// What it can have at most; root has all of these.
    pub bounding: u64,
    /// What a user that is not root has, too.
    pub ambient: u64,
}

/// The processes of a run; written by the executor once the task is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecState {
    pub executor_pid: i32,
    /// Its start time, ticks since boot.
    pub executor_start: u64,
    /// The task's first process; also its process group.
    pub task_pid: i32,
    /// Its start time, ticks since boot.
    pub task_start: u64,
    /// The init of its namespaces, which is none of its processes; 0 for none.
    #[serde(default)]
    pub init_pid: i32,
    /// The boot the times belong to.
    pub boot_id: String,
    /// When the task was started, unix nanoseconds.
    pub started_at: i64,
}

/// How it ended; written by the executor, synced, before it leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Exit code; [`SIGNALLED`] and the signal's number where one ended it.
    pub exit_code: i32,
    /// The signal that ended it; 0 for none.
    pub signal: i32,
    /// Killed by the kernel for its memory.
    pub oom_killed: bool,
    /// Why it could not be started or followed; empty when all went well.
    pub error: String,
    /// The start itself failed: no process ever ran.
    pub not_started: bool,
    /// When it ended, unix nanoseconds.
    pub finished_at: i64,
}

/// How to stop; written by the agent before it sends the executor SIGTERM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Signal for the task, a number.
    pub signal: i32,
    /// Milliseconds until everything is killed.
    pub grace_ms: u64,
}

/// A request to the executor; one line of JSON on the socket. With a command come the
/// descriptors it gets: a terminal, or input, output and errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorCall {
    /// Program and arguments of a command to run beside the task.
    pub command: Vec<String>,
    /// Instead of a command: what the task uses, now and after every so many milliseconds. An
    /// executor that does not know this has no command to start, and says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_ms: Option<u64>,
}

/// What the executor says to that, a line each. A command is killed, and nothing is measured any
/// more, when the socket is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutorReply {
    /// It runs, as this process.
    Started {
        /// Process id; also its session.
        pid: i32,
        /// Its start time, ticks since boot.
        start: u64,
    },
    /// It does not.
    Failed(String),
    /// It ended with this code; [`SIGNALLED`] and the signal's number where one ended it. A
    /// connection that measures gets the same about the task.
    Ended(i32),
    /// What the task has used.
    Sample {
        /// When, unix nanoseconds.
        at: i64,
        /// By all of its processes.
        usage: TreeUsage,
    },
    /// There is no sample, and none will follow.
    NoSample {
        why: String,
        /// A later request may get some.
        recoverable: bool,
    },
}

/// Names inside a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// [`ExecSpec`], mode 0600 (the environment holds secrets).
    pub fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }
    /// [`ExecState`].
    pub fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }
    /// [`ExitRecord`].
    pub fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }
    /// [`StopRequest`].
    pub fn stop(&self) -> PathBuf {
        self.0.join("stop.json")
    }
    /// Locked by the executor for as long as it lives; holds its process id.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    /// The socket by which commands are run beside the task, below the directory.
    pub const SOCKET: &'static str = "exec.sock";
    /// An executor that finds this file starts nothing.
    pub fn cancelled(&self) -> PathBuf {
        self.0.join("cancelled")
    }
    /// What the executor itself has to say.
    pub fn log(&self) -> PathBuf {
        self.0.join("executor.log")
    }

    /// Takes the lock if no process holds it; it is held until the file is dropped.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.lock())?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// Writes a JSON file so that a reader sees all of it or nothing: temporary file, sync, rename.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let tmp = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&tmp)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_data()?;
    fs::rename(&tmp, path)
}

/// Reads a JSON file; `None` when it does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
