//! A service survives the death of its agent, and the log alone gives the same state.

use std::path::Path;

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{check_replay, stop};

/// A service that writes its process id and stays.
fn service(pids: &Path) -> Value {
    let script = format!("echo $$ >> {}; exec sleep 600", pids.display());
    json!({"Job": {
        "ID": "service", "Name": "service", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec",
            "Config": {"command": "/bin/sh", "args": ["-c", script]},
        }]}],
    }})
}

fn started(pids: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(pids).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn status_of(http: &mut Http) -> Result<Value> {
    let allocs = http.json("/v1/job/service/allocations")?;
    ensure!(
        allocs.as_array().is_some_and(|list| list.len() == 1),
        "{allocs}"
    );
    Ok(allocs[0].clone())
}

fn wait_running(agent: &Agent) -> Result<Value> {
    let mut http = agent.http();
    wait_for("the service to run", LONG, || {
        let alloc = status_of(&mut http)?;
        ensure!(
            alloc["ClientStatus"] == "running",
            "it is {}",
            alloc["ClientStatus"]
        );
        Ok(alloc)
    })
}

#[test]
fn mod_03_drv_08_a_service_lives_on_under_its_old_process_id() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pids = dir.path().join("pids");
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let agent = setup.start()?;
    let mut http = agent.http();
    let answer = http.put("/v1/jobs", &service(&pids))?;
    ensure!(answer.status == 200, "{}", answer.text());
    let before = wait_running(&agent)?;
    wait_for("its process id", LONG, || {
        ensure!(started(&pids).len() == 1, "{:?}", started(&pids));
        Ok(())
    })?;
    let pid = started(&pids)[0].clone();
    agent.kill()?;
    for _ in 0..2 {
        let agent = setup_again(&setup, &pid)?;
        let after = wait_running(&agent)?;
        ensure!(after["ID"] == before["ID"], "another allocation: {after}");
        agent.kill()?;
    }
    let agent = setup.start()?;
    wait_running(&agent)?;
    ensure!(
        started(&pids) == [pid.clone()],
        "started again: {:?}",
        started(&pids)
    );
    check_replay(&setup, &agent)?;
    agent.http().send("DELETE", "/v1/job/service", &[])?;
    wait_for("the task to end", LONG, || {
        ensure!(!Path::new("/proc").join(&pid).exists(), "{pid} still runs");
        Ok(())
    })?;
    stop(agent)?;
    let status = setup.start()?.interrupt(LONG)?;
    ensure!(status.success(), "after an interrupt: {status}");
    return Ok(());

    /// Starts on what a killed agent left, with the task still alive.
    fn setup_again(setup: &Setup, pid: &str) -> Result<Agent> {
        ensure!(
            Path::new("/proc").join(pid).exists(),
            "the task died with the agent"
        );
        setup.start()
    }
}
