//! Metrics gathered in intervals, as Nomad's `/v1/metrics` shows them without a `format`.
//!
//! Each series has a cell with a lock of its own ([`series`]), for many threads record at once; an
//! interval ends for one after the other. It knows no metric by name and no reader.

mod report;
mod series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use metrics_util::registry::Registry;
use parking_lot::Mutex;

use self::report::{GaugeLevel, Sampled};
use self::series::{Aggregate, AggregateCell, RunningAggregate, SummaryStorage};
use super::TelemetryOptions;

pub use self::report::SummaryReport;

/// A metric's name and its labels, ordered.
type Id = (String, BTreeMap<String, String>);

/// What a whole interval held.
#[derive(Clone, Debug, Default)]
struct Interval {
    started: jiff::Timestamp,
    counters: BTreeMap<Id, Aggregate>,
    samples: BTreeMap<Id, Aggregate>,
}

struct SummaryState {
    /// When the running interval began.
    started: jiff::Timestamp,
    whole: Option<Interval>,
}

/// All metrics of the process, by interval.
pub struct Summary {
    interval: Duration,
    /// Intervals after which a level that is no longer set is forgotten, and so is a series in
    /// which nothing is recorded.
    kept: u64,
    host: Option<String>,
    series: Registry<Key, SummaryStorage>,
    state: Mutex<SummaryState>,
}

impl Summary {
    /// An empty summary.
    pub fn new(options: &TelemetryOptions) -> Self {
        let interval = options.interval;
        let kept = options.retention.as_nanos() / interval.as_nanos().max(1);
        Self {
            interval,
            kept: u64::try_from(kept).unwrap_or(u64::MAX).max(1),
            host: options.host.clone(),
            series: Registry::new(SummaryStorage),
            state: Mutex::new(SummaryState {
                started: jiff::Timestamp::now(),
                whole: None,
            }),
        }
    }

    /// Ends the running interval.
    pub fn rotate(&self) {
        let mut state = self.state.lock();
        let started = std::mem::replace(&mut state.started, jiff::Timestamp::now());
        state.whole = Some(self.gathered(started, RunningAggregate::end));
        // Who has one at hand is about to record in it. No more can be handed out meanwhile.
        self.series.retain_gauges(|_, cell| {
            cell.end();
            Arc::strong_count(cell) > 1 || cell.is_set(self.kept)
        });
        let is_live =
            |cell: &Arc<AggregateCell>| Arc::strong_count(cell) > 1 || cell.is_live(self.kept);
        self.series.retain_counters(|_, cell| is_live(cell));
        self.series.retain_histograms(|_, cell| is_live(cell));
    }

    /// The last whole interval, or the running one while no interval is over.
    pub fn report(&self) -> SummaryReport {
        let state = self.state.lock();
        let running;
        let interval = match &state.whole {
            Some(whole) => whole,
            None => {
                running = self.gathered(state.started, |gathering| gathering.aggregate);
                &running
            }
        };
        let seconds = self.interval.as_secs_f64().max(1.0);
        let sampled = |map: &BTreeMap<Id, Aggregate>| {
            map.iter()
                .map(|(id, a)| Sampled::new(id, a, seconds))
                .collect()
        };
        let mut levels = BTreeMap::new();
        self.series.visit_gauges(|key, level| {
            if let Some((value, _)) = *level.0.lock() {
                levels.insert(self.id(key), value);
            }
        });
        SummaryReport {
            counters: sampled(&interval.counters),
            gauges: levels
                .iter()
                .map(|(id, value)| GaugeLevel::new(id, *value))
                .collect(),
            points: Vec::new(),
            precision_gauges: Vec::new(),
            samples: sampled(&interval.samples),
            timestamp: interval
                .started
                .strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
                .to_string(),
        }
    }

    /// What the series hold of the running interval, read by `read`; those that nothing was
    /// recorded in are left out.
    fn gathered(
        &self,
        started: jiff::Timestamp,
        read: impl Fn(&mut RunningAggregate) -> Aggregate,
    ) -> Interval {
        let mut interval = Interval {
            started,
            ..Interval::default()
        };
        let gather = |into: &mut BTreeMap<Id, Aggregate>, key: &Key, cell: &AggregateCell| {
            let aggregate = read(&mut cell.0.lock());
            if aggregate.count > 0 {
                into.entry(self.id(key)).or_default().merge(&aggregate);
            }
        };
        self.series
            .visit_counters(|key, cell| gather(&mut interval.counters, key, cell));
        self.series
            .visit_histograms(|key, cell| gather(&mut interval.samples, key, cell));
        interval
    }

    fn id(&self, key: &Key) -> Id {
        let host = self.host.iter();
        let host = host.map(|host| ("host".to_owned(), host.clone()));
        let labels = key.labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        (key.name().to_owned(), labels.chain(host).collect())
    }
}

/// What `metrics` calls.
pub(super) struct Recorder(pub(super) Arc<Summary>);

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let series = &self.0.series;
        series.get_or_create_counter(key, |cell| Counter::from_arc(Arc::clone(cell)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let series = &self.0.series;
        series.get_or_create_gauge(key, |cell| Gauge::from_arc(Arc::clone(cell)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let series = &self.0.series;
        series.get_or_create_histogram(key, |cell| Histogram::from_arc(Arc::clone(cell)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> (Arc<Summary>, Recorder) {
        let summary = Arc::new(Summary::new(&TelemetryOptions::default()));
        (Arc::clone(&summary), Recorder(summary))
    }

    #[test]
    fn an_interval_sums_counters_and_keeps_gauges() {
        let (summary, recorder) = recorded();
        metrics::with_local_recorder(&recorder, || {
            for value in [1, 2, 3] {
                metrics::counter!("nomad.raft.apply", "host" => "a").increment(value);
            }
            metrics::gauge!("nomad.runtime.alloc_bytes").set(7.0);
            metrics::histogram!("nomad.plan.submit").record(2.0);
            metrics::histogram!("nomad.plan.submit").record(4.0);
        });
        summary.rotate();
        let json = serde_json::to_value(summary.report()).expect("serialises");
        let counter = &json["Counters"][0];
        assert_eq!(counter["Name"], "nomad.raft.apply");
        assert_eq!(counter["Labels"]["host"], "a");
        assert_eq!(
            (counter["Count"].as_u64(), counter["Sum"].as_f64()),
            (Some(3), Some(6.0))
        );
        assert_eq!(
            (counter["Mean"].as_f64(), counter["Stddev"].as_f64()),
            (Some(2.0), Some(1.0))
        );
        assert_eq!(counter["Rate"].as_f64(), Some(0.6));
        assert_eq!(json["Samples"][0]["Max"].as_f64(), Some(4.0));
        summary.rotate();
        let later = serde_json::to_value(summary.report()).expect("serialises");
        assert_eq!(later["Counters"].as_array().map(Vec::len), Some(0));
        assert_eq!(later["Gauges"][0]["Value"].as_f64(), Some(7.0));
    }

    #[test]
    fn series_that_are_one_by_their_labels_are_shown_as_one() {
        let summary = Arc::new(Summary::new(&TelemetryOptions {
            host: Some("box".to_owned()),
            ..TelemetryOptions::default()
        }));
        let recorder = Recorder(Arc::clone(&summary));
        metrics::with_local_recorder(&recorder, || {
            // The agent's own name of its host replaces that of whoever records.
            metrics::histogram!("nomad.of_two", "host" => "a").record(3.0);
            metrics::histogram!("nomad.of_two", "host" => "b").record(5.0);
        });
        // Of the running interval, as no one is over.
        let json = serde_json::to_value(summary.report()).expect("serialises");
        let samples = json["Samples"].as_array().expect("a list");
        let [sample] = samples.as_slice() else {
            panic!("{json}");
        };
        let figures = ["Count", "Sum", "Min", "Max"].map(|name| sample[name].as_f64());
        assert_eq!(figures, [2.0, 8.0, 3.0, 5.0].map(Some));
    }

    #[test]
    fn an_absolute_counter_counts_what_came_since_the_look_before() {
        let (summary, recorder) = recorded();
        metrics::with_local_recorder(&recorder, || {
            for value in [100, 105, 103, 105, 110] {
                metrics::counter!("nomad.absolute").absolute(value);
            }
        });
        summary.rotate();
        let json = serde_json::to_value(summary.report()).expect("serialises");
        assert_eq!(json["Counters"][0]["Sum"].as_f64(), Some(10.0));
        assert_eq!(
            json["Counters"][0]["Count"].as_u64(),
            Some(2),
            "twice there was more"
        );
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("nomad.absolute").absolute(111);
        });
        summary.rotate();
        let json = serde_json::to_value(summary.report()).expect("serialises");
        assert_eq!(json["Counters"][0]["Sum"].as_f64(), Some(1.0));
        assert_eq!(json["Counters"][0]["Stddev"].as_f64(), Some(0.0), "of one");
    }

    #[test]
    fn what_is_no_longer_recorded_takes_no_room() {
        let (summary, recorder) = recorded();
        let series = || {
            let mut keys = Vec::new();
            let mut key = |key: &Key| keys.push(key.name().to_owned());
            summary.series.visit_counters(|name, _| key(name));
            summary.series.visit_gauges(|name, _| key(name));
            summary.series.visit_histograms(|name, _| key(name));
            keys.sort();
            keys
        };
        let held = metrics::with_local_recorder(&recorder, || {
            metrics::counter!("counted").increment(1);
            metrics::counter!("looked_at").absolute(1);
            metrics::histogram!("sampled").record(1.0);
            metrics::gauge!("level").set(1.0);
            let held = metrics::gauge!("held");
            assert_eq!(summary.report().gauges.len(), 1, "the other was never set");
            held
        });
        for _ in 0..=summary.kept {
            assert_eq!(
                series(),
                ["counted", "held", "level", "looked_at", "sampled"]
            );
            summary.rotate();
        }
        assert_eq!(series(), ["held", "looked_at"]);
        held.set(2.0);
        assert_eq!(summary.report().gauges.len(), 1);
    }

    #[test]
    fn the_time_has_nomads_form() {
        let (summary, _) = recorded();
        let time = summary.report().timestamp;
        assert!(
            time.ends_with(" +0000 UTC") && time.len() == 30 - 1,
            "{time}"
        );
    }
}
