//! How long an allocation may run (`max_run_duration`). Its time begins with the allocation here,
//! continues over restarts of tasks and of the agent, and is no longer than its group says now.

use drover_events::model::Allocation;

use super::{Action, AllocMachine, AllocSpec, Kill, Phase};
use crate::task::lifecycle::Kind;
use crate::task::machine::{TaskInput, TaskMachine};
use crate::task_events as events;

/// What events of its tasks name.
const HOOK: &str = "max_run_duration";

impl AllocMachine {
    /// When its time is over, unix nanoseconds; `None` where that changes nothing any more.
    pub(super) fn ends_at(&self, spec: &AllocSpec) -> Option<i64> {
        if self.overran || !matches!(self.phase, Phase::Prerun | Phase::Live) {
            return None;
        }
        let began = self.began.or_else(|| self.first_start())?;
        Some(began.saturating_add(spec.max_run_duration?))
    }

    /// Since when it runs, of what an older agent wrote.
    fn first_start(&self) -> Option<i64> {
        let starts = self
            .tasks
            .values()
            .map(|task| task.state.started_at.nanos());
        starts.filter(|at| *at > 0).min()
    }

    /// Ends what has run too long: its tasks in their order, and those for its end, which do not
    /// begin any more.
    pub(super) fn end_in_time(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        if self.ends_at(spec).is_none_or(|at| now < at) {
            return;
        }
        if self.tasks.values().all(TaskMachine::is_dead) {
            return;
        }
        self.overran = true;
        let why = events::hook_message(now, HOOK, Allocation::RAN_TOO_LONG);
        self.for_all(spec, now, out, |task| {
            (!task.is_dead()).then(|| TaskInput::Event(why.clone()))
        });
        self.kill.get_or_insert(Kill::Leader);
        let last = spec
            .tasks
            .iter()
            .filter(|(_, task)| task.kind == Kind::Poststop);
        for (name, _) in last {
            self.task(spec, name, TaskInput::Kill { no_delay: true }, now, out);
        }
    }
}
