//! So many volumes are held at rest: how many have a worker, and what the watcher takes of memory.
//! Then a thousand are released at once, with a plugin that takes 10 ms per call: how long until
//! the last one is free. There is no log: what is measured is the work on volumes.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bytes::Bytes;
use drover::commands::{Command, Decision, Stamp};
use drover::csi_calls::Lead;
use drover::error::Refusal;
use drover::keyring::Keyring;
use drover::proposer::decided::{Decided, PendingOutcome, Propose};
use drover::proposer::{Committed, Origin};
use drover::reactors::runner::{Board, Context, Reactor, start};
use drover::reactors::volume_watcher::VolumeWatcher;
use drover::rpc::client_calls::{Reach, Unanswered};
use drover::volumes::{VolumeStore, Volumes};
use drover_benchkit::{Line, sample, usage};
use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::{CsiVolumeClaimed, CsiVolumesRegistered};
use drover_events::job::JobRegistered;
use drover_events::model::{Allocation, CsiInfo, CsiVolume, Node, VolumeRequest};
use drover_events::node::NodeRegistered;
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_events::{Event, EventId};
use drover_projections::query::csi;
use drover_projections::{DatabaseOptions, Outcome, Projections, Reply, Writer};
use drover_testkit::fixtures;

/// How many are released at once.
const RELEASED: usize = 1_000;
/// How many nodes they are on.
const NODES: usize = 10;
/// How long the plugin takes for a call.
const CALL: Duration = Duration::from_millis(10);
const PLUGIN: &str = "p";

type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A leader without a log.
struct Leader {
    projections: Arc<Projections>,
    inner: Mutex<(Writer, u64)>,
}

impl Leader {
    fn apply(&self, event: impl Into<Event>) -> Result<(u64, Outcome)> {
        let mut inner = self.inner.lock().map_err(|_| anyhow!("a panic"))?;
        inner.1 += 1;
        let index = inner.1;
        let (_, body) = sample::body(index, event.into())?;
        let mut applied = inner.0.apply(&[drover_migrations::decode(&body)?])?;
        let outcome = applied.remove(0).outcome;
        ensure!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        Ok((index, outcome))
    }

    fn command(&self, command: &dyn Command) -> Result<Committed, Refusal> {
        let stamp = Stamp {
            id: EventId([7; 16]),
            now: sample::NOW,
        };
        let failed = |error: anyhow::Error| Refusal::internal(error.to_string());
        match command.decide(&self.projections.view(), &stamp)? {
            Decision::Nothing(reply) => Ok(Committed {
                index: 0,
                reply,
                is_written: false,
            }),
            Decision::Event { event, .. } | Decision::Page { event, .. } => {
                let (index, _) = self.apply(event).map_err(failed)?;
                Ok(Committed {
                    index,
                    reply: Reply::None,
                    is_written: true,
                })
            }
        }
    }
}

impl Lead for Leader {
    fn term(&self) -> Option<u64> {
        Some(1)
    }

    fn confirm(&self) -> Boxed<'_, Result<(), Refusal>> {
        Box::pin(async { Ok(()) })
    }
}

impl VolumeStore for Leader {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        _: Origin,
    ) -> Boxed<'_, Result<Committed, Refusal>> {
        let done = self.command(&*command);
        Box::pin(async move { done })
    }
}

impl Propose for Leader {
    fn queue(&self, _: Decided) -> Boxed<'_, Result<PendingOutcome, Refusal>> {
        Box::pin(async { Err(Refusal::internal("nothing is proposed here")) })
    }

    fn submit(
        &self,
        command: Arc<dyn Command>,
        _: &'static str,
    ) -> Boxed<'_, Result<Committed, Refusal>> {
        VolumeStore::submit(self, command, Origin::default())
    }
}

/// Nodes whose plugin takes its time and says yes.
struct Nodes;

impl Reach for Nodes {
    fn reaches(&self, _: &str) -> bool {
        true
    }

    fn ask(
        &self,
        _: &str,
        _: &'static str,
        _: Bytes,
        _: Duration,
    ) -> Boxed<'static, Result<Bytes, Unanswered>> {
        Box::pin(async {
            tokio::time::sleep(CALL).await;
            // An empty map.
            Ok(Bytes::from_static(&[0x80]))
        })
    }
}

fn volume(number: usize) -> String {
    format!("data-{number}")
}

fn node(number: usize) -> Node {
    let mut node = fixtures::node(number);
    let info = CsiInfo {
        plugin_id: PLUGIN.into(),
        healthy: true,
        requires_controller_plugin: true,
        node_info: Some(drover_events::model::CsiNodeInfo {
            id: node.id.clone(),
            ..Default::default()
        }),
        controller_info: Some(drover_events::model::CsiControllerInfo {
            supports_attach_detach: true,
            ..Default::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_node_plugins = [(PLUGIN, info.clone())].into();
    node.csi_controller_plugins = [(PLUGIN, info)].into();
    node
}

/// So many volumes, each held by an allocation.
fn fill(leader: &Leader, volumes: usize) -> Result<()> {
    leader.apply(VersionBarrierRaised {
        level: drover_migrations::FEATURE_LEVEL,
        ..VersionBarrierRaised::default()
    })?;
    for number in 0..NODES {
        leader.apply(NodeRegistered {
            node: Box::new(node(number)),
            ..NodeRegistered::default()
        })?;
    }
    for number in 0..volumes {
        hold(leader, number)?;
    }
    Ok(())
}

fn hold(leader: &Leader, number: usize) -> Result<()> {
    leader.apply(CsiVolumesRegistered {
        volumes: vec![CsiVolume {
            id: volume(number),
            namespace: "default".into(),
            plugin_id: PLUGIN.into(),
            ..CsiVolume::default()
        }],
        timestamp: 1,
    })?;
    let mut job = fixtures::job("service", 1);
    job.id = format!("job-{number}");
    let requested = VolumeRequest {
        r#type: "csi".into(),
        source: volume(number),
        ..VolumeRequest::default()
    };
    job.task_groups.to_mut()[0].volumes = [("v", requested)].into();
    let job_id = job.id.clone();
    let (job_modify_index, _) = leader.apply(JobRegistered {
        job: Arc::new(job),
        ..JobRegistered::default()
    })?;
    let alloc = Allocation {
        id: sample::uuid(1, number as u64),
        name: format!("{job_id}.g[0]"),
        namespace: "default".into(),
        job_id,
        task_group: "g".into(),
        node_id: fixtures::node(number % NODES).id,
        desired_status: "run".into(),
        client_status: "running".into(),
        ..Allocation::default()
    };
    let placed = PlacedAlloc {
        alloc: Box::new(alloc),
        job_modify_index,
    };
    leader.apply(PlanApplied {
        placed: vec![placed],
        ..PlanApplied::default()
    })?;
    leader.apply(CsiVolumeClaimed {
        namespace: "default".into(),
        volume_id: volume(number),
        allocation_id: sample::uuid(1, number as u64),
        node_id: fixtures::node(number % NODES).id,
        external_node_id: fixtures::node(number % NODES).id,
        mode: 1,
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        timestamp: 1,
        ..CsiVolumeClaimed::default()
    })?;
    Ok(())
}

/// How many of the first volumes are still held.
fn held(projections: &Projections, first: usize) -> Result<usize> {
    let view = projections.view();
    let mut held = 0;
    for number in 0..first {
        let found = csi::volume(&view, ("default", &volume(number)))?;
        held += usize::from(found.is_some_and(|found| found.row.in_use()));
    }
    Ok(held)
}

/// Measures with so many volumes, in a directory of its own.
pub(crate) fn run(volumes: usize, dir: &Path) -> Result<()> {
    drover_benchkit::runtime()?.block_on(measure(volumes, dir))
}

async fn measure(volumes: usize, dir: &Path) -> Result<()> {
    let (projections, writer) = Projections::open(dir.join("db"), DatabaseOptions::server())?;
    let leader = Arc::new(Leader {
        projections: Arc::clone(&projections),
        inner: Mutex::new((writer, 0)),
    });
    fill(&leader, volumes)?;
    let keyring = Arc::new(Keyring::open(&dir.join("keys"))?.0);
    let at_work = Volumes::new(
        Arc::clone(&projections),
        leader.clone(),
        Arc::new(Nodes),
        keyring,
    );
    let watcher = Arc::new(VolumeWatcher::new(at_work, "bench"));
    let context = Context {
        projections: Arc::clone(&projections),
        proposer: leader.clone(),
        clock: drover::base::clock::Clock::default(),
    };
    // What a walk over all volumes brings into memory belongs to the tables.
    for _ in 0..2 {
        ensure!(held(&projections, volumes)? == volumes, "all are held");
    }
    let before = usage::rss_mb();
    let began = Instant::now();
    watcher
        .activate(&context)
        .await
        .map_err(|error| anyhow!("{error}"))?;
    let took = began.elapsed();
    let reactor: Arc<dyn Reactor> = watcher.clone();
    let _running = start(reactor, context, Board::default());
    Line::new(&format!("volume watcher at rest ({volumes} volumes)"))
        .number("workers", watcher.workers() as f64)
        .number("mb", (usage::rss_mb() - before).max(0.0))
        .number("first_look_ms", took.as_secs_f64() * 1e3)
        .print();
    ensure!(watcher.workers() == 0, "nothing is to be freed");
    let update = |number: usize| ClientAllocUpdate {
        id: sample::uuid(1, number as u64),
        client_status: "complete".into(),
        ..ClientAllocUpdate::default()
    };
    let began = Instant::now();
    leader.apply(AllocsUpdatedByClient {
        updates: (0..RELEASED.min(volumes)).map(update).collect(),
        ..AllocsUpdatedByClient::default()
    })?;
    while held(&projections, RELEASED.min(volumes))? > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Line::new(&format!(
        "{RELEASED} volumes released at once (10 ms per call)"
    ))
    .number("seconds", began.elapsed().as_secs_f64())
    .print();
    Ok(())
}
