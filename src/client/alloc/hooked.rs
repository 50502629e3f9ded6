//! Carries out what the machine decided about hooks, and brings their answers back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::actor::Actor;
use super::machine::Input;
use super::runner::{Msg, RunnerShared};
use crate::drivers::ExitResult;
use crate::hooks::alloc::chain;
use crate::hooks::alloc::list::AllocHooks;
use crate::hooks::alloc::{AllocGiven, AllocHookReport, AllocNote};
use crate::hooks::notes::Keep;
use crate::hooks::task::chain as task_chain;
use crate::hooks::task::list::TaskHooks;
use crate::hooks::task::{
    Ending, HookError, Hooked, RunningHooks, TaskGiven, TaskHook, TaskHookReport, TaskNote,
};
use crate::task::machine::TaskInput;
use crate::task_events as events;

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
    /// Waits until all is there again. The first caller does the work; where it fails, or is
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

/// Reports to the machine a call in which a hook panicked; otherwise nothing.
struct Panicked(mpsc::UnboundedSender<Msg>, Option<Input>);

impl Drop for Panicked {
    fn drop(&mut self) {
        if let Some(input) = self.1.take().filter(|_| std::thread::panicking()) {
            // A runner that has ended needs no input.
            let _ = self.0.send(Msg::Input(input));
        }
    }
}

/// Takes what hooks answer to the machine and its journal.
struct Notes(mpsc::UnboundedSender<Msg>);

impl Notes {
    /// Waits until the machine took all that was sent before.
    async fn caught_up(&self) {
        let (seen, rx) = oneshot::channel();
        // From a runner that is gone nothing more comes either.
        let _ = self.0.send(Msg::Seen(seen));
        let _ = rx.await;
    }

    /// Resolves when the journal has it.
    fn note(&self, input: Input) -> BoxFuture<'static, Result<(), String>> {
        let (written, rx) = oneshot::channel();
        // A runner that is gone writes nothing more, and neither does the hook that it called.
        let _ = self.0.send(Msg::Noted(input, written));
        let gone = |_| Err("the allocation's runner has ended".to_owned());
        rx.map(move |reported| reported.unwrap_or_else(gone))
            .boxed()
    }
}

impl Keep<AllocHookReport> for Notes {
    fn write(&self, report: AllocHookReport) -> BoxFuture<'static, Result<(), String>> {
        self.note(report.into())
    }

    fn report(&self, report: AllocHookReport) {
        // A runner that is gone has no use for it.
        let _ = self.0.send(Msg::Input(report.into()));
    }
}

/// The hooks of a task, and what a call of them is given.
struct HookCall {
    hooks: TaskHooks,
    given: TaskGiven,
    notes: Vec<TaskNote>,
    name: String,
    tx: mpsc::UnboundedSender<Msg>,
    shared: Arc<RunnerShared>,
}

impl Keep<TaskHookReport> for HookCall {
    fn write(&self, report: TaskHookReport) -> BoxFuture<'static, Result<(), String>> {
        let notes = Notes(self.tx.clone());
        notes.note(Input::Task(self.name.clone(), report.into()))
    }

    fn report(&self, report: TaskHookReport) {
        self.send(report.into());
    }
}

impl HookCall {
    /// Makes one call of every hook of the task.
    async fn each<'a>(
        &'a mut self,
        kind: &str,
        mut call: impl FnMut(&'a dyn TaskHook, &'a TaskGiven, &'a Value) -> Hooked<'a>,
    ) {
        self.begin().await;
        let Self {
            hooks,
            given,
            notes,
            ..
        } = self;
        task_chain::each(kind, hooks, given, notes, |hook, kept| {
            call(hook, given, kept)
        })
        .await;
    }

    /// Makes the call at an end of every hook that did not do its work there yet.
    async fn ending<'a>(
        &'a mut self,
        ending: Ending,
        mut call: impl FnMut(&'a dyn TaskHook, &'a TaskGiven, &'a Value) -> Hooked<'a>,
    ) {
        self.begin().await;
        let through = {
            let machine = self.shared.machine.lock();
            let task = machine.tasks.get(&self.name);
            task.map_or_else(Default::default, |task| task.through(ending).clone())
        };
        let this: &'a Self = self;
        let (given, known) = (&this.given, (&this.notes[..], &through));
        task_chain::ending(ending, &this.hooks, given, known, this, |hook, kept| {
            call(hook, given, kept)
        })
        .await;
    }

    /// Its turn has come: what hooks answered in the calls before it counts, also where a stop
    /// dropped such a call on its way.
    async fn begin(&mut self) {
        Notes(self.tx.clone()).caught_up().await;
        self.given.alloc = self.shared.alloc.lock().clone();
        let machine = self.shared.machine.lock();
        if let Some(task) = machine.tasks.get(&self.name) {
            self.notes = task.notes().to_vec();
            self.given.hook_env = task.hook_env();
        }
    }

    /// What is reported where a hook panics, so that nothing waits for its answer for ever.
    fn or(&self, panicked: TaskInput) -> Panicked {
        let input = Input::Task(self.name.clone(), panicked);
        Panicked(self.tx.clone(), Some(input))
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
        let (tx, clock) = (self.tx.clone(), self.factory.clock.clone());
        let tasks: Vec<String> = self.spec.tasks.keys().cloned().collect();
        let report = move |hook: &str, text: &str| {
            let event = events::hook_message(clock.now(), hook, text);
            for name in &tasks {
                let reported = TaskInput::Event(event.clone());
                // A runner that has ended needs no input.
                let _ = tx.send(Msg::Input(Input::Task(name.clone(), reported)));
            }
        };
        AllocGiven {
            alloc: self.shared.alloc.lock().clone(),
            dir: self.shared.dir.clone(),
            node: self.factory.node.lock().clone(),
            settings: self.factory.settings.get(),
            resources: self.shared.resources.clone(),
            previous: std::mem::take(&mut self.previous),
            report: Arc::new(report),
        }
    }

    pub(super) fn prerun(&mut self) {
        let (given, hooks, tx) = (self.alloc_given(), self.hooks.clone(), self.tx.clone());
        let before = self.shared.machine.lock().notes().to_vec();
        let ready = self.ready.clone();
        self.jobs.put_dropped(None, async move {
            let failed = Input::PrerunDone(Err("a hook panicked".to_owned()));
            let _panicked = Panicked(tx.clone(), Some(failed));
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
        let shared = Arc::clone(&self.shared);
        self.jobs.put_dropped(None, async move {
            let notes = shared.machine.lock().notes().to_vec();
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
            let _panicked = Panicked(tx.clone(), Some(Input::PreKillDone));
            let run = chain::each("pre-kill", &hooks, &given, |hook| hook.pre_kill(&given));
            if tokio::time::timeout(PRE_KILL_LIMIT, run).await.is_err() {
                tracing::error!(alloc = %given.alloc.id, "hooks hold up the end of its tasks");
            }
            let _ = tx.send(Msg::Input(Input::PreKillDone));
        });
    }

    pub(super) fn postrun(&mut self) {
        let (given, hooks, tx) = (self.alloc_given(), self.hooks.clone(), self.tx.clone());
        let shared = Arc::clone(&self.shared);
        self.jobs.interrupt(None);
        self.jobs.put(None, async move {
            let _panicked = Panicked(tx.clone(), Some(Input::PostrunDone));
            let notes = Notes(tx.clone());
            // What a stop dropped may have answered on its way.
            notes.caught_up().await;
            let (before, ended) = {
                let machine = shared.machine.lock();
                (machine.notes().to_vec(), machine.ended_hooks().clone())
            };
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
    fn call(&self, name: &str) -> Option<HookCall> {
        let machine = self.shared.machine.lock();
        let task = machine.tasks.get(name)?;
        let (tx, to) = (self.tx.clone(), name.to_owned());
        let emit = move |event| {
            let input = Input::Task(to.clone(), TaskInput::Event(event));
            let _ = tx.send(Msg::Input(input));
        };
        Some(HookCall {
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
            shared: Arc::clone(&self.shared),
        })
    }

    pub(super) fn prepare(&mut self, name: &str, done: std::collections::BTreeSet<String>) {
        let Some(call) = self.call(name) else {
            let error = HookError {
                hook: crate::hooks::task::VALIDATE.to_owned(),
                message: "the job has no such task".to_owned(),
                recoverable: false,
            };
            return self.send(name, TaskInput::Prepared(Err(error)));
        };
        let (restored, node) = (self.restored(), Arc::clone(&self.factory.node));
        self.jobs.put_dropped(Some(name), async move {
            let _panicked = call.or(TaskInput::Prepared(Err(HookError {
                hook: "prestart".to_owned(),
                message: "a hook panicked".to_owned(),
                recoverable: false,
            })));
            let result = match restored.wait().await {
                Ok(()) => {
                    let (before, mut given) = ((&call.notes[..], &done), call.given.clone());
                    // What was waited for may be a part of it only now.
                    given.node = node.lock().clone();
                    task_chain::prestart(&call.hooks, given, before, &call).await
                }
                Err(e) => Err(e),
            };
            call.send(TaskInput::Prepared(result));
        });
    }

    pub(super) fn poststart(&mut self, name: &str, recovered: bool) {
        let running = self.shared.tasks.lock().get(name).cloned();
        // One that has ended meanwhile has no use for it any more.
        if let (Some(mut call), Some(task)) = (self.call(name), running) {
            let running = RunningHooks { task, recovered };
            self.jobs.put_dropped(Some(name), async move {
                call.each("poststart", |hook, given, kept| {
                    hook.poststart(given, kept, &running)
                })
                .await;
            });
        }
    }

    pub(super) fn update_task_hooks(&mut self, name: &str) {
        if let Some(mut call) = self.call(name) {
            self.jobs.put_dropped(Some(name), async move {
                call.each("update", |hook, given, kept| hook.update(given, kept))
                    .await;
            });
        }
    }

    pub(super) fn exited_hooks(&mut self, name: &str, exit: ExitResult) {
        self.jobs.interrupt(Some(name));
        if let Some(mut call) = self.call(name) {
            self.jobs.put(Some(name), async move {
                let _panicked = call.or(TaskInput::ExitedDone);
                call.ending(Ending::Exited, |hook, given, kept| {
                    hook.exited(given, kept, &exit)
                })
                .await;
                call.send(TaskInput::ExitedDone);
            });
        }
    }

    pub(super) fn stop_hooks(&mut self, name: &str) {
        self.jobs.interrupt(Some(name));
        let Some(mut call) = self.call(name) else {
            return self.send(name, TaskInput::HooksStopped);
        };
        self.jobs.put(Some(name), async move {
            let _panicked = call.or(TaskInput::HooksStopped);
            call.ending(Ending::Stop, |hook, given, kept| hook.stop(given, kept))
                .await;
            call.send(TaskInput::HooksStopped);
        });
    }
}
