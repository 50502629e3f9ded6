//! Drains of a node with running tasks, through the API and the command line.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use drover_testkit::{Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{Running, dev, json_of, register, server};

const SECOND: i64 = 1_000_000_000;

/// A job of tasks that only pretend to run.
fn sleeper(id: &str, kind: &str, count: usize) -> Value {
    let migrate = json!({"MaxParallel": 1, "HealthCheck": "task_states",
        "MinHealthyTime": 1_000_000, "HealthyDeadline": 60 * SECOND});
    let mut group = json!({"Name": "g", "Count": count, "Tasks": [{
        "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "10m"},
        "Resources": {"CPU": 10, "MemoryMB": 10},
    }]});
    if kind == "service" {
        group["Migrate"] = migrate;
    }
    json!({"Job": {"ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
        "TaskGroups": [group]}})
}

fn node_id(http: &mut Http) -> String {
    let nodes = json_of(http, "/v1/nodes");
    nodes[0]["ID"].as_str().expect("an id").to_owned()
}

/// The client statuses of a job's allocations, once they are as expected.
fn wait_allocs(http: &mut Http, job: &str, expected: &[&str]) -> Vec<Value> {
    let path = format!("/v1/job/{job}/allocations");
    wait_for(&path, LONG, || -> Result<Vec<Value>> {
        let allocs = http.json(&path)?.as_array().cloned().unwrap_or_default();
        let mut found: Vec<&str> = allocs
            .iter()
            .map(|alloc| alloc["ClientStatus"].as_str().unwrap_or_default())
            .collect();
        found.sort_unstable();
        ensure!(found == expected, "{found:?} instead of {expected:?}");
        Ok(allocs)
    })
    .expect("the allocations get there")
}

fn drain(http: &mut Http, node: &str, body: &Value) -> Value {
    let path = format!("/v1/node/{node}/drain");
    let answer = http.put(&path, body).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().expect("JSON")
}

fn wait_drained(http: &mut Http, node: &str) -> Value {
    let path = format!("/v1/node/{node}");
    wait_for("the drain to end", LONG, || -> Result<Value> {
        let node = http.json(&path)?;
        ensure!(node["DrainStrategy"].is_null(), "it drains");
        Ok(node)
    })
    .expect("the drain ends")
}

/// The types and messages of a node's events about drains.
fn reported(node: &Value) -> Vec<String> {
    let events = node["Events"].as_array().cloned().unwrap_or_default();
    events
        .iter()
        .filter(|event| event["Subsystem"] == "Drain")
        .map(|event| event["Message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn cli(running: &Running, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(args)
        .env("NOMAD_ADDR", format!("http://{}", running.agent.addr()))
        .env_remove("NOMAD_TOKEN")
        .output()
        .expect("the command runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_drain_ends_at_its_deadline_with_everything_stopped() {
    let running = dev();
    let mut http = running.http();
    for (id, kind, count) in [
        ("web", "service", 2),
        ("sums", "batch", 1),
        ("each", "system", 1),
    ] {
        register(&mut http, &sleeper(id, kind, count));
        wait_allocs(&mut http, id, &vec!["running"; count]);
    }
    let node = node_id(&mut http);
    let body = json!({"DrainSpec": {"Deadline": 3 * SECOND, "IgnoreSystemJobs": false},
        "Meta": {"why": "maintenance"}});
    let answer = drain(&mut http, &node, &body);
    assert_eq!(answer["EvalIDs"], Value::Null, "{answer}");
    assert_eq!(answer["EvalCreateIndex"], 0);
    let during = json_of(&mut http, &format!("/v1/node/{node}"));
    assert_eq!(during["SchedulingEligibility"], "ineligible");
    let after = wait_drained(&mut http, &node);
    // What is said of the node is true: nothing runs there any more.
    let allocs = json_of(&mut http, &format!("/v1/node/{node}/allocations"));
    for alloc in allocs.as_array().expect("a list") {
        let status = alloc["ClientStatus"].as_str().expect("a status");
        assert!(matches!(status, "complete" | "failed"), "{alloc}");
        assert_eq!(alloc["DesiredDescription"], "alloc is being migrated");
    }
    assert_eq!(allocs.as_array().map(Vec::len), Some(4));
    assert_eq!(after["SchedulingEligibility"], "ineligible");
    assert_eq!(after["LastDrain"]["Status"], "complete");
    assert_eq!(after["LastDrain"]["Meta"]["why"], "maintenance");
    assert_eq!(
        reported(&after),
        ["Node drain strategy set", "Node drain complete"]
    );
    // Services wait for capacity; batch work that was stopped is not begun anew.
    let back = http
        .put(
            &format!("/v1/node/{node}/eligibility"),
            &json!({"Eligibility": "eligible"}),
        )
        .expect("an answer");
    assert_eq!(back.status, 200, "{}", back.text());
    let evals = back.json().expect("JSON")["EvalIDs"].clone();
    assert!(
        evals.as_array().is_some_and(|evals| !evals.is_empty()),
        "{evals}"
    );
    wait_allocs(
        &mut http,
        "web",
        &["complete", "complete", "running", "running"],
    );
    wait_allocs(&mut http, "each", &["complete", "running"]);
    wait_allocs(&mut http, "sums", &["complete"]);
}

#[test]
fn a_drain_that_is_called_off_leaves_what_runs() {
    let running = dev();
    let mut http = running.http();
    register(&mut http, &sleeper("sums", "batch", 1));
    wait_allocs(&mut http, "sums", &["running"]);
    let node = node_id(&mut http);
    drain(&mut http, &node, &json!({"DrainSpec": {"Deadline": 0}}));
    let path = format!("/v1/node/{node}");
    assert_eq!(json_of(&mut http, &path)["Drain"], true);
    let stays = http.put(
        &format!("{path}/eligibility"),
        &json!({"Eligibility": "eligible"}),
    );
    let stays = stays.expect("an answer");
    assert_eq!(
        (stays.status, stays.text().as_str()),
        (
            500,
            "can not set node's scheduling eligibility to eligible while it is draining"
        )
    );
    drain(
        &mut http,
        &node,
        &json!({"DrainSpec": null, "MarkEligible": true}),
    );
    let after = json_of(&mut http, &path);
    assert_eq!(after["DrainStrategy"], Value::Null);
    assert_eq!(after["SchedulingEligibility"], "eligible");
    assert_eq!(after["LastDrain"]["Status"], "canceled");
    assert_eq!(
        reported(&after),
        ["Node drain strategy set", "Node drain disabled"]
    );
    wait_allocs(&mut http, "sums", &["running"]);
}

#[test]
fn the_command_follows_a_drain_to_its_end() {
    let running = dev();
    let mut http = running.http();
    register(&mut http, &sleeper("web", "service", 1));
    let moved = wait_allocs(&mut http, "web", &["running"]);
    let moved = moved[0]["ID"].as_str().expect("an id");
    register(&mut http, &sleeper("each", "system", 1));
    let stays = wait_allocs(&mut http, "each", &["running"]);
    let stays = stays[0]["ID"].as_str().expect("an id");
    let node = node_id(&mut http);
    let drained = cli(
        &running,
        &[
            "node",
            "drain",
            "-enable",
            "-yes",
            "-no-deadline",
            "-ignore-system",
            "-m",
            "rack",
            &node[..8],
        ],
    );
    assert!(drained.status.success(), "{drained:?}");
    let lines = text(&drained);
    let mut rest = lines.as_str();
    for wanted in [
        "Ctrl-C to stop monitoring: will not cancel the node drain".to_owned(),
        format!("Node \"{node}\" drain strategy set"),
        format!("Alloc \"{moved}\" marked for migration"),
        format!("Alloc \"{moved}\" draining"),
        format!("Alloc \"{moved}\" status running -> complete"),
        format!("Drain complete for node {node}"),
        format!("1 allocation on node \"{node}\" not stopped: {stays}"),
    ] {
        let at = rest.find(&wanted);
        let at = at.unwrap_or_else(|| panic!("{wanted} is not where it belongs in\n{lines}"));
        rest = &rest[at + wanted.len()..];
    }
    wait_allocs(&mut http, "each", &["running"]);
    let path = format!("/v1/node/{node}");
    assert_eq!(
        json_of(&mut http, &path)["LastDrain"]["Meta"]["message"],
        "rack"
    );
    let shown = text(&cli(&running, &["node", "drain", "-monitor", &node]));
    assert_eq!(shown, format!("No drain strategy set for node {node}\n"));
    let eligible = text(&cli(&running, &["node", "eligibility", "-enable", "-self"]));
    let expected = format!("Node \"{node}\" scheduling eligibility set: eligible for scheduling\n");
    assert_eq!(eligible, expected);
    wait_allocs(&mut http, "web", &["complete", "running"]);
}

#[test]
fn the_command_sets_shows_and_calls_off_drains() {
    let running = dev();
    let mut http = running.http();
    register(&mut http, &sleeper("sums", "batch", 1));
    wait_allocs(&mut http, "sums", &["running"]);
    let node = node_id(&mut http);
    let run = |args: &[&str]| {
        let output = cli(&running, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text(&output), error)
    };
    let set = run(&[
        "node",
        "drain",
        "-enable",
        "-detach",
        "-deadline",
        "2h",
        &node,
    ]);
    assert_eq!(
        (set.0, set.1.as_str()),
        (Some(0), &*format!("Node \"{node}\" drain strategy set\n"))
    );
    let status = run(&["node", "status", &node]).1;
    assert!(
        status.contains("= true; 20") && status.contains(" deadline\n"),
        "{status}"
    );
    assert!(status.contains("Node drain strategy set"), "{status}");
    let list = run(&["node", "status"]).1;
    assert!(list.contains("true   ineligible"), "{list}");
    let answer = run(&["node", "drain", "-enable", "-json", "-no-deadline", "-self"]).1;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert!(answer["NodeModifyIndex"].as_u64() > Some(0), "{answer}");
    let off = run(&["node", "drain", "-disable", "-keep-ineligible", &node]);
    assert_eq!(
        (off.0, off.1.as_str()),
        (Some(0), &*format!("Node \"{node}\" drain strategy unset\n"))
    );
    let path = format!("/v1/node/{node}");
    assert_eq!(
        json_of(&mut http, &path)["SchedulingEligibility"],
        "ineligible"
    );
    for (args, why) in [
        (&["-enable", "-disable", "-self"][..], "cannot be used with"),
        (&["-self"], "flag must be set"),
        (
            &["-enable", "-force", "-no-deadline", "-self"],
            "mutually exclusive",
        ),
        (
            &["-enable", "-deadline", "-5m", "-self"],
            "positive drain duration",
        ),
        (
            &["-enable", "-deadline", "soon", "-self"],
            "Failed to parse deadline \"soon\"",
        ),
        (&["-disable", "-force", "-self"], "can't be combined"),
        (&["-enable", "-yes"], "Node ID must be specified"),
        (
            &["-enable", "-yes", "ffff"],
            "No node(s) with prefix or id \"ffff\" found",
        ),
    ] {
        let refused = run(&[&["node", "drain"][..], args].concat());
        assert_eq!(refused.0, Some(1), "{args:?}: {refused:?}");
        assert!(refused.2.contains(why), "{args:?}: {refused:?}");
    }
    wait_allocs(&mut http, "sums", &["running"]);
}

#[test]
fn a_drain_goes_on_under_another_leader_of_its_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = drover_testkit::Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let setup = setup.expect("free ports");
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    register(&mut http, &sleeper("sums", "batch", 1));
    wait_allocs(&mut http, "sums", &["running"]);
    let node = node_id(&mut http);
    drain(
        &mut http,
        &node,
        &json!({"DrainSpec": {"Deadline": 2 * SECOND}}),
    );
    agent.kill().expect("it ran");
    let agent = setup.start().expect("it starts again");
    let mut http = agent.http().timeout(Duration::from_secs(30));
    let after = wait_drained(&mut http, &node);
    assert_eq!(after["LastDrain"]["Status"], "complete");
    assert_eq!(
        reported(&after),
        ["Node drain strategy set", "Node drain complete"]
    );
}

/// The signal that a client leaves by has its node drained first: nothing is left running there,
/// and the node stays ineligible until an operator changes that.
#[test]
fn a_client_that_leaves_drains_itself_first() {
    let running = server();
    let mut http = running.http();
    let dir = tempfile::tempdir().expect("a directory");
    let client = Setup {
        config: format!(
            "leave_on_terminate = true\nclient {{\n  enabled = true\n  servers = [\"{}\"]\n  \
             drain_on_shutdown {{\n    deadline = \"60s\"\n  }}\n}}\n",
            running.agent.rpc_addr()
        ),
        dev: false,
        ..Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data")).expect("ports")
    };
    let client = client.spawn().expect("the client starts");
    for (id, kind) in [("web", "service"), ("each", "system")] {
        register(&mut http, &sleeper(id, kind, 1));
        wait_allocs(&mut http, id, &["running"]);
    }
    let node = node_id(&mut http);
    let ended = client.stop(LONG).expect("it ends by itself");
    assert!(ended.success(), "{ended}");
    let after = json_of(&mut http, &format!("/v1/node/{node}"));
    assert_eq!(after["LastDrain"]["Status"], "complete", "{after}");
    assert_eq!(after["LastDrain"]["Meta"]["message"], "shutting down");
    assert_eq!(after["SchedulingEligibility"], "ineligible");
    let allocs = json_of(&mut http, &format!("/v1/node/{node}/allocations"));
    let allocs = allocs.as_array().expect("a list");
    assert_eq!(allocs.len(), 2);
    for alloc in allocs {
        assert_eq!(alloc["ClientStatus"], "complete", "{alloc}");
    }
}

#[test]
fn a_second_signal_ends_the_wait_for_a_drain() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup =
        Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data")).expect("ports");
    setup.config = "leave_on_interrupt = true\nclient {\n  drain_on_shutdown {\n    \
                    deadline = \"1h\"\n  }\n}\n"
        .to_owned();
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    // Batch work may end by itself until the deadline, an hour from now.
    register(&mut http, &sleeper("sums", "batch", 1));
    wait_allocs(&mut http, "sums", &["running"]);
    let node = node_id(&mut http);
    let signal = |name: &str| {
        let sent = Command::new("kill")
            .args([name, &agent.pid().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    };
    signal("-INT");
    wait_for("the drain to begin", LONG, || -> Result<()> {
        let node = http.json(&format!("/v1/node/{node}"))?;
        ensure!(!node["DrainStrategy"].is_null(), "it does not drain");
        Ok(())
    })
    .expect("it drains");
    let ended = agent.interrupt(LONG).expect("it ends by itself");
    assert!(ended.success(), "{ended}");
}
