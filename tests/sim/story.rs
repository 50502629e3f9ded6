//! A server's lives on a disk that loses what was not synced.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover::commands::namespace::UpsertNamespaces;
use drover::log::{FileLayer, LogEngine, LogOptions, OnFull};
use drover::proposer::{Origin, Proposer};
use drover::raft::network::Alone;
use drover::raft::{Member, Projector, RaftNode, RaftSettings, RaftStart};
use drover_events::Actor;
use drover_events::model::Namespace;
use drover_fake_disk::FakeDisk;
use drover_projections::{DatabaseOptions, Projections, View};
use drover_testkit::{LONG, moment};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lying_disk::LyingDisk;

/// How long one invariant may run stories.
const SHARE: Duration = Duration::from_secs(6);
/// Seeds an invariant runs at least.
const SEEDS: u64 = 2;
/// Seeds an invariant runs at most, so that it does the same on a fast machine as on a slow one.
const SEEDS_MOST: u64 = 12;
/// The variable that names one seed to run.
const SEED: &str = "DROVER_SIM_SEED";
const WRITERS: u64 = 4;

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) index: u64,
    pub(crate) name: String,
    pub(crate) description: String,
}

/// What was seen of one life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// How it ended.
    pub(crate) end: String,
    /// What was acknowledged, in no order.
    pub(crate) acked: Vec<Acked>,
    /// The applied index, as read again and again.
    pub(crate) applied: Vec<u64>,
}

/// What was seen of a server, from its first life to its last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) lives: Vec<Life>,
    /// The indexes that a subscriber got, in order, across all lives.
    pub(crate) reported: Vec<u64>,
    /// The digests of every table at the end, and of a replay of the log from its beginning.
    pub(crate) live: Vec<(u16, String)>,
    pub(crate) replayed: Vec<(u16, String)>,
    /// The namespaces at the end: name to create index and description.
    pub(crate) rows: BTreeMap<String, (u64, String)>,
    /// The indexes of the events that the log holds at the end, as its bodies name them.
    pub(crate) logged: Vec<u64>,
}

/// Runs stories and shows each to `check`.
pub(crate) fn run(invariant: &str, check: impl Fn(&Story) -> Result<(), String>) {
    run_on(Disk::Honest, invariant, check);
}

/// Whether a synced write is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Honest,
    Lying,
}

/// As [`run`], on such a disk.
pub(crate) fn run_on(disk: Disk, invariant: &str, check: impl Fn(&Story) -> Result<(), String>) {
    let only = std::env::var(SEED)
        .ok()
        .map(|seed| seed.parse::<u64>().expect("a number"));
    let begun = Instant::now();
    let seeds = only.map_or(0..SEEDS_MOST, |seed| seed..seed + 1);
    for (done, seed) in seeds.enumerate() {
        if done as u64 >= SEEDS && begun.elapsed() > SHARE {
            break;
        }
        // Each invariant has seeds of its own.
        let salted = seed ^ salt(invariant);
        let seed_shown = if only.is_some() { seed } else { salted };
        if let Some(problem) = problem(seed_shown, disk, &check) {
            let again = format!("{SEED}={seed_shown} cargo test --test sim {invariant}");
            panic!("{problem}\nagain: {again}");
        }
    }
}

/// What is wrong with the story of a seed.
pub(crate) fn problem(
    seed: u64,
    disk: Disk,
    check: impl Fn(&Story) -> Result<(), String>,
) -> Option<String> {
    // A server that cannot even start is a story that ends badly.
    match catch_unwind(|| report(seed, disk)) {
        Ok(story) => check(&story).err().map(|problem| {
            let lives: Vec<_> = story.lives.iter().map(|life| &life.end).collect();
            format!("{problem}\nlives: {lives:?}")
        }),
        Err(panic) => Some(match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "the server panicked".to_owned(),
        }),
    }
}

fn salt(invariant: &str) -> u64 {
    invariant
        .bytes()
        .fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte))
}

/// One story from its seed.
fn report(seed: u64, disk: Disk) -> Story {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(Teller::new(seed, disk).report())
}

struct Teller {
    rng: StdRng,
    dir: TempDir,
    disk: FakeDisk,
    kind: Disk,
    /// The database of the next life.
    database: PathBuf,
    databases: u64,
    story: Story,
}

/// A running server.
struct Up {
    node: Arc<RaftNode>,
    projections: Arc<Projections>,
    proposer: Proposer,
}

impl Teller {
    fn new(seed: u64, kind: Disk) -> Teller {
        let dir = tempfile::tempdir().expect("a directory");
        Teller {
            rng: StdRng::seed_from_u64(seed),
            database: dir.path().join("db-0"),
            dir,
            disk: FakeDisk::default(),
            kind,
            databases: 0,
            story: Story::default(),
        }
    }

    async fn report(mut self) -> Story {
        for _ in 0..self.rng.random_range(2..5) {
            self.live().await;
        }
        let up = self.start().await;
        let view = up.projections.view();
        self.story.live = digests(&up.projections);
        self.story.logged = logged(&up.node, view.index());
        let reported = self.catch_up(&up.projections);
        self.story.reported.extend(reported);
        let rows = view.scan::<drover_projections::tables::namespaces::Namespaces>(
            drover_projections::Scan::all(),
        );
        for row in rows {
            let row = row.expect("a row");
            self.story
                .rows
                .insert(row.name, (row.create_index, row.description));
        }
        self.story.replayed = self.replay(&up.node, view.index());
        drop(view);
        up.node.shutdown().await;
        self.story
    }

    fn new_database(&mut self) -> PathBuf {
        self.databases += 1;
        self.dir.path().join(format!("db-{}", self.databases))
    }

    async fn start(&mut self) -> Up {
        let options = LogOptions {
            // Small, so that lives begin in the middle of segments and sealing is at work.
            segment_bytes: 64 << 10,
            zero_ahead: 8 << 10,
            on_full: OnFull::Wait,
            ..LogOptions::default()
        };
        let files: Arc<dyn FileLayer> = match self.kind {
            Disk::Honest => Arc::new(self.disk.clone()),
            Disk::Lying => Arc::new(LyingDisk(self.disk.clone())),
        };
        let (log, _) =
            LogEngine::open_with(files, Path::new("/log"), options).expect("the log opens");
        let (projections, writer) =
            Projections::open(&self.database, DatabaseOptions::dev()).expect("the database opens");
        let node = RaftNode::start(RaftStart {
            number: 1,
            log: Arc::new(log),
            fold: Box::new(Projector::new(writer)),
            snapshots: self.dir.path().join("snapshots"),
            transport: Arc::new(Alone),
            settings: RaftSettings::default(),
            bootstrap: Some([(1, Member::default())].into()),
        });
        let node = node.await.expect("Raft starts");
        let proposer = Proposer::start(
            Arc::clone(&node),
            Arc::clone(&projections),
            Actor::server("1", "leader"),
            Arc::new(|_: &View| Ok(Vec::new())),
        );
        let mut ready = proposer.ready();
        let wait = ready.wait_for(Option::is_some);
        let led = tokio::time::timeout(Duration::from_secs(60), wait).await;
        led.expect("it leads in time").expect("it lives");
        Up {
            node,
            projections,
            proposer,
        }
    }

    /// One life: writes, and an end that the seed chose.
    async fn live(&mut self) {
        let up = self.start().await;
        let number = self.story.lives.len() as u64;
        let each = self.rng.random_range(5..40_u64);
        let acked = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::new(watch::Sender::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let names = (0..each).map(move |n| format!("n-{number}-{writer}-{n}"));
                let rng = StdRng::seed_from_u64(self.rng.random());
                let (acked, count) = (Arc::clone(&acked), Arc::clone(&count));
                tokio::spawn(write(
                    up.proposer.clone(),
                    names.collect(),
                    rng,
                    acked,
                    count,
                ))
            })
            .collect();
        let over = CancellationToken::new();
        let (projections, ended) = (Arc::clone(&up.projections), over.clone());
        let watching = tokio::task::spawn_blocking(move || applied(&projections, &ended));
        // No thread waits for it for ever, whatever fails meanwhile.
        let over = over.drop_guard();
        let sudden = self.rng.random_bool(0.6);
        let (checkpoint_at, cut_at) = {
            let a = self.rng.random_range(0..WRITERS * each);
            let b = self.rng.random_range(0..WRITERS * each);
            (a.min(b), a.max(b))
        };
        let (end, disk, database) = if sudden {
            self.power_cut(&up, &count, (checkpoint_at, cut_at)).await
        } else {
            for writer in writers {
                writer.await.expect("it writes");
            }
            let (kept, database) = match self.rng.random_bool(0.5) {
                true => ("kept", self.database.clone()),
                false => ("lost", self.new_database()),
            };
            let end = format!("stopped, its database {kept}");
            (end, None, database)
        };
        // What was acknowledged up to here was so before the lights went out, or is on both disks.
        let acked = std::mem::take(&mut *acked.lock());
        let survived = |write: &Acked| disk.as_ref().is_none_or(|(_, last)| write.index <= *last);
        drop(over);
        let applied = watching.await.expect("it watches");
        let reported = self.catch_up(&up.projections);
        let last = disk.as_ref().map_or(u64::MAX, |(_, last)| *last);
        self.story
            .reported
            .extend(reported.into_iter().filter(|index| *index <= last));
        up.node.shutdown().await;
        drop(up);
        if let Some((disk, _)) = disk.clone() {
            self.disk = disk;
        }
        self.database = database;
        self.story.lives.push(Life {
            end,
            acked: acked.into_iter().filter(survived).collect(),
            applied: applied.into_iter().filter(|index| *index <= last).collect(),
        });
    }

    /// Waits for the moment the seed chose and copies the disk as it would be left. What happens
    /// to the old disk afterwards never was: only indexes up to the one given back count.
    async fn power_cut(
        &mut self,
        up: &Up,
        count: &watch::Sender<u64>,
        (checkpoint_at, cut_at): (u64, u64),
    ) -> (String, Option<(FakeDisk, u64)>, PathBuf) {
        let mut count = count.subscribe();
        let mut reached = async |at: u64| {
            let written = count.wait_for(|written| *written >= at);
            let written = tokio::time::timeout(LONG, written).await;
            written.expect("so much is written").expect("it is counted");
        };
        reached(checkpoint_at).await;
        let database = self.new_database();
        let saved = self.rng.random_bool(0.5);
        if saved {
            up.projections.checkpoint(&database).expect("a checkpoint");
        }
        reached(cut_at).await;
        // First what counts, then the copy: whatever is applied by now is on the disk.
        let last = up.projections.view().index();
        let disk = self.disk.power_cut(self.rng.random());
        let what = if saved { "an older one" } else { "none" };
        let end = format!("power cut after {cut_at} writes, database: {what}");
        (end, Some((disk, last)), database)
    }

    /// What a subscriber gets that has seen everything up to here.
    fn catch_up(&self, projections: &Projections) -> Vec<u64> {
        reported(
            projections,
            self.story.reported.last().map_or(1, |last| last + 1),
        )
    }

    /// The digests after folding the log from its beginning.
    fn replay(&mut self, node: &RaftNode, to: u64) -> Vec<(u16, String)> {
        let database = self.new_database();
        let (projections, mut writer) =
            Projections::open(database, DatabaseOptions::dev()).expect("a database");
        let mut batch = Vec::new();
        for entry in node.log().scan(0) {
            let entry = entry.expect("an entry");
            if entry.index <= to {
                batch.push(drover_migrations::decode(&entry.body).expect("an event"));
            }
        }
        writer.apply(&batch).expect("it applies");
        digests(&projections)
    }
}

async fn write(
    proposer: Proposer,
    names: Vec<String>,
    mut rng: StdRng,
    acked: Arc<Mutex<Vec<Acked>>>,
    count: Arc<watch::Sender<u64>>,
) {
    for name in names {
        let description = "d".repeat(rng.random_range(0..200));
        let namespace = Namespace {
            name: name.clone(),
            description: description.clone(),
            ..Namespace::default()
        };
        let command = UpsertNamespaces {
            namespaces: vec![namespace],
        };
        let submitted = proposer.submit(Arc::new(command), Origin::default()).await;
        // A server that is being shut down refuses; nothing was promised then.
        let Ok(committed) = submitted else { return };
        acked.lock().push(Acked {
            index: committed.index,
            name,
            description,
        });
        count.send_modify(|written| *written += 1);
    }
}

/// The applied index, as it is read again and again until it is over.
fn applied(projections: &Projections, over: &CancellationToken) -> Vec<u64> {
    let mut seen = vec![projections.view().index()];
    let look = || {
        let index = projections.view().index();
        if seen.last() != Some(&index) {
            seen.push(index);
        }
        false
    };
    moment(look, || over.is_cancelled());
    seen
}

fn reported(projections: &Projections, from: u64) -> Vec<u64> {
    let view = projections.view();
    let changes = view.changes(from);
    changes
        .filter_map(|changes| changes.expect("readable").first().map(|c| c.index))
        .collect()
}

/// The events up to an index, from the bodies of the log alone: neither tables nor changes are
/// read.
fn logged(node: &RaftNode, to: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for entry in node.log().scan(0) {
        let entry = entry.expect("an entry");
        let event = drover_migrations::decode(&entry.body).expect("an event");
        if event.index <= to && event.envelope.is_some() {
            found.push(event.index);
        }
    }
    found
}

fn digests(projections: &Projections) -> Vec<(u16, String)> {
    let tables = projections.view().digests();
    tables
        .iter()
        .map(|table| (table.table, table.digest.to_hex()))
        .collect()
}
