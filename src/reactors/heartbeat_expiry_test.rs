//! When heartbeats are missed: the deadlines, and the reactor that keeps them.

use drover_events::node::NodesDeregistered;
use drover_projections::tables::nodes;

use super::*;
use crate::base::clock::Clock;
use crate::commands::node::RegisterNode;
use crate::reactors::testing::Direct;
use drover_testkit::fixtures::node;

const SECOND: i64 = 1_000_000_000;
/// When the reactor begins.
const START: i64 = 1_900_000_000 * SECOND;

fn names(late: Vec<(i64, String)>) -> Vec<String> {
    late.into_iter().map(|(_, node)| node).collect()
}

#[test]
fn the_time_grows_with_the_nodes_and_the_late_are_found_in_order() {
    let heartbeats = Heartbeats::new(HeartbeatSettings::default());
    let late = |now| names(heartbeats.late(now));
    assert_eq!(heartbeats.beat("a", 0, 0.0), Duration::from_secs(10));
    assert_eq!(heartbeats.beat("b", 0, 1.0), Duration::from_secs(20));
    assert!(late(20 * SECOND - 1).is_empty());
    assert_eq!(late(20 * SECOND), ["a"], "ten seconds of grace");
    assert_eq!(late(30 * SECOND), ["a", "b"]);
    heartbeats.beat("a", 30 * SECOND, 0.0);
    assert_eq!(late(30 * SECOND), ["b"]);
    heartbeats.clear("b");
    assert!(late(30 * SECOND).is_empty());

    let names = (0..5000).map(|n| format!("n{n}"));
    heartbeats.reset(names, 0);
    assert!(late(300 * SECOND - 1).is_empty());
    assert_eq!(late(300 * SECOND).len(), BATCH);
    assert_eq!(
        heartbeats.beat("n1", 0, 0.0),
        Duration::from_secs(100),
        "5,000 by 50"
    );
}

#[test]
fn a_node_that_is_heard_of_while_it_is_late_is_waited_for_again() {
    let heartbeats = Heartbeats::new(HeartbeatSettings::default());
    heartbeats.beat("a", 0, 0.0);
    let (at, node) = heartbeats.late(20 * SECOND).remove(0);
    heartbeats.beat("a", 20 * SECOND, 0.0);
    assert!(!heartbeats.is_late(&node, at));
    heartbeats.clear_late(&node, at);
    assert_eq!(
        heartbeats.next(),
        Some(40 * SECOND),
        "its new deadline stays"
    );
    heartbeats.postpone(&node, at, SECOND);
    assert_eq!(heartbeats.next(), Some(40 * SECOND));
    heartbeats.clear_late(&node, 40 * SECOND);
    assert!(heartbeats.is_empty());
}

struct Stage {
    direct: Arc<Direct>,
    expiry: HeartbeatExpiry,
}

impl Stage {
    /// Ready nodes of these numbers.
    fn new(numbers: std::ops::Range<usize>) -> Self {
        let direct = Direct::new();
        for number in numbers {
            let command = RegisterNode {
                node: node(number),
                create_node_pool: true,
            };
            direct.command(&command).unwrap();
        }
        let expiry = HeartbeatExpiry::new(Heartbeats::new(HeartbeatSettings::default()));
        Self { direct, expiry }
    }

    async fn at(&self, now: i64) -> Activation {
        let context = Context {
            projections: Arc::clone(&self.direct.projections),
            proposer: self.direct.clone(),
            clock: Clock::stopped(now),
        };
        self.expiry.activate(&context).await.unwrap()
    }

    fn status(&self, number: usize) -> String {
        let view = self.direct.projections.view();
        nodes::get(&view, &node(number).id).unwrap().unwrap().status
    }

    fn purge(&self, number: usize) {
        self.direct.apply(NodesDeregistered {
            node_ids: vec![node(number).id],
            evals: Vec::new(),
        });
    }
}

#[tokio::test]
async fn a_node_that_is_silent_for_too_long_is_down_and_its_events_say_why() {
    let stage = Stage::new(1..3);
    let heartbeats = Arc::clone(&stage.expiry.heartbeats);
    assert_eq!(
        stage.at(START).await.status["Waiting"],
        2,
        "a new leader waits for all"
    );
    stage.at(START + 300 * SECOND - 1).await;
    assert_eq!(stage.status(1), "ready", "it has its time");
    heartbeats.beat(&node(2).id, START + 299 * SECOND, 0.0);
    let activation = stage.at(START + 300 * SECOND).await;
    assert_eq!(
        (stage.status(1), stage.status(2)),
        ("down".into(), "ready".into())
    );
    assert_eq!(activation.status["Missed"], 1);
    let view = stage.direct.projections.view();
    let missed = nodes::get(&view, &node(1).id).unwrap().unwrap();
    let reported = missed.events.iter().map(|event| event.message.as_str());
    assert!(
        reported
            .into_iter()
            .any(|text| text == "Node heartbeat missed")
    );
    assert!(missed.last_missed_heartbeat_index > 0);
    assert_eq!(
        stage.expiry.heartbeats.len(),
        1,
        "nobody waits for it any more"
    );
    stage.at(START + 400 * SECOND).await;
    assert_eq!(stage.status(2), "down", "what died later is found as well");
}

#[test]
fn each_missed_heartbeat_is_timed_once() {
    let (telemetry, recorder) =
        crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let stage = Stage::new(1..4);
    let missed = async {
        stage.at(START).await;
        stage.at(START + 300 * SECOND).await;
    };
    metrics::with_local_recorder(&recorder, || runtime.unwrap().block_on(missed));
    let text = telemetry.prometheus();
    let counted = "nomad_nomad_heartbeat_invalidate_count 3";
    assert!(text.lines().any(|line| line == counted), "{text}");
}

#[tokio::test]
async fn a_purged_node_does_not_block_the_expiry_of_others() {
    let stage = Stage::new(1..5);
    stage.at(START).await;
    // It is the first in the order of deadlines.
    stage.purge(1);
    let activation = stage.at(START + 300 * SECOND).await;
    for number in 2..5 {
        assert_eq!(stage.status(number), "down", "node {number}");
    }
    assert_eq!(activation.status["Failed"], 0, "what is gone is no failure");
    assert!(stage.expiry.heartbeats.is_empty());
}
