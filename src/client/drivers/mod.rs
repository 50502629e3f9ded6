//! Task drivers: how a task is run.
//!
//! A [`Driver`] starts tasks and finds them again after a restart of the agent; a [`RunningTask`]
//! is one that it follows. What must survive the agent is a [`Handle`]: plain data in the journal.
//!
//! Drivers must not know: servers, allocations' states, the journal. They get a finished
//! [`TaskConfig`] (environment built, configuration interpolated).
//!
//! Invariant: for one `(allocation, task, run)` a driver starts at most one task, whatever dies in
//! between (DRV-08).

pub mod capabilities;
pub mod config;
pub mod exec;
pub mod isolated;
pub mod mock;
pub mod raw_exec;
pub mod registry;
pub mod signals;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{DriverInfo, TaskResourceUsage};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::env::TaskPaths;

pub use crate::isolation::{Device, Mount, Namespaces, Propagation, TaskLimits};
use exec::{ExecCommand, Wires};
pub use registry::Registry;

/// How a task ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitResult {
    pub exit_code: i32,
    /// The signal that ended it; 0 for none.
    pub signal: i32,
    /// The kernel killed it for its memory.
    pub oom_killed: bool,
    /// Why it could not be followed to its end; empty when all went well.
    pub error: String,
    /// When, unix nanoseconds; 0 when not known.
    pub finished_at: i64,
}

impl ExitResult {
    /// Ended by itself with code 0.
    pub fn successful(&self) -> bool {
        self.exit_code == 0 && self.signal == 0 && self.error.is_empty()
    }
}

/// What a driver must find a task again with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// Which attempt of the task this is.
    pub run: u64,
    /// When the task was started, unix nanoseconds.
    pub started_at: i64,
    /// The driver's own data.
    pub state: Value,
}

/// A task ready to be started.
#[derive(Clone, Debug, Default)]
pub struct TaskConfig {
    pub alloc_id: String,
    pub task: String,
    /// Which attempt this is; never used twice for a task.
    pub run: u64,
    /// The driver's configuration, interpolated.
    pub config: BTreeMap<String, Value>,
    pub env: BTreeMap<String, String>,
    /// The user to run as; empty for the agent's.
    pub user: String,
    /// The cores that are reserved for it; none: it shares what is left.
    pub cores: Vec<u16>,
    /// What its hooks want mounted for it, in their order.
    pub mounts: Vec<Mount>,
    /// Devices that it may use.
    pub devices: Vec<Device>,
    /// What it may use of the machine; a driver that limits nothing takes no notice.
    pub limits: TaskLimits,
    /// What it has for itself, where the driver can.
    pub namespaces: Namespaces,
    /// Directories.
    pub paths: TaskPaths,
    /// Where log files go.
    pub log_dir: PathBuf,
    /// How many log files of a stream are kept.
    pub log_max_files: u64,
    /// When they are rotated, bytes.
    pub log_max_bytes: u64,
    /// No logs.
    pub log_disabled: bool,
}

/// Why a task did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// What happened.
    pub message: String,
    /// Another attempt may help.
    pub recoverable: bool,
}

impl StartError {
    /// An error that another attempt will not cure.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            recoverable: false,
        }
    }
}

/// Why a request to a running task failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The task has ended.
    #[error("task is not running")]
    NotRunning,
    /// No such signal.
    #[error("unknown signal {0:?}")]
    UnknownSignal(String),
    /// The driver refused it.
    #[error("{0}")]
    Driver(String),
}

/// Why there are no samples of what a task uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// The driver never has any.
    #[error("the driver measures nothing")]
    Unsupported,
    /// Another stream may have some.
    #[error("{0}")]
    Failed(String),
}

/// Samples of what a task uses.
pub type Samples = BoxStream<'static, Result<TaskResourceUsage, StatsError>>;

/// What became of a task while the agent was away.
pub enum Recovered {
    Live(Arc<dyn RunningTask>),
    /// It ended.
    Exited(ExitResult),
    /// It was never started, and with this run it never will be.
    NeverStarted,
}

/// Whether tasks of a driver, and what runs beside them, see files of their own in place of the
/// node's.
#[must_use]
pub fn isolates_files(driver: &str) -> bool {
    matches!(driver, "docker" | "exec" | "exec2" | "java" | "podman")
}

/// Where a task of a driver finds its directories, by where they are on the node.
#[must_use]
pub fn paths_seen(driver: &str, on_node: &TaskPaths) -> TaskPaths {
    match isolates_files(driver) {
        true => TaskPaths::isolated(),
        false => on_node.clone(),
    }
}

/// The user that a task of a driver runs as, by the name that its job gives; empty for the agent's
/// user.
#[must_use]
pub fn runs_as<'a>(driver: &str, named: &'a str) -> &'a str {
    match driver {
        isolated::NAME => isolated::user(named),
        _ => named,
    }
}

/// Starts tasks.
pub trait Driver: Send + Sync {
    /// `Task.Driver`.
    fn name(&self) -> &'static str;

    /// Whether it works here, and what it says about itself; `now` in unix nanoseconds.
    fn fingerprint(&self, now: i64) -> DriverInfo;

    /// Checks a configuration; the text names every problem.
    ///
    /// # Errors
    /// What is wrong with it.
    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String>;

    /// Starts a task.
    fn start(
        &self,
        config: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>>;

    /// Finds a task again. Without a handle, the agent died while it was starting the task.
    fn recover(
        &self,
        config: TaskConfig,
        handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>>;

    /// Removes what a run left behind, logs excepted.
    fn destroy(&self, alloc_id: &str, task: &str, run: u64);
}

/// A task that runs.
pub trait RunningTask: Send + Sync {
    /// What finds it again.
    fn handle(&self) -> Handle;

    /// Waits for its end.
    fn wait(&self) -> BoxFuture<'static, ExitResult>;

    /// Requests its end: `signal` now (a name; empty for the driver's own), killed after `grace`.
    ///
    /// # Errors
    /// That the request could not be made; [`RunningTask::wait`] returns the end itself.
    fn stop(&self, signal: &str, grace: Duration) -> Result<(), TaskError>;

    /// Sends a signal.
    ///
    /// # Errors
    /// An unknown signal, or that the task is gone.
    fn signal(&self, signal: &str) -> Result<(), TaskError>;

    /// Starts a command beside the task, as the task was started: with its user, environment,
    /// directory and limits. It ends with the task, and when no reader takes its output any more.
    ///
    /// # Errors
    /// It could not be started, or the task is gone.
    fn exec(&self, command: ExecCommand, wires: Wires)
    -> BoxFuture<'static, Result<(), TaskError>>;

    /// What it uses: a sample at once, and one after every interval, which is not zero. The stream
    /// closes when the task has ended, and measures nothing any more once it is dropped; after an
    /// error nothing follows (DRV-01, DRV-02).
    fn stats(&self, interval: Duration) -> Samples;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_finds_its_directories_where_its_driver_shows_them() {
        let on_node = TaskPaths {
            root: "/a/web".into(),
            ..TaskPaths::default()
        };
        assert_eq!(paths_seen("raw_exec", &on_node), on_node);
        assert_eq!(paths_seen("exec", &on_node), TaskPaths::isolated());
    }
}
