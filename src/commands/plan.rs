//! The command of a scheduling plan: what the plan queue found to fit.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::plan::*;
use drover_events::{EventId, Guard};
use drover_projections::View;

use super::{Command, Decision, Stamp};
use crate::error::ApiError;

/// How many allocations one event of a plan carries at most; a plan that is all or nothing is one
/// event whatever its size.
pub const ALLOCS_PER_EVENT: usize = 256;

/// One event of a plan, with the guards under which it was found to fit.
#[derive(Clone, Debug)]
pub struct ApplyPlan {
    /// What is committed.
    pub plan: PlanApplied,
    /// Its evaluation's row, and the mark of every node it places on.
    pub guards: Vec<Guard>,
}

impl Command for ApplyPlan {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, ApiError> {
        Ok(Decision::guarded(self.plan.clone(), self.guards.clone()))
    }
}

/// The nodes an event of a plan places on, in order.
pub fn placed_nodes(plan: &PlanApplied) -> BTreeSet<&str> {
    plan.placed
        .iter()
        .map(|placed| placed.alloc.node_id.as_str())
        .collect()
}

/// The guards of a plan's event: each node it places on still has the mark the plan was made with.
pub fn node_guards(plan: &PlanApplied, marks: &BTreeMap<String, EventId>) -> Vec<Guard> {
    placed_nodes(plan)
        .into_iter()
        .map(|node| Guard::NodeMark {
            node: node.to_owned(),
            mark: marks.get(node).copied().unwrap_or(EventId::ZERO),
        })
        .collect()
}

/// Cuts a plan into events of at most [`ALLOCS_PER_EVENT`] allocations under one plan id. What the
/// allocations name (deployment, evaluations) comes with the first; stops come before placements.
pub fn split(plan: PlanApplied) -> Vec<PlanApplied> {
    let total = plan.stopped.len() + plan.preempted.len() + plan.placed.len();
    if total <= ALLOCS_PER_EVENT {
        return vec![plan];
    }
    let mut first = plan;
    let stopped = std::mem::take(&mut first.stopped);
    let preempted = std::mem::take(&mut first.preempted);
    let placed = std::mem::take(&mut first.placed);
    let rest = PlanApplied {
        plan_id: first.plan_id.clone(),
        eval_id: first.eval_id.clone(),
        decision: first.decision.clone(),
        updated_at: first.updated_at,
        ..PlanApplied::default()
    };
    let mut parts = vec![first];
    let mut room = ALLOCS_PER_EVENT;
    let mut next = |parts: &mut Vec<PlanApplied>| {
        if room == 0 {
            parts.push(rest.clone());
            room = ALLOCS_PER_EVENT;
        }
        room -= 1;
        parts.len() - 1
    };
    for one in stopped {
        let at = next(&mut parts);
        parts[at].stopped.push(one);
    }
    for one in preempted {
        let at = next(&mut parts);
        parts[at].preempted.push(one);
    }
    for one in placed {
        let at = next(&mut parts);
        parts[at].placed.push(one);
    }
    parts
}

#[cfg(test)]
mod tests {
    use drover_events::model::Allocation;

    use super::*;

    fn plan(stops: usize, places: usize) -> PlanApplied {
        PlanApplied {
            plan_id: "p".into(),
            eval_id: "e".into(),
            stopped: (0..stops)
                .map(|n| StoppedAlloc {
                    id: format!("s{n}"),
                    ..Default::default()
                })
                .collect(),
            placed: (0..places)
                .map(|n| PlacedAlloc {
                    alloc: Box::new(Allocation {
                        id: format!("p{n}"),
                        node_id: format!("n{}", n % 7),
                        ..Default::default()
                    }),
                    job_modify_index: 1,
                })
                .collect(),
            evals: vec![Default::default()],
            ..Default::default()
        }
    }

    #[test]
    fn a_plan_is_cut_into_events_of_256_allocations() {
        let parts = split(plan(300, 400));
        assert_eq!(parts.len(), 3);
        for part in &parts {
            assert!(part.stopped.len() + part.placed.len() <= ALLOCS_PER_EVENT);
            assert_eq!((part.plan_id.as_str(), part.eval_id.as_str()), ("p", "e"));
        }
        assert_eq!(parts.iter().map(|p| p.stopped.len()).sum::<usize>(), 300);
        assert_eq!(parts.iter().map(|p| p.placed.len()).sum::<usize>(), 400);
        assert_eq!(
            parts.iter().map(|p| p.evals.len()).sum::<usize>(),
            1,
            "only the first"
        );
        assert_eq!(parts[0].stopped.len(), 256, "stops come first");
        assert_eq!(split(plan(0, 256)).len(), 1);
    }

    #[test]
    fn every_node_placed_on_is_guarded_by_its_mark() {
        let marks = BTreeMap::from([("n1".to_owned(), EventId([3; 16]))]);
        let guards = node_guards(&plan(1, 3), &marks);
        assert_eq!(guards.len(), 3);
        assert_eq!(
            guards[1],
            Guard::NodeMark {
                node: "n1".into(),
                mark: EventId([3; 16])
            }
        );
        assert_eq!(
            guards[2],
            Guard::NodeMark {
                node: "n2".into(),
                mark: EventId::ZERO
            }
        );
    }
}
