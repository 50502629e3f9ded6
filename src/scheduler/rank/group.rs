//! What the search keeps for one group during an evaluation.

use drover_events::model::{Affinity, Constraint, Job, TaskGroup};

use super::ask::GroupAsk;
use super::property::Property;
use super::spread::Spreads;
use crate::cluster::Cluster;
use crate::feasible::{Level, OperandCache, VolumeAsks, holds};

/// A limit on how many allocations may share a value of an attribute.
#[derive(Clone, Debug)]
pub(super) struct Distinct {
    pub property: Property,
    pub allowed: i64,
    /// Counts the whole job, not only the group.
    pub of_job: bool,
}

/// One group's part of the search.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub group: TaskGroup,
    pub ask: GroupAsk,
    pub level: Level,
    pub volumes: VolumeAsks,
    /// Live allocations of the group by slot.
    pub here: Vec<u16>,
    pub distinct_hosts: bool,
    pub distinct: Vec<Distinct>,
    pub spreads: Spreads,
    pub affinities: Affinities,
    /// Fit scores by slot, NaN until worked out; one is dropped when its node's use changes.
    pub fit: Vec<f64>,
    /// Nodes that were found to suit but for volumes, by slot: nothing of it changes during an
    /// evaluation.
    pub suits: Vec<bool>,
}

impl GroupState {
    pub(super) fn new(job: &Job, group: &TaskGroup, slots: usize, oversubscription: bool) -> Self {
        let of_group = group
            .constraints
            .iter()
            .chain(group.tasks.iter().flat_map(|t| t.constraints.iter()));
        let distinct = job
            .constraints
            .iter()
            .map(|c| (c, true))
            .chain(of_group.clone().map(|c| (c, false)))
            .filter(|(c, _)| c.operand == "distinct_property")
            .map(|(c, of_job)| Distinct {
                property: Property::new(&c.l_target, slots),
                allowed: c.r_target.parse().unwrap_or(1),
                of_job,
            })
            .collect();
        Self {
            group: group.clone(),
            ask: GroupAsk::new(group, oversubscription),
            level: Level::of_group(group),
            volumes: VolumeAsks::new((job.namespace.clone(), job.id.clone()), group),
            here: vec![0; slots],
            distinct_hosts: of_group.clone().any(is_distinct_hosts),
            distinct,
            spreads: Spreads::new(group, &job.spreads, slots),
            affinities: Affinities::new(job, group, slots),
            fit: vec![f64::NAN; slots],
            suits: vec![false; slots],
        }
    }

    /// Forgets what is known of a node and its class, so that it is weighed anew as `before` was.
    pub(super) fn forget(&mut self, slot: u32, before: &Self) {
        let at = slot as usize;
        self.level.forget();
        self.spreads.weigh_as(&before.spreads);
        (self.suits[at], self.fit[at]) = (false, f64::NAN);
    }

    /// Counts one of the group's allocations on a node, or takes one away.
    pub(super) fn count(&mut self, cluster: &Cluster, slot: u32, by: i64) {
        let here = &mut self.here[slot as usize];
        *here = here.saturating_add_signed(by as i16);
        self.spreads.count(cluster, slot, by);
    }

    /// Why a limit on a shared value forbids a node.
    pub(super) fn distinct_reason(&mut self, cluster: &Cluster, slot: u32) -> Option<String> {
        for distinct in &mut self.distinct {
            let Some(value_id) = distinct.property.value_id(cluster, slot) else {
                return Some(format!(
                    "missing property \"{}\"",
                    distinct.property.attribute()
                ));
            };
            let used = distinct.property.used(value_id);
            if used >= distinct.allowed {
                let attribute = distinct.property.attribute();
                let value = distinct.property.value(value_id);
                return Some(format!(
                    "distinct_property: {attribute}={value} used by {used} allocs"
                ));
            }
        }
        None
    }
}

/// Whether a constraint requires one allocation on each node.
pub(super) fn is_distinct_hosts(constraint: &Constraint) -> bool {
    constraint.operand == "distinct_hosts" && constraint.r_target != "false"
}

/// The affinities of a job, a group and its tasks, with their sum for each slot.
#[derive(Clone, Debug)]
pub(super) struct Affinities {
    list: Vec<(Constraint, f64)>,
    sum_of_weights: f64,
    known: Vec<f64>,
}

impl Affinities {
    fn new(job: &Job, group: &TaskGroup, slots: usize) -> Self {
        let tasks = group.tasks.iter().flat_map(|t| t.affinities.iter());
        let all = job.affinities.iter().chain(&group.affinities).chain(tasks);
        let list: Vec<(Constraint, f64)> = all.map(as_constraint).collect();
        Self {
            sum_of_weights: list.iter().map(|(_, weight)| weight.abs()).sum(),
            known: if list.is_empty() {
                Vec::new()
            } else {
                vec![f64::NAN; slots]
            },
            list,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The share of the weights that a node matches, from -1 to 1.
    pub(super) fn score(
        &mut self,
        cluster: &Cluster,
        slot: u32,
        operands: &mut OperandCache,
    ) -> f64 {
        let known = self.known[slot as usize];
        if !known.is_nan() {
            return known;
        }
        let Some(info) = &cluster.slot(slot).info else {
            return 0.0;
        };
        let matched: f64 = self
            .list
            .iter()
            .filter(|(constraint, _)| holds(constraint, &info.node, operands))
            .map(|(_, weight)| weight)
            .sum();
        let score = if self.sum_of_weights > 0.0 {
            matched / self.sum_of_weights
        } else {
            0.0
        };
        self.known[slot as usize] = score;
        score
    }
}

fn as_constraint(affinity: &Affinity) -> (Constraint, f64) {
    let constraint = Constraint {
        l_target: affinity.l_target.clone(),
        r_target: affinity.r_target.clone(),
        operand: affinity.operand.clone(),
    };
    (constraint, f64::from(affinity.weight))
}
