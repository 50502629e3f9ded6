//! What a node that registers again is recorded with, and which nodes a missed heartbeat concerns.

use drover_events::Event;
use drover_events::model::{AllocState, DisconnectStrategy};
use drover_events::node::{DrainUpdate, NodeDrainUpdated, NodeStatusUpdated};
use drover_events::plan::{PlanApplied, StoppedAlloc};

use super::*;
use crate::job::RegisterJob;
use crate::testing::{World, alloc, id, job, node, placed};

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
    let message = |world: &World| match world.event(&again) {
        Event::NodeRegistered(event) => event.event.map(|event| event.message),
        other => panic!("{other:?}"),
    };
    assert_eq!(message(&world), None, "it never was");
    world.done(&miss());
    assert_eq!(get(&world).status, "down");
    assert_eq!(message(&world).as_deref(), Some("Node re-registered"));
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
    world.done(&miss());
    assert_eq!(get(&world).status, "disconnected");
    let missed = Some(world.index);
    assert_eq!(
        miss().cause(&world.view()),
        missed,
        "nothing was heard since"
    );
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

#[test]
fn sch_01_only_what_is_to_run_is_waited_for_and_a_past_absence_counts_no_more() {
    let mut world = running(5_000_000_000);
    let mut back = alloc(40, "web", 10);
    back.client_status = "running".into();
    back.alloc_states = vec![AllocState {
        value: "unknown".into(),
        time: Time(1),
        ..Default::default()
    }]
    .into();
    world.given(placed(back.clone(), 2));
    let becomes = |world: &World| match world.event(&miss()) {
        Event::NodeStatusUpdated(event) => event.status,
        other => panic!("{other:?}"),
    };
    assert_eq!(becomes(&world), "disconnected", "it came back from that");
    back.desired_status = "stop".into();
    world.given(placed(back, 2));
    assert_eq!(becomes(&world), "down", "nobody waits for what is to stop");
}

#[test]
fn a_node_registers_with_what_it_leaves_to_the_servers() {
    let mut world = World::new();
    let mut bare = register();
    bare.node.status = String::new();
    bare.node.node_pool = String::new();
    world.done(&bare);
    let row = get(&world);
    assert_eq!(
        (row.status.as_str(), row.node_pool.as_str()),
        ("initializing", "default")
    );
    assert_eq!(
        row.status_updated_at,
        (world.now() - 1_000_000_000) / 1_000_000_000
    );
    // It becomes ready: it was not away, and nothing says that it came back.
    let ready = UpdateNodeStatus {
        node_id: id(10),
        status: "ready".into(),
        event: None,
    };
    match world.event(&ready) {
        Event::NodeStatusUpdated(event) => {
            assert_eq!((event.status.as_str(), event.event), ("ready", None))
        }
        other => panic!("{other:?}"),
    }
}
