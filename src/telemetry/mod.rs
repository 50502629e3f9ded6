//! What the agent measures about itself.
//!
//! Code anywhere says `metrics::counter!("nomad.…")`; one recorder takes it twice: into Prometheus'
//! text form, and into the summary of ten-second intervals that `/v1/metrics` shows as JSON.
//!
//! It knows no metric by name and nothing of HTTP. Names are Nomad's, with dots; labels never carry
//! the id of an allocation or a job unless the configuration asks for them.
//!
//! Invariants: one recorder per process, the first [`install`] wins; recording never blocks on a
//! reader for longer than the copy of one interval.

mod process;
mod summary;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::layers::FanoutBuilder;

pub use summary::{Summary, SummaryReport};

/// The process's metrics, to read and to keep up.
#[derive(Clone)]
pub struct Telemetry {
    prometheus: PrometheusHandle,
    summary: Arc<Summary>,
}

static INSTALLED: OnceLock<Telemetry> = OnceLock::new();

/// Installs the process's recorder, once, and answers the readers of it.
pub fn install(interval: Duration) -> Telemetry {
    INSTALLED
        .get_or_init(|| {
            let prometheus = PrometheusBuilder::new().build_recorder();
            let handle = prometheus.handle();
            let summary = Arc::new(Summary::new(interval));
            let fanout = FanoutBuilder::default()
                .add_recorder(prometheus)
                .add_recorder(summary::Recorder(Arc::clone(&summary)))
                .build();
            if metrics::set_global_recorder(fanout).is_err() {
                tracing::warn!("another metrics recorder is installed: metrics stay empty");
            }
            Telemetry {
                prometheus: handle,
                summary,
            }
        })
        .clone()
}

/// A duration as samples are recorded: Nomad measures in milliseconds.
pub fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

impl Telemetry {
    /// The metrics in Prometheus' text form.
    pub fn prometheus(&self) -> String {
        process::observe();
        self.prometheus.render()
    }

    /// The last whole interval, or the running one while there is no whole one yet.
    pub fn summary(&self) -> SummaryReport {
        process::observe();
        self.summary.report()
    }

    /// Ends an interval and folds what histograms have gathered. To be called once an interval.
    pub fn tick(&self) {
        process::observe();
        self.prometheus.run_upkeep();
        self.summary.rotate();
    }
}
