//! Gauges that are read off the server when the metrics are requested: what the scheduler holds,
//! how far Raft and the log are, and what jobs there are. A client beside it has its own.

pub(super) mod jobs;
mod scheduling;

use drover_projections::Stats;
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
        let levels = RaftLevels {
            applied,
            last,
            members: self.raft.members().len(),
            heartbeats: self.heartbeats.len(),
            read: self.projections.applied_index(),
        };
        levels.observe();
        let now = jiff::Timestamp::now().as_second();
        for one in self.expiries() {
            one.observe(now);
        }
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
        if let Some(status) = self.activity.scheduling() {
            scheduling::observe(status);
        }
    }

    fn observe_log(&self) {
        let log = self.raft.log();
        let (first, next) = log.bounds();
        let segments = log.segments();
        let levels = LogLevels {
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segments: segments.len(),
            first,
            next,
            signed: self.ledger.status().index,
        };
        levels.observe();
        if let Ok(tables) = self.projections.stats() {
            observe_tables(&tables);
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

/// How far Raft is, and who takes part.
struct RaftLevels {
    /// The last index that is applied.
    applied: u64,
    /// The last index of Raft's log.
    last: u64,
    /// Servers of the cluster.
    members: usize,
    /// Nodes whose heartbeats are waited for.
    heartbeats: usize,
    /// The index of the state that is read.
    read: u64,
}

impl RaftLevels {
    fn observe(&self) {
        gauge!("nomad.raft.appliedIndex").set(self.applied as f64);
        gauge!("nomad.raft.lastIndex").set(self.last as f64);
        gauge!("nomad.raft.peers").set(self.members as f64);
        gauge!("nomad.nomad.heartbeat.active").set(self.heartbeats as f64);
        gauge!("nomad.state.snapshotIndex").set(self.read as f64);
    }
}

/// How large the log is, and what it holds.
struct LogLevels {
    /// Bytes of its files.
    bytes: u64,
    /// Its files.
    segments: usize,
    /// The first index that it holds.
    first: u64,
    /// The index behind the last.
    next: u64,
    /// The index of the last checkpoint.
    signed: u64,
}

impl LogLevels {
    fn observe(&self) {
        gauge!("drover.log.bytes").set(self.bytes as f64);
        gauge!("drover.log.segments").set(self.segments as f64);
        gauge!("drover.log.first_index").set(self.first as f64);
        gauge!("drover.log.last_index").set(self.next.saturating_sub(1) as f64);
        gauge!("drover.log.signed_index").set(self.signed as f64);
        counter!("drover.log.events_total").absolute(self.next);
    }
}

fn observe_tables(tables: &Stats) {
    gauge!("drover.projections.bytes").set(tables.files as f64);
    gauge!("drover.projections.flushed_index").set(tables.flushed as f64);
    gauge!("drover.projections.waited_seconds").set(tables.waited.as_secs_f64());
    counter!("drover.projections.threadless_total").absolute(tables.threadless);
}

#[cfg(test)]
mod testing {
    use std::collections::BTreeMap;

    use crate::telemetry::{TelemetryOptions, build};

    /// Asserts that these series and no others are recorded, each with its value.
    pub(super) fn assert_shown(record: impl FnOnce(), wanted: &[(&str, u64)]) {
        let (telemetry, recorder) = build(&TelemetryOptions::default());
        metrics::with_local_recorder(&recorder, record);
        let text = telemetry.prometheus();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let shown: BTreeMap<&str, u64> = series
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, value)| (name, value.parse().expect("a whole number")))
            .collect();
        let wanted: BTreeMap<&str, u64> = wanted.iter().copied().collect();
        assert_eq!(shown, wanted);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::testing::assert_shown;
    use super::*;

    #[test]
    fn each_figure_of_raft_and_the_log_has_its_own_name() {
        let raft = RaftLevels {
            applied: 1,
            last: 2,
            members: 3,
            heartbeats: 4,
            read: 5,
        };
        let log = LogLevels {
            bytes: 6,
            segments: 7,
            first: 8,
            next: 10,
            signed: 11,
        };
        let tables = Stats {
            applied: 12,
            flushed: 13,
            cache: 14,
            write_buffers: 15,
            files: 16,
            rows: 17,
            waiting: 18,
            stalled: true,
            waited: Duration::from_secs(19),
            threadless: 20,
        };
        let record = || {
            raft.observe();
            log.observe();
            observe_tables(&tables);
        };
        let shown = [
            ("drover_log_bytes", 6),
            ("drover_log_events_total", 10),
            ("drover_log_first_index", 8),
            ("drover_log_last_index", 9),
            ("drover_log_segments", 7),
            ("drover_log_signed_index", 11),
            ("drover_projections_bytes", 16),
            ("drover_projections_flushed_index", 13),
            ("drover_projections_threadless_total", 20),
            ("drover_projections_waited_seconds", 19),
            ("nomad_nomad_heartbeat_active", 4),
            ("nomad_raft_appliedIndex", 1),
            ("nomad_raft_lastIndex", 2),
            ("nomad_raft_peers", 3),
            ("nomad_state_snapshotIndex", 5),
        ];
        assert_shown(record, &shown);
    }
}
