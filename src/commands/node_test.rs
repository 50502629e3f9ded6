use drover_events::Event;
use drover_events::model::{DisconnectStrategy, DrainSpec};
use drover_projections::tables::nodes;

use super::*;
use crate::alloc::UpdateAllocsFromClient;
use crate::job::RegisterJob;
use crate::testing::{World, alloc, id, job, node, placed};

fn register(number: u32) -> RegisterNode {
    RegisterNode {
        node: node(number),
        create_node_pool: false,
    }
}

fn heartbeat(status: &str) -> UpdateNodeStatus {
    UpdateNodeStatus {
        node_id: id(10),
        status: status.into(),
        event: None,
    }
}

fn miss() -> MissHeartbeat {
    MissHeartbeat { node_id: id(10) }
}

fn status(world: &World) -> String {
    nodes::get(&world.view(), &id(10)).unwrap().unwrap().status
}

fn update(status: &str) -> UpdateAllocsFromClient {
    let mut alloc = alloc(40, "web", 10);
    alloc.client_status = status.into();
    UpdateAllocsFromClient {
        allocs: vec![alloc],
        caller: Some(id(10)),
    }
}

/// A ready node with one running allocation, which may wait `lost_after` for its node.
fn running(lost_after: i64) -> World {
    let mut world = World::new();
    world.done(&register(10));
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
    world.given(placed(alloc(40, "web", 10), 2));
    world.done(&update("running"));
    world
}

#[test]
fn sch_01_a_window_makes_the_node_disconnected_else_it_is_down() {
    let mut world = running(3_600_000_000_000);
    world.done(&miss());
    assert_eq!(status(&world), "disconnected");
    let mut world = running(0);
    world.done(&miss());
    assert_eq!(status(&world), "down");
    let node = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    assert_eq!(node.events.last().unwrap().message, "Node heartbeat missed");
    assert!(
        matches!(world.decide(&miss()).unwrap(), Decision::Nothing(_)),
        "missed once"
    );
}

#[test]
fn sch_11_a_disconnected_node_is_initializing_until_it_has_updated_its_allocs() {
    let mut world = running(3_600_000_000_000);
    world.done(&miss());
    for _ in 0..3 {
        world.done(&heartbeat("ready"));
        assert_eq!(status(&world), "initializing");
    }
    world.done(&update("running"));
    assert_eq!(status(&world), "initializing");
    world.done(&heartbeat("ready"));
    assert_eq!(status(&world), "ready");
}

#[test]
fn sch_13_an_empty_node_is_ready_by_its_second_heartbeat() {
    let mut world = running(3_600_000_000_000);
    world.done(&miss());
    let mut gone = placed(alloc(41, "web", 10), 2);
    gone.placed.clear();
    gone.stopped.push(drover_events::plan::StoppedAlloc {
        id: id(40),
        ..Default::default()
    });
    world.given(gone);
    world.done(&heartbeat("ready"));
    assert_eq!(status(&world), "initializing");
    world.done(&heartbeat("ready"));
    assert_eq!(status(&world), "ready");
}

#[test]
fn sch_14_a_register_that_comes_first_makes_nothing_schedulable() {
    let mut world = running(3_600_000_000_000);
    world.done(&miss());
    let mut again = register(10);
    again.node.meta.insert("a", "b".to_owned());
    world.done(&again);
    assert_eq!(status(&world), "disconnected");
}

#[test]
fn a_heartbeat_that_changes_nothing_is_no_event() {
    let mut world = World::new();
    world.done(&register(10));
    assert!(matches!(
        world.decide(&heartbeat("ready")).unwrap(),
        Decision::Nothing(_)
    ));
    assert!(matches!(
        world.decide(&register(10)).unwrap(),
        Decision::Nothing(_)
    ));
}

#[test]
fn jobs_on_a_node_that_goes_down_are_looked_at_again() {
    let world = running(0);
    let Event::NodeStatusUpdated(event) = world.event(&miss()) else {
        panic!()
    };
    let evals: Vec<_> = event
        .evals
        .iter()
        .map(|e| (e.job_id.as_str(), e.triggered_by.as_str()))
        .collect();
    assert_eq!(evals, [("web", "node-update")]);
    assert_eq!(event.evals[0].node_id, id(10));
}

#[test]
fn system_jobs_are_looked_at_where_they_may_run() {
    let mut world = World::new();
    for (name, datacenter) in [("here", "dc*"), ("there", "eu")] {
        let mut spec = job(name);
        spec.r#type = "system".into();
        spec.datacenters = vec![datacenter.to_owned()].into();
        world.done(&RegisterJob {
            job: spec,
            eval_id: id(1),
            ..Default::default()
        });
    }
    let Event::NodeRegistered(event) = world.event(&register(10)) else {
        panic!()
    };
    let jobs: Vec<_> = event
        .evals
        .iter()
        .map(|eval| eval.job_id.as_str())
        .collect();
    assert_eq!(jobs, ["here"]);
}

#[test]
fn malformed_registrations_are_refused_in_words() {
    let mut world = World::new();
    for (change, text) in [
        (
            (|n: &mut Node| n.id.clear()) as fn(&mut Node),
            "missing node ID for client registration",
        ),
        (
            |n| n.datacenter.clear(),
            "missing datacenter for client registration",
        ),
        (
            |n| n.name.clear(),
            "missing node name for client registration",
        ),
        (|n| n.status = "fine".into(), "invalid status for node"),
    ] {
        let mut command = register(10);
        change(&mut command.node);
        assert_eq!(world.refusal(&command).1, text);
    }
    world.done(&register(10));
    let mut other = register(10);
    other.node.secret_id = "another".into();
    assert!(world.refusal(&other).1.contains("secret"));
    assert_eq!(
        world
            .refusal(&UpdateNodeStatus {
                node_id: id(11),
                ..heartbeat("ready")
            })
            .1,
        "node not found"
    );
}

#[test]
fn a_drain_has_its_deadline_and_ends_in_words() {
    let mut world = World::new();
    world.done(&register(10));
    let spec = DrainSpec {
        deadline: 60_000_000_000,
        ignore_system_jobs: true,
    };
    let drain = UpdateNodeDrain {
        node_id: id(10),
        spec: Some(spec),
        ..Default::default()
    };
    let deadline = world.now() + 60_000_000_000;
    world.done(&drain);
    let known = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    assert_eq!(known.drain_strategy.unwrap().force_deadline.0, deadline);
    let eligible = UpdateNodeEligibility {
        node_id: id(10),
        eligibility: "eligible".into(),
    };
    let text = "can not set node's scheduling eligibility to eligible while it is draining";
    assert_eq!(world.refusal(&eligible).1, text);
    let set = world
        .view()
        .modify_index::<Nodes>(&id(10))
        .unwrap()
        .unwrap();
    let drained = |number, modify_index| DrainedNode {
        id: id(number),
        modify_index,
        deadline_reached: true,
    };
    let stale = CompleteDrains {
        nodes: vec![drained(10, set - 1)],
    };
    assert!(
        matches!(world.decide(&stale).unwrap(), Decision::Nothing(_)),
        "the drain is another one than was looked at"
    );
    world.done(&CompleteDrains {
        nodes: vec![drained(10, set), drained(99, 1)],
    });
    let known = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    let event = known.events.last().unwrap();
    assert_eq!(event.message, "Node drain complete");
    assert_eq!(event.subsystem, "Drain");
    assert_eq!(event.details["deadline_reached"], "true");
    assert_eq!(known.last_drain.unwrap().status, "complete");
    let odd = UpdateNodeEligibility {
        node_id: id(10),
        eligibility: "maybe".into(),
    };
    assert_eq!(
        world.refusal(&odd).1,
        "invalid scheduling eligibility \"maybe\""
    );
    world.done(&eligible);
    assert!(nodes::get(&world.view(), &id(10)).unwrap().unwrap().ready());
}

#[test]
fn a_decision_on_a_node_that_changed_meanwhile_is_rejected() {
    let mut world = World::new();
    world.done(&register(10));
    let drain = UpdateNodeDrain {
        node_id: id(10),
        spec: Some(DrainSpec::default()),
        ..Default::default()
    };
    let Decision::Event { event, guards } = world.decide(&drain).unwrap() else {
        panic!()
    };
    let odd = UpdateNodeEligibility {
        node_id: id(10),
        eligibility: "ineligible".into(),
    };
    world.done(&odd);
    let outcome = world.append(event, guards);
    assert!(matches!(outcome, drover_projections::Outcome::Rejected(_)));
}

#[test]
fn sch_12_equal_indexes_count_as_not_updated() {
    let mut world = World::new();
    let mut new = register(10);
    new.node.status = "initializing".into();
    world.done(&new);
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..Default::default()
    });
    world.given(placed(alloc(40, "web", 10), 2));
    let indexes = |world: &World| {
        let node = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
        (
            node.last_alloc_update_index,
            node.last_missed_heartbeat_index,
        )
    };
    assert_eq!(
        indexes(&world),
        (0, 0),
        "nothing was told, and nothing missed"
    );
    world.done(&heartbeat("ready"));
    assert_eq!(status(&world), "initializing");
    world.done(&update("running"));
    assert!(indexes(&world).0 > 0);
    world.done(&heartbeat("ready"));
    assert_eq!(status(&world), "ready");
    // And after it was missed: what it reported before does not count.
    world.done(&miss());
    let (reported, missed) = indexes(&world);
    assert!(reported < missed, "{reported} {missed}");
}

#[test]
fn a_node_is_made_ineligible_and_eligible_and_evaluated_for_it() {
    let mut world = running(0);
    let set = |eligibility: &str| UpdateNodeEligibility {
        node_id: id(10),
        eligibility: eligibility.into(),
    };
    let node = |world: &World| nodes::get(&world.view(), &id(10)).unwrap().unwrap();
    let Event::NodeEligibilityUpdated(event) = world.event(&set("ineligible")) else {
        panic!("another event");
    };
    assert!(event.evals.is_empty(), "nothing new fits");
    world.done(&set("ineligible"));
    assert_eq!(node(&world).scheduling_eligibility, "ineligible");
    assert!(matches!(
        world.decide(&set("ineligible")).unwrap(),
        Decision::Nothing(_)
    ));
    let Event::NodeEligibilityUpdated(event) = world.event(&set("eligible")) else {
        panic!("another event");
    };
    assert_eq!(event.evals[0].job_id, "web");
    world.done(&set("eligible"));
    let known = node(&world);
    assert_eq!(known.scheduling_eligibility, "eligible");
    assert_eq!(
        known.events.last().unwrap().message,
        "Node marked as eligible for scheduling"
    );
    let (_, text) = world.refusal(&set("perhaps"));
    assert_eq!(text, "invalid scheduling eligibility \"perhaps\"");
}

#[test]
fn a_purged_node_goes_and_what_ran_there_is_looked_at_again() {
    let mut world = running(0);
    let purge = DeregisterNodes {
        node_ids: vec![id(10)],
    };
    let Event::NodesDeregistered(event) = world.event(&purge) else {
        panic!("another event");
    };
    let eval = &event.evals[0];
    assert_eq!(
        (
            eval.job_id.as_str(),
            eval.triggered_by.as_str(),
            &eval.node_id
        ),
        ("web", "node-update", &id(10))
    );
    world.done(&purge);
    assert!(nodes::get(&world.view(), &id(10)).unwrap().is_none());
    let (_, text) = world.refusal(&purge);
    assert_eq!(text, "node not found");
}

#[test]
fn what_is_said_when_a_drain_is_called_off_is_added_to_what_was_said() {
    let mut world = World::new();
    world.done(&register(10));
    let update = |spec: Option<DrainSpec>, key: &str| UpdateNodeDrain {
        node_id: id(10),
        spec,
        meta: BTreeMap::from([(key.to_owned(), "so".to_owned())]),
        ..UpdateNodeDrain::default()
    };
    let meta = |world: &World| {
        let known = nodes::get(&world.view(), &id(10)).unwrap().unwrap();
        let meta = known.last_drain.unwrap().meta;
        meta.keys().cloned().collect::<Vec<_>>()
    };
    world.done(&update(Some(DrainSpec::default()), "message"));
    world.done(&update(None, "cancel_message"));
    assert_eq!(meta(&world), ["cancel_message", "message"]);
    world.done(&update(Some(DrainSpec::default()), "again"));
    assert_eq!(meta(&world), ["again"], "another drain begins anew");
}

#[test]
fn a_node_with_a_name_that_is_too_long_is_not_taken_in() {
    let world = World::new();
    let named = |change: fn(&mut Node, String)| {
        let mut command = register(10);
        change(&mut command.node, "n".repeat(1_025));
        world.decide(&command)
    };
    for change in [
        (|node, name| node.id = name) as fn(&mut Node, String),
        |node, name| node.name = name,
        |node, name| node.datacenter = name,
        |node, name| node.node_class = name,
        |node, name| node.node_pool = name,
    ] {
        let error = named(change).unwrap_err();
        assert_eq!(error.code, drover_error::Code::BadRequest);
        let limit = "1025 bytes long; at most 1024 are accepted";
        assert!(error.message.contains(limit), "{error}");
    }
    assert!(named(|node, name| node.name = name[1..].to_owned()).is_ok());
}

/// What a plan places between the decision and its commit is in no evaluation: the decision is made
/// again.
#[test]
fn what_is_placed_meanwhile_has_a_nodes_end_decided_again() {
    let ends: [&dyn Command; 2] = [
        &miss(),
        &DeregisterNodes {
            node_ids: vec![id(10)],
        },
    ];
    for end in ends {
        let mut world = running(0);
        let stamp = Stamp {
            id: drover_events::EventId([9; 16]),
            now: world.now(),
        };
        let decision = end.decide(&world.view(), &stamp).unwrap();
        let Decision::Event { event, guards } = decision else {
            panic!("{decision:?}");
        };
        world.given(placed(alloc(41, "web", 10), 2));
        let outcome = world.append(event, guards);
        assert!(
            matches!(outcome, drover_projections::Outcome::Rejected(_)),
            "{outcome:?}"
        );
    }
}
