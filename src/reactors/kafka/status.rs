//! What the publisher's threads share with their readers: position, counts, the last error, and the
//! bell that wakes the reader.

use std::time::{Duration, Instant};

use drover_projections::Projections;
use metrics::{counter, gauge};
use parking_lot::{Condvar, Mutex};

use super::record::LEAST_LIMIT;
use super::report::PublisherReport;
use crate::config::KafkaConfig;
use crate::log::LogEngine;

/// What the threads say of themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct PublisherState {
    /// Whether a producer is connected and publishes.
    pub connected: bool,
    /// The last index whose publication is committed; `None` before the position is known.
    pub published: Option<u64>,
    /// Messages published by this server since it leads.
    pub messages: u64,
    /// Transactions (batches, without exactly-once) committed by this server since it leads.
    pub batches: u64,
    /// Events too large to publish: markers are in their place.
    pub oversized: u64,
    /// Events the log no longer held when their turn came.
    pub missed: u64,
    /// How long the topic keeps messages, milliseconds, -1 for ever; `None` where it was not
    /// queried.
    pub retention_ms: Option<i64>,
    /// Producers started by this server since it leads.
    pub sessions: u64,
    /// What went wrong last and has not gone right since, with what to check.
    pub error: String,
    /// What librdkafka reported last, from its own threads.
    pub hint: String,
    /// Whether the log has the error: once, until something is published again.
    pub reported: bool,
    /// The largest message that is tried.
    pub message_limit: usize,
    /// The largest message that configuration and topics allow, as far as the topics report it.
    pub max_limit: usize,
    /// The largest that is configured.
    configured: usize,
    /// Since when a message within the limit was refused as too large, and the limit is found by a
    /// binary search.
    pub too_large_since: Option<Instant>,
    /// When the brokers' presence was last checked.
    pub last_probe: Option<Instant>,
    stop: bool,
    rings: u64,
}

impl PublisherState {
    /// A message within the limit was refused: half of it is tried next. Markers fit into the
    /// least.
    pub(super) fn too_large(&mut self) {
        self.message_limit = (self.message_limit / 2).max(LEAST_LIMIT);
        self.too_large_since = Some(Instant::now());
    }

    /// Sets the largest message that the topics accept.
    pub(super) fn set_topic_limit(&mut self, bytes: usize) {
        let max_limit = self.configured.min(bytes).max(LEAST_LIMIT);
        if max_limit != self.max_limit || max_limit < self.message_limit {
            self.max_limit = max_limit;
            self.message_limit = max_limit;
            self.too_large_since = None;
        }
    }

    /// Brokers have answered.
    pub(super) fn set_connected(&mut self) {
        self.connected = true;
        self.error.clear();
        self.hint.clear();
    }
}

/// The state, shared.
pub(super) struct PublisherStatus {
    state: Mutex<PublisherState>,
    bell: Condvar,
    began: Instant,
}

impl PublisherStatus {
    pub(super) fn new(config: &KafkaConfig) -> Self {
        let state = PublisherState {
            message_limit: config.max_message_bytes,
            max_limit: config.max_message_bytes,
            configured: config.max_message_bytes,
            ..PublisherState::default()
        };
        report_published(0, 0);
        Self {
            state: Mutex::new(state),
            bell: Condvar::new(),
            began: Instant::now(),
        }
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut PublisherState) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// A batch of so many messages was published; so many of its events are markers.
    pub(super) fn count(&self, messages: u64, oversized: u64) {
        report_published(messages, oversized);
        let mut state = self.state.lock();
        state.messages += messages;
        state.oversized += oversized;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Wakes the threads that wait.
    pub(super) fn ring(&self) {
        self.state.lock().rings += 1;
        self.bell.notify_all();
    }

    /// Stops the threads.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.ring();
    }

    /// How often the bell rang.
    pub(super) fn rings(&self) -> u64 {
        self.state.lock().rings
    }

    /// Waits until the bell has rung more often than `heard`, or time is up.
    pub(super) fn wait_ring(&self, heard: u64, limit: Duration) {
        let mut state = self.state.lock();
        if state.rings == heard && !state.stop {
            self.bell.wait_for(&mut state, limit);
        }
    }

    /// Waits for this long unless stopped.
    pub(super) fn pause(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.stop && Instant::now() < end {
            self.bell.wait_until(&mut state, end);
        }
    }
}

/// Adds to the process's totals: unlike the state's, they go on when this server leads again.
fn report_published(messages: u64, oversized: u64) {
    counter!("drover.publisher.messages_total").increment(messages);
    counter!("drover.publisher.oversized_total").increment(oversized);
}

/// How far behind the publisher is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lag {
    /// Events applied and not published.
    pub events: u64,
    /// The age of the oldest of them.
    pub age: Duration,
}

/// What was seen of the publisher at once.
pub(super) struct StatusSnapshot {
    pub lag: Lag,
    pub state: PublisherState,
    /// How long this server has been publishing.
    pub since: Duration,
}

impl StatusSnapshot {
    /// Whether it lags, given whether it already did: a lag that was reported ends only with half
    /// of what began it, so that it does not end and begin with every batch.
    pub(super) fn lags(&self, config: &KafkaConfig, already: bool) -> bool {
        let Lag { events, age } = self.lag;
        let many = config.lag_warning_events;
        // While the position is not known, it is unknown whether it has caught up.
        let Some(_) = self.state.published else {
            return already || self.since >= config.lag_warning;
        };
        if already {
            let few = many == 0 || events < many.div_ceil(2);
            return events > 0 && !(age < config.lag_warning / 2 && few);
        }
        // A leader that has just begun is not late with older events.
        let late = age.min(self.since) >= config.lag_warning;
        events > 0 && (late || (many > 0 && events >= many))
    }

    /// Why it lags, in words.
    pub(super) fn reason(&self) -> &str {
        match self.state.error.as_str() {
            "" => "it is still catching up",
            error => error,
        }
    }
}

impl PublisherStatus {
    /// How far it is behind; sets the metrics.
    pub(super) fn see(
        &self,
        projections: &Projections,
        log: &LogEngine,
        now: i64,
    ) -> StatusSnapshot {
        let applied = projections.applied_index();
        let state = self.state.lock().clone();
        let published = state.published.unwrap_or(0).min(applied);
        let lag = Lag {
            events: applied - published,
            age: age(log, published, applied, now),
        };
        gauge!("drover.publisher.lag_events").set(lag.events as f64);
        gauge!("drover.publisher.lag_seconds").set(lag.age.as_secs_f64());
        gauge!("drover.publisher.published_index").set(published as f64);
        gauge!("drover.publisher.connected").set(f64::from(u8::from(state.connected)));
        StatusSnapshot {
            lag,
            state,
            since: self.began.elapsed(),
        }
    }

    /// The status for operators. `lagging_since` is the index of the event that reports it, or 0.
    pub(super) fn show(
        config: &KafkaConfig,
        seen: &StatusSnapshot,
        lagging: bool,
        lagging_since: u64,
    ) -> serde_json::Value {
        let StatusSnapshot { lag, state, .. } = seen;
        let shown = PublisherReport {
            connected: state.connected,
            published: state.published,
            messages: state.messages,
            batches: state.batches,
            oversized: state.oversized,
            missed: state.missed,
            retention_ms: state.retention_ms,
            sessions: state.sessions,
            error: state.error.clone(),
            lag: lag.events,
            lag_seconds: lag.age.as_secs_f64(),
            lagging,
            lagging_since,
            brokers: config.brokers.join(","),
            topic: config.topic.clone(),
            exactly_once: config.exactly_once,
            format: config.format.clone(),
            split: config.split,
        };
        serde_json::to_value(shown).unwrap_or_default()
    }
}

/// What is read of the log to find how old it is.
const LOOK: usize = 4 << 10;

/// The age of the oldest event that is not published; Raft's own have no time.
fn age(log: &LogEngine, published: u64, applied: u64, now: i64) -> Duration {
    if published >= applied {
        return Duration::ZERO;
    }
    let first = (published + 1).max(log.bounds().0);
    // A few suffice to find one with a time; what cannot be read is reported by the reader.
    let entries = log.read_range(first, (first + 8).min(applied + 1), LOOK);
    let times = entries.iter().flatten().map(|entry| entry.time);
    match times.filter(|time| *time > 0).min() {
        Some(time) => Duration::from_nanos(now.saturating_sub(time).max(0).unsigned_abs()),
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{TelemetryOptions, build};

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(published: Option<u64>, events: u64, age: u32, since: u32) -> StatusSnapshot {
        StatusSnapshot {
            lag: Lag {
                events,
                age: SECOND * age,
            },
            state: PublisherState {
                published,
                ..PublisherState::default()
            },
            since: SECOND * since,
        }
    }

    #[test]
    fn a_lag_begins_late_and_ends_once() {
        let config = KafkaConfig::default();
        let known = Some(7);
        assert!(!seen(known, 0, 0, 99).lags(&config, false));
        assert!(!seen(known, 5, 9, 99).lags(&config, false));
        assert!(seen(known, 5, 10, 99).lags(&config, false));
        assert!(
            !seen(known, 5, 3_600, 1).lags(&config, false),
            "a new leader"
        );
        assert!(seen(known, 5, 3_600, 1).lags(&config, true));
        assert!(seen(known, 5, 7, 99).lags(&config, true));
        assert!(!seen(known, 5, 4, 99).lags(&config, true));
        assert!(!seen(known, 0, 0, 99).lags(&config, true));
    }

    #[test]
    fn who_does_not_know_its_position_has_not_caught_up() {
        let config = KafkaConfig::default();
        assert!(!seen(None, 50, 3_600, 2).lags(&config, false));
        assert!(seen(None, 50, 3_600, 10).lags(&config, false));
        assert!(seen(None, 50, 0, 0).lags(&config, true));
    }

    #[test]
    fn a_lag_may_be_a_number_of_events() {
        let config = KafkaConfig {
            lag_warning_events: 1_000,
            ..KafkaConfig::default()
        };
        assert!(!seen(Some(1), 999, 1, 99).lags(&config, false));
        assert!(seen(Some(1), 1_000, 1, 99).lags(&config, false));
        assert!(seen(Some(1), 500, 1, 99).lags(&config, true));
        assert!(!seen(Some(1), 499, 1, 99).lags(&config, true));
    }

    #[test]
    fn what_was_published_counts_on_when_the_server_leads_again() {
        let (telemetry, recorder) = build(&TelemetryOptions::default());
        let total = |name: &str| {
            let (page, name) = (telemetry.prometheus(), format!("drover_publisher_{name} "));
            let value = page.lines().find_map(|line| line.strip_prefix(&*name));
            value.map(str::to_owned)
        };
        metrics::with_local_recorder(&recorder, || {
            let first = PublisherStatus::new(&KafkaConfig::default());
            assert_eq!(total("oversized_total").as_deref(), Some("0"));
            first.count(1_000, 3);
            let again = PublisherStatus::new(&KafkaConfig::default());
            again.count(5, 1);
            assert_eq!(
                again.with(|state| (state.messages, state.oversized)),
                (5, 1)
            );
        });
        assert_eq!(total("messages_total").as_deref(), Some("1005"));
        assert_eq!(total("oversized_total").as_deref(), Some("4"));
    }

    #[test]
    fn the_limit_is_what_topics_tell_and_searched_for_only_where_they_refuse_that() {
        let config = KafkaConfig::default();
        let shared = PublisherStatus::new(&config);
        let limit = || shared.with(|state| state.message_limit);
        assert_eq!(limit(), config.max_message_bytes);
        shared.with(|state| state.set_topic_limit(900_000));
        assert_eq!(limit(), 900_000);
        shared.with(PublisherState::too_large);
        assert_eq!(limit(), 450_000);
        // Another query gives the same limit: it stays what was found.
        shared.with(|state| state.set_topic_limit(900_000));
        assert_eq!(limit(), 450_000);
        // They were set to take more.
        shared.with(|state| state.set_topic_limit(2 << 20));
        assert_eq!(limit(), config.max_message_bytes);
        for _ in 0..40 {
            shared.with(PublisherState::too_large);
        }
        assert_eq!(limit(), LEAST_LIMIT, "a marker fits");
    }
}
