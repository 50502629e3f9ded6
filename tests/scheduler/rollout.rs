//! Stories of new versions: step by step, with canaries, healthy or not.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::job::JobRegistered;
use drover_events::model::{Deployment, DeploymentState, Job, NetworkResource, Port};

use super::scenario::names;
use super::world::World;
use drover::scheduling_view::Snapshot;
use drover_scheduler::{StateView, dry_run};
use drover_testkit::fixtures::{job, update};

#[test]
fn a_new_version_is_rolled_out_step_by_step_by_its_deployment() {
    let mut job = job("service", 4);
    job.task_groups[0].update = Some(update(2, 0));
    let mut world = World::new(10, job);
    let outcome = world.run("job-register");
    let deployment = outcome
        .plan
        .deployment
        .expect("the first version has a deployment too");
    assert_eq!(deployment.task_groups["g"].desired_total, 4);
    assert_eq!(outcome.finished.deployment_id, deployment.id);
    assert!(
        world
            .live()
            .iter()
            .all(|id| world.alloc(id).deployment_id == deployment.id)
    );
    world.heal();
    let outcome = world.run("deployment-watcher");
    assert_eq!(outcome.plan.deployment_updates[0].status, "successful");

    world.change(|job| {
        job.task_groups[0].tasks[0]
            .env
            .insert("A", "1".to_owned())
            .map_or((), |_| ())
    });
    let outcome = world.run("job-register");
    let desired = &outcome.desired["g"];
    assert_eq!((desired.destructive_update, desired.ignore), (2, 2));
    assert!(
        world.run("deployment-watcher").plan.is_empty(),
        "two are not healthy yet"
    );
    world.heal();
    assert_eq!(
        world.run("deployment-watcher").desired["g"].destructive_update,
        2
    );
    world.heal();
    let outcome = world.run("deployment-watcher");
    assert_eq!(outcome.plan.deployment_updates[0].status, "successful");
    assert_eq!(names(&world).into_iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn canaries_come_first_and_the_rest_after_promotion() {
    let mut job = job("service", 3);
    job.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(10, job);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    let outcome = world.run("job-register");
    let desired = &outcome.desired["g"];
    assert_eq!(
        (desired.canary, desired.destructive_update, desired.stop),
        (1, 0, 0)
    );
    assert_eq!(world.live().len(), 4);
    let deployment = world.deployment();
    let state = &deployment.task_groups["g"];
    assert_eq!(
        (state.desired_canaries, state.placed_canaries.len()),
        (1, 1)
    );
    assert_eq!(
        deployment.status_description,
        "Deployment is running but requires manual promotion"
    );
    world.heal();
    assert!(
        world.run("deployment-watcher").plan.is_empty(),
        "it waits for promotion"
    );

    world.promote();
    let outcome = world.run("deployment-watcher");
    assert_eq!(
        outcome.desired["g"].stop, 1,
        "the one the canary stands for"
    );
    assert_eq!(outcome.desired["g"].destructive_update, 1);
    assert_eq!(names(&world), ["j.g[0]", "j.g[1]", "j.g[2]"]);
}

/// A service of so many that are healthy, on so many nodes, and a healthy canary of its next
/// version.
pub(crate) fn with_a_canary(nodes: usize, count: i64) -> World {
    let mut job = job("service", count);
    job.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(nodes, job);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    world.run("job-register");
    world.heal();
    assert!(world.run("deployment-watcher").plan.is_empty());
    world
}

/// What is live, by version of the job, and whether it is a canary.
pub(crate) fn versions(world: &World) -> Vec<(u64, bool)> {
    let live = world.live();
    let allocs = live.iter().map(|id| world.alloc(id));
    let mut versions: Vec<(u64, bool)> = allocs
        .map(|alloc| (alloc.job.as_ref().unwrap().version, alloc.is_canary()))
        .collect();
    versions.sort_unstable();
    versions
}

#[test]
fn a_newer_version_stops_the_canaries_of_one_that_was_not_promoted_and_no_others() {
    for promoted in [false, true] {
        let mut world = with_a_canary(5, 3);
        let is_canary = |id: &String| world.alloc(id).is_canary();
        let canary = world.live().into_iter().find(is_canary).unwrap();
        if promoted {
            world.promote();
            for _ in 0..3 {
                world.run("deployment-watcher");
                world.heal();
            }
        }
        world.change(|job| job.task_groups[0].tasks[0].user = "third".into());
        world.run("job-register");
        assert_eq!(world.live().contains(&canary), promoted);
    }
}

#[test]
fn a_canary_that_is_lost_once_it_was_promoted_is_replaced_as_any_other() {
    let mut world = with_a_canary(5, 3);
    let is_canary = |id: &String| world.alloc(id).is_canary();
    let canary = world.live().into_iter().find(is_canary).unwrap();
    world.promote();
    let at = world.alloc(&canary).node_id;
    world.node_status(&at, "down");
    let outcome = world.run("node-update");
    assert_eq!(outcome.desired["g"].canary, 0);
    assert_eq!(versions(&world), [(0, false), (0, false), (1, false)]);
}

#[test]
fn canaries_of_a_deployment_that_was_there_before_them_are_kept_with_it() {
    let mut spec = job("service", 3);
    spec.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(5, spec);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    let mut next = world.job();
    next.task_groups[0].tasks[0].user = "other".into();
    let state = DeploymentState {
        desired_total: 3,
        ..DeploymentState::default()
    };
    let made = Deployment {
        id: "00000000-0000-0000-0000-00000000000d".into(),
        namespace: next.namespace.clone(),
        job_id: next.id.clone(),
        status: "running".into(),
        task_groups: [("g", state)].into(),
        ..Deployment::default()
    };
    world.apply(JobRegistered {
        job: Arc::new(next),
        deployment: Some(made.clone()),
        ..JobRegistered::default()
    });
    world.run("job-register");
    let deployment = world.deployment();
    assert_eq!(deployment.id, made.id);
    let state = &deployment.task_groups["g"];
    let canaries = (state.desired_canaries, state.placed_canaries.len());
    assert_eq!(canaries, (1, 1));
    assert_eq!(
        versions(&world),
        [(0, false), (0, false), (0, false), (1, true)]
    );
}

#[test]
fn a_deployment_goes_on_as_long_as_anything_is_left_to_do() {
    for lost in [false, true] {
        let mut spec = job("service", 2);
        spec.task_groups[0].update = Some(update(1, 0));
        let mut world = World::new(3, spec);
        world.run("job-register");
        world.heal();
        let id = world.live()[0].clone();
        let at = world.alloc(&id).node_id;
        if lost {
            world.node_status(&at, "down");
        } else {
            world.ineligible(&at);
            world.client(&id, |alloc| alloc.desired_transition.migrate = Some(true));
        }
        let outcome = world.run("node-update");
        let ends = &outcome.plan.deployment_updates;
        assert!(ends.is_empty(), "lost {lost}: {ends:?}");
        assert_eq!(world.live().len(), 2, "lost {lost}");
        world.heal();
        let outcome = world.run("deployment-watcher");
        let end = &outcome.plan.deployment_updates[0];
        assert_eq!(end.status, "successful", "lost {lost}");
    }
}

#[test]
fn what_is_planned_knows_the_deployment_there_is_and_the_version_there_would_be() {
    let world = with_a_version_half_rolled_out("paused");
    let known = world.job();
    let plan = |job: &Job, changed| {
        let snapshot = Snapshot::read(world.view()).unwrap();
        let planned = dry_run(&snapshot, job, changed, world.now).unwrap();
        (planned.plan, snapshot.index() + 1)
    };
    let (plan_of_known, _) = plan(&known, false);
    assert!(plan_of_known.is_empty(), "it is paused: {plan_of_known:?}");
    let mut next = known.clone();
    next.task_groups[0].tasks[0].user = "third".into();
    // What is submitted knows nothing of the job there is.
    next.create_index = 0;
    let mut new = known.clone();
    (new.id, new.version) = ("new".into(), 0);
    for (job, version, created) in [(next, 2, Some(known.create_index)), (new, 0, None)] {
        let (plan, index) = plan(&job, true);
        let deployment = plan.deployment.expect("a deployment");
        assert_eq!(deployment.job_version, version);
        assert_eq!(deployment.job_create_index, created.unwrap_or(index));
        assert_eq!(deployment.job_modify_index, index);
        assert_eq!(deployment.job_spec_modify_index, index);
    }
}

#[test]
fn a_version_has_one_deployment_whatever_happens_to_it_later() {
    let mut job = job("service", 3);
    job.task_groups[0].update = Some(update(1, 0));
    let mut world = World::new(4, job);
    let first = world.run("job-register").plan.deployment;
    assert!(first.is_some());
    world.heal();
    world.set_deployment("successful");
    let lost = world.alloc(&world.live()[0]).node_id;
    world.node_status(&lost, "down");
    let outcome = world.run("node-update");
    assert_eq!(outcome.desired["g"].place, 1);
    assert_eq!(outcome.plan.deployment, None);
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    let next = world.run("job-register").plan.deployment;
    assert_eq!(next.map(|next| next.job_version), Some(1));
}

/// An operator drains a node: what is on it gets the order to move, so many at a time, and ends.
pub(crate) fn drain(world: &mut World, node: &str, at_once: usize) {
    world.ineligible(node);
    for round in 0.. {
        assert!(round < 1_000, "it is never empty");
        let live = world.live();
        let on_it = |id: &&String| world.alloc(id).node_id == node;
        let moving: Vec<String> = live.iter().filter(on_it).take(at_once).cloned().collect();
        if moving.is_empty() {
            return;
        }
        for id in &moving {
            world.client(id, |alloc| alloc.desired_transition.migrate = Some(true));
        }
        world.run("node-drain");
        for id in &moving {
            world.client(id, |alloc| alloc.client_status = "complete".into());
        }
        world.heal();
    }
}

#[test]
fn a_drain_while_canaries_are_out_leaves_the_count_to_other_nodes() {
    for at_once in [1, 4] {
        let mut world = with_a_canary(2, 3);
        assert_eq!(
            versions(&world),
            [(0, false), (0, false), (0, false), (1, true)]
        );
        let node = world.alloc(&world.live()[0]).node_id;
        drain(&mut world, &node, at_once);
        world.run("deployment-watcher");
        assert_eq!(
            versions(&world),
            [(0, false), (0, false), (0, false), (1, true)],
            "{at_once} at once"
        );
        world.heal();
        assert!(world.run("deployment-watcher").plan.is_empty());
    }
}

#[test]
fn a_drain_of_the_only_node_while_canaries_are_out_is_made_good_after_it() {
    for at_once in [1, 4] {
        let mut world = with_a_canary(1, 3);
        let node = world.alloc(&world.live()[0]).node_id;
        drain(&mut world, &node, at_once);
        assert_eq!(versions(&world), []);
        let waiting = world.run("node-update");
        assert_eq!(waiting.finished.queued_allocations["g"], 4, "it is said");
        assert!(waiting.blocked.is_some(), "and waited for");
        let others = waiting.failed["g"].coalesced_failures;
        assert_eq!(others, 3, "of both versions");
        world.eligible(&node);
        world.run("queued-allocs");
        assert_eq!(
            versions(&world),
            [(0, false), (0, false), (0, false), (1, true)],
            "{at_once} at once"
        );
        // The new canary is promoted as the first one could have been.
        world.heal();
        world.promote();
        for _ in 0..3 {
            world.run("deployment-watcher");
            world.heal();
        }
        assert_eq!(versions(&world), [(1, false), (1, false), (1, false)]);
    }
}

#[test]
fn a_version_that_was_given_up_leaves_the_former_one_its_count() {
    let mut world = with_a_canary(1, 3);
    let node = world.alloc(&world.live()[0]).node_id;
    drain(&mut world, &node, 1);
    world.fail_deployment();
    world.eligible(&node);
    world.run("deployment-watcher");
    assert_eq!(versions(&world), [(0, false), (0, false), (0, false)]);
}

/// A service of three on one node, whose next version was given up or held after one of them.
fn with_a_version_half_rolled_out(status: &str) -> World {
    let mut job = job("service", 3);
    job.task_groups[0].update = Some(update(1, 0));
    let mut world = World::new(1, job);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    world.run("job-register");
    world.set_deployment(status);
    assert!(world.run("deployment-watcher").plan.is_empty());
    assert_eq!(versions(&world), [(0, false), (0, false), (1, false)]);
    world
}

#[test]
fn a_drain_of_the_only_node_is_made_good_after_a_rolling_version_failed() {
    for status in ["failed", "paused"] {
        for at_once in [1, 4] {
            let mut world = with_a_version_half_rolled_out(status);
            let node = world.alloc(&world.live()[0]).node_id;
            drain(&mut world, &node, at_once);
            assert_eq!(versions(&world), []);
            let waiting = world.run("node-update");
            assert_eq!(waiting.finished.queued_allocations["g"], 3, "it is said");
            assert!(waiting.blocked.is_some(), "and waited for");
            world.eligible(&node);
            world.run("queued-allocs");
            // As what had found another node at once would have: with the job's own version.
            let wanted = [(1, false), (1, false), (1, false)];
            assert_eq!(versions(&world), wanted, "{status}, {at_once} at once");
            assert!(world.run("node-update").plan.is_empty());
        }
    }
}

#[test]
fn the_loss_of_the_only_node_is_made_good_after_a_version_failed() {
    let mut world = with_a_version_half_rolled_out("failed");
    let node = world.alloc(&world.live()[0]).node_id;
    world.node_status(&node, "down");
    let waiting = world.run("node-update");
    assert!(waiting.blocked.is_some());
    assert_eq!(versions(&world), []);
    world.node_status(&node, "ready");
    world.run("node-update");
    assert_eq!(versions(&world), [(1, false), (1, false), (1, false)]);
}

#[test]
fn what_a_first_version_never_placed_is_not_placed_once_it_failed() {
    let mut job = job("service", 3);
    job.task_groups[0].update = Some(update(1, 0));
    let resources = job.task_groups[0].tasks[0].resources.as_mut().unwrap();
    resources.cpu = 1_500;
    let mut world = World::new(1, job);
    world.run("job-register");
    assert_eq!(versions(&world), [(0, false), (0, false)]);
    world.fail_deployment();
    world.add_node(drover_testkit::fixtures::node(1));
    world.run("queued-allocs");
    assert_eq!(versions(&world), [(0, false), (0, false)]);
    // What it had placed comes back all the same.
    for number in [0, 1] {
        let node = drover_testkit::fixtures::node(number).id;
        drain(&mut world, &node, 4);
    }
    assert_eq!(versions(&world), []);
    world.eligible(&drover_testkit::fixtures::node(0).id);
    world.run("queued-allocs");
    assert_eq!(versions(&world), [(0, false), (0, false)]);
}

/// One allocation of the former version is stopped; what replaces it is placed.
pub(crate) fn stop_one_of_the_former(world: &mut World) {
    let live = world.live();
    let mut former = live.iter().filter(|id| !world.alloc(id).is_canary());
    let id = former.next().unwrap().clone();
    world.client(&id, |alloc| alloc.desired_transition.migrate = Some(true));
    world.run("alloc-stop");
    world.client(&id, |alloc| alloc.client_status = "complete".into());
}

#[test]
fn what_runs_the_former_version_is_placed_as_that_asks() {
    let mut spec = job("service", 2);
    let group = &mut spec.task_groups[0];
    group.update = Some(update(1, 1));
    let port = Port {
        label: "http".into(),
        ..Port::default()
    };
    group.networks = vec![NetworkResource {
        dynamic_ports: vec![port].into(),
        ..NetworkResource::default()
    }]
    .into();
    let mut world = World::new(2, spec);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| {
        let group = &mut job.task_groups[0];
        group.networks = Vec::new().into();
        group.tasks[0].name = "new".into();
        let resources = group.tasks[0].resources.as_mut().unwrap();
        (resources.cpu, resources.memory_mb) = (333, 77);
    });
    world.run("job-register");
    world.heal();
    let placed = |world: &World| {
        let live = world.live();
        let mut placed: Vec<(u64, String, i64, usize)> = live
            .iter()
            .map(|id| {
                let alloc = world.alloc(id);
                let given = alloc.allocated_resources.unwrap();
                let (name, task) = given.tasks.iter().next().unwrap();
                let version = alloc.job.as_ref().unwrap().version;
                let ports = given.shared.ports.len();
                (version, name.clone(), task.cpu.cpu_shares, ports)
            })
            .collect();
        placed.sort();
        placed
    };
    let old = (0, "t".to_owned(), 20, 1);
    let wanted = [old.clone(), old, (1, "new".to_owned(), 333, 0)];
    assert_eq!(placed(&world), wanted);
    stop_one_of_the_former(&mut world);
    assert_eq!(placed(&world), wanted);
    // The same for what is brought back after the only node was away.
    for number in 0..2 {
        drain(&mut world, &drover_testkit::fixtures::node(number).id, 4);
    }
    assert_eq!(placed(&world), []);
    world.eligible(&drover_testkit::fixtures::node(0).id);
    world.run("queued-allocs");
    assert_eq!(placed(&world), wanted);
}

#[test]
fn a_canary_without_a_place_keeps_the_former_version_from_none() {
    let mut spec = job("service", 2);
    spec.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(2, spec);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| {
        let resources = job.task_groups[0].tasks[0].resources.as_mut().unwrap();
        resources.memory_mb = 900_000;
    });
    let outcome = world.run("job-register");
    assert!(
        outcome.blocked.is_some(),
        "there is no place for the canary"
    );
    assert_eq!(versions(&world), [(0, false), (0, false)]);
    for _ in 0..3 {
        stop_one_of_the_former(&mut world);
        assert_eq!(versions(&world), [(0, false), (0, false)]);
    }
    let outcome = world.run("node-update");
    assert_eq!(outcome.finished.queued_allocations["g"], 1, "the canary");
}

#[test]
fn more_that_a_new_version_asks_for_waits_for_its_promotion() {
    let mut job = job("service", 2);
    job.task_groups[0].update = Some(update(1, 1));
    let mut world = World::new(3, job);
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    world.change(|job| {
        job.task_groups[0].count = 4;
        job.task_groups[0].tasks[0].user = "other".into();
    });
    world.run("job-register");
    world.heal();
    world.run("deployment-watcher");
    assert_eq!(versions(&world), [(0, false), (0, false), (1, true)]);
}
