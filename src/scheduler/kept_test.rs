//! What is kept in a change, what is given back by it, and which of several nodes is taken.

use drover_events::model::{
    Constraint, NetworkResource, NodePool, NodePoolSchedulerConfiguration, Port, RequestedDevice,
    SchedulerConfiguration,
};
use drover_events::node_pool::NodePoolsUpserted;

use super::dry_run;
use super::testing::{SECOND, World, job, node, update};
use crate::reactors::scheduling::snapshot::Snapshot;

fn asks(job: &mut drover_events::model::Job, cpu: i64, memory_mb: i64) {
    let resources = job.task_groups[0].tasks[0].resources.as_mut().unwrap();
    (resources.cpu, resources.memory_mb) = (cpu, memory_mb);
}

/// A small node and a large one, in a pool.
fn small_and_large(world: &mut World, pool: &str) {
    for (number, part) in [(1, 4), (2, 1)] {
        let mut one = node(number);
        one.node_pool = pool.into();
        let resources = one.node_resources.as_mut().unwrap();
        resources.cpu.cpu_shares /= part;
        resources.memory.memory_mb /= part;
        world.add_node(one);
    }
}

#[test]
fn what_changes_in_place_keeps_its_ports_and_cores() {
    let mut spec = job("service", 2);
    let group = &mut spec.task_groups[0];
    let resources = group.tasks[0].resources.as_mut().unwrap();
    (resources.cores, resources.cpu) = (1, 0);
    let port = Port {
        label: "http".into(),
        ..Port::default()
    };
    group.networks = vec![NetworkResource {
        dynamic_ports: vec![port].into(),
        ..NetworkResource::default()
    }]
    .into();
    let mut world = World::new(0, spec);
    let mut one = node(1);
    let cpu = &mut one.node_resources.as_mut().unwrap().cpu;
    cpu.total_cpu_cores = 4;
    cpu.reservable_cpu_cores = vec![0, 1, 2, 3].into();
    world.add_node(one);
    world.run("job-register");
    world.all_are("running");
    let cores = |world: &World, id: &str| {
        let resources = world.alloc(id).allocated_resources.unwrap();
        resources.tasks["t"].cpu.reserved_cores.to_vec()
    };
    let live = world.live();
    let of_core = |world: &World, core| {
        let has = |id: &&String| cores(world, id) == [core];
        live.iter().find(has).expect("it was given").clone()
    };
    let (first, second) = (of_core(&world, 0), of_core(&world, 1));
    // Whoever chose anew would now take what the first one had.
    world.fail(&first);
    world.run("alloc-failure");
    let before = world.alloc(&second);
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 9 * SECOND);
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 1);
    let after = world.alloc(&second);
    assert_eq!(after.job.as_ref().unwrap().version, 1);
    assert_eq!(after.allocated_resources, before.allocated_resources);
}

#[test]
fn the_algorithm_says_whether_nodes_are_filled_or_emptied_and_a_pools_own_goes_first() {
    let pool = |algorithm: &str| {
        Some(NodePoolSchedulerConfiguration {
            scheduler_algorithm: algorithm.into(),
            ..NodePoolSchedulerConfiguration::default()
        })
    };
    for (cluster, of_pool, taken) in [
        ("binpack", None, 1),
        ("spread", None, 2),
        ("spread", pool(""), 2),
        ("spread", pool("binpack"), 1),
        ("binpack", pool("spread"), 2),
    ] {
        let mut spec = job("service", 1);
        spec.node_pool = "own".into();
        asks(&mut spec, 500, 1_000);
        let mut world = World::new(0, spec);
        small_and_large(&mut world, "own");
        let row = NodePool {
            name: "own".into(),
            scheduler_configuration: of_pool.clone(),
            ..NodePool::default()
        };
        world.apply(NodePoolsUpserted {
            node_pools: vec![row],
        });
        world.configure(SchedulerConfiguration {
            scheduler_algorithm: cluster.into(),
            ..SchedulerConfiguration::default()
        });
        // What is planned only is placed where it would be.
        let snapshot = Snapshot::read(world.view()).unwrap();
        let planned = dry_run(&snapshot, &world.job(), false, world.now).unwrap();
        assert_eq!(planned.plan.placements[0].alloc.node_id, node(taken).id);
        world.run("job-register");
        let live = world.live();
        let at = world.alloc(&live[0]).node_id;
        assert_eq!(at, node(taken).id, "{cluster} {of_pool:?}");
    }
}

#[test]
fn memory_beyond_what_is_reserved_is_given_where_cluster_or_pool_allow_it() {
    for (cluster, of_pool, given) in [
        (false, None, 0),
        (true, None, 300),
        (true, Some(false), 0),
        (false, Some(true), 300),
    ] {
        let mut spec = job("service", 1);
        spec.node_pool = "own".into();
        asks(&mut spec, 100, 100);
        let resources = spec.task_groups[0].tasks[0].resources.as_mut().unwrap();
        resources.memory_max_mb = 300;
        let mut world = World::new(0, spec);
        small_and_large(&mut world, "own");
        let row = NodePool {
            name: "own".into(),
            scheduler_configuration: Some(NodePoolSchedulerConfiguration {
                memory_oversubscription_enabled: of_pool,
                ..NodePoolSchedulerConfiguration::default()
            }),
            ..NodePool::default()
        };
        world.apply(NodePoolsUpserted {
            node_pools: vec![row],
        });
        world.configure(SchedulerConfiguration {
            memory_oversubscription_enabled: cluster,
            ..SchedulerConfiguration::default()
        });
        world.run("job-register");
        let live = world.live();
        let resources = world.alloc(&live[0]).allocated_resources.unwrap();
        let memory = &resources.tasks["t"].memory;
        assert_eq!(memory.memory_max_mb, given, "{cluster} {of_pool:?}");
    }
}

#[test]
fn the_room_of_what_is_replaced_is_its_successors_and_nobodys_where_there_is_none() {
    for (wanted, replaced) in [(3_500, true), (5_000, false)] {
        let mut spec = job("service", 1);
        asks(&mut spec, 3_000, 100);
        let mut world = World::new(1, spec);
        world.run("job-register");
        world.all_are("running");
        let first = world.live();
        world.change(|job| {
            asks(job, wanted, 100);
            let mut more = job.task_groups[0].clone();
            more.name = "more".into();
            more.tasks[0].resources.as_mut().unwrap().cpu = 2_000;
            job.task_groups.push(more);
        });
        let outcome = world.run("job-register");
        assert_eq!(outcome.desired["g"].destructive_update, 1);
        assert!(outcome.failed.contains_key("more"), "{wanted}");
        let queued = &outcome.finished.queued_allocations;
        assert_eq!(queued["g"], i64::from(!replaced), "{wanted}");
        let live = world.live();
        assert_eq!((live.len(), live != first), (1, replaced), "{wanted}");
    }
}

#[test]
fn what_failed_leaves_its_node_although_that_is_filled_first() {
    let mut spec = job("service", 1);
    asks(&mut spec, 500, 1_000);
    let mut world = World::new(0, spec);
    small_and_large(&mut world, "default");
    world.run("job-register");
    world.all_are("running");
    let at = |world: &World| world.alloc(&world.live()[0]).node_id;
    assert_eq!(at(&world), node(1).id, "it is filled");
    let failed = world.live()[0].clone();
    world.fail(&failed);
    let outcome = world.run("alloc-failure");
    let told = |outcome: &super::Outcome| {
        let desired = &outcome.desired["g"];
        (desired.reschedule_later, desired.reschedule_now)
    };
    assert_eq!(told(&outcome), (1, 0));
    world.now += 30 * SECOND;
    let outcome = world.run_eval(&outcome.follow_ups[0]);
    assert_eq!(told(&outcome), (0, 1));
    assert_eq!(at(&world), node(2).id, "it failed there");
    let rescheduled = world.live()[0].clone();
    assert!(world.alloc(&rescheduled).reschedule_tracker.is_some());

    // A new version begins without the failures of the one before.
    world.all_are("running");
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    assert_eq!(world.run("job-register").desired["g"].destructive_update, 1);
    let new = world.alloc(&world.live()[0]);
    assert_eq!(new.previous_allocation, rescheduled);
    assert_eq!(new.reschedule_tracker, None);
}

#[test]
fn what_is_lost_keeps_the_failures_it_had() {
    let mut world = World::new(3, job("service", 1));
    world.run("job-register");
    world.all_are("running");
    let failed = world.live()[0].clone();
    world.fail(&failed);
    let outcome = world.run("alloc-failure");
    world.now += 30 * SECOND;
    world.run_eval(&outcome.follow_ups[0]);
    world.all_are("running");
    let rescheduled = world.alloc(&world.live()[0]);
    world.node_status(&rescheduled.node_id, "down");
    world.run("node-update");
    let new = world.alloc(&world.live()[0]);
    assert_eq!(new.previous_allocation, rescheduled.id);
    assert!(new.reschedule_tracker.is_some());
    assert_eq!(new.reschedule_tracker, rescheduled.reschedule_tracker);
}

#[test]
fn a_sticky_disk_draws_a_new_version_to_where_the_old_one_was() {
    for (sticky, taken) in [(true, 2), (false, 1)] {
        let mut spec = job("service", 1);
        asks(&mut spec, 500, 1_000);
        let disk = spec.task_groups[0].ephemeral_disk.as_mut().unwrap();
        disk.sticky = sticky;
        let mut world = World::new(0, spec);
        small_and_large(&mut world, "default");
        world.ineligible(&node(1).id);
        world.run("job-register");
        world.all_are("running");
        assert_eq!(world.alloc(&world.live()[0]).node_id, node(2).id);
        world.eligible(&node(1).id);
        world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
        world.run("job-register");
        let at = world.alloc(&world.live()[0]).node_id;
        assert_eq!(at, node(taken).id, "{sticky}");
    }
}

#[test]
fn what_was_stopped_is_lost_with_a_node_that_cannot_tell_its_end() {
    for (status, lost) in [("ready", false), ("down", true)] {
        let mut world = World::new(2, job("service", 1));
        world.run("job-register");
        world.all_are("running");
        let id = world.live()[0].clone();
        world.change(|job| job.task_groups[0].count = 0);
        world.run("job-register");
        assert_eq!(world.alloc(&id).client_status, "running");
        let at = world.alloc(&id).node_id;
        world.node_status(&at, status);
        world.run("node-update");
        let told = world.alloc(&id).client_status;
        assert_eq!(told, if lost { "lost" } else { "running" });
    }
}

#[test]
fn a_deployment_names_its_canaries_from_the_beginning() {
    let mut spec = job("service", 3);
    spec.task_groups[0].update = Some(update(1, 2));
    let mut world = World::new(5, spec);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    let outcome = world.run("job-register");
    let deployment = outcome.plan.deployment.expect("a new one");
    let mut named = deployment.task_groups["g"].placed_canaries.to_vec();
    named.sort_unstable();
    let canaries = world.live().into_iter();
    let mut canaries: Vec<_> = canaries.filter(|id| world.alloc(id).is_canary()).collect();
    canaries.sort_unstable();
    assert_eq!(canaries.len(), 2);
    assert_eq!(named, canaries);
}

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
    // Nothing but what it has itself has room for it.
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
    use drover_events::model::TaskLifecycleConfig;
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
    let inputs = super::Inputs {
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
            let nodes = nodes.collect::<std::collections::BTreeSet<_>>();
            assert_eq!((live.len(), nodes.len()), (placed, placed), "{of_group}");
        }
    }
}
