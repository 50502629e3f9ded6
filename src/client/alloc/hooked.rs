//! Carries out what the machine decided about hooks, and brings their answers back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc};

use super::actor::Actor;
use super::hooks::chain::{self, Notes};
use super::hooks::list::AllocHooks;
use super::hooks::{AllocGiven, AllocNote};
use super::machine::Input;
use super::runner::Msg;
use crate::client::drivers::ExitResult;
use crate::client::task::hooks::chain as task_chain;
use crate::client::task::hooks::list::TaskHooks;
use crate::client::task::hooks::{Hooked, Running, TaskGiven, TaskHook, TaskNote};
use crate::client::task::machine::{HookError, TaskInput};

/// How long hooks may hold up the end of tasks.
const PRE_KILL_LIMIT: Duration = Duration::from_secs(10);

/// What hooks of the allocation put back after a restart of the agent: once, and before any task of
/// it is made ready.
#[derive(Clone)]
pub(super) struct Restored {
    ready: Arc<OnceCell<()>>,
    hooks: AllocHooks,
    given: AllocGiven,
    notes: Vec<AllocNote>,
}

impl Restored {
    /// Waits until all is there again. Who comes first does the work; where it fails, or is
    /// dropped, the next begins anew.
    async fn wait(&self) -> Result<(), HookError> {
        let work = || chain::restore(&self.hooks, &self.given, &self.notes);
        let failed = |message| HookError {
            hook: "restore".to_owned(),
            message,
            recoverable: true,
        };
        let ready = self.ready.get_or_try_init(work).await;
        ready.copied().map_err(failed)
    }
}

/// The hooks of a task, and what a call of them is given.
struct Call {
    hooks: TaskHooks,
    given: TaskGiven,
    notes: Vec<TaskNote>,
    name: String,
    tx: mpsc::UnboundedSender<Msg>,
}

impl Call {
    /// Makes one call of every hook of the task.
    async fn each<'a>(
        &'a self,
        kind: &str,
        mut call: impl FnMut(&'a dyn TaskHook, &'a TaskGiven, &'a Value) -> Hooked<'a>,
    ) {
        let given = &self.given;
        task_chain::each(kind, &self.hooks, given, &self.notes, |hook, kept| {
            call(hook, given, kept)
        })
        .await;
    }

    fn send(&self, input: TaskInput) {
        // A runner that has ended needs no input.
        let _ = self
            .tx
            .send(Msg::Input(Input::Task(self.name.clone(), input)));
    }
}

impl Actor {
    fn alloc_given(&mut self) -> AllocGiven {
        AllocGiven {
            alloc: self.shared.alloc.lock().clone(),
            dir: self.shared.dir.clone(),
            node: self.factory.node.lock().clone(),
            settings: self.factory.settings.get(),
            resources: self.shared.resources.clone(),
            previous: std::mem::take(&mut self.previous),
        }
    }

    pub(super) fn prerun(&mut self) {
        let (given, hooks, tx) = (self.alloc_given(), self.hooks.clone(), self.tx.clone());
        let before = self.shared.machine.lock().notes().to_vec();
        let ready = self.ready.clone();
        self.jobs.put_dropped(None, async move {
            let notes = Notes(tx.clone());
            let done = chain::prerun(&hooks, &given, &before, &notes).await;
            if done.is_ok() {
                // What hooks left is where they left it.
                let _ = ready.set(());
            }
            let _ = tx.send(Msg::Input(Input::PrerunDone(done)));
        });
    }

    fn restored(&mut self) -> Restored {
        Restored {
            ready: self.ready.clone(),
            hooks: self.hooks.clone(),
            given: self.alloc_given(),
            notes: self.shared.machine.lock().notes().to_vec(),
        }
    }

    pub(super) fn restore(&mut self) {
        let restored = self.restored();
        self.jobs.put_dropped(None, async move {
            if let Err(e) = restored.wait().await {
                tracing::error!(alloc = %restored.given.alloc.id, "{}", e.message);
            }
        });
    }

    pub(super) fn update_hooks(&mut self) {
        let (given, hooks) = (self.alloc_given(), self.hooks.clone());
        let notes = self.shared.machine.lock().notes().to_vec();
        self.jobs.put_dropped(None, async move {
            let kept = |name: &str| chain::kept_of(&notes, name);
            chain::each("update", &hooks, &given, |hook| {
                hook.update(&given, kept(hook.name()))
            })
            .await;
        });
    }

    pub(super) fn task_restarted(&mut self, task: String) {
        let (given, hooks) = (self.alloc_given(), self.hooks.clone());
        self.jobs.put_dropped(None, async move {
            chain::each("task-restart", &hooks, &given, |hook| {
                hook.task_restarted(&given, &task)
            })
            .await;
        });
    }

    pub(super) fn pre_kill(&mut self) {
        let (given, hooks, tx) = (self.alloc_given(), self.hooks.clone(), self.tx.clone());
        self.jobs.interrupt(None);
        self.jobs.put(None, async move {
            let run = chain::each("pre-kill", &hooks, &given, |hook| hook.pre_kill(&given));
            if tokio::time::timeout(PRE_KILL_LIMIT, run).await.is_err() {
                tracing::error!(alloc = %given.alloc.id, "hooks hold up the end of its tasks");
            }
            let _ = tx.send(Msg::Input(Input::PreKillDone));
        });
    }

    pub(super) fn postrun(&mut self) {
        let (given, hooks, tx) = (self.alloc_given(), self.hooks.clone(), self.tx.clone());
        let (before, ended) = {
            let machine = self.shared.machine.lock();
            (machine.notes().to_vec(), machine.ended_hooks().clone())
        };
        self.jobs.interrupt(None);
        self.jobs.put(None, async move {
            let notes = Notes(tx.clone());
            chain::postrun(&hooks, &given, (&before, &ended), &notes).await;
            let _ = tx.send(Msg::Input(Input::PostrunDone));
        });
    }

    /// Lets every hook know that the agent ends, once nothing of them runs.
    pub(super) async fn end_hooks(&mut self) {
        self.jobs.end().await;
        self.hooks.iter().for_each(|hook| hook.shutdown());
        let of_tasks = self.task_hooks.values().flat_map(|hooks| hooks.iter());
        of_tasks.for_each(|hook| hook.shutdown());
    }

    /// Lets every hook remove what it left on this node.
    pub(super) async fn destroy_hooks(&mut self) {
        self.jobs.end().await;
        let (given, hooks) = (self.alloc_given(), self.hooks.clone());
        chain::each("destroy", &hooks, &given, |hook| hook.destroy(&given)).await;
    }

    /// What a call of a task's hooks needs; none for a task that is not there.
    fn call(&self, name: &str) -> Option<Call> {
        let machine = self.shared.machine.lock();
        let task = machine.tasks.get(name)?;
        let (tx, to) = (self.tx.clone(), name.to_owned());
        let emit = move |event| {
            let input = Input::Task(to.clone(), TaskInput::Event(event));
            let _ = tx.send(Msg::Input(input));
        };
        Some(Call {
            hooks: self.task_hooks.get(name)?.clone(),
            given: TaskGiven {
                alloc: self.shared.alloc.lock().clone(),
                name: name.to_owned(),
                dir: self.shared.dir.clone(),
                drivers: self.factory.drivers.clone(),
                node: self.factory.node.lock().clone(),
                settings: self.factory.settings.get(),
                resources: self.shared.resources.clone(),
                clock: self.factory.clock.clone(),
                emit: Arc::new(emit),
                hook_env: task.hook_env(),
            },
            notes: task.notes().to_vec(),
            name: name.to_owned(),
            tx: self.tx.clone(),
        })
    }

    pub(super) fn prepare(&mut self, name: &str, done: std::collections::BTreeSet<String>) {
        let Some(call) = self.call(name) else {
            let error = HookError {
                hook: crate::client::task::hooks::VALIDATE.to_owned(),
                message: "the job has no such task".to_owned(),
                recoverable: false,
            };
            return self.send(name, TaskInput::Prepared(Err(error)));
        };
        let restored = self.restored();
        self.jobs.put_dropped(Some(name), async move {
            let (notes, name) = (Notes(call.tx.clone()), call.name.clone());
            let write = move |answers: Vec<TaskNote>| {
                let (notes, name) = (notes.clone(), name.clone());
                async move {
                    let answered = TaskInput::HooksAnswered(answers);
                    notes.put(Input::Task(name, answered)).await
                }
                .boxed()
            };
            let result = match restored.wait().await {
                Ok(()) => {
                    let (before, given) = ((&call.notes[..], &done), call.given.clone());
                    task_chain::prestart(&call.hooks, given, before, &write).await
                }
                Err(e) => Err(e),
            };
            call.send(TaskInput::Prepared(result));
        });
    }

    pub(super) fn poststart(&mut self, name: &str, recovered: bool) {
        let running = self.shared.tasks.lock().get(name).cloned();
        // One that has ended meanwhile has no use for it any more.
        if let (Some(call), Some(task)) = (self.call(name), running) {
            let running = Running { task, recovered };
            self.jobs.put_dropped(Some(name), async move {
                call.each("poststart", |hook, given, kept| {
                    hook.poststart(given, kept, &running)
                })
                .await;
            });
        }
    }

    pub(super) fn update_task_hooks(&mut self, name: &str) {
        if let Some(call) = self.call(name) {
            self.jobs.put_dropped(Some(name), async move {
                call.each("update", |hook, given, kept| hook.update(given, kept))
                    .await;
            });
        }
    }

    pub(super) fn exited_hooks(&mut self, name: &str, exit: ExitResult) {
        self.jobs.interrupt(Some(name));
        if let Some(call) = self.call(name) {
            self.jobs.put(Some(name), async move {
                call.each("exited", |hook, given, kept| {
                    hook.exited(given, kept, &exit)
                })
                .await;
                call.send(TaskInput::ExitedDone);
            });
        }
    }

    pub(super) fn stop_hooks(&mut self, name: &str) {
        self.jobs.interrupt(Some(name));
        let Some(call) = self.call(name) else {
            return self.send(name, TaskInput::HooksStopped);
        };
        self.jobs.put(Some(name), async move {
            call.each("stop", |hook, given, kept| hook.stop(given, kept))
                .await;
            call.send(TaskInput::HooksStopped);
        });
    }
}
