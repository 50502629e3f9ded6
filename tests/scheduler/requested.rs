//! What a job's author and its operator request, to the letter: spreads by percent, stops.

use std::collections::BTreeSet;

use drover_events::model::{Spread, SpreadTarget};
use drover_projections::tables::job_summaries::JobSummaries;

use super::world::World;
use drover_testkit::fixtures::{job, node};

/// How many of a job's allocations come to lie on each of two racks of so many nodes, where so many
/// percent are wanted on the first, `r0`, and the rest on the other: `r1`, `*` for any, or nothing
/// where no target names it.
fn spread_by_percent(count: i64, percent: u8, nodes: usize, other: &str) -> (usize, usize) {
    let mut spec = job("batch", count);
    let target = |value: &str, percent| SpreadTarget {
        value: value.into(),
        percent,
    };
    let mut targets = vec![target("r0", percent), target(other, 100 - percent)];
    targets.retain(|target| !target.value.is_empty());
    spec.spreads = vec![Spread {
        attribute: "${meta.rack}".into(),
        weight: 100,
        spread_target: targets.into(),
    }]
    .into();
    let mut world = World::new(0, spec);
    for number in 0..2 * nodes {
        let mut node = node(number);
        node.meta.insert("rack", format!("r{}", number % 2));
        world.add_node(node);
    }
    world.run("job-register");
    let first: Vec<String> = (0..nodes).map(|n| node(2 * n).id).collect();
    let live = world.live();
    let on_first = live
        .iter()
        .filter(|id| first.contains(&world.alloc(id).node_id))
        .count();
    (on_first, live.len() - on_first)
}

#[test]
fn spread_targets_are_met_by_percent() {
    for (nodes, other) in [
        (3, "r1"),
        (4, "r1"),
        (5, "r1"),
        (8, "r1"),
        (4, "*"),
        (4, ""),
    ] {
        for (count, percent, wanted) in [
            (20, 70, (14, 6)),
            (10, 50, (5, 5)),
            (40, 75, (30, 10)),
            (20, 90, (18, 2)),
            // Three tenths of three and seven tenths of three are less than three, as computers
            // reckon.
            (3, 30, (1, 2)),
        ] {
            let found = spread_by_percent(count, percent, nodes, other);
            let what = format!("{percent} % of {count} on 2 × {nodes} nodes");
            assert_eq!(found, wanted, "{what}, the rest on {other:?}");
        }
    }
}

#[test]
fn spread_targets_are_met_on_a_node_for_each() {
    for (count, percent, wanted) in [(10, 70, (7, 3)), (10, 50, (5, 5)), (10, 90, (9, 1))] {
        let found = spread_by_percent(count, percent, 1, "r1");
        assert_eq!(found, wanted, "{percent} % of {count}");
    }
}

/// Whatever the policy still allows.
#[test]
fn what_an_operator_stops_to_be_rescheduled_stops_and_comes_again_elsewhere() {
    for kind in ["service", "batch"] {
        let mut spec = job(kind, 1);
        let policy = spec.task_groups[0].reschedule_policy.as_mut().unwrap();
        policy.unlimited = false;
        policy.attempts = 0;
        let mut world = World::new(3, spec);
        world.run("job-register");
        world.all_are("running");
        let first = world.live()[0].clone();
        world.client(&first, |alloc| {
            let request = &mut alloc.desired_transition;
            request.migrate = Some(false);
            request.reschedule = Some(true);
            request.force_reschedule = Some(true);
        });
        world.run("alloc-stop");
        let old = world.alloc(&first);
        assert_eq!(old.desired_status, "stop", "{kind}");
        let [second] = <[String; 1]>::try_from(world.live()).unwrap();
        let new = world.alloc(&second);
        assert_eq!(old.next_allocation, second);
        assert_ne!(new.node_id, old.node_id, "elsewhere");
        let tracker = new.reschedule_tracker.as_ref().unwrap();
        assert_eq!(tracker.events[0].prev_alloc_id, first);
        // Once is enough.
        let outcome = world.run("node-update");
        assert!(outcome.plan.is_empty(), "{:?}", outcome.plan);
    }
}

#[test]
fn a_job_that_is_stopped_while_it_waits_for_room_queues_nothing() {
    let mut world = World::new(0, job("service", 2));
    let outcome = world.run("job-register");
    assert_eq!(outcome.finished.queued_allocations["g"], 2);
    let summary = |world: &World| {
        let row = world.row::<JobSummaries>(("default", "j"));
        row.unwrap().summary["g"].queued
    };
    assert_eq!(summary(&world), 2);
    world.change(|job| job.stop = true);
    world.run("job-deregister");
    assert_eq!(summary(&world), 0);
}

/// There is no place for it, and it is killed before there is one: a task of it that is killed
/// ends as one that has done its work.
#[test]
fn what_was_stopped_to_be_rescheduled_comes_again_once_there_is_a_place() {
    use drover_events::model::TaskState;
    for kind in ["service", "batch"] {
        let mut world = World::new(1, job(kind, 1));
        world.run("job-register");
        world.all_are("running");
        let first = world.live()[0].clone();
        let before = world.alloc(&first);
        world.ineligible(&before.node_id);
        world.client(&first, |alloc| {
            alloc.desired_transition.reschedule = Some(true);
            alloc.desired_transition.force_reschedule = Some(true);
        });
        let outcome = world.run("alloc-stop");
        assert!(outcome.blocked.is_some(), "{kind}");
        assert_eq!(world.alloc(&first).desired_status, "stop");
        world.client(&first, |alloc| {
            alloc.client_status = "complete".into();
            let state = TaskState {
                state: "dead".into(),
                ..TaskState::default()
            };
            alloc.task_states.insert("t", state);
        });
        let waiting = world.run("node-update");
        assert_eq!(waiting.finished.queued_allocations["g"], 1, "{kind}");
        assert!(waiting.blocked.is_some(), "{kind}");
        assert_ne!(world.job().status, "dead", "{kind}");
        world.eligible(&before.node_id);
        world.run("queued-allocs");
        let live = world.live();
        assert_eq!(live.len(), 1, "{kind}");
        let again = world.alloc(&live[0]);
        assert_eq!(again.previous_allocation, first, "{kind}");
        assert_eq!(again.name, before.name, "{kind}");
        assert!(world.run("node-update").plan.is_empty(), "{kind}: once");
    }
}

/// Where one finds no place the others are not looked for, and wait as it does.
#[test]
fn each_of_several_that_were_stopped_to_be_rescheduled_comes_again_itself() {
    for kind in ["service", "batch"] {
        let mut world = World::new(1, job(kind, 2));
        world.run("job-register");
        world.all_are("running");
        let stopped: BTreeSet<String> = world.live().into_iter().collect();
        let node = node(0).id;
        world.ineligible(&node);
        for id in &stopped {
            world.client(id, |alloc| {
                alloc.desired_transition.reschedule = Some(true);
                alloc.desired_transition.force_reschedule = Some(true);
            });
        }
        let outcome = world.run("alloc-stop");
        assert_eq!(outcome.failed["g"].coalesced_failures, 1, "{kind}");
        for id in &stopped {
            world.client(id, |alloc| alloc.client_status = "complete".into());
        }
        world.eligible(&node);
        world.run("queued-allocs");
        let live = world.live();
        let followed = live.iter().map(|id| world.alloc(id).previous_allocation);
        assert_eq!(followed.collect::<BTreeSet<_>>(), stopped, "{kind}");
        assert_eq!(live.len(), 2, "{kind}");
    }
}

#[test]
fn of_what_waits_for_a_place_only_the_count_comes_again() {
    let mut world = World::new(1, job("service", 2));
    world.run("job-register");
    world.all_are("running");
    let live = world.live();
    let node = world.alloc(&live[0]).node_id;
    world.ineligible(&node);
    for id in &live {
        world.client(id, |alloc| {
            alloc.desired_transition.reschedule = Some(true);
            alloc.desired_transition.force_reschedule = Some(true);
        });
    }
    world.run("alloc-stop");
    for id in &live {
        world.client(id, |alloc| alloc.client_status = "complete".into());
    }
    world.change(|job| job.task_groups[0].count = 1);
    world.eligible(&node);
    world.run("job-register");
    assert_eq!(world.live().len(), 1);
    assert!(world.run("node-update").plan.is_empty());
}
