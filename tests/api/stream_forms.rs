//! The event stream in each of its forms: what its schemas say, what is negotiated, what a filter
//! sees, and how a reader continues.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::support::{Running, dev, escaped, job, json_of, register, server};

const STREAM: &str = "/v1/event/stream";

/// Lines of a stream until one holds a text, that one included; heartbeats and what is no JSON are
/// left out.
fn lines(running: &Running, accept: &str, query: &str, until: &str) -> Vec<Value> {
    let http = running.http().header("Accept", accept);
    let mut lines = http.lines(&format!("{STREAM}?{query}")).expect("a stream");
    let mut reported = Vec::new();
    let last = lines.find(until, |line| {
        let data = line.strip_prefix("data: ").unwrap_or(line);
        if let Ok(json) = serde_json::from_str::<Value>(data)
            && json != json!({})
        {
            reported.push(json);
        }
        line.contains(until).then_some(())
    });
    last.expect("a line");
    reported
}

fn validator(schema: &Value) -> drover_testkit::jsonschema::Validator {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$id");
    }
    drover_testkit::jsonschema::options()
        .build(&schema)
        .expect("a schema")
}

/// What is wrong with a value by its schema.
fn wrong(schema: &drover_testkit::jsonschema::Validator, value: &Value) -> Vec<String> {
    let errors = schema.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// An agent that runs a job, and a namespace.
fn busy() -> Running {
    let running = dev();
    let mut http = running.http();
    let answer = http.put("/v1/namespace/eu", &json!({"Name": "eu"}));
    assert_eq!(answer.expect("an answer").status, 200);
    register(&mut http, &job("first", 1));
    wait_for("the allocation to end", LONG, || {
        let allocs = running.http().json("/v1/job/first/allocations")?;
        anyhow::ensure!(allocs[0]["ClientStatus"] == "complete", "{allocs}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it runs");
    register(&mut http, &job("last", 0));
    running
}

#[test]
fn every_line_is_what_its_schema_says_and_every_cloud_event_what_its_own_does() {
    let running = busy();
    let mut http = running.http();
    let last = "\"Key\":\"last\"";
    let all = "index=1&topic=**&namespace=*&checkpoints=true";
    for numbers in ["plain", "strings"] {
        let path = format!("/v1/schema/stream?numbers={numbers}");
        let schema = validator(&json_of(&mut http, &path));
        for accept in ["application/json", "text/event-stream"] {
            let query = format!("{all}&numbers={numbers}");
            let reported = lines(&running, accept, &query, last);
            let mut topics = BTreeSet::new();
            for line in reported.iter().filter(|line| line.get("Lag").is_none()) {
                let found = wrong(&schema, line);
                assert!(found.is_empty(), "{accept} {numbers}: {found:#?}\n{line}");
                let events = line["Events"].as_array().into_iter().flatten();
                topics.extend(events.map(|event| event["Topic"].to_string()));
            }
            assert!(topics.len() >= 6, "{topics:?}");
        }
        assert!(!wrong(&schema, &json!({"Index": 1, "Events": [{"Topic": "Job"}]})).is_empty());
    }
    let query = "index=1&topic=**&namespace=*&format=cloudevents";
    let reported = lines(&running, "*/*", query, "\"subject\":\"Job/default/last\"");
    let mut kinds = BTreeSet::new();
    for event in &reported {
        // The schema is where the event says it is.
        let at = event["dataschema"].as_str().expect("a schema");
        let own = format!("http://{}", running.agent.addr());
        let path = at.strip_prefix(own.as_str()).expect("this agent");
        let found = wrong(&validator(&json_of(&mut http, path)), &event["data"]);
        assert!(found.is_empty(), "{found:#?}\n{event}");
        assert_eq!(event["outcome"], "applied");
        assert_eq!(event["data"]["Outcome"], "applied");
        kinds.insert(event["data"]["Kind"].to_string());
    }
    assert!(kinds.len() >= 6, "{kinds:?}");
    let registered = reported.last().expect("the last");
    assert_eq!(registered["namespace"], "default");
    assert_eq!(registered["actor"], "anonymous");
}

#[test]
fn numbers_beyond_doubles_are_texts_for_who_asks() {
    let running = server();
    register(&mut running.http(), &job("a", 0));
    let of = |query: &str| {
        let query = format!("index=1&topic=Job&{query}");
        lines(&running, "*/*", &query, "\"Key\":\"a\"")
            .pop()
            .expect("a line")
    };
    let (plain, texts) = (of(""), of("numbers=strings"));
    let time = |line: &Value| line["Events"][0]["Payload"]["Job"]["SubmitTime"].clone();
    let wanted = time(&plain).as_i64().expect("a number").to_string();
    assert_eq!(time(&texts), wanted);
    assert_eq!(texts["Index"], plain["Index"], "small ones stay numbers");
}

#[test]
fn forms_are_negotiated() {
    let running = server();
    register(&mut running.http(), &job("a", 0));
    for (accept, query, kind, cloud) in [
        ("*/*", "", "application/json", false),
        (
            "application/cloudevents+json",
            "",
            "application/cloudevents+json",
            true,
        ),
        ("*/*", "format=cloudevents", "application/x-ndjson", true),
        ("text/event-stream", "", "text/event-stream", false),
        (
            "text/event-stream",
            "format=cloudevents",
            "text/event-stream",
            true,
        ),
        (
            "application/json;q=0.1, application/cloudevents+json",
            "",
            "application/cloudevents+json",
            true,
        ),
    ] {
        let http = running.http().header("Accept", accept);
        let path = format!("{STREAM}?index=1&topic=Job&{query}");
        let mut lines = http.lines(&path).expect("a stream");
        assert_eq!(lines.header("content-type"), Some(kind), "{accept} {query}");
        let named = |line: &str| line.contains("\"a\"").then(|| line.to_owned());
        let line = lines.find("the job", named).expect("a line");
        assert_eq!(line.contains("specversion"), cloud, "{accept} {query}");
    }
}

#[test]
fn a_reader_of_server_sent_events_is_told_when_to_come_back_with_its_first() {
    let running = server();
    register(&mut running.http(), &job("a", 0));
    let http = running.http().header("Accept", "text/event-stream");
    let path = format!("{STREAM}?index=1&topic=Job&kind=JobRegistered");
    let mut lines = http.lines(&path).expect("a stream");
    let mut block: Vec<String> = Vec::new();
    // The first block with a field in it is the first event, whole.
    let whole = lines.find("a whole event", |line| {
        match line {
            "" if block.is_empty() => {}
            "" => return Some(()),
            comment if comment.starts_with(':') => {}
            field => block.push(field.to_owned()),
        }
        None
    });
    whole.expect("an event");
    assert_eq!(block[0], "retry: 1000");
    assert!(
        block[1].starts_with("id: ") && block[2].starts_with("data: {"),
        "{block:?}"
    );
}

#[test]
fn a_filter_of_cloud_events_sees_the_document_and_nothing_that_is_hidden() {
    let running = server();
    let mut http = running.http();
    for (id, owner) in [("a", "canary-1"), ("b", "canary-2")] {
        let mut job = job(id, 0);
        job["Job"]["Meta"] = json!({"owner": owner});
        register(&mut http, &job);
    }
    register(&mut http, &job("end", 0));
    let ids = |filter: &str, live: bool| {
        let filter = escaped(&format!("{filter} or Payload.Job.ID == end"));
        let query = format!("topic=Job&format=cloudevents&filter={filter}");
        let query = match live {
            true => format!("index=latest&{query}"),
            false => format!("index=1&{query}"),
        };
        let path = format!("{STREAM}?{query}");
        let mut stream = running.http().lines(&path).expect("a stream");
        if live {
            // It is read from the ring that every subscriber shares.
            for id in ["a", "b", "end"] {
                let mut job = job(id, 0);
                job["Job"]["Meta"] = json!({"owner": "canary-2", "again": "x"});
                job["Job"]["Priority"] = json!(60);
                register(&mut running.http(), &job);
            }
        }
        let mut ids = Vec::new();
        let last = stream.find("the end", |line| {
            let event: Value = serde_json::from_str(line).ok()?;
            let id = &event["data"]["Payload"]["Job"]["ID"];
            ids.push(id.as_str().unwrap_or_default().to_owned());
            (id == "end").then_some(())
        });
        last.expect("a line");
        ids
    };
    assert_eq!(ids("Payload.Job.ID == a", false), ["a", "end"]);
    assert_eq!(ids("Kind == JobDeregistered", false), ["end"]);
    assert_eq!(
        ids("Payload.Job.Meta.owner == `canary-1`", false),
        ["end"],
        "it is a hash there"
    );
    assert_eq!(ids("Payload.Job.ID == b", true), ["b", "end"]);
}

/// Starts the command that follows the stream into a file.
fn follow(running: &Running, dir: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["event", "stream", "-all", "-json", "-index", "1"])
        .arg("-resume")
        .arg(dir.join("position"))
        .args(more)
        .env("NOMAD_ADDR", format!("http://{}", running.agent.addr()))
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs")
}

/// Index, topic and key of every line of a file.
fn reported(path: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let event = |line: &str| -> Option<(u64, String)> {
        let event: Value = serde_json::from_str(line).ok()?;
        let place = format!("{}{}{}", event["Topic"], event["Key"], event["Type"]);
        Some((event["Index"].as_u64()?, place))
    };
    text.lines().filter_map(event).collect()
}

#[test]
fn a_reader_that_is_killed_has_every_event_of_all_namespaces_in_its_file_exactly_once() {
    let running = server();
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("events");
    let file = out.display().to_string();
    let mut http = running.http();
    let answer = http.put("/v1/namespace/eu", &json!({"Name": "eu"}));
    assert_eq!(answer.expect("an answer").status, 200);
    let mut number = 0;
    for round in 0..6 {
        let mut child = follow(&running, dir.path(), &["-out", &file]);
        let before = reported(&out).len();
        for _ in 0..20 {
            let mut job = job(&format!("j{number}"), 0);
            job["Job"]["Namespace"] = json!(if number % 2 == 0 { "eu" } else { "default" });
            register(&mut http, &job);
            number += 1;
        }
        // Anything may be in the file, and anything in the position: only more than before.
        wait_for("more in the file", LONG, || {
            match reported(&out).len() > before {
                true => Ok(()),
                false => Err(format!("round {round}: nothing")),
            }
        })
        .expect("it is written to");
        child.kill().expect("it runs");
        child.wait().expect("it ended");
    }
    let mut child = follow(&running, dir.path(), &["-out", &file]);
    let last = format!("\"j{}\"", number - 1);
    let query = "index=1&topic=**&namespace=*";
    let newest = lines(&running, "*/*", query, &format!("\"Key\":{last}"));
    let mut wanted = Vec::new();
    for line in &newest {
        for event in line["Events"].as_array().into_iter().flatten() {
            let place = format!("{}{}{}", event["Topic"], event["Key"], event["Type"]);
            wanted.push((line["Index"].as_u64().expect("an index"), place));
        }
    }
    // One index may have more than one event.
    wait_for("the last", LONG, || {
        let found = reported(&out).len() >= wanted.len();
        if found { Ok(()) } else { Err("not there yet") }
    })
    .expect("it comes");
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let found = reported(&out);
    assert_eq!(found[..wanted.len()], wanted[..]);
    assert!(wanted.iter().any(|(_, place)| place.contains("Namespace")));
}

#[test]
fn a_limit_within_an_index_is_gone_on_from() {
    let running = server();
    let dir = tempfile::tempdir().expect("a directory");
    // A registration is a job and an evaluation: two events of one index.
    register(&mut running.http(), &job("a", 1));
    register(&mut running.http(), &job("b", 1));
    let mut all = Vec::new();
    for _ in 0..4 {
        let output = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args([
                "event",
                "stream",
                "-json",
                "-index",
                "1",
                "-kind",
                "JobRegistered",
            ])
            .args(["-limit", "1", "-resume"])
            .arg(dir.path().join("position"))
            .env("NOMAD_ADDR", format!("http://{}", running.agent.addr()))
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let event: Value = serde_json::from_slice(&output.stdout).expect("one event");
        all.push((event["Topic"].to_string(), event["Key"].to_string()));
    }
    let jobs: Vec<&str> = all.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(
        jobs,
        ["\"Job\"", "\"Evaluation\"", "\"Job\"", "\"Evaluation\""]
    );
    assert_eq!((all[0].1.as_str(), all[2].1.as_str()), ("\"a\"", "\"b\""));
}
