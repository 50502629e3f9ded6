//! Services of a real client, as a real server sees them.

use drover_events::model::{Service, ServiceCheck};
use drover_projections::Scan;
use drover_projections::tables::services::Services;
use tokio::net::TcpListener;

use crate::client::agent::tests::{World, group, until};
use crate::client::endpoints;

const SECOND: i64 = 1_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chk_06_chk_09_a_service_is_registered_while_it_is_there_and_checked() {
    let world = World::start().await;
    let client = world.client();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    let check = ServiceCheck {
        name: "open".into(),
        r#type: "tcp".into(),
        interval: SECOND,
        timeout: SECOND,
        ..ServiceCheck::default()
    };
    group.services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: port.to_string(),
        address: "127.0.0.1".into(),
        checks: vec![check].into(),
        ..Service::default()
    }]
    .into();
    world.register_group("svc", "service", group.clone()).await;
    let registered = || {
        let view = world.server.projections.view();
        let rows = view.scan::<Services>(Scan::all());
        rows.map(|row| row.expect("reads")).collect::<Vec<_>>()
    };
    until("it is registered", || !registered().is_empty()).await;
    let found = &registered()[0];
    assert_eq!(
        (found.service_name.as_str(), found.port),
        ("web", port.into())
    );
    assert_eq!(found.address, "127.0.0.1");
    assert_eq!(found.node_id, client.node_id());

    let checks = || endpoints::alloc::checks(&client, &found.alloc_id).expect("there");
    let good = || checks().values().any(|c| c.status == "success");
    until("the check is good", good).await;
    drop(listener);
    let bad = || checks().values().any(|c| c.status == "failure");
    until("the check is bad", bad).await;

    group.count = 0;
    world.register_group("svc", "service", group).await;
    until("it is gone", || registered().is_empty()).await;
}
