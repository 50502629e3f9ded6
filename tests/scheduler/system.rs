//! Stories of system jobs: on every node that may run them.

use drover_events::gojson::Time;
use drover_events::model::{Constraint, UpdateStrategy};
use drover_projections::tables::evals::Evals;

use super::world::World;
use drover_testkit::fixtures::{SECOND, job, node};

fn nodes_of(world: &World) -> Vec<String> {
    world
        .live()
        .iter()
        .map(|id| world.alloc(id).node_name.clone())
        .collect()
}

#[test]
fn a_system_job_runs_on_every_node_that_may() {
    let mut job = job("system", 1);
    job.constraints = vec![Constraint {
        l_target: "${attr.kernel.name}".into(),
        r_target: "linux".into(),
        operand: "=".into(),
    }]
    .into();
    let mut world = World::new(3, job);
    let mut other = node(8);
    other.attributes.insert("kernel.name", "plan9".to_owned());
    other.computed_class = "v1:2".into();
    world.add_node(other);
    let outcome = world.run("job-register");
    assert_eq!(outcome.desired["g"].place, 3);
    assert!(
        outcome.failed.is_empty(),
        "a node that may not run it is no failure"
    );
    assert!(world.run("node-update").plan.is_empty());

    world.add_node(node(9));
    assert_eq!(world.run("node-update").desired["g"].place, 1);
    world.node_status(&node(9).id, "down");
    world.run("node-update");
    assert_eq!(world.live().len(), 3);

    let failed = world.live()[0].clone();
    world.fail(&failed);
    assert_eq!(
        world.run("alloc-failure").desired["g"].place,
        1,
        "it runs again at once"
    );

    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 1);
    assert_eq!(world.run("job-register").desired["g"].in_place_update, 3);
    world.change(|job| {
        job.update.max_parallel = 2;
        job.task_groups[0].tasks[0].user = "other".into();
    });
    let outcome = world.run("job-register");
    assert_eq!(
        (
            outcome.desired["g"].destructive_update,
            outcome.desired["g"].ignore
        ),
        (2, 1)
    );
    world.change(|job| job.stop = true);
    world.run("job-deregister");
    assert!(world.live().is_empty());
}

#[test]
fn a_changed_system_job_reaches_all_its_nodes_so_many_at_a_time() {
    let mut world = World::new(5, job("system", 1));
    world.run("job-register");
    world.change(|job| {
        job.update.max_parallel = 2;
        job.update.stagger = 30 * SECOND;
        job.task_groups[0].tasks[0].user = "other".into();
    });
    let mut outcome = world.run("job-register");
    for _ in 0..2 {
        assert_eq!(outcome.desired["g"].destructive_update, 2);
        let next = outcome.next.expect("three and then one are left");
        let done = world.row::<Evals>(outcome.finished.id.as_str()).unwrap();
        assert_eq!(
            (done.status.as_str(), &done.next_eval),
            ("complete", &next.id)
        );
        let next = world.row::<Evals>(next.id.as_str()).unwrap();
        assert_eq!(
            (next.triggered_by.as_str(), next.status.as_str()),
            ("rolling-update", "pending")
        );
        assert_eq!(next.previous_eval, done.id);
        assert_eq!(next.wait, 30 * SECOND);
        assert_eq!(next.wait_until, Time(world.now + 30 * SECOND));
        world.now += 30 * SECOND;
        outcome = world.run_eval(&next);
    }
    let desired = &outcome.desired["g"];
    assert_eq!((desired.destructive_update, desired.ignore), (1, 4));
    assert_eq!(outcome.next, None);
    assert_eq!(world.live().len(), 5);
    assert!(world.run("node-update").plan.is_empty());
}

#[test]
fn a_group_of_a_system_job_is_updated_as_it_says_itself() {
    let mut spec = job("system", 1);
    let mut all = spec.task_groups[0].clone();
    all.name = "all".into();
    spec.task_groups = vec![spec.task_groups[0].clone(), all].into();
    let mut world = World::new(3, spec);
    world.run("job-register");
    world.change(|job| {
        job.update.max_parallel = 2;
        job.update.stagger = SECOND;
        job.task_groups[0].update = Some(UpdateStrategy {
            max_parallel: 1,
            stagger: 60 * SECOND,
            ..UpdateStrategy::default()
        });
        job.task_groups[1].update = Some(UpdateStrategy::default());
        job.task_groups[0].tasks[0].user = "other".into();
        job.task_groups[1].tasks[0].user = "other".into();
    });
    let outcome = world.run("job-register");
    assert_eq!(outcome.desired["g"].destructive_update, 1);
    assert_eq!(outcome.desired["all"].destructive_update, 3);
    assert_eq!(outcome.next.map(|next| next.wait), Some(60 * SECOND));
}

#[test]
fn a_sysbatch_job_is_done_once_on_every_node() {
    let mut world = World::new(2, job("sysbatch", 1));
    world.run("job-register");
    assert_eq!(nodes_of(&world).len(), 2);
    world.all_are("complete");
    assert!(world.run("node-update").plan.is_empty());
    world.change(|job| job.task_groups[0].tasks[0].user = "other".into());
    assert_eq!(
        world.run("job-register").desired["g"].place,
        2,
        "a new version runs again"
    );
}

#[test]
fn a_system_job_without_room_says_so() {
    let mut job = job("system", 1);
    job.task_groups[0].tasks[0]
        .resources
        .as_mut()
        .unwrap()
        .memory_mb = 100_000;
    let mut world = World::new(2, job);
    let outcome = world.run("job-register");
    assert_eq!(outcome.finished.queued_allocations["g"], 2);
    assert_eq!(
        outcome.failed["g"].dimension_exhausted.get("memory"),
        Some(&2)
    );
    assert!(outcome.blocked.is_some());
}

#[test]
fn a_system_job_that_no_node_may_run_says_why() {
    let mut spec = job("system", 1);
    spec.constraints = vec![Constraint {
        l_target: "${attr.kernel.name}".into(),
        r_target: "plan9".into(),
        operand: "=".into(),
    }]
    .into();
    let outcome = World::new(2, spec).run("job-register");
    let metric = &outcome.failed["g"];
    assert_eq!((metric.nodes_evaluated, metric.nodes_filtered), (2, 2));
    for reason in ["${attr.kernel.name} = plan9", "computed class ineligible"] {
        let nodes = metric.constraint_filtered.get(reason);
        assert_eq!(nodes, Some(&1), "{reason}");
    }
}

#[test]
fn what_an_operator_stops_of_a_system_job_comes_again_by_either_request() {
    let mut world = World::new(2, job("system", 1));
    world.run("job-register");
    world.all_are("running");
    for migrates in [true, false] {
        let id = world.live()[0].clone();
        world.client(&id, |alloc| {
            let request = &mut alloc.desired_transition;
            request.migrate = Some(migrates);
            request.reschedule = Some(!migrates);
            request.force_reschedule = Some(!migrates);
        });
        let outcome = world.run("alloc-stop");
        let desired = &outcome.desired["g"];
        assert_eq!((desired.migrate, desired.place), (1, 1), "{migrates}");
        let old = world.alloc(&id);
        assert_eq!(old.desired_description, "alloc is being migrated");
        assert_eq!(world.live().len(), 2, "{migrates}");
    }
}
