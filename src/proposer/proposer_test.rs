//! Commands through the proposer into real projections.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drover_events::EventKind;
use drover_events::actor::Actor;
use drover_events::cluster::LeaderElected;
use drover_events::model::{Evaluation, Namespace};
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_projections::maintenance::{FamilyPart, Maintenance, RawChange};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::{Id, Key as _, Projections, Reply, Scan, Table as _, View};
use drover_testkit::LONG;

use super::*;
use crate::commands::eval::UpsertEvals;
use crate::commands::{Command, Decision, Stamp};
use crate::error::{Code, Refusal};
use crate::log::{LogEngine, LogOptions};
use crate::raft::network::Alone;
use crate::raft::*;

pub(super) struct Server {
    pub(super) node: Arc<RaftNode>,
    pub(super) projections: Arc<Projections>,
    pub(super) proposer: Proposer,
}

pub(super) async fn start(dir: &Path, log: LogEngine) -> Server {
    let first: FirstEvents = Arc::new(|_: &View| Ok(vec![LeaderElected::default().into()]));
    let server = start_with(dir, log, first).await;
    let mut ready = server.proposer.ready();
    ready.wait_for(Option::is_some).await.unwrap();
    server
}

async fn start_with(dir: &Path, log: LogEngine, first: FirstEvents) -> Server {
    let (projections, writer) = Projections::open(dir.join("db"), Default::default()).unwrap();
    let node = RaftNode::start(RaftStart {
        number: 1,
        log: Arc::new(log),
        fold: Box::new(Projector::new(writer)),
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some(BTreeMap::from([(1, Member::default())])),
    })
    .await
    .unwrap();
    let actor = Actor::server("1", "test");
    let shared = Arc::clone(&projections);
    let proposer = Proposer::start(Arc::clone(&node), shared, actor, first);
    Server {
        node,
        projections,
        proposer,
    }
}

pub(super) async fn on_disk(dir: &Path) -> Server {
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..LogOptions::default()
    };
    start(dir, LogEngine::open(&dir.join("log"), options).unwrap().0).await
}

pub(super) fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn named(name: &str) -> NamespacesUpserted {
    let namespace = Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    };
    NamespacesUpserted {
        namespaces: vec![namespace],
    }
}

/// Adds one to the number in a namespace's description, guarded by the row it read.
#[derive(Default)]
struct Increment {
    decided: AtomicU64,
}

impl Command for Increment {
    fn decide(&self, view: &View, _: &Stamp) -> Result<Decision, Refusal> {
        self.decided.fetch_add(1, Ordering::Relaxed);
        let row = view
            .get::<Namespaces>("counter")
            .map_err(|_| Refusal::internal("read"))?;
        let count: u64 = row.map_or(0, |r| r.description.parse().unwrap_or(0));
        let mut event = named("counter");
        event.namespaces[0].description = (count + 1).to_string();
        let guard = view
            .guard::<Namespaces>("counter")
            .map_err(|_| Refusal::internal("read"))?;
        Ok(Decision::guarded(event, vec![guard]))
    }
}

pub(super) struct Put(pub(super) String);

impl Command for Put {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(named(&self.0)))
    }
}

struct DeleteDefault;

impl Command for DeleteDefault {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(NamespacesDeleted {
            names: vec!["default".to_owned()],
        }))
    }
}

#[test]
fn ev_20_commands_that_race_are_decided_again_and_none_is_applied_twice() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let command = Arc::new(Increment::default());
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (proposer, command) = (server.proposer.clone(), Arc::clone(&command));
                tokio::spawn(async move {
                    let mut done = 0;
                    for _ in 0..50 {
                        match proposer.submit(command.clone(), Origin::default()).await {
                            Ok(_) => done += 1,
                            Err(e) => assert_eq!(e.code, Code::Conflict),
                        }
                    }
                    done
                })
            })
            .collect();
        let mut done = 0u64;
        for task in tasks {
            done += task.await.unwrap();
        }
        let row = server
            .projections
            .view()
            .get::<Namespaces>("counter")
            .unwrap()
            .unwrap();
        assert_eq!(row.description, done.to_string());
        assert!(done >= 100, "{done} of 200 went through");
        assert!(command.decided.load(Ordering::Relaxed) >= done);
        server.node.shutdown().await;
    });
}

#[test]
fn a_rule_that_apply_keeps_is_the_refusal_the_caller_reads() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let refused = server
            .proposer
            .submit(Arc::new(DeleteDefault), Origin::default())
            .await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.message, "default namespace can not be deleted");
        let put = server
            .proposer
            .submit(Arc::new(Put("a".to_owned())), Origin::default())
            .await;
        let put = put.unwrap();
        assert_eq!(put.reply, Reply::None);
        let row = server
            .projections
            .view()
            .get::<Namespaces>("a")
            .unwrap()
            .unwrap();
        assert_eq!(row.modify_index, put.index);
        server.node.shutdown().await;
    });
}

/// The events of a kind that the log holds.
pub(super) fn entries_of(server: &Server, kind: EventKind) -> Vec<drover_events::Recorded> {
    let all = server.node.log().scan(0).map(|e| e.unwrap());
    let decoded = all.map(|e| drover_migrations::decode(&e.body).unwrap());
    decoded.filter(|r| r.kind == kind).collect()
}

/// A server whose first events are these, once it takes commands.
async fn begun(dir: &Path, first: FirstEvents) -> Server {
    let log = LogEngine::open(&dir.join("log"), LogOptions::default());
    let server = start_with(dir, log.unwrap().0, first).await;
    let mut ready = server.proposer.ready();
    let leads = ready.wait_for(Option::is_some);
    let leads = tokio::time::timeout(Duration::from_secs(60), leads).await;
    assert!(matches!(leads, Ok(Ok(_))), "the server never leads");
    server
}

fn evals_with_ids_of(bytes: usize, count: usize) -> drover_events::Event {
    let eval = |number: usize| Evaluation {
        id: format!("00000000-0000-4000-8000-{number:012x}"),
        namespace: "default".to_owned(),
        job_id: format!("{number}").repeat(bytes),
        status: "pending".to_owned(),
        ..Evaluation::default()
    };
    drover_events::eval::EvalsUpserted {
        evals: (0..count).map(eval).collect(),
        decision: None,
    }
    .into()
}

#[test]
fn first_events_that_are_too_large_are_cut_and_what_cannot_be_is_left_out() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let first: FirstEvents = Arc::new(|_: &View| {
            let leads = LeaderElected::default().into();
            let fits = evals_with_ids_of(1_100_000, 5);
            Ok(vec![evals_with_ids_of(5_000_000, 1), fits, leads])
        });
        let server = begun(dir.path(), first).await;
        let view = server.projections.view();
        assert_eq!(view.scan::<Evals>(Scan::all()).count(), 5);
        assert!(entries_of(&server, EventKind::EvalsUpserted).len() > 1);
        assert_eq!(entries_of(&server, EventKind::LeaderElected).len(), 1);
        server.node.shutdown().await;
    });
}

/// The applier would stop at it, and with the applier everything: the rest of the event is
/// proposed, and so are the others.
#[test]
fn what_touches_a_row_that_cannot_be_read_is_left_out_of_first_events() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("db");
        drop(Projections::open(&database, Default::default()).unwrap());
        let raw = Maintenance::open(&database, &Default::default()).unwrap();
        let header = raw.header().unwrap().unwrap_or_default();
        let mut key = Evals::ID.to_be_bytes().to_vec();
        key.extend_from_slice(&Id::new("00000000-0000-4000-8000-000000000002").to_bytes());
        let row = RawChange::Put(FamilyPart::Rows, key, b"no row".to_vec());
        raw.write(&[row], &header).unwrap();
        drop(raw);
        let first: FirstEvents = Arc::new(|_: &View| {
            let leads = LeaderElected::default().into();
            Ok(vec![evals_with_ids_of(1, 4), leads])
        });
        let server = begun(dir.path(), first).await;
        let upserted = entries_of(&server, EventKind::EvalsUpserted).into_iter();
        let numbers = upserted.flat_map(|entry| match entry.envelope.unwrap().event {
            drover_events::Event::EvalsUpserted(event) => event.evals,
            other => panic!("{other:?}"),
        });
        let jobs: Vec<String> = numbers.map(|eval| eval.job_id).collect();
        assert_eq!(jobs, ["0", "1", "3"]);
        assert_eq!(entries_of(&server, EventKind::LeaderElected).len(), 1);
        server.node.shutdown().await;
    });
}

#[test]
fn a_leader_that_cannot_begin_tries_again() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let tries = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&tries);
        let first: FirstEvents =
            Arc::new(
                move |_: &View| match counted.fetch_add(1, Ordering::Relaxed) {
                    0 => panic!("a broken rule"),
                    1..3 => Err(drover_projections::StorageError::Snapshot(
                        "gone".to_owned(),
                    )),
                    _ => Ok(vec![LeaderElected::default().into()]),
                },
            );
        let server = begun(dir.path(), first).await;
        assert_eq!(tries.load(Ordering::Relaxed), 4);
        assert_eq!(entries_of(&server, EventKind::LeaderElected).len(), 1);
        server.node.shutdown().await;
    });
}

#[test]
fn a_refusal_by_rule_is_decided_again_once() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let refused = server
            .proposer
            .submit(Arc::new(DeleteDefault), Origin::default());
        assert_eq!(refused.await.unwrap_err().code, Code::Refused);
        assert_eq!(entries_of(&server, EventKind::NamespacesDeleted).len(), 2);
        server.node.shutdown().await;
    });
}

#[test]
fn what_is_queued_where_nothing_is_taken_any_more_is_refused_at_once() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let (tx, _) = mpsc::channel(1);
        let ended = Proposer {
            tx,
            ..server.proposer.clone()
        };
        let event = named("late").into();
        let origin = Origin::default();
        let queued = ended.queue(new_id(), event, Vec::new(), &origin).await;
        let refused = queued.err().expect("nobody takes it");
        assert_eq!(refused.code, Code::NoLeader);
        server.node.shutdown().await;
    });
}

/// Always guarded by a row that is not there.
struct Doomed;

impl Command for Doomed {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        let guard = drover_events::Guard::RowAt {
            table: 0,
            key: b"never".to_vec().into(),
            index: 1,
        };
        Ok(Decision::guarded(named("doomed"), vec![guard]))
    }
}

#[test]
fn a_guard_that_never_holds_is_a_conflict_after_five_more_tries() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let refused = server.proposer.submit(Arc::new(Doomed), Origin::default());
        assert_eq!(refused.await.unwrap_err().code, Code::Conflict);
        assert_eq!(entries_of(&server, EventKind::NamespacesUpserted).len(), 6);
        server.node.shutdown().await;
    });
}

/// A rule of ten namespaces, two a page.
struct Pages;

impl Command for Pages {
    fn decide(&self, view: &View, _: &Stamp) -> Result<Decision, Refusal> {
        let absent = |name: &String| matches!(view.get::<Namespaces>(name.as_str()), Ok(None));
        let mut left: Vec<_> = (0..10).map(|n| format!("p{n}")).filter(absent).collect();
        let last = left.len() <= 2;
        left.truncate(2);
        let mut event = named("");
        event.namespaces = left
            .iter()
            .map(|name| named(name).namespaces.remove(0))
            .collect();
        let (event, guards) = (event.into(), Vec::new());
        Ok(if last {
            Decision::Event { event, guards }
        } else {
            Decision::Page { event, guards }
        })
    }
}

#[test]
fn a_paged_rule_is_decided_until_its_last_page() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let done = server
            .proposer
            .submit(Arc::new(Pages), Origin::default())
            .await;
        let pages = entries_of(&server, EventKind::NamespacesUpserted);
        assert_eq!(pages.len(), 5);
        assert_eq!(done.unwrap().index, pages[4].index);
        server.node.shutdown().await;
    });
}

#[test]
fn a_list_that_is_too_long_for_one_event_becomes_several_that_follow_one_another() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let one = |i: usize| Evaluation {
            id: format!("00000000-0000-4000-8000-{i:012x}"),
            namespace: "default".to_owned(),
            job_id: format!("job-{i}"),
            status: "pending".to_owned(),
            ..Evaluation::default()
        };
        let put = UpsertEvals {
            evals: (0..3_000).map(one).collect(),
            decision: None,
        };
        let done = server
            .proposer
            .submit(Arc::new(put), Origin::default())
            .await;
        let parts = entries_of(&server, EventKind::EvalsUpserted);
        assert!(parts.len() > 3, "{}", parts.len());
        let first = parts[0].index;
        assert!(
            parts
                .iter()
                .zip(first..)
                .all(|(part, index)| part.index == index)
        );
        assert_eq!(done.unwrap().index, parts.last().unwrap().index);
        let mut ids: Vec<_> = parts
            .iter()
            .map(|p| p.envelope.as_ref().unwrap().id)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), parts.len(), "every part has an id of its own");
        let view = server.projections.view();
        assert_eq!(view.scan::<Evals>(Scan::all()).count(), 3_000);
        server.node.shutdown().await;
    });
}

#[test]
fn time_order_is_index_order_and_the_leader_speaks_first() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let puts = (0..200).map(|i| {
            let proposer = server.proposer.clone();
            tokio::spawn(async move {
                let put = Arc::new(Put(format!("n{i}")));
                proposer.submit(put, Origin::default()).await.unwrap().index
            })
        });
        for put in puts.collect::<Vec<_>>() {
            put.await.unwrap();
        }
        let mut last = 0;
        for entry in server.node.log().scan(0) {
            let entry = entry.unwrap();
            let recorded = drover_migrations::decode(&entry.body).unwrap();
            if let Some(envelope) = recorded.envelope {
                assert!(envelope.time >= last, "index {}", entry.index);
                assert_eq!(entry.time, envelope.time);
                last = envelope.time;
                let leader = matches!(envelope.event, drover_events::Event::LeaderElected(_));
                assert_eq!(leader, entry.index == 2);
            }
        }
        server.node.shutdown().await;
    });
}

pub(super) fn event_of_today() -> Payload {
    use openraft::entry::RaftPayload as _;
    Payload::blank()
}

#[test]
fn a_snapshot_carries_the_state_to_another_server() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        for i in 0..50 {
            let put = Arc::new(Put(format!("n{i}")));
            server
                .proposer
                .submit(put, Origin::default())
                .await
                .unwrap();
        }
        let last = server.projections.applied_index();
        server.node.inner().trigger().snapshot().await.unwrap();
        let wait = server.node.inner().wait(Some(LONG));
        wait.metrics(|m| m.snapshot.is_some_and(|s| s.index >= last), "built")
            .await
            .unwrap();
        let found = server.node.inner().get_snapshot().await.unwrap().unwrap();
        let (_, writer) = Projections::open(dir.path().join("other"), Default::default()).unwrap();
        let mut other = Projector::new(writer);
        other.load(&found.snapshot.state()).unwrap();
        assert_eq!(other.place().map(|p| p.index), Some(last));
        assert_eq!(
            other.projections().view().digests(),
            server.projections.view().digests()
        );
        server.node.shutdown().await;
    });
}
