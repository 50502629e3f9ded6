//! What a job's end takes with it and what stays; what evaluations of its changes name.

use drover_events::model::{Deployment, ScalingPolicy};
use drover_events::plan::PlanApplied;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::scaling_policies::ScalingPolicies;

use super::*;
use crate::testing::{World, id, job};
use drover_error::Code;

fn register(spec: Job, eval: u32) -> RegisterJob {
    RegisterJob {
        job: spec,
        eval_id: id(eval),
        ..RegisterJob::default()
    }
}

fn stop(purge: bool) -> DeregisterJob {
    DeregisterJob {
        namespace: "default".into(),
        job_id: "web".into(),
        purge,
        eval_id: id(9),
        ..DeregisterJob::default()
    }
}

fn deploy(world: &mut World, number: u32, job_id: &str, status: &str) {
    let deployment = Deployment {
        id: id(number),
        namespace: "default".into(),
        job_id: job_id.into(),
        status: status.into(),
        ..Deployment::default()
    };
    world.given(PlanApplied {
        deployment: Some(deployment),
        ..PlanApplied::default()
    });
}

fn eval_names(world: &World, number: u32) -> String {
    world.row::<Evals>(&id(number)).unwrap().deployment_id
}

#[test]
fn a_stopped_job_keeps_its_scaling_policies_disabled_and_has_them_back() {
    let mut world = World::new();
    world.raise();
    let mut scaled = job("web");
    scaled.task_groups[0].scaling = Some(ScalingPolicy {
        max: 5,
        enabled: true,
        ..ScalingPolicy::default()
    });
    world.done(&register(scaled.clone(), 1));
    let policies = |world: &World| {
        let view = world.view();
        let rows = view.scan::<ScalingPolicies>(Scan::all());
        let rows = rows.map(Result::unwrap);
        rows.map(|row| (row.id, row.enabled)).collect::<Vec<_>>()
    };
    let (policy, enabled) = policies(&world).remove(0);
    assert!(enabled);
    world.done(&stop(false));
    assert_eq!(policies(&world), [(policy.clone(), false)]);
    world.done(&register(scaled, 2));
    assert_eq!(policies(&world), [(policy, true)], "the same one, in force");
    world.done(&stop(true));
    assert!(policies(&world).is_empty(), "it goes with its job");
}

#[test]
fn deployments_of_a_purged_job_go_with_it() {
    let mut world = World::new();
    world.done(&register(job("web"), 1));
    world.done(&register(job("other"), 2));
    for (number, job, status) in [
        (30, "web", "successful"),
        (31, "web", "running"),
        (32, "other", "failed"),
    ] {
        deploy(&mut world, number, job, status);
    }
    world.done(&stop(false));
    assert!(
        world.row::<Deployments>(&id(30)).is_some(),
        "it is only stopped"
    );
    world.done(&stop(true));
    let left = |world: &World| {
        let view = world.view();
        let rows = view.scan::<Deployments>(Scan::all());
        rows.map(|row| row.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(left(&world), [id(32)]);
    assert!(world.row::<Jobs>(("default", "web")).is_none());
    // Garbage collection takes them as well.
    let index = world
        .row::<Jobs>(("default", "other"))
        .unwrap()
        .modify_index;
    world.done(&PurgeJobs {
        jobs: vec![("default".into(), "other".into(), index)],
    });
    assert!(left(&world).is_empty());
    assert!(world.row::<Jobs>(("default", "other")).is_none());
}

#[test]
fn evaluations_of_reverts_stops_and_wishes_name_the_deployment_that_goes_on() {
    let mut world = World::new();
    world.done(&register(job("web"), 1));
    assert_eq!(eval_names(&world, 1), "");
    deploy(&mut world, 30, "web", "successful");
    deploy(&mut world, 31, "web", "running");
    world.done(&EvaluateJob {
        namespace: "default".into(),
        job_id: "web".into(),
        force_reschedule: false,
        eval_id: id(2),
    });
    assert_eq!(eval_names(&world, 2), id(31));
    let mut changed = job("web");
    changed.priority = 70;
    world.done(&RegisterJob {
        names_deployment: true,
        ..register(changed.clone(), 3)
    });
    assert_eq!(eval_names(&world, 3), id(31));
    changed.priority = 71;
    world.done(&register(changed, 4));
    assert_eq!(eval_names(&world, 4), "", "a registration names none");
    world.done(&stop(false));
    assert_eq!(eval_names(&world, 9), id(31));
}

#[test]
fn an_evaluation_has_the_highest_priority_that_is_configured_and_no_higher() {
    let mut world = World::new();
    let with = |priority, most| RegisterJob {
        eval_priority: priority,
        max_priority: most,
        ..register(job("web"), 1)
    };
    for (priority, most, text) in [
        (
            101,
            0,
            "Eval priority must be between 1 and 100 inclusively",
        ),
        (
            201,
            200,
            "Eval priority must be between 1 and 200 inclusively",
        ),
        (
            -1,
            200,
            "Eval priority must be between 1 and 200 inclusively",
        ),
    ] {
        let refused = (Code::BadRequest, text.to_owned());
        assert_eq!(world.refusal(&with(priority, most)), refused);
        let stop = DeregisterJob {
            eval_priority: priority,
            max_priority: most,
            ..stop(false)
        };
        assert_eq!(world.refusal(&stop), refused);
    }
    world.done(&with(150, 200));
    assert_eq!(world.row::<Evals>(&id(1)).unwrap().priority, 150);
    world.done(&DeregisterJob {
        eval_priority: 200,
        max_priority: 200,
        ..stop(false)
    });
    assert_eq!(world.row::<Evals>(&id(9)).unwrap().priority, 200);
}

#[test]
fn a_version_is_marked_stable_and_unstable_again() {
    let mut world = World::new();
    world.done(&register(job("web"), 1));
    let mark = |version, stable| SetJobStability {
        namespace: "default".into(),
        job_id: "web".into(),
        version,
        stable,
    };
    for stable in [true, false] {
        world.done(&mark(0, stable));
        let version = world.row::<JobVersions>(("default", "web", 0)).unwrap();
        assert_eq!(version.stable, stable);
        assert_eq!(
            world.row::<Jobs>(("default", "web")).unwrap().stable,
            stable
        );
    }
    let unknown = world.refusal(&mark(7, true)).1;
    assert!(unknown.contains("at version 7 not found"), "{unknown}");
}
