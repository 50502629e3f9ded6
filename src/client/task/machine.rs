//! The task runner: `(state, input) -> (state, actions)`.

mod hooked;
mod stop;

use std::collections::BTreeSet;

use drover_events::gojson::Time;
use drover_events::model::status::task as status;
use drover_events::model::{RestartPolicy, TaskEvent, TaskState};
use serde::{Deserialize, Serialize};

pub use crate::hooks::task::{Ending, HookError, PreparedTask};

use super::lifecycle::Kind;
use super::restart::{Cause, Decision, RestartTracker};
use crate::drivers::{ExitResult, Handle, StartError};
use crate::hooks::task::TaskNote;
use crate::task_events as events;

/// How often the end of a task is requested before it is given up.
const STOP_TRIES: u32 = 5;
/// The first wait after a failed request, nanoseconds; each further one is four times as long.
const STOP_RETRY: i64 = 5 * crate::clock::SECOND;
/// The longest of those waits, nanoseconds.
const STOP_RETRY_MAX: i64 = 120 * crate::clock::SECOND;

/// What a job says about the task; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// Its part in the group's life.
    pub kind: Kind,
    /// The others end with it.
    pub leader: bool,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Also after it ended well.
    pub restart_on_success: bool,
    /// Between the request for its end and killing it.
    pub kill_timeout: i64,
    /// Before the request for its end.
    pub shutdown_delay: i64,
}

/// Where the task is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Until the coordinator lets it run.
    #[default]
    Waiting,
    /// Its prestart hooks run.
    Preparing,
    /// The driver starts it; `TaskMachine::run` names the attempt.
    Starting,
    /// It runs.
    Running(Handle),
    /// It is started again then (unix nanoseconds).
    Backoff(i64),
    /// It runs, and its end is requested then (unix nanoseconds).
    Delaying(Handle, i64),
    /// It was requested to end.
    Stopping(Handle, Why),
    /// It does not run, and could be started.
    Dead,
    /// It will never run again (CL-12).
    Ended,
}

/// Why a task is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// For good.
    Kill,
    /// To be started again.
    Restart,
    /// To be started again if the policy allows it: it does not do its work.
    Unhealthy,
}

/// What happens to a task.
#[expect(
    clippy::large_enum_variant,
    reason = "short-lived, one at a time; a box would cost more than the move"
)]
#[derive(Clone, Debug)]
pub enum TaskInput {
    /// The coordinator lets it run, or no longer.
    Allow(bool),
    /// Some of its prestart hooks answered, and the next waits for its turn.
    HooksAnswered(Vec<TaskNote>),
    /// Its prestart hooks are through.
    Prepared(Result<PreparedTask, HookError>),
    /// A hook did its work at an end, and the next waits for its turn.
    HookThrough(Ending, String),
    /// Its hooks after an end are through.
    ExitedDone,
    /// Its hooks at the end are through.
    HooksStopped,
    /// The driver answered.
    Started(Result<Handle, StartError>),
    /// The driver found it, after a restart of the agent.
    Recovered(TaskRecovery),
    /// It ended.
    Exited(ExitResult),
    /// The request for its end to the driver failed.
    StopFailed(String),
    /// It is to end for good; without waiting first, if so requested.
    Kill {
        /// Skips the shutdown delay.
        no_delay: bool,
    },
    /// It is to be started again; dead ones only if forced (CL-10).
    Restart {
        /// Dead ones too.
        force: bool,
        /// For the event.
        reason: String,
    },
    /// It runs, and does not do its work: it is to be started again as if it had failed (CHK-08).
    Unhealthy(String),
    /// Something to be reported about it.
    Event(TaskEvent),
    /// The servers answered for the first time.
    ServerContacted,
    /// Time has passed.
    Tick,
}

/// What a driver found after a restart of the agent.
#[derive(Clone, Debug)]
pub enum TaskRecovery {
    /// The task lives.
    Live(Handle),
    /// It ended.
    Exited(ExitResult),
    /// It never ran, or that is not known.
    Nothing,
    /// Starting it had failed.
    NotStarted(StartError),
}

/// What is to be done for a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskAction {
    /// Run the prestart hooks, but for these.
    Prepare {
        /// Hooks that are done.
        done: BTreeSet<String>,
    },
    /// Start it, as attempt `run`, with these variables from hooks.
    Start {
        /// The attempt.
        run: u64,
    },
    /// Find attempt `run` again.
    Recover {
        /// The attempt.
        run: u64,
        /// What it is found with.
        handle: Option<Handle>,
    },
    /// Run the hooks after the start.
    Poststart {
        /// It ran before this agent did.
        recovered: bool,
    },
    /// Let hooks know of a new version of the allocation.
    Update,
    /// Drop prestart hooks that run.
    Interrupt,
    /// Run the hooks after an end, before anything else is done for the task.
    Exited {
        /// The end.
        exit: ExitResult,
    },
    /// Run the hooks for a task that will never run again.
    StopHooks,
    /// Request its end.
    Stop,
    /// Remove what the driver keeps of an attempt that is over.
    Destroy {
        /// The attempt.
        run: u64,
    },
}

/// A task's whole state; what the journal keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskMachine {
    /// What is reported to the servers.
    pub state: TaskState,
    /// Where it is.
    pub phase: Phase,
    /// The last attempt's number.
    pub run: u64,
    hooks_done: BTreeSet<String>,
    /// What hooks answered, in their order.
    #[serde(default)]
    notes: Vec<TaskNote>,
    /// An end whose hooks are not through yet.
    #[serde(default)]
    exit: Option<ExitResult>,
    /// Those of them that did their work.
    #[serde(default)]
    hooks_exited: BTreeSet<String>,
    /// The hooks at its end are through.
    #[serde(default)]
    hooks_stopped: bool,
    /// Those of them that did their work.
    #[serde(default)]
    hooks_ended: BTreeSet<String>,
    /// Those were requested to run, by this agent.
    #[serde(skip)]
    hooks_stopping: bool,
    tracker: RestartTracker,
    killed: bool,
    allowed: bool,
    /// Until the servers answer (a task that could not be found again).
    held: bool,
    stop_tries: u32,
    stop_retry_at: Option<i64>,
}

impl TaskMachine {
    /// A task that the client just received.
    pub fn new(seed: u64, now: i64) -> Self {
        let mut out = Self {
            state: TaskState {
                state: status::PENDING.to_owned(),
                ..TaskState::default()
            },
            phase: Phase::Waiting,
            run: 0,
            hooks_done: BTreeSet::new(),
            notes: Vec::new(),
            exit: None,
            hooks_exited: BTreeSet::new(),
            hooks_stopped: false,
            hooks_ended: BTreeSet::new(),
            hooks_stopping: false,
            tracker: RestartTracker::new(seed),
            killed: false,
            allowed: false,
            held: false,
            stop_tries: 0,
            stop_retry_at: None,
        };
        out.emit(events::received(now));
        out
    }

    /// What a restarted agent has to do first.
    pub fn restore(&mut self) -> Vec<TaskAction> {
        self.allowed = false;
        let run = self.run;
        let recover = |handle| Some(TaskAction::Recover { run, handle });
        let first = match &self.phase {
            Phase::Preparing => {
                self.phase = Phase::Waiting;
                None
            }
            Phase::Starting => recover(None),
            Phase::Running(h) | Phase::Delaying(h, _) | Phase::Stopping(h, _) => {
                recover(Some(h.clone()))
            }
            Phase::Waiting | Phase::Backoff(_) | Phase::Dead | Phase::Ended => None,
        };
        // An end that the last agent saw, and was through with for all but its hooks.
        self.exited_hooks().into_iter().chain(first).collect()
    }

    /// When time alone will change something, unix nanoseconds.
    pub fn wakes_at(&self) -> Option<i64> {
        match self.phase {
            Phase::Backoff(at) | Phase::Delaying(_, at) => Some(at),
            Phase::Stopping(..) => self.stop_retry_at,
            _ => None,
        }
    }

    /// It runs now.
    pub fn is_running(&self) -> bool {
        self.state.state == status::RUNNING
    }

    /// It runs, and neither its end nor a new start was requested: it serves.
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Running(_)) && self.is_running()
    }

    /// It does not run, and will not without a request.
    pub fn is_dead(&self) -> bool {
        self.state.state == status::DEAD
    }

    /// It can never run again.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Its end was requested.
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Takes one input.
    pub fn step(&mut self, spec: &TaskSpec, input: TaskInput, now: i64) -> Vec<TaskAction> {
        let mut out = Vec::new();
        match input {
            TaskInput::Allow(allowed) => {
                self.allowed = allowed;
                self.go(&mut out);
            }
            TaskInput::ServerContacted => {
                self.held = false;
                self.go(&mut out);
            }
            TaskInput::HooksAnswered(notes) => self.answered(notes),
            TaskInput::HookThrough(ending, hook) => _ = self.through_at(ending).insert(hook),
            TaskInput::ExitedDone => self.exit = None,
            TaskInput::HooksStopped => self.hooks_stopped = true,
            TaskInput::Prepared(result) => self.prepared(spec, result, now, &mut out),
            TaskInput::Started(result) => self.started(spec, result, now, &mut out),
            TaskInput::Recovered(found) => self.recovered(spec, found, now, &mut out),
            TaskInput::Exited(exit) => self.exited(spec, &exit, now, &mut out),
            TaskInput::StopFailed(error) => self.stop_failed(&error, now),
            TaskInput::Kill { no_delay } => self.kill(spec, no_delay, now, &mut out),
            TaskInput::Restart { force, reason } => self.restart(force, &reason, now, &mut out),
            TaskInput::Unhealthy(reason) => self.unhealthy(&reason, now, &mut out),
            TaskInput::Event(event) => self.emit(event),
            TaskInput::Tick => self.tick(now, &mut out),
        }
        out
    }

    /// Keeps the newest events only.
    pub(crate) fn emit(&mut self, event: TaskEvent) {
        self.state.events.push(event);
        let events = self.state.events.to_mut();
        if events.len() > events::MAX_EVENTS {
            events.remove(0);
        }
    }

    fn go(&mut self, out: &mut Vec<TaskAction>) {
        if self.phase == Phase::Waiting && self.allowed && !self.held {
            self.phase = Phase::Preparing;
            out.push(TaskAction::Prepare {
                done: self.hooks_done.clone(),
            });
        }
    }

    fn started(
        &mut self,
        spec: &TaskSpec,
        result: Result<Handle, StartError>,
        now: i64,
        out: &mut Vec<TaskAction>,
    ) {
        if self.phase != Phase::Starting {
            return;
        }
        match result {
            Ok(handle) => {
                self.runs(&handle, now);
                self.phase = Phase::Running(handle);
                if self.killed {
                    self.stop(Why::Kill, out);
                } else {
                    out.push(TaskAction::Poststart { recovered: false });
                }
            }
            Err(e) => {
                self.emit(events::driver_failure(now, &e.message));
                out.push(TaskAction::Destroy { run: self.run });
                if self.killed {
                    return self.end(now);
                }
                self.decide(
                    spec,
                    Cause::StartError {
                        recoverable: e.recoverable,
                    },
                    now,
                    now,
                );
            }
        }
    }

    fn runs(&mut self, handle: &Handle, now: i64) {
        self.state.state = status::RUNNING.to_owned();
        self.state.started_at = Time(if handle.started_at > 0 {
            handle.started_at
        } else {
            now
        });
        self.emit(events::started(now));
    }

    fn recovered(
        &mut self,
        spec: &TaskSpec,
        found: TaskRecovery,
        now: i64,
        out: &mut Vec<TaskAction>,
    ) {
        let starting = self.phase == Phase::Starting;
        match found {
            TaskRecovery::Live(handle) if starting => self.started(spec, Ok(handle), now, out),
            TaskRecovery::NotStarted(error) if starting => self.started(spec, Err(error), now, out),
            TaskRecovery::Exited(exit) if starting => {
                let handle = Handle {
                    run: self.run,
                    ..Handle::default()
                };
                self.runs(&handle, now);
                self.phase = Phase::Running(handle);
                self.exited(spec, &exit, now, out);
            }
            TaskRecovery::Nothing if starting => {
                // It never ran; what was made ready for it is of no use any more.
                out.push(TaskAction::Destroy { run: self.run });
                match self.killed {
                    true => self.end(now),
                    false => self.phase = Phase::Waiting,
                }
            }
            // What was under way continues: a stop is requested again, a delay has its timer.
            TaskRecovery::Live(_) => {
                out.push(TaskAction::Poststart { recovered: true });
                if matches!(self.phase, Phase::Stopping(..)) {
                    out.push(TaskAction::Stop);
                }
            }
            TaskRecovery::Exited(exit) => self.exited(spec, &exit, now, out),
            TaskRecovery::Nothing | TaskRecovery::NotStarted(_) => self.lost_hold(now, out),
        }
    }

    /// A task that ran and cannot be found: its end was not seen, and it waits for the
    /// servers' word.
    fn lost_hold(&mut self, now: i64, out: &mut Vec<TaskAction>) {
        self.exit = Some(ExitResult {
            error: "the task was not found again".to_owned(),
            ..ExitResult::default()
        });
        self.hooks_exited.clear();
        out.extend(self.exited_hooks());
        if self.killed {
            return self.end(now);
        }
        self.emit(events::failed_restore(now));
        self.state.state = status::PENDING.to_owned();
        self.phase = Phase::Waiting;
        self.held = true;
    }

    fn exited(&mut self, spec: &TaskSpec, exit: &ExitResult, now: i64, out: &mut Vec<TaskAction>) {
        let why = match &self.phase {
            Phase::Running(_) | Phase::Delaying(..) => None,
            Phase::Stopping(_, why) => Some(*why),
            _ => return,
        };
        self.stop_tries = 0;
        self.stop_retry_at = None;
        self.emit(events::terminated(now, exit));
        self.exit = Some(exit.clone());
        self.hooks_exited.clear();
        out.extend(self.exited_hooks());
        out.push(TaskAction::Destroy { run: self.run });
        let at = if exit.finished_at > 0 {
            exit.finished_at
        } else {
            now
        };
        if self.killed {
            self.state.finished_at = Time(at);
            return self.end(now);
        }
        let cause = match why {
            Some(Why::Restart) => Cause::RestartRequested,
            Some(Why::Unhealthy) => Cause::Exit { success: false },
            _ => Cause::Exit {
                success: exit.successful(),
            },
        };
        self.decide(spec, cause, at, now);
    }

    fn decide(&mut self, spec: &TaskSpec, cause: Cause, at: i64, now: i64) {
        match self
            .tracker
            .next(&spec.restart, spec.restart_on_success, cause, now)
        {
            Decision::Restart { delay, reason } => {
                self.emit(events::restarting(now, &reason, delay));
                self.state.restarts += 1;
                self.state.last_restart = Time(now);
                self.state.state = status::PENDING.to_owned();
                self.phase = Phase::Backoff(now.saturating_add(delay));
            }
            Decision::Fail { reason } => {
                self.emit(events::not_restarting(now, &reason));
                self.state.failed = true;
                self.dead(at);
            }
            Decision::Done => self.dead(at),
        }
    }

    fn dead(&mut self, at: i64) {
        self.state.state = status::DEAD.to_owned();
        self.state.finished_at = Time(at);
        self.phase = Phase::Dead;
    }

    /// Killed: the loop ends cleanly, and stays so over restarts of the agent (CL-12).
    fn end(&mut self, now: i64) {
        self.emit(events::killed(now, ""));
        self.state.state = status::DEAD.to_owned();
        if self.state.finished_at.is_unset() || self.state.finished_at < self.state.started_at {
            self.state.finished_at = Time(now);
        }
        self.phase = Phase::Ended;
    }

    fn kill(&mut self, spec: &TaskSpec, no_delay: bool, now: i64, out: &mut Vec<TaskAction>) {
        let first = !self.killed;
        self.killed = true;
        match &self.phase {
            Phase::Ended => {}
            Phase::Dead => self.phase = Phase::Ended,
            Phase::Waiting | Phase::Backoff(_) => {
                self.report_kill(spec, now);
                self.end(now);
            }
            Phase::Preparing => {
                self.report_kill(spec, now);
                out.push(TaskAction::Interrupt);
                self.end(now);
            }
            Phase::Starting if first => self.report_kill(spec, now),
            Phase::Starting => {}
            Phase::Running(handle) => {
                let handle = handle.clone();
                self.report_kill(spec, now);
                let delay = spec.shutdown_delay;
                if delay > 0 && !no_delay {
                    self.emit(events::waiting_shutdown_delay(now, delay));
                    self.phase = Phase::Delaying(handle, now.saturating_add(delay));
                    return;
                }
                if delay > 0 {
                    self.emit(events::skipping_shutdown_delay(now, delay));
                }
                self.stop(Why::Kill, out);
            }
            Phase::Delaying(..) if no_delay => self.stop(Why::Kill, out),
            Phase::Delaying(..) => {}
            Phase::Stopping(handle, _) => {
                self.phase = Phase::Stopping(handle.clone(), Why::Kill);
            }
        }
    }
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
