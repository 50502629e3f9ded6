//! Metrics gathered in intervals, as Nomad's `/v1/metrics` shows them without a `format`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn};
use metrics::{Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;
use serde::Serialize;

use super::TelemetryOptions;

/// A metric's name and its labels, ordered.
type Id = (String, BTreeMap<String, String>);

/// What an interval holds of one counter or sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Aggregate {
    count: u64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Aggregate {
    fn add(&mut self, value: f64) {
        (self.min, self.max) = match self.count {
            0 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// The sample standard deviation, 0 for fewer than two values.
    fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        ((n * self.squares - self.sum * self.sum).max(0.0) / (n * (n - 1.0))).sqrt()
    }
}

#[derive(Clone, Debug, Default)]
struct Interval {
    started: jiff::Timestamp,
    counters: BTreeMap<Id, Aggregate>,
    samples: BTreeMap<Id, Aggregate>,
}

#[derive(Default)]
struct SummaryState {
    running: Interval,
    whole: Option<Interval>,
    gauges: BTreeMap<Id, Gauged>,
    absolute: BTreeMap<Id, u64>,
    /// Intervals that have ended.
    ended: u64,
}

/// A level, and the interval in which it was last set.
#[derive(Clone, Copy, Debug, Default)]
struct Gauged {
    value: f64,
    set_in: u64,
}

/// All metrics of the process, by interval.
pub struct Summary {
    interval: Duration,
    /// Intervals after which a level that is no longer set is forgotten.
    kept: u64,
    host: Option<String>,
    state: Mutex<SummaryState>,
}

impl Summary {
    /// An empty summary.
    pub fn new(options: &TelemetryOptions) -> Self {
        let mut state = SummaryState::default();
        state.running.started = jiff::Timestamp::now();
        let interval = options.interval;
        let kept = options.retention.as_nanos() / interval.as_nanos().max(1);
        Self {
            interval,
            kept: u64::try_from(kept).unwrap_or(u64::MAX).max(1),
            host: options.host.clone(),
            state: Mutex::new(state),
        }
    }

    /// Ends the running interval.
    pub fn rotate(&self) {
        let fresh = Interval {
            started: jiff::Timestamp::now(),
            ..Interval::default()
        };
        let mut state = self.state.lock();
        let ended = std::mem::replace(&mut state.running, fresh);
        state.whole = Some(ended);
        state.ended += 1;
        let oldest = state.ended.saturating_sub(self.kept);
        state.gauges.retain(|_, level| level.set_in >= oldest);
    }

    /// The last whole interval, or the running one while no interval is over.
    pub fn report(&self) -> SummaryReport {
        let state = self.state.lock();
        let interval = state.whole.as_ref().unwrap_or(&state.running);
        let seconds = self.interval.as_secs_f64().max(1.0);
        let sampled = |map: &BTreeMap<Id, Aggregate>| {
            map.iter()
                .map(|(id, a)| Sampled::new(id, a, seconds))
                .collect()
        };
        SummaryReport {
            counters: sampled(&interval.counters),
            gauges: state
                .gauges
                .iter()
                .map(|(id, level)| GaugeLevel::new(id, level.value))
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

    fn count(&self, id: &Id, value: f64) {
        let mut state = self.state.lock();
        entry(&mut state.running.counters, id).add(value);
    }

    fn sample(&self, id: &Id, value: f64) {
        let mut state = self.state.lock();
        entry(&mut state.running.samples, id).add(value);
    }

    fn level(&self, id: &Id, change: impl FnOnce(f64) -> f64) {
        let mut state = self.state.lock();
        let set_in = state.ended;
        let level = entry(&mut state.gauges, id);
        *level = Gauged {
            value: change(level.value),
            set_in,
        };
    }
}

fn entry<'m, V: Default>(map: &'m mut BTreeMap<Id, V>, id: &Id) -> &'m mut V {
    if !map.contains_key(id) {
        map.insert(id.clone(), V::default());
    }
    map.get_mut(id)
        .expect("it was inserted if it was not there")
}

/// The body of `/v1/metrics`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct SummaryReport {
    /// Counters of the interval.
    pub counters: Vec<Sampled>,
    /// Levels as they stand.
    pub gauges: Vec<GaugeLevel>,
    /// Always empty, as in Nomad.
    pub points: Vec<()>,
    /// Always empty: drover's gauges are 64-bit.
    pub precision_gauges: Vec<()>,
    /// Timings and sizes of the interval.
    pub samples: Vec<Sampled>,
    /// When the interval began.
    pub timestamp: String,
}

/// A counter or sample over one interval.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Sampled {
    count: u64,
    labels: BTreeMap<String, String>,
    max: f64,
    mean: f64,
    min: f64,
    name: String,
    rate: f64,
    stddev: f64,
    sum: f64,
}

impl Sampled {
    fn new((name, labels): &Id, a: &Aggregate, seconds: f64) -> Self {
        Self {
            count: a.count,
            labels: labels.clone(),
            max: a.max,
            mean: a.mean(),
            min: a.min,
            name: name.clone(),
            rate: a.sum / seconds,
            stddev: a.deviation(),
            sum: a.sum,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct GaugeLevel {
    labels: BTreeMap<String, String>,
    name: String,
    value: f64,
}

impl GaugeLevel {
    fn new((name, labels): &Id, value: f64) -> Self {
        Self {
            labels: labels.clone(),
            name: name.clone(),
            value,
        }
    }
}

/// What `metrics` calls.
pub(super) struct Recorder(pub(super) Arc<Summary>);

struct Cell {
    id: Id,
    summary: Arc<Summary>,
}

impl Recorder {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let host = self
            .0
            .host
            .iter()
            .map(|host| ("host".to_owned(), host.clone()));
        let labels = key
            .labels()
            .map(|l| (l.key().to_owned(), l.value().to_owned()))
            .chain(host)
            .collect();
        let id = (key.name().to_owned(), labels);
        Arc::new(Cell {
            id,
            summary: Arc::clone(&self.0),
        })
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.summary.count(&self.id, value as f64);
    }

    fn absolute(&self, value: u64) {
        // What was counted before the first look is of no interval.
        let before = {
            let mut state = self.summary.state.lock();
            state.absolute.insert(self.id.clone(), value)
        };
        if let Some(before) = before.filter(|before| value > *before) {
            self.summary.count(&self.id, (value - before) as f64);
        }
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.summary.level(&self.id, |level| level + value);
    }

    fn decrement(&self, value: f64) {
        self.summary.level(&self.id, |level| level - value);
    }

    fn set(&self, value: f64) {
        self.summary.level(&self.id, |_| value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.summary.sample(&self.id, value);
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
    fn the_time_has_nomads_form() {
        let (summary, _) = recorded();
        let time = summary.report().timestamp;
        assert!(
            time.ends_with(" +0000 UTC") && time.len() == 30 - 1,
            "{time}"
        );
    }
}
