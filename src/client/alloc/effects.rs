//! Carries out what the machine decided: hooks, starts, stops, and the way back of their answers.

use std::sync::Arc;

use drover_events::model::{AllocatedTaskResources, Allocation, Job, Task};
use tokio::sync::mpsc;

use super::actor::Actor;
use super::machine::{Action, Input};
use super::runner::{Msg, RunnerShared};
use crate::clock::nanos;
use crate::drivers::{
    Driver, ExitResult, Handle, Namespaces, Recovered, RunningTask, StartError, TaskConfig,
    TaskError, TaskLimits, paths_seen,
};
use crate::env::{TaskEnv, TaskEnvInput};
use crate::task::machine::{HookError, TaskAction, TaskInput, TaskRecovery};

/// What a task's event names where its state could not be written.
const JOURNAL: &str = "client_state";
/// A log file's size where a job names none, MiB, and how many are kept.
const LOG_FILE_MB: u64 = 10;
const LOG_FILES: u64 = 10;

impl Actor {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Prerun => self.prerun(),
            Action::Interrupt => self.jobs.interrupt(None),
            Action::Restore => self.restore(),
            Action::Update => self.update_hooks(),
            Action::TaskRestarted(name) => self.task_restarted(name),
            Action::PreKill => self.pre_kill(),
            Action::Postrun => self.postrun(),
            Action::Task(name, action) => self.carry_out_for(name, action),
        }
    }

    fn carry_out_for(&mut self, name: String, action: TaskAction) {
        match action {
            TaskAction::Prepare { done } => self.prepare(&name, done),
            TaskAction::Start { run } => self.start(name, run),
            TaskAction::Recover { run, handle } => self.recover(name, run, handle),
            TaskAction::Poststart { recovered } => self.poststart(&name, recovered),
            TaskAction::Update => self.update_task_hooks(&name),
            TaskAction::Interrupt => self.jobs.interrupt(Some(&name)),
            TaskAction::Exited { exit } => self.exited_hooks(&name, exit),
            TaskAction::StopHooks => self.stop_hooks(&name),
            TaskAction::Stop => self.stop(&name),
            TaskAction::Destroy { run } => self.destroy(&name, run),
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

    pub(super) fn send(&self, name: &str, input: TaskInput) {
        // The actor itself holds a sender, so the channel is open while it runs.
        let _ = self
            .tx
            .send(Msg::Input(Input::Task(name.to_owned(), input)));
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
            return self.send(&name, TaskInput::Recovered(TaskRecovery::Nothing));
        };
        let finding = driver.recover(config, handle);
        let follow = self.follower(name.clone());
        let tx = self.tx.clone();
        tokio::spawn(async move {
            let found = match finding.await {
                Ok(Recovered::Live(task)) => {
                    return follow
                        .run(task, |h| TaskInput::Recovered(TaskRecovery::Live(h)))
                        .await;
                }
                Ok(Recovered::Exited(exit)) => TaskRecovery::Exited(exit),
                Ok(Recovered::NeverStarted) => TaskRecovery::Nothing,
                Err(e) => TaskRecovery::NotStarted(e),
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
        let (hooks, mounts, devices) = {
            let machine = self.shared.machine.lock();
            let task = machine.tasks.get(name)?;
            (task.hook_env(), task.mounts(), task.devices())
        };
        let paths = self.shared.dir.paths(name);
        let env = TaskEnv::build(&TaskEnvInput {
            node: &node,
            region: &settings.region,
            alloc: &alloc,
            job,
            group: alloc.group()?,
            task,
            paths: &paths_seen(&task.driver, &paths),
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
            mounts,
            devices,
            limits: given.map(limits).unwrap_or_default(),
            namespaces: Namespaces::default(),
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

/// What a task was given of the machine.
fn limits(given: &AllocatedTaskResources) -> TaskLimits {
    let bytes = |mb: i64| u64::try_from(mb).unwrap_or(0) << 20;
    TaskLimits {
        cpu_shares: u64::try_from(given.cpu.cpu_shares).unwrap_or(0),
        memory: bytes(given.memory.memory_mb),
        memory_max: match given.memory.memory_max_mb {
            ..0 => u64::MAX,
            mb => bytes(mb),
        },
    }
}

fn with_task<'a>(alloc: &'a Allocation, name: &str) -> Option<(&'a Job, &'a Task)> {
    Some((alloc.job.as_deref()?, alloc.group()?.task(name)?))
}
