//! The request log of a real agent: what it keeps, across kills, and what it does where it cannot.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use drover_testkit::{LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::json_of;

/// The requests that `drover audit requests` reads from the files, oldest first.
fn kept(data: &Path, more: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["audit", "requests", "-oldest", "-json", "-data-dir"])
        .arg(data)
        .args(more)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let list: Value = serde_json::from_slice(&output.stdout)?;
    Ok(list.as_array().cloned().unwrap_or_default())
}

#[test]
fn a_request_that_the_server_died_over_shows_no_end_and_the_log_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    setup.config += "audit {\n  delivery_guarantee = \"enforced\"\n}\n";
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    let items = json!({"Items": {"password": "canary-item-5e"}});
    let put = http.put("/v1/var/app/db", &items).expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    let index = put.header("x-nomad-index").expect("an index").to_owned();
    json_of(&mut http, "/v1/var/app/db");

    // One that waits for a change: received, and not answered when the server dies.
    let mut waiting = agent.http().timeout(Duration::from_secs(120));
    let path = format!("/v1/var/app/db?index={index}&wait=100s");
    let blocked = std::thread::spawn(move || waiting.get(&path).is_err());
    let received = wait_for("the request to be received", LONG, || {
        let found = kept(&data, &["-class", "secret"])?;
        ensure!(found.len() == 2, "{} so far", found.len());
        Ok::<_, anyhow::Error>(found)
    });
    received.expect("it is written before it is answered");
    agent.kill().expect("it dies");
    assert!(blocked.join().expect("a thread"), "it was not answered");

    let found = kept(&data, &["-class", "secret"]).expect("the files can be read");
    let ends: Vec<_> = found
        .iter()
        .map(|r| (&r["Complete"], &r["Status"]))
        .collect();
    let wanted = [(&json!(true), &json!(200)), (&json!(false), &json!(0))];
    assert_eq!(ends, wanted, "{found:#?}");

    let agent = setup.start().expect("it starts again");
    let mut http = agent.http();
    json_of(&mut http, "/v1/var/app/db");
    let reported = json_of(
        &mut http,
        "/v1/audit/requests?class=secret&path=/v1/var/app",
    );
    let reported = reported.as_array().expect("a list");
    assert_eq!(reported.len(), 3, "{reported:#?}");
    assert_eq!(
        reported[..2],
        found,
        "what was there stays, without its end"
    );
    assert_eq!(reported[2]["Status"], 200);
    assert_eq!(reported[2]["Actor"]["addr"], "127.0.0.1");
    let stats = &json_of(&mut http, "/v1/agent/self")["stats"]["requests"];
    assert_eq!(stats["delivery_guarantee"], "enforced");
    assert_eq!(stats["lost"], "0");
    agent.stop(LONG).expect("it stops");
    let newest = kept(&data, &["-since", "-5m", "-actor", "127.0.0.1"]).expect("they are read");
    assert!(newest.len() >= 4, "{newest:#?}");
    assert!(!format!("{newest:?}").contains("canary"));
}

#[test]
fn old_requests_go_by_policy_and_it_is_told_since_when_they_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    setup.config = "server {\n  enabled = true\n  bootstrap_expect = 1\n  retention {\n    \
                    requests {\n      bytes = \"1M\"\n    }\n    interval = \"100ms\"\n  }\n}\n"
        .to_owned();
    let agent = setup.start().expect("the agent starts");
    let mut http = agent.http();
    let reported = |address: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command
            .args(["audit", "requests", "-limit", "3"])
            .args(address);
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let address = format!("-address=http://{}", agent.addr());
    let path = format!("/v1/var/{}", "x".repeat(120));
    assert_eq!(http.get(&path).expect("an answer").status, 404);
    assert!(!reported(&[&address]).contains("no longer kept"));
    let dropped = wait_for("old requests to go", LONG * 2, || {
        for _ in 0..500 {
            http.get(&path)?;
        }
        let stats = http.json("/v1/agent/self")?["stats"]["requests"].take();
        ensure!(stats["first"] != "0", "{stats}");
        Ok::<_, anyhow::Error>(())
    });
    dropped.expect("they go");
    let files = format!("-data-dir={}", data.display());
    for place in [&address, &files] {
        let printed = reported(&[place]);
        assert!(printed.contains("no longer kept"), "{printed}");
        assert!(printed.contains("/v1/var/xxx"), "{printed}");
    }
    let gone = http.get("/v1/audit/requests?since=0").expect("an answer");
    assert_eq!(gone.status, 410, "{}", gone.text());
}

#[test]
fn a_log_that_cannot_be_opened_stops_a_server_that_must_have_it_and_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("server")).expect("a directory");
    std::fs::write(data.join("server/requests"), "no directory").expect("a file");
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
    let plain = setup.config.clone();
    setup.config += "audit {\n  delivery_guarantee = \"enforced\"\n}\n";
    let refusing = setup.spawn().expect("the program runs");
    let refused = wait_for("the refusal", LONG, || {
        let log = refusing.log_tail(40);
        ensure!(log.contains("the request log"), "{log}");
        refusing
            .http()
            .get("/v1/status/leader")
            .map_or(Ok(()), |_| anyhow::bail!("it serves"))
    });
    refused.expect("it does not start");
    drop(refusing);

    setup.config = plain + "telemetry {\n  prometheus_metrics = true\n}\n";
    let agent = setup.spawn().expect("the program runs");
    let mut http = agent.http();
    let answer = wait_for("an answer", LONG, || {
        let leader = http.json("/v1/status/leader")?;
        leader
            .as_str()
            .filter(|l| !l.is_empty())
            .context("no leader")?;
        http.get("/v1/var/none")
    });
    assert_eq!(answer.expect("an answer").status, 404);
    let stats = &json_of(&mut http, "/v1/agent/self")["stats"]["requests"];
    let lost: u64 = stats["lost"]
        .as_str()
        .expect("text")
        .parse()
        .expect("a number");
    assert!(lost >= 2, "{stats:#}");
    assert_ne!(stats["broken"], "");
    let health = http.get("/v1/agent/health?type=server").expect("an answer");
    assert_eq!(health.status, 500);
    assert!(health.text().contains("request log"), "{}", health.text());
    let metrics = http
        .get("/v1/metrics?format=prometheus")
        .expect("an answer");
    assert!(
        metrics.text().contains("requests_lost"),
        "{}",
        metrics.text()
    );
}

/// Any caller may send the headers by which proxies name their callers; no server reads them.
#[test]
fn a_request_comes_from_where_its_connection_does_whatever_its_headers_say() {
    let running = crate::support::server();
    let mut http = running.http();
    for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP"] {
        http = http.header(name, "for=10.9.9.9, 10.9.9.9");
    }
    let items = json!({"Items": {"a": "b"}});
    let put = http.put("/v1/var/app/db", &items).expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    json_of(&mut http, "/v1/var/app/db");
    let trail = json_of(&mut http, "/v1/audit?kind=VariableApplied");
    let requests = json_of(&mut http, "/v1/audit/requests?class=secret");
    for reported in [&trail, &requests] {
        let reported = reported.as_array().expect("a list");
        assert!(!reported.is_empty(), "{trail} {requests}");
        for one in reported {
            assert_eq!(one["Actor"]["addr"], "127.0.0.1", "{one}");
        }
    }
}
