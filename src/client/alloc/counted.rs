//! What becomes of allocations and of their tasks, as counters. What a former agent counted is not
//! counted anew where an allocation is found again.

use std::collections::BTreeMap;

use drover_events::model::Allocation;
use drover_events::model::status::ClientStatus;
use metrics::{Label, counter};

use super::machine::{AllocMachine, Input};
use crate::task::machine::{TaskInput, TaskRecovery};

/// The parts of an allocation that are counted.
#[derive(Debug)]
pub(super) struct Counted {
    status: ClientStatus,
    /// How often each task was started again.
    restarts: BTreeMap<String, u64>,
}

impl Counted {
    /// All that is so already.
    pub(super) fn of(machine: &AllocMachine) -> Self {
        let tasks = machine.tasks.iter();
        let restarts = tasks.map(|(name, task)| (name.clone(), task.state.restarts));
        Self {
            status: machine.status().0,
            restarts: restarts.collect(),
        }
    }

    /// Counts what became of it since.
    pub(super) fn go_on(&mut self, alloc: &Allocation, machine: &AllocMachine) {
        let (status, _) = machine.status();
        if std::mem::replace(&mut self.status, status) != status {
            match status {
                ClientStatus::Running => once("nomad.client.allocs.running", alloc),
                ClientStatus::Complete => once("nomad.client.allocs.complete", alloc),
                ClientStatus::Failed => once("nomad.client.allocs.failed", alloc),
                // Where it begins, and what servers alone make of it.
                ClientStatus::Pending | ClientStatus::Lost | ClientStatus::Unknown => {}
            }
        }
        for (name, before) in &mut self.restarts {
            let task = machine.tasks.get(name);
            let now = task.map_or(*before, |task| task.state.restarts);
            let more = now.saturating_sub(std::mem::replace(before, now));
            if more > 0 {
                let labels = of_task(alloc, name);
                counter!("nomad.client.allocs.restart", labels).increment(more);
            }
        }
    }
}

/// Counts an allocation that an agent begins with, be it new or found again.
pub(super) fn begun(alloc: &Allocation) {
    once("nomad.client.allocs.start", alloc);
}

/// Counts an allocation of which nothing is left on this node.
pub(super) fn removed(alloc: &Allocation) {
    once("nomad.client.allocs.destroy", alloc);
}

/// Counts a task whose reported end is that the kernel killed it for its memory.
pub(super) fn heard(alloc: &Allocation, input: &Input) {
    let Input::Task(name, input) = input else {
        return;
    };
    if let TaskInput::Exited(exit) | TaskInput::Recovered(TaskRecovery::Exited(exit)) = input
        && exit.oom_killed
    {
        let labels = of_task(alloc, name);
        counter!("nomad.client.allocs.oom_killed", labels).increment(1);
    }
}

fn once(name: &'static str, alloc: &Allocation) {
    counter!(name, labels(alloc)).increment(1);
}

fn labels(alloc: &Allocation) -> Vec<Label> {
    vec![
        Label::new("job", measured_as(alloc).to_owned()),
        Label::new("task_group", alloc.task_group.clone()),
        Label::new("namespace", alloc.namespace.clone()),
    ]
}

fn of_task(alloc: &Allocation, name: &str) -> Vec<Label> {
    let mut labels = labels(alloc);
    labels.push(Label::new("task", name.to_owned()));
    labels
}

/// The job that an allocation is counted under: a child under its parent, for there is no end of
/// children, and what is counted once is kept.
fn measured_as(alloc: &Allocation) -> &str {
    let parent = alloc.job.as_ref().map(|job| job.parent_id.as_str());
    parent
        .filter(|parent| !parent.is_empty())
        .unwrap_or(&alloc.job_id)
}

#[cfg(test)]
#[path = "counted_test.rs"]
mod tests;
