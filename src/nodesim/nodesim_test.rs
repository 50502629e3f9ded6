use std::time::Duration;

use drover_events::EventKind;

use super::*;
use crate::agent::with_server::World;
use drover_testkit::until;

fn updates_in_the_log(world: &World) -> usize {
    let log = world.server.raft.log();
    let kind = EventKind::AllocsUpdatedByClient as u16;
    log.scan(log.bounds().0)
        .filter(|entry| entry.as_ref().is_ok_and(|e| e.kind == kind))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_01_hb_07_simulated_nodes_register_and_a_jobs_allocations_run_on_them() {
    let world = World::start().await;
    let options = SimOptions {
        nodes: 200,
        servers: vec![world.rpc.addr().to_string()],
        ..SimOptions::default()
    };
    let sim = NodeSim::start(&options).await;
    tokio::time::timeout(Duration::from_secs(60), sim.ready())
        .await
        .unwrap();
    assert_eq!(sim.stats().ready, 200);
    world
        .register("load", "service", 500, serde_json::json!({"run_for": "1h"}))
        .await;
    let running = || {
        world
            .allocs("load")
            .iter()
            .filter(|a| a.client_status == "running")
            .count()
    };
    until("five hundred run", || running() == 500).await;
    let stats = sim.stats();
    assert_eq!((stats.started, stats.stopped, stats.allocs), (500, 0, 500));
    // Every node told of its allocations by itself; what the log holds are batches of many.
    let entries = updates_in_the_log(&world);
    assert!(
        (1..=100).contains(&entries),
        "{entries} entries for 500 updates of 200 nodes"
    );
    sim.stop().await;
}

#[tokio::test]
async fn sim_01_without_servers_nothing_is_simulated() {
    let error = run(&SimOptions::default(), |_| {}, std::future::ready(()))
        .await
        .unwrap_err();
    assert!(error.contains("-servers"), "{error}");
}
