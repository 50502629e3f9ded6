//! Confidential values: where they may lie, where they may not, and how they are shown.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{json_of, register};

/// What a specification says: readers of the job see it, and exports hide it.
const CONFIGURED: &str = "canary-configured-77d0";
const SENSITIVE: &str = "canary-sensitive-4be1";
/// What is sensitive, but for destinations that are configured to show it.
const NAMED: &str = "canary-named-2c6f";
const SECRET: &str = "canary-secret-90aa";
const TOKEN: &str = "canary-token-17d0";

/// A job that carries a canary wherever a value may be confidential.
fn job() -> Value {
    json!({"Job": {
        "ID": "canary", "Name": "canary", "Type": "batch", "Datacenters": ["*"],
        "Meta": {"job": CONFIGURED},
        "TaskGroups": [{"Name": "g", "Count": 1, "Meta": {"group": CONFIGURED}, "Tasks": [{
            "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1ms", "note": CONFIGURED},
            "Env": {"PASSWORD": SENSITIVE}, "Meta": {"task": CONFIGURED},
        }]}],
    }, "Submission": {"Source": format!("job # {SENSITIVE}"), "Format": "hcl2"}})
}

fn events(data: &Path, more: &[&str]) -> String {
    reported(&["log", "events", "-json", "-data-dir"], data, more)
}

fn exported(data: &Path, more: &[&str]) -> String {
    reported(&["log", "export", "-data-dir"], data, more)
}

fn reported(words: &[&str], data: &Path, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(words)
        .arg(data)
        .args(more)
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// What a stream sends from its beginning up to the variable.
fn streamed(agent: &Agent, query: &str) -> String {
    let path = format!("/v1/event/stream?index=1&topic=**&namespace=*&{query}");
    let mut lines = agent.http().lines(&path).expect("a stream");
    let mut reported = String::new();
    let last = lines.find("the variable", |line| {
        reported += line;
        reported.push('\n');
        line.contains("app/db").then_some(())
    });
    last.expect("a line");
    reported
}

/// What a server shows while it runs: streams, audit, differences, requests.
fn check_online(agent: &Agent, http: &mut Http, secret: &str) {
    json_of(http, &format!("/v1/var/app/db?note={SENSITIVE}"));
    for form in ["", "format=sse", "format=cloudevents"] {
        let reported = streamed(agent, form);
        assert!(
            reported.contains("canary") && !reported.contains(SECRET),
            "{form}"
        );
        assert!(
            !reported.contains(secret) && !reported.contains(TOKEN),
            "{form}"
        );
        let confidential = reported.contains(SENSITIVE);
        assert_eq!(confidential, !form.contains("cloud"), "{form}: {reported}");
    }
    for path in [
        "/v1/audit?payload=true&per_page=1000",
        "/v1/state/diff?from=1",
        "/v1/audit/requests",
    ] {
        let reported = http.get(path).expect("an answer");
        assert_eq!(reported.status, 200, "{}", reported.text());
        for canary in [SENSITIVE, SECRET, TOKEN, secret] {
            assert!(!reported.text().contains(canary), "{path}: {canary}");
        }
        assert!(
            path.ends_with("requests") || reported.text().contains(CONFIGURED),
            "{path}: what a job is to do is no secret"
        );
    }
}

/// Whether a file below `dir` holds a text, and how many bytes were looked at.
fn search(dir: &Path, needle: &str, looked_at: &mut u64) -> Option<String> {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = search(&path, needle, looked_at) {
                return Some(found);
            }
            continue;
        }
        let Ok(bytes) = fs::read(&path) else { continue };
        *looked_at += bytes.len() as u64;
        if bytes
            .windows(needle.len())
            .any(|window| window == needle.as_bytes())
        {
            return Some(path.display().to_string());
        }
    }
    None
}

#[test]
fn exports_hide_what_is_confidential_and_secrets_lie_nowhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http().header("x-nomad-token", TOKEN);
    register(&mut http, &job());
    let items = json!({"Items": {"password": SECRET}});
    let put = http.put("/v1/var/app/db", &items).expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(
        json_of(&mut http, "/v1/var/app/db")["Items"]["password"],
        SECRET
    );
    let node = wait_for("the node", LONG, || {
        let nodes = http.json("/v1/nodes")?;
        let id = nodes[0]["ID"].as_str().map(str::to_owned);
        id.context("it has not registered")
    });
    let node = node.expect("a node");
    let shown = json_of(&mut http, &format!("/v1/node/{node}"));
    assert_eq!(shown["SecretID"], "");
    let secret = fs::read_to_string(data.join("client/secret-id")).expect("the node's secret");
    check_online(&agent, &mut http, secret.trim());
    agent.stop(LONG).expect("it stops");

    let hash = &hidden_in_an_export(&data);
    let clear = events(&data, &["-clear"]);
    assert!(clear.contains(SENSITIVE) && !clear.contains(SECRET));

    for format in ["ndjson", "cloudevents"] {
        let hidden = exported(&data, &["-format", format]);
        assert!(
            ![SENSITIVE, CONFIGURED]
                .iter()
                .any(|word| hidden.contains(word))
                && hidden.contains(hash),
            "{format}"
        );
        let clear = exported(&data, &["-format", format, "-clear"]);
        assert!(
            clear.contains(SENSITIVE) && !clear.contains(SECRET),
            "{format}"
        );
    }

    let mut looked_at = 0;
    assert_eq!(search(&data.join("server"), SECRET, &mut looked_at), None);
    assert!(looked_at > 0, "nothing was looked at");
    let requests = data.join("server/requests");
    for canary in [TOKEN, SENSITIVE] {
        assert_eq!(search(&requests, canary, &mut looked_at), None);
    }
    assert_eq!(search(&data.join("server"), TOKEN, &mut looked_at), None);
    assert!(search(&requests, "/v1/var/app/db", &mut looked_at).is_some());
    let secret = secret.trim();
    assert!(!secret.is_empty());
    assert_eq!(search(&data.join("server"), secret, &mut looked_at), None);
    assert!(
        !clear.contains(secret),
        "a node's secret is a hash in its event"
    );
}

/// An export shows of the job no more than hashes; answers that of what is sensitive.
fn hidden_in_an_export(data: &Path) -> String {
    let redacted = events(data, &[]);
    assert!(!redacted.contains(SENSITIVE) && !redacted.contains(SECRET));
    assert!(!redacted.contains(CONFIGURED));
    let registered = redacted
        .lines()
        .find(|line| line.contains("\"JobRegistered\""));
    let registered: Value = serde_json::from_str(registered.expect("the job")).expect("JSON");
    let job = &registered["Payload"]["Job"];
    let task = &job["TaskGroups"][0]["Tasks"][0];
    let hash = task["Env"]["PASSWORD"].as_str().expect("a text");
    assert!(hash.starts_with("hmac:"), "{hash}");
    let configured = job["Meta"]["job"].as_str().expect("a text");
    assert!(configured.starts_with("hmac:"), "{configured}");
    assert_eq!(task["Config"]["note"], configured);
    assert_eq!(job["ID"], "canary");
    hash.to_owned()
}

#[test]
fn what_is_named_for_a_destination_is_shown_there_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    setup.config += "event_publisher {\n  http {\n    public_fields = [\"Job.Meta\"]\n  }\n}\n";
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    let mut named = job();
    named["Job"]["Meta"]["job"] = json!(NAMED);
    register(&mut http, &named);
    let items = json!({"Items": {"password": SECRET}});
    let put = http.put("/v1/var/app/db", &items).expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    let streamed = streamed(&agent, "format=cloudevents");
    agent.stop(LONG).expect("it stops");
    let exported_so = exported(&data, &["-public", "Job.Meta"]);
    for reported in [streamed, exported_so] {
        assert!(reported.contains(NAMED), "{reported}");
        for hidden in [SENSITIVE, CONFIGURED, SECRET] {
            assert!(!reported.contains(hidden), "{reported}");
        }
    }
    assert!(!exported(&data, &[]).contains(NAMED));
}

#[test]
fn without_keys_sensitive_values_are_hidden_and_it_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    let agent = setup.start().expect("the agent starts");
    register(&mut agent.http(), &job());
    agent.stop(LONG).expect("it stops");
    let copy = dir.path().join("copy/server");
    fs::create_dir_all(&copy).expect("a directory");
    fs::rename(data.join("server/log"), copy.join("log")).expect("the log moves");
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args([
            "log",
            "events",
            "-json",
            "-kind",
            "JobRegistered",
            "-data-dir",
        ])
        .arg(dir.path().join("copy"))
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let event: Value = serde_json::from_str(text.trim()).expect("one event");
    assert_eq!(event["Payload"]["Job"]["Meta"]["job"], "redacted");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("no keys in"), "{stderr}");
    assert!(
        !dir.path().join("copy/server/keystore").exists(),
        "a reader makes nothing"
    );
}
