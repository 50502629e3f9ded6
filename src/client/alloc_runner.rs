//! The seam between the agent and what runs an allocation (CL-24, SIM-01).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use drover_events::model::{AllocResourceUsage, Allocation, CheckQueryResult};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::alloc_dir::AllocDir;
use crate::drivers::exec::{ExecCommand, Wires};

/// Takes what is reported of an allocation to the servers: id, node, states of tasks, client
/// status, health and network; its other fields are empty.
pub type Report = Arc<dyn Fn(Allocation) + Send + Sync>;

/// What an allocation waits for before its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// For no other allocation.
    #[default]
    ForNobody,
    /// Until those that it replaces are through.
    ForOthers,
    /// Until what one of them left is taken over.
    ForData,
}

/// Runs one allocation. This is all that the agent needs; [`AllocRunner::control`] is for runners
/// that users can talk to.
pub trait AllocRunner: Send + Sync {
    /// The servers' newest version of the allocation.
    fn update(&self, alloc: Arc<Allocation>);

    /// The last version that came from the servers.
    fn alloc(&self) -> Arc<Allocation>;

    /// What is reported to the servers now; `None` where that is not kept.
    fn reported(&self) -> Option<Allocation> {
        None
    }

    /// What it waits for before its tasks; nothing where that is not kept.
    fn waits(&self) -> Waits {
        Waits::default()
    }

    /// Turns true when nothing of it runs any more, and stays so.
    fn done(&self) -> watch::Receiver<bool>;

    /// When its last task ended, unix nanoseconds; 0 when it has not, or that is not known.
    fn ended_at(&self) -> i64 {
        0
    }

    /// Ends what runs, and removes everything there is of it on this node.
    fn destroy(&self) -> BoxFuture<'static, ()>;

    /// The servers answered for the first time since the start.
    fn server_contacted(&self) {}

    /// The agent ends; what runs continues without it.
    fn detach(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    /// What users can request of it.
    fn control(&self) -> Option<&dyn AllocControl> {
        None
    }
}

/// Why a user's request to an allocation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such task.
    #[error("unknown task name {0:?}")]
    UnknownTask(String),
    /// The task does not run.
    #[error("Task not running")]
    NotRunning,
    /// The request makes no sense now, or the driver refused it.
    #[error("{0}")]
    Refused(String),
}

/// What users can request of an allocation that runs. `alloc`, where that is done, knows `hooks`,
/// and they know the runners of this file, which therefore may not know `alloc`.
pub trait AllocControl: Send + Sync {
    /// Starts tasks again: one, all that run, or all that can (CL-06 to CL-08). All get the request
    /// at once; what is waited for is that each of those that ran has ended.
    ///
    /// # Errors
    /// That nothing could be restarted; the errors of those that could not be requested to end.
    fn restart(
        &self,
        task: Option<&str>,
        all: bool,
    ) -> BoxFuture<'static, Result<(), ControlError>>;

    /// Sends a signal to one task, or to all that run.
    ///
    /// # Errors
    /// An unknown task or signal, or that none runs.
    fn signal(&self, task: Option<&str>, signal: &str) -> Result<(), ControlError>;

    /// Starts a command beside a task that runs.
    ///
    /// # Errors
    /// An unknown task, one that does not run, or what the driver says.
    fn exec(
        &self,
        task: &str,
        command: ExecCommand,
        wires: Wires,
    ) -> BoxFuture<'static, Result<(), ControlError>>;

    /// Waits for samples of what its tasks use that are not old, as long as that makes sense.
    fn sampled(&self) -> BoxFuture<'static, ()>;

    /// What it used when it was last measured; of one task, if named. It is measured often while
    /// a caller requests it.
    ///
    /// # Errors
    /// An unknown task.
    fn stats(&self, task: Option<&str>) -> Result<AllocResourceUsage, ControlError>;

    /// The last result of every check of its services, by the check's id (CHK-06).
    fn checks(&self) -> BTreeMap<String, CheckQueryResult>;

    fn dir(&self) -> &AllocDir;

    /// Whether a task was ever started, and whether it is over.
    fn task_progress(&self, task: &str) -> Option<(bool, bool)>;
}

/// Makes runners.
pub trait AllocRunnerFactory: Send + Sync {
    /// Runs an allocation: a new one, or, with `state` from the journal, one from before the
    /// agent's restart. It waits for `previous` to be done first.
    ///
    /// # Errors
    /// Why it cannot be run at all; the agent reports it as failed.
    fn start(
        &self,
        alloc: Arc<Allocation>,
        state: Option<Bytes>,
        previous: Vec<Arc<dyn AllocRunner>>,
        report: Report,
    ) -> Result<Arc<dyn AllocRunner>, String>;
}
