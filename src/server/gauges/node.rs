//! The node of this agent: what was given of it, what runs there, and how the machine is.

use drover_events::model::status::{ClientStatus, task};
use drover_events::model::{Allocation, ComparableResources, Node, TaskResourceUsage};
use drover_projections::tables::nodes;
use metrics::{Label, gauge};

use crate::client::agent::Client;
use crate::client::endpoints::host;
use crate::config::TelemetryConfig;
use crate::server::Server;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

impl Server {
    pub(super) fn observe_client(&self, client: &Client) {
        let view = self.projections.view();
        let Ok(Some(node)) = nodes::get(&view, &client.node_id()) else {
            return;
        };
        let labels = labels(&node);
        let config = self.configured();
        let settings = &config.telemetry;
        observe_allocs(client, &node, &labels, settings);
        if settings.publish_node_metrics {
            machine(client, &labels);
        }
    }
}

fn label(name: &'static str, value: &str) -> Label {
    Label::new(name, value.to_owned())
}

fn labels(node: &Node) -> Vec<Label> {
    let class = match node.node_class.as_str() {
        "" => "none",
        class => class,
    };
    vec![
        label("node_id", &node.id),
        label("datacenter", &node.datacenter),
        label("node_class", class),
        label("node_pool", &node.node_pool),
        label("node_status", &node.status),
        label("node_scheduling_eligibility", &node.scheduling_eligibility),
    ]
}

/// What allocations hold, how they are, and what their tasks use.
fn observe_allocs(client: &Client, node: &Node, labels: &[Label], settings: &TelemetryConfig) {
    let (mut pending, mut running, mut terminal) = (0_u32, 0_u32, 0_u32);
    let mut tasks = [(task::PENDING, 0_u32), (task::RUNNING, 0), (task::DEAD, 0)];
    let mut given = ComparableResources::default();
    for id in client.alloc_ids() {
        let Some(runner) = client.runner(&id) else {
            continue;
        };
        let alloc = runner.alloc();
        let Some(told) = runner.told() else {
            pending += 1;
            continue;
        };
        match told.client() {
            Some(ClientStatus::Pending) => pending += 1,
            Some(ClientStatus::Running) => running += 1,
            Some(
                ClientStatus::Complete
                | ClientStatus::Failed
                | ClientStatus::Lost
                | ClientStatus::Unknown,
            )
            | None => terminal += 1,
        }
        for state in told.task_states.values() {
            if let Some((_, count)) = tasks.iter_mut().find(|(name, _)| *name == state.state) {
                *count += 1;
            }
        }
        if told.client_terminal() {
            continue;
        }
        if let Some(allocated) = &alloc.allocated_resources {
            given.add(&ComparableResources::of_allocated(allocated));
        }
        if settings.publish_allocation_metrics
            && let Some(control) = runner.control()
            && let Ok(usage) = control.stats(None)
        {
            for (name, usage) in usage.tasks.iter() {
                observe_task(&alloc, name, usage, settings);
            }
        }
    }
    let set = |name: &'static str, value: f64| gauge!(name, labels.to_vec()).set(value);
    set("nomad.client.allocations.pending", f64::from(pending));
    set("nomad.client.allocations.running", f64::from(running));
    set("nomad.client.allocations.terminal", f64::from(terminal));
    set("nomad.client.tasks.pending", f64::from(tasks[0].1));
    set("nomad.client.tasks.running", f64::from(tasks[1].1));
    set("nomad.client.tasks.dead", f64::from(tasks[2].1));
    let mut left = ComparableResources::of_node(node);
    left.subtract(&given);
    set("nomad.client.allocated.cpu", given.cpu_shares as f64);
    set("nomad.client.allocated.memory", given.memory_mb as f64);
    set(
        "nomad.client.allocated.max_memory",
        given.memory_max_mb as f64,
    );
    set("nomad.client.allocated.disk", given.disk_mb as f64);
    set("nomad.client.unallocated.cpu", left.cpu_shares as f64);
    set("nomad.client.unallocated.memory", left.memory_mb as f64);
    set("nomad.client.unallocated.disk", left.disk_mb as f64);
}

fn task_labels(alloc: &Allocation, name: &str, settings: &TelemetryConfig) -> Vec<Label> {
    let mut labels = vec![
        label("alloc_id", &alloc.id),
        label("job", &alloc.job_id),
        label("namespace", &alloc.namespace),
        label("task", name),
        label("task_group", &alloc.task_group),
    ];
    if !settings.include_alloc_metadata_in_metrics {
        return labels;
    }
    let allowed = &settings.allowed_metadata_keys_in_metrics;
    let meta = alloc.job.iter().flat_map(|job| job.meta.iter());
    for (key, value) in meta {
        let own = ["alloc_id", "job", "namespace", "task", "task_group", "host"];
        let is_allowed = allowed.is_empty() || allowed.contains(key);
        if is_allowed && !own.contains(&key.as_str()) {
            labels.push(Label::new(key.clone(), value.clone()));
        }
    }
    labels
}

fn observe_task(
    alloc: &Allocation,
    name: &str,
    usage: &TaskResourceUsage,
    settings: &TelemetryConfig,
) {
    let labels = task_labels(alloc, name, settings);
    let set = |name: &'static str, value: f64| gauge!(name, labels.clone()).set(value);
    let given = alloc
        .allocated_resources
        .as_ref()
        .and_then(|all| all.tasks.get(name));
    if let Some(given) = given {
        let memory = given.memory.memory_mb;
        let most = given.memory.memory_max_mb.max(memory);
        set(
            "nomad.client.allocs.cpu.allocated",
            given.cpu.cpu_shares as f64,
        );
        set("nomad.client.allocs.memory.allocated", memory as f64 * MIB);
        set(
            "nomad.client.allocs.memory.max_allocated",
            most as f64 * MIB,
        );
    }
    let Some(used) = &usage.resource_usage else {
        return;
    };
    if let Some(cpu) = &used.cpu_stats {
        set("nomad.client.allocs.cpu.total_percent", cpu.percent);
        set("nomad.client.allocs.cpu.total_ticks", cpu.total_ticks);
        set("nomad.client.allocs.cpu.system", cpu.system_mode);
        set("nomad.client.allocs.cpu.user", cpu.user_mode);
        set(
            "nomad.client.allocs.cpu.throttled_periods",
            cpu.throttled_periods as f64,
        );
        set(
            "nomad.client.allocs.cpu.throttled_time",
            cpu.throttled_time as f64,
        );
    }
    if let Some(memory) = &used.memory_stats {
        let usage = memory.usage.max(memory.rss);
        set("nomad.client.allocs.memory.rss", memory.rss as f64);
        set("nomad.client.allocs.memory.cache", memory.cache as f64);
        set("nomad.client.allocs.memory.swap", memory.swap as f64);
        set("nomad.client.allocs.memory.usage", usage as f64);
    }
}

fn machine(client: &Client, labels: &[Label]) {
    let stats = host::stats(client);
    let with = |name: &'static str, value: &str| {
        let mut all = labels.to_vec();
        all.push(Label::new(name, value.to_owned()));
        all
    };
    gauge!("nomad.client.uptime", labels.to_vec()).set(stats.uptime as f64);
    if let Some(memory) = &stats.memory {
        for (name, value) in [
            ("nomad.client.host.memory.total", memory.total),
            ("nomad.client.host.memory.available", memory.available),
            ("nomad.client.host.memory.used", memory.used),
            ("nomad.client.host.memory.free", memory.free),
        ] {
            gauge!(name, labels.to_vec()).set(value as f64);
        }
    }
    for cpu in stats.cpu.iter() {
        for (name, value) in [
            ("nomad.client.host.cpu.total_percent", cpu.total_percent),
            ("nomad.client.host.cpu.total_ticks", cpu.total_ticks),
            ("nomad.client.host.cpu.user", cpu.user),
            ("nomad.client.host.cpu.system", cpu.system),
            ("nomad.client.host.cpu.idle", cpu.idle),
        ] {
            gauge!(name, with("cpu", &cpu.cpu)).set(value);
        }
    }
    for disk in stats.disk_stats.iter() {
        for (name, value) in [
            ("nomad.client.host.disk.size", disk.size as f64),
            ("nomad.client.host.disk.used", disk.used as f64),
            ("nomad.client.host.disk.available", disk.available as f64),
            ("nomad.client.host.disk.used_percent", disk.used_percent),
            (
                "nomad.client.host.disk.inodes_percent",
                disk.inodes_used_percent,
            ),
        ] {
            gauge!(name, with("disk", &disk.device)).set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_events::model::Job;
    use serde_json::json;

    use super::*;
    use crate::client::agent::tests::{World, until};
    use crate::telemetry;

    fn value(told: &str, name: &str) -> Option<f64> {
        let begin = format!("{name}{{");
        let line = told.lines().find(|line| line.starts_with(&begin))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn told_of(client: &Client, node: &Node, node_too: bool, allocs_too: bool) -> String {
        let settings = TelemetryConfig {
            publish_node_metrics: node_too,
            publish_allocation_metrics: allocs_too,
            ..TelemetryConfig::default()
        };
        let (telemetry, recorder) = telemetry::build(&telemetry::Options::default());
        metrics::with_local_recorder(&recorder, || {
            let labels = labels(node);
            observe_allocs(client, node, &labels, &settings);
            if settings.publish_node_metrics {
                machine(client, &labels);
            }
        });
        telemetry.prometheus()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_runs_on_a_node_and_what_is_left_of_it_is_told() {
        let world = World::start().await;
        let client = world.client();
        let run_for = |time: &str| json!({"run_for": time});
        world.register("svc", "service", 2, run_for("1h")).await;
        world.register("quick", "batch", 1, run_for("10ms")).await;
        let count = |wanted: &str| {
            let ids = client.alloc_ids();
            let told = ids.iter().filter_map(|id| client.runner(id)?.told());
            told.filter(|alloc| alloc.client_status == wanted).count()
        };
        let all = || (count("running"), count("complete")) == (2, 1);
        until("two run and one is over", all).await;
        let view = world.server.projections.view();
        let node = nodes::get(&view, &client.node_id()).unwrap().unwrap();
        let told = |node_too, allocs_too| told_of(&client, &node, node_too, allocs_too);
        let plain = told(false, false);
        for (name, wanted) in [
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
        let given = client.alloc_ids().into_iter().filter_map(|id| {
            let alloc = client.runner(&id)?.alloc();
            let runs = alloc.job_id == "svc";
            let given = alloc.allocated_resources.clone().filter(|_| runs)?;
            Some(ComparableResources::of_allocated(&given))
        });
        let mut held = ComparableResources::default();
        given.for_each(|one| held.add(&one));
        assert!(held.cpu_shares > 0 && held.memory_mb > 0);
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
        let is_told = |told: &str| {
            let names = [
                "nomad_client_host_memory_total",
                "nomad_client_allocs_cpu_allocated",
            ];
            names.map(|name| value(told, name).is_some())
        };
        assert_eq!(is_told(&plain), [false, false]);
        assert_eq!(is_told(&told(true, false)), [true, false]);
        let allocs = told(false, true);
        assert_eq!(is_told(&allocs), [false, true]);
        assert!(
            allocs.contains("job=\"svc\"") && allocs.contains("task=\"web\""),
            "{allocs}"
        );
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
        let told = |include: bool, allowed: &[&str]| -> Vec<String> {
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
        assert_eq!(told(false, &[]), [""; 0]);
        assert_eq!(told(true, &[]), ["owner", "ticket"]);
        assert_eq!(told(true, &["ticket", "job"]), ["ticket"]);
    }
}
