//! An explanation as it is shown.

use drover_events::gojson::{List, Map};
use drover_events::model::{AllocMetric, DesiredUpdates, Evaluation};
use drover_events::plan::DecisionInputs;
use drover_events::wire;

use super::Decision;
use super::compare::Comparison;
use crate::scheduler::rank::{NodeReport, NodeVerdict, Search};
use crate::scheduler::{Outcome, SCHEDULER_VERSION};

wire! {
    /// Why an evaluation came out as it did.
    pub struct Explanation {
        eval_id: String = "EvalID",
        namespace: String = "Namespace",
        job_id: String = "JobID",
        r#type: String = "Type",
        triggered_by: String = "TriggeredBy",
        status: String = "Status",
        status_description: String = "StatusDescription",
        /// The decision that is explained.
        decision: DecisionInputs = "Decision",
        /// The indexes of the events it became.
        indexes: List<u64> = "Indexes",
        /// Every decision about the evaluation, the first one first.
        decisions: List<DecisionInputs> = "Decisions",
        /// The version of the rules it was decided by now.
        scheduler_version: u32 = "SchedulerVersion",
        /// Whether those are other rules than those of then, so that it may come out otherwise.
        recomputed: bool = "Recomputed",
        comparison: Comparison = "Comparison",
        groups: List<GroupExplained> = "Groups",
        stops: List<StopExplained> = "Stops",
    }

    /// What became of one group.
    pub struct GroupExplained {
        name: String = "Name",
        desired: Option<DesiredUpdates> = "Desired",
        /// Why not all of it found a place.
        failed: Option<AllocMetric> = "Failed",
        placements: List<PlacementExplained> = "Placements",
        searches: List<SearchExplained> = "Searches",
    }

    /// An allocation that was given a place.
    pub struct PlacementExplained {
        alloc_id: String = "AllocID",
        name: String = "Name",
        node_id: String = "NodeID",
        node_name: String = "NodeName",
        previous_allocation: String = "PreviousAllocation",
    }

    /// An allocation that was stopped.
    pub struct StopExplained {
        alloc_id: String = "AllocID",
        name: String = "Name",
        node_id: String = "NodeID",
        reason: String = "Reason",
    }

    /// One search for a place; for a system job, the searches of a group together.
    pub struct SearchExplained {
        /// The nodes that were taken.
        chosen: List<String> = "Chosen",
        /// How many nodes the search came to before it had enough.
        nodes_evaluated: i64 = "NodesEvaluated",
        nodes: List<NodeExplained> = "Nodes",
    }

    /// What there is to say of one node.
    pub struct NodeExplained {
        node_id: String = "NodeID",
        node_name: String = "NodeName",
        /// Whether the search came as far as this node.
        reached: bool = "Reached",
        /// Its score; none if it was refused.
        score: Option<f64> = "Score",
        /// The parts of the score.
        scores: Map<f64> = "Scores",
        /// At which step it was refused: `outside`, `infeasible`, `exhausted`; empty if it was not.
        refused: String = "Refused",
        reason: String = "Reason",
    }
}

pub(super) fn explanation(
    eval: &Evaluation,
    decision: &Decision,
    decisions: &[Decision],
    (outcome, comparison): (Outcome, Comparison),
) -> Explanation {
    let stops = outcome.plan.stops.iter().map(|stop| StopExplained {
        alloc_id: stop.alloc.id.clone(),
        name: stop.alloc.name.clone(),
        node_id: stop.alloc.node_id.clone(),
        reason: stop.description.to_owned(),
    });
    Explanation {
        eval_id: eval.id.clone(),
        namespace: eval.namespace.clone(),
        job_id: eval.job_id.clone(),
        r#type: eval.r#type.clone(),
        triggered_by: eval.triggered_by.clone(),
        status: eval.status.clone(),
        status_description: eval.status_description.clone(),
        decision: decision.inputs.clone(),
        indexes: decision.indexes.clone().into(),
        decisions: decisions
            .iter()
            .map(|decision| decision.inputs.clone())
            .collect(),
        scheduler_version: SCHEDULER_VERSION,
        recomputed: decision.inputs.scheduler_version != SCHEDULER_VERSION,
        comparison,
        stops: stops.collect(),
        groups: groups(outcome),
    }
}

fn groups(outcome: Outcome) -> List<GroupExplained> {
    let mut groups: Vec<GroupExplained> = Vec::new();
    let names = outcome.desired.keys().chain(outcome.failed.keys());
    let searched = outcome.searches.iter().map(|search| &search.group);
    let mut names: Vec<String> = names.chain(searched).cloned().collect();
    names.sort();
    names.dedup();
    for name in names {
        let placed = outcome
            .plan
            .placements
            .iter()
            .map(|placement| &placement.alloc);
        let own = placed.filter(|alloc| alloc.task_group == name);
        groups.push(GroupExplained {
            desired: outcome.desired.get(&name).cloned(),
            failed: outcome.failed.get(&name).cloned(),
            placements: own
                .map(|alloc| PlacementExplained {
                    alloc_id: alloc.id.clone(),
                    name: alloc.name.clone(),
                    node_id: alloc.node_id.clone(),
                    node_name: alloc.node_name.clone(),
                    previous_allocation: alloc.previous_allocation.clone(),
                })
                .collect(),
            searches: List::empty(),
            name,
        });
    }
    for search in outcome.searches {
        if let Some(group) = groups.iter_mut().find(|group| group.name == search.group) {
            group.searches.push(shown(search));
        }
    }
    groups.into()
}

fn shown(search: Search) -> SearchExplained {
    SearchExplained {
        chosen: search.chosen.into(),
        nodes_evaluated: search.evaluated,
        nodes: search.nodes.into_iter().map(node).collect(),
    }
}

fn node(report: NodeReport) -> NodeExplained {
    let mut shown = NodeExplained {
        node_id: report.node_id,
        node_name: report.node_name,
        reached: report.reached,
        ..NodeExplained::default()
    };
    match report.verdict {
        NodeVerdict::Scored { score, parts } => {
            shown.score = Some(score);
            shown.scores = parts.into_iter().collect();
        }
        NodeVerdict::Refused { step, reason } => {
            shown.refused = step.name().to_owned();
            shown.reason = reason;
        }
    }
    shown
}
