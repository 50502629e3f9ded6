//! What the agent measures about itself.
//!
//! Code anywhere says `metrics::counter!("nomad.…")`; one recorder takes it twice: into Prometheus'
//! text form, and into the summary of ten-second intervals that `/v1/metrics` shows as JSON.
//!
//! It knows no metric by name and nothing of HTTP. Names are Nomad's, with dots. Labels carry the
//! id of an allocation where `publish_allocation_metrics` enables it, and that of a job there and
//! in `nomad.nomad.job_summary.*`, as dashboards expect it; the setting
//! `disable_dispatched_job_summary_metrics` leaves the many dispatched ones out. Evaluations that
//! wait for a time are levels of their own, some at a time. Nothing else does: a timing is kept as
//! long as the process. Nor does any timing carry a namespace.
//!
//! Invariants: one recorder per process, the first [`install`] wins; recording waits for a
//! reader for no longer than it looks at one series, or drops those of one shard that are idle.

mod filter;
mod help;
pub mod labels;
mod process;
mod push;
mod summary;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use metrics_util::layers::FanoutBuilder;

use filter::{Filtered, PrefixRules};
pub use push::Sink;
pub use summary::{Summary, SummaryReport};

/// How metrics are kept and shown.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryOptions {
    /// The length of an interval of the summary.
    pub interval: Duration,
    /// How long a level is shown that is no longer set.
    pub retention: Duration,
    /// The label `host` of every metric; none without one.
    pub host: Option<String>,
    /// `+prefix` and `-prefix`: what is recorded and what is not; the longest prefix decides.
    pub prefix_filter: Vec<String>,
    /// Whether what no prefix names is recorded.
    pub filter_default: bool,
    /// Where metrics are sent as they are recorded.
    pub sinks: Vec<Sink>,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            retention: Duration::from_secs(60),
            host: None,
            prefix_filter: Vec::new(),
            filter_default: true,
            sinks: Vec::new(),
        }
    }
}

/// The process's metrics, to read and to keep up.
#[derive(Clone)]
pub struct Telemetry {
    prometheus: PrometheusHandle,
    /// When that was rendered last, and how long a level is kept there: those that are no longer
    /// set are found by rendering alone.
    rendered: Arc<ArcSwap<Instant>>,
    retention: Duration,
    summary: Arc<Summary>,
    rules: Arc<ArcSwap<PrefixRules>>,
}

static INSTALLED: OnceLock<Telemetry> = OnceLock::new();

/// Installs the process's recorder with intervals of this length, as [`install_with`].
pub fn install(interval: Duration) -> Telemetry {
    install_with(&TelemetryOptions {
        interval,
        ..TelemetryOptions::default()
    })
}

/// Installs the process's recorder, once, and answers the readers of it.
pub fn install_with(options: &TelemetryOptions) -> Telemetry {
    INSTALLED
        .get_or_init(|| {
            let (telemetry, recorder) = build(options);
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another metrics recorder is installed: metrics stay empty");
            }
            telemetry
        })
        .clone()
}

/// A recorder of its own, and the readers of what it records.
pub fn build(options: &TelemetryOptions) -> (Telemetry, impl metrics::Recorder + use<>) {
    let retention = options.retention.max(options.interval);
    let mut builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::GAUGE, Some(retention));
    if let Some(host) = &options.host {
        builder = builder.add_global_label("host", host);
    }
    let prometheus = builder.build_recorder();
    let handle = prometheus.handle();
    let summary = Arc::new(Summary::new(options));
    let mut fanout = FanoutBuilder::default()
        .add_recorder(prometheus)
        .add_recorder(summary::Recorder(Arc::clone(&summary)));
    for sink in &options.sinks {
        match push::Recorder::start(sink.clone(), options.host.clone()) {
            Ok(recorder) => fanout = fanout.add_recorder(recorder),
            Err(error) => tracing::error!(%error, "nothing sends metrics: there is no thread"),
        }
    }
    let fanout = fanout.build();
    let rules = PrefixRules::parse(&options.prefix_filter, options.filter_default);
    let rules = Arc::new(ArcSwap::from_pointee(rules));
    let telemetry = Telemetry {
        prometheus: handle,
        rendered: Arc::new(ArcSwap::from_pointee(Instant::now())),
        retention,
        summary,
        rules: Arc::clone(&rules),
    };
    (telemetry, Filtered::new(rules, fanout))
}

/// A duration as samples are recorded: Nomad measures in milliseconds.
pub fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

/// Notes how long something took.
pub fn took(name: &'static str, began: Instant) {
    metrics::histogram!(name).record(milliseconds(began.elapsed()));
}

impl Telemetry {
    /// Records what these rules allow from now on, as [`TelemetryOptions`] has them. What was
    /// recorded stays for as long as it is kept.
    pub fn filter(&self, prefix_filter: &[String], filter_default: bool) {
        let rules = PrefixRules::parse(prefix_filter, filter_default);
        self.rules.store(Arc::new(rules));
    }

    /// The metrics in Prometheus' text form.
    pub fn prometheus(&self) -> String {
        process::observe();
        self.rendered.store(Arc::new(Instant::now()));
        help::add(&self.prometheus.render())
    }

    /// The last whole interval, or the running one while there is no whole one yet.
    pub fn summary(&self) -> SummaryReport {
        process::observe();
        self.summary.report()
    }

    /// Ends an interval, folds what histograms have gathered, and drops levels that are no longer
    /// set, also where metrics are not requested. To be called once an interval, and not by a
    /// thread that serves requests: it writes all series once in a while.
    pub fn tick(&self) {
        process::observe();
        self.prometheus.run_upkeep();
        if self.rendered.load().elapsed() >= self.retention {
            self.rendered.store(Arc::new(Instant::now()));
            if let Err(error) = self.prometheus.render_to_write(&mut std::io::sink()) {
                tracing::warn!(%error, "levels that are no longer set are kept");
            }
        }
        self.summary.rotate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_decide_what_is_recorded_and_how_it_is_labelled() {
        let (telemetry, recorder) = build(&TelemetryOptions {
            host: Some("box".into()),
            prefix_filter: vec!["-nomad.raft".into(), "+nomad.raft.applied".into()],
            ..TelemetryOptions::default()
        });
        metrics::with_local_recorder(&recorder, || {
            metrics::gauge!("nomad.raft.appliedIndex").set(7.0);
            metrics::gauge!("nomad.raft.lastIndex").set(8.0);
            metrics::counter!("nomad.nomad.rpc.request").increment(1);
        });
        let text = telemetry.prometheus.render();
        assert!(
            text.contains("nomad_raft_appliedIndex{host=\"box\"} 7"),
            "{text}"
        );
        assert!(
            text.contains("nomad_nomad_rpc_request{host=\"box\"} 1"),
            "{text}"
        );
        assert!(!text.contains("lastIndex"), "{text}");
        telemetry.filter(&["-nomad".into()], true);
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("nomad.nomad.rpc.query").increment(1);
            metrics::counter!("drover.test_total").increment(1);
        });
        let text = telemetry.prometheus.render();
        assert!(!text.contains("rpc_query"), "by the rules of now: {text}");
        assert!(text.contains("drover_test_total"), "{text}");
        telemetry.filter(&["-drover".into()], true);
        telemetry.summary.rotate();
        let shown = serde_json::to_value(telemetry.summary.report()).expect("serialises");
        assert_eq!(shown["Gauges"].as_array().map(Vec::len), Some(1), "{shown}");
        let counters = shown["Counters"].as_array().expect("a list");
        let labelled = |counter: &serde_json::Value| counter["Labels"]["host"] == "box";
        assert!(counters.iter().all(labelled), "{shown}");
        assert!(!counters.is_empty());
    }

    #[test]
    fn a_level_that_nobody_sets_any_more_vanishes() {
        let (telemetry, recorder) = build(&TelemetryOptions {
            interval: Duration::ZERO,
            retention: Duration::ZERO,
            ..TelemetryOptions::default()
        });
        metrics::with_local_recorder(&recorder, || {
            metrics::gauge!("nomad.nomad.job_summary.running", "job" => "gone").set(1.0);
        });
        assert!(telemetry.prometheus.render().contains("gone"), "it is new");
        telemetry.summary.rotate();
        telemetry.summary.rotate();
        assert!(telemetry.summary.report().gauges.is_empty());
        // It was not set between two renderings that are further apart than it is kept.
        assert!(!telemetry.prometheus.render().contains("gone"));
    }

    #[test]
    fn a_level_vanishes_also_where_nobody_asks() {
        let (telemetry, recorder) = build(&TelemetryOptions {
            interval: Duration::ZERO,
            retention: Duration::ZERO,
            ..TelemetryOptions::default()
        });
        metrics::with_local_recorder(&recorder, || {
            metrics::gauge!("nomad.nomad.broker.eval_waiting", "eval_id" => "gone").set(1.0);
        });
        // It is noted with the first, and not set before the second.
        telemetry.tick();
        telemetry.tick();
        // What is rendered for the first time is always there.
        assert!(!telemetry.prometheus.render().contains("gone"));
    }
}
