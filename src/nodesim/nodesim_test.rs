use std::time::Duration;

use super::*;
use crate::client::agent::tests::{World, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_01_simulated_nodes_register_and_a_jobs_allocations_run_on_them() {
    let world = World::start().await;
    let options = Options {
        nodes: 200,
        servers: vec![world.rpc.addr().to_string()],
        ..Options::default()
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
    sim.stop().await;
}

#[tokio::test]
async fn sim_01_without_servers_nothing_is_simulated() {
    let error = run(&Options::default(), |_| {}, std::future::ready(()))
        .await
        .unwrap_err();
    assert!(error.contains("-servers"), "{error}");
}
