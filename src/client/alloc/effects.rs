//! Carries out what the machine decided: hooks, starts, stops, and the way back of their answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::model::{Allocation, Job, Task};
use tokio::sync::mpsc;

use super::actor::Actor;
use super::hooks::{self, HookInput};
use super::machine::{Action, Input};
use super::runner::{Msg, RunnerShared};
use crate::client::clock::nanos;
use crate::client::drivers::{
    Driver, ExitResult, Handle, Recovered, RunningTask, StartError, TaskConfig, TaskError,
};
use crate::client::env::{TaskEnv, TaskEnvInput};
use crate::client::task::events;
use crate::client::task::hooks as task_hooks;
use crate::client::task::machine::{Found, HookError, TaskAction, TaskInput};

/// What a task's event names where its state could not be written.
const JOURNAL: &str = "client_state";
/// A log file's size where a job names none, MiB, and how many are kept.
const LOG_FILE_MB: u64 = 10;
const LOG_FILES: u64 = 10;

impl Actor {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Prerun => self.prerun(),
            Action::Postrun => {}
            Action::Task(name, TaskAction::Prepare { done }) => self.prepare(name, done),
            Action::Task(name, TaskAction::Start { run }) => self.start(name, run),
            Action::Task(name, TaskAction::Recover { run, handle }) => {
                self.recover(name, run, handle);
            }
            Action::Task(name, TaskAction::Stop) => self.stop(&name),
            Action::Task(name, TaskAction::Destroy { run }) => self.destroy(&name, run),
        }
    }

    /// What cannot be remembered is not begun; what ends something is never held up by that.
    pub(super) fn refuse(&mut self, action: Action, why: &str) {
        let (name, input) = match action {
            Action::Prerun => {
                let failed = Input::PrerunDone(Err(why.to_owned()));
                // The actor itself holds a sender, so the channel is open while it runs.
                let _ = self.tx.send(Msg::Input(failed));
                return;
            }
            Action::Task(name, TaskAction::Prepare { .. }) => {
                let error = HookError {
                    hook: JOURNAL.to_owned(),
                    message: why.to_owned(),
                    recoverable: true,
                };
                (name, TaskInput::Prepared(Err(error)))
            }
            Action::Task(name, TaskAction::Start { .. }) => {
                let error = StartError {
                    message: why.to_owned(),
                    recoverable: true,
                };
                (name, TaskInput::Started(Err(error)))
            }
            other => return self.carry_out(other),
        };
        self.send(&name, input);
    }

    fn send(&self, name: &str, input: TaskInput) {
        // The actor itself holds a sender, so the channel is open while it runs.
        let _ = self
            .tx
            .send(Msg::Input(Input::Task(name.to_owned(), input)));
    }

    fn prerun(&mut self) {
        let input = HookInput {
            alloc: self.shared.alloc.lock().clone(),
            dir: self.shared.dir.clone(),
            previous: std::mem::take(&mut self.previous),
            measured: self.factory.settings.get().hook_metrics,
        };
        let tx = self.tx.clone();
        tokio::spawn(async move {
            let result = hooks::prerun(input).await;
            let _ = tx.send(Msg::Input(Input::PrerunDone(result)));
        });
    }

    fn prepare(&self, name: String, done: BTreeSet<String>) {
        let alloc = self.shared.alloc.lock().clone();
        let dir = self.shared.dir.clone();
        let drivers = self.factory.drivers.clone();
        let settings = self.factory.settings.get();
        let tx = self.tx.clone();
        if !done.contains(task_hooks::TASK_DIR) {
            self.send(
                &name,
                TaskInput::Event(events::setup(self.factory.clock.now())),
            );
        }
        tokio::task::spawn_blocking(move || {
            let result = match with_task(&alloc, &name) {
                Some((job, task)) => {
                    let input = task_hooks::HookInput {
                        alloc: &alloc,
                        job,
                        task,
                        dir: &dir,
                        drivers: &drivers,
                        options: &settings.client.options,
                        measured: settings.hook_metrics,
                    };
                    task_hooks::prestart(&input, &done)
                }
                None => Err(HookError {
                    hook: task_hooks::VALIDATE.to_owned(),
                    message: "the job has no such task".to_owned(),
                    recoverable: false,
                }),
            };
            let _ = tx.send(Msg::Input(Input::Task(name, TaskInput::Prepared(result))));
        });
    }

    fn start(&self, name: String, run: u64) {
        let Some((driver, config)) = self.driver_and_config(&name, run) else {
            let error = StartError::fatal("the task's driver is not available");
            return self.send(&name, TaskInput::Started(Err(error)));
        };
        let starting = driver.start(config);
        let follow = self.follower(name.clone());
        let tx = self.tx.clone();
        tokio::spawn(async move {
            match starting.await {
                Ok(task) => follow.run(task, |h| TaskInput::Started(Ok(h))).await,
                Err(e) => {
                    let _ = tx.send(Msg::Input(Input::Task(name, TaskInput::Started(Err(e)))));
                }
            }
        });
    }

    fn recover(&self, name: String, run: u64, handle: Option<Handle>) {
        let Some((driver, config)) = self.driver_and_config(&name, run) else {
            return self.send(&name, TaskInput::Recovered(Found::Nothing));
        };
        let finding = driver.recover(config, handle);
        let follow = self.follower(name.clone());
        let tx = self.tx.clone();
        tokio::spawn(async move {
            let found = match finding.await {
                Ok(Recovered::Live(task)) => {
                    return follow
                        .run(task, |h| TaskInput::Recovered(Found::Live(h)))
                        .await;
                }
                Ok(Recovered::Exited(exit)) => Found::Exited(exit),
                Ok(Recovered::NeverStarted) => Found::Nothing,
                Err(e) => Found::NotStarted(e),
            };
            let _ = tx.send(Msg::Input(Input::Task(name, TaskInput::Recovered(found))));
        });
    }

    fn follower(&self, name: String) -> Follower {
        Follower {
            name,
            shared: self.shared.clone(),
            tx: self.tx.clone(),
        }
    }

    fn stop(&self, name: &str) {
        let Some(task) = self.shared.tasks.lock().get(name).cloned() else {
            // It has ended, or is not yet found again; its end or its return is on the way.
            return;
        };
        let alloc = self.shared.alloc.lock().clone();
        let signal = with_task(&alloc, name).map(|(_, t)| t.kill_signal.clone());
        let grace = self.spec.tasks.get(name).map_or(0, |t| t.kill_timeout);
        let (tx, name) = (self.tx.clone(), name.to_owned());
        let shared = Arc::clone(&self.shared);
        // It writes, and waits for the disk.
        tokio::task::spawn_blocking(move || {
            match task.stop(&signal.unwrap_or_default(), nanos(grace)) {
                Ok(()) | Err(TaskError::NotRunning) => {}
                Err(e) => {
                    shared.refused.lock().insert(name.clone(), e.to_string());
                    let failed = TaskInput::StopFailed(e.to_string());
                    let _ = tx.send(Msg::Input(Input::Task(name, failed)));
                }
            }
        });
    }

    fn destroy(&self, name: &str, run: u64) {
        let alloc = self.shared.alloc.lock().clone();
        let driver = with_task(&alloc, name).and_then(|(_, t)| self.factory.drivers.get(&t.driver));
        if let Some(driver) = driver.cloned() {
            let name = name.to_owned();
            tokio::task::spawn_blocking(move || driver.destroy(&alloc.id, &name, run));
        }
    }

    fn driver_and_config(&self, name: &str, run: u64) -> Option<(Arc<dyn Driver>, TaskConfig)> {
        let alloc = self.shared.alloc.lock().clone();
        let (job, task) = with_task(&alloc, name)?;
        let driver = self.factory.drivers.get(&task.driver)?.clone();
        let settings = self.factory.settings.get();
        let node = self.factory.node.lock().clone();
        let hooks = self.shared.machine.lock().tasks.get(name)?.hook_env.clone();
        let paths = self.shared.dir.paths(name);
        let env = TaskEnv::build(&TaskEnvInput {
            node: &node,
            region: &settings.region,
            alloc: &alloc,
            job,
            group: alloc.group()?,
            task,
            paths: &paths,
            host: &settings.host_env,
            hooks: &hooks,
        });
        let log = task.log_config.clone().unwrap_or_default();
        let positive =
            |v: i64, default: u64| u64::try_from(v).ok().filter(|v| *v > 0).unwrap_or(default);
        let given = alloc.allocated_resources.as_ref();
        let given = given.and_then(|given| given.tasks.get(name));
        let cores = given.map_or_else(Vec::new, |task| task.cpu.reserved_cores.to_vec());
        let config = TaskConfig {
            alloc_id: alloc.id.clone(),
            task: name.to_owned(),
            run,
            config: task
                .config
                .iter()
                .map(|(k, v)| (k.clone(), env.replace_value(v)))
                .collect(),
            env: env.vars().clone(),
            user: task.user.clone(),
            cores,
            paths,
            log_dir: self.shared.dir.logs(),
            log_max_files: positive(log.max_files, LOG_FILES),
            log_max_bytes: positive(log.max_file_size_mb, LOG_FILE_MB) << 20,
            log_disabled: log.disabled,
        };
        Some((driver, config))
    }
}

/// Follows one running task to its end.
struct Follower {
    name: String,
    shared: Arc<RunnerShared>,
    tx: mpsc::UnboundedSender<Msg>,
}

impl Follower {
    /// First the news that it runs, then, once, that it ended.
    async fn run(self, task: Arc<dyn RunningTask>, news: impl FnOnce(Handle) -> TaskInput) {
        self.shared
            .tasks
            .lock()
            .insert(self.name.clone(), task.clone());
        self.send(news(task.handle()));
        let exit: ExitResult = task.wait().await;
        self.shared.tasks.lock().remove(&self.name);
        self.send(TaskInput::Exited(exit));
    }

    fn send(&self, input: TaskInput) {
        let _ = self
            .tx
            .send(Msg::Input(Input::Task(self.name.clone(), input)));
    }
}

fn with_task<'a>(alloc: &'a Allocation, name: &str) -> Option<(&'a Job, &'a Task)> {
    Some((alloc.job.as_deref()?, alloc.group()?.task(name)?))
}
