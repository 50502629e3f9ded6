//! Which nodes suit a group, which of them are looked at, and what capacity is counted.

use std::collections::BTreeSet;

use drover_events::model::{
    Affinity, Constraint, NetworkResource, Port, RequestedDevice, SchedulerConfiguration,
    TaskLifecycleConfig,
};

use super::kept::asks;
use super::world::World;
use drover_testkit::fixtures::{SECOND, job};

#[test]
fn a_group_needs_the_networks_it_asks_for() {
    let network = |mode: &str, host_network: &str| {
        let port = Port {
            label: "http".into(),
            host_network: host_network.into(),
            ..Port::default()
        };
        NetworkResource {
            mode: mode.into(),
            dynamic_ports: vec![port].into(),
            ..NetworkResource::default()
        }
    };
    for (network, missing) in [
        (network("host", ""), None),
        (network("host", "default"), None),
        (network("bridge", ""), Some("missing network")),
        (
            network("host", "public"),
            Some("missing host network \"public\" for port \"http\""),
        ),
    ] {
        let mut spec = job("service", 1);
        spec.task_groups[0].networks = vec![network].into();
        let mut world = World::new(1, spec);
        let outcome = world.run("job-register");
        let failed = outcome.failed.get("g");
        let why = failed.map(|metric| {
            let reasons = metric.constraint_filtered.iter();
            reasons.map(|(why, _)| why.clone()).collect::<Vec<_>>()
        });
        let missing = missing.map(|why: &str| vec![why.to_owned()]);
        assert_eq!(why, missing);
        assert_eq!(world.live().len(), usize::from(missing.is_none()));
    }
}

#[test]
fn what_depends_on_more_than_a_class_says_so_and_waits_for_any_node() {
    let constraint = |target: &str| Constraint {
        l_target: target.into(),
        r_target: "it".into(),
        operand: "=".into(),
    };
    let device = |constraints: Vec<Constraint>| RequestedDevice {
        name: "acme/gpu".into(),
        count: 1,
        constraints: constraints.into(),
        ..RequestedDevice::default()
    };
    let mut cases = Vec::new();
    for (target, escapes) in [
        ("${attr.cpu.arch}", false),
        ("${attr.unique.hostname}", true),
        ("${node.unique.id}", true),
    ] {
        let mut of_job = job("service", 1);
        of_job.constraints = vec![constraint(target)].into();
        let mut of_group = job("service", 1);
        of_group.task_groups[0].constraints = vec![constraint(target)].into();
        cases.extend([(of_job, escapes), (of_group, escapes)]);
    }
    for (constraints, escapes) in [
        (Vec::new(), false),
        (vec![constraint("${device.model}")], false),
        (vec![constraint("${device.ids}")], true),
    ] {
        let mut of_device = job("service", 1);
        let resources = of_device.task_groups[0].tasks[0]
            .resources
            .as_mut()
            .unwrap();
        resources.devices = vec![device(constraints)].into();
        cases.push((of_device, escapes));
    }
    for (spec, escapes) in cases {
        let outcome = World::new(2, spec.clone()).run("job-register");
        let blocked = outcome.blocked.expect("no node is it");
        assert_eq!(blocked.escaped_computed_class, escapes, "{spec:?}");
        assert_eq!(blocked.class_eligibility.is_empty(), escapes, "{spec:?}");
    }
}

#[test]
fn what_is_stopped_makes_room_for_what_is_placed_with_it() {
    let mut spec = job("service", 1);
    asks(&mut spec, 3_000, 100);
    let mut more = spec.task_groups[0].clone();
    more.name = "more".into();
    more.count = 0;
    spec.task_groups.push(more);
    let mut world = World::new(1, spec);
    world.run("job-register");
    world.all_are("running");
    // It fits only in the capacity that it holds itself.
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 9 * SECOND);
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 1);
    world.change(|job| {
        job.task_groups[0].count = 0;
        job.task_groups[1].count = 1;
    });
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let live = world.live();
    assert_eq!(live.len(), 1);
    assert_eq!(world.alloc(&live[0]).task_group, "more");
}

#[test]
fn tasks_that_run_one_after_another_have_their_room_one_after_another() {
    for (hook, sidecar, fits) in [
        ("prestart", false, true),
        ("prestart", true, false),
        ("poststop", false, true),
        ("", false, false),
    ] {
        let mut spec = job("service", 2);
        asks(&mut spec, 1_900, 100);
        let tasks = &mut spec.task_groups[0].tasks;
        let mut first = tasks[0].clone();
        first.name = "first".into();
        let lifecycle = TaskLifecycleConfig {
            hook: hook.into(),
            sidecar,
        };
        first.lifecycle = (!hook.is_empty()).then_some(lifecycle);
        tasks.push(first);
        let mut world = World::new(1, spec);
        world.run("job-register");
        let live = world.live();
        assert_eq!(live.len(), if fits { 2 } else { 1 }, "{hook} {sidecar}");
        // What is looked at later says the same of what it holds.
        world.change(|job| job.task_groups[0].count = 3);
        let outcome = world.run("job-register");
        assert_eq!(world.live(), live);
        let left = if fits { 1 } else { 2 };
        assert_eq!(outcome.finished.queued_allocations["g"], left);
        let resources = world.alloc(&live[0]).allocated_resources.unwrap();
        let known = resources.task_lifecycles.get("first").cloned().flatten();
        assert_eq!(known.map_or(String::new(), |known| known.hook), hook);
    }
}

#[test]
fn a_plan_says_what_it_was_decided_with() {
    let mut spec = job("service", 3);
    spec.all_at_once = true;
    let mut world = World::new(7, spec);
    let outcome = world.run("job-register");
    assert!(outcome.plan.all_at_once);
    let inputs = drover_scheduler::Inputs {
        snapshot_index: 5,
        now: 6,
        seed: 7,
        scheduler_version: 8,
    };
    let kept = drover_events::plan::DecisionInputs::from(inputs);
    let kept = (
        kept.snapshot_index,
        kept.now,
        kept.seed,
        kept.scheduler_version,
    );
    assert_eq!(kept, (5, 6, 7, 8));
    // Of the nodes that were looked at the best is first, and it was taken.
    for placement in &outcome.plan.placements {
        let metric = placement.alloc.metrics.as_ref().unwrap();
        let scores: Vec<f64> = metric
            .score_meta_data
            .iter()
            .map(|m| m.norm_score)
            .collect();
        assert!((1..=5).contains(&scores.len()), "{scores:?}");
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        let best = &metric.score_meta_data[0];
        assert_eq!(best.node_id, placement.alloc.node_id);
        let binpack = best.scores.get("binpack").copied().unwrap_or_default();
        assert!(binpack > 0.0, "{best:?}");
    }
}

#[test]
fn hosts_that_have_one_already_are_not_distinct() {
    for of_group in [false, true] {
        let distinct = Constraint {
            operand: "distinct_hosts".into(),
            ..Constraint::default()
        };
        let mut spec = job("service", 1);
        if of_group {
            spec.task_groups[0].constraints = vec![distinct].into();
        } else {
            spec.constraints = vec![distinct].into();
        }
        let mut world = World::new(2, spec);
        for (count, placed) in [(1, 1), (2, 2), (3, 2)] {
            world.change(|job| job.task_groups[0].count = count);
            world.run("job-register");
            world.all_are("running");
            let live = world.live();
            let nodes = live.iter().map(|id| world.alloc(id).node_id);
            let nodes = nodes.collect::<BTreeSet<_>>();
            assert_eq!((live.len(), nodes.len()), (placed, placed), "{of_group}");
        }
        // Neither where one failed and its node is the only one that is left.
        world.change(|job| job.task_groups[0].count = 2);
        world.run("job-register");
        let live = world.live();
        world.fail(&live[0]);
        let outcome = world.run("alloc-failure");
        world.now += 30 * SECOND;
        world.run_eval(&outcome.follow_ups[0]);
        let live = world.live();
        let nodes = live.iter().map(|id| world.alloc(id).node_id);
        assert_eq!((live.len(), nodes.collect::<BTreeSet<_>>().len()), (2, 2));
    }
}

#[test]
fn as_many_nodes_are_looked_at_as_the_kind_of_job_asks_for() {
    let affinity = Affinity {
        l_target: "${node.datacenter}".into(),
        r_target: "dc1".into(),
        operand: "=".into(),
        weight: 50,
    };
    for (kind, draws, looked_at, reported) in [
        ("service", false, 4, 4),
        ("batch", false, 2, 2),
        ("service", true, 16, 5),
    ] {
        let mut spec = job(kind, 1);
        if draws {
            spec.affinities = vec![affinity.clone()].into();
        }
        let mut world = World::new(16, spec);
        let outcome = world.run("job-register");
        let alloc = &outcome.plan.placements[0].alloc;
        let metric = alloc.metrics.as_ref().unwrap();
        assert_eq!(metric.nodes_evaluated, looked_at, "{kind} {draws}");
        assert_eq!(metric.score_meta_data.len(), reported, "{kind} {draws}");
    }
}

#[test]
fn where_affinities_are_weighed_as_many_nodes_are_looked_at_as_the_operator_says() {
    let affinity = Affinity {
        l_target: "${node.datacenter}".into(),
        r_target: "dc1".into(),
        operand: "=".into(),
        weight: 50,
    };
    for (draws, limit, looked_at) in [
        (true, 0, 100),
        (true, 3, 3),
        (true, 110, 110),
        (true, 1_000, 120),
        // Others look at a few anyway.
        (false, 3, 7),
        (false, 1_000, 7),
    ] {
        let mut spec = job("service", 1);
        if draws {
            spec.affinities = vec![affinity.clone()].into();
        }
        let mut world = World::new(120, spec);
        world.configure(SchedulerConfiguration {
            node_limit_for_feasibility_checks: limit,
            ..SchedulerConfiguration::default()
        });
        let outcome = world.run("job-register");
        let alloc = &outcome.plan.placements[0].alloc;
        let metric = alloc.metrics.as_ref().unwrap();
        assert_eq!(metric.nodes_evaluated, looked_at, "{draws} {limit}");
    }
}
