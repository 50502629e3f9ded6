use drover_events::model::{DrainStrategy, NodeEvent};
use drover_events::node::*;
use drover_events::{EventKind, Publication};

use super::*;
use crate::tables::node_use::NodeUses;
use crate::tables::nodes;

fn status(number: u32, status: &str) -> NodeStatusUpdated {
    NodeStatusUpdated {
        node_id: id(number),
        status: status.into(),
        ..Default::default()
    }
}

fn drained(number: u32, update: DrainUpdate) -> NodeDrainUpdated {
    NodeDrainUpdated {
        updates: BTreeMap::from([(id(number), update)]),
        updated_at: START,
        ..Default::default()
    }
}

fn get(world: &World, number: u32) -> Node {
    nodes::get(&world.view(), &id(number)).unwrap().unwrap()
}

#[test]
fn sch_14_register_never_sets_the_status_of_a_known_node() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(status(10, "disconnected"));
    let mut again = node(10);
    again.status = "ready".into();
    again.meta.insert("rack", "r2".to_owned());
    world.given(registered(again));
    let known = get(&world, 10);
    assert_eq!(known.status, "disconnected");
    assert_eq!(known.meta.get("rack").map(String::as_str), Some("r2"));
    assert_eq!((known.create_index, known.modify_index), (1, 3));
}

#[test]
fn sch_12_both_indexes_are_set_by_apply() {
    let mut world = running_job();
    assert_eq!(get(&world, 10).last_missed_heartbeat_index, 0);
    world.given(status(10, "disconnected"));
    let missed = world.index;
    world.given(status(10, "down"));
    assert_eq!(
        get(&world, 10).last_missed_heartbeat_index,
        missed,
        "missed once"
    );
    world.given(super::allocs::update(40, "running"));
    assert_eq!(get(&world, 10).last_alloc_update_index, world.index);
    assert!(get(&world, 10).last_alloc_update_index > missed);
}

#[test]
fn hb_10_the_index_of_a_node_does_not_move_with_its_allocations() {
    let mut world = running_job();
    let before = get(&world, 10);
    let mut report = super::allocs::update(40, "running");
    report.nodes = vec![id(10)];
    world.given(report.clone());
    let after = get(&world, 10);
    assert_eq!(after.last_alloc_update_index, world.index);
    assert_eq!(after.modify_index, before.modify_index);
    // As older servers wrote it, it does: what they applied comes out the same again.
    report.nodes.clear();
    world.given(report);
    assert_eq!(get(&world, 10).modify_index, world.index);
    // Reported without any update, for a node that is gone too.
    world.given(drover_events::alloc::AllocsUpdatedByClient {
        nodes: vec![id(10), id(99)],
        ..Default::default()
    });
    assert_eq!(get(&world, 10).last_alloc_update_index, world.index);
    assert!(get(&world, 10).modify_index < world.index);
}

#[test]
fn a_drain_makes_ineligible_and_its_end_is_kept() {
    let mut world = World::new();
    world.given(registered(node(10)));
    let strategy = Some(DrainStrategy {
        deadline: 5,
        ..Default::default()
    });
    world.given(drained(
        10,
        DrainUpdate {
            drain_strategy: strategy,
            ..Default::default()
        },
    ));
    let draining = get(&world, 10);
    assert!(draining.draining() && !draining.ready());
    assert_eq!(draining.last_drain.as_ref().unwrap().status, "draining");

    let eligible = NodeEligibilityUpdated {
        node_id: id(10),
        eligibility: "eligible".into(),
        ..Default::default()
    };
    let text = "unable to update draining node's eligibility to eligible";
    assert_eq!(world.refused(eligible), text);

    let done = DrainUpdate {
        complete: true,
        mark_eligible: true,
        ..Default::default()
    };
    world.given(drained(10, done));
    let done = get(&world, 10);
    assert!(done.ready());
    assert_eq!(done.last_drain.unwrap().status, "complete");
}

#[test]
fn ten_node_events_are_kept_the_newest() {
    let mut world = World::new();
    world.given(registered(node(10)));
    for number in 0..14 {
        let event = NodeEvent {
            message: format!("m{number}"),
            ..Default::default()
        };
        let events = BTreeMap::from([(id(10), vec![event])]);
        world.given(NodeEventsUpserted { events });
        assert!(get(&world, 10).events.len() <= 10);
    }
    let events = get(&world, 10).events;
    assert_eq!(events.len(), 10);
    assert_eq!(
        (events[0].message.as_str(), events[9].message.as_str()),
        ("m4", "m13")
    );
    assert_eq!(events[9].create_index, world.index);
}

#[test]
fn ev_01_one_row_by_three_causes_gives_three_types() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(status(10, "down"));
    world.given(drained(10, DrainUpdate::default()));
    let mut types = Vec::new();
    for changes in world.view().changes(1) {
        for change in changes.unwrap() {
            if let (Some(_), Publication::Event { event_type, .. }) =
                (change.topic, change.kind.publication())
            {
                types.push(event_type);
            }
        }
    }
    assert_eq!(types, ["NodeRegistration", "NodeStreamEvent", "NodeDrain"]);
}

#[test]
fn a_mark_names_the_last_event_that_changed_what_fits() {
    let mut world = World::new();
    let mark = |world: &World| world.view().get::<NodeUses>(&id(10)).unwrap().unwrap().mark;
    world.given(registered(node(10)));
    assert_eq!(mark(&world), event_id(1));
    let mut renamed = node(10);
    renamed.meta.insert("a", "b".to_owned());
    world.given(registered(renamed));
    assert_eq!(
        mark(&world),
        event_id(1),
        "metadata changes nothing that fits"
    );
    world.given(status(10, "down"));
    assert_eq!(mark(&world), event_id(3));
    world.given(status(10, "down"));
    assert_eq!(mark(&world), event_id(3), "the same status again");
}

#[test]
fn ev_02_a_kind_whose_apply_comes_later_is_refused_whole() {
    let mut world = World::new();
    let event = drover_events::acl::AclBindingRulesDeleted::default();
    assert_eq!(
        world.refused(event),
        "AclBindingRulesDeleted is not applied by this version"
    );
    for kind in super::super::UNIMPLEMENTED {
        assert!(EventKind::ALL.contains(kind));
    }
}

#[test]
fn a_node_goes_with_all_its_rows() {
    let mut world = World::new();
    world.given(registered(node(10)));
    let missing = NodesDeregistered {
        node_ids: vec![id(10), id(11)],
        evals: Vec::new(),
    };
    assert!(world.refused(missing).contains("not found"));
    world.given(NodesDeregistered {
        node_ids: vec![id(10)],
        evals: Vec::new(),
    });
    assert!(nodes::get(&world.view(), &id(10)).unwrap().is_none());
    assert!(world.view().get::<NodeUses>(&id(10)).unwrap().is_none());
}
