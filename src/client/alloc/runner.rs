//! Carries out what the machines decide, and brings the answers back.
//!
//! One actor per allocation. For every input: step, journal, then effects; so what is done is always
//! in the journal before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_events::model::{AllocNetworkStatus, AllocResourceUsage, Allocation, Node, Task};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::dir::AllocDir;
use super::factory::{AllocControl, AllocRunner, AllocRunnerFactory, ControlError, Report};
use super::hooks::{self, HookInput};
use super::machine::{Action, AllocMachine, AllocSpec, Input, Phase};
use crate::client::clock::{Clock, Jitter, nanos};
use crate::client::config::Shared;
use crate::client::drivers::{
    ExitResult, Handle, Recovered, Registry, RunningTask, StartError, TaskConfig, TaskError,
};
use crate::client::env::{TaskEnv, TaskEnvInput};
use crate::client::journal::Journal;
use crate::client::stats::alloc_usage;
use crate::client::task::hooks as task_hooks;
use crate::client::task::machine::{Found, TaskAction, TaskInput};
use crate::client::task::{events, machine};

/// A log file's size where a job names none, MiB, and how many are kept.
const LOG_FILE_MB: u64 = 10;
const LOG_FILES: u64 = 10;
/// How many inputs that wait together are taken in one step of the journal.
const BATCH: usize = 64;
/// The longest sleep; also a bound for steps of the system's clock.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Makes runners that run tasks with drivers.
#[derive(Clone)]
pub struct RunnerFactory {
    /// The settings.
    pub settings: Shared,
    /// The drivers.
    pub drivers: Registry,
    /// What survives.
    pub journal: Arc<dyn Journal>,
    /// The time.
    pub clock: Clock,
    /// The node, as last registered.
    pub node: Arc<Mutex<Arc<Node>>>,
}

/// Key of an allocation's machine in the journal.
pub fn state_key(id: &str) -> String {
    format!("alloc/{id}/state")
}

/// Key of an allocation as it came from the servers.
pub fn alloc_key(id: &str) -> String {
    format!("alloc/{id}/alloc")
}

impl AllocRunnerFactory for RunnerFactory {
    fn start(
        &self,
        alloc: Arc<Allocation>,
        state: Option<Bytes>,
        previous: Vec<Arc<dyn AllocRunner>>,
        report: Report,
    ) -> Result<Arc<dyn AllocRunner>, String> {
        let settings = self.settings.get();
        let spec = spec_of(&alloc, &settings.client.max_kill_timeout)?;
        let now = self.clock.now();
        let machine = match state {
            Some(bytes) => rmp_serde::from_slice(&bytes)
                .map_err(|e| format!("the journal's state cannot be read: {e}"))?,
            None => {
                let mut machine = AllocMachine::new(&spec, Jitter::random().next(), now);
                machine.watch_health(alloc.is_canary(), now);
                machine
            }
        };
        let shared = Arc::new(RunnerShared {
            dir: AllocDir::new(&settings.alloc_dir, &alloc.id),
            alloc: Mutex::new(alloc),
            machine: Mutex::new(machine),
            tasks: Mutex::default(),
            done: watch::Sender::new(false),
        });
        let (tx, rx) = mpsc::unbounded_channel();
        let actor = Actor {
            factory: self.clone(),
            shared: shared.clone(),
            spec,
            tx: tx.clone(),
            report,
            previous,
            last_report: None,
        };
        tokio::spawn(actor.run(rx));
        Ok(Arc::new(Runner {
            shared,
            tx,
            clock: self.clock.clone(),
        }))
    }
}

fn spec_of(alloc: &Allocation, max_kill: &Duration) -> Result<AllocSpec, String> {
    let max = i64::try_from(max_kill.as_nanos()).unwrap_or(i64::MAX);
    AllocSpec::of(alloc, max)
        .ok_or_else(|| format!("allocation has no task group {:?}", alloc.task_group))
}

struct RunnerShared {
    dir: AllocDir,
    alloc: Mutex<Arc<Allocation>>,
    machine: Mutex<AllocMachine>,
    tasks: Mutex<BTreeMap<String, Arc<dyn RunningTask>>>,
    done: watch::Sender<bool>,
}

enum Msg {
    Input(Input),
    Update(Arc<Allocation>),
    Destroy(oneshot::Sender<()>),
    Detach(oneshot::Sender<()>),
}

struct Runner {
    shared: Arc<RunnerShared>,
    tx: mpsc::UnboundedSender<Msg>,
    clock: Clock,
}

impl Runner {
    fn ask(&self, msg: impl FnOnce(oneshot::Sender<()>) -> Msg) -> BoxFuture<'static, ()> {
        let (tx, rx) = oneshot::channel();
        let sent = self.tx.send(msg(tx));
        async move {
            if sent.is_ok() {
                // An error means that the actor has ended, which is what was asked for.
                let _ = rx.await;
            }
        }
        .boxed()
    }

    fn send(&self, input: Input) {
        // An actor that has ended needs no input.
        let _ = self.tx.send(Msg::Input(input));
    }
}

impl AllocRunner for Runner {
    fn update(&self, alloc: Arc<Allocation>) {
        let _ = self.tx.send(Msg::Update(alloc));
    }

    fn alloc(&self) -> Arc<Allocation> {
        self.shared.alloc.lock().clone()
    }

    fn done(&self) -> watch::Receiver<bool> {
        self.shared.done.subscribe()
    }

    fn destroy(&self) -> BoxFuture<'static, ()> {
        self.ask(Msg::Destroy)
    }

    fn detach(&self) -> BoxFuture<'static, ()> {
        self.ask(Msg::Detach)
    }

    fn server_contacted(&self) {
        self.send(Input::ServerContacted);
    }

    fn control(&self) -> Option<&dyn AllocControl> {
        Some(self)
    }
}

impl AllocControl for Runner {
    fn restart(&self, task: Option<&str>, all: bool) -> Result<(), ControlError> {
        self.shared
            .machine
            .lock()
            .may_restart(task)
            .map_err(ControlError::Refused)?;
        self.send(Input::Restart {
            task: task.map(str::to_owned),
            all,
        });
        Ok(())
    }

    fn signal(&self, task: Option<&str>, signal: &str) -> Result<(), ControlError> {
        let tasks: Vec<(String, Arc<dyn RunningTask>)> = {
            if let Some(name) = task
                && !self.shared.machine.lock().tasks.contains_key(name)
            {
                return Err(ControlError::UnknownTask(name.to_owned()));
            }
            let running = self.shared.tasks.lock();
            running
                .iter()
                .filter(|(name, _)| task.is_none_or(|t| t == name.as_str()))
                .map(|(n, t)| (n.clone(), t.clone()))
                .collect()
        };
        if tasks.is_empty() {
            return Err(ControlError::NotRunning);
        }
        for (name, task) in tasks {
            let event = events::signaling(self.clock.now(), signal, "");
            task.signal(signal).map_err(|e| match e {
                TaskError::NotRunning => ControlError::NotRunning,
                other => ControlError::Refused(other.to_string()),
            })?;
            self.send(Input::Task(name, TaskInput::Event(event)));
        }
        Ok(())
    }

    fn stats(&self, task: Option<&str>) -> Result<AllocResourceUsage, ControlError> {
        let names: Vec<String> = self.shared.machine.lock().tasks.keys().cloned().collect();
        if let Some(name) = task
            && !names.iter().any(|n| n == name)
        {
            return Err(ControlError::UnknownTask(name.to_owned()));
        }
        let now = self.clock.now();
        let running = self.shared.tasks.lock().clone();
        let usage = names
            .into_iter()
            .filter(|n| task.is_none_or(|t| t == n))
            .map(|name| {
                let usage = running.get(&name).map(|t| t.stats(now));
                (
                    name,
                    usage.unwrap_or_else(|| crate::client::stats::no_usage(now)),
                )
            })
            .collect();
        Ok(alloc_usage(usage))
    }

    fn dir(&self) -> &AllocDir {
        &self.shared.dir
    }

    fn task_progress(&self, task: &str) -> Option<(bool, bool)> {
        let machine = self.shared.machine.lock();
        let task = machine.tasks.get(task)?;
        let started = task.state.started_at.nanos() > 0;
        Some((started, task.is_dead()))
    }
}

struct Actor {
    factory: RunnerFactory,
    shared: Arc<RunnerShared>,
    spec: AllocSpec,
    tx: mpsc::UnboundedSender<Msg>,
    report: Report,
    previous: Vec<Arc<dyn AllocRunner>>,
    last_report: Option<Allocation>,
}

impl Actor {
    async fn run(mut self, mut rx: mpsc::UnboundedReceiver<Msg>) {
        self.remember_alloc().await;
        let mut first = self.shared.machine.lock().begin();
        // What was restored looks around once: nothing else might happen to it.
        first.extend(self.step(Input::Tick));
        self.after(first).await;
        let mut destroying: Option<oneshot::Sender<()>> = None;
        loop {
            if let Some(reply) = destroying.take_if(|_| *self.shared.done.borrow()) {
                self.remove().await;
                let _ = reply.send(());
                return;
            }
            let mut actions = Vec::new();
            match self.next(&mut rx).await {
                Some(Msg::Input(input)) => {
                    actions.extend(self.step(input));
                    for _ in 0..BATCH {
                        match rx.try_recv() {
                            Ok(Msg::Input(input)) => actions.extend(self.step(input)),
                            Ok(other) => {
                                let _ = self.tx.send(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                }
                Some(Msg::Update(alloc)) => actions.extend(self.take_update(alloc).await),
                Some(Msg::Destroy(reply)) => {
                    destroying = Some(reply);
                    actions.extend(self.step(Input::Stop { no_delay: true }));
                }
                Some(Msg::Detach(reply)) => {
                    let _ = reply.send(());
                    return;
                }
                None => actions.extend(self.step(Input::Tick)),
            }
            self.after(actions).await;
        }
    }

    /// The next message; `None` when it is time for a tick.
    async fn next(&self, rx: &mut mpsc::UnboundedReceiver<Msg>) -> Option<Msg> {
        let now = self.factory.clock.now();
        let at = self.shared.machine.lock().wakes_at(&self.spec, now);
        let sleep = at.map_or(MAX_SLEEP, |at| nanos(at - now).min(MAX_SLEEP));
        tokio::select! {
            biased;
            msg = rx.recv() => msg,
            () = tokio::time::sleep(sleep) => None,
        }
    }

    fn step(&self, input: Input) -> Vec<Action> {
        let now = self.factory.clock.now();
        self.shared.machine.lock().step(&self.spec, input, now)
    }

    /// Journal first, then tell, then act.
    async fn after(&mut self, actions: Vec<Action>) {
        let id = self.shared.alloc.lock().id.clone();
        let bytes = rmp_serde::to_vec_named(&*self.shared.machine.lock())
            .expect("the machine is made of plain values");
        if let Err(e) = self.factory.journal.put(&state_key(&id), bytes).await {
            tracing::error!(alloc = %id, "state is not durable: {e}");
        }
        self.tell();
        for action in actions {
            self.carry_out(action);
        }
    }

    async fn remember_alloc(&self) {
        let alloc = self.shared.alloc.lock().clone();
        let bytes = rmp_serde::to_vec_named(&*alloc).expect("an allocation is plain values");
        if let Err(e) = self.factory.journal.put(&alloc_key(&alloc.id), bytes).await {
            tracing::error!(alloc = %alloc.id, "allocation is not durable: {e}");
        }
    }

    fn tell(&mut self) {
        let update = {
            let alloc = self.shared.alloc.lock();
            let machine = self.shared.machine.lock();
            let (status, description) = machine.status();
            Allocation {
                id: alloc.id.clone(),
                node_id: alloc.node_id.clone(),
                client_status: status.to_owned(),
                client_description: description.to_owned(),
                task_states: machine.task_states(),
                deployment_status: machine.deployment_status.clone(),
                network_status: Some(AllocNetworkStatus::default()),
                ..Allocation::default()
            }
        };
        if self.last_report.as_ref() != Some(&update) {
            self.last_report = Some(update.clone());
            (self.report)(update);
        }
        if self.shared.machine.lock().phase == Phase::Done {
            self.shared.done.send_replace(true);
        }
    }

    async fn take_update(&mut self, alloc: Arc<Allocation>) -> Vec<Action> {
        let max_kill = self.factory.settings.get().client.max_kill_timeout;
        let old = std::mem::replace(&mut *self.shared.alloc.lock(), alloc.clone());
        self.remember_alloc().await;
        match spec_of(&alloc, &max_kill) {
            Ok(spec) if spec.tasks.keys().eq(self.spec.tasks.keys()) => self.spec = spec,
            Ok(_) => tracing::error!(alloc = %alloc.id, "the tasks of a group cannot change"),
            Err(e) => tracing::error!(alloc = %alloc.id, "{e}"),
        }
        let mut actions = Vec::new();
        if alloc.server_terminal() {
            let no_delay = alloc.desired_transition.no_shutdown_delay == Some(true);
            actions.extend(self.step(Input::Stop { no_delay }));
        } else if alloc.deployment_id != old.deployment_id && !alloc.deployment_id.is_empty() {
            actions.extend(self.step(Input::Deployment {
                canary: alloc.is_canary(),
            }));
        }
        actions
    }

    async fn remove(&self) {
        let id = self.shared.alloc.lock().id.clone();
        if let Err(e) = self.factory.journal.delete(&format!("alloc/{id}/")).await {
            tracing::error!(alloc = %id, "cannot be forgotten: {e}");
        }
        let dir = self.shared.dir.clone();
        let removed = tokio::task::spawn_blocking(move || dir.destroy()).await;
        if let Ok(Err(e)) = removed {
            tracing::warn!(alloc = %id, "cannot remove its directory: {e}");
        }
    }

    fn carry_out(&mut self, action: Action) {
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
        };
        let tx = self.tx.clone();
        tokio::spawn(async move {
            let result = hooks::prerun(input).await;
            let _ = tx.send(Msg::Input(Input::PrerunDone(result)));
        });
    }

    fn prepare(&self, name: String, done: std::collections::BTreeSet<String>) {
        let alloc = self.shared.alloc.lock().clone();
        let dir = self.shared.dir.clone();
        let drivers = self.factory.drivers.clone();
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
                    };
                    task_hooks::prestart(&input, &done)
                }
                None => Err(machine::HookError {
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
        match task.stop(&signal.unwrap_or_default(), nanos(grace)) {
            Ok(()) | Err(TaskError::NotRunning) => {}
            Err(e) => self.send(name, TaskInput::StopFailed(e.to_string())),
        }
    }

    fn destroy(&self, name: &str, run: u64) {
        let alloc = self.shared.alloc.lock().clone();
        let driver = with_task(&alloc, name).and_then(|(_, t)| self.factory.drivers.get(&t.driver));
        if let Some(driver) = driver {
            driver.destroy(&alloc.id, name, run);
        }
    }

    fn driver_and_config(
        &self,
        name: &str,
        run: u64,
    ) -> Option<(Arc<dyn crate::client::drivers::Driver>, TaskConfig)> {
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

fn with_task<'a>(
    alloc: &'a Allocation,
    name: &str,
) -> Option<(&'a drover_events::model::Job, &'a Task)> {
    Some((alloc.job.as_deref()?, alloc.group()?.task(name)?))
}
