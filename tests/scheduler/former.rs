//! Which version runs what is placed in the former one's stead while canaries are out.

use drover_events::eval::EvalsDeleted;
use drover_events::job::JobStabilityUpdated;

use super::rollout::{drain, stop_one_of_the_former, versions, with_a_canary};
use super::world::World;
use drover_testkit::fixtures::{job, node, update};

#[test]
fn what_was_only_tried_out_is_no_former_version_even_where_it_is_called_stable() {
    let mut world = with_a_canary(5, 3);
    world.apply(JobStabilityUpdated {
        namespace: "default".into(),
        job_id: "j".into(),
        job_version: 1,
        stable: true,
    });
    world.change(|job| job.task_groups[0].tasks[0].user = "third".into());
    world.run("job-register");
    let wanted = [(0, false), (0, false), (0, false), (2, true)];
    assert_eq!(versions(&world), wanted);
    stop_one_of_the_former(&mut world);
    assert_eq!(versions(&world), wanted);
}

#[test]
fn where_no_allocation_is_left_the_former_version_is_the_one_that_was_stable() {
    let mut world = with_a_canary(1, 3);
    let node = world.alloc(&world.live()[0]).node_id;
    drain(&mut world, &node, 4);
    let gone = world.allocs();
    world.apply(EvalsDeleted {
        alloc_ids: gone.iter().map(|alloc| alloc.id.clone()).collect(),
        ..EvalsDeleted::default()
    });
    assert!(world.allocs().is_empty());
    world.eligible(&node);
    world.run("node-update");
    assert_eq!(
        versions(&world),
        [(0, false), (0, false), (0, false), (1, true)]
    );
}

/// The new version may not run on one of two nodes: what is there waits for the canary, and what is
/// on the other has the new version at once.
#[test]
fn what_was_changed_in_place_does_not_go_back_to_the_former_version() {
    let mut spec = job("service", 2);
    spec.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(1, spec);
    let mut far = node(9);
    far.datacenter = "eu-west".into();
    world.add_node(far);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| job.datacenters = vec!["dc*".to_owned()].into());
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 1);
    world.heal();
    let wanted = [(0, false), (1, false), (1, true)];
    assert_eq!(versions(&world), wanted);
    let live = world.live();
    let in_place = |id: &&String| {
        let alloc = world.alloc(id);
        alloc.job_version() == 1 && !alloc.is_canary()
    };
    let id = live.iter().find(in_place).expect("it is there").clone();
    world.client(&id, |alloc| alloc.desired_transition.migrate = Some(true));
    world.run("alloc-stop");
    assert!(!world.live().contains(&id));
    assert_eq!(versions(&world), wanted);
}
