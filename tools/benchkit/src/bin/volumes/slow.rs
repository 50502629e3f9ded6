//! What others feel of a plugin that takes a minute for every call: jobs that are placed, on
//! simulated nodes, and volumes of another plugin, that come and go.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_benchkit::{Line, run as load};
use drover_testkit::{Http, LONG, wait_for};
use serde_json::json;

use crate::Options;
use crate::world::{Job, World, put};

/// How many volumes of the slow plugin are on their way.
const UNDER_WAY: usize = 16;
/// Jobs that are placed at a time.
const CLIENTS: usize = 4;
const CALL: Duration = Duration::from_secs(60);
/// Turns of each cluster.
const TURNS: usize = 10;

/// Simulated nodes; dropping it ends them.
struct Nodes(Child);

impl Drop for Nodes {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster, and what was measured there.
struct Side {
    world: World,
    _nodes: Nodes,
    placed: Vec<Duration>,
    volumes: Vec<Duration>,
}

/// Measures in turns in two clusters that are the same, but for the slow plugin's volumes, which
/// are under way in one of them: so neither finds the quieter machine.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (Some(mut alone), Some(mut beside)) = (Side::start(options)?, Side::start(options)?) else {
        return Ok(());
    };
    // What is made at the first use is not counted.
    for side in [&mut alone, &mut beside] {
        side.measure(options, "warm")?;
        side.placed.clear();
        side.volumes.clear();
    }
    beside.begin_slow()?;
    let began = Instant::now();
    for turn in 0..TURNS {
        for side in [&mut alone, &mut beside] {
            side.measure(options, &format!("turn-{turn}"))?;
        }
    }
    ensure!(
        began.elapsed() < CALL,
        "it took longer than a call of the plugin: fewer jobs or rounds"
    );
    let parts = [
        (
            "place beside a plugin of 60 s",
            &mut alone.placed,
            &mut beside.placed,
        ),
        (
            "another plugin's volume comes and goes beside it",
            &mut alone.volumes,
            &mut beside.volumes,
        ),
    ];
    for (what, alone, beside) in parts {
        let ratio = p99(beside) / p99(alone);
        Line::new(what)
            .latencies(beside)
            .number("alone_p99_us", p99(alone) * 1e6)
            .number("p99_of_alone", ratio)
            .print();
    }
    Ok(())
}

/// Seconds.
fn p99(latencies: &mut [Duration]) -> f64 {
    latencies.sort_unstable();
    let at = latencies.len().saturating_sub(1) * 99 / 100;
    latencies.get(at).map_or(0.0, Duration::as_secs_f64)
}

impl Side {
    fn start(options: &Options) -> Result<Option<Side>> {
        let Some(world) = World::start(&options.drover)? else {
            return Ok(None);
        };
        let nodes = nodes(options, &world)?;
        for plugin in ["fast", "slow"] {
            world.run_plugin(plugin)?;
        }
        for number in 0..options.rounds / TURNS {
            world.create("fast", &fast(number))?;
        }
        for number in 0..UNDER_WAY {
            world.create("slow", &format!("slow-{number}"))?;
        }
        Ok(Some(Side {
            world,
            _nodes: nodes,
            placed: Vec::new(),
            volumes: Vec::new(),
        }))
    }

    /// A part of the requested measurements.
    fn measure(&mut self, options: &Options, prefix: &str) -> Result<()> {
        let jobs = options.jobs / TURNS;
        self.placed.extend(place(jobs, &self.world, prefix)?);
        let rounds = options.rounds / TURNS;
        let volumes = come_and_go(rounds, &self.world, prefix)?;
        self.volumes.extend(volumes);
        Ok(())
    }

    /// Lets jobs wait for the slow plugin's volumes.
    fn begin_slow(&self) -> Result<()> {
        self.world.slow("slow", CALL)?;
        for number in 0..UNDER_WAY {
            self.world.run(&Job {
                id: &format!("waits-{number}"),
                kind: "service",
                volume: Some(&format!("slow-{number}")),
                script: "true",
            })?;
        }
        under_way(&self.world)
    }
}

/// Waits until every volume of the slow plugin is claimed.
fn under_way(world: &World) -> Result<()> {
    let mut http = world.http();
    wait_for("the slow volumes to be on their way", LONG, || {
        let list = http.json("/v1/volumes?type=csi&plugin_id=slow")?;
        let claimed = list.as_array().into_iter().flatten();
        let claimed = claimed.filter(|volume| volume["CurrentWriters"] == 1);
        let claimed = claimed.count();
        ensure!(claimed == UNDER_WAY, "{claimed} of {UNDER_WAY}");
        Ok::<_, anyhow::Error>(())
    })
}

/// How long from registering a job until its evaluation is done, for many jobs.
fn place(jobs: usize, world: &World, prefix: &str) -> Result<Vec<Duration>> {
    let done = load(
        jobs,
        CLIENTS,
        || world.http(),
        |http, number| placed(http, &format!("{prefix}-{number}")),
    );
    ensure!(done.errors == 0, "{:?}", done.first_error);
    Ok(done.latencies)
}

fn placed(http: &mut Http, id: &str) -> Result<usize> {
    let job = json!({"Job": {
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"],
        "Constraints": [{"LTarget": "${node.class}", "RTarget": "sim", "Operand": "="}],
        "TaskGroups": [{"Name": "g", "Count": 1, "EphemeralDisk": {"SizeMB": 10}, "Tasks": [{
            "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"},
            "Resources": {"CPU": 20, "MemoryMB": 20},
            "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
        }]}],
    }});
    let made = put(http, "/v1/jobs", &job)?;
    let eval = made["EvalID"].as_str().context("an evaluation")?;
    let mut index = made["JobModifyIndex"].as_u64().context("an index")?;
    loop {
        let path = format!("/v1/evaluation/{eval}?index={index}&wait=10s");
        let answer = http.get(&path)?;
        let found = answer.json()?;
        if found["Status"] == "complete" {
            let failed = found["FailedTGAllocs"].as_object();
            ensure!(failed.is_none_or(serde_json::Map::is_empty), "{found}");
            return Ok(1);
        }
        index = found["ModifyIndex"].as_u64().context("an index")?;
    }
}

/// How long batch jobs with a volume each take, from registering one until its volume is free.
fn come_and_go(rounds: usize, world: &World, prefix: &str) -> Result<Vec<Duration>> {
    let done = load(
        rounds,
        CLIENTS,
        || (),
        |_, number| {
            let (id, volume) = (format!("{prefix}-volume-{number}"), fast(number));
            world.run(&Job {
                id: &id,
                kind: "batch",
                volume: Some(&volume),
                script: "true",
            })?;
            world.allocation(&id, "complete")?;
            world.free(&volume)?;
            Ok(0)
        },
    );
    ensure!(done.errors == 0, "{:?}", done.first_error);
    Ok(done.latencies)
}

/// A volume of the plugin that is not slow.
fn fast(number: usize) -> String {
    format!("fast-{number}")
}

fn nodes(options: &Options, world: &World) -> Result<Nodes> {
    let child = Command::new(&options.drover)
        .args(["nodesim", "-nodes", &options.nodes.to_string()])
        .args(["-servers", &world.agent().rpc_addr().to_string()])
        .args(["-node-class", "sim"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("nodesim")?;
    let nodes = Nodes(child);
    let mut http = world.http();
    wait_for("the nodes to be ready", LONG, || {
        let list = http.json("/v1/nodes")?;
        let ready = list.as_array().into_iter().flatten();
        let ready = ready.filter(|node| node["Status"] == "ready").count();
        ensure!(ready == options.nodes + 1, "{ready} nodes are ready");
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(nodes)
}
