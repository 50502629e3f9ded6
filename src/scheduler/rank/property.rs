//! How the allocations of a job lie over the values of an attribute: for spreads and
//! `distinct_property`.

use hashbrown::HashMap;

use crate::cluster::{Cluster, NodeInfo};
use crate::feasible::resolve;

const UNSEEN: u32 = 0;
const MISSING: u32 = 1;
const FIRST: u32 = 2;

/// Counts of allocations by the value their node has for an attribute.
#[derive(Clone, Debug, Default)]
pub(super) struct Property {
    attribute: String,
    of_slot: Vec<u32>,
    ids: HashMap<String, u32>,
    names: Vec<String>,
    counts: Vec<i64>,
    extremes: Option<(i64, i64)>,
    stale: bool,
}

impl Property {
    /// Starts with no allocation counted.
    pub(super) fn new(attribute: &str, slots: usize) -> Self {
        Self {
            attribute: attribute.to_owned(),
            of_slot: vec![UNSEEN; slots],
            ..Self::default()
        }
    }

    pub(super) fn attribute(&self) -> &str {
        &self.attribute
    }

    /// The number of the value a node has; none if it has no such attribute.
    pub(super) fn value(&mut self, cluster: &Cluster, slot: u32) -> Option<usize> {
        let known = self.of_slot[slot as usize];
        let id = if known == UNSEEN {
            self.look_up(slot, cluster.slot(slot).info.as_deref()?)
        } else {
            known
        };
        (id >= FIRST).then(|| (id - FIRST) as usize)
    }

    fn look_up(&mut self, slot: u32, info: &NodeInfo) -> u32 {
        let id = match resolve(&self.attribute, &info.node) {
            None => MISSING,
            Some(value) => match self.ids.get(value) {
                Some(id) => *id,
                None => {
                    let id = self.names.len() as u32 + FIRST;
                    self.ids.insert(value.to_owned(), id);
                    self.names.push(value.to_owned());
                    self.counts.push(0);
                    id
                }
            },
        };
        self.of_slot[slot as usize] = id;
        id
    }

    /// Counts an allocation on a node, or takes one away.
    pub(super) fn count(&mut self, cluster: &Cluster, slot: u32, by: i64) {
        if let Some(value) = self.value(cluster, slot) {
            self.counts[value] = (self.counts[value] + by).max(0);
            self.stale = true;
        }
    }

    /// How many allocations lie on nodes with this value.
    pub(super) fn used(&self, value: usize) -> i64 {
        self.counts[value]
    }

    /// A value's name.
    pub(super) fn name(&self, value: usize) -> &str {
        &self.names[value]
    }

    /// The lowest and the highest count among values that are used at all.
    pub(super) fn extremes(&mut self) -> Option<(i64, i64)> {
        if self.stale {
            self.stale = false;
            let used = self.counts.iter().filter(|count| **count > 0);
            let (min, max) = used.fold((i64::MAX, 0), |(min, max), count| {
                (min.min(*count), max.max(*count))
            });
            self.extremes = (max > 0).then_some((min, max));
        }
        self.extremes
    }
}
