//! What the rows of allocations say after a plan: what it brings, and what stays of before.

use drover_events::gojson::Time;
use drover_events::model::{
    AllocDeploymentStatus, AllocNetworkStatus, AllocState, Deployment, DeploymentState,
    DeploymentStatusUpdate, RescheduleTracker,
};
use drover_events::plan::*;

use super::*;
use crate::tables::allocs::{AllocRow, Allocs};
use crate::tables::deployments::Deployments;
use crate::tables::evals::Evals;
use crate::tables::jobs::Jobs;
use crate::tables::node_use::NodeUses;

fn get(world: &World, number: u32) -> AllocRow {
    world.view().get::<Allocs>(&id(number)).unwrap().unwrap()
}

fn usage(world: &World) -> (u64, i64, i64) {
    let row = world.view().get::<NodeUses>(&id(10)).unwrap().unwrap();
    (row.allocs, row.cpu, row.memory_mb)
}

fn health(healthy: Option<bool>) -> Option<AllocDeploymentStatus> {
    Some(AllocDeploymentStatus {
        healthy,
        timestamp: Time(START),
        ..Default::default()
    })
}

fn plan(allocs: Vec<Allocation>, at: i64) -> PlanApplied {
    PlanApplied {
        updated_at: START + at,
        ..placed(allocs, 2)
    }
}

#[test]
fn a_placement_is_pending_and_of_its_job_s_version() {
    let mut world = running_job();
    world.given(submitted(job("web")));
    let mut new = alloc(42, "web", 10);
    new.client_status = String::new();
    new.job = Some(Box::new(job("web")).into());
    new.previous_allocation = id(40);
    new.deployment_status = health(None);
    let mut placing = plan(vec![new], 5);
    placing.placed[0].job_modify_index = 4;
    world.given(placing);
    let row = get(&world, 42);
    assert_eq!((row.client_status.as_str(), &row.job), ("pending", &None));
    assert_eq!((row.create_time, row.modify_time), (START + 5, START + 5));
    assert_eq!((row.job_version, row.job_modify_index), (1, 4));
    let status = row.deployment_status.as_ref().unwrap();
    assert_eq!(status.modify_index, world.index);
    let former = get(&world, 40);
    assert_eq!(former.next_allocation, id(42));
    assert_eq!((former.modify_index, former.alloc_modify_index), (5, 3));
}

#[test]
fn an_update_in_place_keeps_what_is_the_client_s_and_who_follows() {
    let mut world = running_job();
    let mut next = alloc(42, "web", 10);
    next.previous_allocation = id(40);
    world.given(plan(vec![next], 1));
    let mut report = super::allocs::update(40, "running");
    let network = AllocNetworkStatus {
        address: "10.1.0.5".into(),
        ..Default::default()
    };
    report.updates[0].network_status = Some(network);
    report.updates[0].client_description = "Tasks are running".into();
    world.given(report);
    let before = get(&world, 40);
    world.given(plan(vec![alloc(40, "web", 10)], 9));
    let after = get(&world, 40);
    assert_eq!(after.create_time, before.create_time);
    assert_eq!(after.next_allocation, id(42));
    assert!(after.network_status.is_some());
    assert_eq!(after.network_status, before.network_status);
    assert_eq!(after.client_status, "running");
    assert_eq!(after.client_description, "Tasks are running");
    // A server says of a client that is out of contact what the client cannot.
    for status in ["unknown", "lost"] {
        let mut given = alloc(40, "web", 10);
        given.client_status = status.into();
        given.client_description = "out of contact".into();
        world.given(plan(vec![given], 10));
        let row = get(&world, 40);
        assert_eq!(row.client_status, status);
        assert_eq!(row.client_description, "out of contact");
    }
}

#[test]
fn dep_07_a_plan_keeps_the_health_that_was_reported_in_the_same_deployment() {
    let mut world = running_job();
    let of = |deployment: u32, status| Allocation {
        deployment_id: id(deployment),
        deployment_status: status,
        ..alloc(40, "web", 10)
    };
    world.given(plan(vec![of(30, None)], 1));
    let mut report = super::allocs::update(40, "running");
    report.updates[0].deployment_status = health(Some(true));
    world.given(report);
    let reported = world.index;
    let mut canary = health(None);
    canary.as_mut().unwrap().canary = true;
    world.given(plan(vec![of(30, canary)], 2));
    let kept = AllocDeploymentStatus {
        canary: true,
        modify_index: reported,
        ..health(Some(true)).unwrap()
    };
    assert_eq!(get(&world, 40).deployment_status, Some(kept.clone()));
    // The same once more is no change of it.
    world.given(plan(vec![of(30, Some(kept.clone()))], 2));
    assert_eq!(get(&world, 40).deployment_status, Some(kept));
    world.given(plan(vec![of(31, health(None))], 3));
    let new = AllocDeploymentStatus {
        modify_index: world.index,
        ..health(None).unwrap()
    };
    assert_eq!(
        get(&world, 40).deployment_status,
        Some(new),
        "nothing is known of its health in another deployment"
    );
}

#[test]
fn what_a_plan_stops_tells_why_and_what_it_was() {
    let mut world = running_job();
    let states = vec![AllocState {
        value: "unknown".into(),
        ..Default::default()
    }];
    let first = StoppedAlloc {
        id: id(40),
        desired_description: "alloc is lost".into(),
        client_status: "lost".into(),
        followup_eval_id: id(7),
        alloc_states: Some(states.clone()),
        reschedule_tracker: Some(RescheduleTracker::default()),
    };
    let plan = |stopped| PlanApplied {
        stopped: vec![stopped],
        updated_at: START + 9,
        evals: vec![eval(8, "web", "pending")],
        ..Default::default()
    };
    world.given(plan(first));
    let row = get(&world, 40);
    assert_eq!(row.desired_description, "alloc is lost");
    assert_eq!(
        (&row.client_status, &row.followup_eval_id),
        (&"lost".to_owned(), &id(7))
    );
    assert_eq!(row.alloc_states, states.into());
    assert_eq!(row.reschedule_tracker, Some(RescheduleTracker::default()));
    assert_eq!(row.modify_time, START + 9);
    assert!(world.view().get::<Evals>(&id(8)).unwrap().is_some());
    // What it does not say stays.
    world.given(plan(StoppedAlloc {
        id: id(40),
        ..Default::default()
    }));
    let again = get(&world, 40);
    assert_eq!(again.client_status, row.client_status);
    assert_eq!(again.followup_eval_id, row.followup_eval_id);
    assert_eq!(again.alloc_states, row.alloc_states);
    assert_eq!(again.reschedule_tracker, row.reschedule_tracker);
}

#[test]
fn what_a_plan_preempts_names_who_took_its_place() {
    let mut world = running_job();
    world.given(PlanApplied {
        preempted: vec![PreemptedAlloc {
            id: id(40),
            preempted_by: id(99),
        }],
        ..Default::default()
    });
    assert_eq!(get(&world, 40).preempted_by_allocation, id(99));
}

#[test]
fn a_plan_ends_the_deployments_that_it_names() {
    let mut world = running_job();
    let running = Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "running".into(),
        task_groups: BTreeMap::from([("g".to_owned(), DeploymentState::default())]).into(),
        ..Default::default()
    };
    world.given(PlanApplied {
        deployment: Some(running),
        ..Default::default()
    });
    world.given(PlanApplied {
        deployment_updates: vec![DeploymentStatusUpdate {
            deployment_id: id(30),
            status: "cancelled".into(),
            status_description: "a newer version".into(),
            updated_at: START + 9,
        }],
        ..Default::default()
    });
    let row = world.view().get::<Deployments>(&id(30)).unwrap().unwrap();
    assert_eq!(row.status, "cancelled");
    assert_eq!(row.status_description, "a newer version");
    assert_eq!((row.modify_index, row.modify_time), (5, START + 9));
}

#[test]
fn what_an_allocation_held_and_kept_alive_goes_with_its_row() {
    let mut world = running_job();
    world.given(super::allocs::update(41, "complete"));
    world.given(drover_events::eval::EvalsDeleted {
        alloc_ids: vec![id(40)],
        ..Default::default()
    });
    assert_eq!(usage(&world), (0, 0, 0));
    let job = world.view().get::<Jobs>(("default", "web")).unwrap();
    assert_eq!(job.unwrap().status, "dead", "nothing of it runs any more");
}

#[test]
fn what_an_allocation_holds_follows_what_it_is_given() {
    let mut world = running_job();
    let mut larger = alloc(40, "web", 10);
    let mut resources = larger.allocated_resources.clone().unwrap();
    let task = resources.tasks.get_mut("t").unwrap();
    task.cpu.cpu_shares = 700;
    task.memory.memory_mb = 300;
    larger.allocated_resources = Some(resources);
    world.given(placed(vec![larger], 2));
    assert_eq!(usage(&world), (2, 1200, 556));
}

#[test]
fn a_stopped_system_job_runs_as_long_as_an_allocation_says_so() {
    let mut world = World::new();
    world.given(registered(node(10)));
    let mut system = job("web");
    system.r#type = "system".into();
    world.given(submitted(system));
    world.given(placed(vec![alloc(40, "web", 10)], 2));
    world.given(drover_events::job::JobDeregistered {
        namespace: "default".into(),
        job_id: "web".into(),
        ..Default::default()
    });
    let status = |world: &World| {
        let job = world.view().get::<Jobs>(("default", "web")).unwrap();
        job.unwrap().status
    };
    assert_eq!(status(&world), "dead");
    world.given(super::allocs::update(40, "running"));
    assert_eq!(status(&world), "running");
    world.given(super::allocs::update(40, "complete"));
    assert_eq!(status(&world), "dead");
}
