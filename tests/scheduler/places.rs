//! Where capacity is left when something runs already, and what would be if a job were registered.

use drover_events::model::{DriverInfo, NodeResources};

use super::world::World;
use drover::scheduling_view::Snapshot;
use drover_scheduler::dry_run;
use drover_testkit::fixtures::{job, node, update};

#[test]
fn what_runs_already_leaves_the_rest_of_a_node_to_others() {
    for exhausted in ["cpu", "memory", "disk"] {
        let mut spec = job("service", 1);
        let group = &mut spec.task_groups[0];
        let resources = group.tasks[0].resources.as_mut().unwrap();
        match exhausted {
            "cpu" => resources.cpu = 2_001,
            "memory" => resources.memory_mb = 4_097,
            _ => group.ephemeral_disk.as_mut().unwrap().size_mb = 51_201,
        }
        let mut world = World::new(1, spec);
        world.run("job-register");
        assert_eq!(world.live().len(), 1, "{exhausted}");
        world.change(|job| job.task_groups[0].count = 2);
        let outcome = world.run("job-register");
        assert_eq!(world.live().len(), 1, "{exhausted}");
        let why = &outcome.failed["g"].dimension_exhausted;
        assert_eq!(why.get(exhausted), Some(&1), "{why:?}");
        let short = &outcome.failed["g"].resources_exhausted["t"];
        let wanted = match exhausted {
            "cpu" => (2_001, 0, 0),
            "memory" => (0, 4_097, 0),
            _ => (0, 0, 51_201),
        };
        assert_eq!((short.cpu, short.memory_mb, short.disk_mb), wanted);
    }
}

#[test]
fn a_node_without_a_healthy_driver_of_the_group_is_left_out() {
    let mut world = World::new(0, job("service", 1));
    let mut without = node(1);
    without.drivers = Default::default();
    without.computed_class = "v1:2".into();
    world.add_node(without);
    let mut ill = node(2);
    ill.computed_class = "v1:3".into();
    let driver = DriverInfo {
        detected: true,
        healthy: false,
        ..DriverInfo::default()
    };
    ill.drivers.insert("mock_driver", driver);
    world.add_node(ill);
    let outcome = world.run("job-register");
    assert!(world.live().is_empty());
    assert_eq!(outcome.failed["g"].nodes_filtered, 2);
}

#[test]
fn a_node_without_resources_has_no_room() {
    let mut world = World::new(0, job("service", 1));
    let mut empty = node(1);
    empty.node_resources = Some(NodeResources::default());
    world.add_node(empty);
    world.run("job-register");
    assert!(world.live().is_empty());
}

#[test]
fn a_job_is_planned_on_what_there_is_of_it() {
    let mut world = World::new(3, job("service", 2));
    world.run("job-register");
    let snapshot = Snapshot::read(world.view()).unwrap();
    let known = world.job();
    let mut more = known.clone();
    more.task_groups[0].count = 3;
    let planned = dry_run(&snapshot, &more, true, world.now).unwrap();
    let group = &planned.desired["g"];
    assert_eq!((group.place, group.in_place_update, group.stop), (1, 2, 0));
    let reported = planned.finished.plan_annotations.unwrap();
    assert_eq!(reported.desired_tg_updates.get("g"), Some(group));
    let planned = dry_run(&snapshot, &known, false, world.now).unwrap();
    let group = &planned.desired["g"];
    assert_eq!((group.place, group.ignore), (0, 2), "it is as it is");
    let mut new = known.clone();
    new.id = "another".into();
    let planned = dry_run(&snapshot, &new, true, world.now).unwrap();
    assert_eq!(planned.desired["g"].place, 2);
    assert_eq!(world.live().len(), 2, "nothing came of it");
}

#[test]
fn what_waits_for_a_place_is_counted_and_looked_for_once() {
    let mut spec = job("service", 4);
    let resources = spec.task_groups[0].tasks[0].resources.as_mut().unwrap();
    resources.cpu = 2_001;
    let mut world = World::new(1, spec);
    let outcome = world.run("job-register");
    assert_eq!(world.live().len(), 1);
    assert_eq!(outcome.finished.queued_allocations.get("g"), Some(&3));
    assert_eq!(outcome.failed["g"].coalesced_failures, 2);
    for number in 2..5 {
        world.add_node(node(number));
    }
    let outcome = world.run("node-update");
    assert_eq!(world.live().len(), 4);
    assert_eq!(outcome.finished.queued_allocations.get("g"), Some(&0));
}

#[test]
fn the_evaluation_of_a_stop_names_the_deployment_that_ends_with_the_job() {
    for (heals, status) in [(true, "successful"), (false, "cancelled")] {
        let mut spec = job("service", 1);
        spec.task_groups[0].update = Some(update(1, 0));
        let mut world = World::new(1, spec);
        world.run("job-register");
        if heals {
            world.heal();
            world.run("deployment-watcher");
        }
        world.change(|job| job.stop = true);
        let outcome = world.run("job-deregister");
        let deployment = world.deployment();
        assert_eq!(deployment.status, status);
        assert_eq!(outcome.finished.deployment_id, deployment.id);
        assert!(world.live().is_empty());
    }
}

#[test]
fn what_is_changed_in_place_is_of_the_new_version_s_deployment() {
    let mut spec = job("service", 1);
    spec.task_groups[0].update = Some(update(1, 0));
    let mut world = World::new(2, spec);
    let outcome = world.run("job-register");
    let first = world.deployment();
    assert_eq!(outcome.finished.deployment_id, first.id);
    world.heal();
    world.change(|job| job.task_groups[0].count = 2);
    let outcome = world.run("job-register");
    let second = world.deployment();
    assert_ne!(second.id, first.id);
    assert_eq!(outcome.finished.deployment_id, second.id);
    assert_eq!(world.live().len(), 2);
    for id in world.live() {
        assert_eq!(world.alloc(&id).deployment_id, second.id);
    }
}

#[test]
fn what_is_changed_in_place_stays_in_its_deployment_where_the_new_version_has_none() {
    let mut spec = job("service", 1);
    spec.task_groups[0].update = Some(update(1, 0));
    let mut world = World::new(2, spec);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    let first = world.deployment();
    world.change(|job| job.task_groups[0].update = None);
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 1);
    assert_eq!(world.deployment().id, first.id, "there is no other");
    let live = world.live();
    let alloc = world.alloc(&live[0]);
    assert_eq!(alloc.job_version(), 1);
    assert_eq!(alloc.deployment_id, first.id);
    assert_eq!(alloc.health(), Some(true));
}
