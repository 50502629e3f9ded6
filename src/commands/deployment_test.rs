//! What operators do to deployments, and what follows: in the words and with the answers that the
//! peer's clients read.

use drover_events::gojson::Time;
use drover_events::model::{AllocDeploymentStatus, Allocation, DeploymentState, JobSubmission};
use drover_events::plan::PlanApplied;
use drover_projections::Outcome;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::evals::Evals;

use super::super::job::{RegisterJob, SetJobStability};
use super::super::testing::{World, alloc, id, job, node, placed};
use super::*;
use crate::node::RegisterNode;

const MINUTE: i64 = 60_000_000_000;

/// A job of two versions, the first of them stable and with a source, and a deployment of the
/// second with two allocations.
fn deploying(state: DeploymentState) -> World {
    let mut world = World::new();
    world.raise();
    world.done(&RegisterNode {
        node: node(10),
        create_node_pool: true,
    });
    world.done(&RegisterJob {
        job: job("web"),
        submission: Some(JobSubmission {
            source: "job \"web\" {}".into(),
            format: "hcl2".into(),
            ..JobSubmission::default()
        }),
        eval_id: id(1),
        ..RegisterJob::default()
    });
    world.done(&SetJobStability {
        namespace: "default".into(),
        job_id: "web".into(),
        version: 0,
        stable: true,
    });
    let mut changed = job("web");
    changed.priority = 70;
    world.done(&RegisterJob {
        job: changed,
        eval_id: id(2),
        ..RegisterJob::default()
    });
    let spec = world.row::<Jobs>(("default", "web")).unwrap();
    let deployment = Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        job_version: 1,
        status: "running".into(),
        task_groups: BTreeMap::from([("g".to_owned(), state)]).into(),
        ..Deployment::default()
    };
    world.given(PlanApplied {
        deployment: Some(deployment),
        ..PlanApplied::default()
    });
    for number in [40, 41] {
        let one = Allocation {
            deployment_id: id(30),
            deployment_status: Some(AllocDeploymentStatus {
                canary: true,
                ..AllocDeploymentStatus::default()
            }),
            ..alloc(number, "web", 10)
        };
        world.given(placed(one, spec.job_modify_index));
    }
    world
}

fn timed() -> DeploymentState {
    DeploymentState {
        desired_total: 2,
        progress_deadline: 10 * MINUTE,
        ..DeploymentState::default()
    }
}

fn change(change: DeploymentChange) -> SetDeploymentStatus {
    SetDeploymentStatus {
        deployment_id: id(30),
        change,
        eval_id: id(3),
        reverted: Reverted::default(),
    }
}

fn health(healthy: &[u32], unhealthy: &[u32]) -> SetDeploymentAllocHealth {
    let ids = |numbers: &[u32]| numbers.iter().map(|number| id(*number)).collect();
    SetDeploymentAllocHealth {
        deployment_id: id(30),
        healthy: ids(healthy),
        unhealthy: ids(unhealthy),
        eval_id: id(4),
        reverted: Reverted::default(),
    }
}

fn promote() -> PromoteDeployment {
    PromoteDeployment {
        deployment_id: id(30),
        all: true,
        groups: Vec::new(),
        eval_id: id(5),
    }
}

fn get(world: &World) -> Deployment {
    world.row::<Deployments>(&id(30)).unwrap()
}

fn by(world: &World) -> Time {
    get(world).task_groups.get("g").unwrap().require_progress_by
}

#[test]
fn a_paused_deployment_has_its_time_from_now_on_and_again_when_it_goes_on() {
    let mut world = deploying(timed());
    let now = world.now();
    world.done(&change(DeploymentChange::Pause));
    let row = get(&world);
    assert_eq!(
        (row.status.as_str(), row.status_description.as_str()),
        ("paused", "Deployment is paused")
    );
    assert_eq!(by(&world), Time(now + 10 * MINUTE));
    assert!(
        world.row::<Evals>(&id(3)).is_none(),
        "nothing is to be placed"
    );
    let now = world.now();
    world.done(&change(DeploymentChange::Resume));
    assert_eq!(get(&world).status_description, "Deployment is running");
    assert_eq!(by(&world), Time(now + 10 * MINUTE));
    let eval = world.row::<Evals>(&id(3)).unwrap();
    assert_eq!(
        (eval.triggered_by.as_str(), eval.deployment_id),
        ("deployment-watcher", id(30))
    );
}

#[test]
fn a_promotion_of_a_paused_deployment_leaves_it_saying_so() {
    let mut world = deploying(DeploymentState {
        desired_canaries: 2,
        ..timed()
    });
    let refused = world.commit(&promote());
    let Outcome::Rejected(why) = refused else {
        panic!("its canaries are not healthy: {refused:?}");
    };
    assert!(
        format!("{why:?}").contains("has 0/2 healthy allocations"),
        "{why:?}"
    );
    world.done(&health(&[40, 41], &[]));
    world.done(&change(DeploymentChange::Pause));
    world.done(&promote());
    let row = get(&world);
    assert!(row.task_groups.get("g").unwrap().promoted);
    assert_eq!(row.status_description, "Deployment is paused");
    let promoted = world.row::<Allocs>(&id(40)).unwrap();
    assert!(!promoted.alloc.is_canary());
    world.done(&change(DeploymentChange::Resume));
    assert_eq!(get(&world).status_description, "Deployment is running");
    // One that runs says that it runs.
    let mut world = deploying(DeploymentState {
        desired_canaries: 2,
        ..timed()
    });
    world.done(&health(&[40, 41], &[]));
    world.done(&promote());
    assert_eq!(get(&world).status_description, "Deployment is running");
    assert!(world.row::<Evals>(&id(5)).is_some());
}

#[test]
fn a_deployment_that_fails_names_the_version_it_goes_back_to_and_brings_its_source() {
    let reverts = DeploymentState {
        auto_revert: true,
        ..timed()
    };
    let by_operator = change(DeploymentChange::Fail);
    let by_health = health(&[], &[40]);
    type Done<'a> = (&'a Reverted, Box<dyn Fn(&mut World)>);
    let ways: [Done<'_>; 2] = [
        (&by_operator.reverted, {
            let command = by_operator.clone();
            Box::new(move |world| drop(world.done(&command)))
        }),
        (&by_health.reverted, {
            let command = by_health.clone();
            Box::new(move |world| drop(world.done(&command)))
        }),
    ];
    for (reverted, fail) in ways {
        let mut world = deploying(reverts.clone());
        let now = world.now();
        fail(&mut world);
        assert_eq!(reverted.version(), Some(0));
        assert_eq!(get(&world).status, "failed");
        let again = world.row::<Jobs>(("default", "web")).unwrap();
        assert_eq!(
            (again.version, again.priority, again.submit_time),
            (2, 50, now),
            "submitted now, as what it was"
        );
        let source = world.row::<JobSubmissions>(("default", "web", 2)).unwrap();
        assert_eq!(source.source, "job \"web\" {}");
    }
    let mut world = deploying(timed());
    let stays = change(DeploymentChange::Fail);
    world.done(&stays);
    assert_eq!(stays.reverted.version(), None);
    assert_eq!(
        get(&world).status_description,
        "Deployment marked as failed"
    );
    assert!(world.row::<Evals>(&id(3)).is_some());
}

#[test]
fn health_is_set_by_hand_and_counted() {
    let mut world = deploying(timed());
    world.done(&health(&[40], &[]));
    let group = get(&world).task_groups.get("g").unwrap().clone();
    assert_eq!((group.healthy_allocs, group.unhealthy_allocs), (1, 0));
    let row = world.row::<Allocs>(&id(40)).unwrap();
    assert_eq!(row.alloc.health(), Some(true));
    assert_eq!(get(&world).status, "running");
    world.done(&health(&[], &[41]));
    assert_eq!(
        get(&world).status_description,
        "Failed due to unhealthy allocations"
    );
    let nothing = world.refusal(&health(&[], &[]));
    assert_eq!(
        nothing.1,
        "must specify at least one healthy/unhealthy allocation ID"
    );
}

#[test]
fn before_every_server_reads_the_new_fields_none_is_written() {
    let mut world = World::new();
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..RegisterJob::default()
    });
    world.given(PlanApplied {
        deployment: Some(Deployment {
            id: id(30),
            namespace: "default".into(),
            job_id: "web".into(),
            status: "running".into(),
            task_groups: BTreeMap::from([("g".to_owned(), timed())]).into(),
            ..Deployment::default()
        }),
        ..PlanApplied::default()
    });
    let event = world.event(&change(DeploymentChange::Pause));
    let drover_events::Event::DeploymentStatusUpdated(event) = event else {
        panic!("{event:?}");
    };
    assert!(event.progress_by.is_empty());
}
