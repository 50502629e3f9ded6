//! What has become of each allocation, given the state of its node.

use drover_events::model::status::{ClientStatus, client, desired};
use drover_events::model::{Allocation, TaskGroup};

use super::{Alloc, Reconciler};

/// The state of a node as far as it matters to what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// Nothing is wrong with it.
    #[default]
    Fine,
    /// There is no such node any more.
    Gone,
    /// It is taken for lost.
    Down,
    /// It is out of contact.
    Disconnected,
    /// It is being drained.
    Draining,
}

/// The allocations of a group by what has become of them.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// Nothing speaks against them.
    pub untainted: Vec<Alloc>,
    /// They are to move.
    pub migrate: Vec<Alloc>,
    /// They are gone with their node.
    pub lost: Vec<Alloc>,
    /// Their node has just gone out of contact.
    pub disconnecting: Vec<Alloc>,
    /// They came back.
    pub reconnecting: Vec<Alloc>,
    /// They were out of contact for too long.
    pub expired: Vec<Alloc>,
}

const SECOND: i64 = 1_000_000_000;

/// How long an allocation may be out of contact; 0 for not at all.
pub(super) fn lost_after(group: Option<&TaskGroup>) -> i64 {
    let Some(group) = group else { return 0 };
    let of_disconnect = group.disconnect.as_ref().map_or(0, |d| d.lost_after);
    if of_disconnect > 0 {
        of_disconnect
    } else {
        group.max_client_disconnect.unwrap_or(0)
    }
}

/// Whether a replacement is placed while an allocation is out of contact.
pub(super) fn replaces(group: Option<&TaskGroup>) -> bool {
    let Some(group) = group else { return true };
    let of_disconnect = group.disconnect.as_ref().and_then(|d| d.replace);
    of_disconnect.unwrap_or(!group.prevent_reschedule_on_lost)
}

/// The group of the version of the job that an allocation runs.
pub(super) fn own_group(alloc: &Allocation) -> Option<&TaskGroup> {
    alloc
        .job
        .as_ref()?
        .task_groups
        .iter()
        .find(|g| g.name == alloc.task_group)
}

/// The server no longer wants it.
pub fn is_server_terminal(alloc: &Allocation) -> bool {
    alloc.server_terminal()
}

/// The client has ended it.
pub fn is_client_terminal(alloc: &Allocation) -> bool {
    alloc.client_terminal()
}

/// It is over, on one side or the other.
pub fn is_terminal(alloc: &Allocation) -> bool {
    is_server_terminal(alloc) || is_client_terminal(alloc)
}

/// Whether an allocation came back from being out of contact and its return was not dealt with yet.
/// The history of its states alone decides (SCH-02, SCH-03, SCH-08).
pub fn needs_reconnect(alloc: &Allocation) -> bool {
    let last = alloc
        .alloc_states
        .iter()
        .rev()
        .find(|state| state.field == 0);
    last.is_some_and(|state| state.value == client::UNKNOWN)
        && alloc.client_status != client::UNKNOWN
}

/// When an allocation went out of contact.
pub(super) fn unknown_since(alloc: &Allocation) -> Option<i64> {
    let states = alloc.alloc_states.iter().rev();
    states
        .into_iter()
        .find(|s| s.field == 0 && s.value == client::UNKNOWN)
        .map(|s| s.time.0)
}

/// Whether it was out of contact for longer than its group allows.
pub(super) fn is_expired(alloc: &Allocation, now: i64) -> bool {
    let window = lost_after(own_group(alloc));
    alloc.client_status == client::UNKNOWN
        && window > 0
        && unknown_since(alloc).is_some_and(|since| since.saturating_add(window) <= now)
}

fn should_migrate(alloc: &Allocation) -> bool {
    alloc.desired_transition.migrate == Some(true)
}

impl Reconciler<'_> {
    /// Sorts allocations by what has become of them.
    pub(super) fn classify(&self, allocs: Vec<Alloc>) -> Classes {
        let mut classes = Classes::default();
        for alloc in allocs {
            let node = self.nodes.get(&alloc.node_id).copied().unwrap_or_default();
            let list = match class_of(&alloc, node, self.now) {
                Class::Untainted => &mut classes.untainted,
                Class::Migrate => &mut classes.migrate,
                Class::Lost => &mut classes.lost,
                Class::Disconnecting => &mut classes.disconnecting,
                Class::Reconnecting => &mut classes.reconnecting,
                Class::Expired => &mut classes.expired,
            };
            list.push(alloc);
        }
        classes
    }
}

/// What has become of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Untainted,
    Migrate,
    Lost,
    Disconnecting,
    Reconnecting,
    Expired,
}

/// The first rule that matches decides.
pub(super) fn class_of(alloc: &Allocation, node: NodeState, now: i64) -> Class {
    let reconnecting = needs_reconnect(alloc);
    if reconnecting && alloc.desired_status == desired::RUN && alloc.client_status == client::FAILED
    {
        return Class::Reconnecting;
    }
    if is_terminal(alloc) && !reconnecting {
        return Class::Untainted;
    }
    if is_expired(alloc, now) {
        return Class::Expired;
    }
    let window = lost_after(own_group(alloc));
    if node == NodeState::Disconnected {
        return match alloc.client() {
            Some(ClientStatus::Unknown) => Class::Untainted,
            Some(ClientStatus::Pending) => Class::Lost,
            // What is over comes here only where its return was not dealt with.
            Some(
                ClientStatus::Running
                | ClientStatus::Complete
                | ClientStatus::Failed
                | ClientStatus::Lost,
            )
            | None => match window {
                0 => Class::Lost,
                _ => Class::Disconnecting,
            },
        };
    }
    if should_migrate(alloc) {
        return Class::Migrate;
    }
    match node {
        NodeState::Fine | NodeState::Draining if reconnecting => Class::Reconnecting,
        NodeState::Fine | NodeState::Draining => Class::Untainted,
        NodeState::Gone => Class::Lost,
        NodeState::Down | NodeState::Disconnected => {
            let keep = !replaces(own_group(alloc)) && window > 0;
            match alloc.client() {
                Some(ClientStatus::Unknown) if keep => Class::Untainted,
                Some(ClientStatus::Running) if keep => Class::Disconnecting,
                Some(
                    ClientStatus::Unknown
                    | ClientStatus::Running
                    | ClientStatus::Pending
                    | ClientStatus::Complete
                    | ClientStatus::Failed
                    | ClientStatus::Lost,
                )
                | None => Class::Lost,
            }
        }
    }
}

/// Until when the replacement of a lost allocation waits, because its client stops it by itself.
pub(super) fn client_stops_at(alloc: &Allocation, now: i64) -> Option<i64> {
    let group = own_group(alloc)?;
    let timeout = group
        .stop_on_client_after()
        .filter(|timeout| *timeout > 0)?;
    let lost = alloc
        .alloc_states
        .iter()
        .find(|s| s.field == 0 && s.value == client::LOST);
    let since = lost.map_or(now, |state| state.time.0);
    let kill = group
        .tasks
        .iter()
        .map(|t| t.kill_timeout)
        .max()
        .unwrap_or(0);
    let kill = if kill == 0 { 5 * SECOND } else { kill };
    Some(since.saturating_add(timeout).saturating_add(kill))
}

#[cfg(test)]
mod tests {
    use drover_events::model::{AllocState, DisconnectStrategy, Job};

    use super::*;

    fn running(window: i64, history: &[&str]) -> Allocation {
        let group = TaskGroup {
            name: "g".into(),
            disconnect: (window > 0).then(|| DisconnectStrategy {
                lost_after: window,
                ..DisconnectStrategy::default()
            }),
            ..TaskGroup::default()
        };
        let job = Job {
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let of = |value: &&str| AllocState {
            value: (*value).into(),
            ..AllocState::default()
        };
        Allocation {
            task_group: "g".into(),
            desired_status: "run".into(),
            client_status: "running".into(),
            alloc_states: history.iter().map(of).collect(),
            job: Some(std::sync::Arc::new(job)),
            ..Allocation::default()
        }
    }

    /// Servers take no update from a node out of contact, so what runs there is what ran when it
    /// left: the scheduler requests nothing else of it.
    #[test]
    fn sch_17_what_runs_on_a_node_out_of_contact_has_no_path_of_its_own() {
        for (window, wanted) in [(0, Class::Lost), (60 * SECOND, Class::Disconnecting)] {
            for history in [
                &[][..],
                &["unknown"],
                &["unknown", "running"],
                &["unknown", "running", "unknown"],
            ] {
                let mut alloc = running(window, history);
                for migrate in [None, Some(true)] {
                    alloc.desired_transition.migrate = migrate;
                    let class = class_of(&alloc, NodeState::Disconnected, 0);
                    assert_eq!(class, wanted, "{history:?}, migrate {migrate:?}");
                }
                // The same history counts as soon as its node is back.
                alloc.desired_transition.migrate = None;
                let back = class_of(&alloc, NodeState::Fine, 0);
                let returns = history.last() == Some(&"unknown");
                assert_eq!(back == Class::Reconnecting, returns, "{history:?}");
            }
        }
    }

    /// Two allocations that run on nodes that are ready look the same but for their history.
    #[test]
    fn sch_08_of_what_runs_the_history_alone_tells_its_class() {
        use drover_events::model::{TaskEvent, TaskState};
        let reconnected = TaskEvent {
            r#type: "Reconnected".into(),
            ..TaskEvent::default()
        };
        let state = TaskState {
            state: "running".into(),
            events: vec![reconnected].into(),
            ..TaskState::default()
        };
        let changes: [fn(&mut Allocation, &TaskState); 6] = [
            |_, _| (),
            |alloc, state| drop(alloc.task_states.insert("t", state.clone())),
            |alloc, _| alloc.followup_eval_id = "eval".into(),
            |alloc, _| alloc.next_allocation = "another".into(),
            |alloc, _| alloc.client_description = "reconnected".into(),
            |alloc, _| (alloc.modify_time, alloc.alloc_modify_index) = (i64::MAX, u64::MAX),
        ];
        for window in [0, 60 * SECOND] {
            for (history, wanted) in [
                (&[][..], Class::Untainted),
                (&["unknown"], Class::Reconnecting),
                (&["unknown", "running"], Class::Untainted),
                (&["unknown", "running", "unknown"], Class::Reconnecting),
            ] {
                for change in changes {
                    let mut alloc = running(window, history);
                    change(&mut alloc, &state);
                    for node in [NodeState::Fine, NodeState::Draining] {
                        assert_eq!(class_of(&alloc, node, 0), wanted, "{alloc:?}");
                    }
                }
            }
        }
    }

    /// Its group, once it has no other holder.
    fn change(alloc: &mut Allocation, change: impl FnOnce(&mut TaskGroup)) {
        let job = std::sync::Arc::get_mut(alloc.job.as_mut().expect("a job"));
        change(&mut job.expect("nobody else has it").task_groups[0]);
    }

    #[test]
    fn what_runs_waits_or_is_over_is_lost_or_kept_as_its_node_and_its_group_say() {
        use NodeState::{Disconnected, Down, Fine, Gone};
        const WINDOW: i64 = 60 * SECOND;
        let (run, stop) = ("run", "stop");
        for (desired, client, window, replaces, node, wanted) in [
            (run, "running", 0, None, Fine, Class::Untainted),
            (run, "running", 0, None, Gone, Class::Lost),
            (run, "running", 0, None, Down, Class::Lost),
            (run, "running", WINDOW, None, Down, Class::Lost),
            (run, "running", WINDOW, Some(true), Down, Class::Lost),
            (
                run,
                "running",
                WINDOW,
                Some(false),
                Down,
                Class::Disconnecting,
            ),
            (run, "unknown", WINDOW, Some(false), Down, Class::Untainted),
            (run, "unknown", WINDOW, Some(true), Down, Class::Lost),
            (run, "pending", WINDOW, Some(false), Down, Class::Lost),
            (run, "running", 0, Some(false), Down, Class::Lost),
            (run, "unknown", 0, Some(false), Down, Class::Lost),
            (run, "running", 0, None, Disconnected, Class::Lost),
            (
                run,
                "running",
                WINDOW,
                None,
                Disconnected,
                Class::Disconnecting,
            ),
            (run, "unknown", WINDOW, None, Disconnected, Class::Untainted),
            (run, "pending", WINDOW, None, Disconnected, Class::Lost),
            (
                stop,
                "running",
                WINDOW,
                None,
                Disconnected,
                Class::Untainted,
            ),
            (stop, "running", 0, None, Down, Class::Untainted),
            ("evict", "running", 0, None, Gone, Class::Untainted),
            (run, "complete", 0, None, Down, Class::Untainted),
            (run, "failed", 0, None, Gone, Class::Untainted),
            (run, "lost", 0, None, Down, Class::Untainted),
        ] {
            let mut alloc = running(window, &[]);
            (alloc.desired_status, alloc.client_status) = (desired.into(), client.into());
            if let Some(replaces) = replaces {
                change(&mut alloc, |group| {
                    group.disconnect.get_or_insert_default().replace = Some(replaces);
                });
            }
            let found = class_of(&alloc, node, 0);
            assert_eq!(
                found, wanted,
                "{desired} {client} {window} {replaces:?} {node:?}"
            );
        }
    }

    /// What failed while it was away counts as failed wherever its node is; an allocation that was
    /// to stop is only what its node says.
    #[test]
    fn what_failed_while_away_comes_back_as_failed() {
        for (desired, node, wanted) in [
            ("run", NodeState::Fine, Class::Reconnecting),
            ("run", NodeState::Disconnected, Class::Reconnecting),
            ("run", NodeState::Down, Class::Reconnecting),
            ("stop", NodeState::Disconnected, Class::Disconnecting),
        ] {
            let mut alloc = running(60 * SECOND, &["unknown"]);
            (alloc.desired_status, alloc.client_status) = (desired.into(), "failed".into());
            assert_eq!(class_of(&alloc, node, 0), wanted, "{desired} {node:?}");
        }
    }

    #[test]
    fn old_and_new_words_say_how_long_one_may_be_away_and_whether_another_takes_its_place() {
        for (of_disconnect, of_old, window) in [
            (None, None, 0),
            (None, Some(30), 30),
            (Some(0), Some(30), 30),
            (Some(20), Some(30), 20),
            (Some(20), None, 20),
        ] {
            let mut group = TaskGroup {
                max_client_disconnect: of_old,
                ..TaskGroup::default()
            };
            group.disconnect = of_disconnect.map(|lost_after| DisconnectStrategy {
                lost_after,
                ..DisconnectStrategy::default()
            });
            assert_eq!(lost_after(Some(&group)), window);
        }
        for (of_disconnect, prevented, another) in [
            (None, false, true),
            (None, true, false),
            (Some(true), true, true),
            (Some(false), false, false),
        ] {
            let group = TaskGroup {
                prevent_reschedule_on_lost: prevented,
                disconnect: Some(DisconnectStrategy {
                    replace: of_disconnect,
                    ..DisconnectStrategy::default()
                }),
                ..TaskGroup::default()
            };
            assert_eq!(replaces(Some(&group)), another);
        }
        assert_eq!((lost_after(None), replaces(None)), (0, true));
    }

    #[test]
    fn one_expires_when_its_time_has_passed_and_never_without_one() {
        for (window, status, now, expired) in [
            (60, "unknown", 159, false),
            (60, "unknown", 160, true),
            (60, "running", 500, false),
            (0, "unknown", 500, false),
        ] {
            let mut alloc = running(window, &["unknown"]);
            alloc.alloc_states[0].time.0 = 100;
            alloc.client_status = status.into();
            assert_eq!(is_expired(&alloc, now), expired, "{window} {status} {now}");
        }
    }

    #[test]
    fn a_replacement_waits_until_the_client_has_stopped_by_itself() {
        for (of_disconnect, of_old, kill, wanted) in [
            (None, None, 0, None),
            (Some(0), None, 0, None),
            (None, Some(0), 0, None),
            (Some(10 * SECOND), None, 0, Some(115 * SECOND)),
            (None, Some(20 * SECOND), 0, Some(125 * SECOND)),
            (Some(10 * SECOND), Some(20 * SECOND), 0, Some(115 * SECOND)),
            (Some(10 * SECOND), None, 30 * SECOND, Some(140 * SECOND)),
        ] {
            let mut alloc = running(0, &["unknown", "lost"]);
            alloc.alloc_states[0].time.0 = 50 * SECOND;
            alloc.alloc_states[1].time.0 = 100 * SECOND;
            change(&mut alloc, |group| {
                group.stop_after_client_disconnect = of_old;
                group.disconnect = of_disconnect.map(|after| DisconnectStrategy {
                    stop_on_client_after: Some(after),
                    ..DisconnectStrategy::default()
                });
                let task = |kill_timeout| drover_events::model::Task {
                    kill_timeout,
                    ..Default::default()
                };
                group.tasks = vec![task(kill), task(kill / 2)].into();
            });
            let at = |alloc: &Allocation| client_stops_at(alloc, 200 * SECOND);
            assert_eq!(at(&alloc), wanted);
            // What is not known to be lost is lost now.
            alloc.alloc_states = Default::default();
            assert_eq!(at(&alloc), wanted.map(|at| at + 100 * SECOND));
        }
    }
}
