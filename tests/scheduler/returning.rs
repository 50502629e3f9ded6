//! Nodes that come back, in whatever order their calls arrive, and what may not come back.

use drover_events::model::{Affinity, DisconnectStrategy};
use drover_projections::tables::node_states::NodeStates;

use super::world::World;
use drover::commands::node::MissHeartbeat;
use drover_scheduler::Outcome;
use drover_scheduler::reconcile::needs_reconnect;
use drover_scheduler::rng::Rng;
use drover_testkit::fixtures::{SECOND, job, node};

/// What an entry of an allocation's history is about.
const CLIENT_STATUS: i64 = 0;

/// A running allocation whose node, one of three, has just gone out of contact.
pub(crate) fn away(replace: bool) -> (World, String, String) {
    let (world, id, node, _) = leave(3, replace);
    (world, id, node)
}

/// The same of so many nodes, and what the evaluation of it came to.
pub(crate) fn leave(nodes: usize, replace: bool) -> (World, String, String, Outcome) {
    let mut job = job("service", 1);
    job.task_groups[0].disconnect = Some(DisconnectStrategy {
        lost_after: 60 * SECOND,
        replace: Some(replace),
        ..DisconnectStrategy::default()
    });
    let mut world = World::new(nodes, job);
    world.run("job-register");
    world.all_are("running");
    let id = world.live()[0].clone();
    let node = world.alloc(&id).node_id.clone();
    let missed = MissHeartbeat {
        node_id: node.clone(),
    };
    world.command(&missed).unwrap();
    let left = world.run("node-update");
    assert_eq!(world.alloc(&id).client_status, "unknown");
    (world, id, node, left)
}

pub(crate) fn status(world: &World, node: &str) -> String {
    world.row::<NodeStates>(node).unwrap().status
}

#[test]
fn sch_02_leaving_and_coming_back_are_kept_with_the_allocation_and_nothing_else_is_asked() {
    let (mut world, id, at) = away(false);
    let left = world.alloc(&id).alloc_states.last().unwrap().clone();
    assert_eq!(
        (left.field, left.value.as_str(), left.time.0),
        (CLIENT_STATUS, "unknown", world.now)
    );
    world.now += 5 * SECOND;
    world.node_status(&at, "ready");
    // It reports no event of any task.
    world.client(&id, |alloc| {
        alloc.client_status = "running".into();
        alloc.task_states = Default::default();
    });
    assert_eq!(world.run("reconnect").desired["g"].reconnect, 1);
    let back = world.alloc(&id).alloc_states.last().unwrap().clone();
    assert_eq!(
        (back.field, back.value.as_str(), back.time.0),
        (CLIENT_STATUS, "running", world.now)
    );
    assert_eq!(world.alloc(&id).alloc_states.len(), 2);
}

#[test]
fn sch_05_the_event_of_a_reconnect_that_is_settled_makes_no_other() {
    let (mut world, id, at) = away(false);
    world.node_status(&at, "ready");
    world.client(&id, |alloc| {
        alloc.client_status = "running".into();
        let event = drover_events::model::TaskEvent {
            r#type: "Reconnected".into(),
            time: i64::MAX,
            ..Default::default()
        };
        let mut state = drover_events::model::TaskState {
            state: "running".into(),
            ..Default::default()
        };
        state.events.push(event);
        alloc.task_states.insert("t", state);
    });
    assert_eq!(world.run("reconnect").desired["g"].reconnect, 1);
    for trigger in ["node-update", "job-register", "reconnect"] {
        let outcome = world.run(trigger);
        assert_eq!(outcome.desired["g"].reconnect, 0, "{trigger}");
        assert!(
            outcome.plan.is_empty(),
            "{trigger}: the event stays, and means nothing"
        );
    }
}

/// Whatever else an allocation says of itself.
#[test]
fn sch_08_the_history_alone_tells_who_comes_back() {
    let mut rng = Rng::new(7);
    let mut any = |most: u64| rng.below(most) as usize;
    let histories = [
        &[][..],
        &["unknown"],
        &["unknown", "running"],
        &["unknown", "running", "unknown"],
    ];
    let statuses = [
        "pending", "running", "complete", "failed", "lost", "unknown",
    ];
    for _ in 0..500 {
        let (history, status) = (histories[any(4)], statuses[any(6)]);
        let mut alloc = drover_events::model::Allocation {
            client_status: status.into(),
            desired_status: ["run", "stop", "evict"][any(3)].into(),
            node_id: ["", "n"][any(2)].into(),
            followup_eval_id: ["", "e"][any(2)].into(),
            next_allocation: ["", "a"][any(2)].into(),
            create_time: any(1_000) as i64,
            modify_time: any(1_000) as i64,
            ..Default::default()
        };
        for value in history {
            alloc.alloc_states.push(drover_events::model::AllocState {
                field: CLIENT_STATUS,
                value: (*value).into(),
                ..Default::default()
            });
        }
        let want = history.last() == Some(&"unknown") && status != "unknown";
        assert_eq!(needs_reconnect(&alloc), want, "{alloc:?}");
    }
}

#[test]
fn sch_20_what_expired_was_stopped_or_failed_while_away_is_not_brought_back() {
    type Change = fn(&mut World, &str);
    let ways: [(&str, Change); 3] = [
        ("expired", |world, _| {
            world.now += 61 * SECOND;
            world.run("max-disconnect-timeout");
        }),
        ("stopped", |world, _| {
            world.change(|job| job.stop = true);
            world.run("job-deregister");
            world.change(|job| job.stop = false);
            world.run("job-register");
        }),
        ("failed", |_, _| {}),
    ];
    for (what, change) in ways {
        let (mut world, id, at) = away(true);
        change(&mut world, &id);
        world.node_status(&at, "ready");
        let reported = if what == "failed" {
            "failed"
        } else {
            "running"
        };
        world.client(&id, |alloc| alloc.client_status = reported.into());
        let outcome = world.run("reconnect");
        assert_eq!(outcome.desired["g"].reconnect, 0, "{what}");
        let old = world.alloc(&id);
        assert_eq!(old.desired_status, "stop", "{what}: {old:?}");
        assert!(!world.live().contains(&id), "{what}");
        assert_eq!(world.live().len(), 1, "{what}: another one runs");
    }
}

#[test]
fn a_deployment_that_waits_for_room_has_no_deadline_until_something_is_placed() {
    let mut spec = job("service", 2);
    spec.task_groups[0].update = Some(drover_testkit::fixtures::update(1, 0));
    spec.task_groups[0].tasks[0].resources.as_mut().unwrap().cpu = 3_000;
    let mut world = World::new(0, spec);
    world.run("job-register");
    let by = |world: &World| world.deployment().task_groups["g"].require_progress_by.0;
    assert_eq!(world.deployment().status, "running");
    assert_eq!(by(&world), 0, "nobody is late who waits for room");
    world.now += 3_600 * SECOND;
    world.add_node(node(1));
    world.run("node-update");
    assert_eq!(world.live().len(), 1);
    assert_eq!(
        by(&world),
        world.now + 600 * SECOND,
        "from the first placement on"
    );
    let first = by(&world);
    world.now += 60 * SECOND;
    world.add_node(node(2));
    world.run("node-update");
    assert_eq!(world.live().len(), 2);
    assert_eq!(by(&world), first, "and not from each");
    world.heal();
    assert_eq!(by(&world), world.now + 600 * SECOND, "health is progress");
}

#[test]
fn affinities_draw_and_repel() {
    for (weight, drawn) in [(100, true), (-100, false)] {
        let mut spec = job("batch", 6);
        spec.affinities = vec![Affinity {
            l_target: "${meta.rack}".into(),
            r_target: "r1".into(),
            operand: "=".into(),
            weight,
        }]
        .into();
        let mut world = World::new(0, spec);
        for number in 0..6 {
            let mut node = node(number);
            node.meta.insert("rack", format!("r{}", number % 2));
            world.add_node(node);
        }
        world.run("job-register");
        let live = world.live();
        assert_eq!(live.len(), 6);
        let there = live.iter().filter(|id| {
            let at = world.alloc(id).node_id;
            (0..6).any(|n| n % 2 == 1 && node(n).id == at)
        });
        assert_eq!(there.count() == 6, drawn, "weight {weight}");
        let there = live.iter().filter(|id| {
            let at = world.alloc(id).node_id;
            (0..6).any(|n| n % 2 == 0 && node(n).id == at)
        });
        assert_eq!(there.count() == 6, !drawn, "weight {weight}");
    }
}

#[test]
fn reserved_cores_are_given_once() {
    let mut spec = job("service", 3);
    let resources = spec.task_groups[0].tasks[0].resources.as_mut().unwrap();
    resources.cores = 2;
    resources.cpu = 0;
    let mut world = World::new(0, spec);
    let mut one = node(1);
    let cpu = &mut one.node_resources.as_mut().unwrap().cpu;
    cpu.total_cpu_cores = 5;
    cpu.reservable_cpu_cores = vec![0, 1, 2, 3, 4].into();
    world.add_node(one);
    let outcome = world.run("job-register");
    assert_eq!(world.live().len(), 2, "two of two cores each, of five");
    assert_eq!(
        outcome.failed["g"].dimension_exhausted.get("cores"),
        Some(&1)
    );
    let mut given = Vec::new();
    for id in world.live() {
        let resources = world.alloc(&id).allocated_resources.unwrap();
        let cpu = &resources.tasks["t"].cpu;
        assert_eq!(cpu.reserved_cores.len(), 2);
        assert_eq!(cpu.cpu_shares, 1_600, "two of five parts of 4,000 MHz");
        given.extend(cpu.reserved_cores.iter().copied());
    }
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 4, "no core twice");
}

#[test]
fn a_core_that_a_node_keeps_for_its_machine_is_given_to_nobody() {
    use drover_events::model::{Core, Topology};
    // A node may offer what it keeps, or not.
    for offered in [vec![0, 1, 2, 3], vec![1, 2, 3]] {
        let mut spec = job("service", 4);
        let resources = spec.task_groups[0].tasks[0].resources.as_mut().unwrap();
        resources.cores = 1;
        resources.cpu = 0;
        let mut world = World::new(0, spec);
        let mut one = node(1);
        let has = one.node_resources.as_mut().unwrap();
        has.cpu.cpu_shares = 3_000;
        has.cpu.total_cpu_cores = 4;
        has.cpu.reservable_cpu_cores = offered.into();
        let cores = (0..4).map(|id| Core {
            id,
            disable: id == 0,
            ..Core::default()
        });
        has.processors.topology = Some(Topology {
            cores: cores.collect::<Vec<_>>().into(),
            ..Topology::default()
        });
        let kept = one.reserved_resources.get_or_insert_default();
        kept.cpu.reserved_cpu_cores = vec![0].into();
        world.add_node(one);
        let outcome = world.run("job-register");
        let exhausted = &outcome.failed["g"].dimension_exhausted;
        assert_eq!(exhausted.get("cores"), Some(&1), "{exhausted:?}");
        let mut given = Vec::new();
        for id in world.live() {
            let resources = world.alloc(&id).allocated_resources.unwrap();
            let cpu = &resources.tasks["t"].cpu;
            assert_eq!(cpu.cpu_shares, 1_000, "a third of what is left");
            given.extend(cpu.reserved_cores.iter().copied());
        }
        given.sort_unstable();
        assert_eq!(given, [1, 2, 3]);
    }
}

#[test]
fn a_failed_allocation_waits_as_long_as_fibonacci_says() {
    let mut spec = job("service", 1);
    let policy = spec.task_groups[0].reschedule_policy.as_mut().unwrap();
    policy.delay = 5 * SECOND;
    policy.delay_function = "fibonacci".into();
    policy.max_delay = 20 * SECOND;
    let mut world = World::new(3, spec);
    world.run("job-register");
    let mut waits = Vec::new();
    for _ in 0..6 {
        let id = world.live()[0].clone();
        world.fail(&id);
        let outcome = world.run("alloc-failure");
        let [later] = outcome.follow_ups.as_slice() else {
            panic!("one follow-up");
        };
        assert_eq!(later.triggered_by, "alloc-reschedule");
        waits.push((later.wait_until.0 - world.now) / SECOND);
        world.now = later.wait_until.0;
        world.run_eval(later);
    }
    assert_eq!(
        waits,
        [5, 5, 10, 15, 20, 20],
        "the sum of the last two, up to the most"
    );
}

#[test]
fn devices_are_given_once_and_looked_at_by_their_attributes() {
    use drover_events::model::{
        Attribute, Constraint, NodeDevice, NodeDeviceResource, RequestedDevice,
    };
    let instance = |id: &str| NodeDevice {
        id: id.into(),
        healthy: true,
        ..NodeDevice::default()
    };
    let group = |name: &str, memory: i64| NodeDeviceResource {
        vendor: "acme".into(),
        r#type: "gpu".into(),
        name: name.into(),
        instances: vec![
            instance(&format!("{name}-0")),
            instance(&format!("{name}-1")),
        ]
        .into(),
        attributes: [(
            "memory",
            Attribute {
                int: Some(memory),
                ..Attribute::default()
            },
        )]
        .into(),
    };
    let mut spec = job("service", 4);
    spec.task_groups[0].tasks[0]
        .resources
        .as_mut()
        .unwrap()
        .devices = vec![RequestedDevice {
        name: "acme/gpu".into(),
        count: 1,
        constraints: vec![Constraint {
            l_target: "${device.attr.memory}".into(),
            r_target: "50".into(),
            operand: ">".into(),
        }]
        .into(),
        ..RequestedDevice::default()
    }]
    .into();
    let mut world = World::new(0, spec);
    for (number, memory) in [(1, 80), (2, 40)] {
        let mut with = node(number);
        let devices = vec![group(&format!("g{memory}"), memory)];
        with.node_resources.as_mut().unwrap().devices = devices.into();
        with.computed_class = drover_scheduler::feasible::computed_class(&with);
        world.add_node(with);
    }
    let outcome = world.run("job-register");
    let live = world.live();
    assert_eq!(live.len(), 2, "as many as the one node has that suits");
    assert!(live.iter().all(|id| world.alloc(id).node_id == node(1).id));
    let mut given: Vec<String> = Vec::new();
    for id in &live {
        let resources = world.alloc(id).allocated_resources.unwrap();
        for device in resources.tasks["t"].devices.iter() {
            given.extend(device.device_ids.iter().cloned());
        }
    }
    given.sort();
    assert_eq!(given, ["g80-0", "g80-1"]);
    let metric = &outcome.failed["g"];
    assert_eq!(
        metric.nodes_filtered, 1,
        "the one that does not suit: {metric:?}"
    );
    assert_eq!(
        metric.nodes_exhausted, 1,
        "the one whose devices are given: {metric:?}"
    );
    // An allocation that ends gives its device back.
    world.client(&live[0], |alloc| alloc.client_status = "complete".into());
    world.change(|job| job.task_groups[0].count = 1);
    world.run("job-register");
    assert_eq!(world.live().len(), 1);
}
