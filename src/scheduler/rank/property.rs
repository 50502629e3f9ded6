//! How the allocations of a job are distributed over the values of an attribute: for spreads and
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
    /// By slot: [`UNSEEN`], [`MISSING`], or the id of the node's value plus [`FIRST`].
    of_slot: Vec<u32>,
    ids: HashMap<String, u32>,
    /// The values by their ids.
    values: Vec<String>,
    /// The allocations by the ids of values.
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

    /// The id of the value that the node in a slot has; none if it has no such attribute, or the
    /// slot holds no node.
    pub(super) fn value_id(&mut self, cluster: &Cluster, slot: u32) -> Option<usize> {
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
                    let id = self.values.len() as u32 + FIRST;
                    self.ids.insert(value.to_owned(), id);
                    self.values.push(value.to_owned());
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
        if let Some(id) = self.value_id(cluster, slot) {
            self.counts[id] = (self.counts[id] + by).max(0);
            self.stale = true;
        }
    }

    /// How many allocations are on nodes with this value.
    pub(super) fn used(&self, value_id: usize) -> i64 {
        self.counts[value_id]
    }

    /// A value by its id.
    pub(super) fn value(&self, value_id: usize) -> &str {
        &self.values[value_id]
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
