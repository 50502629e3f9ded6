//! The hooks of a task: what is done for it before it starts, while it runs and when it ends.
//!
//! [`list`] holds them in their order, which is their meaning: each may rely on those before it. A
//! hook is made for one task of one allocation and lives as long as the allocation's runner, over
//! all restarts of the task. What it is given and what it answers are different types (CL-18). What
//! it answers before a start is in the client's journal before the next hook begins ([`chain`]), so
//! an agent killed between any two continues where it was; variables, mounts and devices among it
//! reach every later start of the task, whatever starts it (CL-28).
//!
//! When each is called, and what ends it before its time (CL-23):
//!
//! | call | when | dropped at its next await by |
//! |---|---|---|
//! | `prestart` | before every start, unless it answered done | a stop, the agent's end |
//! | `poststart` | it runs, or a new agent found it running | the task's end, the agent's end |
//! | `update` | it runs, and the servers sent a new version | the task's end, the agent's end |
//! | `exited` | it ended, also if that was seen by a new agent only | the agent's end |
//! | `stop` | it will never run again, whether or not it ever did | the agent's end |
//!
//! What is dropped is released at once: nothing of a call outlives it (CL-20). Calls for one task
//! come one after the other; those for several tasks at the same time. What a hook keeps is looked
//! up when its call begins, so it is what was answered last, also by one that a stop dropped on its
//! way to the journal. Which hooks did their work in `exited` and `stop` is in the journal too: an
//! agent killed between two of them leaves the rest to the next one.

pub mod chain;
pub mod list;
mod prepare;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::{Allocation, Job, Node, Task, TaskEvent};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::alloc_dir::AllocDir;
use crate::clock::Clock;
use crate::config::ClientSettings;
use crate::drivers::{Device, ExitResult, Mount, Registry, RunningTask, paths_seen};
use crate::env::{TaskEnv, TaskEnvInput};
use crate::hooks::notes::Note;
use crate::hooks::resources::Resources;

pub use prepare::VALIDATE;
pub use stats::Usage;

/// Takes events of the task.
pub type Emit = Arc<dyn Fn(TaskEvent) + Send + Sync>;

/// What every call of a hook is given; nothing of it can be changed.
#[derive(Clone)]
pub struct TaskGiven {
    /// The allocation, as the servers last sent it.
    pub alloc: Arc<Allocation>,
    /// The task's name.
    pub name: String,
    /// The allocation's directories.
    pub dir: AllocDir,
    /// The drivers of this client.
    pub drivers: Registry,
    pub node: Arc<Node>,
    /// The client's settings.
    pub settings: Arc<ClientSettings>,
    /// What the allocation's hooks left, and what those of tasks leave for each other.
    pub resources: Arc<Resources>,
    /// The time.
    pub clock: Clock,
    /// Reports something of the task.
    pub emit: Emit,
    /// Variables from hooks that answered before this call began.
    pub hook_env: BTreeMap<String, String>,
}

impl TaskGiven {
    /// The job and the task.
    ///
    /// # Errors
    /// The allocation's job has no such task.
    pub fn task(&self) -> Result<(&Job, &Task), HookFailure> {
        let job = self.alloc.job.as_deref();
        let task = self.alloc.group().and_then(|group| group.task(&self.name));
        job.zip(task)
            .ok_or_else(|| HookFailure::fatal("the job has no such task"))
    }

    /// The environment as far as it is known: with the variables of hooks before.
    ///
    /// # Errors
    /// The allocation's job has no such task.
    pub fn env(&self) -> Result<TaskEnv, HookFailure> {
        let (job, task) = self.task()?;
        let gone = || HookFailure::fatal("the job has no such group");
        Ok(TaskEnv::build(&TaskEnvInput {
            node: &self.node,
            region: &self.settings.region,
            alloc: &self.alloc,
            job,
            group: self.alloc.group().ok_or_else(gone)?,
            task,
            paths: &paths_seen(&task.driver, &self.dir.paths(&self.name)),
            host: &self.settings.host_env,
            hooks: &self.hook_env,
        }))
    }
}

/// What a hook answers before a start. One that answers nothing leaves nothing in the journal, and
/// is called again before the next start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskAnswer {
    /// It is not called before a start again, whatever dies; what else it answered stays.
    pub done: bool,
    /// Variables for the task.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What is mounted for the task.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Devices that the task may use.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What the hook is given the next time, by any call and by any agent.
    #[serde(default)]
    pub kept: Value,
}

impl TaskAnswer {
    /// It did its work, for all starts.
    pub fn done() -> Self {
        Self {
            done: true,
            ..Self::default()
        }
    }

    /// There was nothing to do.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Something in it is used later.
    pub fn leaves_something(&self) -> bool {
        let plain = Self {
            done: self.done,
            ..Self::default()
        };
        *self != plain
    }
}

/// What a hook of a task answered before a start; what the journal keeps.
pub type TaskNote = Note<TaskAnswer>;

/// Why a hook does not let the task start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    /// What happened.
    pub message: String,
    /// Another attempt may help.
    pub recoverable: bool,
}

impl HookFailure {
    /// Another attempt will not help.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            recoverable: false,
        }
    }
}

impl From<String> for HookFailure {
    /// Another attempt may help.
    fn from(message: String) -> Self {
        Self {
            message,
            recoverable: true,
        }
    }
}

/// What the prestart hooks left that was not reported yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedTask {
    /// Their answers, in their order.
    pub notes: Vec<TaskNote>,
}

/// A hook failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookError {
    pub hook: String,
    /// What happened.
    pub message: String,
    /// Another attempt may help.
    pub recoverable: bool,
}

/// An end at which hooks have work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end of a run of the task.
    Exited,
    /// The end of the task.
    Stop,
}

impl Ending {
    /// The name of the call.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Stop => "stop",
        }
    }
}

/// What hooks of a task report while others of them still have their turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskHookReport {
    /// Some answered before a start.
    Answered(Vec<TaskNote>),
    /// A hook did its work at an end.
    Through(Ending, String),
}

/// A future of a hook before a start.
pub type Prestart<'a> = BoxFuture<'a, Result<TaskAnswer, HookFailure>>;

/// A future of any other call.
pub type Hooked<'a> = BoxFuture<'a, Result<(), String>>;

/// A task that runs, as hooks see it.
#[derive(Clone)]
pub struct RunningHooks {
    /// What the driver follows.
    pub task: Arc<dyn RunningTask>,
    /// It ran before this agent did: hooks before its start were called by another.
    pub recovered: bool,
}

/// A hook of a task. `kept` is what it answered last, [`Value::Null`] before.
pub trait TaskHook: Send + Sync {
    /// Its name, which no other hook of tasks has.
    fn name(&self) -> &'static str;

    /// Doing its work once more costs nothing and changes nothing: what it answers is written with
    /// the next thing that is, and not before the next hook begins. That it did its work at an end
    /// is not written at all.
    fn repeatable(&self) -> bool {
        false
    }

    /// Before a start.
    fn prestart<'a>(&'a self, _: &'a TaskGiven, _kept: &'a Value) -> Prestart<'a> {
        std::future::ready(Ok(TaskAnswer::nothing())).boxed()
    }

    /// It runs.
    fn poststart<'a>(
        &'a self,
        _: &'a TaskGiven,
        _kept: &'a Value,
        _running: &'a RunningHooks,
    ) -> Hooked<'a> {
        well()
    }

    /// The servers sent a new version of the allocation.
    fn update<'a>(&'a self, _: &'a TaskGiven, _kept: &'a Value) -> Hooked<'a> {
        well()
    }

    /// It ended; it may be started again when this is through.
    fn exited<'a>(
        &'a self,
        _: &'a TaskGiven,
        _kept: &'a Value,
        _exit: &'a ExitResult,
    ) -> Hooked<'a> {
        well()
    }

    /// It will never run again. It is called also where the hook was never called before.
    fn stop<'a>(&'a self, _: &'a TaskGiven, _kept: &'a Value) -> Hooked<'a> {
        well()
    }

    /// The agent ends; nothing of this outlives it.
    fn shutdown(&self) {}
}

fn well<'a>() -> Hooked<'a> {
    std::future::ready(Ok(())).boxed()
}
