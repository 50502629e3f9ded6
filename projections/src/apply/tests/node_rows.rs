//! What the rows of a node say after each event: its state, drain, events, mark and pool.

use drover_events::model::{DrainMetadata, DrainStrategy, NodeEvent, NodePool, NodeResources};
use drover_events::node::*;
use drover_events::plan::PlanApplied;

use super::*;
use crate::tables::evals::Evals;
use crate::tables::node_pools::NodePools;
use crate::tables::node_states::{NodeState, NodeStates};
use crate::tables::node_use::NodeUses;
use crate::tables::nodes;

fn get(world: &World) -> Node {
    nodes::get(&world.view(), &id(10)).unwrap().unwrap()
}

fn state(world: &World) -> NodeState {
    let row = world.view().get::<NodeStates>(&id(10)).unwrap();
    row.unwrap()
}

fn mark(world: &World) -> EventId {
    let row = world.view().get::<NodeUses>(&id(10)).unwrap();
    row.unwrap().mark
}

fn eval_exists(world: &World, number: u32) -> bool {
    let row = world.view().get::<Evals>(&id(number)).unwrap();
    row.is_some()
}

fn event(message: &str) -> NodeEvent {
    NodeEvent {
        message: message.into(),
        ..Default::default()
    }
}

fn messages(world: &World) -> Vec<(String, u64)> {
    let reported = |event: &NodeEvent| (event.message.clone(), event.create_index);
    state(world).events.iter().map(reported).collect()
}

fn drained(update: DrainUpdate, at: i64) -> NodeDrainUpdated {
    NodeDrainUpdated {
        updates: BTreeMap::from([(id(10), update)]),
        updated_at: START + at,
        ..Default::default()
    }
}

fn draining(deadline: i64) -> DrainUpdate {
    DrainUpdate {
        drain_strategy: Some(DrainStrategy {
            deadline,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn last_drain(world: &World) -> (i64, i64, String, String) {
    let last: DrainMetadata = get(world).last_drain.unwrap();
    let (from, to) = (last.started_at.0 - START, last.updated_at.0 - START);
    (from, to, last.status, last.accessor_id)
}

#[test]
fn a_registration_makes_a_node_eligible_asks_for_its_jobs_and_makes_its_pool() {
    let mut world = World::new();
    let mut of_pool = node(10);
    of_pool.node_pool = "gpu".into();
    let registration = NodeRegistered {
        create_node_pool: true,
        event: Some(event("registered")),
        evals: vec![eval(1, "web", "pending")],
        ..registered(of_pool.clone())
    };
    world.given(registration.clone());
    assert_eq!(get(&world).scheduling_eligibility, "eligible");
    assert_eq!(messages(&world), [("registered".to_owned(), 1)]);
    assert!(eval_exists(&world, 1));
    let pool = |world: &World| world.view().get::<NodePools>("gpu").unwrap().unwrap();
    let made = pool(&world);
    assert_eq!((made.create_index, made.modify_index), (1, 1));
    world.given(drover_events::node_pool::NodePoolsUpserted {
        node_pools: vec![NodePool {
            name: "gpu".into(),
            description: "by hand".into(),
            ..Default::default()
        }],
    });
    world.given(registration);
    assert_eq!(pool(&world).description, "by hand", "it is there already");
    of_pool.node_pool = "other".into();
    world.given(registered(of_pool));
    assert!(world.view().get::<NodePools>("other").unwrap().is_none());
}

#[test]
fn a_registration_keeps_what_operators_and_servers_said_of_a_node() {
    let mut world = World::new();
    let mut signed = node(10);
    signed.identity_signing_key_id = id(3);
    world.given(registered(signed));
    world.given(drained(draining(5), 1));
    let before = get(&world);
    world.given(registered(node(10)));
    let after = get(&world);
    assert!(after.drain_strategy.is_some() && after.last_drain.is_some());
    assert_eq!(after.drain_strategy, before.drain_strategy);
    assert_eq!(after.last_drain, before.last_drain);
    assert_eq!(after.scheduling_eligibility, "ineligible");
    assert_eq!(after.identity_signing_key_id, id(3));
}

#[test]
fn whatever_changes_what_fits_on_a_node_marks_it() {
    let changes: [fn(&mut Node); 6] = [
        |node| node.node_resources = Some(NodeResources::default()),
        |node| node.reserved_resources = Some(Default::default()),
        |node| node.computed_class = "v2".into(),
        |node| node.node_pool = "all".into(),
        |node| node.datacenter = "dc2".into(),
        |node| node.node_max_allocs = 7,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut world = World::new();
        world.given(registered(node(10)));
        let mut other = node(10);
        change(&mut other);
        world.given(registered(other));
        assert_eq!(mark(&world), event_id(2), "change {at}");
    }
}

#[test]
fn a_status_is_written_with_its_time_and_event_and_asks_for_the_node_s_jobs() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(NodeStatusUpdated {
        node_id: id(10),
        status: "down".into(),
        event: Some(event("heartbeat missed")),
        updated_at: 1_700_000_001,
        identity_signing_key_id: id(4),
        evals: vec![eval(1, "web", "pending")],
    });
    let row = state(&world);
    assert_eq!((row.status.as_str(), row.modify_index), ("down", 2));
    assert_eq!(row.status_updated_at, 1_700_000_001);
    assert_eq!(messages(&world), [("heartbeat missed".to_owned(), 2)]);
    let row = get(&world);
    assert_eq!(row.identity_signing_key_id, id(4));
    assert_eq!(row.modify_index, 2);
    assert!(eval_exists(&world, 1));
    world.given(NodeStatusUpdated {
        node_id: id(10),
        status: "ready".into(),
        ..Default::default()
    });
    assert_eq!(get(&world).identity_signing_key_id, id(4), "as it was");
}

#[test]
fn a_drain_tells_who_began_and_ended_it_and_when() {
    let mut world = World::new();
    world.given(registered(node(10)));
    // Nothing is being drained: there is nothing to end.
    world.given(drained(DrainUpdate::default(), 1));
    assert_eq!(get(&world).last_drain, None);
    world.given(NodeDrainUpdated {
        updated_by: "ann".into(),
        evals: vec![eval(1, "web", "pending")],
        ..drained(draining(5), 2)
    });
    let drain = |from, to, status: &str, by: &str| (from, to, status.to_owned(), by.to_owned());
    assert_eq!(last_drain(&world), drain(2, 2, "draining", "ann"));
    assert_eq!(mark(&world), event_id(world.index));
    assert!(eval_exists(&world, 1));
    world.given(drained(draining(9), 3));
    assert_eq!(
        last_drain(&world),
        drain(2, 3, "draining", "ann"),
        "changed"
    );
    world.given(NodeDrainUpdated {
        updated_by: "bob".into(),
        ..drained(DrainUpdate::default(), 4)
    });
    assert_eq!(last_drain(&world), drain(2, 4, "canceled", "bob"));
    let row = get(&world);
    assert!(row.drain_strategy.is_none());
    assert_eq!(
        row.scheduling_eligibility, "ineligible",
        "unless it is asked"
    );
    world.given(drained(DrainUpdate::default(), 5));
    assert_eq!(last_drain(&world), drain(2, 4, "canceled", "bob"), "over");
    world.given(drained(draining(5), 6));
    assert_eq!(last_drain(&world), drain(6, 6, "draining", ""), "another");
}

#[test]
fn a_drain_that_was_under_way_before_drains_were_kept_is_kept_from_then_on() {
    let mut world = World::new();
    let mut old = node(10);
    old.drain_strategy = draining(5).drain_strategy;
    world.given(registered(old));
    world.given(drained(draining(9), 7));
    let undone = (7, 7, "draining".to_owned(), String::new());
    assert_eq!(last_drain(&world), undone);
}

#[test]
fn a_node_that_refuses_too_many_plans_is_made_ineligible_by_the_next() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(PlanApplied {
        ineligible_nodes: vec![id(10)],
        ..Default::default()
    });
    let row = get(&world);
    assert_eq!(row.scheduling_eligibility, "ineligible");
    assert_eq!(row.modify_index, 2);
    assert_eq!(mark(&world), event_id(2));
    let reported = &state(&world).events[0];
    assert!(reported.message.contains("multiple plan rejections"));
    assert_eq!(
        (reported.subsystem.as_str(), reported.create_index),
        ("Scheduler", 2)
    );
    assert_eq!(reported.timestamp.0, now(&world));
}

#[test]
fn eligibility_is_set_with_its_event_and_asks_for_the_node_s_jobs() {
    let mut world = World::new();
    world.given(registered(node(10)));
    for (at, eligibility) in [(1, "ineligible"), (2, "eligible")] {
        world.given(NodeEligibilityUpdated {
            node_id: id(10),
            eligibility: eligibility.into(),
            event: Some(event(eligibility)),
            evals: vec![eval(at, "web", "pending")],
            ..Default::default()
        });
        let row = get(&world);
        assert_eq!(row.scheduling_eligibility, eligibility);
        assert_eq!(row.modify_index, world.index);
        assert_eq!(mark(&world), event_id(world.index));
        let last = messages(&world).pop();
        assert_eq!(last, Some((eligibility.to_owned(), world.index)));
        assert_eq!(state(&world).modify_index, world.index);
        assert!(eval_exists(&world, at));
    }
}

#[test]
fn what_is_held_on_a_node_is_counted_when_it_comes_back() {
    let mut world = running_job();
    let held = |world: &World| {
        let row = world.view().get::<NodeUses>(&id(10)).unwrap().unwrap();
        (row.allocs, row.cpu, row.memory_mb)
    };
    world.given(NodesDeregistered {
        node_ids: vec![id(10)],
        evals: vec![eval(1, "web", "pending")],
    });
    assert!(eval_exists(&world, 1));
    assert!(world.view().get::<NodeStates>(&id(10)).unwrap().is_none());
    world.given(super::allocs::update(41, "failed"));
    world.given(registered(node(10)));
    assert_eq!(held(&world), (1, 500, 256));
}
