//! Metrics of an agent without a server: its client reports its node and what runs there.

use std::net::UdpSocket;

use anyhow::{Result, ensure};
use drover_testkit::{Http, LONG, lint, wait_for};
use serde_json::{Value, json};

use super::{World, running, setup, shell, text};
use crate::support::{json_of, register};

const MIB: f64 = 1_048_576.0;

/// The value of the first series of this name that has all these labels.
fn value(reported: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let begin = format!("nomad_client_{name}{{");
    let is_it =
        |line: &&str| line.starts_with(&begin) && labels.iter().all(|label| line.contains(label));
    let line = reported.lines().find(is_it)?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What the client of this world reports, once it reports an allocation that runs.
fn reported(http: &mut Http) -> String {
    wait_for("what runs", LONG, || -> Result<String> {
        let reported = text(http, "/v1/metrics?format=prometheus");
        let count = value(&reported, "allocations_running", &[]);
        ensure!(count == Some(1.0), "{reported}");
        Ok(reported)
    })
    .expect("it runs")
}

/// A service whose job says something of itself.
fn described() -> Value {
    let mut body = shell("web", "exec sleep 600");
    body["Job"]["Meta"] = json!({"owner": "us", "ticket": "7"});
    body
}

#[test]
fn a_client_without_a_server_tells_of_its_node_and_of_what_runs_there() {
    let settings = "telemetry {\n  prometheus_metrics = true\n  publish_node_metrics = true\n  \
                    publish_allocation_metrics = true\n  \
                    include_alloc_metadata_in_metrics = true\n  \
                    allowed_metadata_keys_in_metrics = [\"owner\"]\n}\n";
    let world = World::with("", settings);
    let mut there = world.http();
    register(&mut there, &described());
    let alloc = running(&mut there, "web");
    let node = json_of(&mut there, "/v1/nodes")[0]["ID"].clone();
    let node = node.as_str().expect("an id");
    let whole = json_of(&mut there, &format!("/v1/node/{node}"));
    let whole = &whole["NodeResources"];
    let mut here = world.client.http();
    let first = reported(&mut here);
    let of_node = format!("node_id=\"{node}\"");
    let ready = [
        of_node.as_str(),
        "node_status=\"ready\"",
        "node_scheduling_eligibility=\"eligible\"",
    ];
    let number = |part: &str, name: &str| whole[part][name].as_f64().expect("a number");
    for (name, wanted) in [
        ("allocations_pending", 0.0),
        ("allocations_blocked", 0.0),
        ("allocations_terminal", 0.0),
        ("tasks_running", 1.0),
        ("allocated_cpu", 10.0),
        ("allocated_memory", 10.0),
        ("unallocated_cpu", number("Cpu", "CpuShares") - 10.0),
        ("unallocated_memory", number("Memory", "MemoryMB") - 10.0),
    ] {
        assert_eq!(value(&first, name, &ready), Some(wanted), "{name}: {first}");
    }
    for name in ["uptime", "host_memory_total", "host_disk_size"] {
        let reported = value(&first, name, &ready);
        assert!(reported.is_some_and(|value| value > 0.0), "{name}: {first}");
    }
    let [total, percent] = ["total", "total_percent"]
        .map(|name| value(&first, &format!("host_cpu_{name}"), &["cpu=\"cpu0\""]));
    assert!(total.is_some() && total == percent, "{first}");
    let of_alloc = format!("alloc_id=\"{alloc}\"");
    let task = [
        of_alloc.as_str(),
        "job=\"web\"",
        "task=\"t\"",
        "owner=\"us\"",
    ];
    for (name, wanted) in [
        ("allocs_cpu_allocated", 10.0),
        ("allocs_memory_allocated", 10.0 * MIB),
        ("allocs_memory_max_allocated", 10.0 * MIB),
    ] {
        assert_eq!(value(&first, name, &task), Some(wanted), "{name}: {first}");
    }
    assert!(!first.contains("ticket=\""), "{first}");
    lint::check(&first);
    // A reader is there: a sample comes soon.
    wait_for("what it uses", LONG, || -> Result<()> {
        let reported = reported(&mut here);
        let used = value(&reported, "allocs_memory_rss", &task);
        ensure!(used.is_some_and(|bytes| bytes > 0.0), "{reported}");
        Ok(())
    })
    .expect("it is measured");
}

#[test]
fn what_a_client_without_a_server_is_not_asked_for_it_does_not_tell() {
    let world = World::with("", "telemetry {\n  prometheus_metrics = true\n}\n");
    let mut there = world.http();
    register(&mut there, &described());
    running(&mut there, "web");
    let reported = reported(&mut world.client.http());
    assert_eq!(
        value(&reported, "allocated_cpu", &[]),
        Some(10.0),
        "{reported}"
    );
    for name in ["uptime", "host_memory_total", "allocs_cpu_allocated"] {
        assert_eq!(value(&reported, name, &[]), None, "{name}: {reported}");
    }
    assert!(!reported.contains("owner=\""), "{reported}");
}

/// A receiver of metrics, and the configuration of an agent that sends them so often.
fn sink(every: &str) -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LONG)).expect("set");
    let addr = socket.local_addr().expect("it is bound");
    let settings = format!(
        "telemetry {{\n  statsd_address = \"{addr}\"\n  collection_interval = \"{every}\"\n}}\n"
    );
    (socket, settings)
}

/// How often the next datagram says how many allocations run; none where none comes.
fn next(socket: &UdpSocket) -> Option<usize> {
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let is_it = |line: &&str| line.contains("client.allocations.running");
    Some(text.lines().filter(is_it).count())
}

/// Waits until that was received so often.
fn heard(socket: &UdpSocket, times: usize) -> usize {
    let mut count = 0;
    while count < times {
        count += next(socket).expect("a datagram in time");
    }
    count
}

#[test]
fn a_client_without_a_server_sends_its_levels_as_often_as_it_is_told_to() {
    let (seldom, settings) = sink("1h");
    let world = World::with("", &settings);
    let mut count = heard(&seldom, 1);
    let dir = tempfile::tempdir().expect("a directory");
    let (often, settings) = sink("1s");
    let another = setup(&world.server, dir.path().join("client"), &settings);
    let _another = another.spawn().expect("the client starts");
    heard(&often, 3);
    seldom.set_nonblocking(true).expect("set");
    while let Some(more) = next(&seldom) {
        count += more;
    }
    assert_eq!(count, 1, "when it began, and not again within the hour");
}
