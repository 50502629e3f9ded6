//! Stories of new versions: step by step, with canaries, healthy or not.

use std::collections::BTreeSet;

use super::scenario_test::names;
use super::testing::{World, job, update};

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
    assert_eq!(world.live().len(), 3);
}
