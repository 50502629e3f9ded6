//! What allocations say of their services, and which checks are made of them.

use std::sync::Arc;

use drover_events::model::{Allocation, Service, ServiceCheck};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::runner_test::{alloc, factory, journal_let_go, run, until};

/// A service at a port of this machine, which is looked at as often as that is possible.
fn service(port: u16) -> Service {
    let check = ServiceCheck {
        name: "open".into(),
        r#type: "tcp".into(),
        interval: 1,
        timeout: 5_000_000_000,
        ..ServiceCheck::default()
    };
    Service {
        name: "web".into(),
        provider: "nomad".into(),
        port_label: port.to_string(),
        address: "127.0.0.1".into(),
        checks: vec![check].into(),
        ..Service::default()
    }
}

/// The servers may show services of it that its former agent reported, and nothing runs any more
/// that would offer them: whether that is reported to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_services_says_what_is_left_of_them_when_its_agent_begins_again() {
    for (of_group, of_task) in [(false, false), (true, false), (false, true), (true, true)] {
        let tmp = tempfile::tempdir().unwrap();
        let mut given = alloc("batch", "mock_driver", json!({"run_for": "1ms"}));
        let job = Arc::make_mut(given.job.as_mut().unwrap());
        if of_group {
            job.task_groups[0].services = vec![service(1)].into();
        }
        if of_task {
            job.task_groups[0].tasks[0].services = vec![service(1)].into();
        }
        let reported = Arc::new(Mutex::new(None));
        {
            let factory = factory(tmp.path());
            let runner = run(&factory, &given, &reported);
            runner.done().wait_for(|done| *done).await.unwrap();
            runner.detach().await;
            journal_let_go(&factory).await;
        }
        let factory = factory(tmp.path());
        let runner = run(&factory, &given, &reported);
        // It looked around before it was let go.
        runner.detach().await;
        let says = factory.services.has_reported(&given.id);
        let what = format!("of the group: {of_group}, of a task: {of_task}");
        assert_eq!(says, of_group || of_task, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_nobody_needs_any_more_is_not_made() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let mut given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let job = Arc::make_mut(given.job.as_mut().unwrap());
    job.task_groups[0].services = vec![service(port)].into();
    let before = Handle::current().metrics().num_alive_tasks();
    let runner = run(&factory, &given, &Arc::new(Mutex::new(None)));
    let checks = || runner.control().unwrap().checks();
    until("the check is good", || {
        checks().values().any(|check| check.status == "success")
    })
    .await;
    let stopped = Allocation {
        desired_status: "stop".into(),
        ..given.clone()
    };
    runner.update(Arc::new(stopped));
    runner.done().wait_for(|done| *done).await.unwrap();
    runner.destroy().await;
    until("no check looks", || {
        Handle::current().metrics().num_alive_tasks() <= before
    })
    .await;
}
