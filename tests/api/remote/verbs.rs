//! Each request that a client answers.

use anyhow::{Context, Result, ensure};
use drover_testkit::{Http, LONG, wait_for};
use serde_json::{Value, json};

use super::{World, node, reached, running, shell, text, wait_log};
use crate::support::{json_of, register};

#[test]
fn mod_23_files_and_logs_of_a_remote_client_are_read_through_the_server() {
    let world = World::start();
    let script = "echo one; echo two >&2; printf 'some text' > local/file; sleep 600";
    let alloc = world.run("files", script);
    let mut http = world.http();
    let fs = |verb: &str, rest: &str| format!("/v1/client/fs/{verb}/{alloc}{rest}");
    let logs = |kind: &str| fs("logs", &format!("?task=t&type={kind}&plain=true"));
    wait_for("the output", LONG, || -> Result<()> {
        let out = http.get(&logs("stdout"))?.text();
        ensure!(out == "one", "{out:?}");
        let out = http.get(&logs("stderr"))?.text();
        ensure!(out == "two", "{out:?}");
        let out = http.get(&fs("cat", "?path=t/local/file"))?.text();
        ensure!(out == "some text", "{out:?}");
        Ok(())
    })
    .expect("it is read");
    let end = fs("logs", "?task=t&type=stdout&plain=true&origin=end&offset=2");
    assert_eq!(text(&mut http, &end), "e");
    let listed = json_of(&mut http, &fs("ls", "?path=t/local"));
    assert_eq!(listed[0]["Name"], "file", "{listed}");
    let stat = json_of(&mut http, &fs("stat", "?path=t/local/file"));
    assert_eq!(stat["Size"], 9, "{stat}");
    let part = fs("readat", "?path=t/local/file&offset=5&limit=3");
    assert_eq!(text(&mut http, &part), "tex");
    // An error comes in the words of the agent that found it.
    for (path, status, expected) in [
        (fs("cat", "?path=t/local/none"), 404, "none"),
        (fs("cat", ""), 400, "must provide a file name"),
        (fs("logs", "?type=stdout"), 400, "must provide task name"),
        (fs("logs", "?task=x&type=stdout"), 400, "\"x\""),
        (fs("cat", "?path=../../../../etc/passwd"), 400, "escapes"),
    ] {
        let answer = http.get(&path).expect("an answer");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(
            answer.text().contains(expected),
            "{path}: {}",
            answer.text()
        );
    }
}

#[test]
fn mod_23_logs_of_a_remote_client_are_followed_as_they_are_written() {
    let world = World::start();
    let script = "echo begun; while [ ! -e local/go ]; do sleep 0.05; done; echo on; sleep 600";
    let alloc = world.run("followed", script);
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true");
    let mut lines = world.http().timeout(LONG).lines(&path).expect("it begins");
    let mut next = || lines.next_line().expect("a line").expect("it goes on");
    assert_eq!(next(), b"begun");
    let go = world
        .setup
        .data_dir
        .join("alloc")
        .join(&alloc)
        .join("t/local/go");
    std::fs::write(&go, "").unwrap_or_else(|error| panic!("{}: {error}", go.display()));
    assert_eq!(next(), b"on");
}

#[test]
fn mod_23_a_large_file_of_a_remote_client_comes_whole() {
    let world = World::start();
    let script = "dd if=/dev/urandom of=local/big bs=1M count=64 2>/dev/null; \
                  sha256sum local/big | cut -d' ' -f1 > local/sum; sleep 600";
    let alloc = world.run("large", script);
    let mut http = world.http().timeout(LONG);
    let cat = |name: &str| format!("/v1/client/fs/cat/{alloc}?path=t/local/{name}");
    let sum = wait_for("the sum", LONG, || -> Result<String> {
        let answer = http.get(&cat("sum"))?;
        ensure!(answer.status == 200 && !answer.text().is_empty(), "not yet");
        Ok(answer.text().trim().to_owned())
    })
    .expect("it is there");
    let big = http.get(&cat("big")).expect("an answer").body;
    assert_eq!(big.len(), 64 << 20);
    let hash = sha256(&big);
    assert_eq!(hash, sum);
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same job with a service, at whose port nothing listens.
fn checked(mut job: Value) -> Value {
    let group = &mut job["Job"]["TaskGroups"][0];
    group["Networks"] = json!([{"DynamicPorts": [{"Label": "http"}]}]);
    let second = 1_000_000_000;
    let check = json!({"Name": "alive", "Type": "tcp", "Interval": second, "Timeout": second});
    group["Services"] = json!([{
        "Name": "signalled", "Provider": "nomad", "PortLabel": "http", "Checks": [check],
    }]);
    job
}

/// Waits until its check, which fails, is reported.
fn fails(http: &mut Http, checks: &str) {
    wait_for("the check", LONG, || -> Result<()> {
        let reported = http.json(checks)?;
        let one = reported.as_object().and_then(|all| all.values().next());
        let one = one.context("none yet")?;
        ensure!(
            one["Check"] == "alive" && one["Status"] == "failure",
            "{reported}"
        );
        Ok(())
    })
    .expect("it is told");
}

#[test]
fn mod_23_tasks_of_a_remote_client_are_signalled_restarted_measured_and_removed() {
    let world = World::start();
    let script = "trap 'echo heard' HUP; echo up; while :; do sleep 0.05; done";
    let mut http = world.http();
    let job = checked(shell("signalled", script));
    register(&mut http, &job);
    let alloc = running(&mut http, "signalled");
    reached(&mut http, &alloc);
    let verb = |verb: &str| format!("/v1/client/allocation/{alloc}/{verb}");
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    // A shell that has not set its trap is ended by the signal.
    wait_log(&mut http, &logs, "up");
    let signal = json!({"Task": "t", "Signal": "SIGHUP"});
    let answer = http.put(&verb("signal"), &signal).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json().expect("JSON")["Index"].as_u64() > Some(0));
    wait_log(&mut http, &logs, "up\nheard");
    wait_for("figures", LONG, || -> Result<()> {
        let stats = http.json(&verb("stats"))?;
        ensure!(!stats["Tasks"]["t"].is_null(), "{stats}");
        Ok(())
    })
    .expect("it is measured");
    for checks in [verb("checks"), format!("/v1/allocation/{alloc}/checks")] {
        fails(&mut http, &checks);
    }
    let both = json!({"TaskName": "t", "AllTasks": true});
    let answer = http.put(&verb("restart"), &both).expect("an answer");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = http.put(&verb("restart"), &json!({})).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait_for("the restart", LONG, || -> Result<()> {
        let alloc = http.json(&format!("/v1/allocation/{alloc}"))?;
        let restarts = alloc["TaskStates"]["t"]["Restarts"].as_u64();
        ensure!(restarts == Some(1), "{}", alloc["TaskStates"]);
        Ok(())
    })
    .expect("it is told");
    assert_eq!(running(&mut http, "signalled"), alloc);
    let answer = http.put(&verb("gc"), &json!({})).expect("an answer");
    let text = answer.text();
    assert_eq!(answer.status, 404, "it runs: {text}");
    assert!(text.contains("is not terminal"), "{text}");
    let stopped = http.send("DELETE", "/v1/job/signalled", b"").expect("sent");
    assert_eq!(stopped.status, 200);
    wait_for("the removal", LONG, || -> Result<()> {
        let answer = http.put(&verb("gc"), &json!({}))?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .expect("it is removed");
    let gone = http.get(&logs).expect("an answer");
    assert_eq!(gone.status, 404, "{}", gone.text());
}

#[test]
fn mod_23_a_remote_node_is_measured_described_and_cleaned() {
    let world = World::start();
    world.run("some", "sleep 600");
    let mut http = world.http();
    let node = node(&mut http);
    let stats = json_of(&mut http, &format!("/v1/client/stats?node_id={node}"));
    assert!(stats["Memory"]["Total"].as_u64() > Some(0), "{stats}");
    let path = format!("/v1/client/metadata?node_id={node}");
    let set = json!({"Meta": {"rack": "r1"}});
    let answer = http.send("POST", &path, &serde_json::to_vec(&set).expect("JSON"));
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(json_of(&mut http, &path)["Dynamic"]["rack"], "r1");
    wait_for("the servers to know", LONG, || -> Result<()> {
        let node = http.json(&format!("/v1/node/{node}"))?;
        ensure!(node["Meta"]["rack"] == "r1", "{}", node["Meta"]);
        Ok(())
    })
    .expect("they are told");
    // What its agent writes into its log comes as it is written.
    let path = format!("/v1/agent/monitor?node_id={node}&plain=true&log_level=debug");
    let mut lines = world.http().timeout(LONG).lines(&path).expect("it begins");
    let reload = world.client.http().put("/v1/agent/reload", &json!({}));
    assert_eq!(reload.expect("an answer").status, 200);
    loop {
        let line = lines.next_line().expect("a line").expect("it goes on");
        if String::from_utf8_lossy(&line).contains("Reloading configuration") {
            break;
        }
    }
    let answer = http.put(&format!("/v1/client/gc?node_id={node}"), &json!({}));
    assert_eq!(answer.expect("an answer").status, 200);
    let other = "00000000-0000-0000-0000-000000000000";
    for (path, status, expected) in [
        ("/v1/client/stats".to_owned(), 400, "node_id not provided"),
        (
            format!("/v1/client/stats?node_id={other}"),
            404,
            "Unknown node",
        ),
        (
            format!("/v1/client/fs/ls/{other}"),
            404,
            "Unknown allocation",
        ),
    ] {
        let answer = http.get(&path).expect("an answer");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(
            answer.text().contains(expected),
            "{path}: {}",
            answer.text()
        );
    }
}

/// Two of three tasks name a signal that ends nothing: the third starts again, and the answer names
/// both errors.
#[test]
fn cl_05_who_asks_for_a_restart_over_http_learns_of_every_task_that_could_not_be_told() {
    let world = World::start();
    let mut http = world.http();
    let task = |name: &str, signal: &str| {
        json!({"Name": name, "Driver": "mock_driver", "Config": {"run_for": "1h"},
            "KillSignal": signal, "Resources": {"CPU": 10, "MemoryMB": 10}})
    };
    // Agents offer this one as Nomad does; its other spelling distinguishes the two.
    let tasks = [task("a", "SIGNULL"), task("b", ""), task("c", "signull")];
    let job = json!({"Job": {
        "ID": "three", "Name": "three", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": tasks}],
    }});
    register(&mut http, &job);
    let alloc = running(&mut http, "three");
    reached(&mut http, &alloc);
    let restart = format!("/v1/client/allocation/{alloc}/restart");
    let answer = http.put(&restart, &json!({})).expect("an answer");
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(
        answer.text(),
        "task \"a\": unknown signal \"SIGNULL\"; task \"c\": unknown signal \"signull\""
    );
    let restarts = |http: &mut Http, task: &str| {
        let shown = json_of(http, &format!("/v1/allocation/{alloc}"));
        shown["TaskStates"][task]["Restarts"].clone()
    };
    wait_for("the second to run again", LONG, || {
        ensure!(restarts(&mut http, "b") == 1, "it did not");
        Ok(())
    })
    .expect("it does");
    for task in ["a", "c"] {
        assert_eq!(restarts(&mut http, task), 0, "{task}");
    }
    // A single task gives a single error.
    let alone = http.put(&restart, &json!({"TaskName": "c"}));
    let alone = alone.expect("an answer").text();
    assert_eq!(alone, "unknown signal \"signull\"");
}
