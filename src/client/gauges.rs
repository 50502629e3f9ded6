//! The client as gauges, read off it when the metrics are requested: what was given of its
//! node, what runs there, and how the machine is. All of that it knows itself: no server is called.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::status::{ClientStatus, node as node_status, task};
use drover_events::model::{
    Allocation, ComparableResources, NetworkResource, Node, TaskResourceUsage,
};
use metrics::{Label, gauge};

use super::agent::{Client, Contact};
use super::alloc_runner::{AllocRunner, Waits};
use super::endpoints::host;
use super::stats;
use drover_config::TelemetryConfig;
use drover_telemetry::labels::label_name;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;
/// The states of tasks.
const TASKS: [&str; 3] = [task::PENDING, task::RUNNING, task::DEAD];

impl Client {
    /// Sets the gauges that these settings select to what they are now.
    pub fn observe(&self, settings: &TelemetryConfig) {
        let node = self.core.node.lock().clone();
        let labels = labels(&node, &self.core.contact.borrow());
        let mut seen = AllocUsage::default();
        for id in self.alloc_ids() {
            let Some(runner) = self.runner(&id) else {
                continue;
            };
            if seen.count(&*runner, &node) && settings.publish_allocation_metrics {
                observe_tasks(&*runner, settings);
            }
        }
        seen.report(&node, &labels);
        if settings.publish_node_metrics {
            machine(self, &labels);
        }
    }
}

fn label(name: &'static str, value: &str) -> Label {
    Label::new(name, value.to_owned())
}

fn with(labels: &[Label], name: &'static str, value: &str) -> Vec<Label> {
    let mut all = labels.to_vec();
    all.push(label(name, value));
    all
}

/// The node, as far as it was reported to the servers.
fn labels(node: &Node, contact: &Contact) -> Vec<Label> {
    let class = match node.node_class.as_str() {
        "" => "none",
        class => class,
    };
    let status = match contact.registered {
        true => node_status::READY,
        false => node.status.as_str(),
    };
    let eligibility = match contact.eligibility.as_str() {
        "" => node.scheduling_eligibility.as_str(),
        known => known,
    };
    vec![
        label("node_id", &node.id),
        label("datacenter", &node.datacenter),
        label("node_class", class),
        label("node_pool", &node.node_pool),
        label("node_status", status),
        label("node_scheduling_eligibility", eligibility),
    ]
}

fn networks(node: &Node) -> &[NetworkResource] {
    let resources = node.node_resources.as_ref();
    resources.map_or(&[][..], |resources| &resources.networks[..])
}

/// What allocations hold, and how they are.
#[derive(Default)]
struct AllocUsage {
    pending: u32,
    blocked: u32,
    migrating: u32,
    running: u32,
    terminal: u32,
    /// How many tasks have each of [`TASKS`].
    tasks: [u32; TASKS.len()],
    given: ComparableResources,
    /// Mbit/s that were given, by interface.
    network: BTreeMap<String, i64>,
}

impl AllocUsage {
    /// Counts an allocation; whether it is known how it is, and not over.
    fn count(&mut self, runner: &dyn AllocRunner, node: &Node) -> bool {
        let Some(reported) = runner.reported() else {
            self.pending += 1;
            return false;
        };
        let count = match reported.client() {
            Some(ClientStatus::Pending) => match runner.waits() {
                Waits::ForNobody => &mut self.pending,
                Waits::ForOthers => &mut self.blocked,
                Waits::ForData => &mut self.migrating,
            },
            Some(ClientStatus::Running) => &mut self.running,
            Some(
                ClientStatus::Complete
                | ClientStatus::Failed
                | ClientStatus::Lost
                | ClientStatus::Unknown,
            )
            | None => &mut self.terminal,
        };
        *count += 1;
        for state in reported.task_states.values() {
            if let Some(at) = TASKS.iter().position(|known| *known == state.state) {
                self.tasks[at] += 1;
            }
        }
        let holds = !reported.client_terminal();
        if holds {
            self.give(&runner.alloc(), node);
        }
        holds
    }

    /// Adds what an allocation holds.
    fn give(&mut self, alloc: &Allocation, node: &Node) {
        let Some(given) = &alloc.allocated_resources else {
            return;
        };
        self.given.add(&ComparableResources::of_allocated(given));
        let of_tasks = given.tasks.values().flat_map(|task| task.networks.iter());
        for one in of_tasks.chain(given.shared.networks.iter()) {
            // Only the address says which interface a given network is of.
            if let Some(network) = networks(node).iter().find(|network| network.ip == one.ip) {
                let sum = self.network.entry(network.device.clone()).or_default();
                *sum = sum.saturating_add(one.mbits);
            }
        }
    }

    fn report(&self, node: &Node, labels: &[Label]) {
        let set = |name: &'static str, value: f64| gauge!(name, labels.to_vec()).set(value);
        let [pending, running, dead] = self.tasks;
        for (name, count) in [
            ("nomad.client.allocations.blocked", self.blocked),
            ("nomad.client.allocations.migrating", self.migrating),
            ("nomad.client.allocations.pending", self.pending),
            ("nomad.client.allocations.running", self.running),
            ("nomad.client.allocations.terminal", self.terminal),
            ("nomad.client.tasks.pending", pending),
            ("nomad.client.tasks.running", running),
            ("nomad.client.tasks.dead", dead),
        ] {
            set(name, f64::from(count));
        }
        let (given, mut left) = (&self.given, ComparableResources::of_node(node));
        left.subtract(given);
        for (name, amount) in [
            ("nomad.client.allocated.cpu", given.cpu_shares),
            ("nomad.client.allocated.memory", given.memory_mb),
            ("nomad.client.allocated.max_memory", given.memory_max_mb),
            ("nomad.client.allocated.disk", given.disk_mb),
            ("nomad.client.unallocated.cpu", left.cpu_shares),
            ("nomad.client.unallocated.memory", left.memory_mb),
            ("nomad.client.unallocated.disk", left.disk_mb),
        ] {
            set(name, amount as f64);
        }
        for network in networks(node) {
            let given = self.network.get(&network.device).copied();
            let given = given.unwrap_or_default();
            let left = network.mbits.saturating_sub(given);
            let labels = with(labels, "device", &network.device);
            gauge!("nomad.client.allocated.network", labels.clone()).set(given as f64);
            gauge!("nomad.client.unallocated.network", labels).set(left as f64);
        }
    }
}

/// What the tasks of an allocation were given and use.
fn observe_tasks(runner: &dyn AllocRunner, settings: &TelemetryConfig) {
    let Some(Ok(usage)) = runner.control().map(|control| control.stats(None)) else {
        return;
    };
    let alloc = runner.alloc();
    for (name, usage) in usage.tasks.iter() {
        observe_task(&alloc, name, usage, settings);
    }
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
    // Keys are compared as they are shown to Prometheus: it takes nothing at all where one label
    // stands twice, and keeps for itself what begins with two underscores.
    let own = labels.iter().map(|label| label.key().to_owned());
    let mut names: BTreeSet<String> = own.chain(["host".to_owned()]).collect();
    for (key, value) in meta {
        let is_allowed = allowed.is_empty() || allowed.contains(key);
        let name = label_name(key);
        let is_free = !name.is_empty() && !name.starts_with("__");
        if is_allowed && is_free && names.insert(name) {
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
        set("nomad.client.allocs.memory.usage", usage as f64);
        // What was not measured is not zero.
        let is_measured = |name: &str| memory.measured.iter().any(|one| one == name);
        if is_measured(stats::CACHE) {
            set("nomad.client.allocs.memory.cache", memory.cache as f64);
        }
        if is_measured(stats::SWAP) {
            set("nomad.client.allocs.memory.swap", memory.swap as f64);
        }
    }
}

fn machine(client: &Client, labels: &[Label]) {
    let stats = host::stats(client);
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
            ("nomad.client.host.cpu.total", cpu.total_percent),
            ("nomad.client.host.cpu.total_percent", cpu.total_percent),
            ("nomad.client.host.cpu.total_ticks", cpu.total_ticks),
            ("nomad.client.host.cpu.user", cpu.user),
            ("nomad.client.host.cpu.system", cpu.system),
            ("nomad.client.host.cpu.idle", cpu.idle),
        ] {
            gauge!(name, with(labels, "cpu", &cpu.cpu)).set(value);
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
            gauge!(name, with(labels, "disk", &disk.device)).set(value);
        }
    }
}

#[cfg(test)]
#[path = "gauges_test.rs"]
mod tests;
