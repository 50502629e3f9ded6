//! An agent on which nothing happens writes nothing: no report of what is known, no heartbeat, and
//! nothing of what looks at the state at intervals and finds nothing to do.

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};

/// Heartbeats that are waited for: an hour of a fleet whose nodes are heard of every ninety
/// seconds.
const HEARTBEATS: f64 = 40.0;

/// What looks at intervals, whatever happens. What is due at a moment of its own, as the end of a
/// token is, sleeps until then.
const LOOKS: [&str; 3] = ["core_gc", "heartbeat_expiry", "retention"];

/// How often each of them comes to look meanwhile.
const TIMES: f64 = 5.0;

/// Intervals so short that all of it comes due within the test; for how long things are kept is as
/// usual, and no disk is ever too full, so that there is nothing to do.
const CONFIG: &str = r#"
server {
  min_heartbeat_ttl            = "100ms"
  job_gc_interval              = "100ms"
  csi_volume_claim_gc_interval = "1s"
  retention {
    interval = "100ms"
    log {
      age = "24h"
    }
    requests {
      age = "24h"
    }
  }
}
client {
  gc_interval              = "100ms"
  gc_disk_usage_threshold  = 100
  gc_inode_usage_threshold = 100
}
"#;

fn job(id: &str, kind: &str, count: u32, run_for: &str) -> Value {
    json!({"Job": {"ID": id, "Name": id, "Type": kind, "Datacenters": ["dc1"],
        "TaskGroups": [{"Name": "g", "Count": count,
            "EphemeralDisk": {"SizeMB": 20},
            "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": run_for},
                "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 5},
                "Resources": {"CPU": 20, "MemoryMB": 16}}]}]}})
}

/// The value of a counter in Prometheus' form, of those that have a label; 0 where it is not there
/// yet.
fn counter(agent: &Agent, name: &str, label: &str) -> Result<f64> {
    let text = agent.http().get("/v1/metrics?format=prometheus")?.text();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label));
    Ok(lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

/// How often each of those came to look, and how often one of them failed.
fn looks(agent: &Agent) -> Result<([f64; 3], f64)> {
    let of = |what: &str, name: &str| {
        let counted = format!("drover_reactor_{what}_total{{");
        counter(agent, &counted, &format!("reactor=\"{name}\""))
    };
    let (mut came, mut failed) = ([0.0; 3], 0.0);
    for (count, name) in came.iter_mut().zip(LOOKS) {
        *count = of("activations", name)?;
        failed += of("failures", name)?;
    }
    Ok((came, failed))
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
    setup.config = CONFIG.to_owned();
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
    let beats = || counter(&agent, "nomad_nomad_rpc_node_write", "");
    // Nothing is on its way any more.
    let quiet = beats()? + 5.0;
    let mut index = applied(&agent)?;
    wait_for("nothing on its way", LONG, || {
        let (now, beats) = (applied(&agent)?, beats()?);
        let moved = std::mem::replace(&mut index, now) != now;
        ensure!(!moved && beats > quiet, "{now} after {beats} heartbeats");
        Ok(())
    })?;
    let (begin, rows) = (beats()?, http.json("/v1/allocations")?);
    let node = http.json("/v1/nodes")?;
    let (before, failed) = looks(&agent)?;
    ensure!(before.iter().all(|count| *count > 0.0), "{before:?}");
    wait_for("heartbeats and looks", LONG, || {
        let beats = beats()?;
        ensure!(beats >= begin + HEARTBEATS, "{beats} from {begin}");
        let (now, _) = looks(&agent)?;
        let mut both = now.iter().zip(before);
        let often = both.all(|(now, before)| *now >= before + TIMES);
        ensure!(often, "{LOOKS:?}: {now:?} from {before:?}");
        Ok(())
    })?;
    ensure!(looks(&agent)?.1 == failed, "a look failed");
    let after = applied(&agent)?;
    let reported = http.json(&format!("/v1/audit?since={}", index + 1));
    ensure!(after == index, "{} events: {reported:?}", after - index);
    ensure!(http.json("/v1/allocations")? == rows, "rows changed");
    ensure!(http.json("/v1/nodes")? == node, "the node changed");
    Ok(())
}
