//! What an operator requests from one agent: its log, its machine, its profiles, its node's
//! metadata.

use std::process::Command;

use anyhow::ensure;
use drover_testkit::{Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::official_client::go_works;
use crate::support::{dev, job, json_of, register, server, server_with};

fn post(http: &mut Http, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let answer = http.send("POST", "/v1/client/metadata", body.as_bytes());
    let answer = answer.expect("an answer");
    (answer.status, answer.text())
}

#[test]
fn mod_23_a_log_is_followed_at_a_level_that_the_agent_does_not_write() {
    let running = server_with("log_level = \"ERROR\"\n");
    let mut lines = running
        .http()
        .lines("/v1/agent/monitor?plain=true&log_level=debug&log_include_location=true")
        .expect("a stream");
    assert_eq!(
        lines.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let reload = running.http().put("/v1/agent/reload", &json!({}));
    assert_eq!(reload.expect("an answer").status, 200);
    let reloads = |line: &str| {
        let reloads = line.contains("Reloading configuration");
        reloads.then(|| line.to_owned())
    };
    let reported = lines.find("a reload", reloads).expect("a line");
    assert!(
        reported.contains(" INFO ") && reported.contains("reload.rs:"),
        "{reported}"
    );
    let written = running.agent.log_tail(1_000);
    assert!(!written.contains("Reloading configuration"), "{written}");
}

#[test]
fn mod_23_what_an_agent_logged_into_its_file_is_exported() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("agent.log");
    let running = server_with(&format!("log_file = {path:?}\n"));
    let mut http = running.http();
    let answer = http.get("/v1/agent/monitor/export?on_disk=true&plain=true");
    let text = answer.expect("an answer").text();
    assert!(text.contains("HTTP API"), "{text}");
    let written = std::fs::read_to_string(&path).expect("a log");
    assert!(written.starts_with(&text), "the file as it was");
    let mut bare = server();
    let answer = bare.http().get("/v1/agent/monitor/export?on_disk=true");
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert!(answer.text().contains("log_file"), "{}", answer.text());
    // An agent that was not opened for it reports neither its machine nor its process.
    for path in ["/v1/agent/host", "/v1/agent/pprof/cmdline"] {
        let answer = bare.http().get(path).expect("an answer");
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    bare = server_with("enable_debug = true\n");
    let host = json_of(&mut bare.http(), "/v1/agent/host");
    assert!(
        host["HostData"]["Environment"]["PATH"].is_string(),
        "{host}"
    );
}

#[test]
fn mod_23_a_profile_is_read_by_gos_tool() {
    if go_works().is_none() {
        return;
    }
    let running = dev();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("profile");
    let raw = |target: &str| {
        let answer = running.http().get(&format!("/v1/agent/pprof/{target}"));
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        std::fs::write(&file, &answer.body).expect("written");
        let output = Command::new("go")
            .args(["tool", "pprof", "-raw"])
            .arg(&file)
            .output()
            .expect("go runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{failed}");
        text
    };
    let text = raw("profile?seconds=1");
    assert!(text.contains("PeriodType: cpu nanoseconds"), "{text}");
    assert!(text.contains("samples/count cpu/nanoseconds"), "{text}");
    let text = raw("goroutine");
    assert!(text.contains("threads/count cpu/nanoseconds"), "{text}");
    assert!(text.contains(" api"), "threads by their names: {text}");
}

/// Waits until the client of an agent answers.
fn there(http: &mut Http) -> Value {
    let requested = || http.json("/v1/client/metadata");
    wait_for("its client", LONG, requested).expect("it is there")
}

/// A job that runs where a key of the node's metadata is so.
fn wanting(id: &str, key: &str, value: &str) -> Value {
    let mut job = job(id, 1);
    job["Job"]["Constraints"] =
        json!([{"LTarget": format!("${{meta.{key}}}"), "RTarget": value, "Operand": "="}]);
    job
}

#[test]
fn mod_23_metadata_counts_at_once_and_survives_the_agents_death() {
    let dir = tempfile::tempdir().expect("a directory");
    let binary = env!("CARGO_BIN_EXE_drover");
    let mut setup = Setup::dev(binary, &dir.path().join("data")).expect("free ports");
    setup.config = "client {\n  meta {\n    site = \"a\"\n    old = \"x\"\n  }\n}\n".to_owned();
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    there(&mut http);
    register(&mut http, &wanting("waits", "rack", "r7"));
    wait_for("its evaluation to wait", LONG, || {
        let evals = http.json("/v1/job/waits/evaluations")?;
        let waits = evals.as_array().into_iter().flatten();
        ensure!(
            waits.clone().any(|eval| eval["Status"] == "blocked"),
            "{evals}"
        );
        Ok(())
    })
    .expect("it is blocked");
    let (status, text) = post(&mut http, &json!({"Meta": {"rack": "r7", "old": null}}));
    assert_eq!(status, 200, "{text}");
    let metadata: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&metadata["Meta"]["rack"], &metadata["Meta"]["site"]),
        (&json!("r7"), &json!("a"))
    );
    assert_eq!(metadata["Meta"]["old"], Value::Null);
    assert_eq!(metadata["Dynamic"], json!({"rack": "r7", "old": null}));
    assert_eq!(metadata["Static"]["old"], "x");
    wait_for("it to run", LONG, || {
        let allocs = http.json("/v1/job/waits/allocations")?;
        ensure!(allocs[0]["ClientStatus"] == "complete", "{allocs}");
        Ok(())
    })
    .expect("it is placed");

    agent.kill().expect("it is killed");
    let agent = setup.start().expect("it starts again");
    let mut http = agent.http();
    assert_eq!(there(&mut http), metadata);
    register(&mut http, &wanting("again", "rack", "r7"));
    wait_for("another to run", LONG, || {
        let allocs = http.json("/v1/job/again/allocations")?;
        ensure!(allocs[0]["ClientStatus"] == "complete", "{allocs}");
        Ok(())
    })
    .expect("it is placed");
    let (_, text) = post(&mut http, &json!({"Meta": {"old": "y", "rack": null}}));
    let metadata: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(metadata["Dynamic"], json!({"old": "y"}));
}

#[test]
fn mod_23_metadata_that_cannot_be_is_refused() {
    let running = dev();
    let mut http = running.http();
    there(&mut http);
    for (body, text) in [
        (json!({}), "missing required Meta object"),
        (json!({"Meta": {}}), "missing required Meta object"),
        (
            json!({"Meta": {"": "x"}}),
            "metadata keys must not be empty",
        ),
        (
            json!({"Meta": {"a b": "x"}}),
            "metadata key \"a b\" is not valid",
        ),
        (json!({"Meta": {"a": 1}}), ""),
        (json!({"Meta": {"a": "x".repeat(300_000)}}), "262144 bytes"),
    ] {
        let (status, answer) = post(&mut http, &body);
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains(text), "{answer}");
    }
    let (status, answer) = post(&mut http, &json!({"NodeID": "nobody", "Meta": {"a": "b"}}));
    assert_eq!((status, answer.as_str()), (404, "Unknown node \"nobody\""));
    let put = http.put("/v1/client/metadata", &json!({"Meta": {"a": "b"}}));
    assert_eq!(put.expect("an answer").status, 405);
    let alone = server();
    let answer = alone.http().get("/v1/client/metadata").expect("an answer");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (400, "No local Node and node_id not provided")
    );
    let none = json_of(&mut http, "/v1/client/metadata");
    assert_eq!(none["Dynamic"], json!({}));
}

#[test]
fn metrics_as_json_count_requests_and_sample_how_long_they_and_a_job_took() {
    let running = server_with("telemetry {\n  prometheus_metrics = true\n}\n");
    let mut http = running.http();
    let named = || {
        // With each look again: what is shown may be the interval that ended last.
        register(&mut http, &job("web", 1));
        let shown = http.json("/v1/metrics")?;
        for (list, name) in [
            ("Counters", "nomad.nomad.rpc.request"),
            ("Counters", "nomad.nomad.rpc.job.write"),
            ("Counters", "drover.requests.served_total"),
            ("Samples", "drover.http.request.seconds"),
            ("Samples", "nomad.nomad.worker.invoke_scheduler.batch"),
        ] {
            let mut series = shown[list].as_array().into_iter().flatten();
            let counted = |one: &Value| one["Name"] == name && one["Count"].as_u64() > Some(0);
            ensure!(series.any(counted), "no {name}: {shown}");
        }
        Ok(())
    };
    wait_for("what was served and scheduled", LONG, named).expect("it is shown");
    // Reads are queries, and writes are none.
    let queries = |http: &mut Http| {
        let shown = http
            .get("/v1/metrics?format=prometheus")
            .expect("an answer");
        let text = shown.text();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("nomad_nomad_rpc_query"));
        let count = line.and_then(|line| line.rsplit(' ').next());
        let count = count.and_then(|count| count.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("no count: {line:?}"))
    };
    let before = queries(&mut http);
    for _ in 0..20 {
        register(&mut http, &job("web", 1));
    }
    let written = queries(&mut http);
    assert!(written < before + 20, "{before} became {written}");
    for _ in 0..20 {
        http.json("/v1/jobs").expect("an answer");
    }
    assert!(queries(&mut http) >= written + 20);
}
