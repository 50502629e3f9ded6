//! Decisions, laid beside what is and what is not the same.

use std::sync::Arc;

use drover_events::model::Allocation;

use super::*;
use crate::scheduler::Stop;

fn alloc(id: &str) -> Arc<Allocation> {
    Arc::new(Allocation {
        id: id.to_owned(),
        name: format!("web.g[{id}]"),
        ..Allocation::default()
    })
}

fn stop(id: &str) -> Stop {
    Stop {
        alloc: alloc(id),
        description: "not needed",
        client_status: "",
        followup_eval_id: String::new(),
        alloc_states: None,
        reschedule_tracker: None,
    }
}

fn eval(id: &str, status: &str) -> Evaluation {
    Evaluation {
        id: id.to_owned(),
        status: status.to_owned(),
        ..Evaluation::default()
    }
}

type Change = fn(&mut Outcome);

fn decided() -> Outcome {
    Outcome {
        plan: Plan {
            stops: vec![stop("a"), stop("b")],
            preemptions: vec![(alloc("p"), "n".to_owned())],
            deployment_updates: vec![DeploymentStatusUpdate {
                deployment_id: "d".to_owned(),
                status: "cancelled".to_owned(),
                ..DeploymentStatusUpdate::default()
            }],
            ..Plan::default()
        },
        finished: eval("e", "complete"),
        follow_ups: vec![eval("f", "pending")],
        ..Outcome::default()
    }
}

/// What the log has of an outcome that was committed in full.
fn committed(outcome: &Outcome) -> Decision {
    let plan = &outcome.plan;
    let preempted = |(alloc, by): &(Arc<Allocation>, String)| PreemptedAlloc {
        id: alloc.id.clone(),
        preempted_by: by.clone(),
    };
    let applied = PlanApplied {
        stopped: plan.stops.iter().cloned().map(Into::into).collect(),
        preempted: plan.preemptions.iter().map(preempted).collect(),
        deployment_updates: plan.deployment_updates.clone(),
        ..PlanApplied::default()
    };
    let mut evals = outcome.follow_ups.clone();
    evals.push(outcome.finished.clone());
    Decision {
        plans: vec![applied],
        evals,
        ..Decision::default()
    }
}

#[test]
fn what_is_the_same_is_identical_in_all_parts() {
    let comparison = compare(&committed(&decided()), &decided(), &[]);
    assert!(comparison.identical, "{:?}", comparison.differences);
    assert_eq!(comparison.compared, 6);
    assert_eq!(comparison.not_committed, [""; 0]);
}

#[test]
fn whatever_part_is_other_is_a_difference() {
    let was = committed(&decided());
    let others: [(&str, Change); 9] = [
        ("the stop of allocation web.g[c] is decided now", |again| {
            again.plan.stops.push(stop("c"));
        }),
        (
            "the stop of allocation b (b) is not decided again",
            |again| {
                again.plan.stops.pop();
            },
        ),
        ("the stop of allocation a differs", |again| {
            again.plan.stops[0].followup_eval_id = "f".to_owned();
        }),
        ("the preemption of allocation p differs", |again| {
            again.plan.preemptions[0].1 = "m".to_owned();
        }),
        ("the status of deployment d differs", |again| {
            again.plan.deployment_updates[0].status = "failed".to_owned();
        }),
        ("deployment new is decided now", |again| {
            again.plan.deployment = Some(Deployment {
                id: "new".to_owned(),
                ..Deployment::default()
            });
        }),
        ("evaluation f differs", |again| {
            again.follow_ups[0].status = "blocked".to_owned();
        }),
        ("evaluation g is decided now", |again| {
            again.blocked = Some(eval("g", "blocked"));
        }),
        ("evaluation h is decided now", |again| {
            again.next = Some(eval("h", "pending"));
        }),
    ];
    for (text, change) in others {
        let mut again = decided();
        change(&mut again);
        let comparison = compare(&was, &again, &[]);
        assert!(!comparison.identical, "{text}");
        let [difference] = comparison.differences.as_slice() else {
            panic!("{text}: {:?}", comparison.differences);
        };
        assert!(difference.starts_with(text), "{difference}");
    }
}

#[test]
fn what_nodes_refused_is_not_committed_and_no_difference() {
    let mut was = committed(&decided());
    was.plans[0].stopped.pop();
    was.evals.pop();
    let comparison = compare(&was, &decided(), &[]);
    assert!(comparison.identical, "{:?}", comparison.differences);
    assert_eq!(comparison.not_committed, ["web.g[b]"]);
    // It was given up in the end, as it would be now.
    let given_up = [eval("e", "failed"), eval("g", "blocked")];
    was.evals.extend(given_up.clone());
    let comparison = compare(&was, &decided(), &given_up);
    assert!(comparison.identical, "{:?}", comparison.differences);
    let comparison = compare(&was, &decided(), &[]);
    assert_eq!(
        comparison.differences.len(),
        2,
        "{:?}",
        comparison.differences
    );
}
