//! How the publisher fares, as operators read it, and the command line of a program without Kafka
//! too.

use serde::{Deserialize, Serialize};

/// The status of the publisher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PublisherReport {
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
    /// Events applied and not published.
    pub lag: u64,
    /// The age of the oldest of them.
    pub lag_seconds: f64,
    pub lagging: bool,
    /// The index of the event that reported the lag; 0 while none is reported.
    pub lagging_since: u64,
    pub brokers: String,
    pub topic: String,
    pub exactly_once: bool,
    pub format: String,
    pub split: bool,
}
