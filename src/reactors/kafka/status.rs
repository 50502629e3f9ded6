//! What the publisher's threads and whoever looks at them share: position, counts, the last error,
//! and the bell that wakes the reader.

use std::time::{Duration, Instant};

use drover_projections::Projections;
use metrics::gauge;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use crate::config::KafkaConfig;
use crate::log::LogEngine;

/// What the threads say of themselves.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    /// Whether a producer is connected and publishes.
    pub connected: bool,
    /// The last index whose publication is committed; none before the position is known.
    pub published: Option<u64>,
    /// Messages published by this server since it leads.
    pub messages: u64,
    /// Transactions (batches, without exactly-once) committed by this server since it leads.
    pub batches: u64,
    /// Events too large to publish: markers are in their place.
    pub oversized: u64,
    /// Events the log no longer held when their turn came.
    pub missed: u64,
    /// Producers started by this server since it leads.
    pub sessions: u64,
    /// What went wrong last and has not gone right since, with what to check.
    pub error: String,
    /// What librdkafka said last, from its own threads.
    #[serde(skip)]
    pub hint: String,
    /// Whether the log has the error: once, until something is published again.
    #[serde(skip)]
    pub told: bool,
    /// The largest message that is tried; smaller than configured once a topic refused such ones.
    #[serde(skip)]
    pub message_limit: usize,
    #[serde(skip)]
    stop: bool,
    #[serde(skip)]
    rings: u64,
    #[serde(skip)]
    lagging_since: Option<Instant>,
}

/// The state, shared.
pub(super) struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

impl Shared {
    pub(super) fn new(config: &KafkaConfig) -> Self {
        let state = State {
            message_limit: config.max_message_bytes,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            bell: Condvar::new(),
        }
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Wakes whoever waits.
    pub(super) fn ring(&self) {
        self.state.lock().rings += 1;
        self.bell.notify_all();
    }

    /// Tells the threads to end.
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

    /// Waits for this long unless told to end.
    pub(super) fn pause(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.stop && Instant::now() < end {
            self.bell.wait_until(&mut state, end);
        }
    }
}

/// How far behind the publisher is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lag {
    /// Events applied and not published.
    pub events: u64,
    /// The age of the oldest of them, in seconds.
    pub seconds: f64,
}

impl Shared {
    /// The status for operators; sets the metrics, and says in the log when a lag begins and ends.
    pub(super) fn observe(
        &self,
        config: &KafkaConfig,
        projections: &Projections,
        log: &LogEngine,
        now: i64,
    ) -> serde_json::Value {
        let applied = projections.applied_index();
        let state = self.state.lock().clone();
        let published = state.published.unwrap_or(0).min(applied);
        let lag = Lag {
            events: applied - published,
            seconds: age(log, published, applied, now),
        };
        gauge!("nomad.event_publisher.lag").set(lag.events as f64);
        gauge!("nomad.event_publisher.lag_seconds").set(lag.seconds);
        gauge!("nomad.event_publisher.published").set(published as f64);
        gauge!("nomad.event_publisher.messages").set(state.messages as f64);
        gauge!("nomad.event_publisher.oversized").set(state.oversized as f64);
        gauge!("nomad.event_publisher.connected").set(f64::from(u8::from(state.connected)));
        let lagging = self.announce(config, lag, &state);
        let mut shown = serde_json::to_value(&state).unwrap_or_default();
        for (name, value) in [
            ("Lag", lag.events.into()),
            ("LagSeconds", lag.seconds.into()),
            ("Lagging", lagging.into()),
            ("Brokers", config.brokers.join(",").into()),
            ("Topic", config.topic.as_str().into()),
            ("ExactlyOnce", config.exactly_once.into()),
        ] {
            shown[name] = value;
        }
        shown
    }

    /// Whether it lags; the beginning and the end of a lag are logged once each.
    fn announce(&self, config: &KafkaConfig, lag: Lag, state: &State) -> bool {
        let lagging = lag.events > 0 && lag.seconds >= config.lag_warning.as_secs_f64();
        let since = self.state.lock().lagging_since;
        match since {
            None if lagging => {
                let why = match state.error.as_str() {
                    "" => "it is still catching up",
                    error => error,
                };
                self.state.lock().lagging_since = Some(Instant::now());
                tracing::warn!(
                    behind = lag.events,
                    oldest_seconds = lag.seconds as u64,
                    published = state.published,
                    why,
                    "the event publisher lags"
                );
            }
            Some(since) if !lagging => {
                self.state.lock().lagging_since = None;
                tracing::info!(
                    lagged = ?since.elapsed(),
                    published = state.published,
                    "the event publisher has caught up"
                );
            }
            _ => {}
        }
        lagging
    }
}

/// What is read of the log to find how old it is.
const LOOK: usize = 4 << 10;

/// The age in seconds of the oldest event that is not published; Raft's own have no time.
fn age(log: &LogEngine, published: u64, applied: u64, now: i64) -> f64 {
    if published >= applied {
        return 0.0;
    }
    let first = (published + 1).max(log.bounds().0);
    // A few suffice to find one with a time; what cannot be read is told by the reader.
    let entries = log.read_range(first, (first + 8).min(applied + 1), LOOK);
    let times = entries.iter().flatten().map(|entry| entry.time);
    match times.filter(|time| *time > 0).min() {
        Some(time) => now.saturating_sub(time).max(0) as f64 / 1e9,
        None => 0.0,
    }
}
