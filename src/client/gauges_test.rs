//! What a client without a server in its process reports of itself.

use std::sync::Arc;

use drover_events::gojson::Map;
use drover_events::model::{
    AllocatedResources, AllocatedTaskResources, CpuStats, Job, MemoryStats, NodeResources,
    ResourceUsage,
};
use serde_json::json;

use super::*;
use crate::alloc::runner_test::alloc;
use crate::testing::Pretended;
use drover_telemetry as telemetry;
use drover_testkit::{lint, until};

/// The value of the first series of this name that has this text among its labels.
fn labelled(reported: &str, name: &str, label: &str) -> Option<f64> {
    let begin = format!("{name}{{");
    let is_it = |line: &&str| line.starts_with(&begin) && line.contains(label);
    let line = reported.lines().find(is_it)?;
    line.rsplit(' ').next()?.parse().ok()
}

fn value(reported: &str, name: &str) -> Option<f64> {
    labelled(reported, name, "")
}

/// What is recorded, in Prometheus' text form, each with a good name and its help.
fn recorded(record: impl FnOnce()) -> String {
    let (telemetry, recorder) = telemetry::build(&telemetry::TelemetryOptions::default());
    metrics::with_local_recorder(&recorder, record);
    let text = telemetry.prometheus();
    lint::check(&text);
    text
}

fn reported_of(client: &Client, node_too: bool, allocs_too: bool) -> String {
    let settings = TelemetryConfig {
        publish_node_metrics: node_too,
        publish_allocation_metrics: allocs_too,
        ..TelemetryConfig::default()
    };
    recorded(|| client.observe(&settings))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_on_a_node_and_what_is_left_of_it_is_told() {
    let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::new());
    let all = [
        ("a", "svc", "1h"),
        ("b", "svc", "1h"),
        ("c", "quick", "10ms"),
    ];
    for (id, job, time) in all {
        servers.wanted.lock().insert(id.to_owned(), 7);
        servers.there.lock().push(given(id, job, time));
    }
    let client = servers.client(tmp.path());
    *client.core.node.lock() = Arc::new(node());
    let count = |wanted: &str| {
        let ids = client.alloc_ids();
        let reported = ids.iter().filter_map(|id| client.runner(id)?.reported());
        reported
            .filter(|alloc| alloc.client_status == wanted)
            .count()
    };
    let all = || (count("running"), count("complete")) == (2, 1);
    until("two run and one is over", all).await;
    let node = client.core.node.lock().clone();
    let plain = reported_of(&client, false, false);
    for (name, wanted) in [
        ("allocations_blocked", 0.0),
        ("allocations_migrating", 0.0),
        ("allocations_pending", 0.0),
        ("allocations_running", 2.0),
        ("allocations_terminal", 1.0),
        ("tasks_pending", 0.0),
        ("tasks_running", 2.0),
        ("tasks_dead", 1.0),
    ] {
        let found = value(&plain, &format!("nomad_client_{name}"));
        assert_eq!(found, Some(wanted), "{name}: {plain}");
    }
    let as_servers_have_it = "node_status=\"ready\",node_scheduling_eligibility=\"eligible\"";
    let running = labelled(
        &plain,
        "nomad_client_allocations_running",
        as_servers_have_it,
    );
    assert_eq!(running, Some(2.0), "{plain}");
    let given = client.alloc_ids().into_iter().filter_map(|id| {
        let alloc = client.runner(&id)?.alloc();
        let runs = alloc.job_id == "svc";
        let given = alloc.allocated_resources.clone().filter(|_| runs)?;
        Some(ComparableResources::of_allocated(&given))
    });
    let mut held = ComparableResources::default();
    given.for_each(|one| held.add(&one));
    assert_eq!((held.cpu_shares, held.memory_mb), (20, 20));
    let whole = ComparableResources::of_node(&node);
    for (name, held, whole) in [
        ("cpu", held.cpu_shares, whole.cpu_shares),
        ("memory", held.memory_mb, whole.memory_mb),
        ("disk", held.disk_mb, whole.disk_mb),
    ] {
        let taken = value(&plain, &format!("nomad_client_allocated_{name}"));
        let left = value(&plain, &format!("nomad_client_unallocated_{name}"));
        assert_eq!(taken, Some(held as f64), "{name}");
        assert_eq!(left, Some((whole - held) as f64), "{name}");
    }
    as_the_settings_say(&client);
    client.shutdown().await;
}

/// An allocation that was given something of the node.
fn given(id: &str, job: &str, time: &str) -> Allocation {
    let kind = if job == "svc" { "service" } else { "batch" };
    let mut task = AllocatedTaskResources::default();
    (task.cpu.cpu_shares, task.memory.memory_mb) = (10, 10);
    let mut given = AllocatedResources {
        tasks: [("web", task)].into(),
        ..AllocatedResources::default()
    };
    given.shared.disk_mb = 10;
    Allocation {
        id: id.into(),
        job_id: job.into(),
        alloc_modify_index: 7,
        allocated_resources: Some(given),
        ..alloc(kind, "mock_driver", json!({"run_for": time}))
    }
}

/// A node with something to give.
fn node() -> Node {
    let mut has = NodeResources::default();
    (has.cpu.cpu_shares, has.memory.memory_mb) = (1_000, 2_000);
    has.disk.disk_mb = 3_000;
    Node {
        node_resources: Some(has),
        ..Node::default()
    }
}

/// The machine and tasks are reported where the settings select that.
fn as_the_settings_say(client: &Client) {
    let of_settings = |reported: &str| {
        let names = ["host_memory_total", "allocs_cpu_allocated"];
        names.map(|name| value(reported, &format!("nomad_client_{name}")))
    };
    assert_eq!(
        of_settings(&reported_of(client, false, false)),
        [None, None]
    );
    let [memory, none] = of_settings(&reported_of(client, true, false));
    let total = host::stats(client);
    let total = total.memory.expect("it is measured").total as f64;
    assert_eq!((memory, none), (Some(total), None));
    let allocs = reported_of(client, false, true);
    assert_eq!(of_settings(&allocs), [None, Some(10.0)]);
    for (name, wanted) in [
        ("cpu_allocated", 10.0),
        ("cpu_total_percent", 0.0),
        ("memory_allocated", 10.0 * MIB),
        ("memory_max_allocated", 10.0 * MIB),
        ("memory_rss", 0.0),
    ] {
        let name = format!("nomad_client_allocs_{name}");
        let found = labelled(&allocs, &name, "job=\"svc\"");
        assert_eq!(found, Some(wanted), "{name}: {allocs}");
    }
    assert!(allocs.contains("task=\"web\""), "{allocs}");
}

/// No server is there to register at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_another_allocation_is_blocked_and_not_pending() {
    let tmp = tempfile::tempdir().unwrap();
    let client = Pretended::silent().client(tmp.path());
    let first = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let next = Allocation {
        id: "11111111-2222-3333-4444-666666666666".into(),
        previous_allocation: first.id.clone(),
        ..first.clone()
    };
    for one in [&first, &next] {
        client.core.add(Arc::new(one.clone()), None);
    }
    let counts = || {
        let reported = reported_of(&client, false, false);
        ["running", "blocked", "pending", "terminal"]
            .map(|name| value(&reported, &format!("nomad_client_allocations_{name}")))
    };
    let waits = [1.0, 1.0, 0.0, 0.0].map(Some);
    until("one runs, and one waits for it", || counts() == waits).await;
    client
        .runner(&first.id)
        .unwrap()
        .update(Arc::new(Allocation {
            desired_status: "stop".into(),
            ..first
        }));
    let over = [1.0, 0.0, 0.0, 1.0].map(Some);
    until("one is over, and the other runs", || counts() == over).await;
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bandwidth_is_told_of_each_interface() {
    let tmp = tempfile::tempdir().unwrap();
    let client = Pretended::silent().client(tmp.path());
    let network = |device: &str, ip: &str, mbits| NetworkResource {
        device: device.into(),
        ip: ip.into(),
        mbits,
        ..NetworkResource::default()
    };
    let has = [
        network("eth0", "10.0.0.1", 1_000),
        network("eth1", "10.0.1.1", 100),
    ];
    *client.core.node.lock() = Arc::new(Node {
        node_resources: Some(NodeResources {
            networks: has.to_vec().into(),
            ..NodeResources::default()
        }),
        ..Node::default()
    });
    let mut given = AllocatedResources::default();
    given.shared.networks.push(network("", "10.0.0.1", 30));
    let mut task = AllocatedTaskResources::default();
    task.networks.push(network("", "10.0.0.1", 12));
    given.tasks = [("web", task)].into();
    let one = Allocation {
        allocated_resources: Some(given),
        ..alloc("service", "mock_driver", json!({"run_for": "1h"}))
    };
    client.core.add(Arc::new(one), None);
    let reported = reported_of(&client, false, false);
    for (name, device, wanted) in [
        ("allocated", "eth0", 42.0),
        ("unallocated", "eth0", 958.0),
        ("allocated", "eth1", 0.0),
        ("unallocated", "eth1", 100.0),
    ] {
        let name = format!("nomad_client_{name}_network");
        let found = labelled(&reported, &name, &format!("device=\"{device}\""));
        assert_eq!(found, Some(wanted), "{name} {device}: {reported}");
    }
    client.shutdown().await;
}

#[test]
fn a_nodes_labels_are_what_servers_said_last() {
    let mut node = Node {
        id: "n1".into(),
        datacenter: "dc1".into(),
        node_class: "large".into(),
        node_pool: "gpu".into(),
        status: "initializing".into(),
        scheduling_eligibility: "eligible".into(),
        ..Node::default()
    };
    let reported = |node: &Node, contact: &Contact| -> Vec<String> {
        let text = |label: &Label| format!("{}={}", label.key(), label.value());
        labels(node, contact).iter().map(text).collect()
    };
    let wanted = |class: &str, status: &str, eligibility: &str| {
        [
            "node_id=n1".to_owned(),
            "datacenter=dc1".to_owned(),
            format!("node_class={class}"),
            "node_pool=gpu".to_owned(),
            format!("node_status={status}"),
            format!("node_scheduling_eligibility={eligibility}"),
        ]
    };
    assert_eq!(
        reported(&node, &Contact::default()),
        wanted("large", "initializing", "eligible")
    );
    let contact = Contact {
        registered: true,
        eligibility: "ineligible".into(),
        ..Contact::default()
    };
    assert_eq!(
        reported(&node, &contact),
        wanted("large", "ready", "ineligible")
    );
    node.node_class = String::new();
    assert_eq!(
        reported(&node, &contact),
        wanted("none", "ready", "ineligible")
    );
}

/// The figures of a task, each with a value of its own.
#[test]
fn what_a_task_uses_is_told_and_nothing_that_was_not_measured() {
    let measured = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let usage = |names: &[&str]| TaskResourceUsage {
        resource_usage: Some(ResourceUsage {
            memory_stats: Some(MemoryStats {
                rss: 100,
                cache: 200,
                swap: 300,
                measured: measured(names).into(),
                ..MemoryStats::default()
            }),
            cpu_stats: Some(CpuStats {
                system_mode: 1.0,
                user_mode: 2.0,
                percent: 3.0,
                total_ticks: 4.0,
                throttled_periods: 5,
                throttled_time: 6,
                ..CpuStats::default()
            }),
            ..ResourceUsage::default()
        }),
        timestamp: 7,
        pids: Map::empty(),
    };
    let mut task = AllocatedTaskResources::default();
    task.cpu.cpu_shares = 500;
    (task.memory.memory_mb, task.memory.memory_max_mb) = (64, 128);
    let alloc = Allocation {
        allocated_resources: Some(AllocatedResources {
            tasks: [("web", task)].into(),
            ..AllocatedResources::default()
        }),
        ..Allocation::default()
    };
    let reported = |names: &[&str]| {
        let settings = TelemetryConfig::default();
        recorded(|| observe_task(&alloc, "web", &usage(names), &settings))
    };
    let all = reported(&["RSS", "Cache", "Swap"]);
    for (name, wanted) in [
        ("cpu_allocated", 500.0),
        ("cpu_system", 1.0),
        ("cpu_user", 2.0),
        ("cpu_total_percent", 3.0),
        ("cpu_total_ticks", 4.0),
        ("cpu_throttled_periods", 5.0),
        ("cpu_throttled_time", 6.0),
        ("memory_allocated", 64.0 * MIB),
        ("memory_max_allocated", 128.0 * MIB),
        ("memory_rss", 100.0),
        ("memory_usage", 100.0),
        ("memory_cache", 200.0),
        ("memory_swap", 300.0),
    ] {
        let found = value(&all, &format!("nomad_client_allocs_{name}"));
        assert_eq!(found, Some(wanted), "{name}: {all}");
    }
    let some = reported(&["RSS"]);
    assert_eq!(value(&some, "nomad_client_allocs_memory_rss"), Some(100.0));
    for name in ["cache", "swap"] {
        let found = value(&some, &format!("nomad_client_allocs_memory_{name}"));
        assert_eq!(found, None, "{name}: {some}");
    }
}

#[test]
fn what_jobs_say_of_themselves_labels_tasks_where_that_is_allowed() {
    let mut job = Job::default();
    job.meta.insert("owner", "us".to_owned());
    job.meta.insert("ticket", "7".to_owned());
    job.meta.insert("job", "another".to_owned());
    let alloc = Allocation {
        job_id: "web".into(),
        job: Some(Arc::new(job)),
        ..Allocation::default()
    };
    let reported = |include: bool, allowed: &[&str]| -> Vec<String> {
        let settings = TelemetryConfig {
            include_alloc_metadata_in_metrics: include,
            allowed_metadata_keys_in_metrics: allowed.iter().map(|k| (*k).into()).collect(),
            ..TelemetryConfig::default()
        };
        let labels = task_labels(&alloc, "t", &settings);
        labels[5..]
            .iter()
            .map(|label| label.key().to_owned())
            .collect()
    };
    assert_eq!(reported(false, &[]), [""; 0]);
    assert_eq!(reported(true, &[]), ["owner", "ticket"]);
    assert_eq!(reported(true, &["ticket", "job"]), ["ticket"]);
}

/// One label that stood twice took the whole page from Prometheus.
#[test]
fn what_jobs_say_of_themselves_gives_no_label_twice() {
    let mut job = Job::default();
    for key in "a-b a_b a.b task-group __name__ --x é"
        .split(' ')
        .chain([""])
    {
        job.meta.insert(key, format!("of {key}"));
    }
    let alloc = Allocation {
        job_id: "web".into(),
        task_group: "all".into(),
        job: Some(Arc::new(job)),
        ..Allocation::default()
    };
    let usage = TaskResourceUsage {
        resource_usage: Some(ResourceUsage {
            memory_stats: Some(MemoryStats::default()),
            ..ResourceUsage::default()
        }),
        ..TaskResourceUsage::default()
    };
    let settings = TelemetryConfig {
        include_alloc_metadata_in_metrics: true,
        ..TelemetryConfig::default()
    };
    let reported = recorded(|| observe_task(&alloc, "t", &usage, &settings));
    let name = "nomad_client_allocs_memory_rss{";
    let line = reported.lines().find_map(|line| line.strip_prefix(name));
    let (labels, _) = line.and_then(|line| line.split_once('}')).expect(&reported);
    let mut names: Vec<&str> = labels
        .split(',')
        .filter_map(|label| Some(label.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    let wanted = [
        "_",
        "a_b",
        "alloc_id",
        "job",
        "namespace",
        "task",
        "task_group",
    ];
    assert_eq!(names, wanted, "{reported}");
    assert!(labels.contains("task_group=\"all\""), "{reported}");
    assert!(
        labels.contains("a_b=\"of a-b\""),
        "the first of them: {reported}"
    );
}
