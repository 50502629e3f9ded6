//! Counts of what was looked at and why it was no good: the beginnings of an `AllocMetric`.

use std::collections::BTreeMap;

use drover_events::model::{AllocMetric, Resources, TaskGroup};

use crate::cluster::NodeInfo;
use crate::feasible::Missing;

/// How many nodes are named in reasons that name theirs: one decision looks at thousands.
const NAMED: usize = 10;

/// Counts for one search.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    evaluated: i64,
    filtered: i64,
    exhausted: i64,
    named: usize,
    class_filtered: BTreeMap<String, i64>,
    constraint_filtered: BTreeMap<String, i64>,
    class_exhausted: BTreeMap<String, i64>,
    dimension_exhausted: BTreeMap<String, i64>,
}

impl Tally {
    /// A node was looked at.
    pub(super) fn evaluate(&mut self) {
        self.evaluated += 1;
    }

    /// A node may not run the group.
    pub(super) fn filter(&mut self, info: &NodeInfo, reason: &str) {
        self.filtered += 1;
        bump(&mut self.class_filtered, &info.node.node_class);
        bump(&mut self.constraint_filtered, reason);
    }

    /// A node has not the volumes.
    pub(super) fn filter_for(&mut self, info: &NodeInfo, missing: &Missing) {
        let reason = match &missing.of_others {
            Some(others) if self.named >= NAMED => others,
            Some(_) => {
                self.named += 1;
                &missing.reason
            }
            None => &missing.reason,
        };
        self.filter(info, reason);
    }

    /// A node has too little of something.
    pub(super) fn exhaust(&mut self, info: &NodeInfo, dimension: &str) {
        self.exhausted += 1;
        bump(&mut self.class_exhausted, &info.node.node_class);
        bump(&mut self.dimension_exhausted, dimension);
    }

    /// Why the one node that was looked at is no good: true if it may not run the group, false if
    /// it has too little of something, and what.
    pub(super) fn reason(self) -> (bool, String) {
        let exhausted = self.exhausted > 0;
        let from = match exhausted {
            true => self.dimension_exhausted,
            false => self.constraint_filtered,
        };
        (!exhausted, from.into_keys().next().unwrap_or_default())
    }

    /// As Nomad shows it; the caller adds what is the same for the whole evaluation.
    pub(super) fn metric(self) -> AllocMetric {
        AllocMetric {
            nodes_evaluated: self.evaluated,
            nodes_filtered: self.filtered,
            nodes_exhausted: self.exhausted,
            class_filtered: map(self.class_filtered),
            constraint_filtered: map(self.constraint_filtered),
            class_exhausted: map(self.class_exhausted),
            dimension_exhausted: map(self.dimension_exhausted),
            ..AllocMetric::default()
        }
    }
}

fn bump(map: &mut BTreeMap<String, i64>, key: &str) {
    if key.is_empty() {
        return;
    }
    if let Some(count) = map.get_mut(key) {
        *count += 1;
    } else {
        map.insert(key.to_owned(), 1);
    }
}

fn map(counts: BTreeMap<String, i64>) -> drover_events::gojson::Map<i64> {
    if counts.is_empty() {
        Default::default()
    } else {
        counts.into()
    }
}

/// Adds what a group requests of the dimensions that were short, task by task, once for each
/// allocation that found no place.
pub fn add_exhausted(metric: &mut AllocMetric, group: &TaskGroup) {
    let short = |name: &str| metric.dimension_exhausted.get(name).is_some_and(|n| *n > 0);
    let (cpu, memory, disk) = (short("cpu"), short("memory"), short("disk"));
    if !(cpu || memory || disk) {
        return;
    }
    let group_disk = group.ephemeral_disk.as_ref().map_or(0, |d| d.size_mb);
    for task in &group.tasks {
        let requested = task.resources.clone().unwrap_or_default();
        let sums = metric.resources_exhausted.to_mut().entry(task.name.clone());
        let sum: &mut Resources = sums.or_default();
        if cpu {
            sum.cpu = sum.cpu.saturating_add(requested.cpu);
        }
        if memory {
            sum.memory_mb = sum.memory_mb.saturating_add(requested.memory_mb);
        }
        if disk {
            sum.disk_mb = sum.disk_mb.saturating_add(group_disk);
        }
    }
}
