//! Durable writes: jobs, variables, evaluations.

use std::time::Instant;

use anyhow::{Result, ensure};
use drover_benchkit::{Line, Run, run};
use drover_testkit::{Agent, Http, Response};
use serde_json::json;

use crate::jobs::{job, register as register_job};

fn good(answer: Response) -> Result<usize> {
    ensure!(answer.status < 300, "{} {}", answer.status, answer.text());
    Ok(answer.body.len())
}

/// One job and one evaluation each.
pub(crate) fn register(agent: &Agent, floor: f64) -> Result<()> {
    for (what, count, clients) in [("register, c=32", 5000, 32), ("register, c=1", 500, 1)] {
        let body = |number| job(&format!("load-{clients}-{number:06}"), 0, false);
        let mut done = run(
            count,
            clients,
            || agent.http(),
            |http, number| register_job(http, &body(number)),
        );
        done.line(what).number("floor_syncs", floor).print();
    }
    Ok(())
}

/// Encrypted puts, then gets.
pub(crate) fn variables(agent: &Agent, floor: f64) -> Result<()> {
    let path = |number| format!("/v1/var/load/{number:06}");
    let items = json!({"user": "alice", "password": "x".repeat(200)});
    let mut put = run(
        5000,
        32,
        || agent.http(),
        |http: &mut Http, number| {
            let body = json!({"Path": format!("load/{number:06}"), "Items": items});
            good(http.put(&path(number), &body)?)
        },
    );
    put.line("put variables")
        .number("floor_syncs", floor)
        .print();
    let mut get = run(
        5000,
        32,
        || agent.http(),
        |http, number| good(http.get(&path(number))?),
    );
    get.line("get variables").print();
    Ok(())
}

const SCHEDULER: &str = "/v1/operator/scheduler/configuration";

fn pause(http: &mut Http, paused: bool) -> Result<usize> {
    let config = json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": paused});
    good(http.put(SCHEDULER, &config)?)
}

/// Creates evaluations of one job; the broker must be paused.
fn create(agent: &Agent, count: usize) -> Result<Run> {
    register_job(&mut agent.http(), &job("evals", 0, false))?;
    let body = json!({"JobID": "evals"});
    let work = |http: &mut Http, _| good(http.put("/v1/job/evals/evaluate", &body)?);
    Ok(run(count, 64, || agent.http(), work))
}

/// Deletes them by one filter: seconds and how many.
fn delete(http: &mut Http) -> Result<(f64, f64)> {
    let filter = serde_json::to_vec(&json!({"Filter": "JobID == \"evals\""}))?;
    let start = Instant::now();
    let deleted = http.send("DELETE", "/v1/evaluations", &filter)?.json()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, deleted["Count"].as_f64().unwrap_or_default()))
}

/// Evaluations created while the broker is paused, then deleted by one filter.
pub(crate) fn evaluations(agent: &Agent, floor: f64) -> Result<()> {
    let mut http = agent.http();
    pause(&mut http, true)?;
    create(agent, 50_000)?
        .line("create evaluations")
        .number("floor_syncs", floor)
        .print();
    let (seconds, count) = delete(&mut http)?;
    Line::new("delete evaluations by filter")
        .number("seconds", seconds)
        .number("deleted", count)
        .print();
    pause(&mut http, false)?;
    Ok(())
}
