//! Allocations of a client from their registration to their end, as a real server sees them.

use drover_events::model::Allocation;
use drover_projections::Scan;
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::nodes;
use drover_testkit::until;

use super::World;
use crate::commands::node::{MissHeartbeat, UpdateNodeEligibility};
use crate::proposer::Origin;
use crate::rpc::caller::Servers;

/// The list of servers is what they last said, with each heartbeat anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_14_servers_are_those_that_the_last_heartbeat_named() {
    let world = World::start().await;
    let named = || vec![format!("localhost:{}", world.rpc.addr().port())];
    let servers = Servers::new(named());
    let client = world.client_of(servers.clone());
    let reported = [world.rpc.addr().to_string()];
    until("the first list", || servers.all() == reported).await;
    let contact = client.contact();
    until("a heartbeat", || contact.borrow().last_heartbeat > 0).await;
    // The node is registered: what comes now, comes with heartbeats.
    servers.refresh(&named());
    until("the next list", || servers.all() == reported).await;
    client.shutdown().await;
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_24_a_job_runs_from_registration_to_its_end_and_survives_the_clients_restart() {
    let world = World::start().await;
    let client = world.client();
    let id = client.node_id();
    let status = || {
        let view = world.server.projections.view();
        nodes::get(&view, &id).unwrap().map(|n| n.status)
    };
    until("the node is ready", || status().as_deref() == Some("ready")).await;

    world
        .register("svc", "service", 3, serde_json::json!({"run_for": "1h"}))
        .await;
    let running = |job: &str| {
        world
            .allocs(job)
            .iter()
            .filter(|a| a.client_status == "running")
            .count()
    };
    until("three run", || running("svc") == 3).await;

    world
        .register("once", "batch", 2, serde_json::json!({"run_for": "50ms"}))
        .await;
    let complete = || {
        let allocs = world.allocs("once");
        allocs.len() == 2 && allocs.iter().all(|a| a.client_status == "complete")
    };
    until("the batch job is over", complete).await;
    let events: Vec<String> = world.allocs("once")[0].task_states["web"]
        .events
        .iter()
        .map(|e| e.r#type.clone())
        .collect();
    assert_eq!(events, ["Received", "Task Setup", "Started", "Terminated"]);

    client.shutdown().await;
    drop(client);
    let again = world.client();
    assert_eq!(again.node_id(), id);
    assert_eq!(again.alloc_ids().len(), 5);
    let mut contact = again.contact();
    contact.wait_for(|c| c.allocs_known).await.unwrap();
    assert_eq!((running("svc"), world.allocs("svc").len()), (3, 3));
    assert!(again.health().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_ineligible_is_given_nothing_until_an_operator_lets_it() {
    let world = World::start().await;
    let start = || {
        world.client_with(world.servers(), |settings| {
            settings.client.default_ineligible = true;
        })
    };
    let client = start();
    let id = client.node_id();
    let node = || nodes::get(&world.server.projections.view(), &id).unwrap();
    let is_ready = || node().is_some_and(|node| node.status == "ready");
    until("the node is ready", is_ready).await;
    assert_eq!(node().unwrap().scheduling_eligibility, "ineligible");
    world
        .register("svc", "service", 1, serde_json::json!({"run_for": "1h"}))
        .await;
    let waits = || {
        let view = world.server.projections.view();
        let scan = Scan::with_key_prefix::<(String, String)>(("default", "svc"));
        let mut evals = view.by_index_scan::<EvalsByJob>(scan);
        evals.any(|eval| eval.unwrap().status == "blocked")
    };
    until("there is no place for it", waits).await;
    assert_eq!(world.allocs("svc").len(), 0);

    let eligible = UpdateNodeEligibility {
        node_id: id.clone(),
        eligibility: "eligible".to_owned(),
    };
    let origin = Origin::default();
    world.server.submit(eligible, origin).await.unwrap();
    let runs = || {
        let allocs = world.allocs("svc");
        allocs.iter().any(|alloc| alloc.client_status == "running")
    };
    until("it runs", runs).await;

    // What the operator said counts, not what the node comes with another time.
    client.shutdown().await;
    drop(client);
    let again = start();
    let mut contact = again.contact();
    contact.wait_for(|c| c.allocs_known).await.unwrap();
    assert_eq!(node().unwrap().scheduling_eligibility, "eligible");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hb_09_an_update_that_was_refused_for_lost_contact_arrives_after_a_heartbeat() {
    let world = World::start().await;
    let client = world.client();
    let id = client.node_id();
    let status = || {
        let view = world.server.projections.view();
        nodes::get(&view, &id).unwrap().map(|n| n.status)
    };
    until("the node is ready", || status().as_deref() == Some("ready")).await;
    world
        .register("svc", "service", 1, serde_json::json!({"run_for": "1h"}))
        .await;
    let reported = || world.allocs("svc").first().map(|a| a.client_status.clone());
    until("it runs", || reported().as_deref() == Some("running")).await;

    // Nothing of the allocation itself is reported any more: what arrives is the update below.
    let alloc = world.allocs("svc")[0].id.clone();
    client.runner(&alloc).unwrap().detach().await;
    // The servers lose the node; what its client reports meanwhile is refused.
    let missed = MissHeartbeat {
        node_id: id.clone(),
    };
    world
        .server
        .submit(missed, Origin::default())
        .await
        .unwrap();
    client.report()(Allocation {
        id: alloc,
        node_id: id.clone(),
        client_status: "failed".into(),
        client_description: "told while out of contact".into(),
        ..Allocation::default()
    });
    let arrived = || {
        let allocs = world.allocs("svc");
        allocs
            .iter()
            .any(|a| a.client_description == "told while out of contact")
    };
    until("the update arrives", arrived).await;
    until("the node is back", || status().as_deref() == Some("ready")).await;
}
