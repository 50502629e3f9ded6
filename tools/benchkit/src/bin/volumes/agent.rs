//! How long a volume takes to come, beside what the plugin takes, and how long until it is free.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_benchkit::Line;
use serde_json::Value;

use crate::Options;
use crate::world::{Job, STAYS, World};

const PLUGIN: &str = "hp";
const VOLUME: &str = "vol";

/// Runs a job that uses a volume, again and again; as often one that uses none.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(world) = World::start(&options.drover)? else {
        return Ok(());
    };
    world.run_plugin(PLUGIN)?;
    world.create(PLUGIN, VOLUME)?;
    let (mut own, mut plain, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mut freed = Vec::new();
    for round in 0..options.rounds {
        let (placed, started) = start(&world, &format!("plain-{round}"), None)?;
        plain.push(duration(placed, started)?);
        world.stop(&format!("plain-{round}"))?;

        let name = format!("with-{round}");
        let (placed, started) = start(&world, &name, Some(VOLUME))?;
        let took = duration(placed, started)?;
        let plugin = world.at_work(PLUGIN, placed, started)?;
        ensure!(!plugin.is_zero(), "the plugin was not called");
        whole.push(took);
        own.push(took.saturating_sub(plugin));
        let began = Instant::now();
        world.stop(&name)?;
        world.free(VOLUME)?;
        freed.push(began.elapsed());
    }
    Line::new("placed to running, no volume")
        .latencies(&mut plain)
        .print();
    Line::new("placed to running with a volume, plugin included")
        .latencies(&mut whole)
        .print();
    Line::new("placed to running with a volume, over the plugin's time")
        .latencies(&mut own)
        .print();
    Line::new("job stopped to volume claimable")
        .latencies(&mut freed)
        .print();
    Ok(())
}

/// When the job's allocation was placed and when its task was started, Unix nanoseconds.
fn start(world: &World, id: &str, volume: Option<&str>) -> Result<(i128, i128)> {
    let kind = "service";
    world.run(&Job {
        id,
        kind,
        volume,
        script: STAYS,
    })?;
    let alloc = world.allocation(id, "running")?;
    let placed = alloc["CreateTime"].as_i64().context("CreateTime")?;
    let events = &alloc["TaskStates"]["t"]["Events"];
    let started = |event: &&Value| event["Type"] == "Started";
    let started = events.as_array().into_iter().flatten().find(started);
    let started = started.and_then(|event| event["Time"].as_i64());
    let started = started.with_context(|| events.to_string())?;
    Ok((i128::from(placed), i128::from(started)))
}

fn duration(from: i128, to: i128) -> Result<Duration> {
    Ok(Duration::from_nanos(u64::try_from(to - from)?))
}
