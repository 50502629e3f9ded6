//! One bad thing never starves the others: for each reactor that works on many, whichever of them
//! always fails, and however it fails, the others have their turn.
//!
//! Tokens and volumes are in `starvation_rest_test.rs`, with the list of which test shows it of
//! which reactor; rows that cannot be read are in `unreadable_test.rs`, and retention has its own
//! beside it. The publisher of events is not among them: what it sends is in the log's order
//! without a gap, so it waits for what the brokers do not take, and what they never take, a message
//! above their limit, has a marker in its place (`kafka/record_test.rs`).

use std::sync::Arc;
use std::time::Duration;

use drover_events::eval::EvalsUpserted;
use drover_events::gojson::Time;
use drover_events::model::{
    Allocation, Deployment, DeploymentState, DrainSpec, Evaluation, PeriodicConfig,
};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes;
use drover_projections::{Id, Scan, query};
use proptest::prelude::*;

use super::core_gc::{CoreGc, GcSettings};
use super::deployment_watcher::DeploymentWatcher;
use super::drainer::Drainer;
use super::each::Each;
use super::heartbeat_expiry::{HeartbeatExpiry, HeartbeatSettings, Heartbeats};
use super::periodic::PeriodicDispatcher;
use super::runner::{Context, Reactor};
use super::scheduling::broker::BrokerSettings;
use super::scheduling::{Scheduling, SchedulingSettings};
use super::testing::{Direct, Fault, Faulty};
use crate::base::clock::{Clock, unix_nanos};
use crate::commands::job::RegisterJob;
use crate::commands::node::{MissHeartbeat, RegisterNode, UpdateNodeDrain};
use crate::error::Code;
use crate::proposer::decided::Propose;
use drover_testkit::fixtures::{SECOND, job, node};

/// Long after everything that happens here.
pub(super) const LATER: i64 = 4_000_000_000 * SECOND;

pub(super) fn uuid(number: usize) -> String {
    format!("{number:08x}-5555-4555-8555-555555555555")
}

pub(super) fn context(direct: &Arc<Direct>, proposer: Arc<dyn Propose>, now: i64) -> Context {
    Context {
        projections: Arc::clone(&direct.projections),
        proposer,
        clock: Clock::stopped(now),
    }
}

pub(super) fn add_node(direct: &Direct, number: usize) -> String {
    let node = node(number);
    let id = node.id.clone();
    let command = RegisterNode {
        node,
        create_node_pool: true,
    };
    direct.command(&command).unwrap();
    id
}

pub(super) fn add_eval(direct: &Direct, number: usize, job: &str, status: &str) -> String {
    let eval = Evaluation {
        id: uuid(number),
        namespace: "default".into(),
        job_id: job.into(),
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        status: status.into(),
        ..Evaluation::default()
    };
    direct.apply(EvalsUpserted {
        evals: vec![eval],
        decision: None,
    });
    uuid(number)
}

pub(super) fn add_deployment(direct: &Direct, number: usize, job: &str, status: &str) -> String {
    let group = DeploymentState {
        progress_deadline: SECOND,
        require_progress_by: Time(SECOND),
        desired_total: 2,
        ..DeploymentState::default()
    };
    let deployment = Deployment {
        id: uuid(number),
        namespace: "default".into(),
        job_id: job.into(),
        status: status.into(),
        task_groups: [("g", group)].into(),
        ..Deployment::default()
    };
    direct.apply(PlanApplied {
        deployment: Some(deployment),
        ..PlanApplied::default()
    });
    uuid(number)
}

pub(super) fn add_job(direct: &Direct, id: &str, count: i64, eval: usize) -> String {
    let mut spec = job("batch", count);
    spec.id = id.to_owned();
    spec.name = id.to_owned();
    let command = RegisterJob {
        job: spec,
        eval_id: uuid(eval),
        ..RegisterJob::default()
    };
    direct.command(&command).unwrap();
    uuid(eval)
}

/// How the bad one fails.
pub(super) fn faults() -> impl Strategy<Value = Fault> {
    let codes = vec![
        Code::Refused,
        Code::Internal,
        Code::Conflict,
        Code::NotFound,
    ];
    let refused = prop::sample::select(codes).prop_map(Fault::Error);
    prop_oneof![refused, Just(Fault::Panic)]
}

pub(super) fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn nodes_are_given_up_whichever_of_them_cannot_be(
        count in 1..6_usize,
        bad in 0..6_usize,
        fault in faults(),
    ) {
        let direct = Direct::new();
        let ids: Vec<String> = (0..count).map(|number| add_node(&direct, number)).collect();
        let bad = &ids[bad % count];
        let heartbeats = Heartbeats::new(HeartbeatSettings {
            failover_ttl: Duration::ZERO,
            ..HeartbeatSettings::default()
        });
        let expiry = HeartbeatExpiry::new(Arc::clone(&heartbeats));
        let faulty = Faulty::new(&direct, bad, fault);
        for turn in 0..3 {
            let context = context(&direct, faulty.clone(), LATER + turn * 10 * SECOND);
            let activation = wait(expiry.activate(&context)).unwrap();
            prop_assert_eq!(&activation.status["Failed"], 1);
        }
        let view = direct.projections.view();
        for id in &ids {
            let state = view.get::<NodeStates>(id.as_str()).unwrap().unwrap();
            prop_assert_eq!(state.status == "down", id != bad, "{}", id);
        }
        faulty.heal();
        wait(expiry.activate(&context(&direct, faulty, LATER + 100 * SECOND))).unwrap();
        prop_assert!(heartbeats.is_empty(), "it has its turn as well");
    }

    #[test]
    fn what_is_over_goes_whatever_of_it_cannot(bad in 0..12_usize, fault in faults()) {
        let direct = Direct::new();
        let mut ids = Vec::new();
        for n in 0..3 {
            let node_id = add_node(&direct, n);
            direct.command(&MissHeartbeat { node_id: node_id.clone() }).unwrap();
            let eval = add_eval(&direct, 10 + n, "gone", "complete");
            let deployment = add_deployment(&direct, 20 + n, "j", "failed");
            let job = format!("job-{n}");
            let of_job = add_job(&direct, &job, 0, 30 + n);
            let view = direct.projections.view();
            let mut done = view.get::<Evals>(of_job.as_str()).unwrap().unwrap();
            done.status = "complete".into();
            direct.apply(EvalsUpserted { evals: vec![done], decision: None });
            ids.extend([node_id, eval, deployment, job]);
        }
        let bad = ids[bad].clone();
        let faulty = Faulty::new(&direct, &bad, fault);
        let gc = CoreGc::new(GcSettings::default());
        for _ in 0..2 {
            let context = context(&direct, faulty.clone(), LATER);
            wait(gc.collect(&context, &mut Each::default())).unwrap();
        }
        let left = || {
            let view = direct.projections.view();
            let mut left: Vec<String> = Vec::new();
            let nodes = ids.iter().filter(|id| nodes::get(&view, id).unwrap().is_some());
            left.extend(nodes.cloned());
            left.extend(view.scan::<Evals>(Scan::all()).map(|eval| eval.unwrap().id));
            left.extend(view.scan::<Deployments>(Scan::all()).map(|row| row.unwrap().id));
            left.extend(view.scan::<Jobs>(Scan::all()).map(|job| job.unwrap().id));
            left
        };
        prop_assert_eq!(left(), vec![bad]);
        faulty.heal();
        for _ in 0..2 {
            let context = context(&direct, faulty.clone(), LATER);
            wait(gc.collect(&context, &mut Each::default())).unwrap();
        }
        prop_assert!(left().is_empty(), "it has its turn again: {:?}", left());
    }

    #[test]
    fn deployments_fail_whichever_of_them_cannot(bad in 0..4_usize, fault in faults()) {
        let direct = Direct::new();
        add_job(&direct, "j", 2, 1);
        let ids = (10..14).map(|n| add_deployment(&direct, n, "j", "running"));
        let ids: Vec<String> = ids.collect();
        let faulty = Faulty::new(&direct, &ids[bad], fault);
        let watcher = DeploymentWatcher::default();
        wait(watcher.activate(&context(&direct, faulty, LATER))).unwrap();
        let view = direct.projections.view();
        for (n, id) in ids.iter().enumerate() {
            let row = view.get::<Deployments>(id.as_str()).unwrap().unwrap();
            prop_assert_eq!(row.status == "failed", n != bad, "deployment {}", n);
        }
    }
}

/// An id made of a number, of an allocation.
fn alloc_id(number: usize) -> String {
    format!("{number:08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa")
}

/// An allocation of a job that runs on a node.
fn place(direct: &Direct, number: usize, job: &str, node: &str) -> String {
    let view = direct.projections.view();
    let spec = view.get::<Jobs>(("default", job)).unwrap().unwrap();
    let alloc = Allocation {
        id: alloc_id(number),
        name: format!("{job}.g[{number}]"),
        namespace: "default".into(),
        job_id: job.into(),
        task_group: "g".into(),
        node_id: node.into(),
        desired_status: "run".into(),
        client_status: "running".into(),
        ..Allocation::default()
    };
    direct.apply(PlanApplied {
        placed: vec![PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index: spec.job_modify_index,
        }],
        ..PlanApplied::default()
    });
    alloc_id(number)
}

pub(super) fn drain(direct: &Direct, node: &str) {
    let command = UpdateNodeDrain {
        node_id: node.to_owned(),
        spec: Some(DrainSpec {
            deadline: -1,
            ..DrainSpec::default()
        }),
        ..UpdateNodeDrain::default()
    };
    direct.command(&command).unwrap();
}

pub(super) fn periodic(direct: &Direct, id: &str) {
    let mut spec = job("batch", 1);
    spec.id = id.to_owned();
    spec.name = id.to_owned();
    spec.periodic = Some(PeriodicConfig {
        enabled: true,
        spec: "* * * * *".into(),
        spec_type: "cron".into(),
        ..PeriodicConfig::default()
    });
    let command = RegisterJob {
        job: spec,
        eval_id: uuid::Uuid::new_v4().to_string(),
        ..RegisterJob::default()
    };
    direct.command(&command).unwrap();
}

/// Whether it was launched.
pub(super) fn has_child(direct: &Direct, id: &str) -> bool {
    let view = direct.projections.view();
    let children = query::children_of_job(&view, ("default", id));
    !children.unwrap().is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn drains_go_on_and_end_whichever_of_them_cannot(
        count in 2..6_usize,
        bad in 0..6_usize,
        fault in faults(),
    ) {
        let direct = Direct::new();
        add_job(&direct, "j", 1, 1);
        let mut allocs = Vec::new();
        let mut empty = Vec::new();
        for n in 0..count {
            let (full, bare) = (add_node(&direct, n), add_node(&direct, 100 + n));
            allocs.push(place(&direct, n, "j", &full));
            drain(&direct, &full);
            drain(&direct, &bare);
            empty.push(bare);
        }
        let moves = |id: &String| {
            let row = direct.projections.view().get::<Allocs>(id.as_str()).unwrap().unwrap();
            row.desired_transition.migrate == Some(true)
        };
        let drains = |id: &String| {
            let view = direct.projections.view();
            nodes::get(&view, id).unwrap().unwrap().drain_strategy.is_some()
        };
        let drainer = Drainer::default();
        let bad = &allocs[bad % count];
        let faulty = Faulty::new(&direct, bad, fault);
        let activation = wait(drainer.activate(&context(&direct, faulty, unix_nanos()))).unwrap();
        prop_assert_eq!(&activation.status["Failed"], 1);
        for id in &allocs {
            prop_assert_eq!(moves(id), id != bad, "{}", id);
        }
        for id in &empty {
            prop_assert!(!drains(id), "{}", id);
        }
        // A drain that cannot end: another node's has come meanwhile.
        let (stuck, late) = (add_node(&direct, 200), add_node(&direct, 201));
        drain(&direct, &stuck);
        drain(&direct, &late);
        let faulty = Faulty::new(&direct, &stuck, fault);
        for turn in 1..3 {
            let now = unix_nanos() + turn * 10 * SECOND;
            wait(drainer.activate(&context(&direct, faulty.clone(), now))).unwrap();
        }
        prop_assert!(drains(&stuck) && !drains(&late));
        faulty.heal();
        let now = unix_nanos() + 60 * SECOND;
        wait(drainer.activate(&context(&direct, faulty, now))).unwrap();
        prop_assert!(!drains(&stuck), "it has its turn as well");
        prop_assert!(allocs.iter().all(moves));
    }

    #[test]
    fn jobs_are_launched_whichever_of_them_cannot_be(bad in 0..4_usize, fault in faults()) {
        let direct = Direct::new();
        let ids: Vec<String> = (0..4).map(|n| format!("tick-{n}")).collect();
        ids.iter().for_each(|id| periodic(&direct, id));
        let faulty = Faulty::new(&direct, &ids[bad], fault);
        let dispatcher = PeriodicDispatcher::default();
        let now = unix_nanos() + 3600 * SECOND;
        wait(dispatcher.activate(&context(&direct, faulty.clone(), now))).unwrap();
        for (n, id) in ids.iter().enumerate() {
            prop_assert_eq!(has_child(&direct, id), n != bad, "{}", id);
        }
        faulty.heal();
        let later = context(&direct, faulty, now + 10 * SECOND);
        wait(dispatcher.activate(&later)).unwrap();
        prop_assert!(has_child(&direct, &ids[bad]), "it has its turn as well");
    }
}

/// More of them than one activation launches, each before the good one by its name.
#[test]
fn a_job_is_launched_behind_however_many_that_cannot_be() {
    let direct = Direct::new();
    for n in 0..1_100 {
        periodic(&direct, &format!("bad-{n:04}"));
    }
    periodic(&direct, "good");
    let faulty = Faulty::new(&direct, "bad-", Fault::Error(Code::Internal));
    let dispatcher = PeriodicDispatcher::default();
    let now = unix_nanos() + 3600 * SECOND;
    for _ in 0..2 {
        wait(dispatcher.activate(&context(&direct, faulty.clone(), now))).unwrap();
    }
    assert!(has_child(&direct, "good"));
}

/// Workers with deliveries that follow one another at once.
pub(super) fn scheduling(direct: &Arc<Direct>, proposer: Arc<dyn Propose>) -> Scheduling {
    let settings = SchedulingSettings {
        workers: 2,
        broker: BrokerSettings {
            initial_nack_delay: 1,
            subsequent_nack_delay: 1,
            ..BrokerSettings::default()
        },
        ..SchedulingSettings::default()
    };
    Scheduling::start(Arc::clone(&direct.projections), proposer, settings).unwrap()
}

async fn until(what: &str, direct: &Direct, done: impl Fn(&drover_projections::View) -> bool) {
    let seen = || match done(&direct.projections.view()) {
        true => Ok(()),
        false => Err("not yet".to_owned()),
    };
    let limit = Duration::from_secs(60);
    drover_testkit::eventually(what, limit, seen).await.unwrap();
}

fn eval_of(view: &drover_projections::View, id: &str) -> Evaluation {
    view.get::<Evals>(id).unwrap().unwrap()
}

/// More of them than may be on their way at once: no place of theirs is lost when they panic.
#[tokio::test(flavor = "multi_thread")]
async fn evaluations_that_panic_on_their_way_leave_the_workers_free() {
    let direct = Direct::new();
    direct.first_key();
    add_node(&direct, 1);
    // Each is given out three times. Half of them place something, so their plans panic in the
    // queue; the others panic where their end is decided.
    for n in 0..100 {
        add_job(
            &direct,
            &format!("bad-{n}"),
            i64::from(n % 2 == 0),
            1_000 + n,
        );
    }
    let faulty = Faulty::new(&direct, "bad-", Fault::Panic);
    let scheduling = scheduling(&direct, faulty.clone());
    let good = add_job(&direct, "good", 3, 1);
    until("the good one is placed", &direct, |view| {
        eval_of(view, &good).status == "complete"
    })
    .await;
    let given_up = || match scheduling.status() {
        status if status.ready + status.unacked == 0 => Ok(()),
        status => Err(format!("{status:?}")),
    };
    let limit = Duration::from_secs(60);
    let given_up = drover_testkit::eventually("all were given up", limit, given_up);
    given_up.await.unwrap();
    let after = add_job(&direct, "after", 3, 2);
    until("what comes later is placed", &direct, |view| {
        eval_of(view, &after).status == "complete"
    })
    .await;
    let at_rest = || match (scheduling.is_placing(), scheduling.status()) {
        (false, status) if status.in_flight == 0 => Ok(()),
        (_, status) => Err(format!("{status:?}")),
    };
    let at_rest = drover_testkit::eventually("every place is given back", limit, at_rest);
    at_rest.await.unwrap();
}

/// An evaluation is given out so often, then it fails and another one follows it later; while that
/// cannot be written it is not forgotten, and holds up no other evaluation.
#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_that_always_fails_is_given_up_and_followed_by_another() {
    let direct = Direct::new();
    direct.first_key();
    add_node(&direct, 1);
    let bad = add_job(&direct, "bad", 1, 1);
    let faulty = Faulty::new(&direct, "\"bad\"", Fault::Error(Code::Internal));
    let scheduling = scheduling(&direct, faulty.clone());
    let good = add_job(&direct, "good", 1, 2);
    until("the good one is placed", &direct, |view| {
        eval_of(view, &good).status == "complete"
    })
    .await;
    let given_up = || match scheduling.status() {
        status if status.ready + status.unacked + status.waiting == 0 => Ok(()),
        status => Err(format!("{status:?}")),
    };
    let limit = Duration::from_secs(60);
    drover_testkit::eventually("it was given up", limit, given_up)
        .await
        .unwrap();
    assert_eq!(eval_of(&direct.projections.view(), &bad).status, "pending");
    faulty.heal();
    // It waits for a while, whatever happens meanwhile.
    add_job(&direct, "later", 1, 3);
    until("its end is written", &direct, |view| {
        eval_of(view, &bad).status == "failed"
    })
    .await;
    let view = direct.projections.view();
    let failed = eval_of(&view, &bad);
    assert_eq!(
        failed.status_description,
        "evaluation reached delivery limit (3)"
    );
    let next = eval_of(&view, &failed.next_eval);
    assert_eq!(next.previous_eval, bad);
    assert_eq!(
        (next.triggered_by.as_str(), next.status.as_str()),
        ("failed-follow-up", "pending")
    );
    let wait = Duration::from_nanos(next.wait.unsigned_abs());
    let minutes = Duration::from_secs(60)..Duration::from_secs(360);
    assert!(minutes.contains(&wait), "{wait:?}");
    assert!(next.wait_until.0 > unix_nanos());
    let ids = view
        .scan::<Evals>(Scan::all())
        .map(|eval| Id::new(eval.unwrap().id.as_str()));
    assert_eq!(ids.count(), 4, "three jobs' own and the one that follows");
}

/// The end of an evaluation that was written although the answer said it was not is not written
/// again: what follows it was perhaps worked on by then.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_written_without_an_answer_is_written_once() {
    let direct = Direct::new();
    direct.first_key();
    add_node(&direct, 1);
    let bad = add_job(&direct, "bad", 1, 1);
    let faulty = Faulty::new(&direct, "\"bad\"", Fault::Unstated);
    let scheduling = scheduling(&direct, faulty);
    until("it was given up", &direct, |view| {
        eval_of(view, &bad).status == "failed"
    })
    .await;
    // What comes later has it looked at again.
    for n in 2..5 {
        let other = add_job(&direct, &format!("other-{n}"), 1, n);
        until("another is placed", &direct, |view| {
            eval_of(view, &other).status == "complete"
        })
        .await;
    }
    let view = direct.projections.view();
    let next = eval_of(&view, &eval_of(&view, &bad).next_eval);
    assert_eq!(next.modify_index, next.create_index);
    drop(scheduling);
}

/// Plans that are refused each time: the evaluation fails, one that is blocked takes its place, and
/// the others are placed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_whose_plans_are_always_refused_is_abandoned_and_blocked() {
    let direct = Direct::new();
    direct.first_key();
    add_node(&direct, 1);
    let bad = add_job(&direct, "bad", 1, 1);
    let faulty = Faulty::new(&direct, "\"bad\"", Fault::Refuse);
    let scheduling = scheduling(&direct, faulty.clone());
    let good = add_job(&direct, "good", 1, 2);
    until("the good one is placed", &direct, |view| {
        eval_of(view, &good).status == "complete"
    })
    .await;
    until("the bad one is given up", &direct, |view| {
        eval_of(view, &bad).status == "failed"
    })
    .await;
    let view = direct.projections.view();
    let failed = eval_of(&view, &bad);
    assert_eq!(failed.status_description, "maximum attempts reached (2)");
    let blocked = eval_of(&view, &failed.blocked_eval);
    assert_eq!(
        (blocked.status.as_str(), blocked.triggered_by.as_str()),
        ("blocked", "max-plan-attempts")
    );
    assert_eq!(blocked.previous_eval, bad);
    drop(view);
    // Any change lets it continue, and then it is placed.
    faulty.heal();
    add_node(&direct, 2);
    until("it is placed after all", &direct, |view| {
        eval_of(view, &blocked.id).status == "complete"
    })
    .await;
    drop(scheduling);
}
