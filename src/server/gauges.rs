//! Gauges that are read off the server when the metrics are requested: what the scheduler holds,
//! how far Raft and the log are, and what jobs there are. A client beside it has its own.

pub(super) mod jobs;

use drover_events::model::status::job_type;
use metrics::{counter, gauge};

use super::Server;

impl Server {
    /// Sets every gauge to what it is now.
    pub fn observe(&self) {
        self.observe_raft();
        self.observe_servers();
        self.observe_log();
        self.observe_reactors();
        self.observe_digests();
        self.observe_scheduling();
        self.observe_jobs();
        if let Some(client) = self.client.get() {
            client.observe(&self.configured().telemetry);
        }
    }

    fn observe_raft(&self) {
        let (_, last, applied) = self.raft.progress();
        gauge!("nomad.raft.appliedIndex").set(applied as f64);
        gauge!("nomad.raft.lastIndex").set(last as f64);
        let now = jiff::Timestamp::now().as_second();
        for one in self.expiries() {
            one.observe(now);
        }
        gauge!("nomad.raft.peers").set(self.raft.members().len() as f64);
        gauge!("nomad.nomad.heartbeat.active").set(self.heartbeats.len() as f64);
        gauge!("nomad.state.snapshotIndex").set(self.projections.applied_index() as f64);
    }

    /// How the servers are, which the one that leads says.
    fn observe_servers(&self) {
        if self.leads() {
            let (healthy, tolerance) = Self::well(&self.servers_health());
            gauge!("nomad.nomad.autopilot.healthy").set(f64::from(u8::from(healthy)));
            gauge!("nomad.nomad.autopilot.failure_tolerance").set(tolerance as f64);
        }
    }

    fn observe_scheduling(&self) {
        let Some(scheduling) = self.activity.scheduling() else {
            return;
        };
        for (name, value) in [
            ("nomad.nomad.broker.total_ready", scheduling.ready),
            ("nomad.nomad.broker.total_unacked", scheduling.unacked),
            ("nomad.nomad.broker.total_pending", scheduling.pending),
            ("nomad.nomad.broker.total_waiting", scheduling.waiting),
            ("nomad.nomad.broker.total_cancelable", scheduling.cancelable),
            (
                "nomad.nomad.blocked_evals.total_blocked",
                scheduling.blocked,
            ),
            (
                "nomad.nomad.blocked_evals.total_escaped",
                scheduling.escaped,
            ),
            // There are no quotas yet.
            ("nomad.nomad.blocked_evals.total_quota_limit", 0),
            ("nomad.nomad.plan.queue_depth", scheduling.plans),
        ] {
            gauge!(name).set(value as f64);
        }
        gauge!("nomad.nomad.blocked_evals.cpu").set(scheduling.blocked_cpu as f64);
        gauge!("nomad.nomad.blocked_evals.memory").set(scheduling.blocked_memory as f64);
        for one in scheduling.blocked_jobs {
            let labels = [("job", one.job), ("namespace", one.namespace)];
            gauge!("nomad.nomad.blocked_evals.job.cpu", &labels).set(one.cpu as f64);
            gauge!("nomad.nomad.blocked_evals.job.memory", &labels).set(one.memory as f64);
        }
        gauge!("drover.scheduling.left_out").set(scheduling.failed as f64);
        for kind in job_type::ALL {
            let (ready, unacked) = scheduling.by_type.get(*kind).copied().unwrap_or_default();
            gauge!(format!("nomad.nomad.broker.{kind}.ready")).set(ready as f64);
            gauge!(format!("nomad.nomad.broker.{kind}.unacked")).set(unacked as f64);
        }
    }

    fn observe_log(&self) {
        let log = self.raft.log();
        let (first, next) = log.bounds();
        let segments = log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        gauge!("drover.log.bytes").set(bytes as f64);
        gauge!("drover.log.segments").set(segments.len() as f64);
        gauge!("drover.log.first_index").set(first as f64);
        gauge!("drover.log.last_index").set(next.saturating_sub(1) as f64);
        gauge!("drover.log.signed_index").set(self.ledger.status().index as f64);
        counter!("drover.log.events_total").absolute(next);
        if let Ok(tables) = self.projections.stats() {
            gauge!("drover.projections.bytes").set(tables.files as f64);
            gauge!("drover.projections.flushed_index").set(tables.flushed as f64);
            gauge!("drover.projections.waited_seconds").set(tables.waited.as_secs_f64());
            counter!("drover.projections.threadless_total").absolute(tables.threadless);
        }
    }

    fn observe_digests(&self) {
        let agreed = self.agreed();
        if let Some(at) = agreed.at {
            gauge!("drover.state.digests_at_index").set(at as f64);
            gauge!("drover.state.digests_differ").set(agreed.different.len() as f64);
        }
    }

    fn observe_reactors(&self) {
        for (name, status) in self.activity.reactors() {
            let failed = status.failures + status.panics;
            counter!("drover.reactor.failures_total", "reactor" => name).absolute(failed);
            counter!("drover.reactor.activations_total", "reactor" => name)
                .absolute(status.activations);
            gauge!("drover.reactor.running", "reactor" => name)
                .set(f64::from(u8::from(status.running)));
        }
    }
}
