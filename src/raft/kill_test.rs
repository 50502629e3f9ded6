//! kill -9 at random times under load: no acknowledged write is lost, and the applied state
//! equals a replay of the log from its beginning.
//!
//! The server under load is this test binary, run again for the test `server_under_load` with a
//! directory in its environment; it prints a line for each acknowledged write.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use drover_events::codec::Draft;
use drover_events::model::Namespace;
use drover_events::namespace::NamespacesUpserted;
use drover_events::{Envelope, Event, EventId};
use drover_projections::Projections;
use drover_testkit::{LONG, eventually, moment, so};
use parking_lot::Mutex;

use super::network::Alone;
use super::*;
use crate::history::replay;
use crate::log::{LogEngine, LogOptions, ReadOnlyLog};

const DIR: &str = "DROVER_KILL_TEST_DIR";
const WRITERS: u64 = 16;

fn event(name: &str) -> Payload {
    let namespace = Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    };
    let event = NamespacesUpserted {
        namespaces: vec![namespace],
    };
    let envelope = Envelope {
        time: 0,
        id: EventId(*uuid::Uuid::now_v7().as_bytes()),
        actor: drover_events::actor::Actor::server("1", "test"),
        request_id: name.to_owned(),
        cause: None,
        trace: String::new(),
        guards: Vec::new(),
        event: Event::NamespacesUpserted(Box::new(event)),
    };
    Draft::encode(&envelope)
        .unwrap()
        .stamp(1_700_000_000_000_000_000)
        .into()
}

async fn start(dir: &Path) -> (Arc<RaftNode>, Arc<Projections>) {
    let (log_dir, path) = replay::places(dir);
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..LogOptions::default()
    };
    let (log, _) = LogEngine::open(&log_dir, options).unwrap();
    let (projections, writer) = Projections::open(path, Default::default()).unwrap();
    let node = RaftNode::start(RaftStart {
        number: 1,
        log: Arc::new(log),
        fold: Box::new(Projector::new(writer)),
        snapshots: dir.join("server/snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some(BTreeMap::from([(1, Member::default())])),
    })
    .await
    .unwrap();
    let mut leadership = node.leadership();
    leadership
        .wait_for(|l| matches!(l, Leadership::Leading { .. }))
        .await
        .unwrap();
    (node, projections)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
#[ignore = "no test of its own: the process that the test below starts and kills"]
fn server_under_load() {
    let dir = std::env::var_os(DIR).expect("the test below names a directory");
    runtime().block_on(async {
        let (node, _projections) = start(Path::new(&dir)).await;
        let tasks = (0..WRITERS).map(|w| {
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                for i in 0u64.. {
                    let name = format!("ns-{w}-{}-{i}", std::process::id());
                    let done = node.commit(event(&name)).await.unwrap();
                    let line = format!("ack {} {name}\n", done.index);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

/// Runs the server until `for_acks` writes are acknowledged, kills it, and answers all it said.
fn run_and_kill(dir: &Path, for_acks: usize) -> Vec<(u64, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "raft::kill_test::server_under_load",
            "--nocapture",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let acked = Mutex::new(Vec::new());
    let begun = Instant::now();
    let served = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_acks(out, &acked));
        let served = moment(
            || acked.lock().len() >= for_acks,
            || reader.is_finished() || begun.elapsed() > LONG * 5,
        );
        child.kill().unwrap();
        served
    });
    child.wait().unwrap();
    assert!(served, "the server under load ended by itself, or hangs");
    acked.into_inner()
}

/// What a server under load says until it is killed.
fn read_acks(mut out: impl BufRead, acked: &Mutex<Vec<(u64, String)>>) {
    let mut line = String::new();
    while out.read_line(&mut line).unwrap() > 0 {
        // Only a line that the kill tore has no end: every other is an acknowledgement, the last
        // too.
        if let Some(line) = line.strip_suffix('\n')
            && let ["ack", index, name] = line.split(' ').collect::<Vec<_>>()[..]
        {
            let ack = (index.parse().unwrap(), name.to_owned());
            acked.lock().push(ack);
        }
        line.clear();
    }
}

#[test]
fn only_the_line_that_a_kill_tore_is_no_acknowledgement() {
    let whole = [(1, "a".to_owned()), (2, "b".to_owned())];
    for printed in [
        "ack 1 a\nack 2 b\n",
        "ack 1 a\nack 2 b\nack 3",
        "ack 1 a\nack 2 b\nack 3 c",
        "\nrunning 1 test\nack 1 a\nack 2 b\na",
    ] {
        let acked = Mutex::new(Vec::new());
        read_acks(printed.as_bytes(), &acked);
        assert_eq!(acked.into_inner(), whole, "{printed:?}");
    }
}

fn check_log(dir: &Path, acked: &BTreeMap<u64, String>) {
    let (log_dir, _) = replay::places(dir);
    let log = ReadOnlyLog::open(&log_dir).unwrap();
    let mut found = BTreeMap::new();
    for entry in log.scan(0) {
        let entry = entry.unwrap();
        let recorded = drover_migrations::decode(&entry.body).unwrap();
        if let Some(envelope) = recorded.envelope {
            found.insert(recorded.index, envelope.request_id);
        }
    }
    for (index, name) in acked {
        assert_eq!(
            found.get(index),
            Some(name),
            "an acknowledged write is lost"
        );
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_a_server_is_killed() {
    let kills = std::env::var("DROVER_KILLS").map_or(10, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut acked = BTreeMap::new();
    for kill in 0..kills {
        let for_acks = rand::random::<u64>() % 400 + 1;
        acked.extend(run_and_kill(dir.path(), for_acks as usize));
        if kill % 10 == 9 || kill + 1 == kills {
            check_log(dir.path(), &acked);
        }
    }
    let last = runtime().block_on(async {
        let (node, projections) = start(dir.path()).await;
        let (_, next) = node.log().bounds();
        let applied = || so(projections.applied_index() + 1 >= next);
        let waited = eventually("the log to be applied", LONG, applied);
        waited.await.unwrap();
        node.shutdown().await;
        next - 1
    });
    let (log_dir, path) = replay::places(dir.path());
    let live = replay::catch_up(&log_dir, &path).unwrap();
    assert_eq!(live.index, last);
    let scratch = tempfile::tempdir().unwrap();
    let replayed = replay::replay(&log_dir, scratch.path(), Some(last), &mut |_, _| ()).unwrap();
    assert_eq!(live.differences(&replayed.state), Some(Vec::new()));
    assert_eq!(live, replayed.state);
    assert!(acked.len() as u64 <= replayed.entries);
}
