//! Whether and when a failed allocation is tried again.

use std::collections::BTreeSet;

use drover_events::model::status::{ClientStatus, client, desired, eval, trigger};
use drover_events::model::{
    Allocation, Evaluation, RescheduleEvent, ReschedulePolicy, RescheduleTracker,
};

use super::classify::own_group;
use super::{Alloc, Reconciler, is_active};

/// Reschedules due within this time are done now.
const NOW_WINDOW: i64 = 1_000_000_000;
/// Reschedules that fall due within this time of each other share an evaluation.
const BATCH_WINDOW: i64 = 5_000_000_000;
/// How many past reschedules are remembered when there is no limit.
const REMEMBERED: usize = 5;

/// The sorted-out failures of a group.
#[derive(Debug, Default)]
pub(super) struct Rescheduling {
    pub untainted: Vec<Alloc>,
    pub now: Vec<Alloc>,
    /// With the time each is due.
    pub later: Vec<(Alloc, i64)>,
}

fn policy_of(alloc: &Allocation) -> Option<&ReschedulePolicy> {
    own_group(alloc)?.reschedule_policy.as_ref()
}

fn events_of(alloc: &Allocation) -> &[RescheduleEvent] {
    alloc
        .reschedule_tracker
        .as_ref()
        .map_or(&[], |tracker| &tracker.events)
}

/// When the last of its tasks ended; else when the allocation was last changed.
pub(super) fn last_event_time(alloc: &Allocation) -> i64 {
    let finished = alloc
        .task_states
        .values()
        .map(|state| state.finished_at.0)
        .max();
    finished
        .filter(|time| *time != 0)
        .unwrap_or(alloc.modify_time)
}

/// How long to wait before the next attempt, in nanoseconds.
pub fn next_delay(alloc: &Allocation) -> i64 {
    let Some(policy) = policy_of(alloc) else {
        return 0;
    };
    let events = events_of(alloc);
    let Some(last) = events.last() else {
        return policy.delay;
    };
    let mut delay = match policy.delay_function.as_str() {
        "exponential" => last.delay.saturating_mul(2),
        "fibonacci" if events.len() >= 2 => {
            let before = &events[events.len() - 2];
            let new_series = before.delay == policy.max_delay && last.delay == policy.delay;
            if new_series {
                last.delay
            } else {
                last.delay.saturating_add(before.delay)
            }
        }
        "fibonacci" => last.delay.max(policy.delay),
        _ => return policy.delay,
    };
    if policy.max_delay > 0 && delay > policy.max_delay {
        delay = policy.max_delay;
        if last_event_time(alloc) - last.reschedule_time > delay {
            delay = policy.delay;
        }
    }
    delay
}

/// How many attempts lie within the policy's interval before a failure.
fn attempts_in_interval(alloc: &Allocation, policy: &ReschedulePolicy, failed_at: i64) -> i64 {
    let events = events_of(alloc).iter().rev();
    let recent = events.take_while(|event| failed_at - event.reschedule_time < policy.interval);
    recent.count() as i64
}

/// When a failed allocation is due again, if it may be tried again at all.
pub(super) fn due_at(alloc: &Allocation) -> Option<i64> {
    let policy = policy_of(alloc)?;
    let failed_at = last_event_time(alloc);
    let wanted = alloc.desired_status != desired::STOP || last_reschedule_failed(alloc);
    let failed = matches!(
        alloc.client(),
        Some(ClientStatus::Failed | ClientStatus::Lost)
    );
    if !wanted || !failed || failed_at == 0 {
        return None;
    }
    let delay = next_delay(alloc);
    let due = failed_at.saturating_add(delay);
    if policy.unlimited {
        return Some(due);
    }
    if policy.attempts <= 0 {
        return None;
    }
    let allowed = if events_of(alloc).is_empty() {
        true
    } else {
        attempts_in_interval(alloc, policy, failed_at) < policy.attempts && delay < policy.interval
    };
    allowed.then_some(due)
}

/// Whether the last attempt to place a successor found no place.
pub(super) fn last_reschedule_failed(alloc: &Allocation) -> bool {
    let tracker = alloc.reschedule_tracker.as_ref();
    tracker.is_some_and(|tracker| tracker.last_reschedule == "no placement")
}

/// The history a successor starts with.
pub fn next_tracker(previous: &Allocation, now: i64) -> RescheduleTracker {
    let events = events_of(previous);
    let mut kept: Vec<RescheduleEvent> = match policy_of(previous) {
        Some(policy) if policy.attempts > 0 => events
            .iter()
            .filter(|e| policy.interval > 0 && now - e.reschedule_time <= policy.interval)
            .cloned()
            .collect(),
        _ => events[events.len().saturating_sub(REMEMBERED)..].to_vec(),
    };
    kept.push(RescheduleEvent {
        reschedule_time: now,
        prev_alloc_id: previous.id.clone(),
        prev_node_id: previous.node_id.clone(),
        delay: next_delay(previous),
    });
    RescheduleTracker {
        events: kept.into(),
        last_reschedule: "ok".to_owned(),
    }
}

/// The nodes where an allocation and its predecessors failed.
pub fn penalty_nodes(previous: &Allocation) -> BTreeSet<&str> {
    let mut nodes: BTreeSet<&str> = events_of(previous)
        .iter()
        .map(|event| event.prev_node_id.as_str())
        .collect();
    if matches!(
        previous.client(),
        Some(ClientStatus::Failed | ClientStatus::Unknown)
    ) {
        nodes.insert(&previous.node_id);
    }
    nodes
}

/// Before timing: whether an allocation counts, and whether it can be rescheduled.
enum Standing {
    /// It counts as it is, and cannot be rescheduled.
    Counted,
    /// It does not count.
    Ignored,
    /// It counts unless it is rescheduled.
    Open,
}

fn standing(alloc: &Allocation, batch: bool) -> Standing {
    if alloc.server_terminal() {
        return if batch && ran_successfully(alloc) {
            Standing::Counted
        } else if last_reschedule_failed(alloc) {
            Standing::Open
        } else {
            Standing::Ignored
        };
    }
    if batch {
        return if alloc.client_status == client::FAILED {
            Standing::Open
        } else {
            Standing::Counted
        };
    }
    match alloc.client() {
        Some(ClientStatus::Complete | ClientStatus::Lost) => Standing::Ignored,
        Some(
            ClientStatus::Pending
            | ClientStatus::Running
            | ClientStatus::Failed
            | ClientStatus::Unknown,
        )
        | None => Standing::Open,
    }
}

/// Every task that ran ended, and none of them failed.
fn ran_successfully(alloc: &Allocation) -> bool {
    if alloc.client_status == client::COMPLETE && alloc.task_states.is_empty() {
        return true;
    }
    alloc.ran_successfully()
}

/// An operator stops it and wants another elsewhere: whatever its policy says, and however often it
/// was tried.
pub(super) fn requested_for(alloc: &Allocation) -> bool {
    let request = &alloc.desired_transition;
    request.reschedule == Some(true)
        && request.force_reschedule == Some(true)
        && !super::classify::is_terminal(alloc)
}

/// It was stopped for such a request, and another could not be placed: it is due until one is
/// placed. What its tasks made of the stop does not matter; they did not run to their end.
pub(super) fn was_requested(alloc: &Allocation) -> bool {
    let request = &alloc.desired_transition;
    request.reschedule == Some(true)
        && request.force_reschedule == Some(true)
        && super::classify::is_server_terminal(alloc)
        && alloc.next_allocation.is_empty()
        && last_reschedule_failed(alloc)
}

impl Reconciler<'_> {
    /// Sorts out which allocations are rescheduled now, later or never. Those on nodes that go out
    /// of contact are due at once.
    pub(super) fn rescheduling(&self, allocs: Vec<Alloc>, disconnecting: bool) -> Rescheduling {
        let mut sorted = Rescheduling::default();
        for alloc in allocs {
            if !alloc.next_allocation.is_empty() && super::classify::is_terminal(&alloc) {
                continue;
            }
            if requested_for(&alloc) || was_requested(&alloc) {
                sorted.now.push(alloc);
                continue;
            }
            match standing(&alloc, self.batch) {
                Standing::Ignored => continue,
                Standing::Counted if !disconnecting => {
                    sorted.untainted.push(alloc);
                    continue;
                }
                _ => {}
            }
            let due = self.due(&alloc, disconnecting);
            let follow_up = alloc.followup_eval_id == self.eval.id;
            let forced = alloc.desired_transition.force_reschedule == Some(true);
            let failed = alloc.client_status == client::FAILED;
            match due {
                _ if forced && failed => sorted.now.push(alloc),
                Some(due) if follow_up || due - self.now <= NOW_WINDOW => sorted.now.push(alloc),
                Some(due) => {
                    if alloc.followup_eval_id.is_empty() || disconnecting {
                        sorted.later.push((alloc.clone(), due));
                    }
                    sorted.untainted.push(alloc);
                }
                // A stopped allocation is not counted, whatever becomes of it.
                None if super::classify::is_server_terminal(&alloc) => {}
                None => sorted.untainted.push(alloc),
            }
        }
        sorted
    }

    fn due(&self, alloc: &Allocation, disconnecting: bool) -> Option<i64> {
        let of_active = self
            .deployment
            .as_ref()
            .is_some_and(|d| is_active(d) && d.id == alloc.deployment_id);
        if of_active && alloc.desired_transition.reschedule != Some(true) && !disconnecting {
            return None;
        }
        if disconnecting {
            let group = own_group(alloc);
            return super::classify::replaces(group).then_some(self.now);
        }
        due_at(alloc)
    }

    /// Creates the evaluations for reschedules that are due later and notes them on the
    /// allocations.
    pub(super) fn reschedule_later(&mut self, mut later: Vec<(Alloc, i64)>) {
        later.sort_by(|a, b| (a.1, &a.0.id).cmp(&(b.1, &b.0.id)));
        let reason = (
            trigger::ALLOC_RESCHEDULE,
            "created for delayed rescheduling",
        );
        for (alloc, eval_id) in self.batched(later, reason) {
            let mut updated = Allocation::clone(&alloc);
            updated.followup_eval_id = eval_id;
            self.result.attributes.push((alloc, updated));
        }
    }

    /// One pending evaluation for all that fall due within the batch window of the first; `due`
    /// is in the order of time.
    pub(super) fn batched(
        &mut self,
        due: Vec<(Alloc, i64)>,
        (trigger, description): (&str, &str),
    ) -> Vec<(Alloc, String)> {
        let mut given = Vec::with_capacity(due.len());
        let mut open: Option<(i64, String)> = None;
        for (alloc, time) in due {
            let id = match &open {
                Some((first, id)) if time - first <= BATCH_WINDOW => id.clone(),
                _ => {
                    let eval = self.follow_up(trigger, description, time);
                    let id = eval.id.clone();
                    self.result.follow_ups.push(eval);
                    open = Some((time, id.clone()));
                    id
                }
            };
            given.push((alloc, id));
        }
        given
    }

    fn follow_up(&mut self, trigger: &str, description: &str, wait_until: i64) -> Evaluation {
        Evaluation {
            id: self.rng.uuid(),
            namespace: self.eval.namespace.clone(),
            priority: self.eval.priority,
            r#type: self.eval.r#type.clone(),
            triggered_by: trigger.to_owned(),
            job_id: self.eval.job_id.clone(),
            job_modify_index: self.job.as_ref().map_or(0, |job| job.modify_index),
            status: eval::PENDING.to_owned(),
            status_description: description.to_owned(),
            wait_until: drover_events::gojson::Time(wait_until),
            previous_eval: self.eval.id.clone(),
            create_time: self.now,
            modify_time: self.now,
            ..Evaluation::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_events::model::{Job, TaskGroup};

    use super::*;

    /// The next delay, of 20 at most, where one that waited so long has been running for so long.
    fn delay_after(waited: i64, ran: i64) -> i64 {
        let policy = ReschedulePolicy {
            unlimited: true,
            delay: 5,
            delay_function: "exponential".into(),
            max_delay: 20,
            ..ReschedulePolicy::default()
        };
        let group = TaskGroup {
            name: "g".into(),
            reschedule_policy: Some(policy),
            ..TaskGroup::default()
        };
        let job = Job {
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let event = RescheduleEvent {
            reschedule_time: 100,
            delay: waited,
            ..RescheduleEvent::default()
        };
        next_delay(&Allocation {
            task_group: "g".into(),
            modify_time: 100 + ran,
            job: Some(Arc::new(job)),
            reschedule_tracker: Some(RescheduleTracker {
                events: vec![event].into(),
                ..RescheduleTracker::default()
            }),
            ..Allocation::default()
        })
    }

    #[test]
    fn only_a_delay_beyond_the_most_begins_anew_once_it_was_outlasted() {
        for (waited, ran, wanted) in [(5, 1_000, 10), (10, 1_000, 20), (20, 20, 20), (20, 21, 5)] {
            assert_eq!(delay_after(waited, ran), wanted, "{waited} {ran}");
        }
    }
}
