//! Starting: a development agent to its first task, and a server after a kill.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use drover_benchkit::Line;
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::json;

use crate::jobs::register;

/// Process start until a `raw_exec` task runs.
pub(crate) fn dev(drover: &Path, dir: &Path) -> Result<()> {
    let setup = Setup::dev(drover, &dir.join("dev"))?;
    let body = json!({"Job": {
        "ID": "first", "Name": "first", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec",
            "Config": {"command": "/bin/sleep", "args": ["600"]},
            "Resources": {"CPU": 20, "MemoryMB": 20},
        }]}],
    }});
    let start = Instant::now();
    let agent = setup.start()?;
    let ready = start.elapsed().as_secs_f64();
    let mut http = agent.http();
    register(&mut http, &body)?;
    wait_for("the task to run", LONG, || {
        let allocs = http.json("/v1/job/first/allocations")?;
        let status = allocs[0]["ClientStatus"]
            .as_str()
            .unwrap_or("none")
            .to_owned();
        ensure!(status == "running", "the allocation is {status}");
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let line = Line::new("agent -dev to running task");
    line.number("seconds", seconds)
        .number("ready_seconds", ready)
        .print();
    let resident = agent.resident_bytes()? as f64 / 1e6;
    Line::new("agent -dev resident memory")
        .number("mb", resident)
        .print();
    http.send("DELETE", "/v1/job/first?purge=true", &[])?;
    wait_for("the task to stop", LONG, || {
        let allocs = http.json("/v1/allocations")?;
        let running = allocs[0]["ClientStatus"] == "running";
        ensure!(!running, "it still runs");
        Ok(())
    })?;
    agent.stop(LONG)?;
    Ok(())
}

/// kill -9, start on the same directory, ready to serve.
pub(crate) fn restart(agent: Agent, setup: &Setup) -> Result<()> {
    agent.kill()?;
    let start = Instant::now();
    let agent = setup.start()?;
    let seconds = start.elapsed().as_secs_f64();
    Line::new("kill -9 to ready")
        .number("seconds", seconds)
        .print();
    agent.stop(LONG)?;
    Ok(())
}
