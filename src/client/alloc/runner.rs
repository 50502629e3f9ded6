//! Makes runners that run tasks with drivers, and what users can request of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_config::Shared;
use drover_events::model::{
    AllocNetworkStatus, AllocResourceUsage, Allocation, CheckQueryResult, Node,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::actor::Actor;
use super::counted::Counted;
use super::jobs::Jobs;
use super::machine::{AllocMachine, AllocSpec, Input};
use super::offers::Offers;
use super::restart_requests::RestartRequests;
use crate::alloc_dir::AllocDir;
use crate::alloc_runner::{
    AllocControl, AllocRunner, AllocRunnerFactory, ControlError, Report, Waits,
};
use crate::clock::{Clock, Jitter, SECOND};
use crate::config::ClientSettings;
use crate::drivers::exec::{ExecCommand, Wires};
use crate::drivers::{Registry, RunningTask, TaskError};
use crate::hooks::alloc::list::AllocHookList;
use crate::hooks::resources::Resources;
use crate::hooks::task::Usage;
use crate::hooks::task::list::TaskHookList;
use crate::journal::Journal;
use crate::service::book::Book;
use crate::stats::{alloc_usage, no_usage};
use crate::task::machine::TaskInput;
use crate::task_events as events;

/// Makes runners that run tasks with drivers.
#[derive(Clone)]
pub struct RunnerFactory {
    pub settings: Shared<ClientSettings>,
    pub drivers: Registry,
    /// What survives.
    pub journal: Arc<dyn Journal>,
    /// The services of all allocations here.
    pub services: Arc<Book>,
    /// The time.
    pub clock: Clock,
    /// The node, as last registered.
    pub node: Arc<Mutex<Arc<Node>>>,
    /// The hooks of allocations.
    pub alloc_hooks: AllocHookList,
    pub task_hooks: TaskHookList,
}

/// A sample that is older is not shown where there may be a newer one, nanoseconds.
const STALE: i64 = 30 * SECOND;
/// How long a sample is waited for.
const SAMPLE_LIMIT: Duration = Duration::from_secs(2);

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
                let mut machine = AllocMachine::new(&spec, Jitter::random().draw(), now);
                machine.watch_health(alloc.is_canary(), now);
                machine.begin_with(&alloc.deployment_id);
                machine
            }
        };
        let hooks = self.alloc_hooks.of(&self.services, &alloc);
        let tasks = alloc.group().map(|group| group.tasks.iter());
        let task_hooks = tasks.into_iter().flatten().map(|task| {
            let hooks = self.task_hooks.of(&alloc, task);
            (task.name.clone(), hooks)
        });
        let task_hooks = task_hooks.collect();
        let counted = Counted::of(&machine);
        let shared = Arc::new(RunnerShared {
            dir: AllocDir::new(&settings.alloc_dir, &alloc.id),
            alloc: Mutex::new(alloc),
            machine: Mutex::new(machine),
            tasks: Mutex::default(),
            checks: Mutex::default(),
            refused: Mutex::default(),
            resources: Arc::default(),
            steps: watch::Sender::default(),
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
            hooks,
            task_hooks,
            ready: Arc::default(),
            jobs: Jobs::default(),
            last_report: None,
            counted,
            offered: Offers::default(),
            alloc_unwritten: false,
            stepped_at: 0,
        };
        tokio::spawn(actor.run(rx));
        Ok(Arc::new(Runner {
            shared,
            tx,
            clock: self.clock.clone(),
        }))
    }
}

pub(super) fn spec_of(alloc: &Allocation, max_kill: &Duration) -> Result<AllocSpec, String> {
    let max = i64::try_from(max_kill.as_nanos()).unwrap_or(i64::MAX);
    AllocSpec::of(alloc, max)
        .ok_or_else(|| format!("allocation has no task group {:?}", alloc.task_group))
}

pub(super) struct RunnerShared {
    pub(super) dir: AllocDir,
    pub(super) alloc: Mutex<Arc<Allocation>>,
    pub(super) machine: Mutex<AllocMachine>,
    pub(super) tasks: Mutex<BTreeMap<String, Arc<dyn RunningTask>>>,
    /// The last result of every check, by its id.
    pub(super) checks: Mutex<BTreeMap<String, CheckQueryResult>>,
    /// Why tasks could not be requested to end, since the last request to start them again.
    pub(super) refused: Mutex<BTreeMap<String, String>>,
    /// What hooks leave for each other.
    pub(super) resources: Arc<Resources>,
    /// How often something happened and was acted on.
    pub(super) steps: watch::Sender<u64>,
    pub(super) done: watch::Sender<bool>,
}

impl RunnerShared {
    /// What is reported of the allocation to the servers.
    pub(super) fn reported(&self) -> Allocation {
        let alloc = self.alloc.lock();
        let machine = self.machine.lock();
        let (status, description) = machine.status();
        Allocation {
            id: alloc.id.clone(),
            node_id: alloc.node_id.clone(),
            client_status: status.as_str().to_owned(),
            client_description: description.to_owned(),
            task_states: machine.task_states(),
            deployment_status: machine.deployment_status.clone(),
            network_status: Some(AllocNetworkStatus::default()),
            ..Allocation::default()
        }
    }
}

pub(super) enum Msg {
    Input(Input),
    /// As an input; the answer comes when the journal has what it changed, or cannot have it.
    Noted(Input, oneshot::Sender<Result<(), String>>),
    /// Answered when all that came before was taken.
    Seen(oneshot::Sender<()>),
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
    fn usage(&self) -> Usage {
        let resources = &self.shared.resources;
        resources.change(|usage: &mut Usage| usage.clone())
    }

    fn ask(&self, msg: impl FnOnce(oneshot::Sender<()>) -> Msg) -> BoxFuture<'static, ()> {
        let (tx, rx) = oneshot::channel();
        let sent = self.tx.send(msg(tx));
        async move {
            if sent.is_ok() {
                // An error means that the actor has ended, which is what was requested.
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

    fn reported(&self) -> Option<Allocation> {
        Some(self.shared.reported())
    }

    fn waits(&self) -> Waits {
        self.shared.resources.get::<Waits>().unwrap_or_default()
    }

    fn done(&self) -> watch::Receiver<bool> {
        self.shared.done.subscribe()
    }

    fn ended_at(&self) -> i64 {
        let machine = self.shared.machine.lock();
        let ends = machine.tasks.values().map(|task| task.state.finished_at);
        ends.map(|at| at.nanos()).max().unwrap_or(0)
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

/// What came of a request to several tasks: each got it, whatever became of the others, and the
/// caller gets all that refused it. One that ended meanwhile is no error where others run.
pub(super) fn outcome_of_each(
    ends: Vec<(String, Result<(), TaskError>)>,
) -> Result<(), ControlError> {
    let mut any_done = false;
    let mut refused: Vec<(String, String)> = Vec::new();
    for (name, end) in ends {
        match end {
            Ok(()) => any_done = true,
            Err(TaskError::NotRunning) => {}
            Err(error) => refused.push((name, error.to_string())),
        }
    }
    let Some((_, first)) = refused.first() else {
        return any_done.then_some(()).ok_or(ControlError::NotRunning);
    };
    let all_alike = !any_done && refused.iter().all(|(_, why)| why == first);
    let text = match all_alike {
        true => first.clone(),
        false => {
            let each = refused
                .iter()
                .map(|(name, why)| format!("task {name:?}: {why}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Err(ControlError::Refused(text))
}

impl AllocControl for Runner {
    fn restart(
        &self,
        task: Option<&str>,
        all: bool,
    ) -> BoxFuture<'static, Result<(), ControlError>> {
        let may = self.shared.machine.lock().may_restart(task);
        if let Err(why) = may {
            return std::future::ready(Err(ControlError::Refused(why))).boxed();
        }
        let restarts = RestartRequests::of(&self.shared, task);
        self.send(Input::Restart {
            task: task.map(str::to_owned),
            all,
        });
        restarts.wait().boxed()
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
        let mut ends = Vec::with_capacity(tasks.len());
        for (name, task) in tasks {
            let event = events::signaling(self.clock.now(), signal, "");
            let signalled = task.signal(signal);
            if signalled.is_ok() {
                self.send(Input::Task(name.clone(), TaskInput::Event(event)));
            }
            ends.push((name, signalled));
        }
        outcome_of_each(ends)
    }

    fn exec(
        &self,
        task: &str,
        command: ExecCommand,
        wires: Wires,
    ) -> BoxFuture<'static, Result<(), ControlError>> {
        if !self.shared.machine.lock().tasks.contains_key(task) {
            let unknown = ControlError::UnknownTask(task.to_owned());
            return std::future::ready(Err(unknown)).boxed();
        }
        let running = self.shared.tasks.lock().get(task).cloned();
        async move {
            let running = running.ok_or(ControlError::NotRunning)?;
            let started = running.exec(command, wires).await;
            started.map_err(|error| match error {
                TaskError::NotRunning => ControlError::NotRunning,
                other => ControlError::Refused(other.to_string()),
            })
        }
        .boxed()
    }

    fn sampled(&self) -> BoxFuture<'static, ()> {
        let now = self.clock.now();
        let usage = self.usage();
        usage.ask(now);
        let running: Vec<String> = self.shared.tasks.lock().keys().cloned().collect();
        async move {
            // A driver that has nothing to say is not waited for any longer.
            let fresh = usage.since(&running, now.saturating_sub(STALE));
            let _ = tokio::time::timeout(SAMPLE_LIMIT, fresh).await;
        }
        .boxed()
    }

    fn stats(&self, task: Option<&str>) -> Result<AllocResourceUsage, ControlError> {
        let names: Vec<String> = self.shared.machine.lock().tasks.keys().cloned().collect();
        if let Some(name) = task
            && !names.iter().any(|n| n == name)
        {
            return Err(ControlError::UnknownTask(name.to_owned()));
        }
        let now = self.clock.now();
        let usage = self.usage();
        usage.ask(now);
        let usage = names
            .into_iter()
            .filter(|n| task.is_none_or(|t| t == n))
            .map(|name| {
                let sample = usage.of(&name);
                (name, sample.unwrap_or_else(|| no_usage(now)))
            })
            .collect();
        Ok(alloc_usage(usage))
    }

    fn checks(&self) -> BTreeMap<String, CheckQueryResult> {
        self.shared.checks.lock().clone()
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
