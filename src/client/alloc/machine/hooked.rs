//! What hooks answered, and when those at the end have their turn.

use std::collections::BTreeSet;

use super::{Action, AllocMachine, AllocSpec, Input, Phase};
use crate::hooks::alloc::{AllocHookReport, AllocNote};
use crate::task::machine::{TaskAction, TaskInput, TaskMachine};

impl From<AllocHookReport> for Input {
    fn from(report: AllocHookReport) -> Self {
        match report {
            AllocHookReport::Answered(notes) => Self::HooksAnswered(notes),
            AllocHookReport::Ended(hook) => Self::HookEnded(hook),
        }
    }
}

impl AllocMachine {
    /// What its hooks answered before the tasks.
    pub fn notes(&self) -> &[AllocNote] {
        &self.hooks
    }

    /// Those of its hooks after the tasks that did their work.
    pub fn ended_hooks(&self) -> &BTreeSet<String> {
        &self.ended_hooks
    }

    /// Its hooks are called again, or for the first time, with what they answered last.
    pub(super) fn answered(&mut self, notes: Vec<AllocNote>) {
        for note in notes {
            match self.hooks.iter_mut().find(|old| old.hook == note.hook) {
                Some(old) => *old = note,
                None => self.hooks.push(note),
            }
        }
    }

    /// Its tasks are to end, and those of its hooks that come first are not through yet.
    pub(super) fn waits_for_pre_kill(&mut self, out: &mut Vec<Action>) -> bool {
        if !self.pre_killed && !self.pre_killing {
            self.pre_killing = true;
            out.push(Action::PreKill);
        }
        !self.pre_killed
    }

    /// Something of an allocation that a hook of it may want to know: when it has prepared it.
    pub(super) fn updated(&mut self, out: &mut Vec<Action>) {
        self.update_waits = self.phase == Phase::Prerun;
        if self.phase != Phase::Live || self.kill.is_some() {
            return;
        }
        out.push(Action::Update);
        let running = self.tasks.iter().filter(|(_, task)| task.serves());
        out.extend(running.map(|(name, _)| Action::Task(name.clone(), TaskAction::Update)));
    }

    /// Nothing of its tasks will run any more: their hooks end, then its own.
    pub(super) fn close(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        if self.phase == Phase::Live && self.tasks.values().all(TaskMachine::is_dead) {
            self.phase = Phase::Postrun;
            self.for_all(spec, now, out, |_| Some(TaskInput::Kill { no_delay: true }));
        }
        for (name, task) in &mut self.tasks {
            let actions = task.stop_hooks();
            out.extend(actions.map(|action| Action::Task(name.clone(), action)));
        }
        let through = self.tasks.values().all(TaskMachine::is_through);
        if self.phase == Phase::Postrun && through && !self.postrunning {
            self.postrunning = true;
            out.push(Action::Postrun);
        }
    }

    /// Its end is wanted before its tasks had a beginning.
    pub(super) fn give_up(&mut self, spec: &AllocSpec, now: i64, out: &mut Vec<Action>) {
        self.for_all(spec, now, out, |_| Some(TaskInput::Kill { no_delay: true }));
        self.phase = Phase::Postrun;
        out.push(Action::Interrupt);
    }

    /// A hook of the end answered, or all did.
    pub(super) fn ended(&mut self, input: Input) {
        match input {
            Input::HookEnded(hook) => _ = self.ended_hooks.insert(hook),
            Input::PostrunDone if self.phase == Phase::Postrun => self.phase = Phase::Done,
            _ => {}
        }
    }
}
