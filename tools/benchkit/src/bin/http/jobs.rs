//! Jobs: their bodies, placing them, and the stream about them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover_benchkit::{Line, run};
use drover_testkit::{Agent, Http, wait_for};
use serde_json::{Value, json};

/// A batch job of `count` simulated tasks.
pub(crate) fn job(id: &str, count: usize, spread: bool) -> Value {
    let mut job = json!({
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"], "Priority": 50,
        "TaskGroups": [{
            "Name": "g", "Count": count, "EphemeralDisk": {"SizeMB": 10},
            "RestartPolicy": {
                "Attempts": 0, "Mode": "fail", "Interval": 300_000_000_000_u64,
                "Delay": 15_000_000_000_u64,
            },
            "Tasks": [{
                "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"},
                "Resources": {"CPU": 20, "MemoryMB": 20},
                "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
            }],
        }],
    });
    if spread {
        job["Spreads"] = json!([{"Attribute": "${node.unique.name}", "Weight": 50}]);
    }
    json!({ "Job": job })
}

/// Registers a job; the length of the answer.
pub(crate) fn register(http: &mut Http, body: &Value) -> Result<usize> {
    let answer = http.put("/v1/jobs", body)?;
    ensure!(answer.status < 300, "{} {}", answer.status, answer.text());
    Ok(answer.body.len())
}

/// Jobs until every allocation is placed.
pub(crate) fn place(agent: &Agent) -> Result<()> {
    placed(agent, "place", 22, 1000, false)?;
    placed(agent, "place, spread", 4, 500, true)
}

fn placed(agent: &Agent, what: &str, jobs: usize, count: usize, spread: bool) -> Result<()> {
    let prefix = if spread { "spread" } else { "place" };
    let start = Instant::now();
    let registered = run(
        jobs,
        16,
        || agent.http(),
        |http, number| register(http, &job(&format!("{prefix}-{number:06}"), count, spread)),
    );
    ensure!(
        registered.errors == 0,
        "register: {:?}",
        registered.first_error
    );
    let mut http = agent.http();
    for number in 0..jobs {
        let path = format!("/v1/job/{prefix}-{number:06}/summary");
        wait_for("all allocations", Duration::from_secs(300), || {
            let summary = http.json(&path)?;
            let group = &summary["Summary"]["g"];
            let states = ["Starting", "Running", "Complete"];
            let placed: u64 = states
                .iter()
                .filter_map(|state| group[*state].as_u64())
                .sum();
            ensure!(placed >= count as u64, "{path}: {placed} of {count}");
            Ok(())
        })?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = (jobs * count) as f64 / seconds;
    Line::new(what)
        .number("per_second", rate)
        .number("seconds", seconds)
        .print();
    Ok(())
}

/// Subscribers while jobs are registered: what each of them saw.
pub(crate) fn stream(agent: &Agent) -> Result<()> {
    let (subscribers, jobs) = (100, 2000);
    let seen = AtomicU64::new(0);
    let ready = AtomicU64::new(0);
    let mut rate = 0.0;
    let mut seconds = 0.0;
    let alone = run(
        jobs,
        16,
        || agent.http(),
        |http, number| register(http, &job(&format!("alone-{number:06}"), 0, false)),
    );
    let alone = alone.per_second();
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..subscribers {
            scope.spawn(|| watch(agent, jobs, &ready, &seen));
        }
        wait_for("the subscribers", Duration::from_secs(60), || {
            let connected = ready.load(Ordering::Relaxed);
            ensure!(
                connected == subscribers,
                "{connected} of {subscribers} are connected"
            );
            Ok(())
        })?;
        let start = Instant::now();
        let registered = run(
            jobs,
            16,
            || agent.http(),
            |http, number| register(http, &job(&format!("stream-{number:06}"), 0, false)),
        );
        rate = registered.per_second();
        let all = subscribers * jobs as u64;
        // Slow subscribers end by their own time limit, so this wait may fail without harm.
        let _ = wait_for("the deliveries", Duration::from_secs(30), || {
            let now = seen.load(Ordering::Relaxed);
            ensure!(now >= all, "{now} of {all}");
            Ok(())
        });
        seconds = start.elapsed().as_secs_f64();
        Ok(())
    })?;
    let seen = seen.load(Ordering::Relaxed) as f64;
    Line::new("stream, 100 subscribers")
        .number("per_second", seen / seconds)
        .number("delivered_share", seen / (subscribers * jobs as u64) as f64)
        .number("register_per_second", rate)
        .number("without_subscribers", alone)
        .number("slowed", (1.0 - rate / alone).max(0.0))
        .print();
    Ok(())
}

/// Counts the registrations that one subscriber receives.
fn watch(agent: &Agent, jobs: usize, ready: &AtomicU64, seen: &AtomicU64) -> Result<()> {
    let http = agent.http().timeout(Duration::from_secs(35));
    let mut lines = http.lines("/v1/event/stream?topic=Job:*")?;
    ready.fetch_add(1, Ordering::Relaxed);
    let mut mine = 0;
    while mine < jobs {
        let Some(line) = lines.next_line()? else {
            break;
        };
        // Counted as bytes: decoding here would measure this program, not the server.
        if !holds(&line, b"\"stream-") {
            continue;
        }
        let found = count(&line, b"\"Type\":\"JobRegistered\"");
        mine += found;
        seen.fetch_add(found as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn holds(line: &[u8], needle: &[u8]) -> bool {
    line.windows(needle.len()).any(|window| window == needle)
}

fn count(line: &[u8], needle: &[u8]) -> usize {
    line.windows(needle.len())
        .filter(|window| *window == needle)
        .count()
}
