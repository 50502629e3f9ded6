//! What retention drops, and what it keeps.

use std::collections::BTreeMap;
use std::path::Path;

use drover_events::Actor;
use drover_events::cluster::LeaderElected;
use drover_events::model::Namespace;
use drover_events::namespace::NamespacesUpserted;
use drover_projections::{DatabaseOptions, Projections, View};

use super::*;
use crate::base::clock::Clock;
use crate::commands::{Command, Decision, Stamp};
use crate::error::Refusal;
use crate::history::proof::state_digest;
use crate::log::{FileLayer, LogEngine, ReadOnlyLog, RealFiles};
use crate::proposer::{Origin, Proposer};
use crate::raft::network::Alone;
use crate::raft::{Member, Projector, RaftSettings, RaftStart};
use crate::reactors::testing::Idle;
use crate::requests::Guarantee;

#[path = "retention_power_test.rs"]
mod power;

/// A server with an archive, of which everything up to its last base may go.
struct World {
    dir: tempfile::TempDir,
    proposer: Proposer,
    context: Context,
    retention: Retention,
}

/// An event that changes a row.
#[derive(Debug)]
struct Write(u64);

impl Command for Write {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        let namespace = Namespace {
            name: format!("n{}", self.0),
            ..Namespace::default()
        };
        let namespaces = vec![namespace];
        Ok(Decision::unguarded(NamespacesUpserted { namespaces }))
    }
}

async fn raft(server: &Path, disk: Disk) -> (Arc<RaftNode>, Arc<Projections>) {
    let opened = Projections::open(server.join("db"), DatabaseOptions::dev());
    let (projections, writer) = opened.unwrap();
    let (files, options) = disk;
    let (log, _) = LogEngine::open_with(files, &server.join("log"), options).unwrap();
    let start = RaftStart {
        number: 1,
        log: Arc::new(log),
        fold: Box::new(Projector::new(writer)),
        snapshots: server.join("snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some(BTreeMap::from([(1, Member::default())])),
    };
    (RaftNode::start(start).await.unwrap(), projections)
}

/// What a server of one in this directory keeps, and what signs it; its projections.
pub(in super::super) async fn kept(
    dir: &Path,
) -> (Keeping, (Arc<Ledger>, Arc<Keyring>), Arc<Projections>) {
    kept_on(dir, (Arc::new(RealFiles) as _, Default::default())).await
}

/// The disk of a log, and how it is written.
type Disk = (Arc<dyn FileLayer>, crate::log::LogOptions);

/// The same where the log is on such a disk.
async fn kept_on(
    dir: &Path,
    disk: Disk,
) -> (Keeping, (Arc<Ledger>, Arc<Keyring>), Arc<Projections>) {
    let server = dir.join("server");
    let (raft, projections) = raft(&server, disk).await;
    let ledger = Arc::new(Ledger::open(Arc::clone(raft.log()), &server).unwrap());
    let (keyring, _) = Keyring::open(&server.join("keystore")).unwrap();
    let id = uuid::Uuid::new_v4().to_string();
    keyring.generate(id.clone(), 1).unwrap();
    keyring.activate(&id).unwrap();
    let requests = RequestLog::open(&server.join("requests"), Guarantee::BestEffort);
    let keeping = Keeping {
        keep: RetentionPolicy {
            events: Some(0),
            ..RetentionPolicy::default()
        },
        requests: (Arc::new(requests.unwrap()), RetentionPolicy::default()),
        interval: OFF,
        archive: Some(ArchiveLocation {
            url: dir.join("archive").display().to_string(),
            ..ArchiveLocation::default()
        }),
        server,
        id: "one".into(),
        raft,
        held: None,
    };
    (keeping, (ledger, Arc::new(keyring)), projections)
}

impl World {
    async fn start() -> Self {
        Self::on((Arc::new(RealFiles) as _, Default::default())).await
    }

    async fn on(disk: Disk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (keeping, (ledger, keyring), projections) = kept_on(dir.path(), disk).await;
        let raft = Arc::clone(&keeping.raft);
        let first = Arc::new(|_: &View| Ok(vec![LeaderElected::default().into()]));
        let shared = Arc::clone(&projections);
        let proposer = Proposer::start(raft, shared, Actor::server("1", "test"), first);
        proposer.ready().wait_for(Option::is_some).await.unwrap();
        let context = Context {
            projections,
            proposer: Arc::new(Idle),
            clock: Clock::stopped(1 << 60),
        };
        Self {
            retention: Retention::new(keeping, ledger, keyring),
            dir,
            proposer,
            context,
        }
    }

    fn log(&self) -> &LogEngine {
        self.retention.keeping.raft.log()
    }

    async fn write(&self, events: u64) {
        for number in 0..events {
            let written = self
                .proposer
                .submit(Arc::new(Write(number)), Origin::default());
            written.await.unwrap();
        }
        let all = self.log().bounds().1 - 1;
        let applied = || match self.context.projections.applied_index() {
            index if index == all => Ok(()),
            index => Err(index),
        };
        let limit = drover_testkit::LONG;
        drover_testkit::eventually("all is applied", limit, applied)
            .await
            .unwrap();
    }

    /// A new base at the end of the log, and a checkpoint of it.
    async fn base(&self) -> (u64, SnapshotDir) {
        let keeping = &self.retention.keeping;
        keeping.raft.make_snapshot().await.unwrap();
        let (index, base) = base::all(&keeping.server).unwrap().pop().unwrap();
        let view = self.context.projections.view();
        assert_eq!(view.index(), index);
        let statement = (index, view.time(), state_digest(&view.digests()));
        let key = self.retention.keyring.active().unwrap().checkpoint_key();
        self.log().sync().unwrap();
        self.retention.ledger.sign(statement, &key).unwrap();
        (index, base)
    }

    /// Ends the segment that is written and waits until all that ended are sealed.
    async fn roll(&self) {
        self.log().roll().unwrap();
        let sealed = || {
            let segments = self.log().segments();
            let (_, ended) = segments.split_last().unwrap();
            match ended.iter().find(|one| !one.sealed) {
                None => Ok(()),
                Some(one) => Err(format!("{} is not sealed", one.name)),
            }
        };
        let limit = drover_testkit::LONG;
        drover_testkit::eventually("all are sealed", limit, sealed)
            .await
            .unwrap();
    }

    /// The first event in the files here; every one before it lies in the archive.
    fn first(&self) -> u64 {
        let first = self.log().segments()[0].first;
        let epoch = hex::encode(self.log().epoch().id);
        let copy = self.dir.path().join("archive").join(epoch).join("one");
        let copied = match ReadOnlyLog::open(&copy.join("log")) {
            Ok(log) => {
                let segments = log.segments();
                segments.last().map_or(0, |one| one.first + one.entries)
            }
            Err(_) => 0,
        };
        assert!(
            first <= copied,
            "dropped below {first}, copied below {copied}"
        );
        first
    }

    async fn stop(self) {
        self.retention.keeping.raft.shutdown().await;
    }
}

/// The base is the last event: the segment that is written ends with it, and would be dropped with
/// it, but is not in the archive yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_ends_between_decision_and_purge_is_dropped_only_when_it_was_copied() {
    let world = World::start().await;
    world.write(10).await;
    world.roll().await;
    world.write(10).await;
    let (index, base) = world.base().await;
    for turn in 0..2 {
        let moved = world.retention.secure(index, &base).await.unwrap();
        assert_eq!(moved.waits.is_some(), turn == 0, "{:?}", moved.waits);
        // Whatever was decided, it ends now, and another is written.
        world.roll().await;
        world.write(1).await;
        world.roll().await;
        if moved.waits.is_none() {
            world.retention.drop_below(index).await.unwrap();
        }
        assert_eq!(world.first(), if turn == 0 { 0 } else { index + 1 });
    }
    world.stop().await;
}

/// The segment that is written continues beyond the base, and ends before the purge: it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_goes_on_beyond_the_base_stays_also_where_it_ends_before_the_purge() {
    let world = World::start().await;
    world.write(10).await;
    world.roll().await;
    let (_, kept_from) = world.log().bounds();
    world.write(10).await;
    let (index, base) = world.base().await;
    world.write(1).await;
    let moved = world.retention.secure(index, &base).await.unwrap();
    assert_eq!(moved.waits, None);
    world.roll().await;
    world.write(1).await;
    world.retention.drop_below(index).await.unwrap();
    assert_eq!(world.first(), kept_from);
    world.stop().await;
}

/// The reactor itself: it waits once, for the segment that it ended, and drops what was copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reactor_drops_what_lies_in_the_archive_and_nothing_else() {
    let world = World::start().await;
    world.write(10).await;
    world.roll().await;
    world.write(10).await;
    let (index, _) = world.base().await;
    let mut reported = Vec::new();
    while world.first() <= index {
        let done = world.retention.activate(&world.context).await.unwrap();
        reported.push(done.status["Waits"].as_str().unwrap_or_default().to_owned());
        assert!(reported.len() < 4, "{reported:?}");
        world.roll().await;
    }
    assert_eq!(reported, ["for segments below the base to be sealed", ""]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_kept_stays_although_there_is_a_base_above_it() {
    let mut world = World::start().await;
    world.retention.keeping.keep.events = Some(1_000);
    world.write(10).await;
    world.base().await;
    world.roll().await;
    for _ in 0..2 {
        let done = world.retention.activate(&world.context).await.unwrap();
        assert_eq!(done.status["Archived"], Value::Null, "nothing is dropped");
        world.roll().await;
    }
    assert_eq!(world.first(), 0);
    world.stop().await;
}

/// What a base holds is cut short, or gone.
fn damage(base: &SnapshotDir, cut: bool) {
    let files = std::fs::read_dir(base.state()).unwrap();
    let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    for path in paths {
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if cut {
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
}

/// Whichever base cannot be gone to, and whatever is wrong with it, the horizon goes to the newest
/// of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_horizon_moves_whichever_base_cannot_be_gone_to() {
    for (bad, cut) in [(0, true), (1, false), (2, true), (2, false)] {
        let world = World::start().await;
        let mut bases = Vec::new();
        for _ in 0..3 {
            world.write(10).await;
            bases.push(world.base().await);
            world.roll().await;
        }
        damage(&bases[bad].1, cut);
        let goal = bases[if bad == 2 { 1 } else { 2 }].0;
        let mut reported = Vec::new();
        while world.first() <= goal {
            let done = world.retention.activate(&world.context).await.unwrap();
            reported.push(done.status);
            assert!(reported.len() < 4, "{reported:?}");
            world.roll().await;
        }
        assert_eq!(world.first(), goal + 1, "{reported:?}");
        let why = reported[0]["LastError"].as_str().unwrap_or_default();
        let named = why.starts_with(&format!("the base at {}: ", bases[bad].0));
        assert_eq!(named, bad == 2, "those behind it are not come to: {why}");
        world.stop().await;
    }
}

#[test]
fn a_segment_that_ends_before_it_is_dropped_is_in_the_archive_or_waited_for() {
    let segment = |first, entries| SegmentInfo {
        name: String::new(),
        sealed: false,
        first,
        entries,
        bytes: 0,
        body_bytes: 0,
        kinds: Default::default(),
        times: None,
    };
    let archived = |next| Archived { segments: 1, next };
    let segments = [segment(0, 50), segment(50, 50)];
    // The base is the last event: whatever comes next ends the segment that is written.
    assert!(!covers(&segments, archived(50), 99));
    assert!(covers(&segments, archived(100), 99));
    // It continues beyond the base, and stays.
    assert!(covers(&segments, archived(50), 98));
    assert!(!covers(&segments, archived(0), 98));
}

#[test]
fn a_base_that_cannot_be_removed_keeps_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let base = |index: u64| {
        let path = dir.path().join(index.to_string());
        std::fs::create_dir(&path).unwrap();
        (index, SnapshotDir::new(path))
    };
    let bases: Vec<_> = [10, 20, 30, 40, 50].map(base).into();
    // What should be a file of it is a directory.
    std::fs::create_dir(bases[2].1.path().join("head")).unwrap();
    let mut each = Each::default();
    forget_bases(&bases, 51, &mut each);
    let left: Vec<_> = bases
        .iter()
        .filter(|(_, base)| base.path().exists())
        .collect();
    let left: Vec<_> = left.into_iter().map(|(index, _)| *index).collect();
    assert_eq!(
        left,
        [30, 40, 50],
        "the last two are read, and one cannot go"
    );
    assert_eq!(each.failed(), 1);
}

#[test]
fn what_kafka_has_not_received_is_held_back_and_why_is_told() {
    let hold = |published| {
        Some(Hold {
            published,
            until: Some(1_790_000_000_000_000_000),
        })
    };
    assert_eq!(held_back(Some(90), None), (Some(90), None));
    assert_eq!(held_back(None, hold(50)), (None, None));
    assert_eq!(held_back(Some(90), hold(90)), (Some(90), None));
    let (limit, why) = held_back(Some(90), hold(50));
    let why = why.unwrap();
    assert_eq!(limit, Some(50));
    assert!(why.contains("from 51 on, until 2026-09-21T"), "{why}");
    assert!(why.contains("server.retention.publisher_wait"), "{why}");
}
