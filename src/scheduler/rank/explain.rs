//! What a search would say of every node: recorded only when a decision is made again to be
//! explained.
//!
//! A search stops at the first few good nodes. For an explanation every node of the cluster is
//! weighed on a copy of what the search keeps for its group, at the state the search found, so that
//! the search itself continues as it did.

use std::collections::BTreeSet;

use drover_events::model::status::{ALL_NODE_POOL, node};

use super::group::GroupState;
use super::score::Best;
use super::stack::Stack;
use super::tally::Tally;
use crate::cluster::NodeInfo;
use crate::feasible::glob_matches;

/// How many reports of nodes are kept beyond the first and the failed search of each group.
const REPORTS: usize = 100_000;

/// Why a node was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalStep {
    /// It takes nothing now, or is not one of the job's: status, eligibility, pool, datacenter.
    Outside,
    /// It may not run the group: drivers, constraints, devices, networks, distinctness.
    Infeasible,
    /// It has too few resources.
    Exhausted,
}

impl RefusalStep {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Infeasible => "infeasible",
            Self::Exhausted => "exhausted",
        }
    }
}

/// What there is to say of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeVerdict {
    /// It was good enough: its score, and the parts that it is made of.
    Scored {
        /// The mean of the parts that count.
        score: f64,
        /// Name and value of each part.
        parts: Vec<(&'static str, f64)>,
    },
    /// It was not.
    Refused {
        /// At which step.
        step: RefusalStep,
        /// Why.
        reason: String,
    },
}

/// One node in a search.
#[derive(Clone, Debug)]
pub struct NodeReport {
    pub node_id: String,
    pub node_name: String,
    /// Whether the search came as far as this node.
    pub reached: bool,
    /// The verdict on the node.
    pub verdict: NodeVerdict,
}

/// One search for a place, or for system jobs all those of a group.
#[derive(Clone, Debug)]
pub struct Search {
    pub group: String,
    /// The nodes that were taken.
    pub chosen: Vec<String>,
    /// How many nodes the search came to.
    pub evaluated: i64,
    /// Every node, in the order of their ids.
    pub nodes: Vec<NodeReport>,
    /// Whether it was about nodes that were named to it.
    named: bool,
}

/// Searches, as they are recorded.
#[derive(Debug, Default)]
pub(super) struct SearchRecord {
    searches: Vec<Search>,
    reports: usize,
}

impl SearchRecord {
    fn wants(&self, group: &str, failed: bool) -> bool {
        failed
            || self.reports < REPORTS
            || !self.searches.iter().any(|search| search.group == group)
    }

    fn keep(&mut self, search: Search) {
        self.reports += search.nodes.len();
        let same = |last: &&mut Search| last.named && search.named && last.group == search.group;
        match self.searches.last_mut().filter(same) {
            Some(last) => {
                last.chosen.extend(search.chosen);
                last.evaluated += search.evaluated;
                last.nodes.extend(search.nodes);
            }
            None => self.searches.push(search),
        }
    }
}

/// How a search went.
pub(super) struct Went<'a> {
    pub(super) penalty: &'a BTreeSet<u32>,
    pub(super) only: Option<u32>,
    pub(super) chosen: Option<u32>,
    /// Where in the order of the nodes it began.
    pub(super) from: usize,
    pub(super) evaluated: i64,
    pub(super) best: &'a Best,
}

impl Stack<'_> {
    /// From here on every search is recorded.
    pub fn record(&mut self) {
        self.record = Some(Box::default());
    }

    /// What was recorded; nothing if it was not requested.
    pub fn take_searches(&mut self) -> Vec<Search> {
        let Some(record) = self.record.take() else {
            return Vec::new();
        };
        let mut searches = record.searches;
        for search in searches.iter_mut().filter(|search| search.named) {
            self.complete(search);
        }
        searches
    }

    /// Records a search that has just ended, before the plan takes what it found.
    pub(super) fn note(&mut self, group: &GroupState, went: &Went<'_>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        if record.wants(&group.group.name, went.chosen.is_none()) {
            let nodes = self.reports(group, went);
            let id = |slot: u32| {
                self.cluster
                    .slot(slot)
                    .info
                    .as_ref()
                    .map(|i| i.node.id.clone())
            };
            record.keep(Search {
                group: group.group.name.clone(),
                chosen: went.chosen.and_then(id).into_iter().collect(),
                evaluated: went.evaluated,
                nodes,
                named: went.only.is_some(),
            });
        }
        self.record = Some(record);
    }

    fn reports(&mut self, group: &GroupState, went: &Went<'_>) -> Vec<NodeReport> {
        let mut scratch = group.clone();
        let of_job = self.job_level.clone();
        let reached = self.reached(went);
        let all = self.cluster.by_node_id().to_vec();
        let slots = went.only.map_or(all, |slot| vec![slot]);
        let mut reports = Vec::with_capacity(slots.len());
        for slot in slots {
            let Some(info) = self.cluster.slot(slot).info.clone() else {
                continue;
            };
            let verdict = match (self.outside(&info), went.best.of(slot)) {
                (Some(reason), _) => refused(RefusalStep::Outside, reason),
                (None, Some(score)) => score,
                (None, None) => {
                    scratch.forget(slot, group);
                    self.job_level.forget();
                    self.weigh(&mut scratch, slot, went.penalty)
                }
            };
            reports.push(NodeReport {
                node_id: info.node.id.clone(),
                node_name: info.node.name.clone(),
                reached: reached.contains(&slot),
                verdict,
            });
        }
        self.job_level = of_job;
        reports
    }

    fn weigh(
        &mut self,
        scratch: &mut GroupState,
        slot: u32,
        penalty: &BTreeSet<u32>,
    ) -> NodeVerdict {
        let mut tally = Tally::default();
        match self.candidate(scratch, slot, penalty, &mut tally) {
            Some(score) => score.verdict(),
            None => match tally.reason() {
                (true, reason) => refused(RefusalStep::Infeasible, reason),
                (false, reason) => refused(RefusalStep::Exhausted, reason),
            },
        }
    }

    /// The nodes a search came to: it goes round from where the one before it ended.
    fn reached(&self, went: &Went<'_>) -> BTreeSet<u32> {
        if let Some(slot) = went.only {
            return [slot].into();
        }
        let count = usize::try_from(went.evaluated)
            .unwrap_or(0)
            .min(self.nodes.len());
        let round = self.nodes.iter().cycle().skip(went.from);
        round.take(count).copied().collect()
    }

    /// Why a node is not among those that are searched.
    fn outside(&self, info: &NodeInfo) -> Option<String> {
        let (node, job) = (&info.node, &self.job);
        if node.status != node::READY {
            return Some(format!("node is {}", node.status));
        }
        if node.drain_strategy.is_some() {
            return Some("node is draining".to_owned());
        }
        if !info.ready {
            return Some("node is not eligible for scheduling".to_owned());
        }
        if job.node_pool != ALL_NODE_POOL && job.node_pool != node.node_pool {
            let (its, wanted) = (&node.node_pool, &job.node_pool);
            return Some(format!("node is in pool {its:?}, the job in {wanted:?}"));
        }
        let suits = |pattern: &String| glob_matches(pattern, &node.datacenter);
        if !job.datacenters.iter().any(suits) {
            return Some(format!(
                "datacenter {:?} is not one of the job's",
                node.datacenter
            ));
        }
        None
    }

    /// Adds the nodes that the search did not reach.
    fn complete(&self, search: &mut Search) {
        let known: BTreeSet<String> = search.nodes.iter().map(|n| n.node_id.clone()).collect();
        for slot in self.cluster.by_node_id() {
            let Some(info) = &self.cluster.slot(*slot).info else {
                continue;
            };
            if known.contains(&info.node.id) {
                continue;
            }
            let here = || "nothing more of the group was wanted here".to_owned();
            let reason = self.outside(info).unwrap_or_else(here);
            search.nodes.push(NodeReport {
                node_id: info.node.id.clone(),
                node_name: info.node.name.clone(),
                reached: false,
                verdict: refused(RefusalStep::Outside, reason),
            });
        }
        search.nodes.sort_by(|a, b| a.node_id.cmp(&b.node_id));
    }
}

fn refused(step: RefusalStep, reason: String) -> NodeVerdict {
    NodeVerdict::Refused { step, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_searches_the_first_and_the_failed_of_each_group_are_kept() {
        let search = Search {
            group: "g".into(),
            chosen: Vec::new(),
            evaluated: 0,
            nodes: Vec::new(),
            named: false,
        };
        for (reports, group, failed, wanted) in [
            (REPORTS - 1, "g", false, true),
            (REPORTS, "g", false, false),
            (REPORTS, "g", true, true),
            (REPORTS, "other", false, true),
        ] {
            let record = SearchRecord {
                searches: vec![search.clone()],
                reports,
            };
            let wants = record.wants(group, failed);
            assert_eq!(wants, wanted, "{reports} {group} failed: {failed}");
        }
    }
}
