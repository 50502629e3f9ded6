//! A deletion by filter that is killed half-way is finished by running it again.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use drover_testkit::{Agent, Http, Setup, moment};
use serde_json::{Value, json};

use crate::support::check_replay;

const EVALS: usize = 8_000;
const WRITERS: usize = 8;

fn job() -> Value {
    json!({"Job": {
        "ID": "web", "Name": "web", "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {"command": "true"},
        }]}],
    }})
}

fn count(http: &mut Http) -> Result<usize> {
    let answer = http.json("/v1/evaluations/count")?;
    Ok(answer["Count"].as_u64().unwrap_or(u64::MAX) as usize)
}

fn delete(http: &mut Http) -> Result<Value> {
    let body = json!({"Filter": "JobID == \"web\""}).to_string();
    http.send("DELETE", "/v1/evaluations", body.as_bytes())?
        .json()
}

/// Pauses the broker and makes many pending evaluations.
fn fill(agent: &Agent) -> Result<usize> {
    let mut http = agent.http();
    let config = json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": true});
    let answer = http.put("/v1/operator/scheduler/configuration", &config)?;
    ensure!(answer.status == 200, "{}", answer.text());
    let answer = http.put("/v1/jobs", &job())?;
    ensure!(answer.status == 200, "{}", answer.text());
    std::thread::scope(|scope| {
        let write = || {
            let mut http = agent.http();
            for _ in 0..EVALS / WRITERS {
                let answer = http.put("/v1/job/web/evaluate", &json!({"JobID": "web"}))?;
                ensure!(answer.status == 200, "{}", answer.text());
            }
            Ok(())
        };
        let threads: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().expect("no panic"))
    })?;
    count(&mut http)
}

/// Kills the agent once the first page is gone. Answers how many were left, if it was half-way.
fn kill_half_way(agent: Agent, setup: &Setup) -> Result<(Agent, Option<usize>)> {
    let before = fill(&agent)?;
    ensure!(before >= EVALS, "only {before}");
    let mut http = agent.http();
    let mut caller = agent.http().timeout(Duration::from_secs(60));
    let call = std::thread::spawn(move || delete(&mut caller));
    let begun = moment(
        || count(&mut http).is_ok_and(|left| left < before),
        || call.is_finished(),
    );
    ensure!(begun, "nothing is deleted");
    agent.kill()?;
    let answer = call.join().expect("no panic");
    let agent = setup.start()?;
    let left = count(&mut agent.http().timeout(Duration::from_secs(60)))?;
    ensure!(left < before, "the pages that were applied came back");
    ensure!(answer.is_err() || left == 0, "{answer:?} with {left} left");
    let half_way = answer.is_err() && left > 0;
    Ok((agent, half_way.then_some(left)))
}

#[test]
fn eval_07_a_killed_deletion_keeps_its_pages_and_is_finished_by_running_it_again() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"))?;
    let mut agent = setup.start()?;
    let mut left = None;
    // The kill may come too late, when the last page is gone as well.
    for _ in 0..5 {
        if left.is_none() {
            (agent, left) = kill_half_way(agent, &setup)?;
        }
    }
    let left = left.ok_or_else(|| anyhow!("it was never killed half-way"))?;
    let mut http = agent.http().timeout(Duration::from_secs(60));
    let again = delete(&mut http)?;
    ensure!(again["Count"] == left, "{again}, {left} were left");
    ensure!(count(&mut http)? == 0, "some are still there");
    check_replay(&setup, &agent)
}
