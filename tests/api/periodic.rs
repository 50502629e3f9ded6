//! Periodic jobs that really launch, through the API and the command line.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Result, ensure};
use drover_testkit::{Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{dev, json_of, node_is_ready, register};

/// A job that is launched every second.
fn ticking(id: &str, periodic: &Value) -> Value {
    let mut config = json!({"Enabled": true, "SpecType": "cron", "Specs": ["* * * * * * *"]});
    for (key, value) in periodic.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    json!({"Job": {"ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"],
    "Periodic": config,
    "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
        "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "10ms"},
        "Resources": {"CPU": 10, "MemoryMB": 10},
    }]}]}})
}

/// The children of a job by their slots, Unix seconds, once `enough` says so.
fn wait_children(
    http: &mut Http,
    id: &str,
    enough: impl Fn(&BTreeMap<u64, Value>) -> bool,
) -> BTreeMap<u64, Value> {
    let path = format!("/v1/jobs?prefix={id}%2Fperiodic-");
    wait_for(&path, LONG, || -> Result<BTreeMap<u64, Value>> {
        let jobs = http.json(&path)?.as_array().cloned().unwrap_or_default();
        let slot = |job: &Value| {
            let id = job["ID"].as_str().unwrap_or_default();
            let digits = id.rsplit('-').next().unwrap_or_default();
            digits.parse().expect("a time")
        };
        let children: BTreeMap<u64, Value> =
            jobs.into_iter().map(|job| (slot(&job), job)).collect();
        ensure!(enough(&children), "{} children", children.len());
        Ok(children)
    })
    .expect("enough children")
}

fn dead(children: &BTreeMap<u64, Value>) -> usize {
    children
        .values()
        .filter(|job| job["Status"] == "dead")
        .count()
}

/// Each child was launched once: it has one version, one evaluation by the clock, and ran once.
fn assert_launched_once(http: &mut Http, children: &BTreeMap<u64, Value>) {
    for child in children.values() {
        let path = format!(
            "/v1/job/{}",
            child["ID"].as_str().expect("an id").replace('/', "%2F")
        );
        let versions = json_of(http, &format!("{path}/versions"));
        assert_eq!(
            versions["Versions"].as_array().map(Vec::len),
            Some(1),
            "{child}"
        );
        let evals = json_of(http, &format!("{path}/evaluations"));
        let by_clock = evals.as_array().into_iter().flatten();
        let by_clock = by_clock.filter(|eval| eval["TriggeredBy"] == "periodic-job");
        assert_eq!(by_clock.count(), 1, "{evals}");
        let allocs = json_of(http, &format!("{path}/allocations"));
        assert!(allocs.as_array().map_or(0, Vec::len) <= 1, "{allocs}");
    }
}

#[test]
fn a_job_of_every_second_is_launched_every_second() {
    let running = dev();
    let mut http = running.http();
    let eval = register(&mut http, &ticking("tick", &json!({})));
    assert_eq!(eval, "", "the job itself is not placed");
    let children = wait_children(&mut http, "tick", |found| dead(found) >= 3);
    assert_launched_once(&mut http, &children);
    let child = children.values().next().expect("a child");
    assert_eq!(child["ParentID"], "tick");
    // The parent counts them, runs on, and stops launching when it is stopped.
    let summary = json_of(&mut http, "/v1/job/tick/summary");
    assert!(summary["Children"]["Dead"].as_u64() >= Some(3), "{summary}");
    assert_eq!(json_of(&mut http, "/v1/job/tick")["Status"], "running");
    let stopped = http.send("DELETE", "/v1/job/tick", b"").expect("an answer");
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    assert_eq!(stopped.json().expect("JSON")["EvalID"], "");
    assert_eq!(json_of(&mut http, "/v1/job/tick")["Status"], "dead");
    let left = wait_children(&mut http, "tick", |found| dead(found) == found.len());
    let refused = http
        .put("/v1/job/tick/periodic/force", &json!({}))
        .expect("an answer");
    assert_eq!(
        (refused.status, refused.text().as_str()),
        (500, "can't force run non-tracked job \"tick\" (default)")
    );
    // A job beside it shows that time passes.
    register(&mut http, &ticking("tock", &json!({})));
    wait_children(&mut http, "tock", |found| found.len() >= 3);
    let later = wait_children(&mut http, "tick", |_| true);
    assert_eq!(left.len(), later.len(), "{later:?}");
}

#[test]
fn each_slot_is_launched_once_whenever_the_agent_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let setup = setup.expect("free ports");
    let mut agent = setup.start().expect("the agent starts");
    register(&mut agent.http(), &ticking("tick", &json!({})));
    let mut known = 0;
    for _ in 0..3 {
        // Killed as soon as there is another launch: its child may not be placed yet.
        let wanted = known + 2;
        known = wait_children(&mut agent.http(), "tick", |found| found.len() >= wanted).len();
        agent.kill().expect("it ran");
        agent = setup.start().expect("it starts again");
    }
    let wanted = known + 2;
    let mut http = agent.http();
    let children = wait_children(&mut http, "tick", |found| dead(found) >= wanted);
    assert_launched_once(&mut http, &children);
}

#[test]
fn a_job_that_prohibits_overlap_runs_one_child_at_a_time() {
    let running = dev();
    let mut http = running.http();
    let mut long = ticking("long", &json!({"ProhibitOverlap": true}));
    long["Job"]["TaskGroups"][0]["Tasks"][0]["Config"]["run_for"] = "10m".into();
    register(&mut http, &long);
    register(&mut http, &ticking("short", &json!({})));
    wait_children(&mut http, "long", |found| found.len() == 1);
    wait_children(&mut http, "short", |found| found.len() >= 4);
    let children = wait_children(&mut http, "long", |_| true);
    assert_eq!(
        children.len(),
        1,
        "others were launched while it runs: {children:?}"
    );
    // Its end lets the next slot be launched.
    let id = children.values().next().expect("a child")["ID"]
        .as_str()
        .expect("an id");
    let path = format!("/v1/job/{}", id.replace('/', "%2F"));
    http.send("DELETE", &path, b"").expect("an answer");
    wait_children(&mut http, "long", |found| found.len() == 2);
}

#[test]
fn the_command_launches_a_periodic_job_and_says_when_the_clock_will() {
    let running = dev();
    let mut http = running.http();
    node_is_ready(&mut http);
    let cli = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(args)
            .env("NOMAD_ADDR", format!("http://{}", running.agent.addr()))
            .env_remove("NOMAD_TOKEN")
            .output()
            .expect("the command runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("night.json");
    let yearly = json!({"Specs": ["@yearly"], "TimeZone": "Europe/Berlin"});
    std::fs::write(&file, ticking("night", &yearly).to_string()).expect("written");
    let ran = cli(&["job", "run", "-json", file.to_str().expect("a path")]);
    assert_eq!(ran.0, Some(0), "{ran:?}");
    let next = ran.1.lines().last().expect("lines");
    assert!(
        next.starts_with("Approximate next launch time: 20"),
        "{ran:?}"
    );
    assert!(next.ends_with(" from now)"), "{ran:?}");
    let forced = cli(&["job", "periodic", "force", "night"]);
    assert_eq!(forced.0, Some(0), "{forced:?}");
    let says = "Evaluation triggered by job \"night/periodic-";
    assert!(forced.1.contains(says), "{forced:?}");
    let detached = cli(&["job", "periodic", "force", "-detach", "night"]);
    assert!(
        detached
            .1
            .starts_with("Force periodic successful\nEvaluation ID: "),
        "{detached:?}"
    );
    // Two in one second are two.
    wait_children(&mut http, "night", |found| dead(found) == 2);
    let status = cli(&["job", "status", "night"]).1;
    assert!(status.contains("Next Periodic Launch = 20"), "{status}");
    assert!(status.contains("Previously Launched Jobs"), "{status}");
    let mut plain = ticking("plain", &json!({}));
    plain["Job"]
        .as_object_mut()
        .expect("a job")
        .remove("Periodic");
    register(&mut http, &plain);
    let refused = cli(&["job", "periodic", "force", "plain"]);
    assert_eq!(refused.0, Some(1));
    assert!(
        refused
            .2
            .contains("No periodic job(s) with prefix or ID \"plain\" found"),
        "{refused:?}"
    );
    register(
        &mut http,
        &ticking("night", &json!({"Specs": ["@yearly"], "Enabled": false})),
    );
    let refused = cli(&["job", "periodic", "force", "night"]);
    assert!(
        refused.2.contains("can't force run non-tracked job"),
        "{refused:?}"
    );
}
