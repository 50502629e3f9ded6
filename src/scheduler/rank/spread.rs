//! Spreads: a better score for nodes that bring a group closer to the spread its job requests.

use std::collections::BTreeMap;

use drover_events::model::{Spread, TaskGroup};

use super::property::Property;
use crate::cluster::Cluster;

/// All spreads of one group.
#[derive(Clone, Debug)]
pub(super) struct Spreads {
    list: Vec<OneSpread>,
    sum_of_weights: f64,
    lowest: f64,
}

#[derive(Clone, Debug)]
struct OneSpread {
    property: Property,
    weight: f64,
    desired: BTreeMap<String, f64>,
    rest: Option<f64>,
}

impl Spreads {
    /// The group's own spreads, then the job's.
    pub(super) fn new(group: &TaskGroup, of_job: &[Spread], slots: usize) -> Self {
        let all = group.spreads.iter().chain(of_job);
        let list: Vec<OneSpread> = all
            .map(|spread| {
                let total = group.count as f64;
                let mut desired = BTreeMap::new();
                let (mut sum, mut percent) = (0.0, 0);
                for target in &spread.spread_target {
                    let count = f64::from(target.percent) / 100.0 * total;
                    sum += count;
                    percent += u32::from(target.percent);
                    desired.insert(target.value.clone(), count);
                }
                let mut rest = desired.remove("*");
                // The sum of parts that make up all there is may be a little less than that.
                if (1..100).contains(&percent) {
                    rest = Some(total - sum);
                }
                OneSpread {
                    property: Property::new(&spread.attribute, slots),
                    weight: f64::from(spread.weight),
                    desired,
                    rest,
                }
            })
            .collect();
        let sum_of_weights = list.iter().map(|s| s.weight).sum();
        Self {
            list,
            sum_of_weights,
            lowest: -1.0,
        }
    }

    /// As it was before any node was weighed for this search.
    pub(super) fn weigh_as(&mut self, other: &Self) {
        self.lowest = other.lowest;
    }

    /// Whether there is no spread.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Counts an allocation of the group on a node, or takes one away.
    pub(super) fn count(&mut self, cluster: &Cluster, slot: u32, by: i64) {
        for spread in &mut self.list {
            spread.property.count(cluster, slot, by);
        }
    }

    /// The score of one more allocation on a node (`allocation-spread`).
    pub(super) fn score(&mut self, cluster: &Cluster, slot: u32) -> f64 {
        let mut total = 0.0;
        for spread in &mut self.list {
            let Some(value_id) = spread.property.value_id(cluster, slot) else {
                total -= 1.0;
                continue;
            };
            if spread.desired.is_empty() && spread.rest.is_none() {
                total += even(&mut spread.property, value_id);
                continue;
            }
            let value = spread.property.value(value_id);
            let Some(desired) = spread.desired.get(value).copied().or(spread.rest) else {
                total -= 1.0;
                continue;
            };
            if desired == 0.0 {
                total += self.lowest;
                continue;
            }
            let used = spread.property.used(value_id) as f64 + 1.0;
            let boost = (desired - used) / desired * (spread.weight / self.sum_of_weights);
            total += boost;
            self.lowest = self.lowest.min(boost);
        }
        total
    }
}

/// Without targets every value is to have the same number.
fn even(property: &mut Property, value_id: usize) -> f64 {
    let Some((min, max)) = property.extremes() else {
        return 0.0;
    };
    let here = property.used(value_id);
    if here != min {
        (min - here) as f64 / min as f64
    } else if min == max {
        -1.0
    } else {
        (max - min) as f64 / min as f64
    }
}
