//! What a task's hooks answered, and when those at its end have their turn.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ending, HookError, Phase, PreparedTask, TaskAction, TaskInput, TaskMachine, TaskSpec};
use crate::drivers::{Device, Mount};
use crate::hooks::task::{TaskHookReport, TaskNote, VALIDATE};
use crate::task::restart::Cause;
use crate::task_events as events;

impl From<TaskHookReport> for TaskInput {
    fn from(report: TaskHookReport) -> Self {
        match report {
            TaskHookReport::Answered(notes) => Self::HooksAnswered(notes),
            TaskHookReport::Through(ending, hook) => Self::HookThrough(ending, hook),
        }
    }
}

impl TaskMachine {
    /// What its hooks answered, in their order.
    pub fn notes(&self) -> &[TaskNote] {
        &self.notes
    }

    /// Variables from its hooks: of those that name one, the last counts (CL-28).
    pub fn hook_env(&self) -> BTreeMap<String, String> {
        let all = self.notes.iter().flat_map(|note| &note.answer.env);
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// What its hooks want mounted.
    pub fn mounts(&self) -> Vec<Mount> {
        let all = self.notes.iter().flat_map(|note| &note.answer.mounts);
        all.cloned().collect()
    }

    /// Devices from its hooks.
    pub fn devices(&self) -> Vec<Device> {
        let all = self.notes.iter().flat_map(|note| &note.answer.devices);
        all.cloned().collect()
    }

    pub(super) fn prepared(
        &mut self,
        spec: &TaskSpec,
        result: Result<PreparedTask, HookError>,
        now: i64,
        out: &mut Vec<TaskAction>,
    ) {
        if self.phase != Phase::Preparing {
            // Its end came first; what hooks keep they are given there.
            return self.answered(result.map_or_else(|_| Vec::new(), |done| done.notes));
        }
        match result {
            Ok(prepared) => {
                self.answered(prepared.notes);
                self.run += 1;
                self.phase = Phase::Starting;
                out.push(TaskAction::Start { run: self.run });
            }
            Err(e) => {
                self.emit(match e.hook.as_str() {
                    VALIDATE => events::failed_validation(now, &e.message),
                    _ => events::hook_failed(now, &e.hook, &e.message),
                });
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

    /// A hook that is called again answers for itself alone: its answer before is replaced.
    pub(super) fn answered(&mut self, notes: Vec<TaskNote>) {
        for note in notes {
            if note.answer.done {
                self.hooks_done.insert(note.hook.clone());
            }
            match self.notes.iter_mut().find(|old| old.hook == note.hook) {
                Some(old) => *old = note,
                None if note.answer.leaves_something() => self.notes.push(note),
                None => {}
            }
        }
    }

    /// Hooks that did their work at an end.
    pub fn through(&self, ending: Ending) -> &BTreeSet<String> {
        match ending {
            Ending::Exited => &self.hooks_exited,
            Ending::Stop => &self.hooks_ended,
        }
    }

    pub(super) fn through_at(&mut self, ending: Ending) -> &mut BTreeSet<String> {
        match ending {
            Ending::Exited => &mut self.hooks_exited,
            Ending::Stop => &mut self.hooks_ended,
        }
    }

    /// The end whose hooks are not through.
    pub(super) fn exited_hooks(&self) -> Option<TaskAction> {
        let exit = self.exit.clone();
        exit.map(|exit| TaskAction::Exited { exit })
    }

    /// It can never run again, and its hooks are through.
    pub fn is_through(&self) -> bool {
        self.phase == Phase::Ended && self.hooks_stopped
    }

    /// Once it can never run again, its hooks end; returned once by every agent.
    pub(crate) fn stop_hooks(&mut self) -> Option<TaskAction> {
        if self.phase != Phase::Ended || self.hooks_stopped || self.hooks_stopping {
            return None;
        }
        self.hooks_stopping = true;
        Some(TaskAction::StopHooks)
    }
}
