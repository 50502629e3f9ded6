use drover_events::deployment::*;
use drover_events::gojson::Time;
use drover_events::model::{
    AllocDeploymentStatus, Deployment, DeploymentState, DeploymentStatusUpdate,
};

use super::*;
use crate::tables::allocs::Allocs;
use crate::tables::deployments::Deployments;
use crate::tables::job_versions::JobVersions;

fn deployment(canaries: i64) -> Deployment {
    let group = DeploymentState {
        desired_total: 2,
        desired_canaries: canaries,
        progress_deadline: 100,
        ..Default::default()
    };
    Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "running".into(),
        task_groups: BTreeMap::from([("g".to_owned(), group)]).into(),
        ..Default::default()
    }
}

/// A node, a job at index 2, and two allocations of a deployment at index 3.
fn deploying(canary: bool) -> World {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    let status = canary.then(|| AllocDeploymentStatus {
        canary: true,
        ..Default::default()
    });
    let allocs = [40, 41].map(|n| Allocation {
        deployment_id: id(30),
        deployment_status: status.clone(),
        ..alloc(n, "web", 10)
    });
    let mut plan = placed(allocs.to_vec(), 2);
    plan.deployment = Some(deployment(if canary { 2 } else { 0 }));
    world.given(plan);
    world
}

fn get(world: &World) -> Deployment {
    world.view().get::<Deployments>(&id(30)).unwrap().unwrap()
}

fn group(world: &World) -> DeploymentState {
    get(world).task_groups.get("g").unwrap().clone()
}

fn healthy(numbers: &[u32]) -> DeploymentAllocHealthUpdated {
    DeploymentAllocHealthUpdated {
        deployment_id: id(30),
        healthy: numbers.iter().map(|n| id(*n)).collect(),
        timestamp: START,
        ..Default::default()
    }
}

fn status(status: &str) -> DeploymentStatusUpdated {
    let update = DeploymentStatusUpdate {
        deployment_id: id(30),
        status: status.into(),
        updated_at: START,
        ..Default::default()
    };
    DeploymentStatusUpdated {
        update,
        ..Default::default()
    }
}

#[test]
fn placements_and_health_are_counted() {
    let mut world = deploying(false);
    assert_eq!(group(&world).placed_allocs, 2);
    let started = group(&world).require_progress_by;
    assert_eq!(
        started,
        Time(START + 3_000_000_000 + 100),
        "by the servers' time"
    );
    world.given(healthy(&[40]));
    world.given(healthy(&[40]));
    assert_eq!(group(&world).healthy_allocs, 1, "counted once");
    assert!(group(&world).require_progress_by > started);
    let unhealthy = DeploymentAllocHealthUpdated {
        unhealthy: vec![id(40)],
        ..healthy(&[])
    };
    world.given(unhealthy);
    assert_eq!(
        (group(&world).healthy_allocs, group(&world).unhealthy_allocs),
        (0, 1)
    );
    world.given(DeploymentAllocHealthUpdated {
        timestamp: START + 9,
        ..healthy(&[40])
    });
    assert_eq!(
        (group(&world).healthy_allocs, group(&world).unhealthy_allocs),
        (1, 0)
    );
    let row = get(&world);
    let now = now(&world);
    assert_eq!((row.modify_index, row.modify_time), (world.index, now));
    let alloc = world.view().get::<Allocs>(&id(40)).unwrap().unwrap();
    assert_eq!(
        (alloc.modify_index, alloc.alloc_modify_index),
        (world.index, 3),
        "the client is told nothing"
    );
    assert_eq!(alloc.modify_time, START + 9);
}

#[test]
fn dep_07_a_plan_does_not_take_back_what_clients_counted() {
    let mut world = deploying(false);
    let one_of_each = DeploymentAllocHealthUpdated {
        unhealthy: vec![id(41)],
        ..healthy(&[40])
    };
    world.given(one_of_each);
    let counted = group(&world);
    let counts = (counted.healthy_allocs, counted.unhealthy_allocs);
    assert_eq!((counts, counted.placed_allocs), ((1, 1), 2));
    let mut plan = placed(Vec::new(), 2);
    plan.deployment = Some(deployment(0));
    world.given(plan);
    assert_eq!(group(&world), counted, "its deadline too");
    let row = get(&world);
    assert_eq!((row.create_index, row.modify_index), (3, world.index));
    assert_eq!(row.modify_time, now(&world));
}

#[test]
fn dep_07_a_plan_does_not_take_back_canaries_and_their_promotion() {
    let mut world = deploying(true);
    let canaries = group(&world).placed_canaries.clone();
    let mut plan = placed(Vec::new(), 2);
    plan.deployment = Some(deployment(2));
    world.given(plan.clone());
    assert_eq!(group(&world).placed_canaries, canaries);
    assert!(!group(&world).promoted);
    world.given(healthy(&[40, 41]));
    world.given(DeploymentPromoted {
        deployment_id: id(30),
        all: true,
        promoted_at: START,
        ..Default::default()
    });
    world.given(plan);
    assert!(group(&world).promoted);
    assert_eq!(group(&world).placed_canaries, canaries);
}

#[test]
fn a_successful_deployment_makes_its_version_stable_and_ends() {
    let mut world = deploying(false);
    world.given(status("successful"));
    let version = world
        .view()
        .get::<JobVersions>(("default", "web", 0))
        .unwrap()
        .unwrap();
    assert!(version.stable);
    let text = format!(
        "Deployment \"{}\" has terminal status \"successful\":",
        id(30)
    );
    assert_eq!(world.refused(status("failed")), text);
    assert_eq!(world.refused(healthy(&[40])), text);
    let mut unknown = status("failed");
    unknown.update.deployment_id = id(31);
    let text = format!(
        "Deployment ID \"{}\" couldn't be updated as it does not exist",
        id(31)
    );
    assert_eq!(world.refused(unknown), text);
}

#[test]
fn a_pause_stops_the_clock_and_a_resume_starts_it_again() {
    let mut world = deploying(false);
    world.given(status("paused"));
    assert_eq!(group(&world).require_progress_by, Time::default());
    let unhealthy = DeploymentAllocHealthUpdated {
        unhealthy: vec![id(40)],
        ..healthy(&[])
    };
    world.given(unhealthy);
    assert_eq!(group(&world).require_progress_by, Time::default());
    world.given(status("running"));
    assert_eq!(group(&world).require_progress_by, Time(START + 100));
}

#[test]
fn a_status_that_resumes_nothing_leaves_the_deadline() {
    let mut world = deploying(false);
    let by = group(&world).require_progress_by;
    let mut again = status("running");
    again.update.status_description = "still so".into();
    again.update.updated_at = START + 7;
    world.given(again);
    assert_eq!(group(&world).require_progress_by, by);
    let row = get(&world);
    assert_eq!(row.status_description, "still so");
    assert_eq!(
        (row.modify_time, row.modify_index),
        (START + 7, world.index)
    );
}

#[test]
fn a_group_without_a_time_to_progress_in_has_no_deadline() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    let placing = Allocation {
        deployment_id: id(30),
        ..alloc(40, "web", 10)
    };
    let mut plan = placed(vec![placing], 2);
    let mut endless = deployment(0);
    if let Some(group) = endless.task_groups.get_mut("g") {
        group.progress_deadline = 0;
    }
    plan.deployment = Some(endless);
    world.given(plan);
    world.given(healthy(&[40]));
    world.given(status("paused"));
    world.given(status("running"));
    assert_eq!(group(&world).healthy_allocs, 1);
    assert_eq!(group(&world).require_progress_by, Time::default());
}

#[test]
fn canaries_are_promoted_once_they_are_healthy() {
    let mut world = deploying(true);
    assert_eq!(group(&world).placed_canaries.len(), 2);
    let promote = DeploymentPromoted {
        deployment_id: id(30),
        all: true,
        promoted_at: START,
        ..Default::default()
    };
    world.given(healthy(&[40]));
    let text = "Task group \"g\" has 1/2 healthy allocations";
    assert_eq!(world.refused(promote.clone()), text);
    world.given(healthy(&[41]));
    world.given(promote);
    assert!(group(&world).promoted);
    let row = world.view().get::<Allocs>(&id(40)).unwrap().unwrap();
    assert!(!row.is_canary());
}

#[test]
fn ev_18_health_of_a_foreign_allocation_is_refused() {
    let mut world = deploying(false);
    world.given(placed(vec![alloc(50, "web", 10)], 2));
    let text = format!(
        "alloc \"{}\" is not part of deployment \"{}\"",
        id(50),
        id(30)
    );
    assert_eq!(world.refused(healthy(&[50])), text);
    assert_eq!(
        world.refused(healthy(&[51])),
        format!("unknown alloc \"{}\"", id(51))
    );
}

#[test]
fn a_rollback_registers_the_older_version_again() {
    let mut world = deploying(false);
    let again = job("web");
    world.given(DeploymentStatusUpdated {
        job: Some(Arc::new(again)),
        ..status("failed")
    });
    let row = world
        .view()
        .get::<crate::tables::jobs::Jobs>(("default", "web"))
        .unwrap()
        .unwrap();
    assert_eq!(
        (row.version, row.stable, row.job_modify_index),
        (1, true, world.index)
    );
}
