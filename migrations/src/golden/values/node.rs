//! Samples about nodes.

use drover_events::gojson::Time;
use drover_events::model::*;
use drover_events::node::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::scheduling::eval;
use super::{id, texts};

fn node() -> Node {
    Node {
        id: id(10),
        name: "n1".into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: "initializing".into(),
        scheduling_eligibility: "eligible".into(),
        computed_class: "v1:42".into(),
        attributes: texts([("kernel.name", "linux")]).into(),
        secret_id: "sha256:00".into(),
        ..Default::default()
    }
}

fn node_note() -> NodeEvent {
    NodeEvent {
        message: "Node registered".into(),
        subsystem: "Cluster".into(),
        timestamp: Time(TIME),
        ..Default::default()
    }
}

pub(super) fn event(kind: EventKind) -> Option<Event> {
    let evals = vec![eval()];
    Some(match kind {
        EventKind::NodeRegistered => NodeRegistered {
            node: Box::new(node()),
            event: Some(node_note()),
            create_node_pool: true,
            evals,
        }
        .into(),
        EventKind::NodesDeregistered => NodesDeregistered {
            node_ids: vec![id(10)],
            evals,
        }
        .into(),
        EventKind::NodeStatusUpdated => NodeStatusUpdated {
            node_id: id(10),
            status: "down".into(),
            event: Some(node_note()),
            updated_at: TIME / 1_000_000_000,
            identity_signing_key_id: id(3),
            evals,
        }
        .into(),
        EventKind::NodeDrainUpdated => {
            let drain = DrainUpdate {
                drain_strategy: Some(DrainStrategy {
                    deadline: 3_600_000_000_000,
                    ignore_system_jobs: true,
                    started_at: Time(TIME),
                    ..Default::default()
                }),
                event: Some(node_note()),
                ..Default::default()
            };
            NodeDrainUpdated {
                updates: [(id(10), drain)].into(),
                updated_at: TIME,
                updated_by: id(4),
                meta: texts([("reason", "disk")]),
                evals,
            }
            .into()
        }
        EventKind::NodeEligibilityUpdated => NodeEligibilityUpdated {
            node_id: id(10),
            eligibility: "ineligible".into(),
            event: Some(node_note()),
            updated_at: TIME,
            evals,
        }
        .into(),
        EventKind::NodeEventsUpserted => NodeEventsUpserted {
            events: [(id(10), vec![node_note()])].into(),
        }
        .into(),
        _ => return None,
    })
}
