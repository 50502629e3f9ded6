//! What was decided again, beside what was committed.

use std::collections::BTreeMap;

use drover_events::codec::encode_map;
use drover_events::model::{Allocation, Evaluation};
use drover_events::plan::PlacedAlloc;
use drover_events::{EventKind, wire};

use super::Decision;
use crate::scheduler::{Outcome, Placement};

wire! {
    /// Whether the decision came out as it was committed.
    pub struct Comparison {
        /// Whether all that was committed is the same to the last bit.
        identical: bool = "Identical",
        /// How many parts of the plan and evaluations were compared.
        compared: u64 = "Compared",
        /// What differs, in words.
        differences: Vec<String> = "Differences",
        /// Allocations that were decided and not committed: their nodes had changed meanwhile.
        not_committed: Vec<String> = "NotCommitted",
    }
}

/// Lays an outcome beside what the log has of the decision.
pub(super) fn compare(decision: &Decision, outcome: &Outcome) -> Comparison {
    let mut comparison = Comparison::default();
    placements(decision, outcome, &mut comparison);
    stops(decision, outcome, &mut comparison);
    deployment(decision, outcome, &mut comparison);
    evaluations(decision, outcome, &mut comparison);
    comparison.identical = comparison.differences.is_empty() && comparison.compared > 0;
    comparison
}

impl Comparison {
    fn check(&mut self, what: &str, committed: &Allocation, decided: &Allocation) {
        self.compared += 1;
        if bytes(committed) != bytes(decided) {
            let (was, is) = (&committed.node_id, &decided.node_id);
            let how = match was == is {
                true => "differs in what it is given".to_owned(),
                false => format!("was placed on {was}, now on {is}"),
            };
            self.differences
                .push(format!("{what} {} {how}", committed.name));
        }
    }
}

/// An allocation as it is stored, without what is settled when it is committed.
fn bytes(alloc: &Allocation) -> Vec<u8> {
    let mut plain = alloc.clone();
    if alloc.create_index == 0 {
        plain.signing_key_id.clear();
    }
    encoded(&plain)
}

fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A value of the model always encodes; one that did not would equal nothing but another such.
    let _ = encode_map(&mut bytes, value, EventKind::PlanApplied);
    bytes
}

fn placements(decision: &Decision, outcome: &Outcome, comparison: &mut Comparison) {
    let id = |placement: &Placement| placement.alloc.id.clone();
    let decided = outcome.plan.placements.iter().map(|p| (id(p), p));
    let mut decided: BTreeMap<String, &Placement> = decided.collect();
    for PlacedAlloc {
        alloc,
        job_modify_index,
    } in decision.plans.iter().flat_map(|plan| &plan.placed)
    {
        match decided.remove(&alloc.id) {
            Some(placement) => {
                comparison.check("allocation", alloc, &placement.alloc);
                if placement.job_modify_index != *job_modify_index {
                    let text = format!("allocation {} is of another version", alloc.name);
                    comparison.differences.push(text);
                }
            }
            None => {
                let text = format!(
                    "allocation {} ({}) is not decided again",
                    alloc.name, alloc.id
                );
                comparison.compared += 1;
                comparison.differences.push(text);
            }
        }
    }
    let left = decided
        .into_values()
        .map(|placement| placement.alloc.name.clone());
    comparison.not_committed = left.collect();
}

fn stops(decision: &Decision, outcome: &Outcome, comparison: &mut Comparison) {
    let decided: BTreeMap<&str, &str> = outcome
        .plan
        .stops
        .iter()
        .map(|stop| (stop.alloc.id.as_str(), stop.description))
        .collect();
    for stop in decision.plans.iter().flat_map(|plan| &plan.stopped) {
        comparison.compared += 1;
        if decided.get(stop.id.as_str()) != Some(&stop.desired_description.as_str()) {
            let text = format!(
                "allocation {} was stopped: {}",
                stop.id, stop.desired_description
            );
            comparison.differences.push(text);
        }
    }
}

fn deployment(decision: &Decision, outcome: &Outcome, comparison: &mut Comparison) {
    let committed = decision
        .plans
        .iter()
        .find_map(|plan| plan.deployment.as_ref());
    if committed.is_none() && outcome.plan.deployment.is_none() {
        return;
    }
    comparison.compared += 1;
    let same = match (committed, &outcome.plan.deployment) {
        (Some(committed), Some(decided)) => encoded(committed) == encoded(decided),
        _ => false,
    };
    if !same {
        comparison
            .differences
            .push("the deployment differs".to_owned());
    }
}

/// The evaluation's own end and what it left behind, where they were committed.
fn evaluations(decision: &Decision, outcome: &Outcome, comparison: &mut Comparison) {
    let own = std::iter::once(&outcome.finished);
    let all = own.chain(&outcome.blocked).chain(&outcome.follow_ups);
    let decided: BTreeMap<&str, &Evaluation> = all.map(|eval| (eval.id.as_str(), eval)).collect();
    for eval in &decision.evals {
        comparison.compared += 1;
        let same = decided
            .get(eval.id.as_str())
            .is_some_and(|d| encoded(*d) == encoded(eval));
        if !same {
            comparison
                .differences
                .push(format!("evaluation {} ({}) differs", eval.id, eval.status));
        }
    }
}
