//! An agent on which nothing happens writes nothing: no report of what is known, no heartbeat.

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};

/// Heartbeats that are waited for: an hour of a fleet whose nodes are heard of every ninety
/// seconds.
const HEARTBEATS: f64 = 40.0;

fn job(id: &str, kind: &str, count: u32, run_for: &str) -> Value {
    json!({"Job": {"ID": id, "Name": id, "Type": kind, "Datacenters": ["dc1"],
        "TaskGroups": [{"Name": "g", "Count": count,
            "EphemeralDisk": {"SizeMB": 20},
            "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": run_for},
                "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 5},
                "Resources": {"CPU": 20, "MemoryMB": 16}}]}]}})
}

/// The value of a counter in Prometheus' form; 0 where it is not there yet.
fn counter(agent: &Agent, name: &str) -> Result<f64> {
    let text = agent.http().get("/v1/metrics?format=prometheus")?.text();
    let lines = text.lines().filter(|line| line.starts_with(name));
    Ok(lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

fn applied(agent: &Agent) -> Result<u64> {
    let digests = agent.http().json("/v1/operator/digests")?;
    digests["Index"].as_u64().context("no index")
}

/// Allocations by their client status.
fn with_status(agent: &Agent, status: &str) -> Result<usize> {
    let all = agent.http().json("/v1/allocations")?;
    let all = all.as_array().context("no list")?.clone();
    Ok(all.iter().filter(|a| a["ClientStatus"] == status).count())
}

#[test]
fn hb_02_an_idle_agent_writes_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    setup.config = "server {\n  min_heartbeat_ttl = \"100ms\"\n}\n".to_owned();
    let agent = setup.start()?;
    let mut http = agent.http();
    wait_for("the node", LONG, || {
        let nodes = http.json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    })?;
    for job in [
        job("done", "batch", 10, "10ms"),
        job("runs", "service", 5, "2h"),
    ] {
        let answer = http.put("/v1/jobs", &job)?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    wait_for("ten that are over and five that run", LONG, || {
        let (over, run) = (
            with_status(&agent, "complete")?,
            with_status(&agent, "running")?,
        );
        ensure!((over, run) == (10, 5), "{over} over, {run} run");
        Ok(())
    })?;
    // What the last of them brought is written once the deployment has ended.
    wait_for("the deployment", LONG, || {
        let last = http.json("/v1/job/runs/deployment")?;
        let none_or_over = last.is_null() || last["Status"] == "successful";
        ensure!(none_or_over, "{last}");
        Ok(())
    })?;
    let beats = || counter(&agent, "nomad_nomad_rpc_node_write");
    // Nothing is on its way any more.
    let settled = beats()? + 5.0;
    let mut index = applied(&agent)?;
    wait_for("nothing on its way", LONG, || {
        let (now, beats) = (applied(&agent)?, beats()?);
        let moved = std::mem::replace(&mut index, now) != now;
        ensure!(!moved && beats > settled, "{now} after {beats} heartbeats");
        Ok(())
    })?;
    let (begin, rows) = (beats()?, http.json("/v1/allocations")?);
    let node = http.json("/v1/nodes")?;
    wait_for("heartbeats", LONG, || {
        let beats = beats()?;
        ensure!(beats >= begin + HEARTBEATS, "{beats} from {begin}");
        Ok(())
    })?;
    let after = applied(&agent)?;
    let told = http.json(&format!("/v1/audit?since={}", index + 1));
    ensure!(after == index, "{} events: {told:?}", after - index);
    ensure!(http.json("/v1/allocations")? == rows, "rows changed");
    ensure!(http.json("/v1/nodes")? == node, "the node changed");
    Ok(())
}
