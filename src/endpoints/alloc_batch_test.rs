//! Many nodes report at once, and what is wrong with one of them is its own.

use drover_events::alloc::REPORT_LEVEL;
use drover_events::cluster::VersionBarrierRaised;
use drover_events::codec::Draft;
use drover_events::gojson::Time;
use drover_events::model::{AllocNetworkStatus, TaskEvent, TaskState};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_events::{Actor, Envelope, Event, Guard};
use drover_projections::Outcome;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use futures_util::FutureExt;

use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::{MissHeartbeat, RegisterNode, UpdateNodeStatus};
use crate::proposer::fit::fit;
use crate::reactors::testing::{Direct, spoil};
use drover_testkit::counting::peak;
use drover_testkit::fixtures::{job, node};

/// A log that takes whole events, and refuses whatever names one thing.
struct Log {
    direct: Arc<Direct>,
    bad: String,
    events: Mutex<usize>,
    /// Who spoke.
    actors: Mutex<Vec<Actor>>,
}

impl Lane for Log {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        self.actors.lock().push(origin.actor);
        let stamp = Stamp {
            id: EventId([0xcc; 16]),
            now: 5,
        };
        let decision = command.decide(&self.direct.projections.view(), &stamp);
        let submitted = decision.and_then(|decision| {
            let Decision::Event { event, guards } = decision else {
                return Ok(Committed {
                    index: 0,
                    reply: Reply::None,
                    is_written: false,
                });
            };
            if !self.bad.is_empty() && format!("{event:?}").contains(&self.bad) {
                return Err(Refusal::internal("this one always fails"));
            }
            let parts = fit(event, guards, |event, guards| {
                encoded(&event, &guards)
                    .map_err(|error| (error, Box::new((event.clone(), guards))))?;
                Ok(self.direct.apply(event))
            })?;
            *self.events.lock() += parts.len();
            let index = parts.last().map_or(0, |(index, _)| *index);
            Ok(Committed {
                index,
                reply: Reply::None,
                is_written: true,
            })
        });
        Box::pin(async move { submitted })
    }

    fn gathered(&self) -> Origin {
        Origin {
            actor: Actor::server("s", "gathered"),
            ..Origin::default()
        }
    }
}

/// A log whose leader decides here and there, and is gone before anything is taken.
struct Leaderless(Vec<Arc<Direct>>);

impl Lane for Leaderless {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        _: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        for direct in &self.0 {
            let _ = command.decide(&direct.projections.view(), &STAMP);
        }
        async { Err(Refusal::new(Code::NoLeader, "No cluster leader")) }.boxed()
    }

    fn gathered(&self) -> Origin {
        Origin::default()
    }
}

/// A state of which cannot be read what the cluster knows of itself.
fn damaged() -> Arc<Direct> {
    let direct = Direct::new();
    raise(&direct);
    direct.reopened(|database| spoil::<ClusterMetaTable>(database, &()))
}

/// From here on events name the nodes that report.
fn raise(direct: &Direct) {
    direct.apply(VersionBarrierRaised {
        level: REPORT_LEVEL,
        ..VersionBarrierRaised::default()
    });
}

const STAMP: Stamp = Stamp {
    id: EventId([0xcc; 16]),
    now: 5,
};

/// Whether it fits into one event.
fn encoded(event: &Event, guards: &[Guard]) -> Result<(), Refusal> {
    let envelope = Envelope {
        time: 1,
        id: EventId([1; 16]),
        actor: Actor::server("s", "test"),
        request_id: String::new(),
        cause: None,
        trace: String::new(),
        guards: guards.to_vec(),
        event: event.clone(),
    };
    let encoded = Draft::encode(&envelope).map(|_| ());
    encoded.map_err(|error| Refusal::new(Code::PayloadTooLarge, error.to_string()))
}

fn alloc_id(number: usize) -> String {
    format!("{number:08x}-7777-4777-8777-777777777777")
}

struct Stage {
    log: Arc<Log>,
    batcher: Batcher,
}

impl Stage {
    /// So many nodes, each with two allocations.
    fn new(nodes: usize, bad: &str) -> Self {
        let direct = Direct::new();
        for number in 0..nodes {
            let command = RegisterNode {
                node: node(number),
                create_node_pool: true,
            };
            direct.command(&command).unwrap();
        }
        let register = RegisterJob {
            job: job("service", 0),
            eval_id: alloc_id(9_999),
            ..RegisterJob::default()
        };
        let (job_modify_index, _) = direct.command(&register).unwrap();
        let placed = (0..2 * nodes).map(|number| PlacedAlloc {
            alloc: Box::new(Allocation {
                namespace: "default".into(),
                job_id: "j".into(),
                task_group: "g".into(),
                desired_status: "run".into(),
                ..update(number, "pending")
            }),
            job_modify_index,
        });
        let plan = PlanApplied {
            placed: placed.collect(),
            ..PlanApplied::default()
        };
        let (_, outcome) = direct.apply(plan);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        let log = Arc::new(Log {
            direct,
            bad: bad.to_owned(),
            events: Mutex::new(0),
            actors: Mutex::default(),
        });
        let batcher = Batcher::start(log.clone());
        Self { log, batcher }
    }

    async fn submit(&self, number: usize, allocs: Vec<Allocation>) -> Result<u64, Refusal> {
        submit(&self.batcher, number, allocs).await
    }

    fn status(&self, number: usize) -> String {
        let view = self.log.direct.projections.view();
        let row = view.get::<Allocs>(alloc_id(number).as_str()).unwrap();
        row.unwrap().alloc.client_status
    }
}

/// A node reports allocations.
async fn submit(to: &Batcher, number: usize, allocs: Vec<Allocation>) -> Result<u64, Refusal> {
    let node = node(number).id;
    let origin = Origin {
        actor: Actor::node(&node, "there"),
        ..Origin::default()
    };
    to.submit(node, allocs, Allowed::unrequested(origin)).await
}

fn command(number: usize, allocs: Vec<Allocation>) -> Arc<UpdateAllocsFromClient> {
    Arc::new(UpdateAllocsFromClient {
        allocs,
        caller: Some(node(number).id),
    })
}

fn batch(commands: Vec<Arc<UpdateAllocsFromClient>>) -> UpdateBatch {
    UpdateBatch {
        heard: Mutex::new(Heard::of(commands.len())),
        commands,
    }
}

/// Allocations 2n and 2n + 1 are on node n.
fn update(number: usize, client_status: &str) -> Allocation {
    Allocation {
        id: alloc_id(number),
        node_id: node(number / 2).id,
        client_status: client_status.into(),
        ..Allocation::default()
    }
}

fn large(number: usize, bytes: usize) -> Allocation {
    let event = TaskEvent {
        message: "x".repeat(bytes),
        ..TaskEvent::default()
    };
    let state = TaskState {
        state: "running".into(),
        started_at: Time(1),
        events: vec![event].into(),
        ..TaskState::default()
    };
    let mut alloc = update(number, "running");
    alloc.task_states.insert("t", state);
    alloc
}

#[tokio::test]
async fn hb_07_what_many_nodes_tell_at_once_is_one_event() {
    let stage = Stage::new(20, "");
    let reported = (0..20).map(|n| stage.submit(n, vec![update(2 * n, "running")]));
    let indexes = futures_util::future::join_all(reported).await;
    let indexes: BTreeSet<u64> = indexes.into_iter().map(Result::unwrap).collect();
    assert_eq!((indexes.len(), *stage.log.events.lock()), (1, 1));
    assert!((0..20).all(|n| stage.status(2 * n) == "running"));
}

#[tokio::test]
async fn who_tells_alone_is_said_to_have_told_it() {
    let stage = Stage::new(2, "");
    stage.submit(1, vec![update(2, "running")]).await.unwrap();
    let actors = || std::mem::take(&mut *stage.log.actors.lock());
    assert_eq!(actors(), [Actor::node(node(1).id, "there")]);
    let (one, other) = tokio::join!(
        stage.submit(0, vec![update(1, "running")]),
        stage.submit(1, vec![update(3, "running")])
    );
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(actors(), [Actor::server("s", "gathered")]);
}

/// What two nodes report of one job needs one evaluation, and each part's ids are its own.
#[tokio::test]
async fn many_parts_are_decided_as_one() {
    let stage = Stage::new(3, "");
    let view = stage.log.direct.projections.view();
    let strange = update(4, "running");
    let both = batch(vec![
        command(0, vec![update(0, "failed"), update(1, "failed")]),
        command(1, vec![strange]),
        command(1, vec![update(2, "failed")]),
    ]);
    for _ in 0..2 {
        let decided = both.decide(&view, &STAMP).unwrap();
        let Decision::Event { event, .. } = decided else {
            panic!("an event")
        };
        let Event::AllocsUpdatedByClient(reported) = event else {
            panic!("{event:?}")
        };
        assert_eq!((reported.updates.len(), reported.evals.len()), (3, 1));
        assert_eq!(reported.updated_at, 5);
        let heard = both.heard.lock();
        let refused: Vec<bool> = heard.refused.iter().map(Option::is_some).collect();
        assert_eq!(refused, [false, true, false], "{:?}", heard.refused);
    }
    let nothing = batch(vec![command(2, vec![update(4, "pending")])]);
    let decided = nothing.decide(&view, &STAMP).unwrap();
    assert!(matches!(decided, Decision::Nothing(Reply::None)));

    for (parts, allocs, long) in [(1, GLANCED, false), (1, GLANCED + 1, true), (3, 16, true)] {
        let part = |n| command(n, vec![update(0, "running"); allocs]);
        assert_eq!(batch((0..parts).map(part).collect()).is_long(), long);
    }
    let id = EventId([0xcc; 16]);
    let ids: BTreeSet<_> = (0..600).map(|n| derived(id, n).0).collect();
    assert!(ids.len() == 600 && ids.contains(&id.0));
}

/// Each once, and also one that is waited for and has nothing new to report (SCH-12).
#[tokio::test]
async fn the_nodes_that_report_are_named_beside_their_allocations() {
    let stage = Stage::new(3, "");
    let direct = &stage.log.direct;
    raise(direct);
    let waited = node(2).id;
    let missed = MissHeartbeat {
        node_id: waited.clone(),
    };
    direct.command(&missed).unwrap();
    let heard_of = UpdateNodeStatus {
        node_id: waited,
        status: "ready".into(),
        event: None,
    };
    direct.command(&heard_of).unwrap();
    let view = direct.projections.view();
    let as_before = || command(2, vec![update(4, "pending")]);
    let all = vec![
        command(1, vec![update(2, "running")]),
        as_before(),
        command(0, vec![update(0, "running")]),
        command(1, vec![update(3, "running")]),
    ];
    for (commands, updates, nodes) in [(all, 3, 0..3), (vec![as_before()], 0, 2..3)] {
        let decided = batch(commands).decide(&view, &STAMP).unwrap();
        let Decision::Event { event, .. } = decided else {
            panic!("{decided:?}");
        };
        let Event::AllocsUpdatedByClient(reported) = event else {
            panic!("{event:?}");
        };
        let nodes: Vec<String> = nodes.map(|number| node(number).id).collect();
        assert_eq!((reported.updates.len(), &reported.nodes), (updates, &nodes));
    }
}

/// What an earlier decision refused says nothing where the next one fails, and what was not decided
/// is answered all the same.
#[tokio::test]
async fn every_part_hears_why_its_batch_is_not_taken() {
    let stage = Stage::new(2, "");
    let readable = Arc::clone(&stage.log.direct);
    for decides in [vec![], vec![readable, damaged()]] {
        let decisions = decides.len();
        let batcher = Batcher::start(Arc::new(Leaderless(decides)));
        // The second one reports an allocation that is not its own.
        let (one, other) = tokio::join!(
            submit(&batcher, 0, vec![update(0, "running")]),
            submit(&batcher, 1, vec![update(1, "running")])
        );
        for answer in [one, other] {
            let code = answer.unwrap_err().code;
            assert_eq!(code, Code::NoLeader, "after {decisions} decisions");
        }
    }
}

#[tokio::test]
async fn a_part_that_always_fails_costs_the_others_nothing() {
    for bad in 0..5 {
        let stage = Stage::new(5, &alloc_id(2 * bad));
        let reported = (0..5).map(|n| stage.submit(n, vec![update(2 * n, "running")]));
        let answers = futures_util::future::join_all(reported).await;
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(answer.is_ok(), n != bad, "node {n} of {bad}: {answer:?}");
            let status = stage.status(2 * n);
            assert_eq!(status == "running", n != bad, "node {n} of {bad}");
        }
    }
}

/// A client is not to report it again, for it would report the same.
#[tokio::test]
async fn of_an_update_that_is_too_large_what_matters_is_taken() {
    let stage = Stage::new(3, "");
    let both = vec![large(2, 5 << 20), update(3, "running")];
    let (large_one, other) = tokio::join!(
        stage.submit(1, both),
        stage.submit(2, vec![update(4, "running")])
    );
    assert!(
        large_one.is_ok() && other.is_ok(),
        "{large_one:?} {other:?}"
    );
    for number in [2, 3, 4] {
        assert_eq!(stage.status(number), "running", "{number}");
    }
    // What is large but may be is not gathered into more than an event holds.
    let reported = (0..3).map(|n| stage.submit(n, vec![large(2 * n, 1_000_000)]));
    let answers = futures_util::future::join_all(reported).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn the_size_is_that_of_what_a_client_may_say() {
    let plain = size(&update(1, "running"));
    assert!(plain < 64, "{plain}");
    let large = size(&large(1, 100_000));
    assert!((100_000..101_000).contains(&large), "{large}");
    let mut with_network = update(1, "running");
    with_network.network_status = Some(AllocNetworkStatus {
        address: "a".repeat(500),
        ..AllocNetworkStatus::default()
    });
    assert!(size(&with_network) > plain + 500);
    let described = Allocation {
        client_description: "d".repeat(700),
        ..update(1, "running")
    };
    assert!((plain + 700..plain + 710).contains(&size(&described)));
}

/// Of what is known nothing is copied, however much it is, and each row is read once for the
/// decision and what it follows from.
#[tokio::test]
async fn what_says_nothing_new_is_compared_where_it_lies() {
    const BYTES: usize = 900_000;
    let stage = Stage::new(2, "");
    stage.submit(0, vec![large(0, BYTES)]).await.unwrap();
    let view = stage.log.direct.projections.view();
    let requested = view.get::<Allocs>(alloc_id(2).as_str()).unwrap().unwrap();
    let part = |number: usize, alloc: Allocation| BatchPart {
        command: Arc::new(UpdateAllocsFromClient {
            allocs: vec![alloc],
            caller: Some(node(number).id),
        }),
        bytes: 0,
        origin: Origin::default(),
        answer: oneshot::channel().0,
    };
    let parts = [
        part(0, large(0, BYTES)),
        part(1, update(2, "running")),
        part(1, update(0, "running")),
    ];
    let batch = UpdateBatch::of(&parts);
    assert!(Arc::ptr_eq(&batch.commands[0], &parts[0].command));
    let stamp = Stamp {
        id: EventId([7; 16]),
        now: 5,
    };
    let held = peak(64 << 20, || {
        let decided = batch.decide(&view, &stamp).unwrap();
        let Decision::Event { event, .. } = decided else {
            panic!("{decided:?}");
        };
        let Event::AllocsUpdatedByClient(event) = event else {
            panic!("{event:?}");
        };
        let reported: Vec<_> = event.updates.iter().map(|update| &update.id).collect();
        assert_eq!(reported, [&alloc_id(2)]);
        assert_eq!(batch.cause(&view), Some(requested.alloc_modify_index));
    });
    let row = BYTES as isize;
    assert!(held < 2 * row, "{held} bytes for a row of {row}");
    let heard = batch.heard.lock();
    let refused: Vec<bool> = heard.refused.iter().map(Option::is_some).collect();
    assert_eq!(refused, [false, false, true]);
}
