//! Stories of nodes that are lost, out of contact, and back.

use std::sync::Arc;

use drover_events::Event;
use drover_events::gojson::Time;
use drover_events::model::{
    AllocState, Allocation, Constraint, DisconnectStrategy, Multiregion, MultiregionRegion,
    MultiregionStrategy, TaskState,
};

use super::world::World;
use drover::reactors::scheduling::plan_check::prepare;
use drover_scheduler::cluster::demand_of;
use drover_scheduler::{Placement, Plan, Stop};
use drover_testkit::fixtures::{SECOND, job};

#[test]
fn sch_01_a_lost_node_loses_its_allocations_unless_they_may_be_out_of_contact() {
    for window in [0, 60 * SECOND] {
        let mut job = job("service", 1);
        job.task_groups[0].disconnect = Some(DisconnectStrategy {
            lost_after: window,
            replace: Some(true),
            ..Default::default()
        });
        let mut world = World::new(3, job);
        world.run("job-register");
        world.all_are("running");
        let id = world.live()[0].clone();
        let node = world.alloc(&id).node_id.clone();
        world.node_status(&node, if window == 0 { "down" } else { "disconnected" });
        let outcome = world.run("node-update");
        let old = world.alloc(&id);
        assert_eq!(outcome.desired["g"].place, 1);
        if window == 0 {
            assert_eq!(
                (old.desired_status.as_str(), old.client_status.as_str()),
                ("stop", "lost")
            );
            assert_eq!(
                old.desired_description,
                "alloc is lost since its node is down"
            );
        } else {
            assert_eq!(
                (old.desired_status.as_str(), old.client_status.as_str()),
                ("run", "unknown")
            );
            assert_eq!(old.alloc_states.last().unwrap().value, "unknown");
            assert_eq!(outcome.follow_ups[0].triggered_by, "max-disconnect-timeout");
            assert_eq!(outcome.follow_ups[0].wait_until, Time(world.now + window));
        }
    }
}

fn disconnected(replace: bool) -> (World, String, String) {
    disconnected_for(replace, "best_score")
}

fn disconnected_for(replace: bool, reconcile: &str) -> (World, String, String) {
    let mut job = job("service", 1);
    job.task_groups[0].disconnect = Some(DisconnectStrategy {
        lost_after: 60 * SECOND,
        replace: Some(replace),
        reconcile: reconcile.into(),
        ..Default::default()
    });
    let mut world = World::new(3, job);
    world.run("job-register");
    world.all_are("running");
    let id = world.live()[0].clone();
    let node = world.alloc(&id).node_id.clone();
    world.node_status(&node, "disconnected");
    world.run("node-update");
    (world, id, node)
}

#[test]
fn sch_07_after_a_reconnect_exactly_the_count_is_left() {
    for replace in [true, false] {
        let (mut world, id, node) = disconnected(replace);
        assert_eq!(world.live().len(), if replace { 2 } else { 1 });
        assert!(
            world.run("node-update").plan.placements.is_empty(),
            "nothing is placed twice"
        );
        world.all_are("running");
        world.node_status(&node, "ready");
        let outcome = world.run("reconnect");
        let desired = &outcome.desired["g"];
        assert_eq!((desired.reconnect, desired.stop), (1, u64::from(replace)));
        assert_eq!(outcome.plan.stops.len(), usize::from(replace), "once");
        assert_eq!(world.live().len(), 1, "replace {replace}");
        assert_eq!(world.live()[0], id, "the original goes on");
        let states = &world.alloc(&id).alloc_states;
        assert_eq!(states.last().unwrap().value, "running");
        assert!(
            world.run("reconnect").plan.is_empty(),
            "it is ordinary again"
        );
    }
}

#[test]
fn of_one_that_is_back_and_its_replacement_that_goes_on_which_its_group_says() {
    for (reconcile, original) in [("keep_original", true), ("keep_replacement", false)] {
        let (mut world, id, node) = disconnected_for(true, reconcile);
        let mut replacements = world.live();
        replacements.retain(|other| *other != id);
        assert_eq!(replacements.len(), 1, "{reconcile}");
        world.all_are("running");
        world.node_status(&node, "ready");
        let outcome = world.run("reconnect");
        let [stop] = outcome.plan.stops.as_slice() else {
            panic!("{reconcile}: {:?}", outcome.plan.stops);
        };
        let why = "alloc not needed due to disconnected client reconnect";
        assert_eq!(stop.description, why, "{reconcile}");
        let goes_on = if original { vec![id] } else { replacements };
        assert_eq!(world.live(), goes_on, "{reconcile}");
    }
}

#[test]
fn sch_02_a_second_time_out_of_contact_is_counted_from_its_own_beginning() {
    let (mut world, id, node) = disconnected(false);
    world.client(&id, |alloc| alloc.client_status = "running".into());
    world.node_status(&node, "ready");
    world.run("reconnect");
    world.now += 500 * SECOND;
    world.node_status(&node, "disconnected");
    let outcome = world.run("node-update");
    let later = &outcome.follow_ups[0];
    assert_eq!(later.wait_until, Time(world.now + 60 * SECOND));
    let alloc = world.alloc(&id);
    assert_eq!(alloc.followup_eval_id, later.id);
    let why = "alloc is unknown since its node is disconnected";
    assert_eq!(alloc.client_description, why);
    let states: Vec<&str> = alloc
        .alloc_states
        .iter()
        .map(|s| s.value.as_str())
        .collect();
    assert_eq!(states, ["unknown", "running", "unknown"]);
    assert_eq!(alloc.alloc_states.last().unwrap().time, Time(world.now));
}

#[test]
fn sch_04_after_a_reconnect_updates_and_stops_work_as_ever() {
    let (mut world, id, node) = disconnected(false);
    world.all_are("running");
    world.node_status(&node, "ready");
    world.run("reconnect");
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 1);
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 1);
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    assert_eq!(world.run("job-register").desired["g"].destructive_update, 1);
    assert_eq!(world.alloc(&id).desired_status, "stop");
    world.change(|job| job.stop = true);
    world.run("job-deregister");
    assert!(world.live().is_empty());
}

#[test]
fn sch_05_an_old_task_event_is_no_marker() {
    let mut world = World::new(2, job("service", 1));
    world.run("job-register");
    let id = world.live()[0].clone();
    world.client(&id, |alloc| {
        alloc.client_status = "running".into();
        let event = drover_events::model::TaskEvent {
            r#type: "Reconnected".into(),
            ..Default::default()
        };
        let mut state = TaskState {
            state: "running".into(),
            ..TaskState::default()
        };
        state.events.push(event);
        alloc.task_states.insert("t", state);
    });
    let outcome = world.run("node-update");
    assert_eq!(outcome.desired["g"].reconnect, 0);
    assert!(outcome.plan.is_empty());
}

#[test]
fn sch_17_a_report_from_a_node_out_of_contact_brings_nothing_back() {
    let (mut world, id, node) = disconnected(true);
    world.client(&id, |alloc| alloc.client_status = "running".into());
    let outcome = world.run("node-update");
    let desired = &outcome.desired["g"];
    // As one that has just left: nothing is known of it.
    assert_eq!(
        (desired.reconnect, desired.disconnect),
        (0, 1),
        "{desired:?}"
    );
    assert_eq!(world.alloc(&id).client_status, "unknown");
    world.node_status(&node, "ready");
    world.client(&id, |alloc| alloc.client_status = "running".into());
    assert_eq!(world.run("reconnect").desired["g"].reconnect, 1);
}

#[test]
fn sch_18_a_job_of_many_regions_is_not_taken_for_paused() {
    let region = |name: &str| MultiregionRegion {
        name: name.into(),
        count: 1,
        ..MultiregionRegion::default()
    };
    for (kind, of_group) in [("batch", 2), ("system", 1), ("sysbatch", 1)] {
        let count = 2;
        let mut spec = job(kind, of_group);
        spec.region = "west".into();
        spec.multiregion = Some(Multiregion {
            strategy: Some(MultiregionStrategy {
                max_parallel: 1,
                on_failure: "fail_all".into(),
            }),
            regions: vec![region("east"), region("west")].into(),
        });
        let mut world = World::new(2, spec);
        let outcome = world.run("job-register");
        assert_eq!(world.live().len(), count, "{kind}: placed at registration");
        assert!(outcome.plan.deployment.is_none(), "{kind}");
        // So it is when it changes, and when a node is lost.
        world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
        world.run("job-register");
        assert_eq!(world.live().len(), count, "{kind}: placed again");
        world.add_node(drover_testkit::fixtures::node(7));
        let lost = world.alloc(&world.live()[0]).node_id.clone();
        world.node_status(&lost, "down");
        world.run("node-update");
        assert_eq!(world.live().len(), count, "{kind}: on the new one");
    }
}

/// The node is not there to take the change, and a plan that makes it there is refused.
#[test]
fn what_goes_out_of_contact_as_its_job_changes_keeps_the_version_it_has() {
    for (status, replaced) in [
        ("disconnected", false),
        ("disconnected", true),
        ("down", false),
        ("down", true),
    ] {
        let case = format!("{status}, replaced: {replaced}");
        let mut spec = job("service", 2);
        spec.task_groups[0].disconnect = Some(DisconnectStrategy {
            lost_after: 60 * SECOND,
            replace: Some(false),
            ..DisconnectStrategy::default()
        });
        let mut world = World::new(2, spec);
        world.run("job-register");
        world.all_are("running");
        let id = world.live()[0].clone();
        let at = world.alloc(&id).node_id;
        world.node_status(&at, status);
        world.change(|job| {
            let task = &mut job.task_groups[0].tasks[0];
            if replaced {
                task.user = "other".into();
            } else {
                task.kill_timeout = 9 * SECOND;
            }
        });
        let outcome = world.run("job-register");
        assert_eq!(world.live().len(), 2, "{case}");
        let alloc = world.alloc(&id);
        assert_eq!(alloc.client_status, "unknown", "{case}");
        assert_eq!(alloc.job_version(), 0, "{case}");
        assert_eq!(alloc.followup_eval_id, outcome.follow_ups[0].id, "{case}");
        // The new version takes its place once its node is back.
        world.node_status(&at, "ready");
        world.client(&id, |alloc| alloc.client_status = "running".into());
        world.run("reconnect");
        let live = world.live();
        let versions = live.iter().map(|id| world.alloc(id).job_version());
        assert_eq!(versions.collect::<Vec<_>>(), [1, 1], "{case}");
    }
}

/// One node is out of contact, one is lost, and one of the two allocations that are left is wanted.
#[test]
fn the_highest_names_go_first_whatever_becomes_of_their_nodes() {
    let mut spec = job("service", 3);
    spec.constraints = vec![Constraint {
        operand: "distinct_hosts".into(),
        ..Constraint::default()
    }]
    .into();
    spec.task_groups[0].disconnect = Some(DisconnectStrategy {
        lost_after: 60 * SECOND,
        replace: Some(false),
        ..DisconnectStrategy::default()
    });
    let mut world = World::new(3, spec);
    world.run("job-register");
    let live = world.live();
    // The third has not begun to run: it may not be away.
    for id in &live[..2] {
        world.client(id, |alloc| alloc.client_status = "running".into());
    }
    for (id, status) in [(&live[0], "disconnected"), (&live[2], "down")] {
        let at = world.alloc(id).node_id;
        world.node_status(&at, status);
    }
    world.change(|job| job.task_groups[0].count = 1);
    world.run("job-register");
    assert_eq!(world.live(), &live[..1]);
    assert_eq!(world.alloc(&live[0]).client_status, "unknown");
}

#[test]
fn sch_20_what_expired_is_lost() {
    let (mut world, id, _) = disconnected(false);
    world.now += 61 * SECOND;
    let outcome = world.run("max-disconnect-timeout");
    assert_eq!(world.alloc(&id).client_status, "lost");
    assert_eq!(outcome.desired["g"].place, 1);
    assert_eq!(world.live().len(), 1);
}

#[test]
fn sch_03_only_the_history_tells_a_reconnect() {
    use drover_scheduler::reconcile::needs_reconnect;
    for (history, status, want) in [
        (&[][..], "running", false),
        (&["unknown"], "unknown", false),
        (&["unknown"], "running", true),
        (&["unknown"], "failed", true),
        (&["unknown", "running"], "running", false),
        (&["unknown", "running", "unknown"], "running", true),
    ] {
        let mut alloc = drover_events::model::Allocation {
            client_status: status.into(),
            ..Default::default()
        };
        for value in history {
            alloc.alloc_states.push(AllocState {
                value: (*value).into(),
                ..Default::default()
            });
        }
        assert_eq!(needs_reconnect(&alloc), want, "{history:?} {status}");
    }
}

#[test]
fn what_a_plan_stops_it_does_not_write_as_well_and_its_room_is_given_back_once() {
    let mut world = World::new(1, job("service", 1));
    world.run("job-register");
    world.all_are("running");
    let alloc = world.allocs().remove(0);
    let demand = demand_of(&alloc);
    assert!(demand.cpu > 0);
    let mut changed = Allocation::clone(&alloc);
    changed.job = None;
    changed.alloc_states = vec![AllocState::default()].into();
    let eval = world.eval("node-update");
    for makes_space in [false, true] {
        let mut plan = Plan::default();
        plan.stops.push(Stop {
            alloc: Arc::clone(&alloc),
            description: "alloc not needed due to job update",
            client_status: "",
            followup_eval_id: String::new(),
            alloc_states: None,
            reschedule_tracker: None,
        });
        if makes_space {
            let victim = (Arc::clone(&alloc), "b".to_owned());
            plan.preemptions.push(victim);
        }
        plan.placements.push(Placement {
            alloc: changed.clone(),
            job_modify_index: world.job().job_modify_index,
            demand: demand.clone(),
            replaces: Some(demand.clone()),
        });
        let mut outcome = world.decide(&eval);
        outcome.plan = plan;
        let mut core = world.core();
        let request = world.request(&eval, outcome);
        let prepared = prepare(&mut core, request, world.now);
        let Event::PlanApplied(event) = &prepared.events[0].event else {
            panic!("{:?}", prepared.events[0].event);
        };
        assert!(event.placed.is_empty(), "{event:?}");
        let history = event.stopped[0].alloc_states.as_ref();
        assert_eq!(history.map(Vec::len), Some(1), "what is new of it is kept");
        let used = core.in_flight.values().map(|node| node.used.cpu);
        assert_eq!(used.collect::<Vec<_>>(), [0]);
    }
}
