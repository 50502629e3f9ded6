//! The hooks of an allocation: what is done for it before its tasks, beside them and after them.
//!
//! [`list`] holds them in their order, which is their meaning: each may rely on those before it. A
//! hook is made for one allocation and lives as long as its runner. What it is given and what it
//! answers are different types (CL-18): nothing can be set by changing the request. What it answers
//! is in the client's journal before the next hook begins ([`chain`]), so an agent killed between
//! any two continues where it was.
//!
//! When each is called, and what ends it before its time (CL-23):
//!
//! | call | when | dropped at its next await by |
//! |---|---|---|
//! | `prerun` | before the tasks, again after a restart unless done | a stop, the agent's end |
//! | `restore` | after a restart of the agent, if it answered before | a stop, the agent's end |
//! | `update` | the servers sent a new version | a stop, the agent's end |
//! | `task_restarted` | a task runs again | a stop, the agent's end |
//! | `pre_kill` | the tasks are to end, before they get the request | its limit, the agent's end |
//! | `postrun` | nothing of the tasks is left, and their hooks are through | the agent's end |
//! | `destroy` | what is left of the allocation is removed | the agent's end |
//!
//! What is dropped is begun again, after a stop by `postrun` and after the agent's end by the next
//! agent: a hook must find what it left half done. A hook that ends something does not get a
//! stop, which means nothing there. Calls of one allocation come one after the other.

pub mod chain;
mod dirs;
pub mod list;
mod services;

use std::sync::Arc;

use drover_events::model::{Allocation, Node};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::alloc_dir::AllocDir;
use crate::alloc_runner::AllocRunner;
use crate::config::ClientSettings;
use crate::hooks::notes::Note;
use crate::hooks::resources::Resources;

/// What every call of a hook is given; nothing of it can be changed.
#[derive(Clone)]
pub struct AllocGiven {
    /// The allocation, as the servers last sent it.
    pub alloc: Arc<Allocation>,
    pub dir: AllocDir,
    pub node: Arc<Node>,
    /// The client's settings.
    pub settings: Arc<ClientSettings>,
    /// What hooks leave for those after them, and for the hooks of tasks.
    pub resources: Arc<Resources>,
    /// Runners of allocations that it replaces, on this node; before the tasks only.
    pub previous: Vec<Arc<dyn AllocRunner>>,
    /// Reports something in an event of all its tasks.
    pub report: StateReporter,
}

/// Takes the name of a hook, and what it has to say.
pub type StateReporter = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What a hook answers. One that answers nothing leaves nothing in the journal, and is called
/// again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocAnswer {
    /// It is not called again for this, whatever dies.
    pub done: bool,
    /// What it is given the next time, by any call and by any agent.
    #[serde(default)]
    pub kept: Value,
}

impl AllocAnswer {
    /// It did its work, and keeps nothing.
    pub fn done() -> Self {
        Self::keeping(Value::Null)
    }

    /// It did its work, and keeps this.
    pub fn keeping(kept: Value) -> Self {
        Self { done: true, kept }
    }

    /// There was nothing to do.
    pub fn nothing() -> Self {
        Self::default()
    }
}

/// What a hook of an allocation answered before its tasks; what the journal keeps.
pub type AllocNote = Note<AllocAnswer>;

/// What hooks of an allocation report while others of them still have their turn.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocHookReport {
    /// Some hooks answered before the tasks.
    Answered(Vec<AllocNote>),
    /// A hook did its work after the tasks.
    Ended(String),
}

/// A future of a hook.
pub type Hooked<'a, T> = BoxFuture<'a, Result<T, String>>;

/// A hook of an allocation. `kept` is what it answered last, [`Value::Null`] before.
pub trait AllocHook: Send + Sync {
    /// Its name, which no other hook of allocations has.
    fn name(&self) -> &'static str;

    /// Doing its work once more costs nothing and changes nothing: what it answers before the tasks
    /// is written with the next thing that is, and not before the next hook begins.
    fn repeatable(&self) -> bool {
        false
    }

    /// Before the tasks.
    fn prerun<'a>(&'a self, _: &'a AllocGiven, _kept: &'a Value) -> Hooked<'a, AllocAnswer> {
        nothing()
    }

    /// Before anything else, after a restart of the agent, if it had answered: puts what others
    /// need of it into [`AllocGiven::resources`] again, and makes good what is gone. Until it ends
    /// well no task starts; what runs already is found again meanwhile.
    fn restore<'a>(&'a self, _: &'a AllocGiven, _kept: &'a Value) -> Hooked<'a, ()> {
        well()
    }

    /// The servers sent a new version of the allocation.
    fn update<'a>(&'a self, _: &'a AllocGiven, _kept: &'a Value) -> Hooked<'a, ()> {
        well()
    }

    /// One of its tasks ran, ended, and runs again (CL-21).
    fn task_restarted<'a>(&'a self, _: &'a AllocGiven, _task: &'a str) -> Hooked<'a, ()> {
        well()
    }

    /// Its tasks are to end; they get the request when this is through.
    fn pre_kill<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        well()
    }

    /// Nothing of its tasks runs any more. It is called also where the hook's `prerun` failed, was
    /// dropped or never came; an error is written to the agent's log, and the next hook follows.
    fn postrun<'a>(&'a self, _: &'a AllocGiven, _kept: &'a Value) -> Hooked<'a, AllocAnswer> {
        nothing()
    }

    /// What is left of the allocation on this node is removed.
    fn destroy<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        well()
    }

    /// The agent ends; nothing of this outlives it.
    fn shutdown(&self) {}
}

fn nothing<'a>() -> Hooked<'a, AllocAnswer> {
    std::future::ready(Ok(AllocAnswer::nothing())).boxed()
}

fn well<'a>() -> Hooked<'a, ()> {
    std::future::ready(Ok(())).boxed()
}

#[cfg(test)]
mod tests {
    use super::dirs::AllocDirs;
    use super::*;

    /// A call with what the hook keeps, and one without.
    type Keeping<T> = for<'a> fn(&'a AllocDirs, &'a AllocGiven, &'a Value) -> Hooked<'a, T>;
    type Plain<T> = for<'a> fn(&'a AllocDirs, &'a AllocGiven) -> Hooked<'a, T>;
    type OfTask = for<'a> fn(&'a AllocDirs, &'a AllocGiven, &'a str) -> Hooked<'a, ()>;

    #[test]
    fn cl_18_what_a_hook_of_an_allocation_is_given_cannot_be_changed_by_any_call() {
        // What it is given is shared and what it answers is new: where this no longer compiles, a
        // hook could set its state on the request by mistake.
        let answering: [Keeping<AllocAnswer>; 2] = [AllocDirs::prerun, AllocDirs::postrun];
        let keeping: [Keeping<()>; 2] = [AllocDirs::restore, AllocDirs::update];
        let plain: [Plain<()>; 2] = [AllocDirs::pre_kill, AllocDirs::destroy];
        let of_task: OfTask = AllocDirs::task_restarted;
        let _ = (answering, keeping, plain, of_task);
    }
}
