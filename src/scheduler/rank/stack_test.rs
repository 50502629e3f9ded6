//! What counts in a search for a place.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::model::{Constraint, NetworkResource, Port};
use drover_testkit::fixtures::{job, node};

use super::{PlacementRequest, Stack, StackOptions};
use crate::cluster::Cluster;

fn options(seed: u64) -> StackOptions {
    StackOptions {
        spread: false,
        oversubscription: false,
        wide_limit: 100,
        batch: true,
        seed,
    }
}

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
        let mut stack = Stack::new(&cluster, Arc::new(spec), options(1));
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

/// Each of two ports could be had of a node that gives out one, but not both of them.
#[test]
fn a_node_that_cannot_give_after_all_what_fits_is_exhausted_and_passed_over() {
    let port = |label: &str, value: i64| Port {
        label: label.into(),
        value,
        ..Port::default()
    };
    let mut spec = job("service", 1);
    spec.task_groups[0].networks = vec![NetworkResource {
        reserved_ports: vec![port("web", 20_000)].into(),
        dynamic_ports: vec![port("db", 0)].into(),
        ..NetworkResource::default()
    }]
    .into();
    let mut narrow = node(0);
    let resources = narrow.node_resources.as_mut().expect("it has some");
    (resources.min_dynamic_port, resources.max_dynamic_port) = (20_000, 20_000);
    let mut cluster = Cluster::default();
    let slot = cluster.upsert_node(narrow);
    let spec = Arc::new(spec);
    let wanted = PlacementRequest {
        group: "g",
        name: "j.g[0]",
    };
    let none = BTreeSet::new();
    for only in [true, false] {
        let mut stack = Stack::new(&cluster, Arc::clone(&spec), options(1));
        let found = match only {
            true => stack.select_only(wanted, slot),
            false => stack.select(wanted, &none, None),
        };
        assert!(found.choice.is_none(), "only it: {only}");
        let metric = found.metric;
        assert_eq!((metric.nodes_evaluated, metric.nodes_exhausted), (1, 1));
        let why = "network: dynamic port selection failed";
        assert_eq!(metric.dimension_exhausted.get(why), Some(&1));
    }
    // Whichever is looked at first.
    let able = cluster.upsert_node(node(1));
    for seed in 0..8 {
        let mut stack = Stack::new(&cluster, Arc::clone(&spec), options(seed));
        let found = stack.select(wanted, &none, None).choice;
        assert_eq!(found.map(|choice| choice.slot), Some(able), "seed {seed}");
    }
}
