//! One server and three servers in one process, over a transport that can cut links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_testkit::{LONG, eventually, eventually_async};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use crate::log::{CompactRange, LogEngine, LogOptions};

fn member(n: u64) -> Member {
    Member {
        id: n.to_string(),
        name: format!("s{n}"),
        ..Member::default()
    }
}

/// A payload that no projection reads.
pub(crate) fn opaque(len: usize) -> Payload {
    let mut bytes = vec![0xAB; len.max(4)];
    bytes[..4].copy_from_slice(&[0xFF, 0xFF, 1, 0]);
    Payload(bytes.into())
}

pub(crate) fn members(n: u64) -> BTreeMap<u64, Member> {
    (1..=n).map(|i| (i, member(i))).collect()
}

/// Calls between nodes of this process.
#[derive(Clone, Default)]
pub(crate) struct Wires {
    pub(crate) nodes: Arc<Mutex<BTreeMap<String, Arc<RaftNode>>>>,
    pub(crate) cut: Arc<Mutex<BTreeSet<String>>>,
    scratch: Arc<Mutex<Option<PathBuf>>>,
}

impl Wires {
    fn to(&self, target: &Member) -> Result<Arc<RaftNode>, TransportError> {
        if self.cut.lock().contains(&target.id) {
            return Err(TransportError::Unreachable("cut".to_owned()));
        }
        let node = self.nodes.lock().get(&target.id).cloned();
        node.ok_or_else(|| TransportError::Unreachable("not started".to_owned()))
    }
}

pub(crate) struct Wire {
    pub(crate) wires: Wires,
    pub(crate) this: String,
}

impl Transport for Wire {
    fn call<'a>(
        &'a self,
        target: &'a Member,
        method: Method,
        request: Vec<u8>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        Box::pin(async move {
            if self.wires.cut.lock().contains(&self.this) {
                return Err(TransportError::Unreachable("cut".to_owned()));
            }
            self.wires.to(target)?.serve(method, &request).await
        })
    }

    fn send_snapshot<'a>(
        &'a self,
        target: &'a Member,
        vote: Vec<u8>,
        dir: PathBuf,
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        Box::pin(async move {
            let to = self.wires.scratch.lock().clone().unwrap();
            std::fs::create_dir_all(to.join("state")).unwrap();
            std::fs::copy(dir.join("head"), to.join("head")).unwrap();
            std::fs::copy(dir.join("state/place"), to.join("state/place")).unwrap();
            self.wires.to(target)?.install(&vote, to).await
        })
    }
}

/// A lone server has no silence to wait out, so a long one shows.
fn settings(size: u64) -> RaftSettings {
    match size {
        1 => RaftSettings {
            election_min: Duration::from_secs(20),
            election_max: Duration::from_secs(30),
            ..RaftSettings::default()
        },
        _ => RaftSettings::default(),
    }
}

async fn start(dir: &Path, n: u64, size: u64, wires: &Wires) -> Arc<RaftNode> {
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..LogOptions::default()
    };
    let (log, _) = LogEngine::open(&dir.join(format!("log-{n}")), options).unwrap();
    let transport = Arc::new(Wire {
        wires: wires.clone(),
        this: n.to_string(),
    });
    let node = RaftNode::start(RaftStart {
        number: n,
        log: Arc::new(log),
        fold: Box::new(Discard::default()),
        snapshots: dir.join(format!("snapshots-{n}")),
        transport,
        settings: settings(size),
        bootstrap: (n == 1).then(|| members(size)),
    })
    .await
    .unwrap();
    wires.nodes.lock().insert(n.to_string(), Arc::clone(&node));
    node
}

async fn leading(node: &RaftNode) -> u64 {
    let mut leadership = node.leadership();
    let found = leadership.wait_for(|l| matches!(l, Leadership::Leading { .. }));
    let found = tokio::time::timeout(drover_testkit::LONG, found)
        .await
        .unwrap()
        .unwrap();
    let Leadership::Leading { term } = *found else {
        unreachable!()
    };
    term
}

async fn write(node: &RaftNode, count: usize) -> u64 {
    let payloads = (0..count).map(|_| opaque(300));
    let mut results = node.raft.client_write_many(payloads).await.unwrap();
    let mut last = 0;
    while let Some(r) = results.next().await {
        last = r.unwrap().unwrap().response.index;
    }
    last
}

async fn applied(node: &RaftNode, index: u64) {
    let wait = node.raft.wait(Some(LONG));
    wait.applied_index_at_least(Some(index), "applied")
        .await
        .unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_lone_server_leads_at_once_and_again_after_a_restart() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let wires = Wires::default();
        let node = start(dir.path(), 1, 1, &wires).await;
        let term = leading(&node).await;
        assert_eq!(node.read_barrier(Consistency::Consistent).await, Ok(()));
        let last = write(&node, 1000).await;
        // Index 0 is the membership, 1 the blank entry of the first term.
        assert_eq!(last, 1001);
        node.shutdown().await;
        wires.nodes.lock().clear();
        drop(node);
        let node = start(dir.path(), 1, 1, &wires).await;
        assert!(leading(&node).await > term);
        assert_eq!(write(&node, 1).await, 1003);
        let entries = node
            .log()
            .scan(0)
            .map(|e| e.unwrap().index)
            .collect::<Vec<_>>();
        assert_eq!(entries, (0..=1003).collect::<Vec<_>>());
        node.shutdown().await;
    });
}

/// Writes through the leader, with a new attempt where leadership moves in between: on a machine
/// under load it may move at any time. Answers the leader and the last index.
async fn write_somewhere(nodes: &[Arc<RaftNode>], count: usize) -> (usize, u64, u64) {
    let wrote = async {
        loop {
            for (place, node) in nodes.iter().enumerate() {
                let Leadership::Leading { term } = *node.leadership().borrow() else {
                    continue;
                };
                let payloads = (0..count).map(|_| opaque(300));
                let Ok(mut results) = node.raft.client_write_many(payloads).await else {
                    continue;
                };
                let mut last = Some(0);
                while let Some(written) = results.next().await {
                    let index = match written {
                        Ok(Ok(written)) => Some(written.response.index),
                        _ => None,
                    };
                    last = last.and(index);
                }
                if let Some(last) = last {
                    return (place, term, last);
                }
            }
            let mut waits: Vec<_> = nodes.iter().map(|node| node.leadership()).collect();
            let changed = waits.iter_mut().map(|wait| Box::pin(wait.changed()));
            let again = futures_util::future::select_all(changed);
            let _ = tokio::time::timeout(Duration::from_millis(100), again).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, wrote)
        .await
        .expect("one of them leads")
}

/// The compact range after an index, once the entries up to it are on the disk: what a majority has
/// written may be applied before.
async fn range(node: &RaftNode, index: u64) -> CompactRange {
    let found = || node.log().range_at(index).unwrap().ok_or("not there");
    let waited = eventually("entries on the disk", LONG, found);
    waited.await.unwrap()
}

#[test]
fn three_servers_agree_and_outlive_their_leader() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let wires = Wires::default();
        let mut nodes = Vec::new();
        for n in [1, 2, 3] {
            nodes.push(start(dir.path(), n, 3, &wires).await);
        }
        let (leader, old_term, last) = write_somewhere(&nodes, 500).await;
        for node in &nodes {
            applied(node, last).await;
        }
        wires.cut.lock().insert((leader + 1).to_string());
        let first = Arc::clone(&nodes[leader]);
        let others: Vec<_> = (0..3)
            .filter(|place| *place != leader)
            .map(|place| Arc::clone(&nodes[place]))
            .collect();
        let (_, term, last) = write_somewhere(&others, 100).await;
        assert!(term > old_term);
        let mut turns = others.iter().cycle();
        let confirmed = async || {
            let other = turns.next().unwrap();
            other.read_barrier(Consistency::Consistent).await
        };
        let waited = eventually_async("a majority to confirm", LONG, confirmed);
        waited.await.unwrap();
        let cut_off = first.read_barrier(Consistency::Consistent);
        let cut_off = tokio::time::timeout(Duration::from_secs(2), cut_off).await;
        assert!(
            !matches!(cut_off, Ok(Ok(()))),
            "a leader that was cut off must not confirm"
        );
        wires.cut.lock().clear();
        for node in &nodes {
            applied(node, last).await;
        }
        let bodies = |n: &RaftNode| -> Vec<_> {
            n.log()
                .scan(0)
                .take(last as usize + 1)
                .map(|e| e.unwrap().body)
                .collect()
        };
        assert_eq!(bodies(&nodes[0]), bodies(&nodes[1]));
        assert_eq!(bodies(&nodes[0]), bodies(&nodes[2]));
        let mut ranges = Vec::new();
        for node in &nodes {
            ranges.push(range(node, last).await);
        }
        assert!(ranges.iter().all(|range| *range == ranges[0]));
        for node in &nodes {
            node.shutdown().await;
        }
    });
}

#[test]
fn how_long_ago_followers_answered_is_measured_while_one_leads() {
    let telemetry = crate::telemetry::install(Duration::from_secs(10));
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let wires = Wires::default();
        let mut nodes = Vec::new();
        for n in [1, 2, 3] {
            nodes.push(start(dir.path(), n, 3, &wires).await);
        }
        let measured = || {
            let text = telemetry.prometheus();
            let line = "nomad_raft_leader_lastContact_count ";
            let is_there = text.lines().any(|other| other.starts_with(line));
            is_there.then_some(()).ok_or("not yet")
        };
        let waited = eventually("contact to be measured", LONG, measured);
        waited.await.unwrap();
        for node in &nodes {
            node.shutdown().await;
        }
    });
}

#[test]
fn a_server_that_joins_late_starts_from_a_snapshot_and_goes_on_with_its_tree() {
    runtime().block_on(async {
        let dir: TempDir = tempfile::tempdir().unwrap();
        let wires = Wires::default();
        *wires.scratch.lock() = Some(dir.path().join("received"));
        let one = start(dir.path(), 1, 1, &wires).await;
        leading(&one).await;
        let last = write(&one, 300).await;
        one.raft.trigger().snapshot().await.unwrap();
        let wait = one.raft.wait(Some(LONG));
        wait.metrics(|m| m.snapshot.is_some_and(|s| s.index >= last), "built")
            .await
            .unwrap();
        one.raft.trigger().purge_log(last).await.unwrap();
        let wait = one.raft.wait(Some(LONG));
        wait.metrics(|m| m.purged.is_some_and(|s| s.index >= last), "purged")
            .await
            .unwrap();
        let two = start(dir.path(), 2, 2, &wires).await;
        one.raft.add_learner(2, member(2), true).await.unwrap();
        let last = write(&one, 50).await;
        applied(&two, last).await;
        assert!(two.log().bounds().0 > 300, "the start came as a snapshot");
        two.log().sync().unwrap();
        let ours = one.log().range_at(last).unwrap().unwrap();
        assert_eq!(two.log().range_at(last).unwrap().unwrap(), ours);
        assert_eq!(ours.size(), last + 1);
        assert_eq!(
            two.raft.server_metrics().borrow_watched().current_leader,
            Some(1)
        );
        one.shutdown().await;
        two.shutdown().await;
    });
}
