//! How much a client may say of one allocation, and what is kept of one that says more.
//!
//! What matters is reported whatever happens: its status, its health, the state of each task. What
//! can be long are words about it, and those are cut first.

use drover_events::codec::encoded_len;
use drover_events::model::{Allocation, TaskEvent, TaskState};

/// How many bytes an allocation's update may have.
pub const MAX_UPDATE: usize = 1 << 20;
/// What is left of a text that is cut, in bytes.
const TEXT: usize = 1_024;
/// How many of a task's events are left, the newest.
const EVENTS: usize = 3;

/// How many bytes a client's update of an allocation takes in an event.
pub fn size(alloc: &Allocation) -> usize {
    let parts = (
        &alloc.client_status,
        &alloc.client_description,
        &alloc.task_states,
        &alloc.network_status,
        &alloc.deployment_status,
    );
    encoded_len(&parts)
}

/// Cuts an update that is larger than it may be, by no more than it must; answers what it took
/// before, where it was.
pub fn shrink(alloc: &mut Allocation) -> Option<usize> {
    let before = size(alloc);
    let steps: [fn(&mut Allocation); 4] = [cut_words, drop_events, drop_network, drop_tasks];
    for step in steps {
        if size(alloc) <= MAX_UPDATE {
            break;
        }
        step(alloc);
    }
    (before > MAX_UPDATE).then_some(before)
}

fn cut(text: &mut String) {
    if text.len() > TEXT {
        text.truncate(text.floor_char_boundary(TEXT));
        text.push('…');
    }
}

fn states(alloc: &mut Allocation) -> impl Iterator<Item = &mut TaskState> {
    alloc.task_states.to_mut().values_mut()
}

/// Words are cut, and of events the newest are left.
fn cut_words(alloc: &mut Allocation) {
    cut(&mut alloc.client_description);
    for state in states(alloc) {
        let events = state.events.to_mut();
        events.drain(..events.len().saturating_sub(EVENTS));
        events.iter_mut().for_each(cut_event);
    }
}

fn cut_event(event: &mut TaskEvent) {
    event.details = Default::default();
    for text in [
        &mut event.r#type,
        &mut event.message,
        &mut event.display_message,
        &mut event.restart_reason,
        &mut event.setup_error,
        &mut event.driver_error,
        &mut event.kill_error,
        &mut event.kill_reason,
        &mut event.download_error,
        &mut event.validation_error,
        &mut event.failed_sibling,
        &mut event.vault_error,
        &mut event.task_signal_reason,
        &mut event.task_signal,
        &mut event.driver_message,
        &mut event.generic_source,
    ] {
        cut(text);
    }
}

fn drop_events(alloc: &mut Allocation) {
    for state in states(alloc) {
        state.events = Default::default();
        cut(&mut state.state);
        cut(&mut state.paused);
    }
}

fn drop_network(alloc: &mut Allocation) {
    alloc.network_status = None;
}

/// So many tasks, or such names, no job has: only what sums them up is left.
fn drop_tasks(alloc: &mut Allocation) {
    alloc.task_states = Default::default();
    cut(&mut alloc.client_status);
}

#[cfg(test)]
mod tests {
    use drover_events::model::{AllocDeploymentStatus, AllocNetworkStatus};

    use super::*;

    /// More tasks than this fill an update by themselves.
    const MANY: usize = 2_000;

    fn reported(words: usize, tasks: usize, address: usize) -> Allocation {
        let events = if tasks > MANY { 0 } else { 10 };
        let event = |n: usize| TaskEvent {
            r#type: "Terminated".into(),
            time: n as i64,
            message: "ü".repeat(words / 2),
            details: [("why", "x".repeat(words))].into(),
            ..TaskEvent::default()
        };
        let state = TaskState {
            state: "dead".into(),
            failed: true,
            restarts: 7,
            events: (0..events).map(event).collect::<Vec<_>>().into(),
            ..TaskState::default()
        };
        let mut alloc = Allocation {
            client_status: "failed".into(),
            client_description: "d".repeat(words),
            network_status: Some(AllocNetworkStatus {
                address: "1".repeat(address),
                ..AllocNetworkStatus::default()
            }),
            deployment_status: Some(AllocDeploymentStatus {
                healthy: Some(false),
                ..AllocDeploymentStatus::default()
            }),
            ..Allocation::default()
        };
        for n in 0..tasks {
            alloc.task_states.insert(format!("t{n}"), state.clone());
        }
        alloc
    }

    #[test]
    fn what_may_be_said_is_said_as_it_is() {
        let mut alloc = reported(20_000, 2, 10);
        let before = alloc.clone();
        assert_eq!(shrink(&mut alloc), None);
        assert_eq!(alloc, before);
    }

    #[test]
    fn what_is_too_much_loses_words_before_it_loses_what_matters() {
        for (words, tasks, address) in [
            (2 << 20, 1, 10),
            (100, MANY, 10),
            (300, MANY, 2 << 20),
            (10, 1, 2 << 20),
            (10, 40_000, 10),
        ] {
            let mut alloc = reported(words, tasks, address);
            let before = size(&alloc);
            assert_eq!(shrink(&mut alloc), Some(before));
            assert!(size(&alloc) <= MAX_UPDATE);
            assert_eq!(alloc.client_status, "failed");
            assert_eq!(alloc.health(), Some(false));
            if tasks > MANY {
                continue;
            }
            assert_eq!(alloc.task_states.len(), tasks);
            let state = &alloc.task_states["t0"];
            assert!(state.failed && state.restarts == 7 && state.state == "dead");
            let network = alloc.network_status.is_some();
            assert_eq!(network, address < 1 << 20, "no more than it must");
            if tasks == 1 && words > 1 << 20 {
                let times: Vec<_> = state.events.iter().map(|event| event.time).collect();
                assert_eq!(times, [7, 8, 9], "the newest");
            }
        }
    }
}
