//! The allocation runner: `(state, input) -> (state, actions)` over the machines of its tasks.

mod hooked;
mod limit;
mod reported;

use std::collections::{BTreeMap, BTreeSet};

use drover_events::gojson::Time;
use drover_events::model::status::task;
use drover_events::model::{AllocDeploymentStatus, Allocation, TaskEvent};
use serde::{Deserialize, Serialize};

use super::coordinator::{Stage, TaskProgress};
use super::health::{HealthSpec, Verdict};
use crate::clock::Jitter;
use crate::hooks::alloc::AllocNote;
use crate::task::lifecycle::Kind;
use crate::task::machine::{TaskAction, TaskInput, TaskMachine, TaskSpec};
use crate::task_events as events;

/// What an allocation's job says, as the machine needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocSpec {
    pub tasks: BTreeMap<String, TaskSpec>,
    /// How its health is decided; `None` when no health is required.
    pub health: Option<HealthSpec>,
    /// Between taking its services away and the request to its tasks to end, nanoseconds (CL-22).
    pub shutdown_delay: i64,
    /// How long it may run, nanoseconds.
    pub max_run_duration: Option<i64>,
}

impl AllocSpec {
    /// Reads the allocation's copy of its job; `max_kill_timeout` in nanoseconds.
    pub fn of(alloc: &Allocation, max_kill_timeout: i64) -> Option<Self> {
        let job = alloc.job.as_ref()?;
        let group = alloc.group()?;
        let service = job.is_long_running();
        let tasks = group.tasks.iter().map(|task| {
            let kind = Kind::of(task);
            let policy = task
                .restart_policy
                .as_ref()
                .or(group.restart_policy.as_ref());
            let spec = TaskSpec {
                kind,
                leader: task.leader,
                restart: policy.cloned().unwrap_or_default(),
                restart_on_success: match kind {
                    Kind::Main => service,
                    Kind::Poststop => false,
                    other => other.is_sidecar(),
                },
                kill_timeout: task.kill_timeout.clamp(0, max_kill_timeout),
                shutdown_delay: task.shutdown_delay,
            };
            (task.name.clone(), spec)
        });
        Some(Self {
            tasks: tasks.collect(),
            health: HealthSpec::of(alloc),
            shutdown_delay: group.shutdown_delay.unwrap_or_default().max(0),
            max_run_duration: group
                .max_run_duration
                .filter(|limit| *limit > 0 && job.is_batch()),
        })
    }
}

/// Where the allocation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Its hooks before the tasks run.
    #[default]
    Prerun,
    /// Its tasks have their time.
    Live,
    /// Nothing of its tasks will run any more; the hooks after them run.
    Postrun,
    /// Everything of the allocation is over.
    Done,
}

/// How far the end of the tasks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kill {
    /// The leader first.
    Leader,
    /// Then all but sidecars.
    Others,
    /// Then those.
    Sidecars,
}

/// What happens to an allocation.
#[expect(
    clippy::large_enum_variant,
    reason = "short-lived, one at a time; a box would cost more than the move"
)]
#[derive(Clone, Debug)]
pub enum Input {
    /// Its hooks before the tasks are through.
    PrerunDone(Result<(), String>),
    /// Some of those answered, and the next waits for its turn.
    HooksAnswered(Vec<AllocNote>),
    /// The servers sent a new version of it.
    Updated,
    /// Its hooks before the end of its tasks are through.
    PreKillDone,
    /// A hook after the tasks did its work.
    HookEnded(String),
    /// All of those had their turn.
    PostrunDone,
    /// Something happens to a task.
    Task(String, TaskInput),
    /// It is to end; without waiting first, if so requested.
    Stop {
        /// Skips the shutdown delays.
        no_delay: bool,
    },
    /// Its tasks are to be started again: one, all that run, or all that can (CL-06 to CL-08).
    Restart {
        /// Only this one.
        task: Option<String>,
        /// Dead ones too.
        all: bool,
    },
    /// A check that health depends on is good now, or no longer.
    Check {
        /// The check's id.
        id: String,
        /// Whether it is.
        good: bool,
    },
    /// A check failed too often: a task, or without a name all of them, is to be started again.
    Unhealthy {
        /// Only this one; empty for all.
        task: String,
        /// For the event.
        reason: String,
    },
    /// It is part of another deployment now; as a canary, if so requested.
    Deployment {
        /// The deployment's id.
        id: String,
        /// Placed as a canary.
        canary: bool,
    },
    /// The servers see it again after a time without contact.
    Reconnected,
    /// The servers answered for the first time.
    ServerContacted,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run the hooks before the tasks.
    Prerun,
    /// Drop hooks that begin something.
    Interrupt,
    /// After a restart of the agent: let hooks put back what others need of them.
    Restore,
    /// Let hooks know of a new version.
    Update,
    /// Let hooks know that a task runs again.
    TaskRestarted(String),
    /// Run the hooks before the end of the tasks.
    PreKill,
    /// Something for a task.
    Task(String, TaskAction),
    /// Run the hooks after the tasks.
    Postrun,
}

/// An allocation's whole state; what the journal keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocMachine {
    pub tasks: BTreeMap<String, TaskMachine>,
    /// Where it is.
    pub phase: Phase,
    /// Its health, once reported.
    pub deployment_status: Option<AllocDeploymentStatus>,
    stage: Stage,
    kill: Option<Kill>,
    /// The servers want its end.
    stopped: bool,
    no_delay: bool,
    /// When it came here, unix nanoseconds; not known of what older agents wrote.
    #[serde(default)]
    began: Option<i64>,
    /// It ran longer than it may.
    #[serde(default)]
    overran: bool,
    health_since: i64,
    /// When its tasks may be requested to end; set with the request for its end (CL-22).
    #[serde(default)]
    kill_at: Option<i64>,
    /// What the hooks before the tasks answered, in their order.
    #[serde(default)]
    hooks: Vec<AllocNote>,
    /// A new version came while the hooks before the tasks ran; they get it after that.
    #[serde(default)]
    update_waits: bool,
    /// The hooks before the end of the tasks are through.
    #[serde(default)]
    pre_killed: bool,
    /// Hooks after the tasks that did their work.
    #[serde(default)]
    ended_hooks: BTreeSet<String>,
    /// Hooks before the end were requested to run, by this agent.
    #[serde(skip)]
    pre_killing: bool,
    /// So were the hooks after the tasks.
    #[serde(skip)]
    postrunning: bool,
    /// The deployment that its health was last reported to; not known of what older agents wrote.
    #[serde(default)]
    deployment: Option<String>,
    /// Checks that are good; looked at anew by every agent.
    #[serde(skip)]
    good_checks: BTreeSet<String>,
    /// Since when all that are needed are, without a break (CHK-04).
    #[serde(skip)]
    checks_since: Option<i64>,
}

impl AllocMachine {
    /// An allocation that the client just received.
    pub fn new(spec: &AllocSpec, seed: u64, now: i64) -> Self {
        let mut jitter = Jitter(seed);
        let tasks = spec
            .tasks
            .keys()
            .map(|name| (name.clone(), TaskMachine::new(jitter.draw(), now)));
        Self {
            tasks: tasks.collect(),
            began: Some(now),
            health_since: now,
            ..Self::default()
        }
    }

    /// What has to be done first: for a new allocation, and after a restart of the agent.
    pub fn begin(&mut self) -> Vec<Action> {
        if self.phase == Phase::Prerun {
            return vec![Action::Prerun];
        }
        let mut out = Vec::new();
        if self.phase == Phase::Live {
            out.push(Action::Restore);
        }
        for (name, task) in &mut self.tasks {
            out.extend(
                task.restore()
                    .into_iter()
                    .map(|a| Action::Task(name.clone(), a)),
            );
        }
        out
    }

    /// When time alone will change something, as seen from the last step; unix nanoseconds. What
    /// came due since, while that step's outcome was written, is due still.
    pub fn wakes_at(&self, spec: &AllocSpec, stepped_at: i64) -> Option<i64> {
        let tasks = self.tasks.values().filter_map(TaskMachine::wakes_at).min();
        let health = match self.verdict(spec, stepped_at) {
            Some(Verdict::Pending(at)) => Some(at),
            _ => None,
        };
        let kill = self.kill.and(self.kill_at);
        let kill = kill.filter(|at| *at > stepped_at);
        let end = self.ends_at(spec);
        [tasks, health, kill, end].into_iter().flatten().min()
    }

    /// Takes one input.
    pub fn step(&mut self, spec: &AllocSpec, input: Input, now: i64) -> Vec<Action> {
        let mut out = Vec::new();
        match input {
            // One that comes after a stop changes nothing any more.
            Input::PrerunDone(_) if self.phase != Phase::Prerun => {}
            Input::PrerunDone(Ok(())) => {
                self.phase = Phase::Live;
                if std::mem::take(&mut self.update_waits) {
                    self.updated(&mut out);
                }
            }
            Input::PrerunDone(Err(error)) => self.setup_failed(&error, now),
            Input::HooksAnswered(notes) => self.answered(notes),
            Input::Updated => self.updated(&mut out),
            Input::PreKillDone => self.pre_killed = true,
            Input::HookEnded(_) | Input::PostrunDone => self.ended(input),
            Input::Task(name, input) => self.task(spec, &name, input, now, &mut out),
            Input::Stop { no_delay } => {
                self.stopped = true;
                self.no_delay |= no_delay;
                self.kill.get_or_insert(Kill::Leader);
            }
            Input::Restart { task, all } => self.restart(spec, task, all, now, &mut out),
            Input::Check { id, good } => self.check(spec, id, good, now),
            Input::Unhealthy { task, reason } => {
                let why = TaskInput::Unhealthy(reason);
                if !task.is_empty() {
                    self.task(spec, &task, why, now, &mut out);
                } else {
                    self.for_all(spec, now, &mut out, |_| Some(why.clone()));
                }
            }
            Input::Deployment { id, canary } => {
                self.deployment = Some(id);
                self.watch_health(canary, now);
            }
            Input::Reconnected => self.for_all(spec, now, &mut out, |_| {
                Some(TaskInput::Event(events::reconnected(now)))
            }),
            Input::ServerContacted => {
                self.for_all(spec, now, &mut out, |_| Some(TaskInput::ServerContacted));
            }
            Input::Tick => self.for_all(spec, now, &mut out, |_| Some(TaskInput::Tick)),
        }
        self.run_to_fixpoint(spec, now, &mut out);
        out
    }

    /// The tasks whose services are offered now; `None` when nothing is: before the tasks, and as
    /// soon as their end is wanted (CL-22).
    pub fn serving(&self) -> Option<BTreeSet<String>> {
        let serves = self.phase == Phase::Live && self.kill.is_none();
        serves.then(|| {
            let up = self.tasks.iter().filter(|(_, task)| task.serves());
            up.map(|(name, _)| name.clone()).collect()
        })
    }

    fn check(&mut self, spec: &AllocSpec, id: String, good: bool, now: i64) {
        if good {
            self.good_checks.insert(id);
        } else {
            self.good_checks.remove(&id);
        }
        let needed = spec.health.as_ref().map_or(0, |h| h.checks);
        if self.good_checks.len() < needed {
            self.checks_since = None;
        } else {
            self.checks_since.get_or_insert(now);
        }
    }

    fn task(
        &mut self,
        spec: &AllocSpec,
        name: &str,
        input: TaskInput,
        now: i64,
        out: &mut Vec<Action>,
    ) {
        if let (Some(task), Some(spec)) = (self.tasks.get_mut(name), spec.tasks.get(name)) {
            let actions = task.step(spec, input, now);
            let runs = TaskAction::Poststart { recovered: false };
            if actions.contains(&runs) && task.state.restarts > 0 {
                out.push(Action::TaskRestarted(name.to_owned()));
            }
            out.extend(
                actions
                    .into_iter()
                    .map(|a| Action::Task(name.to_owned(), a)),
            );
        }
    }

    fn for_all(
        &mut self,
        spec: &AllocSpec,
        now: i64,
        out: &mut Vec<Action>,
        input: impl Fn(&TaskMachine) -> Option<TaskInput>,
    ) {
        for name in self.tasks.keys().cloned().collect::<Vec<_>>() {
            if let Some(input) = self.tasks.get(&name).and_then(&input) {
                self.task(spec, &name, input, now, out);
            }
        }
    }

    /// Follows up until nothing changes any more.
    fn run_to_fixpoint(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        self.end_in_time(spec, now, out);
        if self.phase == Phase::Prerun {
            if self.kill.is_none() {
                return;
            }
            self.give_up(spec, now, out);
        }
        loop {
            let before = out.len();
            let stage = self.stage;
            let kill = self.kill;
            self.kill_rules(spec, now, out);
            self.kill_on(spec, now, out);
            self.let_run(spec, now, out);
            if before == out.len() && stage == self.stage && kill == self.kill {
                break;
            }
        }
        self.report_health(spec, now);
        self.close(spec, now, out);
    }

    /// What the end of one task means for the others.
    fn kill_rules(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        if self.kill.is_some() {
            return;
        }
        let kind = |name: &str| spec.tasks.get(name).map_or(Kind::Main, |t| t.kind);
        let counted = || self.tasks.iter().filter(|(n, _)| kind(n) != Kind::Poststop);
        let failed = counted()
            .find(|(_, t)| t.is_dead() && t.state.failed)
            .map(|(n, _)| n.clone());
        let leader =
            counted().any(|(n, t)| t.is_dead() && spec.tasks.get(n).is_some_and(|s| s.leader));
        let sidecars_only = counted().any(|(n, _)| !kind(n).is_sidecar())
            && counted().all(|(n, t)| kind(n).is_sidecar() || t.is_dead());
        let event: TaskEvent = if let Some(name) = failed {
            events::sibling_failed(now, &name)
        } else if leader {
            events::leader_dead(now)
        } else if sidecars_only {
            events::main_dead(now)
        } else {
            return;
        };
        let live: Vec<String> = counted()
            .filter(|(_, t)| !t.is_dead())
            .map(|(n, _)| n.clone())
            .collect();
        if live.is_empty() {
            return;
        }
        for name in live {
            self.task(spec, &name, TaskInput::Event(event.clone()), now, out);
        }
        self.kill = Some(Kill::Leader);
    }

    /// Ends the tasks in their order; those for the end are left alone.
    fn kill_on(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        if self.kill.is_none() || self.phase != Phase::Live || self.waits_for_pre_kill(out) {
            return;
        }
        let delay = spec.shutdown_delay;
        let at = *self.kill_at.get_or_insert(now.saturating_add(delay));
        if now < at && !self.no_delay {
            return;
        }
        while let Some(step) = self.kill {
            let of_step = |name: &str| {
                let Some(task) = spec.tasks.get(name) else {
                    return false;
                };
                match step {
                    Kill::Leader => task.leader && task.kind != Kind::Poststop,
                    Kill::Others => !task.kind.is_sidecar() && task.kind != Kind::Poststop,
                    Kill::Sidecars => task.kind.is_sidecar(),
                }
            };
            let names: Vec<String> = self.tasks.keys().filter(|n| of_step(n)).cloned().collect();
            let no_delay = self.no_delay;
            for name in &names {
                if self
                    .tasks
                    .get(name)
                    .is_some_and(|t| !t.is_killed() || no_delay)
                {
                    self.task(spec, name, TaskInput::Kill { no_delay }, now, out);
                }
            }
            let over = names
                .iter()
                .all(|n| self.tasks.get(n).is_none_or(TaskMachine::is_dead));
            self.kill = match step {
                _ if !over => return,
                Kill::Leader => Some(Kill::Others),
                Kill::Others => Some(Kill::Sidecars),
                Kill::Sidecars => return,
            };
        }
    }

    /// Sends every task whether it may run.
    fn let_run(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        let progress: Vec<(Kind, TaskProgress)> = self
            .tasks
            .iter()
            .filter_map(|(name, task)| Some((spec.tasks.get(name)?.kind, progress(task))))
            .collect();
        self.stage = self.stage.advance(&progress);
        let stage = self.stage;
        for name in self.tasks.keys().cloned().collect::<Vec<_>>() {
            let Some(task) = spec.tasks.get(&name) else {
                continue;
            };
            let allowed = stage.allows(task.kind);
            self.task(spec, &name, TaskInput::Allow(allowed), now, out);
        }
    }

    fn restart(
        &mut self,
        spec: &AllocSpec,
        task: Option<String>,
        all: bool,
        now: i64,
        out: &mut Vec<Action>,
    ) {
        if self.kill.is_some() || self.phase != Phase::Live {
            return;
        }
        if all {
            self.stage = Stage::Init;
        }
        let input = TaskInput::Restart {
            force: all,
            reason: "User requested task to restart".into(),
        };
        match task {
            Some(name) => self.task(spec, &name, input, now, out),
            None => self.for_all(spec, now, out, |_| Some(input.clone())),
        }
    }

    fn setup_failed(&mut self, error: &str, now: i64) {
        let text = format!("failed to setup alloc: {error}");
        for task in self.tasks.values_mut() {
            task.emit(events::setup_failure(now, &text));
            task.state.failed = true;
            task.state.state = task::DEAD.to_owned();
            task.state.finished_at = Time(now);
            task.phase = crate::task::machine::Phase::Ended;
        }
        self.phase = Phase::Live;
    }

    /// Whether a restart request makes sense.
    ///
    /// # Errors
    /// Nomad's text when the named task does not run or none is left.
    pub fn may_restart(&self, task: Option<&str>) -> Result<(), String> {
        match task {
            Some(name) => match self.tasks.get(name) {
                None => Err(format!("Could not find task {name:?}")),
                Some(task) if task.is_running() => Ok(()),
                Some(_) => Err("Task not running".to_owned()),
            },
            None if matches!(self.phase, Phase::Postrun | Phase::Done) => {
                Err("Task not running".to_owned())
            }
            None => Ok(()),
        }
    }
}

fn progress(task: &TaskMachine) -> TaskProgress {
    if task.has_ended() && task.state.failed {
        TaskProgress::Failed
    } else if task.has_ended() {
        TaskProgress::Terminal
    } else if task.is_running() {
        TaskProgress::Running
    } else if !task.is_dead() {
        TaskProgress::Pending
    } else if task.state.failed {
        TaskProgress::Failed
    } else {
        TaskProgress::Succeeded
    }
}

#[cfg(test)]
#[path = "progress_test.rs"]
mod progress_test;
#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
