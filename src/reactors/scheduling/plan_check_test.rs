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
