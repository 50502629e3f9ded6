//! Durable writes: jobs, variables, evaluations.

use std::time::Instant;

use anyhow::{Result, ensure};
use drover_benchkit::{Line, run};
use drover_testkit::{Agent, Http, Response};
use serde_json::json;

use crate::jobs::{job, register as register_job};

fn good(answer: Response) -> Result<usize> {
    ensure!(answer.status < 300, "{} {}", answer.status, answer.text());
    Ok(answer.body.len())
}

/// One job and one evaluation each.
pub(crate) fn register(agent: &Agent) -> Result<()> {
    for (what, count, clients) in [("register, c=32", 5000, 32), ("register, c=1", 500, 1)] {
        let body = |number| job(&format!("load-{clients}-{number:06}"), 0, false);
        let mut done = run(
            count,
            clients,
            || agent.http(),
            |http, number| register_job(http, &body(number)),
        );
        done.line(what).print();
    }
    Ok(())
}

/// Encrypted puts, then gets.
pub(crate) fn variables(agent: &Agent) -> Result<()> {
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
    put.line("put variables").print();
    let mut get = run(
        5000,
        32,
        || agent.http(),
        |http, number| good(http.get(&path(number))?),
    );
    get.line("get variables").print();
    Ok(())
}

/// Evaluations created while the broker is paused, then deleted by one filter.
pub(crate) fn evaluations(agent: &Agent) -> Result<()> {
    let mut http = agent.http();
    let pause = |paused: bool| json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": paused});
    let config = "/v1/operator/scheduler/configuration";
    good(http.put(config, &pause(true))?)?;
    register_job(&mut http, &job("evals", 0, false))?;
    let body = json!({"JobID": "evals"});
    let mut created = run(
        50_000,
        64,
        || agent.http(),
        |http, _| good(http.put("/v1/job/evals/evaluate", &body)?),
    );
    created.line("create evaluations").print();
    let filter = serde_json::to_vec(&json!({"Filter": "JobID == \"evals\""}))?;
    let start = Instant::now();
    let deleted = http.send("DELETE", "/v1/evaluations", &filter)?.json()?;
    let seconds = start.elapsed().as_secs_f64();
    let count = deleted["Count"].as_f64().unwrap_or_default();
    Line::new("delete evaluations by filter")
        .number("seconds", seconds)
        .number("deleted", count)
        .print();
    good(http.put(config, &pause(false))?)?;
    Ok(())
}
