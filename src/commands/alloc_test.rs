use drover_events::Event;
use drover_events::model::{DisconnectStrategy, ReschedulePolicy};
use drover_projections::tables::allocs::Allocs;

use super::*;
use crate::job::{DeregisterJob, RegisterJob};
use crate::node::{MissHeartbeat, RegisterNode, UpdateNodeStatus};
use crate::testing::{World, alloc, id, job, node, placed};
use drover_error::Code;

fn world() -> World {
    let mut world = World::new();
    for number in [10, 11] {
        world.done(&RegisterNode {
            node: node(number),
            create_node_pool: false,
        });
    }
    let mut spec = job("web");
    let group = &mut spec.task_groups[0];
    group.reschedule_policy = Some(ReschedulePolicy {
        unlimited: true,
        ..Default::default()
    });
    group.disconnect = Some(DisconnectStrategy {
        lost_after: 3_600_000_000_000,
        ..Default::default()
    });
    world.done(&RegisterJob {
        job: spec,
        eval_id: id(1),
        ..Default::default()
    });
    for number in [40, 41] {
        world.given(placed(alloc(number, "web", 10), 3));
    }
    world
}

fn report(statuses: &[(u32, &str)]) -> UpdateAllocsFromClient {
    let allocs = statuses
        .iter()
        .map(|(number, status)| Allocation {
            client_status: (*status).into(),
            ..alloc(*number, "web", 10)
        })
        .collect();
    UpdateAllocsFromClient {
        allocs,
        caller: Some(id(10)),
    }
}

fn triggers(world: &World, command: &UpdateAllocsFromClient) -> Vec<String> {
    let event = match world.decide(command).unwrap() {
        Decision::Event {
            event: Event::AllocsUpdatedByClient(event),
            ..
        } => event,
        Decision::Nothing(_) => return Vec::new(),
        other => panic!("{other:?}"),
    };
    event
        .evals
        .into_iter()
        .map(|eval| eval.triggered_by)
        .collect()
}

#[test]
fn eval_15_only_what_matters_makes_an_evaluation() {
    let mut world = world();
    assert!(triggers(&world, &report(&[(40, "running")])).is_empty());
    assert!(triggers(&world, &report(&[(40, "complete")])).is_empty());
    assert_eq!(
        triggers(&world, &report(&[(40, "failed")])),
        ["alloc-failure"]
    );
    let both = report(&[(40, "failed"), (41, "failed")]);
    assert_eq!(triggers(&world, &both), ["alloc-failure"], "one per job");
    world.done(&report(&[(40, "failed")]));
    assert!(
        triggers(&world, &report(&[(40, "failed")])).is_empty(),
        "said before"
    );

    let mut unknown = placed(alloc(41, "web", 10), 3);
    unknown.placed[0].alloc.client_status = "unknown".into();
    world.given(unknown);
    assert_eq!(triggers(&world, &report(&[(41, "running")])), ["reconnect"]);
    let purge = DeregisterJob {
        namespace: "default".into(),
        job_id: "web".into(),
        purge: true,
        eval_id: id(2),
        ..Default::default()
    };
    world.done(&purge);
    assert_eq!(
        triggers(&world, &report(&[(41, "complete")])),
        ["job-deregister"]
    );
    assert!(
        triggers(&world, &report(&[(40, "complete")])).is_empty(),
        "it ended before"
    );
}

#[test]
fn sch_09_a_node_without_contact_may_not_update_its_allocs() {
    for (status, allowed) in [
        ("ready", true),
        ("initializing", true),
        ("down", false),
        ("disconnected", false),
    ] {
        let mut world = world();
        world.done(&MissHeartbeat { node_id: id(10) });
        let requested = UpdateNodeStatus {
            node_id: id(10),
            status: status.into(),
            event: None,
        };
        match status {
            "ready" => {
                world.done(&UpdateNodeStatus {
                    status: "initializing".into(),
                    ..requested.clone()
                });
                world.done(&report(&[(40, "running")]));
                world.done(&requested);
            }
            _ => {
                world.done(&requested);
            }
        }
        let before = world.row::<Allocs>(&id(41)).unwrap();
        let decision = world.decide(&report(&[(41, "running")]));
        if allowed {
            assert!(decision.is_ok(), "{status}");
        } else {
            let text = format!(
                "node {} is not allowed to update allocs while in status {status}",
                id(10)
            );
            assert_eq!(decision.unwrap_err().message, text);
            assert_eq!(world.row::<Allocs>(&id(41)).unwrap(), before);
        }
    }
}

#[test]
fn sch_10_the_node_is_read_from_the_allocations() {
    let world = world();
    let none = UpdateAllocsFromClient {
        allocs: Vec::new(),
        caller: None,
    };
    assert_eq!(
        world.refusal(&none).1,
        "must update at least one allocation"
    );
    let mut homeless = report(&[(40, "running")]);
    homeless.allocs[0].node_id.clear();
    assert!(world.refusal(&homeless).1.contains("has no node"));
    let mut mixed = report(&[(40, "running"), (41, "running")]);
    mixed.allocs[1].node_id = id(11);
    assert!(world.refusal(&mixed).1.contains("must be of one node"));
    let mut unknown = report(&[(40, "running")]);
    unknown.allocs[0].node_id = id(12);
    unknown.caller = None;
    assert_eq!(
        world.refusal(&unknown).1,
        format!("node {} not found", id(12))
    );
    let mut foreign = report(&[(40, "running")]);
    foreign.caller = Some(id(11));
    assert_eq!(world.refusal(&foreign).0, Code::PermissionDenied);
    let mut stolen = report(&[(40, "running")]);
    stolen.allocs[0].node_id = id(11);
    stolen.caller = Some(id(11));
    assert!(world.refusal(&stolen).1.contains("is not on node"));
}

#[test]
fn ev_14_what_is_not_a_client_s_is_left_behind() {
    let mut world = world();
    let mut command = report(&[(40, "running")]);
    command.allocs[0].desired_status = "stop".into();
    command.allocs[0].job_id = "other".into();
    command.allocs[0].followup_eval_id = id(9);
    world.done(&command);
    let row = world.row::<Allocs>(&id(40)).unwrap();
    assert_eq!(
        (row.desired_status.as_str(), row.job_id.as_str()),
        ("run", "web")
    );
    assert!(row.followup_eval_id.is_empty());
    assert_eq!(row.client_status, "running");
}

#[test]
fn ev_15_the_servers_stamp_the_update() {
    let mut world = world();
    let mut command = report(&[(40, "running")]);
    command.allocs[0].modify_time = 1;
    let now = world.now();
    world.done(&command);
    assert_eq!(world.row::<Allocs>(&id(40)).unwrap().modify_time, now);
}

#[test]
fn a_stopped_allocation_is_migrated_with_an_evaluation() {
    let mut world = world();
    let stop = |alloc: u32| StopAlloc {
        alloc_id: id(alloc),
        eval_id: id(77),
        no_shutdown_delay: true,
        reschedule: false,
    };
    assert_eq!(world.refusal(&stop(99)).0, Code::NotFound);
    world.done(&stop(40));
    let row = world.row::<Allocs>(&id(40)).unwrap();
    assert_eq!(row.desired_transition.migrate, Some(true));
    assert_eq!(row.desired_transition.no_shutdown_delay, Some(true));
    let made = world
        .row::<drover_projections::tables::evals::Evals>(&id(77))
        .unwrap();
    assert_eq!(
        (made.triggered_by.as_str(), made.status.as_str()),
        ("alloc-stop", "pending")
    );
}

#[test]
fn eval_15_attempts_count_within_the_interval() {
    let policy = ReschedulePolicy {
        attempts: 1,
        interval: 100,
        ..Default::default()
    };
    let tried = |at| RescheduleTracker {
        events: vec![drover_events::model::RescheduleEvent {
            reschedule_time: at,
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    assert!(may_reschedule(&policy, None, 1_000));
    assert!(!may_reschedule(&policy, Some(&tried(950)), 1_000));
    assert!(
        may_reschedule(&policy, Some(&tried(900)), 1_000),
        "just over"
    );
    assert!(!may_reschedule(&policy, Some(&tried(901)), 1_000));
    assert!(!may_reschedule(&ReschedulePolicy::default(), None, 1_000));
    let unlimited = ReschedulePolicy {
        unlimited: true,
        ..Default::default()
    };
    assert!(may_reschedule(&unlimited, Some(&tried(999)), 1_000));
}

/// Every server reads what the newest level brought.
fn newest(world: &mut World) {
    world.given(drover_events::cluster::VersionBarrierRaised {
        level: drover_migrations::FEATURE_LEVEL,
        servers: BTreeMap::new(),
    });
}

fn nothing(world: &World, command: &UpdateAllocsFromClient) -> bool {
    matches!(world.decide(command).unwrap(), Decision::Nothing(_))
}

#[test]
fn hb_02_a_report_that_changes_nothing_is_no_event() {
    let mut world = world();
    newest(&mut world);
    let running = report(&[(40, "running"), (41, "running")]);
    world.done(&running);
    let before = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    assert!(nothing(&world, &running));
    let mut healthy = running.clone();
    healthy.allocs[0].deployment_status = Some(drover_events::model::AllocDeploymentStatus {
        healthy: Some(true),
        ..Default::default()
    });
    let Event::AllocsUpdatedByClient(event) = world.event(&healthy) else {
        panic!()
    };
    let reported: Vec<_> = event.updates.iter().map(|u| u.id.clone()).collect();
    assert_eq!(reported, [id(40)], "only what is new is told");
    assert_eq!(event.nodes, [id(10)]);
    let row = world.row::<Allocs>(&id(41)).unwrap();
    world.done(&healthy);
    assert!(nothing(&world, &healthy));
    assert_eq!(world.row::<Allocs>(&id(41)).unwrap(), row);
    let after = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    assert_eq!(after.last_alloc_update_index, world.index);
    assert_eq!(after.modify_index, before.modify_index, "HB-10");
}

#[test]
fn sch_12_what_a_node_is_waited_for_is_an_event_though_nothing_is_new() {
    for level in [0, REPORT_LEVEL, drover_migrations::FEATURE_LEVEL] {
        let mut world = world();
        world.given(drover_events::cluster::VersionBarrierRaised {
            level,
            servers: BTreeMap::new(),
        });
        assert!(
            nothing(&world, &report(&[(40, "pending")])),
            "it never left"
        );
        let running = report(&[(40, "running"), (41, "running")]);
        world.done(&running);
        let heartbeat = UpdateNodeStatus {
            node_id: id(10),
            status: "ready".into(),
            event: None,
        };
        world.done(&MissHeartbeat { node_id: id(10) });
        world.done(&heartbeat);
        let row = world.row::<Allocs>(&id(41)).unwrap();
        let stamp = Stamp {
            id: drover_events::EventId([7; 16]),
            now: world.now(),
        };
        let report = running.report(&world.view(), &stamp, level > 0).unwrap();
        assert!(report.event.is_some());
        assert_eq!(report.cause, None, "nobody asked for it");
        world.done(&running);
        let same = world.row::<Allocs>(&id(41)).unwrap() == row;
        assert_eq!(same, level > 0, "level {level}");
        world.done(&heartbeat);
        let node = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
        assert_eq!(node.status, "ready", "level {level}");
        assert!(nothing(&world, &running), "level {level}");
    }
}

#[test]
fn every_update_names_what_asked_for_it() {
    let mut world = world();
    newest(&mut world);
    world.given(placed(alloc(41, "web", 10), 3));
    let Event::AllocsUpdatedByClient(event) =
        world.event(&report(&[(40, "running"), (41, "running")]))
    else {
        panic!()
    };
    let modify_index = |number| world.row::<Allocs>(&id(number)).unwrap().alloc_modify_index;
    let causes: Vec<_> = event.updates.iter().map(|u| u.cause).collect();
    assert_eq!(causes, [modify_index(40), modify_index(41)]);
    assert!(modify_index(40) < modify_index(41));
}
