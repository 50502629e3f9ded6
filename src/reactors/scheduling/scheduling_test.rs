//! Scheduling over real projections: what is registered is placed, what changes in between is
//! noticed, what is in flight is built on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::cluster::SchedulerConfigured;
use drover_events::model::{Allocation, DisconnectStrategy, Evaluation, SchedulerConfiguration};
use drover_events::node::NodeStatusUpdated;
use drover_events::{Event, Guard};
use drover_projections::Scan;
use drover_projections::tables::allocs::{AllocRow, Allocs, AllocsByJob};
use drover_projections::tables::evals::{Evals, EvalsByJob};
use drover_projections::tables::node_use::NodeUses;
use drover_projections::tables::nodes;

use super::plan_check::{PlanRequest, prepare};
use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::{MissHeartbeat, RegisterNode};
use crate::proposer::decided::Decided;
use crate::reactors::testing::Direct;
use crate::scheduler::cluster::Demand;
use crate::scheduler::{Inputs, Outcome, Placement, Stop};
use drover_testkit::fixtures::{job, node};

/// How much later a missed wake-up is noticed.
const MISSED: Duration = Duration::from_millis(50);

struct Stage {
    direct: Arc<Direct>,
    scheduling: Scheduling,
}

fn start(direct: &Arc<Direct>) -> Scheduling {
    start_for(direct, &[])
}

fn start_for(direct: &Arc<Direct>, types: &[String]) -> Scheduling {
    direct.first_key();
    let settings = SchedulingSettings {
        workers: 2,
        types: Types::of(types),
        ..SchedulingSettings::default()
    };
    Scheduling::start(Arc::clone(&direct.projections), direct.clone(), settings).unwrap()
}

impl Stage {
    fn new(nodes: usize) -> Self {
        let direct = Direct::new();
        for number in 0..nodes {
            add_node(&direct, number);
        }
        let scheduling = start(&direct);
        Self { direct, scheduling }
    }

    fn register(&self, id: &str, count: i64) -> String {
        register(&self.direct, id, count)
    }

    fn allocs(&self, job: &str) -> Vec<AllocRow> {
        let view = self.direct.projections.view();
        view.by_index::<AllocsByJob>(("default", job))
            .map(Result::unwrap)
            .collect()
    }

    fn eval(&self, id: &str) -> Evaluation {
        self.direct
            .projections
            .view()
            .get::<Evals>(id)
            .unwrap()
            .unwrap()
    }

    /// Waits until the evaluation has this status.
    async fn until(&self, id: &str, status: &str) -> Evaluation {
        self.wait(|stage| stage.eval(id).status == status).await;
        self.eval(id)
    }

    async fn wait(&self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + drover_testkit::LONG;
        let shared = &self.scheduling.shared;
        while !done(self) {
            assert!(Instant::now() < deadline, "{:?}", self.scheduling.status());
            // Workers are notified of every change. A notice between the look and the wait is
            // missed, so the wait is bounded.
            tokio::task::block_in_place(|| {
                shared.ready.wait_for(&mut shared.core.lock(), MISSED);
            });
        }
    }
}

fn add_node(direct: &Direct, number: usize) {
    let command = RegisterNode {
        node: node(number),
        create_node_pool: true,
    };
    direct.command(&command).unwrap();
}

fn register(direct: &Direct, id: &str, count: i64) -> String {
    let mut spec = job("batch", count);
    spec.id = id.to_owned();
    spec.name = id.to_owned();
    let eval_id = uuid::Uuid::new_v4().to_string();
    let command = RegisterJob {
        job: spec,
        eval_id: eval_id.clone(),
        ..RegisterJob::default()
    };
    direct.command(&command).unwrap();
    eval_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_job_is_placed_and_its_evaluation_ends() {
    let stage = Stage::new(5);
    let eval = stage.register("a", 20);
    let done = stage.until(&eval, "complete").await;
    assert_eq!(stage.allocs("a").len(), 20);
    assert_eq!(done.queued_allocations.get("g"), Some(&0));
    assert!(done.plan_annotations.is_some());
    assert!(done.snapshot_index > 0);
    // The state says so a moment before the queue knows of it.
    stage
        .wait(|stage| stage.scheduling.status().in_flight == 0)
        .await;
    // What is cached of the cluster is what the projections say.
    let core = stage.scheduling.shared.core.lock();
    let view = stage.direct.projections.view();
    for row in view.scan::<NodeUses>(Scan::all()) {
        let row = row.unwrap();
        let cluster = core.cache.cluster();
        let slot = cluster.slot(cluster.find(&row.node_id).unwrap());
        let used = (slot.used.cpu, slot.used.memory, slot.used.disk, slot.mark);
        assert_eq!(used, (row.cpu, row.memory_mb, row.disk_mb, row.mark));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_plan_is_several_events_that_hang_together() {
    let stage = Stage::new(10);
    let eval = stage.register("big", 600);
    stage.until(&eval, "complete").await;
    let allocs = stage.allocs("big");
    assert_eq!(allocs.len(), 600);
    let indexes: std::collections::BTreeSet<u64> = allocs.iter().map(|a| a.create_index).collect();
    assert_eq!(indexes.len(), 3, "256 allocations in each event at most");
}

/// Stops of 300 allocations on each of these nodes.
fn stops_on(nodes: &[&str]) -> PlanRequest {
    let mut outcome = Outcome::default();
    for node in nodes {
        outcome.plan.stops.extend((0..300).map(|number| {
            let alloc = Allocation {
                id: format!("{node}-{number}"),
                node_id: (*node).to_owned(),
                ..Allocation::default()
            };
            Stop {
                alloc: Arc::new(alloc),
                description: "job not needed",
                client_status: "",
                followup_eval_id: String::new(),
                alloc_states: None,
                reschedule_tracker: None,
            }
        }));
    }
    let (table, key) = (7, b"eval".to_vec().into());
    PlanRequest {
        eval: Evaluation::default(),
        token: 0,
        guard: Guard::RowAbsent { table, key },
        outcome,
        inputs: Inputs {
            snapshot_index: 1,
            now: 1,
            seed: 1,
            scheduler_version: 1,
        },
        signing_key: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_part_of_a_plan_is_kept_without_the_one_before() {
    let stage = Stage::new(1);
    let here = node(0).id;
    stage
        .wait(|stage| {
            let core = stage.scheduling.shared.core.lock();
            core.cache.cluster().find(&here).is_some()
        })
        .await;
    let mut core = stage.scheduling.shared.core.lock();
    let marks = |part: &Decided| {
        part.guards
            .iter()
            .any(|g| matches!(g, Guard::NodeMark { .. }))
    };
    // What marks a node goes first, and the parts hang on it.
    let prepared = prepare(&mut core, stops_on(&["gone", &here]), 1);
    assert_eq!(prepared.events.len(), 3);
    let guarded: Vec<bool> = prepared.events.iter().map(marks).collect();
    assert_eq!(
        (guarded, prepared.cut_short),
        (vec![false, true, true], false)
    );
    // Where nothing does, the first part is all.
    let prepared = prepare(&mut core, stops_on(&["gone", "too"]), 1);
    assert_eq!((prepared.events.len(), prepared.cut_short), (1, true));
    let Event::PlanApplied(plan) = &prepared.events[0].event else {
        panic!("no plan");
    };
    assert_eq!((plan.stopped.len(), plan.evals.len()), (256, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_built_on_plans_in_flight() {
    let stage = Stage::new(2);
    stage.direct.held.store(true, Ordering::SeqCst);
    let first = stage.register("a", 50);
    let second = stage.register("b", 50);
    stage.direct.holds(2).await;
    assert_eq!(stage.scheduling.status().in_flight, 2);
    stage.direct.release();
    stage.until(&first, "complete").await;
    stage.until(&second, "complete").await;
    let view = stage.direct.projections.view();
    assert_eq!(stage.allocs("a").len() + stage.allocs("b").len(), 100);
    let rejected = (1..=view.index()).filter(|i| view.rejection(*i).unwrap().is_some());
    assert_eq!(
        rejected.count(),
        0,
        "the second was guarded by the id of the first"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_built_on_a_refused_plan_fails_with_it_and_is_decided_again() {
    let stage = Stage::new(2);
    stage.direct.held.store(true, Ordering::SeqCst);
    let first = stage.register("a", 50);
    let second = stage.register("b", 50);
    stage.direct.holds(2).await;
    // A node changes before both.
    let id = node(0).id;
    let updated = NodeStatusUpdated {
        node_id: id.clone(),
        status: "down".into(),
        ..Default::default()
    };
    stage.direct.apply(updated);
    stage.direct.release();
    stage.until(&first, "complete").await;
    stage.until(&second, "complete").await;
    for job in ["a", "b"] {
        let allocs = stage.allocs(job);
        assert_eq!(allocs.len(), 50);
        assert!(
            allocs.iter().all(|alloc| alloc.node_id != id),
            "nothing on the lost node"
        );
    }
    let view = stage.direct.projections.view();
    let rejected = (1..=view.index()).filter(|i| view.rejection(*i).unwrap().is_some());
    assert_eq!(rejected.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_16_what_found_no_place_goes_on_when_there_is_room() {
    let stage = Stage::new(1);
    let eval = stage.register("a", 250);
    let done = stage.until(&eval, "complete").await;
    assert_eq!(stage.allocs("a").len(), 200, "4,000 MHz by 20");
    let blocked = stage.until(&done.blocked_eval, "blocked").await;
    assert_eq!(blocked.previous_eval, eval);
    stage
        .wait(|stage| stage.scheduling.status().blocked == 1)
        .await;
    add_node(&stage.direct, 7);
    stage.until(&blocked.id, "complete").await;
    assert_eq!(stage.allocs("a").len(), 250);
    assert_eq!(stage.scheduling.status().blocked, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_16_what_is_given_back_is_taken_by_what_waits_for_it() {
    let stage = Stage::new(1);
    let first = stage.register("a", 200);
    stage.until(&first, "complete").await;
    assert_eq!(stage.allocs("a").len(), 200, "4,000 MHz by 20");
    let second = stage.register("b", 10);
    let done = stage.until(&second, "complete").await;
    stage.until(&done.blocked_eval, "blocked").await;
    stage
        .wait(|stage| stage.scheduling.status().blocked == 1)
        .await;
    stage.direct.apply(ten_of(&stage, "a"));
    stage.until(&done.blocked_eval, "complete").await;
    assert_eq!(stage.allocs("b").len(), 10);
}

/// Ten allocations of a job end by themselves; there is no request.
fn ten_of(stage: &Stage, job: &str) -> AllocsUpdatedByClient {
    let ended = stage.allocs(job).into_iter().take(10);
    let ended = ended.map(|row| ClientAllocUpdate {
        id: row.alloc.id,
        client_status: "complete".into(),
        ..ClientAllocUpdate::default()
    });
    AllocsUpdatedByClient {
        updates: ended.collect(),
        ..AllocsUpdatedByClient::default()
    }
}

fn pause(direct: &Direct, pause_eval_broker: bool) {
    let config = SchedulerConfiguration {
        pause_eval_broker,
        ..SchedulerConfiguration::default()
    };
    direct.apply(SchedulerConfigured { config, cas: false });
}

/// What was freed while no scheduler followed it: the broker paused, or another server led and was
/// gone before it woke any evaluation.
#[tokio::test(flavor = "multi_thread")]
async fn eval_16_what_was_freed_during_a_pause_or_under_another_leader_is_not_missed() {
    for pauses in [true, false] {
        let mut stage = Stage::new(1);
        let first = stage.register("a", 200);
        stage.until(&first, "complete").await;
        let second = stage.register("b", 10);
        let done = stage.until(&second, "complete").await;
        let is_blocked = |stage: &Stage| stage.scheduling.status().blocked == 1;
        stage.wait(is_blocked).await;
        if pauses {
            pause(&stage.direct, true);
            stage.wait(|stage| stage.scheduling.status().paused).await;
            stage.direct.apply(ten_of(&stage, "a"));
            pause(&stage.direct, false);
        } else {
            let ended = ten_of(&stage, "a");
            let Stage { direct, scheduling } = stage;
            let stopped = tokio::task::spawn_blocking(|| drop(scheduling));
            stopped.await.unwrap();
            direct.apply(ended);
            let scheduling = start(&direct);
            stage = Stage { direct, scheduling };
        }
        stage.until(&done.blocked_eval, "complete").await;
        assert_eq!(stage.allocs("b").len(), 10, "pauses: {pauses}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sch_01_a_missed_heartbeat_loses_an_allocation_or_waits_for_it() {
    for (window, node_is, alloc_is) in [
        (0, "down", "lost"),
        (600_000_000_000, "disconnected", "unknown"),
    ] {
        let stage = Stage::new(1);
        let mut spec = job("service", 1);
        spec.task_groups[0].disconnect = Some(DisconnectStrategy {
            lost_after: window,
            ..DisconnectStrategy::default()
        });
        let eval_id = uuid::Uuid::new_v4().to_string();
        let command = RegisterJob {
            job: spec,
            eval_id: eval_id.clone(),
            ..RegisterJob::default()
        };
        stage.direct.command(&command).unwrap();
        stage.until(&eval_id, "complete").await;
        let id = stage.allocs("j").remove(0).alloc.id;
        stage.direct.apply(AllocsUpdatedByClient {
            updates: vec![ClientAllocUpdate {
                id: id.clone(),
                client_status: "running".into(),
                ..ClientAllocUpdate::default()
            }],
            ..AllocsUpdatedByClient::default()
        });
        let node_id = node(0).id;
        let missed = MissHeartbeat {
            node_id: node_id.clone(),
        };
        stage.direct.command(&missed).unwrap();
        let view = stage.direct.projections.view();
        let known = nodes::get(&view, &node_id).unwrap().unwrap();
        assert_eq!(known.status, node_is);
        drop(view);
        let status = |stage: &Stage| {
            let all = stage.allocs("j");
            let old = all.iter().find(|row| row.alloc.id == id).unwrap();
            old.alloc.client_status.clone()
        };
        stage.wait(|stage| status(stage) == alloc_is).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_all_or_nothing_is_refused_whole_where_a_part_does_not_fit() {
    let stage = Stage::new(2);
    let here = node(0).id;
    stage
        .wait(|stage| {
            let core = stage.scheduling.shared.core.lock();
            core.cache.cluster().find(&here).is_some()
        })
        .await;
    let mut core = stage.scheduling.shared.core.lock();
    for all_at_once in [true, false] {
        let mut request = stops_on(&[&here]);
        let alloc = Allocation {
            id: "new".into(),
            node_id: "no such node".into(),
            ..Allocation::default()
        };
        request.outcome.plan.placements = vec![Placement {
            alloc,
            job_modify_index: 1,
            demand: Demand::default(),
            replaces: None,
        }];
        request.outcome.plan.all_at_once = all_at_once;
        let prepared = prepare(&mut core, request, 1);
        assert!(prepared.rejected_nodes.contains("no such node"));
        assert_eq!(prepared.events.is_empty(), all_at_once);
        assert_eq!(
            prepared.slots.is_empty(),
            all_at_once,
            "nothing is in flight of it"
        );
        core.in_flight.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kr_03_a_plan_waits_until_there_is_a_key_to_sign_what_it_places() {
    let direct = Direct::new();
    add_node(&direct, 1);
    let eval = register(&direct, "a", 3);
    let empty = register(&direct, "nothing", 0);
    let settings = SchedulingSettings::default();
    let projections = Arc::clone(&direct.projections);
    let scheduling = Scheduling::start(projections, direct.clone(), settings).unwrap();
    let stage = Stage { direct, scheduling };
    stage.until(&empty, "complete").await;
    stage
        .wait(|stage| stage.scheduling.status().waiting == 1)
        .await;
    assert_eq!(stage.eval(&eval).status, "pending", "it places nothing");
    assert_eq!(stage.allocs("a").len(), 0);
    stage.direct.first_key();
    stage.until(&eval, "complete").await;
    let allocs = stage.allocs("a");
    assert_eq!(allocs.len(), 3);
    let keys = allocs.iter().map(|row| row.alloc.signing_key_id.as_str());
    assert!(keys.into_iter().all(|key| key.starts_with("11111111-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn eval_09_a_paused_broker_leaves_evaluations_pending_until_it_goes_on() {
    let stage = Stage::new(2);
    pause(&stage.direct, true);
    stage.wait(|stage| stage.scheduling.status().paused).await;
    let eval = stage.register("a", 3);
    let index = stage.direct.projections.applied_index();
    stage
        .wait(|stage| stage.scheduling.status().followed >= index)
        .await;
    assert_eq!(stage.eval(&eval).status, "pending");
    assert_eq!(stage.scheduling.status().ready, 0);
    pause(&stage.direct, false);
    stage.until(&eval, "complete").await;
    assert_eq!(stage.allocs("a").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluations_of_types_that_are_not_enabled_stay_pending() {
    let direct = Direct::new();
    add_node(&direct, 1);
    let eval = register(&direct, "a", 1);
    let scheduling = start_for(&direct, &["service".to_owned()]);
    let stage = Stage { direct, scheduling };
    // Nothing will happen; what could have, had its chance once the worker was woken in vain.
    let index = stage.direct.projections.applied_index();
    stage
        .wait(|stage| stage.scheduling.status().followed >= index)
        .await;
    assert_eq!(stage.eval(&eval).status, "pending");
    assert_eq!(stage.scheduling.status().ready, 1);
    assert_eq!(stage.scheduling.status().unacked, 0);
    assert_eq!(Types::of(&["service".to_owned()]).names(), ["service"]);
    assert_eq!(Types::of(&[]).names(), Types::NAMES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_finds_everything_in_the_projections() {
    let direct = Direct::new();
    add_node(&direct, 1);
    let eval = register(&direct, "a", 5);
    let scheduling = start(&direct);
    let stage = Stage { direct, scheduling };
    stage.until(&eval, "complete").await;
    let Stage { direct, scheduling } = stage;
    tokio::task::spawn_blocking(|| drop(scheduling))
        .await
        .unwrap();
    let next = register(&direct, "b", 5);
    let scheduling = start(&direct);
    let stage = Stage { direct, scheduling };
    stage.until(&next, "complete").await;
    assert_eq!(stage.allocs("a").len() + stage.allocs("b").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn superfluous_evaluations_of_a_job_are_cancelled() {
    let direct = Direct::new();
    add_node(&direct, 1);
    for _ in 0..5 {
        register(&direct, "a", 1);
    }
    let scheduling = start(&direct);
    let stage = Stage { direct, scheduling };
    let of_job = |stage: &Stage| -> Vec<Evaluation> {
        let view = stage.direct.projections.view();
        view.by_index::<EvalsByJob>(("default", "a"))
            .map(Result::unwrap)
            .collect()
    };
    stage
        .wait(|stage| of_job(stage).iter().all(|eval| eval.status != "pending"))
        .await;
    let cancelled = of_job(&stage)
        .into_iter()
        .filter(|eval| eval.status == "canceled");
    let reasons: Vec<String> = cancelled.map(|eval| eval.status_description).collect();
    assert_eq!(
        reasons,
        vec!["canceled after more recent eval was processed"; 3]
    );
}

/// The whole way of a plan but Raft: `cargo test --release -- --ignored place_20000`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn place_20000_on_5000_nodes() {
    let direct = Direct::new();
    for number in 0..5000 {
        add_node(&direct, number);
    }
    let evals: Vec<String> = (0..20)
        .map(|number| register(&direct, &format!("j{number}"), 1000))
        .collect();
    let begin = Instant::now();
    let scheduling = start(&direct);
    let stage = Stage { direct, scheduling };
    for eval in &evals {
        stage.until(eval, "complete").await;
    }
    let took = begin.elapsed();
    let placed = stage
        .direct
        .projections
        .view()
        .scan::<Allocs>(Scan::all())
        .count();
    println!(
        "{placed} in {took:?}: {:.0}/s",
        placed as f64 / took.as_secs_f64()
    );
}

#[path = "plan_check_test.rs"]
mod plan_checks;
#[path = "waking_test.rs"]
mod waking;
