//! The parts of a node's score and how they are added up.

use drover_events::model::{AllocMetric, NodeScoreMeta};

use super::explain::NodeVerdict;
use crate::cluster::{Cluster, NodeInfo, Usage};

/// The names of the parts, in the order of [`Score::parts`].
const NAMES: [&str; 6] = [
    "binpack",
    "devices",
    "job-anti-affinity",
    "node-reschedule-penalty",
    "node-affinity",
    "allocation-spread",
];

/// A part of a score, at its name's place. Devices (1) come with their ranking.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScorePart {
    /// How full the node becomes, or how empty it stays.
    Binpack = 0,
    /// Other allocations of the group are there.
    AntiAffinity = 2,
    /// An earlier attempt failed there.
    ReschedulePenalty = 3,
    /// Affinities of the job.
    Affinity = 4,
    /// Spreads of the job.
    Spread = 5,
}

/// A node's score in the making.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    parts: [f64; 6],
    shown: u8,
    sum: f64,
    count: u32,
}

impl Score {
    /// Adds a part that counts.
    pub(super) fn add(&mut self, part: ScorePart, value: f64) {
        self.show(part, value);
        self.sum += value;
        self.count += 1;
    }

    /// Shows a part that does not count.
    pub(super) fn show(&mut self, part: ScorePart, value: f64) {
        self.parts[part as usize] = value;
        self.shown |= 1 << part as u8;
    }

    /// As an explanation shows it.
    pub(super) fn verdict(&self) -> NodeVerdict {
        NodeVerdict::Scored {
            score: self.normal(),
            parts: self.named().collect(),
        }
    }

    /// The parts that are shown, with their names.
    fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        let names = NAMES.iter().enumerate();
        let shown = names.filter(|(i, _)| self.shown & 1 << i != 0);
        shown.map(|(i, name)| (*name, self.parts[i]))
    }

    /// The mean of the parts that count.
    pub(super) fn normal(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / f64::from(self.count)
        }
    }
}

/// How well a node is used once an allocation is added, from 0 to 1.
pub fn fit_score(info: &NodeInfo, used: &Usage, cpu: i64, memory: i64, spread: bool) -> f64 {
    let free = |used: i64, total: i64| {
        if total > 0 {
            1.0 - used as f64 / total as f64
        } else {
            0.0
        }
    };
    let total = 10_f64.powf(free(used.cpu + cpu, info.cpu))
        + 10_f64.powf(free(used.memory + memory, info.memory));
    let score = if spread { total - 2.0 } else { 20.0 - total };
    score.clamp(0.0, 18.0) / 18.0
}

/// The best five nodes that were looked at.
#[derive(Debug, Default)]
pub(super) struct Best {
    list: Vec<(u32, Score, f64)>,
}

impl Best {
    const KEPT: usize = 5;

    /// Takes note of a node.
    pub(super) fn note(&mut self, slot: u32, score: Score) {
        let normal = score.normal();
        if self.list.len() == Self::KEPT {
            if self
                .list
                .last()
                .is_some_and(|(_, _, worst)| *worst >= normal)
            {
                return;
            }
            self.list.pop();
        }
        let at = self.list.partition_point(|(_, _, other)| *other >= normal);
        self.list.insert(at, (slot, score, normal));
    }

    /// What was noted of a node.
    pub(super) fn of(&self, slot: u32) -> Option<NodeVerdict> {
        let noted = self.list.iter().find(|(noted, ..)| *noted == slot);
        noted.map(|(_, score, _)| score.verdict())
    }

    /// Writes them into a metric.
    pub(super) fn write(&self, cluster: &Cluster, metric: &mut AllocMetric) {
        if self.list.is_empty() {
            return;
        }
        let shown = self.list.iter().map(|(slot, score, normal)| {
            let info = &cluster.slot(*slot).info;
            NodeScoreMeta {
                node_id: info.as_ref().map(|i| i.node.id.clone()).unwrap_or_default(),
                scores: score.named().collect(),
                norm_score: *normal,
            }
        });
        metric.score_meta_data = shown.collect();
    }
}
