//! The calls of a client that comes back, in whatever order they arrive.

use super::returning::{away, leave, status};
use super::world::World;
use drover::commands::alloc::UpdateAllocsFromClient;
use drover::commands::node::{RegisterNode, UpdateNodeStatus};
use drover_scheduler::rng::Rng;
use drover_testkit::fixtures::{job, node};

/// The calls that a client makes by itself, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Heartbeat,
    Allocs,
    Register,
}

fn call(world: &mut World, call: Call, id: &str, at: &str) -> bool {
    let done = match call {
        Call::Heartbeat => world.command(&UpdateNodeStatus {
            node_id: at.to_owned(),
            status: "ready".into(),
            event: None,
        }),
        Call::Allocs => {
            let mut alloc = world.alloc(id);
            alloc.client_status = "running".into();
            world.command(&UpdateAllocsFromClient {
                allocs: vec![alloc],
                caller: Some(at.to_owned()),
            })
        }
        Call::Register => {
            let number = usize::from_str_radix(&at[..8], 16).unwrap();
            world.command(&RegisterNode {
                node: node(number),
                create_node_pool: true,
            })
        }
    };
    done.is_ok()
}

const ORDERS: [[Call; 3]; 6] = [
    [Call::Heartbeat, Call::Allocs, Call::Register],
    [Call::Heartbeat, Call::Register, Call::Allocs],
    [Call::Allocs, Call::Heartbeat, Call::Register],
    [Call::Allocs, Call::Register, Call::Heartbeat],
    [Call::Register, Call::Heartbeat, Call::Allocs],
    [Call::Register, Call::Allocs, Call::Heartbeat],
];

#[test]
fn sch_15_sch_16_in_whatever_order_a_client_calls_nothing_is_placed_for_its_return() {
    for order in ORDERS {
        let (mut world, id, at) = away(false);
        let mut calls: Vec<Call> = order.into();
        for turn in 0..12 {
            if calls.is_empty() {
                break;
            }
            let next = calls.remove(0);
            if !call(&mut world, next, &id, &at) {
                // It was refused; the client makes the call again, and knows nothing of an order.
                calls.push(next);
            }
            let outcome = world.run("node-update");
            let new = outcome.plan.placements.iter().filter(|p| p.alloc.id != id);
            assert_eq!(new.count(), 0, "{order:?} turn {turn}");
            assert_eq!(
                world.live(),
                std::slice::from_ref(&id),
                "{order:?} turn {turn}: never none"
            );
        }
        assert!(calls.is_empty(), "{order:?}");
        call(&mut world, Call::Heartbeat, &id, &at);
        call(&mut world, Call::Allocs, &id, &at);
        call(&mut world, Call::Heartbeat, &id, &at);
        world.run("reconnect");
        assert_eq!(status(&world, &at), "ready", "{order:?}");
        assert_eq!(world.alloc(&id).client_status, "running", "{order:?}");
        assert_eq!(world.live(), [id], "{order:?}");
    }
}

/// Status, updates and fetches are loops of their own: each call may be repeated, early or late,
/// and an update reports what was fetched long before.
#[test]
fn hb_08_in_whatever_order_its_loops_call_a_client_comes_back_with_what_it_runs() {
    let mut refused = 0;
    for seed in 0..16 {
        let mut rng = Rng::new(seed);
        let (mut world, id, at) = away(false);
        let mut fetched = world.alloc(&id);
        for step in 0..rng.below(12) + 12 {
            match rng.below(4) {
                0 => _ = call(&mut world, Call::Heartbeat, &id, &at),
                1 => _ = call(&mut world, Call::Register, &id, &at),
                2 => fetched = world.alloc(&id),
                _ => {
                    let mut reported = fetched.clone();
                    reported.client_status = "running".into();
                    let update = UpdateAllocsFromClient {
                        allocs: vec![reported],
                        caller: Some(at.clone()),
                    };
                    refused += u32::from(world.command(&update).is_err());
                }
            }
            if rng.below(3) == 0 {
                world.run("node-update");
            }
            let live = world.live();
            assert_eq!(live, std::slice::from_ref(&id), "seed {seed}, step {step}");
        }
        // The loops continue.
        for next in [Call::Allocs, Call::Heartbeat, Call::Allocs, Call::Heartbeat] {
            call(&mut world, next, &id, &at);
        }
        world.run("reconnect");
        assert_eq!(status(&world, &at), "ready", "seed {seed}");
        assert_eq!(world.alloc(&id).client_status, "running", "seed {seed}");
        assert_eq!(world.live(), [id], "seed {seed}");
    }
    assert!(refused > 10, "{refused} updates came too early");
}

/// A replacement is wanted and has no place but the node that comes back.
#[test]
fn sch_15_a_replacement_that_waits_is_not_placed_on_the_node_that_returns() {
    for order in ORDERS {
        let (mut world, id, at, left) = leave(1, true);
        let waiting = left.blocked.expect("a replacement waits for room");
        let (mut calls, mut passed) = (order.to_vec(), Vec::new());
        while !calls.is_empty() {
            assert!(passed.len() < 1_000, "{order:?}: {passed:?}");
            let next = calls.remove(0);
            if !call(&mut world, next, &id, &at) {
                calls.push(next);
            }
            passed.push(status(&world, &at));
            world.run_eval(&waiting);
            let live = world.live();
            assert_eq!(live, std::slice::from_ref(&id), "{order:?}: {passed:?}");
        }
        assert!(passed.iter().any(|now| now == "initializing"), "{passed:?}");
        for next in [Call::Heartbeat, Call::Allocs, Call::Heartbeat] {
            call(&mut world, next, &id, &at);
        }
        world.run("reconnect");
        assert_eq!(status(&world, &at), "ready", "{order:?}");
        assert_eq!(world.alloc(&id).client_status, "running", "{order:?}");
        assert_eq!(world.allocs().len(), 1, "{order:?}: none was made in vain");
    }
}

#[test]
fn sch_15_an_initializing_node_gets_no_placement() {
    let mut world = World::new(1, job("service", 2));
    let id = node(0).id;
    world.node_status(&id, "initializing");
    let outcome = world.run("job-register");
    assert!(world.live().is_empty());
    assert_eq!(outcome.failed["g"].nodes_evaluated, 0);
    world.node_status(&id, "ready");
    world.run("node-update");
    assert_eq!(world.live().len(), 2);
}
