//! What is kept in a change, what is given back by it, and which of several nodes is taken.

use drover_events::model::{
    DisconnectStrategy, NetworkResource, NodeDevice, NodeDeviceResource, NodePool,
    NodePoolSchedulerConfiguration, Port, RequestedDevice, SchedulerConfiguration,
};
use drover_events::node_pool::NodePoolsUpserted;

use super::world::World;
use drover::scheduling_view::Snapshot;
use drover_scheduler::dry_run;
use drover_testkit::fixtures::{SECOND, job, node, update};

pub(crate) fn asks(job: &mut drover_events::model::Job, cpu: i64, memory_mb: i64) {
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

/// A network with one port, which is given by chance.
fn network_of(label: &str) -> NetworkResource {
    let port = Port {
        label: label.into(),
        ..Port::default()
    };
    NetworkResource {
        dynamic_ports: vec![port].into(),
        ..NetworkResource::default()
    }
}

#[test]
fn what_changes_in_place_keeps_its_ports_cores_and_devices() {
    let mut spec = job("service", 2);
    let group = &mut spec.task_groups[0];
    let resources = group.tasks[0].resources.as_mut().unwrap();
    (resources.cores, resources.cpu) = (1, 0);
    let gpu = RequestedDevice {
        name: "acme/gpu".into(),
        count: 1,
        ..RequestedDevice::default()
    };
    resources.devices = vec![gpu].into();
    // A network of its own is what tasks of jobs of long ago have.
    resources.networks = vec![network_of("own")].into();
    group.networks = vec![network_of("http")].into();
    let mut world = World::new(0, spec);
    let mut one = node(1);
    let instance = |number: usize| NodeDevice {
        id: format!("gpu-{number}"),
        healthy: true,
        ..NodeDevice::default()
    };
    let gpus = NodeDeviceResource {
        vendor: "acme".into(),
        r#type: "gpu".into(),
        name: "g1".into(),
        instances: (0..4).map(instance).collect(),
        ..NodeDeviceResource::default()
    };
    let resources = one.node_resources.as_mut().unwrap();
    resources.devices = vec![gpus].into();
    let cpu = &mut resources.cpu;
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
    // A new choice would now take what the first one had.
    world.fail(&first);
    world.run("alloc-failure");
    let before = world.alloc(&second);
    let given = before.allocated_resources.clone().unwrap();
    assert!(given.tasks["t"].networks[0].dynamic_ports[0].value > 0);
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
    let reported = |outcome: &drover_scheduler::Outcome| {
        let desired = &outcome.desired["g"];
        (desired.reschedule_later, desired.reschedule_now)
    };
    assert_eq!(reported(&outcome), (1, 0));
    world.now += 30 * SECOND;
    let outcome = world.run_eval(&outcome.follow_ups[0]);
    assert_eq!(reported(&outcome), (0, 1));
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
    for (status, over, reported) in [
        ("ready", false, "running"),
        ("down", false, "lost"),
        ("down", true, "complete"),
    ] {
        let mut world = World::new(2, job("service", 1));
        world.run("job-register");
        world.all_are("running");
        let id = world.live()[0].clone();
        world.change(|job| job.task_groups[0].count = 0);
        world.run("job-register");
        assert_eq!(world.alloc(&id).client_status, "running");
        if over {
            world.client(&id, |alloc| alloc.client_status = "complete".into());
        }
        let at = world.alloc(&id).node_id;
        world.node_status(&at, status);
        world.run("node-update");
        assert_eq!(world.alloc(&id).client_status, reported);
    }
}

#[test]
fn sch_01_what_may_be_away_and_is_not_replaced_is_unknown_on_a_node_that_is_down() {
    let mut spec = job("service", 1);
    spec.task_groups[0].disconnect = Some(DisconnectStrategy {
        lost_after: 60 * SECOND,
        replace: Some(false),
        ..DisconnectStrategy::default()
    });
    let mut world = World::new(2, spec);
    world.run("job-register");
    world.all_are("running");
    let live = world.live();
    let at = world.alloc(&live[0]).node_id;
    world.node_status(&at, "down");
    world.run("node-update");
    assert_eq!(world.live(), live);
    assert_eq!(world.alloc(&live[0]).client_status, "unknown");
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
