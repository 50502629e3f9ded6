//! Commands through the proposer into real projections; full disks; events from the future.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drover_events::actor::Actor;
use drover_events::cluster::LeaderElected;
use drover_events::eval::EvalsDeleted;
use drover_events::model::{Evaluation, Namespace};
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::{Projections, Reply, View};

use super::network::Alone;
use super::*;
use crate::commands::eval::UpsertEvals;
use crate::commands::{Command, Decision, Stamp};
use crate::error::{ApiError, Code};
use crate::log::fake::FakeDisk;
use crate::log::{LogEngine, OnFull, Options, Space};

struct Server {
    node: Arc<RaftNode>,
    projections: Arc<Projections>,
    proposer: Proposer,
}

async fn start(dir: &Path, log: LogEngine) -> Server {
    let (projections, writer) = Projections::open(dir.join("db"), Default::default()).unwrap();
    let node = RaftNode::start(Start {
        number: 1,
        log: Arc::new(log),
        fold: Box::new(Projector::new(writer)),
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: Settings::default(),
        bootstrap: Some(BTreeMap::from([(1, Member::default())])),
    })
    .await
    .unwrap();
    let first: FirstEvents = Arc::new(|_: &View| vec![LeaderElected::default().into()]);
    let actor = Actor::server("1", "test");
    let shared = Arc::clone(&projections);
    let proposer = Proposer::start(Arc::clone(&node), shared, actor, first);
    proposer.ready().wait_for(Option::is_some).await.unwrap();
    Server {
        node,
        projections,
        proposer,
    }
}

async fn on_disk(dir: &Path) -> Server {
    let options = Options {
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    start(dir, LogEngine::open(&dir.join("log"), options).unwrap().0).await
}

fn run(test: impl Future<Output = ()>) {
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
    fn decide(&self, view: &View, _: &Stamp) -> Result<Decision, ApiError> {
        self.decided.fetch_add(1, Ordering::Relaxed);
        let row = view
            .get::<Namespaces>("counter")
            .map_err(|_| ApiError::internal("read"))?;
        let count: u64 = row.map_or(0, |r| r.description.parse().unwrap_or(0));
        let mut event = named("counter");
        event.namespaces[0].description = (count + 1).to_string();
        let guard = view
            .guard::<Namespaces>("counter")
            .map_err(|_| ApiError::internal("read"))?;
        Ok(Decision::guarded(event, vec![guard]))
    }
}

struct Put(String);

impl Command for Put {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, ApiError> {
        Ok(Decision::free(named(&self.0)))
    }
}

struct DeleteDefault;

impl Command for DeleteDefault {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, ApiError> {
        Ok(Decision::free(NamespacesDeleted {
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

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_resumes() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = FakeDisk::default();
        let options = Options {
            segment_bytes: 64 << 10,
            on_full: OnFull::Wait,
            ..Options::default()
        };
        let (log, _) =
            LogEngine::open_with(Arc::new(disk.clone()), Path::new("/log"), options).unwrap();
        let server = start(dir.path(), log).await;
        disk.set_capacity(Some(disk.used()));
        let mut written = Vec::new();
        let error = loop {
            let name = format!("n{}", written.len());
            let put = server
                .proposer
                .submit(Arc::new(Put(name.clone())), Origin::default());
            match tokio::time::timeout(Duration::from_secs(10), put)
                .await
                .unwrap()
            {
                Ok(_) => written.push(name),
                Err(e) => break e,
            }
        };
        assert_eq!(error.code, Code::Unavailable);
        assert!(written.len() > 20);
        for name in &written {
            let view = server.projections.view();
            assert!(
                view.get::<Namespaces>(name.as_str()).unwrap().is_some(),
                "reads go on"
            );
        }
        disk.set_capacity(None);
        let deadline = Instant::now() + Duration::from_secs(10);
        while server.node.log().space() != Space::Enough {
            assert!(
                Instant::now() < deadline,
                "the log did not notice the space"
            );
            tokio::task::yield_now().await;
        }
        server
            .proposer
            .submit(Arc::new(Put("after".to_owned())), Origin::default())
            .await
            .unwrap();
        server.node.shutdown().await;
    });
}

#[test]
fn an_event_from_the_future_parks_the_applier_and_the_log_goes_on() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        let before = server.projections.applied_index();
        let node = Arc::clone(&server.node);
        let future = tokio::spawn(async move { node.commit(opaque(100)).await });
        let deadline = Instant::now() + Duration::from_secs(10);
        while server.node.parked().is_none() {
            assert!(Instant::now() < deadline, "the applier did not park");
            tokio::task::yield_now().await;
        }
        let parked = server.node.parked().unwrap();
        assert_eq!(parked.index, before + 1);
        let node = Arc::clone(&server.node);
        let after = tokio::spawn(async move { node.commit(event_of_today()).await });
        while server.node.log().bounds().1 <= parked.index + 1 {
            assert!(Instant::now() < deadline, "the log stopped");
            tokio::task::yield_now().await;
        }
        assert_eq!(
            server.projections.applied_index(),
            before,
            "nothing is skipped"
        );
        assert!(server.node.read_barrier(Consistency::Stale).await.is_ok());
        future.abort();
        after.abort();
        server.node.shutdown().await;
    });
}

fn event_of_today() -> Payload {
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
        server.node.raft.trigger().snapshot().await.unwrap();
        let wait = server.node.raft.wait(Some(Duration::from_secs(10)));
        wait.metrics(|m| m.snapshot.is_some_and(|s| s.index >= last), "built")
            .await
            .unwrap();
        let found = server.node.raft.get_snapshot().await.unwrap().unwrap();
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

/// One page of a deletion by filter, as garbage collection asks for it.
struct DeletePage(String);

impl Command for DeletePage {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, ApiError> {
        Ok(Decision::free(EvalsDeleted {
            filter: "JobID == \"ev-13\"".to_owned(),
            filter_version: u32::from(drover_projections::filter::FILTER_VERSION),
            page_token: self.0.clone(),
            per_page: 512,
            ..EvalsDeleted::default()
        }))
    }
}

#[test]
fn ev_13_a_barrier_gets_through_between_the_pages_of_a_large_deletion() {
    const EVALS: usize = 4096;
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        for page in 0..EVALS / 512 {
            let one = |i: usize| Evaluation {
                id: format!("00000000-0000-4000-8000-{:012x}", page * 512 + i),
                namespace: "default".to_owned(),
                job_id: "ev-13".to_owned(),
                status: "complete".to_owned(),
                ..Evaluation::default()
            };
            let evals = (0..512).map(one).collect();
            let put = UpsertEvals {
                evals,
                decision: None,
            };
            server
                .proposer
                .submit(Arc::new(put), Origin::default())
                .await
                .unwrap();
        }
        let node = Arc::clone(&server.node);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let barriers = tokio::spawn(async move {
            let mut took = Vec::new();
            while !*stopped.borrow() {
                let at = Instant::now();
                node.commit(event_of_today()).await.unwrap();
                took.push(at.elapsed());
            }
            took
        });
        let (mut token, mut deleted, mut pages) = (String::new(), 0, 0);
        loop {
            let page = Arc::new(DeletePage(token));
            let done = server
                .proposer
                .submit(page, Origin::default())
                .await
                .unwrap();
            let Reply::Page { count, next } = done.reply else {
                panic!("{:?}", done.reply)
            };
            deleted += count;
            pages += 1;
            token = next;
            if token.is_empty() {
                break;
            }
        }
        stop.send_replace(true);
        let mut took = barriers.await.unwrap();
        took.sort_unstable();
        assert_eq!(deleted, EVALS as u64);
        assert!(
            took.len() > pages,
            "{} barriers beside {pages} pages",
            took.len()
        );
        let p99 = took[(took.len() - 1) * 99 / 100];
        assert!(p99 < Duration::from_secs(1), "{p99:?}");
        server.node.shutdown().await;
    });
}
