use std::sync::Arc;

use drover_events::eval::EvalsUpserted;
use drover_events::model::{RescheduleEvent, ReschedulePolicy, RescheduleTracker, TaskGroup};
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::Nodes;

use super::*;
use crate::base::clock::Clock;
use crate::commands::job::RegisterJob;
use crate::commands::node::{MissHeartbeat, RegisterNode};
use crate::reactors::testing::Direct;
use drover_testkit::fixtures::{job as job_of, node as node_of};

const SECOND: i64 = 1_000_000_000;

fn context(direct: &Arc<Direct>) -> Context {
    Context {
        projections: Arc::clone(&direct.projections),
        proposer: direct.clone(),
        clock: Clock::default(),
    }
}

#[test]
fn each_thing_that_is_over_goes_by_the_time_that_is_kept_for_it() {
    let of = Duration::from_nanos;
    let settings = GcSettings {
        evals: of(1),
        batch_evals: of(2),
        jobs: of(3),
        deployments: of(4),
        nodes: of(5),
        claims: of(6),
        plugins: of(7),
        ..GcSettings::default()
    };
    let found = Cutoffs::new(&settings, 100);
    let before = [
        found.now,
        found.evals,
        found.batch_evals,
        found.jobs,
        found.deployments,
        found.nodes,
        found.claims,
        found.plugins,
    ];
    assert_eq!(before, [100, 99, 98, 97, 96, 95, 94, 93]);
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
    let collected = forced
        .collect(&context, &mut Each::default())
        .await
        .unwrap();
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
        .collect(&context, &mut Each::default())
        .await
        .unwrap();
    assert_eq!(kept, Collected::default(), "not long enough ago");
    let context = Context {
        clock: Clock::stopped(crate::base::clock::unix_nanos() + 3600 * SECOND),
        ..context
    };
    let collected = forced
        .collect(&context, &mut Each::default())
        .await
        .unwrap();
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
        forced
            .collect(&context, &mut Each::default())
            .await
            .unwrap()
            .nodes,
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
    assert_eq!(
        forced
            .collect(&context, &mut Each::default())
            .await
            .unwrap()
            .nodes,
        1
    );
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
    let request = Evaluation {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: "-".into(),
        r#type: "_core".into(),
        job_id: "force-gc:1".into(),
        status: "pending".into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![request.clone()],
        decision: None,
    });
    let context = context(&direct);
    let gc = CoreGc::new(GcSettings::default());
    gc.activate(&context).await.unwrap();
    let eval = direct
        .projections
        .view()
        .get::<Evals>(request.id.as_str())
        .unwrap()
        .unwrap();
    assert_eq!(eval.status, "complete");
    assert_eq!(
        gc.obey(&context, &mut Each::default()).await.unwrap(),
        None,
        "it is done"
    );
}

/// So many jobs that are over.
fn dead_jobs(direct: &Direct, many: usize) {
    dead_jobs_as(direct, "j", many);
}

/// The same by another name.
fn dead_jobs_as(direct: &Direct, name: &str, many: usize) {
    let mut evals = Vec::new();
    for number in 0..many {
        let mut spec = job_of("batch", 0);
        spec.id = format!("{name}-{number}");
        spec.name.clone_from(&spec.id);
        let command = RegisterJob {
            job: spec,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        direct.command(&command).unwrap();
        let view = direct.projections.view();
        let mut eval = view
            .get::<Evals>(command.eval_id.as_str())
            .unwrap()
            .unwrap();
        eval.status = "complete".into();
        evals.push(eval);
    }
    for evals in evals.chunks(100) {
        direct.apply(EvalsUpserted {
            evals: evals.to_vec(),
            decision: None,
        });
    }
}

#[tokio::test]
async fn a_collection_that_was_cut_short_goes_on_at_once() {
    let direct = Direct::new();
    dead_jobs(&direct, sweep::BATCH + 10);
    let left = || {
        let view = direct.projections.view();
        view.scan::<Jobs>(drover_projections::Scan::all()).count()
    };
    let context = Context {
        clock: Clock::stopped(crate::base::clock::unix_nanos() + 100 * 3600 * SECOND),
        ..context(&direct)
    };
    let gc = CoreGc::new(GcSettings::default());
    let first = gc.activate(&context).await.unwrap();
    assert!(left() > 0, "it was cut short");
    assert_eq!(first.sleep, Duration::ZERO);
    let mut passes = 0;
    while left() > 0 {
        passes += 1;
        assert!(passes < 10, "{} are left, and no time has passed", left());
        gc.activate(&context).await.unwrap();
    }
    let last = gc.activate(&context).await.unwrap();
    assert!(last.sleep > Duration::from_secs(200), "{:?}", last.sleep);
    // The same for an operator who does not want to wait.
    dead_jobs(&direct, sweep::BATCH + 10);
    let request = Evaluation {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: "-".into(),
        r#type: "_core".into(),
        job_id: "force-gc:1".into(),
        status: "pending".into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![request.clone()],
        decision: None,
    });
    let status = || {
        let view = direct.projections.view();
        view.get::<Evals>(request.id.as_str())
            .unwrap()
            .unwrap()
            .status
    };
    let first = gc.activate(&context).await.unwrap();
    assert_eq!(
        (status().as_str(), first.sleep),
        ("pending", Duration::ZERO)
    );
    for _ in 0..10 {
        gc.activate(&context).await.unwrap();
    }
    assert_eq!((left(), status().as_str()), (0, "complete"));
}

/// A job with one allocation, of an evaluation that is complete and a deployment that failed, on a
/// node that is down: whether the allocation is open decides whether they go.
struct Stage {
    direct: Arc<Direct>,
    node: String,
    alloc: String,
    eval: String,
    deployment: String,
}

impl Stage {
    fn new() -> Self {
        Self::of("service")
    }

    /// The same with a job of such a kind.
    fn of(kind: &str) -> Self {
        let direct = Direct::new();
        direct
            .command(&RegisterNode {
                node: node_of(1),
                create_node_pool: true,
            })
            .unwrap();
        let uuid = || uuid::Uuid::new_v4().to_string();
        let stage = Self {
            direct,
            node: node_of(1).id,
            alloc: uuid(),
            eval: uuid(),
            deployment: uuid(),
        };
        let command = RegisterJob {
            job: job_of(kind, 1),
            eval_id: stage.eval.clone(),
            ..RegisterJob::default()
        };
        let (job_modify_index, _) = stage.direct.command(&command).unwrap();
        let group = drover_events::model::DeploymentState::default();
        let deployment = Deployment {
            id: stage.deployment.clone(),
            namespace: "default".into(),
            job_id: "j".into(),
            status: "failed".into(),
            task_groups: [("g", group)].into(),
            ..Deployment::default()
        };
        let alloc = Allocation {
            id: stage.alloc.clone(),
            namespace: "default".into(),
            job_id: "j".into(),
            task_group: "g".into(),
            eval_id: stage.eval.clone(),
            node_id: stage.node.clone(),
            deployment_id: stage.deployment.clone(),
            desired_status: "run".into(),
            client_status: "running".into(),
            ..Allocation::default()
        };
        let placed = drover_events::plan::PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index,
        };
        let (_, outcome) = stage.direct.apply(drover_events::plan::PlanApplied {
            deployment: Some(deployment),
            placed: vec![placed],
            ..Default::default()
        });
        assert!(
            matches!(outcome, drover_projections::Outcome::Applied(_)),
            "{outcome:?}"
        );
        let view = stage.direct.projections.view();
        let mut done = view.get::<Evals>(stage.eval.as_str()).unwrap().unwrap();
        done.status = "complete".into();
        drop(view);
        stage.direct.apply(EvalsUpserted {
            evals: vec![done],
            decision: None,
        });
        let missed = MissHeartbeat {
            node_id: stage.node.clone(),
        };
        stage.direct.command(&missed).unwrap();
        stage
    }

    /// Its client reports that the allocation has done its work.
    fn completes(&self) {
        let ended = drover_events::alloc::ClientAllocUpdate {
            id: self.alloc.clone(),
            client_status: "complete".into(),
            ..Default::default()
        };
        self.direct
            .apply(drover_events::alloc::AllocsUpdatedByClient {
                updates: vec![ended],
                ..Default::default()
            });
    }

    /// Whether evaluation, deployment and node are over: the allocations that go with the first.
    fn over(&self) -> (Option<Vec<String>>, bool, bool) {
        let view = self.direct.projections.view();
        let cutoffs = Cutoffs::new(&GcSettings::default(), i64::MAX / 2);
        let eval = view.get::<Evals>(self.eval.as_str()).unwrap().unwrap();
        let deployment = view
            .get::<drover_projections::tables::deployments::Deployments>(self.deployment.as_str())
            .unwrap()
            .unwrap();
        let node = drover_projections::tables::nodes::get(&view, &self.node);
        (
            eval_is_over(&view, &eval, &cutoffs).unwrap(),
            deployment_is_over(&view, &deployment, &cutoffs).unwrap(),
            node_is_over(&view, &node.unwrap().unwrap(), &cutoffs).unwrap(),
        )
    }
}

#[tokio::test]
async fn what_is_over_stays_while_an_allocation_of_it_is_open_and_goes_with_it() {
    let stage = Stage::new();
    assert_eq!(stage.over(), (None, false, false), "it runs");
    stage.completes();
    let gone = Some(vec![stage.alloc.clone()]);
    assert_eq!(stage.over(), (gone, true, true));
    // Not long enough ago.
    let view = stage.direct.projections.view();
    let eval = view.get::<Evals>(stage.eval.as_str()).unwrap().unwrap();
    let early = Cutoffs::new(&GcSettings::default(), eval.modify_time + 60 * SECOND);
    assert_eq!(eval_is_over(&view, &eval, &early).unwrap(), None);
}

#[tokio::test]
async fn what_a_live_batch_job_has_done_is_kept_until_the_job_changes() {
    let stage = Stage::of("batch");
    stage.completes();
    assert_eq!(stage.over().0, None, "it would be done once more");
    let command = RegisterJob {
        job: job_of("batch", 2),
        eval_id: uuid::Uuid::new_v4().to_string(),
        ..RegisterJob::default()
    };
    stage.direct.command(&command).unwrap();
    assert_eq!(stage.over().0, Some(vec![stage.alloc.clone()]));
}

#[test]
fn another_look_is_taken_at_once_only_where_there_is_more_and_the_last_one_got_on() {
    let some = Collected {
        evals: 1,
        ..Collected::default()
    };
    let nothing = Collected::default();
    for (more, newly_deferred, collected, goes_on) in [
        (true, false, some, true),
        (true, true, nothing, true),
        (true, false, nothing, false),
        (false, false, some, false),
        (false, true, nothing, false),
    ] {
        let pass = Pass {
            collected,
            more,
            newly_deferred,
        };
        assert_eq!(pass.goes_on(), goes_on, "{pass:?}");
    }
}

#[tokio::test]
async fn a_deployment_whose_job_is_gone_goes_whatever_its_status_says() {
    let direct = Direct::new();
    let deployment = Deployment {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: "default".into(),
        job_id: "purged".into(),
        status: "running".into(),
        ..Deployment::default()
    };
    direct.apply(drover_events::plan::PlanApplied {
        deployment: Some(deployment.clone()),
        ..Default::default()
    });
    let view = direct.projections.view();
    let cutoffs = Cutoffs::new(&GcSettings::default(), i64::MAX / 2);
    assert!(deployment_is_over(&view, &deployment, &cutoffs).unwrap());
}

#[path = "core_gc/passed_test.rs"]
mod passed;
#[path = "core_gc/signs_test.rs"]
mod signs;
