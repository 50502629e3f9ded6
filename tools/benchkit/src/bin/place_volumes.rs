//! What it costs to place jobs that request volumes: `place_volumes [jobs]`.
//!
//! Prints JSON lines. 5,000 nodes run a CSI plugin, and 2,000 volumes are registered. As many jobs
//! of one allocation are registered without volumes as with one volume each that no other job has,
//! a quarter of them at a time and in turns, so that neither finds the emptier cluster. The rate is
//! that of allocations from the first registration to the last placement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover::commands::Command;
use drover::commands::csi::RegisterVolumes;
use drover::commands::job::RegisterJob;
use drover::commands::node::RegisterNode;
use drover::config::Config;
use drover::proposer::Origin;
use drover::server::Server;
use drover_benchkit::{Line, arguments, runtime, sample};
use drover_events::Actor;
use drover_events::model::{
    CsiInfo, CsiNodeInfo, CsiVolume, CsiVolumeCapability, Job, Node, VolumeRequest,
};
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_testkit::fixtures::{job, node};

/// Nodes of the cluster.
const NODES: u64 = 5_000;
/// Volumes of the plugin.
const VOLUMES: u64 = 2_000;
/// Commands under way.
const IN_FLIGHT: u64 = 128;
/// Turns of each kind of job.
const TURNS: u64 = 4;
/// How long a turn may take.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> Result<()> {
    let (jobs, dir) = arguments(VOLUMES)?;
    ensure!(jobs <= VOLUMES, "there are {VOLUMES} volumes");
    runtime()?.block_on(async {
        let config = Arc::new(Config::dev());
        let telemetry = drover::telemetry::install(Duration::from_secs(10));
        let server = Server::start(config, dir.path(), telemetry).await?;
        server.wait_ready().await;
        fill(&server).await?;
        let mut took = [Duration::ZERO; 2];
        for turn in 0..TURNS {
            for (kind, took) in took.iter_mut().enumerate() {
                let numbers = turn * jobs / TURNS..(turn + 1) * jobs / TURNS;
                *took += place(&server, numbers, kind == 1).await?;
            }
        }
        let rate = |took: Duration| jobs as f64 / took.as_secs_f64();
        let [plain, with] = took.map(rate);
        Line::new("place, 5,000 nodes")
            .number("per_second", plain)
            .print();
        Line::new("place with a volume, 5,000 nodes and 2,000 volumes")
            .number("per_second", with)
            .number("of_plain", with / plain)
            .print();
        server.shutdown().await;
        Ok(())
    })
}

async fn submit(server: &Server, command: impl Command + 'static) -> Result<()> {
    let origin = Origin {
        actor: Actor::server("bench", "bench"),
        ..Origin::default()
    };
    server.submit(command, origin).await?;
    Ok(())
}

/// Submits commands by their numbers, many at a time.
async fn all<C: Command + 'static>(
    server: &Arc<Server>,
    numbers: std::ops::Range<u64>,
    command: impl Fn(u64) -> C,
) -> Result<()> {
    let mut running = tokio::task::JoinSet::new();
    for number in numbers {
        while running.len() as u64 >= IN_FLIGHT
            && let Some(done) = running.join_next().await
        {
            done??;
        }
        let (server, command) = (Arc::clone(server), command(number));
        running.spawn(async move { submit(&server, command).await });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}

async fn fill(server: &Arc<Server>) -> Result<()> {
    all(server, 0..NODES, |number| RegisterNode {
        node: mounting(number),
        create_node_pool: true,
    })
    .await?;
    let names: Vec<u64> = (0..VOLUMES).collect();
    for part in names.chunks(500) {
        let volumes = part.iter().map(|number| volume(*number)).collect();
        submit(server, RegisterVolumes { volumes }).await?;
    }
    Ok(())
}

fn mounting(number: u64) -> Node {
    let mut node = node(usize::try_from(number).unwrap_or_default());
    let info = CsiInfo {
        plugin_id: "p".to_owned(),
        healthy: true,
        node_info: Some(CsiNodeInfo {
            id: node.id.clone(),
            max_volumes: 100,
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_node_plugins.insert("p", info);
    node
}

fn volume(number: u64) -> CsiVolume {
    let capability = CsiVolumeCapability {
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    CsiVolume {
        id: format!("volume-{number}"),
        name: format!("volume-{number}"),
        external_id: format!("volume-{number}"),
        namespace: "default".to_owned(),
        plugin_id: "p".to_owned(),
        requested_capabilities: vec![capability].into(),
        ..CsiVolume::default()
    }
}

fn asking(number: u64, with_volume: bool) -> Job {
    let mut spec = job("service", 1);
    spec.id = format!("job-{number}-{with_volume}");
    spec.name.clone_from(&spec.id);
    if with_volume {
        let request = VolumeRequest {
            name: "v".to_owned(),
            r#type: "csi".to_owned(),
            source: format!("volume-{number}"),
            access_mode: "single-node-writer".to_owned(),
            attachment_mode: "file-system".to_owned(),
            ..VolumeRequest::default()
        };
        let volumes = [("v".to_owned(), request)];
        spec.task_groups[0].volumes = volumes.into_iter().collect();
    }
    spec
}

/// Registers jobs and waits until each has its allocation.
async fn place(
    server: &Arc<Server>,
    numbers: std::ops::Range<u64>,
    with_volume: bool,
) -> Result<Duration> {
    let began = Instant::now();
    all(server, numbers.clone(), |number| RegisterJob {
        job: asking(number, with_volume),
        eval_id: sample::uuid(if with_volume { 5 } else { 4 }, number),
        ..RegisterJob::default()
    })
    .await?;
    for number in numbers {
        let id = asking(number, with_volume).id;
        loop {
            let view = server.projections.view();
            let key = ("default", id.as_str());
            let summary = view.get::<JobSummaries>(key)?;
            let placed = summary.and_then(|s| s.summary.get("g").map(|g| g.starting));
            if placed == Some(1) {
                break;
            }
            ensure!(began.elapsed() < LIMIT, "{id} is not placed");
            ensure!(view.get::<Jobs>(key)?.is_some(), "{id} is gone");
            let index = view.index();
            drop(view);
            let changed = server.projections.watch().beyond(index);
            let _ = tokio::time::timeout(Duration::from_secs(1), changed).await;
        }
    }
    Ok(began.elapsed())
}
