//! What is said of a node when it registers again, and whom a missed heartbeat concerns.

use drover_events::Event;
use drover_events::model::{AllocState, DisconnectStrategy};
use drover_events::node::{DrainUpdate, NodeDrainUpdated, NodeStatusUpdated};
use drover_events::plan::{PlanApplied, StoppedAlloc};

use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::testing::{World, alloc, id, job, node, placed};

fn register() -> RegisterNode {
    RegisterNode {
        node: node(10),
        create_node_pool: false,
    }
}

fn miss() -> MissHeartbeat {
    MissHeartbeat { node_id: id(10) }
}

fn get(world: &World) -> Node {
    nodes::get(&world.view(), &id(10)).unwrap().unwrap()
}

/// A ready node with a running allocation that may wait so long for it.
fn running(lost_after: i64) -> World {
    let mut world = World::new();
    world.done(&register());
    let mut spec = job("web");
    spec.task_groups[0].disconnect = Some(DisconnectStrategy {
        lost_after,
        ..Default::default()
    });
    world.done(&RegisterJob {
        job: spec,
        eval_id: id(1),
        ..Default::default()
    });
    let mut one = alloc(40, "web", 10);
    one.client_status = "running".into();
    world.given(placed(one, 2));
    world
}

fn is_nothing(world: &World, command: &impl Command) -> bool {
    matches!(world.decide(command).unwrap(), Decision::Nothing(_))
}

#[test]
fn a_node_that_was_down_is_said_to_register_again() {
    let mut world = running(0);
    let mut again = register();
    again.node.meta.insert("a", "b".to_owned());
    let said = |world: &World| match world.event(&again) {
        Event::NodeRegistered(event) => event.event.map(|event| event.message),
        other => panic!("{other:?}"),
    };
    assert_eq!(said(&world), None, "it never was");
    world.done(&miss());
    assert_eq!(get(&world).status, "down");
    assert_eq!(said(&world).as_deref(), Some("Node re-registered"));
}

#[test]
fn what_servers_and_operators_said_of_a_node_is_no_part_of_its_description() {
    let mut world = World::new();
    world.done(&register());
    world.given(NodeStatusUpdated {
        node_id: id(10),
        status: "ready".into(),
        identity_signing_key_id: id(3),
        ..Default::default()
    });
    let drain = DrainUpdate {
        drain_strategy: Some(Default::default()),
        ..Default::default()
    };
    world.given(NodeDrainUpdated {
        updates: [(id(10), drain)].into(),
        ..Default::default()
    });
    let known = get(&world);
    assert!(known.drain_strategy.is_some() && known.last_drain.is_some());
    assert!(is_nothing(&world, &register()));
}

#[test]
fn jobs_are_looked_at_again_where_a_node_comes_or_goes() {
    let comes_or_goes = [
        ("initializing", "ready"),
        ("ready", "down"),
        ("ready", "disconnected"),
        ("disconnected", "initializing"),
    ];
    for (from, to) in comes_or_goes {
        assert!(needs_evals(from, to), "{from} {to}");
    }
    for (from, to) in [
        ("ready", "ready"),
        ("down", "down"),
        ("down", "initializing"),
    ] {
        assert!(!needs_evals(from, to), "{from} {to}");
    }
}

#[test]
fn sch_01_a_node_is_waited_for_until_the_window_of_what_runs_there_is_over() {
    let mut world = running(5_000_000_000);
    assert_eq!(miss().cause(&world.view()), Some(get(&world).modify_index));
    world.done(&miss());
    assert_eq!(get(&world).status, "disconnected");
    assert!(is_nothing(&world, &miss()), "it is waited for already");
    let left = AllocState {
        value: "unknown".into(),
        time: Time(world.now()),
        ..Default::default()
    };
    world.given(PlanApplied {
        stopped: vec![StoppedAlloc {
            id: id(40),
            client_status: "unknown".into(),
            alloc_states: Some(vec![left]),
            ..Default::default()
        }],
        ..Default::default()
    });
    let mut kept = alloc(40, "web", 10);
    kept.client_status = "unknown".into();
    kept.alloc_states = world
        .row::<drover_projections::tables::allocs::Allocs>(&id(40))
        .unwrap()
        .alloc
        .alloc_states;
    world.given(placed(kept, 2));
    assert!(is_nothing(&world, &miss()), "the window is open");
    for _ in 0..4 {
        // Each event is a second later.
        world.raise();
    }
    world.done(&miss());
    assert_eq!(get(&world).status, "down");
}
