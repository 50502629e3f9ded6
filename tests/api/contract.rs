//! Small promises of the contract that nothing else holds.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::support::{dev, register, server, server_with, wait_length};

#[test]
fn changes_of_a_node_without_jobs_name_no_evaluations() {
    let running = dev();
    let mut http = running.http();
    let nodes = wait_length(&mut http, "/v1/nodes", 1);
    let id = nodes[0]["ID"].as_str().expect("a node").to_owned();
    for (what, body) in [
        ("eligibility", json!({"Eligibility": "ineligible"})),
        ("drain", json!({"DrainSpec": {"Deadline": 1_000_000_000}})),
        ("drain", json!({"DrainSpec": null})),
    ] {
        let answer = http
            .put(&format!("/v1/node/{id}/{what}"), &body)
            .expect("an answer");
        let answer = answer.json().expect("JSON");
        assert_eq!(
            answer.get("EvalIDs"),
            Some(&Value::Null),
            "{what}: {answer}"
        );
        assert!(answer["NodeModifyIndex"].as_u64() > Some(0), "{answer}");
    }
}

/// A service of one task.
fn service(id: &str, version: &str) -> Value {
    json!({"Job": {
        "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "g", "Count": 1,
            "Update": {"MaxParallel": 1, "Canary": 1, "AutoRevert": true,
                "MinHealthyTime": 10_000_000, "HealthyDeadline": 30_000_000_000_i64,
                "ProgressDeadline": 60_000_000_000_i64},
            "Tasks": [{
                "Name": "t", "Driver": "raw_exec", "Env": {"VERSION": version},
                "Config": {"command": "/bin/sleep", "args": ["300"]},
            }],
        }],
    }})
}

#[test]
fn who_fails_a_deployment_learns_the_version_it_goes_back_to() {
    let running = dev();
    let mut http = running.http();
    let deployment = |status: &'static str, version: u64| {
        wait_for("the deployment", LONG, || {
            let found = running.http().json("/v1/job/web/deployment")?;
            let is = found["Status"] == status && found["JobVersion"] == version;
            ensure!(is, "{found}");
            Ok(found)
        })
        .expect("it comes")
    };
    register(&mut http, &service("web", "1"));
    let first = deployment("successful", 0);
    register(&mut http, &service("web", "2"));
    let second = deployment("running", 1);
    let fail = |found: &Value| {
        let id = found["ID"].as_str().expect("an id");
        let body = json!({"DeploymentID": id});
        let answer = running
            .http()
            .put(&format!("/v1/deployment/fail/{id}"), &body);
        answer.expect("an answer")
    };
    let answer = fail(&second).json().expect("JSON");
    assert_eq!(answer["RevertedJobVersion"], 0, "{answer}");
    let text = fail(&first).text();
    assert!(text.contains("can't fail terminal deployment"), "{text}");
}

#[test]
fn what_a_task_asks_of_a_disk_is_said_to_be_the_groups() {
    let running = server();
    let mut http = running.http();
    let mut job = service("web", "1");
    job["Job"]["TaskGroups"][0]["Tasks"][0]["Resources"] =
        json!({"CPU": 100, "MemoryMB": 32, "DiskMB": 300});
    let answer = http.put("/v1/jobs", &job).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json().expect("JSON");
    let warned = answer["Warnings"].as_str().unwrap_or_default();
    assert!(
        warned.contains("asks for disk, which is ignored"),
        "{answer}"
    );
}

#[test]
fn an_artifact_may_lie_in_what_the_tasks_of_a_group_share_and_no_further_up() {
    let running = server();
    let mut http = running.http();
    for (place, fine) in [
        ("local/x", true),
        ("../alloc/data/x", true),
        ("../../x", false),
    ] {
        let mut job = service("web", "1");
        job["Job"]["TaskGroups"][0]["Tasks"][0]["Artifacts"] = json!([{
            "GetterSource": "https://example.com/x", "GetterMode": "any", "RelativeDest": place,
        }]);
        let answer = http.put("/v1/validate/job", &job).expect("an answer");
        let answer = answer.json().expect("JSON");
        let escapes = answer
            .to_string()
            .contains("destination escapes allocation directory");
        assert_eq!(!escapes, fine, "{place}: {answer}");
    }
}

/// Whether the other side ends a connection on which nothing is said, within this time.
fn ends(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a time");
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => !is_late(&error),
    }
}

/// Whether nothing came for as long as a read waits.
fn is_late(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut)
}

/// A connection; the port for RPC may be there a moment after the API answers.
fn connected(to: SocketAddr) -> TcpStream {
    wait_for("a connection", LONG, || TcpStream::connect(to)).expect("it listens")
}

#[test]
fn connections_of_the_rpc_port_are_limited_as_is_configured() {
    let running = server_with(
        "limits {\n  rpc_max_conns_per_client = 3\n  rpc_handshake_timeout = \"1h\"\n}\n",
    );
    let to = running.agent.rpc_addr();
    let open = || connected(to);
    let silent: Vec<_> = (0..3).map(|_| open()).collect();
    assert!(ends(&mut open(), LONG), "a fourth is sent away");
    for stream in &silent {
        stream.set_nonblocking(true).expect("asked at once");
        let mut stream = stream;
        let still = stream.read(&mut [0; 8]);
        assert!(still.as_ref().is_err_and(is_late), "{still:?}");
    }
    drop(silent);
    wait_for("a place to be free again", LONG, || {
        let mut again = open();
        again.set_read_timeout(Some(Duration::from_millis(300)))?;
        let read = again.read(&mut [0; 8]);
        ensure!(read.as_ref().is_err_and(is_late), "{read:?}");
        Ok(())
    })
    .expect("it is given back");
}

/// How long a handshake may take that no configuration names.
const DEFAULT_HANDSHAKE: Duration = Duration::from_secs(5);

#[test]
fn who_says_nothing_is_sent_away_when_its_handshake_is_due() {
    let with = |timeout: &str| {
        server_with(&format!(
            "limits {{\n  rpc_handshake_timeout = \"{timeout}\"\n  \
             https_handshake_timeout = \"{timeout}\"\n}}\n",
        ))
    };
    // It is the setting that ends it: not a default, and not this test's patience.
    for (timeout, ended) in [("50ms", true), ("1h", false)] {
        let running = with(timeout);
        let within = if ended {
            LONG
        } else {
            DEFAULT_HANDSHAKE + Duration::from_secs(1)
        };
        let ports = [running.agent.rpc_addr(), running.agent.addr()]
            .map(|to| std::thread::spawn(move || ends(&mut connected(to), within)));
        for port in ports {
            assert_eq!(port.join().expect("it looks"), ended, "{timeout}");
        }
    }
}

#[test]
fn services_that_are_refused_keep_no_others_of_their_node_back() {
    let running = dev();
    let mut http = running.http();
    let with_service = |id: &str, tags: Value| {
        let mut job = service(id, "1");
        let group = &mut job["Job"]["TaskGroups"][0];
        group["Update"] = Value::Null;
        group["Services"] = json!([{"Name": id, "Provider": "nomad", "Tags": tags}]);
        group["Meta"] = json!({"big": "x".repeat(40_000)});
        job
    };
    // Too long only once the client has filled them in.
    let big = "${NOMAD_META_big}";
    register(&mut http, &with_service("bad", json!([big, big])));
    wait_length(&mut http, "/v1/job/bad/allocations", 1);
    register(&mut http, &with_service("good", json!(["fine"])));
    wait_for("the other's service", LONG, || {
        let found = running.http().json("/v1/service/good")?;
        ensure!(
            found.as_array().is_some_and(|all| all.len() == 1),
            "{found}"
        );
        Ok(())
    })
    .expect("it is registered");
    let bad = running.http().get("/v1/service/bad").expect("an answer");
    assert!(
        bad.text().trim() == "[]" || bad.status == 404,
        "{}",
        bad.text()
    );
}
