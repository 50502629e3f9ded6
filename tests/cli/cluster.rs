//! The cluster: servers, the agent, what operators look after.

use drover_testkit::{LONG, Setup, wait_for};
use serde_json::Value;

use crate::support::{DROVER, Session, alone, service};

#[test]
fn servers_and_their_agent_are_shown() {
    let (agent, _dir) = alone();
    let session = Session::at("servers", &agent).within("default");
    let reported = session.done("server members");
    let head = "Name Address Port Status Leader Raft Version Build Datacenter Region";
    let lines: Vec<&str> = reported.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        head
    );
    assert_eq!(lines.len(), 2, "{reported}");
    assert!(
        lines[1].contains("alive") && lines[1].contains("true"),
        "{reported}"
    );
    let detailed = session.done("server members -detailed");
    assert!(
        detailed.contains("role=nomad") && detailed.contains("raft_vsn="),
        "{detailed}"
    );
    let info = session.done("agent-info");
    for line in ["nomad", "  server = true", "raft", "  state = Leader"] {
        assert!(
            info.lines().any(|reported| reported == line),
            "no {line:?} in {info}"
        );
    }
    let json: Value = serde_json::from_str(&session.done("agent-info -json")).expect("JSON");
    assert_eq!(json["stats"]["raft"]["state"], "Leader");
}

#[test]
fn autopilot_is_shown_and_changed() {
    let (agent, _dir) = alone();
    let mut session = Session::at("autopilot", &agent).within("default");
    session.run("operator autopilot get-config");
    session.run("operator autopilot set-config -cleanup-dead-servers=false -max-trailing-logs 300");
    session.run("operator autopilot set-config -last-contact-threshold 300ms -min-quorum 1");
    session.run("operator autopilot get-config");
    session.run("operator autopilot set-config -enable-custom-upgrades=true");
    let health = session.done("operator autopilot health");
    assert!(
        health.starts_with("Healthy          = true\nFailureTolerance = 0\n"),
        "{health}"
    );
    assert!(health.contains("StableSince"), "{health}");
    session.check();
}

#[test]
fn the_scheduler_keeps_what_is_not_said() {
    let (agent, _dir) = alone();
    let mut session = Session::at("scheduler", &agent).within("default");
    session.run("operator scheduler set-config -scheduler-algorithm spread");
    session.run("operator scheduler set-config -preempt-service-scheduler true");
    session.run("operator scheduler get-config");
    session.run("operator scheduler set-config -check-index 1 -scheduler-algorithm binpack");
    session.run("system gc");
    session.run("system reconcile summaries");
    session.check();
}

#[test]
fn any_request_can_be_made() {
    let mut session = Session::new("api");
    session.run("operator api /v1/jobs");
    session.run("operator api jobs?prefix=x");
    session.run("operator api -filter 'Name == \"api\"' -dryrun namespaces");
    let listed = session.done("operator api -filter 'Name == \"api\"' /v1/namespaces");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let made = session.answered("operator api /v1/node/pools", "{\"Name\": \"made-by-api\"}");
    assert_eq!((made.code, made.stdout.as_str()), (0, ""), "{}", made.all());
    let verbose = session
        .quiet("operator api -verbose -H 'X-Request-Id: order-66' /v1/node/pool/made-by-api");
    assert!(
        verbose.stderr.contains("< HTTP/1.1 200 OK"),
        "{}",
        verbose.stderr
    );
    session.run("operator api -X DELETE /v1/node/pool/made-by-api");
    session.run("operator api /v1/node/pool/made-by-api");
    session.run("operator api /v1/nothing");
    session.check();
}

#[test]
fn metrics_come_in_both_forms() {
    let session = Session::new("metrics");
    let json: Value = serde_json::from_str(&session.done("operator metrics")).expect("JSON");
    assert!(json["Gauges"].is_array(), "{json}");
    assert!(session.done("operator metrics -pretty").lines().count() > 5);
    let text = session.done("operator metrics -format prometheus");
    assert!(
        text.lines().any(|line| line.starts_with("# TYPE ")),
        "{text}"
    );
    let other = session.quiet("operator metrics -format xml");
    assert_eq!(
        (other.code, other.stderr.as_str()),
        (
            1,
            "Error querying metrics: unknown metrics format \"xml\"\n"
        )
    );
}

/// The value of the client's first series of this name that has this among its labels.
fn level(reported: &str, name: &str, label: &str) -> Option<f64> {
    let begin = format!("nomad_client_{name}{{");
    let is_it = |line: &&str| line.starts_with(&begin) && line.contains(label);
    let line = reported.lines().find(is_it)?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn metrics_of_a_server_with_a_client_have_those_of_the_client() {
    let session = Session::new("metered");
    session.file("web.hcl", &service("web", "1", ""));
    session.done("job run -detach web.hcl");
    let id = session.wait_allocs("web", "running", 1).remove(0);
    let of_alloc = format!("alloc_id=\"{id}\"");
    // Other tests run jobs on this agent as well. An agent in development mode also publishes what
    // its allocations use.
    let wanted = [
        ("allocations_running", "node_status=\"ready\"", 1.0),
        ("allocated_cpu", "node_id=\"", 20.0),
        ("allocated_memory", "node_id=\"", 16.0),
        ("unallocated_memory", "node_id=\"", 1.0),
        ("allocs_cpu_allocated", of_alloc.as_str(), 20.0),
        (
            "allocs_memory_allocated",
            of_alloc.as_str(),
            16.0 * 1_048_576.0,
        ),
    ];
    wait_for("the levels of its client", LONG, || {
        let reported = session.done("operator metrics -format prometheus");
        let is_less = |(name, label, least): &&(&str, &str, f64)| {
            level(&reported, name, label).is_none_or(|level| level < *least)
        };
        match wanted.iter().find(is_less) {
            Some((name, ..)) => Err(format!("{name}: {reported}")),
            None => Ok(()),
        }
    })
    .expect("they are reported");
    session.done("job stop -purge -detach web");
}

#[test]
fn a_publisher_that_lags_is_told_with_the_jobs() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::server(DROVER, &dir.path().join("data")).expect("free ports");
    // Nothing listens there.
    setup.config.push_str(
        "event_publisher {\n  kafka {\n    brokers = [\"127.0.0.1:1\"]\n    timeout = \"1s\"\n    \
         lag_warning = \"1s\"\n  }\n}\n",
    );
    let agent = setup.start().expect("the agent starts");
    let session = Session::at("lag", &agent).within("default");
    let reported = wait_for("a lag", LONG, || {
        let reported = session.done("status");
        match reported.contains(" behind for ") {
            true => Ok(reported),
            false => Err(reported),
        }
    })
    .expect("it lags");
    assert!(
        reported.starts_with("No running jobs\n\nKafka: "),
        "{reported}"
    );
    let json: Value = serde_json::from_str(&session.done("status -json")).expect("JSON");
    assert!(json["EventPublisher"]["Lag"].as_u64() > Some(0), "{json:#}");
    let then = session.done("status -at=-1ms");
    assert!(!then.contains("Kafka"), "{then}");
}
