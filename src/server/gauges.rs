//! Gauges that are read off the server and its client when somebody asks for the metrics: what the
//! scheduler holds, how far Raft is, what runs on the node and how the machine is.

use drover_events::model::status::client;
use drover_projections::tables::allocs::AllocsByNode;
use drover_projections::tables::nodes;
use metrics::{Label, gauge};

use super::Server;
use crate::client::agent::Client;
use crate::client::endpoints::host;

impl Server {
    /// Sets every gauge to what it is now.
    pub(super) fn observe(&self) {
        self.observe_raft();
        self.observe_scheduling();
        if let Some(client) = self.client.get() {
            self.observe_client(client);
        }
    }

    fn observe_raft(&self) {
        let (_, last, applied) = self.raft.progress();
        gauge!("nomad.raft.appliedIndex").set(applied as f64);
        gauge!("nomad.raft.lastIndex").set(last as f64);
        gauge!("nomad.state.snapshotIndex").set(self.projections.applied_index() as f64);
    }

    fn observe_scheduling(&self) {
        let status = self
            .reactors
            .lock()
            .as_ref()
            .map(|reactors| reactors.status());
        let Some(scheduling) = status.and_then(|status| status.scheduling) else {
            return;
        };
        for (name, value) in [
            ("nomad.nomad.broker.total_ready", scheduling.ready),
            ("nomad.nomad.broker.total_unacked", scheduling.unacked),
            ("nomad.nomad.broker.total_pending", scheduling.pending),
            ("nomad.nomad.broker.total_waiting", scheduling.waiting),
            (
                "nomad.nomad.blocked_evals.total_blocked",
                scheduling.blocked,
            ),
            (
                "nomad.nomad.blocked_evals.total_escaped",
                scheduling.escaped,
            ),
            ("nomad.nomad.plan.queue_depth", scheduling.plans),
        ] {
            gauge!(name).set(value as f64);
        }
    }

    fn observe_client(&self, client: &Client) {
        let view = self.projections.view();
        let Ok(Some(node)) = nodes::get(&view, &client.node_id()) else {
            return;
        };
        let label = |name: &'static str, value: &str| Label::new(name, value.to_owned());
        let labels = vec![
            label("node_id", &node.id),
            label("datacenter", &node.datacenter),
            label("node_class", &node.node_class),
            label("node_pool", &node.node_pool),
        ];
        let (mut pending, mut running, mut terminal) = (0, 0, 0);
        for row in view.by_index::<AllocsByNode>(node.id.as_str()).flatten() {
            match row.client_status.as_str() {
                client::PENDING => pending += 1,
                client::RUNNING => running += 1,
                _ => terminal += 1,
            }
        }
        for (name, value) in [
            ("nomad.client.allocations.pending", pending),
            ("nomad.client.allocations.running", running),
            ("nomad.client.allocations.terminal", terminal),
        ] {
            gauge!(name, labels.clone()).set(f64::from(value));
        }
        machine(client, &labels);
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
