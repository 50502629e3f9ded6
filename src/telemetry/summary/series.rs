//! What is recorded of one series: the cells that counters, levels and samples write to.

use std::sync::Arc;

use metrics::{CounterFn, GaugeFn, HistogramFn, Key};
use metrics_util::registry::Storage;
use parking_lot::Mutex;

/// What an interval holds of one counter or sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Aggregate {
    pub(super) count: u64,
    pub(super) sum: f64,
    squares: f64,
    pub(super) min: f64,
    pub(super) max: f64,
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

    pub(super) fn merge(&mut self, other: &Self) {
        (self.min, self.max) = match self.count {
            0 => (other.min, other.max),
            _ => (self.min.min(other.min), self.max.max(other.max)),
        };
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// The sample standard deviation, 0 for fewer than two values.
    pub(super) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        ((n * self.squares - self.sum * self.sum).max(0.0) / (n * (n - 1.0))).sqrt()
    }
}

/// What a counter or sample gathers in the running interval.
#[derive(Debug, Default)]
pub(super) struct RunningAggregate {
    pub(super) aggregate: Aggregate,
    /// The most that an absolute counter was.
    absolute: Option<u64>,
    /// Intervals in which nothing was recorded, since something was.
    idle: u64,
}

impl RunningAggregate {
    /// Ends the interval: what it held.
    pub(super) fn end(&mut self) -> Aggregate {
        let ended = std::mem::take(&mut self.aggregate);
        self.idle = if ended.count == 0 { self.idle + 1 } else { 0 };
        ended
    }
}

/// A counter or a sample: each has a lock of its own, for many threads record at once.
#[derive(Debug, Default)]
pub(super) struct AggregateCell(pub(super) Mutex<RunningAggregate>);

impl AggregateCell {
    /// Whether something was recorded in the last so many intervals, or in the running one. What
    /// was counted before is still known to one that is absolute.
    pub(super) fn is_live(&self, intervals: u64) -> bool {
        let running = self.0.lock();
        running.idle < intervals || running.absolute.is_some() || running.aggregate.count > 0
    }
}

/// A level: its value and the intervals that have ended since it was last set; none before it is.
#[derive(Debug, Default)]
pub(super) struct LevelCell(pub(super) Mutex<Option<(f64, u64)>>);

/// Makes the cells of new series.
#[derive(Debug)]
pub(super) struct SummaryStorage;

impl Storage<Key> for SummaryStorage {
    type Counter = Arc<AggregateCell>;
    type Gauge = Arc<LevelCell>;
    type Histogram = Arc<AggregateCell>;

    fn counter(&self, _: &Key) -> Self::Counter {
        Arc::default()
    }

    fn gauge(&self, _: &Key) -> Self::Gauge {
        Arc::default()
    }

    fn histogram(&self, _: &Key) -> Self::Histogram {
        Arc::default()
    }
}

impl CounterFn for AggregateCell {
    fn increment(&self, value: u64) {
        self.0.lock().aggregate.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        let mut gathering = self.0.lock();
        // What was counted before the first look is of no interval. Of two who look at once the
        // later one may have seen less.
        let before = gathering.absolute.unwrap_or(value);
        gathering.absolute = Some(before.max(value));
        if value > before {
            gathering.aggregate.add((value - before) as f64);
        }
    }
}

impl LevelCell {
    /// Ends an interval.
    pub(super) fn end(&self) {
        if let Some((_, idle)) = &mut *self.0.lock() {
            *idle += 1;
        }
    }

    /// Whether it was set in the last so many intervals, or in the running one.
    pub(super) fn is_set(&self, intervals: u64) -> bool {
        self.0.lock().is_some_and(|(_, idle)| idle <= intervals)
    }

    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut level = self.0.lock();
        let before = level.map_or(0.0, |(value, _)| value);
        *level = Some((change(before), 0));
    }
}

impl GaugeFn for LevelCell {
    fn increment(&self, value: f64) {
        self.change(|level| level + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|level| level - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for AggregateCell {
    fn record(&self, value: f64) {
        self.0.lock().aggregate.add(value);
    }
}
