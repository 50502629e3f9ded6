//! The body of `/v1/metrics`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Id;
use super::series::Aggregate;

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
    pub(super) fn new((name, labels): &Id, a: &Aggregate, seconds: f64) -> Self {
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
    pub(super) fn new((name, labels): &Id, value: f64) -> Self {
        Self {
            labels: labels.clone(),
            name: name.clone(),
            value,
        }
    }
}
