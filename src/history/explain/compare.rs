//! What was decided again, beside what was committed.
//!
//! Compared are all parts that a decision has: allocations placed, stopped and preempted, the
//! deployment and the statuses of deployments, and evaluations. Where the evaluation ended as it
//! was decided, all of its plan was committed, so nothing may be missing on either side. Else nodes
//! had changed meanwhile, and parts of the plan that are missing for them are shown as not
//! committed.

use std::collections::BTreeMap;

use drover_events::codec::encode_map;
use drover_events::model::{Deployment, DeploymentStatusUpdate, Evaluation};
use drover_events::plan::{PlacedAlloc, PlanApplied, PreemptedAlloc, StoppedAlloc};
use drover_events::{EventKind, wire};

use super::Decision;
use crate::scheduler::{Outcome, Plan};

wire! {
    /// Whether the decision came out as it was committed.
    pub struct Comparison {
        /// Whether all that was committed is the same to the last bit.
        identical: bool = "Identical",
        /// How many parts of the plan and evaluations were compared.
        compared: u64 = "Compared",
        /// What differs, in words.
        differences: Vec<String> = "Differences",
        /// Allocations that were decided (to be placed, stopped or preempted) and not committed:
        /// their nodes had changed meanwhile.
        not_committed: Vec<String> = "NotCommitted",
    }
}

/// A part of a decision: what it is called, on which node it is, and all that it says.
struct DecisionPart {
    name: String,
    node: String,
    bytes: Vec<u8>,
}

/// Parts of one sort, by the ids of what they are about.
type DecisionParts = BTreeMap<String, DecisionPart>;

fn part<T: serde::Serialize>(
    id: &str,
    name: &str,
    node: &str,
    value: &T,
) -> (String, DecisionPart) {
    let part = DecisionPart {
        name: name.to_owned(),
        node: node.to_owned(),
        bytes: encoded(value),
    };
    (id.to_owned(), part)
}

fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A value of the model always encodes; one that did not would equal nothing but another such.
    let _ = encode_map(&mut bytes, value, EventKind::PlanApplied);
    bytes
}

/// Lays an outcome beside what the log has of the decision. `given_up` are the evaluations of one
/// that was given up, because too many of its plans were refused.
pub(super) fn compare(
    decision: &Decision,
    outcome: &Outcome,
    given_up: &[Evaluation],
) -> Comparison {
    let mut comparison = Comparison::default();
    let finished = encoded(&outcome.finished);
    let whole = decision.evals.iter().any(|eval| encoded(eval) == finished);
    comparison.allocations(decision, &outcome.plan, whole);
    // What belongs to no node goes with the first event of a plan.
    let begun = whole || !decision.plans.is_empty();
    comparison.deployments(decision, &outcome.plan, begun);
    comparison.evaluations(decision, outcome, given_up, whole);
    comparison.identical = comparison.differences.is_empty() && comparison.compared > 0;
    comparison
}

impl Comparison {
    /// Compares parts of one sort; answers the names of those that were decided and not committed,
    /// where not all of them must have been.
    fn lay(
        &mut self,
        what: &str,
        committed: DecisionParts,
        mut decided: DecisionParts,
        all: bool,
    ) -> Vec<String> {
        for (id, was) in committed {
            self.compared += 1;
            let how = match decided.remove(&id) {
                Some(is) if is.bytes == was.bytes => continue,
                Some(is) if is.node != was.node => {
                    format!("was on {}, now it is on {}", was.node, is.node)
                }
                Some(_) => "differs in what it says".to_owned(),
                None => format!("({id}) is not decided again"),
            };
            self.differences.push(format!("{what} {} {how}", was.name));
        }
        let left = decided.into_values().map(|part| part.name);
        if !all {
            return left.collect();
        }
        for name in left {
            self.compared += 1;
            let text = format!("{what} {name} is decided now and was not committed");
            self.differences.push(text);
        }
        Vec::new()
    }

    fn allocations(&mut self, decision: &Decision, plan: &Plan, whole: bool) {
        let placements = plan.placements.iter().map(|placement| PlacedAlloc {
            alloc: Box::new(placement.alloc.clone()),
            job_modify_index: placement.job_modify_index,
        });
        let was = of(decision, |plan| &plan.placed).cloned().map(placed);
        let left = self.lay(
            "allocation",
            was.collect(),
            placements.map(placed).collect(),
            whole,
        );
        self.not_committed.extend(left);

        let stops = plan.stops.iter().map(|stop| {
            let alloc = &stop.alloc;
            part(
                &alloc.id,
                &alloc.name,
                "",
                &StoppedAlloc::from(stop.clone()),
            )
        });
        let was = of(decision, |plan| &plan.stopped);
        let was = was.map(|stop| part(&stop.id, &stop.id, "", stop)).collect();
        let left = self.lay("the stop of allocation", was, stops.collect(), whole);
        self.not_committed.extend(left);

        let preemptions = plan.preemptions.iter().map(|(alloc, by)| {
            let preempted = PreemptedAlloc {
                id: alloc.id.clone(),
                preempted_by: by.clone(),
            };
            part(&alloc.id, &alloc.name, "", &preempted)
        });
        let was = of(decision, |plan| &plan.preempted);
        let was = was.map(|gone| part(&gone.id, &gone.id, "", gone)).collect();
        let left = self.lay(
            "the preemption of allocation",
            was,
            preemptions.collect(),
            whole,
        );
        self.not_committed.extend(left);
    }

    fn deployments(&mut self, decision: &Decision, plan: &Plan, begun: bool) {
        let one = |one: &Deployment| part(&one.id, &one.id, "", one);
        let was = decision
            .plans
            .iter()
            .filter_map(|plan| plan.deployment.as_ref());
        let is = plan.deployment.iter().map(one).collect();
        self.lay("deployment", was.map(one).collect(), is, begun);

        let one =
            |one: &DeploymentStatusUpdate| part(&one.deployment_id, &one.deployment_id, "", one);
        let was = of(decision, |plan| &plan.deployment_updates);
        let is = plan.deployment_updates.iter().map(one).collect();
        self.lay(
            "the status of deployment",
            was.map(one).collect(),
            is,
            begun,
        );
    }

    /// The evaluation's own end and what it left behind.
    fn evaluations(
        &mut self,
        decision: &Decision,
        outcome: &Outcome,
        given_up: &[Evaluation],
        whole: bool,
    ) {
        let left = outcome.blocked.iter().chain(&outcome.next);
        let own = std::iter::once(&outcome.finished).chain(left);
        let ends: Vec<&Evaluation> = match whole {
            true => own.collect(),
            false => given_up.iter().collect(),
        };
        let decided = ends.into_iter().chain(&outcome.follow_ups);
        let eval = |eval: &Evaluation| part(&eval.id, &eval.id, "", eval);
        let was = decision.evals.iter().map(eval).collect();
        self.lay("evaluation", was, decided.map(eval).collect(), whole);
    }
}

/// Something of all events of a committed plan.
fn of<'a, T: 'a>(
    decision: &'a Decision,
    list: impl Fn(&'a PlanApplied) -> &'a Vec<T>,
) -> impl Iterator<Item = &'a T> {
    decision.plans.iter().flat_map(list)
}

/// An allocation as it is stored, without what is determined when it is committed.
fn placed(mut placed: PlacedAlloc) -> (String, DecisionPart) {
    if placed.alloc.create_index == 0 {
        placed.alloc.signing_key_id.clear();
    }
    let alloc = &placed.alloc;
    part(&alloc.id, &alloc.name, &alloc.node_id, &placed)
}

#[cfg(test)]
#[path = "compare_test.rs"]
mod tests;
