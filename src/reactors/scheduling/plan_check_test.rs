//! What is checked of a plan before its events are made.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plan_stops_it_does_not_also_place() {
    let stage = Stage::new(1);
    let mut core = stage.scheduling.shared.core.lock();
    // On a node that is gone, which takes stops only.
    let mut request = stops_on(&["gone"]);
    let plan = &mut request.outcome.plan;
    plan.placements = vec![Placement {
        alloc: Allocation::clone(&plan.stops[0].alloc),
        job_modify_index: 1,
        demand: Demand::default(),
        replaces: None,
    }];
    let prepared = prepare(&mut core, request, 1);
    assert!(prepared.rejected_nodes.is_empty());
    let Event::PlanApplied(plan) = &prepared.events[0].event else {
        panic!("no plan");
    };
    assert_eq!((plan.stopped.len(), plan.placed.len()), (256, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_a_plan_no_longer_fits_on_are_counted() {
    let stage = Stage::new(1);
    let shared = &stage.scheduling.shared;
    let mut request = stops_on(&[]);
    let on = |node: &str| Placement {
        alloc: Allocation {
            id: format!("on {node}"),
            node_id: node.into(),
            ..Allocation::default()
        },
        job_modify_index: 1,
        demand: Demand::default(),
        replaces: None,
    };
    request.outcome.plan.placements = ["gone", "too", "lost"].map(on).into();
    let eval = Evaluation {
        id: "eval".into(),
        r#type: "service".into(),
        ..Evaluation::default()
    };
    {
        // No worker takes it in between.
        let (mut core, now) = (shared.core.lock(), shared.clock.now());
        core.broker.enqueue(eval, now);
        let taken = core.broker.dequeue(&["service"], now);
        (request.eval, request.token) = taken.unwrap();
    }
    let (telemetry, recorder) =
        crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
    let check = || plan_queue::checked(shared, request);
    let prepared = metrics::with_local_recorder(&recorder, check).unwrap();
    assert_eq!(prepared.rejected_nodes.len(), 3);
    let text = telemetry.prometheus();
    let counted = "nomad_nomad_plan_node_rejected 3";
    assert!(text.lines().any(|line| line == counted), "{text}");
}
