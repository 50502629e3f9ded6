//! Samples of evaluations, plans, allocations and deployments.

use std::collections::BTreeMap;

use drover_events::alloc::*;
use drover_events::deployment::*;
use drover_events::eval::*;
use drover_events::gojson::Time;
use drover_events::model::*;
use drover_events::plan::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::id;
use super::job::job;

pub(super) fn eval() -> Evaluation {
    Evaluation {
        id: id(20),
        namespace: "default".into(),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        job_id: "web".into(),
        job_modify_index: 4700,
        status: "pending".into(),
        create_time: TIME,
        modify_time: TIME,
        ..Default::default()
    }
}

pub(super) fn deployment() -> Deployment {
    let group = DeploymentState {
        desired_total: 3,
        auto_revert: true,
        ..Default::default()
    };
    Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "running".into(),
        task_groups: BTreeMap::from([("g".to_owned(), group)]).into(),
        create_time: TIME,
        ..Default::default()
    }
}

fn status_update() -> DeploymentStatusUpdate {
    DeploymentStatusUpdate {
        deployment_id: id(30),
        status: "successful".into(),
        status_description: "Deployment completed successfully".into(),
        updated_at: TIME,
    }
}

fn plan() -> PlanApplied {
    let alloc = Allocation {
        id: id(40),
        namespace: "default".into(),
        eval_id: id(20),
        name: "web.g[0]".into(),
        node_id: id(10),
        node_name: "n1".into(),
        job_id: "web".into(),
        task_group: "g".into(),
        desired_status: "run".into(),
        client_status: "pending".into(),
        signing_key_id: id(3),
        ..Default::default()
    };
    let state = AllocState {
        field: 0,
        value: "unknown".into(),
        time: Time(TIME),
    };
    PlanApplied {
        plan_id: id(50),
        eval_id: id(20),
        decision: DecisionInputs {
            snapshot_index: 4710,
            now: TIME,
            seed: 7,
            scheduler_version: 1,
        },
        stopped: vec![StoppedAlloc {
            id: id(41),
            desired_description: "alloc not needed due to job update".into(),
            client_status: "lost".into(),
            followup_eval_id: id(21),
            alloc_states: Some(vec![state]),
            reschedule_tracker: Some(RescheduleTracker::default()),
        }],
        placed: vec![PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index: 4700,
        }],
        preempted: vec![PreemptedAlloc {
            id: id(42),
            preempted_by: id(40),
        }],
        deployment: Some(deployment()),
        deployment_updates: vec![status_update()],
        evals: vec![eval()],
        ineligible_nodes: vec![id(11)],
        updated_at: TIME,
    }
}

fn client_update() -> ClientAllocUpdate {
    let state = TaskState {
        state: "running".into(),
        restarts: 1,
        ..Default::default()
    };
    ClientAllocUpdate {
        id: id(40),
        client_status: "running".into(),
        client_description: "Tasks are running".into(),
        task_states: [("t".to_owned(), state)].into(),
        network_status: Some(AllocNetworkStatus {
            interface_name: "eth0".into(),
            ..Default::default()
        }),
        deployment_status: Some(AllocDeploymentStatus {
            healthy: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn event(kind: EventKind) -> Option<Event> {
    let evals = vec![eval()];
    Some(match kind {
        EventKind::EvalsUpserted => {
            let decision = Some(DecisionInputs {
                snapshot_index: 1,
                ..Default::default()
            });
            EvalsUpserted { evals, decision }.into()
        }
        EventKind::EvalsDeleted => EvalsDeleted {
            filter: "Status == \"complete\"".into(),
            filter_version: 1,
            page_token: format!("12.{}", id(20)),
            per_page: 7281,
            user_initiated: true,
            ..Default::default()
        }
        .into(),
        EventKind::PlanApplied => plan().into(),
        EventKind::AllocsUpdatedByClient => AllocsUpdatedByClient {
            updates: vec![client_update()],
            evals,
            updated_at: TIME,
            ..Default::default()
        }
        .into(),
        EventKind::AllocsDesiredTransitionUpdated => {
            let transition = DesiredTransition {
                migrate: Some(true),
                ..Default::default()
            };
            AllocsDesiredTransitionUpdated {
                transitions: [(id(40), transition)].into(),
                evals,
                updated_at: TIME,
            }
            .into()
        }
        EventKind::DeploymentStatusUpdated => DeploymentStatusUpdated {
            update: status_update(),
            job: Some(job()),
            eval: Some(eval()),
            ..DeploymentStatusUpdated::default()
        }
        .into(),
        EventKind::DeploymentPromoted => DeploymentPromoted {
            deployment_id: id(30),
            all: false,
            groups: vec!["g".into()],
            promoted_at: TIME,
            eval: Some(eval()),
            ..DeploymentPromoted::default()
        }
        .into(),
        EventKind::DeploymentAllocHealthUpdated => DeploymentAllocHealthUpdated {
            deployment_id: id(30),
            healthy: vec![id(40)],
            unhealthy: vec![id(41)],
            timestamp: TIME,
            update: Some(status_update()),
            job: Some(job()),
            eval: Some(eval()),
            ..DeploymentAllocHealthUpdated::default()
        }
        .into(),
        EventKind::DeploymentsDeleted => DeploymentsDeleted { ids: vec![id(30)] }.into(),
        _ => return None,
    })
}
