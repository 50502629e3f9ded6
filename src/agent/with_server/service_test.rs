//! Services of a real client, as a real server sees them.

use std::time::Duration;

use drover_events::model::{
    Allocation, CheckRestart, RestartPolicy, Service, ServiceCheck, TaskLifecycleConfig,
    UpdateStrategy,
};
use drover_projections::Scan;
use drover_projections::tables::services::Services;
use drover_testkit::eventually;
use tokio::net::{TcpListener, TcpSocket};

use super::{World, group};
use crate::client::endpoints;
use crate::commands::node::UpdateNodeEligibility;
use crate::commands::service::DeleteServicesOfNode;
use crate::proposer::Origin;
use drover_testkit::until;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chk_08_a_failing_check_of_a_group_restarts_its_tasks_more_than_once() {
    let world = World::start().await;
    let client = world.client();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let port = listener.local_addr().expect("bound").port();
    // No server answers there from now on.
    drop(listener);
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    group.restart_policy = Some(RestartPolicy {
        attempts: 100,
        interval: 3_600 * SECOND,
        delay: 1,
        mode: "delay".into(),
        ..RestartPolicy::default()
    });
    let check = ServiceCheck {
        name: "open".into(),
        r#type: "tcp".into(),
        interval: SECOND,
        timeout: SECOND,
        check_restart: Some(CheckRestart {
            limit: 1,
            ..CheckRestart::default()
        }),
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
    world.register_group("svc", "service", group).await;
    let state = || {
        let allocs = world.allocs("svc");
        allocs
            .first()
            .and_then(|alloc| alloc.task_states.get("web").cloned())
    };
    until("it was restarted twice", || {
        state().is_some_and(|state| state.restarts >= 2)
    })
    .await;
    let events = state().expect("a state").events;
    let requested = events.iter().filter(|e| e.r#type == "Restart Signaled");
    let reasons: Vec<&str> = requested
        .map(|event| event.restart_reason.as_str())
        .collect();
    assert!(reasons.len() >= 2, "{events:?}");
    let wanted = "healthcheck: check \"open\" unhealthy";
    assert!(
        reasons.iter().all(|reason| *reason == wanted),
        "{reasons:?}"
    );
    // The service and its watch are there again.
    let alloc = world.allocs("svc")[0].id.clone();
    until("it is registered and watched again", || {
        let view = world.server.projections.view();
        let listed = view.scan::<Services>(Scan::all()).count();
        listed == 1
            && !endpoints::alloc::checks(&client, &alloc)
                .expect("there")
                .is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_08_one_task_is_restarted_alone_and_a_dead_one_is_not() {
    let world = World::start().await;
    let client = world.client();
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    let mut tasks: Vec<_> = group.tasks.iter().cloned().collect();
    for (name, run_for) in [("other", "1h"), ("dead", "10ms")] {
        let mut task = tasks[0].clone();
        task.name = name.into();
        task.config = [("run_for".to_owned(), serde_json::json!(run_for))]
            .into_iter()
            .collect();
        tasks.push(task);
    }
    tasks[2].lifecycle = Some(TaskLifecycleConfig {
        hook: "prestart".into(),
        ..TaskLifecycleConfig::default()
    });
    group.tasks = tasks.into();
    world.register_group("svc", "service", group).await;
    let alloc = || world.allocs("svc").into_iter().next();
    let restarts = |task: &str| {
        let found = alloc().and_then(|a| {
            a.task_states
                .get(task)
                .map(|s| (s.state.clone(), s.restarts))
        });
        found.unwrap_or_default()
    };
    let running = |task: &str, times: u64| restarts(task) == ("running".to_owned(), times);
    until("both run", || running("web", 0) && running("other", 0)).await;
    let id = alloc().expect("placed").id;
    endpoints::alloc::restart(&client, &id, "web", false)
        .await
        .expect("it runs");
    until("one is restarted", || running("web", 1)).await;
    assert!(running("other", 0), "{:?}", restarts("other"));
    let refused = endpoints::alloc::restart(&client, &id, "dead", false)
        .await
        .unwrap_err();
    assert!(
        refused.message.contains("Task not running"),
        "{}",
        refused.message
    );
    assert_eq!(restarts("dead").0, "dead");
    let unknown = endpoints::alloc::restart(&client, &id, "nobody", false)
        .await
        .unwrap_err();
    assert!(unknown.message.contains("nobody"), "{}", unknown.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_healthy_once_its_checks_are_good_and_not_before() {
    let world = World::start().await;
    let client = world.client();
    // Bound and not listening: connections are refused, and no other process gets the port.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("binds");
    let address = socket.local_addr().expect("bound");
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    group.update = Some(UpdateStrategy {
        max_parallel: 1,
        health_check: "checks".into(),
        min_healthy_time: 1,
        healthy_deadline: 600 * SECOND,
        progress_deadline: 3_600 * SECOND,
        ..UpdateStrategy::default()
    });
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
        port_label: address.port().to_string(),
        address: "127.0.0.1".into(),
        checks: vec![check].into(),
        ..Service::default()
    }]
    .into();
    world.register_group("svc", "service", group).await;
    let alloc = || world.allocs("svc").into_iter().next();
    let running = || alloc().is_some_and(|alloc| alloc.client_status == "running");
    until("it runs", running).await;
    let id = alloc().expect("placed").id;
    let checks = || endpoints::alloc::checks(&client, &id).unwrap_or_default();
    let is = |status: &str| checks().values().any(|check| check.status == status);
    until("the check is bad", || is("failure")).await;
    let healthy = || {
        let status = alloc().and_then(|alloc| alloc.deployment_status.clone());
        status.and_then(|status| status.healthy)
    };
    assert_eq!(healthy(), None, "nobody answers yet");
    let _listener = socket.listen(16).expect("listens");
    until("it is healthy", || healthy() == Some(true)).await;
    assert!(is("success"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_22_a_service_is_gone_from_the_servers_while_its_task_still_runs_on() {
    let world = World::start().await;
    let _client = world.client();
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    group.shutdown_delay = Some(3_600 * SECOND);
    group.services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: "4711".into(),
        address: "127.0.0.1".into(),
        ..Service::default()
    }]
    .into();
    world.register_group("svc", "service", group.clone()).await;
    let registered = || {
        let view = world.server.projections.view();
        view.scan::<Services>(Scan::all()).count()
    };
    let runs = |alloc: &Allocation| alloc.client_status == "running";
    let running = || world.allocs("svc").iter().any(runs);
    until("it runs and is registered", || {
        running() && registered() == 1
    })
    .await;
    group.count = 0;
    world.register_group("svc", "service", group).await;
    until("it is gone", || registered() == 0).await;
    let alloc = world.allocs("svc").remove(0);
    assert_eq!(alloc.desired_status, "stop");
    assert_eq!(alloc.client_status, "running", "its delay has only begun");
}

/// The delay is over before its beginning is written down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_22_the_shortest_delay_is_over_at_once() {
    let world = World::start().await;
    let _client = world.client();
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    group.shutdown_delay = Some(1);
    world.register_group("svc", "service", group.clone()).await;
    let is = |status: &str| {
        let allocs = world.allocs("svc");
        allocs.iter().any(|alloc| alloc.client_status == status)
    };
    until("it runs", || is("running")).await;
    group.count = 0;
    world.register_group("svc", "service", group).await;
    // Well before it would look around without a reason.
    let over = || is("complete").then_some(()).ok_or("not yet");
    let over = eventually("it is over", Duration::from_secs(30), over).await;
    over.expect("at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hb_10_who_may_have_been_given_up_offers_its_services_again() {
    let world = World::start().await;
    let client = world.client();
    let mut group = group(1, serde_json::json!({"run_for": "1h"}));
    group.services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: "4711".into(),
        address: "127.0.0.1".into(),
        ..Service::default()
    }]
    .into();
    world.register_group("svc", "service", group).await;
    let registered = || {
        let view = world.server.projections.view();
        view.scan::<Services>(Scan::all()).count()
    };
    until("it is registered", || registered() == 1).await;
    // What servers do with a node that they give up.
    let delete = DeleteServicesOfNode {
        node_id: client.node_id(),
    };
    let deleted = world.server.submit(delete, Origin::default()).await;
    deleted.expect("they are deleted");
    let changed = UpdateNodeEligibility {
        node_id: client.node_id(),
        eligibility: "ineligible".into(),
    };
    let changed = world.server.submit(changed, Origin::default()).await;
    changed.expect("the node is changed");
    until("it is registered again", || registered() == 1).await;
}
