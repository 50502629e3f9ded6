//! What counts in a search for a place.

use std::sync::Arc;

use drover_events::model::Constraint;
use drover_testkit::fixtures::{job, node};

use super::{PlacementRequest, Stack, StackOptions};
use crate::cluster::Cluster;

#[test]
fn what_runs_already_counts_whether_it_is_told_before_the_first_question_or_after_it() {
    for requested_before in [false, true] {
        let mut cluster = Cluster::default();
        for number in 0..2 {
            cluster.upsert_node(node(number));
        }
        let mut spec = job("system", 1);
        spec.constraints = vec![Constraint {
            operand: "distinct_hosts".into(),
            ..Constraint::default()
        }]
        .into();
        let options = StackOptions {
            spread: false,
            oversubscription: false,
            wide_limit: 100,
            batch: true,
            seed: 1,
        };
        let mut stack = Stack::new(&cluster, Arc::new(spec), options);
        if requested_before {
            assert_eq!(stack.nodes().len(), 2);
        }
        stack.is_live(&node(0).id, "g");
        for (number, free) in [(0, false), (1, true)] {
            let slot = cluster.find(&node(number).id).expect("it was added");
            let wanted = PlacementRequest {
                group: "g",
                name: "j.g[0]",
            };
            let found = stack.select_only(wanted, slot).choice.is_some();
            assert_eq!(
                found, free,
                "node {number}, asked before: {requested_before}"
            );
        }
    }
}
