use std::sync::Arc;

use drover_events::eval::EvalsUpserted;
use drover_events::model::{RescheduleEvent, ReschedulePolicy, RescheduleTracker, TaskGroup};
use drover_projections::tables::node_states::NodeStates;

use super::*;
use crate::clock::Clock;
use crate::commands::job::RegisterJob;
use crate::commands::node::{MissHeartbeat, RegisterNode};
use crate::reactors::testing::Direct;
use crate::scheduler::testing::{job as job_of, node as node_of};

const SECOND: i64 = 1_000_000_000;

fn context(direct: &Arc<Direct>) -> Context {
    Context {
        projections: Arc::clone(&direct.projections),
        proposer: direct.clone(),
        clock: Clock::default(),
    }
}

#[test]
fn an_allocation_stays_while_somebody_may_replace_it() {
    let job = |policy: Option<ReschedulePolicy>| {
        let group = TaskGroup {
            name: "g".into(),
            reschedule_policy: policy,
            ..TaskGroup::default()
        };
        Job {
            status: "running".into(),
            task_groups: vec![group].into(),
            ..Job::default()
        }
    };
    let twice = ReschedulePolicy {
        attempts: 2,
        interval: 100 * SECOND,
        ..Default::default()
    };
    let always = ReschedulePolicy {
        unlimited: true,
        ..Default::default()
    };
    let tried = |times: usize| {
        let event = RescheduleEvent {
            reschedule_time: 990 * SECOND,
            ..Default::default()
        };
        Some(RescheduleTracker {
            events: vec![event; times].into(),
            ..Default::default()
        })
    };
    let now = 1_000 * SECOND;
    for (what, client, desired, next, policy, tracker, want) in [
        ("still runs", "running", "stop", "", None, None, false),
        ("is complete", "complete", "run", "", None, None, true),
        (
            "failed and is stopped",
            "failed",
            "stop",
            "",
            Some(&always),
            None,
            true,
        ),
        (
            "may always come again",
            "failed",
            "run",
            "",
            Some(&always),
            None,
            false,
        ),
        (
            "has a successor",
            "failed",
            "run",
            "x",
            Some(&always),
            None,
            true,
        ),
        (
            "has an attempt left",
            "failed",
            "run",
            "",
            Some(&twice),
            tried(1),
            false,
        ),
        (
            "has none left",
            "failed",
            "run",
            "",
            Some(&twice),
            tried(2),
            true,
        ),
        ("never comes again", "failed", "run", "", None, None, true),
    ] {
        let alloc = Allocation {
            task_group: "g".into(),
            client_status: client.into(),
            desired_status: desired.into(),
            next_allocation: next.into(),
            reschedule_tracker: tracker,
            modify_time: 995 * SECOND,
            ..Allocation::default()
        };
        let job = job(policy.cloned());
        assert_eq!(alloc_is_over(&alloc, Some(&job), now, now), want, "{what}");
        let early = alloc_is_over(&alloc, Some(&job), 990 * SECOND, now);
        assert!(!early, "{what}, but not long enough ago");
    }
}

#[tokio::test]
async fn a_job_that_is_over_goes_with_its_evaluations() {
    let direct = Direct::new();
    let spec = job_of("batch", 0);
    let eval_id = uuid::Uuid::new_v4().to_string();
    let command = RegisterJob {
        job: spec,
        eval_id: eval_id.clone(),
        ..RegisterJob::default()
    };
    direct.command(&command).unwrap();
    let context = context(&direct);
    let forced = CoreGc::new(GcSettings::default().forced());
    let collected = forced.collect(&context).await.unwrap();
    assert_eq!(
        collected,
        Collected::default(),
        "its evaluation is still open"
    );

    let view = direct.projections.view();
    let mut eval = view.get::<Evals>(eval_id.as_str()).unwrap().unwrap();
    eval.status = "complete".into();
    direct.apply(EvalsUpserted {
        evals: vec![eval],
        decision: None,
    });
    let view = direct.projections.view();
    let job = view.get::<Jobs>(("default", "j")).unwrap().unwrap();
    assert_eq!(job.status, "dead");
    let kept = CoreGc::new(GcSettings::default())
        .collect(&context)
        .await
        .unwrap();
    assert_eq!(kept, Collected::default(), "not long enough ago");
    let started = std::time::Instant::now();
    let collected = loop {
        let collected = forced.collect(&context).await.unwrap();
        if collected.jobs > 0 || started.elapsed().as_secs() > 5 {
            break collected;
        }
    };
    assert_eq!((collected.jobs, collected.evals), (1, 1));
    let view = direct.projections.view();
    assert!(view.get::<Jobs>(("default", "j")).unwrap().is_none());
    assert!(view.get::<Evals>(eval_id.as_str()).unwrap().is_none());
}

#[tokio::test]
async fn a_node_that_is_long_down_goes() {
    let direct = Direct::new();
    direct
        .command(&RegisterNode {
            node: node_of(1),
            create_node_pool: true,
        })
        .unwrap();
    let id = node_of(1).id;
    let context = context(&direct);
    let mut settings = GcSettings::default().forced();
    settings.nodes = Duration::ZERO;
    let forced = CoreGc::new(settings);
    assert_eq!(
        forced.collect(&context).await.unwrap().nodes,
        0,
        "it is ready"
    );
    direct
        .command(&MissHeartbeat {
            node_id: id.clone(),
        })
        .unwrap();
    let state = direct
        .projections
        .view()
        .get::<NodeStates>(id.as_str())
        .unwrap()
        .unwrap();
    assert_eq!(state.status, "down");
    assert_eq!(forced.collect(&context).await.unwrap().nodes, 1);
    assert!(
        direct
            .projections
            .view()
            .get::<Nodes>(id.as_str())
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn an_operator_who_asks_for_it_gets_it_at_once() {
    let direct = Direct::new();
    direct
        .command(&RegisterNode {
            node: node_of(1),
            create_node_pool: true,
        })
        .unwrap();
    let wish = Evaluation {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: "-".into(),
        r#type: "_core".into(),
        job_id: "force-gc:1".into(),
        status: "pending".into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![wish.clone()],
        decision: None,
    });
    let context = context(&direct);
    let gc = CoreGc::new(GcSettings::default());
    gc.activate(&context).await.unwrap();
    let eval = direct
        .projections
        .view()
        .get::<Evals>(wish.id.as_str())
        .unwrap()
        .unwrap();
    assert_eq!(eval.status, "complete");
    assert_eq!(gc.obey(&context).await.unwrap(), None, "it is done");
}
