//! Stories of jobs: what is registered, what happens, what the scheduler makes of it.

use std::collections::BTreeSet;

use drover_events::gojson::Time;
use drover_events::model::{Constraint, NetworkResource, Port, SchedulerConfiguration, Spread};

use super::world::World;
use drover_testkit::fixtures::{SECOND, job, node};

pub(crate) fn names(world: &World) -> Vec<String> {
    world
        .live()
        .iter()
        .map(|id| world.alloc(id).name.clone())
        .collect()
}

#[test]
fn a_count_is_placed_scaled_and_stopped() {
    let mut world = World::new(10, job("service", 3));
    let outcome = world.run("job-register");
    assert_eq!(outcome.finished.status, "complete");
    assert_eq!(outcome.desired["g"].place, 3);
    assert_eq!(outcome.finished.queued_allocations["g"], 0);
    assert_eq!(names(&world), ["j.g[0]", "j.g[1]", "j.g[2]"]);
    assert!(
        world.run("node-update").plan.is_empty(),
        "nothing is left to do"
    );

    world.change(|job| job.task_groups[0].count = 5);
    let outcome = world.run("job-register");
    assert_eq!(
        (
            outcome.desired["g"].place,
            outcome.desired["g"].in_place_update
        ),
        (2, 3)
    );
    assert_eq!(world.live().len(), 5);

    world.change(|job| job.task_groups[0].count = 2);
    let outcome = world.run("job-register");
    assert_eq!(outcome.desired["g"].stop, 3);
    assert_eq!(
        names(&world),
        ["j.g[0]", "j.g[1]"],
        "the highest names go first"
    );

    world.change(|job| job.stop = true);
    let outcome = world.run("job-deregister");
    assert_eq!(outcome.desired["g"].stop, 2);
    assert!(world.live().is_empty());
    assert!(
        outcome
            .plan
            .stops
            .iter()
            .all(|s| s.description == "alloc not needed due to job update")
    );
}

#[test]
fn the_same_inputs_give_the_same_plan() {
    let mut world = World::new(50, job("service", 20));
    let eval = world.eval("job-register");
    let ids = |world: &World| {
        let outcome = world.decide(&eval);
        let placed = outcome.plan.placements.iter();
        placed
            .map(|p| (p.alloc.id.clone(), p.alloc.node_id.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&world), ids(&world));
    let mut other = World::of((0..50).rev(), job("service", 20));
    assert_eq!(other.eval("job-register").id, eval.id);
    assert_eq!(
        ids(&world),
        ids(&other),
        "the order in which nodes were met plays no part"
    );
}

#[test]
fn what_finds_no_place_blocks_and_says_why() {
    let mut job = job("service", 2);
    job.task_groups[0].tasks[0].resources.as_mut().unwrap().cpu = 900_000;
    let mut world = World::new(1, job);
    let outcome = world.run("job-register");
    let blocked = outcome.blocked.expect("a blocked evaluation is created");
    assert_eq!(
        (blocked.status.as_str(), blocked.triggered_by.as_str()),
        ("blocked", "queued-allocs")
    );
    assert_eq!(
        blocked.status_description,
        "created to place remaining allocations"
    );
    assert_eq!(blocked.class_eligibility.get("v1:1"), Some(&true));
    assert!(!blocked.escaped_computed_class);
    assert_eq!(outcome.finished.blocked_eval, blocked.id);
    assert_eq!(outcome.finished.queued_allocations["g"], 2);
    let metric = &outcome.failed["g"];
    assert_eq!((metric.nodes_evaluated, metric.nodes_exhausted), (1, 1));
    assert_eq!(metric.coalesced_failures, 1);
    assert_eq!(metric.dimension_exhausted.get("cpu"), Some(&1));
    assert_eq!(metric.resources_exhausted["t"].cpu, 1_800_000);
    assert_eq!(metric.nodes_available.get("dc1"), Some(&1));
    assert_eq!(
        (metric.nodes_in_pool, metric.node_pool.as_str()),
        (1, "default")
    );

    let outcome = world.run_eval(&blocked);
    assert_eq!(
        (outcome.finished.id, outcome.finished.status.as_str()),
        (blocked.id, "blocked")
    );
    assert!(outcome.blocked.is_none(), "it is blocked again itself");
}

#[test]
fn what_asks_for_more_than_can_be_counted_finds_no_place() {
    let mut job = job("service", 1);
    let mut more = job.task_groups[0].tasks[0].clone();
    more.name = "more".into();
    job.task_groups[0].tasks.to_mut().push(more);
    for task in job.task_groups[0].tasks.to_mut() {
        let resources = task.resources.as_mut().unwrap();
        (resources.cpu, resources.memory_mb) = (i64::MAX, i64::MAX);
    }
    let outcome = World::new(1, job).run("job-register");
    assert!(outcome.blocked.is_some(), "a blocked evaluation is created");
    let exhausted = &outcome.failed["g"].dimension_exhausted;
    assert_eq!(exhausted.get("cpu"), Some(&1));
}

#[test]
fn constraints_filter_by_class_and_name_the_reason() {
    let mut job = job("service", 1);
    job.constraints = vec![Constraint {
        l_target: "${attr.kernel.name}".into(),
        r_target: "windows".into(),
        operand: "=".into(),
    }]
    .into();
    let mut world = World::new(4, job);
    let outcome = world.run("job-register");
    let metric = &outcome.failed["g"];
    assert_eq!((metric.nodes_evaluated, metric.nodes_filtered), (4, 4));
    assert_eq!(
        metric
            .constraint_filtered
            .get("${attr.kernel.name} = windows"),
        Some(&1)
    );
    assert_eq!(
        metric.constraint_filtered.get("computed class ineligible"),
        Some(&3)
    );
    assert_eq!(
        outcome.blocked.unwrap().class_eligibility.get("v1:1"),
        Some(&false)
    );
}

#[test]
fn other_datacenters_and_pools_are_not_looked_at() {
    let mut job = job("service", 1);
    job.datacenters = vec!["eu-*".to_owned()].into();
    let mut world = World::new(3, job);
    let outcome = world.run("job-register");
    assert_eq!(outcome.failed["g"].nodes_evaluated, 0);
    assert_eq!(outcome.failed["g"].nodes_in_pool, 3);
    let mut far = node(9);
    far.datacenter = "eu-west".into();
    world.add_node(far);
    assert!(world.run("node-update").failed.is_empty());
    world.change(|job| job.node_pool = "gpu".into());
    assert_eq!(world.run("job-register").failed["g"].nodes_in_pool, 0);
}

#[test]
fn distinct_hosts_and_distinct_property_limit_a_group() {
    for (operand, target, max) in [
        ("distinct_hosts", "", 3),
        ("distinct_property", "${meta.rack}", 2),
    ] {
        let mut job = job("service", 5);
        job.constraints = vec![Constraint {
            l_target: target.into(),
            r_target: String::new(),
            operand: operand.into(),
        }]
        .into();
        let mut world = World::new(0, job);
        for number in 0..3 {
            let mut node = node(number);
            node.meta.insert("rack", format!("r{}", number / 2));
            world.add_node(node);
        }
        let outcome = world.run("job-register");
        assert_eq!(world.live().len(), max, "{operand}");
        let reasons = &outcome.failed["g"].constraint_filtered;
        assert!(
            reasons.keys().any(|r| r.starts_with(operand)),
            "{reasons:?}"
        );
    }
}

#[test]
fn ports_are_given_once_on_a_node() {
    let mut job = job("service", 3);
    let fixed = Port {
        label: "web".into(),
        value: 8080,
        ..Port::default()
    };
    let dynamic = Port {
        label: "db".into(),
        to: -1,
        ..Port::default()
    };
    job.task_groups[0].networks = vec![NetworkResource {
        reserved_ports: vec![fixed].into(),
        dynamic_ports: vec![dynamic].into(),
        ..NetworkResource::default()
    }]
    .into();
    let mut world = World::new(2, job);
    let outcome = world.run("job-register");
    assert_eq!(world.live().len(), 2, "one for each node");
    let reasons = &outcome.failed["g"].dimension_exhausted;
    assert_eq!(
        reasons.get("network: reserved port collision web=8080"),
        Some(&2)
    );
    for id in world.live() {
        let shared = world.alloc(&id).allocated_resources.unwrap().shared;
        let web = shared.ports.iter().find(|p| p.label == "web").unwrap();
        let db = shared.ports.iter().find(|p| p.label == "db").unwrap();
        assert_eq!(web.value, 8080);
        assert!((20_000..=32_000).contains(&db.value) && db.to == db.value);
        assert!(web.host_ip.starts_with("10.0."));
        assert_eq!(shared.networks[0].dynamic_ports[0].value, db.value);
    }
}

#[test]
fn a_failed_allocation_is_rescheduled_later_then_now_and_elsewhere() {
    let mut world = World::new(5, job("service", 1));
    world.run("job-register");
    world.all_are("running");
    let first = world.live()[0].clone();
    world.fail(&first);
    let outcome = world.run("alloc-failure");
    let [follow_up] = outcome.follow_ups.as_slice() else {
        panic!("one follow-up")
    };
    assert_eq!(follow_up.wait_until, Time(world.now + 30 * SECOND));
    assert_eq!(
        follow_up.status_description,
        "created for delayed rescheduling"
    );
    assert_eq!(world.alloc(&first).followup_eval_id, follow_up.id);
    assert!(world.live().is_empty());

    world.now += 30 * SECOND;
    let outcome = world.run_eval(&follow_up.clone());
    assert_eq!(
        (outcome.desired["g"].place, outcome.desired["g"].stop),
        (1, 1)
    );
    let second = world.live()[0].clone();
    let (old, new) = (world.alloc(&first), world.alloc(&second));
    assert_eq!(
        old.desired_description,
        "alloc was rescheduled because it failed"
    );
    assert_eq!(old.next_allocation, second);
    assert_eq!(new.name, old.name);
    assert_ne!(
        new.node_id, old.node_id,
        "another node is better after a failure"
    );
    let tracker = new.reschedule_tracker.as_ref().unwrap();
    assert_eq!(tracker.events[0].prev_alloc_id, first);
    assert_eq!(tracker.events[0].delay, 30 * SECOND);

    world.fail(&second);
    let outcome = world.run("alloc-failure");
    assert_eq!(
        outcome.follow_ups[0].wait_until,
        Time(world.now + 60 * SECOND),
        "twice as long"
    );
}

#[test]
fn a_failed_allocation_that_is_due_within_a_second_is_rescheduled_at_once() {
    for (delay, at_once) in [(SECOND, true), (SECOND + 1, false)] {
        let mut spec = job("service", 1);
        let policy = spec.task_groups[0].reschedule_policy.as_mut().unwrap();
        policy.delay = delay;
        let mut world = World::new(2, spec);
        world.run("job-register");
        let id = world.live()[0].clone();
        world.fail(&id);
        let outcome = world.run("alloc-failure");
        assert_eq!(outcome.follow_ups.is_empty(), at_once, "{delay}");
        assert_eq!(world.live().len(), usize::from(at_once), "{delay}");
    }
}

#[test]
fn a_batch_job_is_tried_again_as_often_as_allowed_and_keeps_what_is_done() {
    let mut world = World::new(5, job("batch", 2));
    world.run("job-register");
    let ids = world.live();
    world.client(&ids[0], |alloc| alloc.client_status = "complete".into());
    world.fail(&ids[1]);
    let outcome = world.run("alloc-failure");
    assert_eq!(
        outcome.follow_ups[0].wait_until,
        Time(world.now + 5 * SECOND)
    );
    world.now += 5 * SECOND;
    world.run_eval(&outcome.follow_ups[0]);
    let [again] = world.live().try_into().unwrap();
    world.now += SECOND;
    world.fail(&again);
    let outcome = world.run("alloc-failure");
    assert!(outcome.follow_ups.is_empty(), "one attempt is all");
    assert!(outcome.plan.is_empty());
}

#[test]
fn what_does_not_need_a_new_allocation_changes_in_place() {
    let mut world = World::new(3, job("service", 2));
    world.run("job-register");
    let before = world.live();
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 9 * SECOND);
    let outcome = world.run("job-register");
    assert_eq!(outcome.desired["g"].in_place_update, 2);
    assert_eq!(world.live(), before);
    world.change(|job| job.datacenters = vec!["elsewhere".to_owned()].into());
    let outcome = world.run("job-register");
    assert_eq!(
        outcome.desired["g"].destructive_update, 2,
        "the nodes are no longer allowed"
    );
    assert_eq!(world.live(), before, "what has no other place goes on");
    assert_eq!(outcome.failed["g"].coalesced_failures, 1);
}

#[test]
fn migrating_allocations_move() {
    let mut world = World::new(3, job("service", 2));
    world.run("job-register");
    world.all_are("running");
    let id = world.live()[0].clone();
    let from = world.alloc(&id).node_id.clone();
    world.ineligible(&from);
    world.client(&id, |alloc| alloc.desired_transition.migrate = Some(true));
    let outcome = world.run("node-drain");
    assert_eq!(outcome.desired["g"].migrate, 1);
    assert_eq!(
        world.alloc(&id).desired_description,
        "alloc is being migrated"
    );
    assert!(
        world
            .live()
            .iter()
            .all(|id| world.alloc(id).node_id != from)
    );
    assert_eq!(world.live().len(), 2);
}

#[test]
fn an_even_spread_uses_every_node() {
    let mut job = job("batch", 30);
    job.spreads = vec![Spread {
        attribute: "${node.unique.name}".into(),
        weight: 50,
        ..Spread::default()
    }]
    .into();
    let mut world = World::new(10, job);
    world.run("job-register");
    let mut counts = std::collections::BTreeMap::new();
    for id in world.live() {
        *counts.entry(world.alloc(&id).node_id.clone()).or_insert(0) += 1;
    }
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [3; 10]);
}

#[test]
fn binpack_fills_and_spread_empties() {
    for (algorithm, nodes) in [("binpack", 1), ("spread", 4)] {
        let mut job = job("service", 4);
        job.task_groups[0].count = 4;
        let mut world = World::new(4, job);
        world.configure(SchedulerConfiguration {
            scheduler_algorithm: algorithm.into(),
            ..SchedulerConfiguration::default()
        });
        let mut used = BTreeSet::new();
        world.run("job-register");
        for id in world.live() {
            used.insert(world.alloc(&id).node_id.clone());
        }
        // Anti-affinity speaks against a second one on a node in both cases.
        assert!(used.len() >= nodes, "{algorithm}: {used:?}");
    }
}

#[test]
fn a_score_is_what_nomad_shows_for_the_same_node() {
    use drover_scheduler::cluster::{NodeInfo, Usage};
    let mut big = node(1);
    let resources = big.node_resources.as_mut().unwrap();
    resources.cpu.cpu_shares = 5192;
    resources.memory.memory_mb = 24105;
    let info = NodeInfo::new(big, &mut Default::default());
    let used = Usage {
        cpu: 100,
        memory: 64,
        ..Usage::default()
    };
    let score = drover_scheduler::rank::fit_score(&info, &used, 100, 64, false);
    assert!((score - 0.053_905_604_634_104_48).abs() < 1e-12, "{score}");
}

/// The figure this module is built for: `cargo test --release -- --ignored place_1000`.
#[test]
#[ignore = "a measurement"]
fn place_1000_on_5000_nodes() {
    for (what, count, spread) in [("plain", 1000, false), ("spread", 500, true)] {
        let mut job = job("batch", count);
        if spread {
            let attribute = "${node.unique.name}".to_owned();
            job.spreads = vec![Spread {
                attribute,
                weight: 50,
                ..Spread::default()
            }]
            .into();
        }
        let mut world = World::new(5000, job);
        let eval = world.eval("job-register");
        let start = std::time::Instant::now();
        let outcome = world.decide(&eval);
        let took = start.elapsed();
        assert_eq!(outcome.plan.placements.len(), count as usize);
        println!("{what}: {count} on 5000 nodes in {took:?}");
    }
}
