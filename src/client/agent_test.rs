//! The client against a real server, in one process.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{
    Allocation, DrainSpec, Job, NodeEvent, RestartPolicy, ServiceRegistration, Task, TaskGroup,
};
use drover_projections::tables::allocs::{self, AllocsByJob};
use drover_projections::tables::nodes;
use drover_projections::tables::services::Services;
use drover_projections::{Read, Scan};
use drover_testkit::until;

use super::Client;
use crate::client::config::Settings;
use crate::client::start;
use crate::commands::job::RegisterJob;
use crate::commands::node::MissHeartbeat;
use crate::config::Config;
use crate::endpoints;
use crate::endpoints::testing::Marking;
use crate::proposer::Origin;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::methods::{
    AllocGetAllocs, AllocUpdateRequest, AllocsGetRequest, EmitNodeEventsRequest, NodeEmitEvents,
    NodeGetClientAllocs, NodeGetNode, NodeRegister, NodeRegisterRequest, NodeSpecificRequest,
    NodeUpdateAlloc, NodeUpdateDrain, NodeUpdateDrainRequest, NodeUpdateStatus,
    NodeUpdateStatusRequest, ServiceDelete, ServiceDeleteRequest, ServiceUpsert,
    ServiceUpsertRequest,
};
use crate::rpc::server::{Limits, RpcServer, serve};
use crate::rpc::service::Dispatch;
use crate::server::Server;
use crate::server::testing::Stopping;

pub(crate) struct World {
    pub(crate) server: Stopping,
    pub(crate) rpc: RpcServer,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_behind(|service| service).await
    }

    /// The same, its methods behind something.
    pub(crate) async fn start_behind(
        front: impl FnOnce(Arc<dyn Dispatch>) -> Arc<dyn Dispatch>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = crate::telemetry::install(Duration::from_secs(10));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::dev();
        // What servers say of themselves replaces what clients were told.
        config.ports.rpc = listener.local_addr().unwrap().port();
        let config = Arc::new(config);
        let server = Server::start(config, dir.path(), telemetry).await.unwrap();
        server.wait_ready().await;
        let beat = Box::new(|_: &str| Duration::from_millis(500));
        let service = endpoints::service(server.clone(), beat);
        let service = Arc::new(Marking(Arc::new(service)));
        Self {
            server: Stopping(server),
            rpc: serve(listener, front(service), Limits::default()).unwrap(),
            dir,
        }
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        self.client_of(Servers::new(vec![self.rpc.addr().to_string()]))
    }

    /// A client that knows these servers.
    fn client_of(&self, servers: Servers) -> Arc<Client> {
        let settings = Settings {
            alloc_dir: self.dir.path().join("alloc"),
            state_dir: self.dir.path().join("client"),
            datacenter: "dc1".into(),
            name: "node".into(),
            region: "global".into(),
            dev: true,
            ..Settings::default()
        };
        start::open(settings, |secret| {
            Caller::network(Pool::new(1), servers, secret)
        })
        .unwrap()
    }

    pub(crate) async fn register(
        &self,
        id: &str,
        kind: &str,
        count: i64,
        config: serde_json::Value,
    ) {
        self.register_group(id, kind, group(count, config)).await;
    }

    pub(crate) async fn register_group(&self, id: &str, kind: &str, group: TaskGroup) {
        let job = Job {
            id: id.into(),
            name: id.into(),
            namespace: "default".into(),
            region: "global".into(),
            node_pool: "default".into(),
            priority: 50,
            datacenters: vec!["*".to_owned()].into(),
            r#type: kind.into(),
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let command = RegisterJob {
            job,
            submission: None,
            enforce_index: None,
            preserve_counts: false,
            preserve_resources: false,
            eval_id: uuid::Uuid::new_v4().to_string(),
            eval_priority: 0,
            max_priority: 0,
            names_deployment: false,
            tracked_versions: 0,
            is_long: false,
            override_rejection: false,
        };
        self.server
            .submit(command, Origin::default())
            .await
            .unwrap();
    }
    pub(crate) fn allocs(&self, job: &str) -> Vec<Allocation> {
        let view = self.server.projections.view();
        view.rows_by::<AllocsByJob>(Scan::group::<(String, String)>(("default", job)))
            .map(|row| allocs::get(&view, &row.unwrap().id).unwrap().unwrap())
            .collect()
    }
}

pub(crate) fn group(count: i64, config: serde_json::Value) -> TaskGroup {
    let serde_json::Value::Object(config) = config else {
        panic!("a block")
    };
    let task = Task {
        name: "web".into(),
        driver: "mock_driver".into(),
        config: config.into_iter().collect(),
        kill_timeout: 1_000_000_000,
        ..Task::default()
    };
    let mut task = task;
    task.resources = Some(drover_events::model::Resources {
        cpu: 10,
        memory_mb: 10,
        ..Default::default()
    });
    TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task].into(),
        restart_policy: Some(RestartPolicy {
            mode: "fail".into(),
            ..RestartPolicy::default()
        }),
        ephemeral_disk: Some(drover_events::model::EphemeralDisk {
            size_mb: 10,
            ..Default::default()
        }),
        ..TaskGroup::default()
    }
}

/// The list of servers is what they last said, with each heartbeat anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_14_servers_are_those_that_the_last_heartbeat_named() {
    let world = World::start().await;
    let named = || vec![format!("localhost:{}", world.rpc.addr().port())];
    let servers = Servers::new(named());
    let client = world.client_of(servers.clone());
    let told = [world.rpc.addr().to_string()];
    until("the first list", || servers.all() == told).await;
    let contact = client.contact();
    until("a heartbeat", || contact.borrow().last_heartbeat > 0).await;
    // The node is registered: what comes now, comes with heartbeats.
    servers.refresh(&named());
    until("the next list", || servers.all() == told).await;
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
    let told = || world.allocs("svc").first().map(|a| a.client_status.clone());
    until("it runs", || told().as_deref() == Some("running")).await;

    // Nothing of the allocation itself is told any more: what arrives is the update below.
    let alloc = world.allocs("svc")[0].id.clone();
    client.runner(&alloc).unwrap().detach().await;
    // The servers lose the node; what its client tells meanwhile is refused.
    let lost = MissHeartbeat {
        node_id: id.clone(),
    };
    world.server.submit(lost, Origin::default()).await.unwrap();
    client.core.updates.put(Allocation {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_14_over_the_wire_a_client_sends_no_evaluations_and_changes_only_its_own_fields() {
    let world = World::start().await;
    let client = world.client();
    world
        .register("svc", "service", 1, serde_json::json!({"run_for": "1h"}))
        .await;
    let row = || world.allocs("svc").first().cloned();
    until("it runs", || {
        row().is_some_and(|a| a.client_status == "running")
    })
    .await;
    let before = row().unwrap();
    client.runner(&before.id).unwrap().detach().await;
    let update = |evals| AllocUpdateRequest {
        alloc: vec![Allocation {
            id: before.id.clone(),
            node_id: client.node_id(),
            client_status: "running".into(),
            client_description: "told".into(),
            desired_status: "stop".into(),
            job_id: "other".into(),
            job: None,
            ..Allocation::default()
        }],
        evals,
    };
    let call = async |request| {
        let caller = &client.core.caller;
        caller
            .once::<NodeUpdateAlloc>(&request, drover_testkit::LONG)
            .await
    };
    let refused = call(update(vec![Default::default()])).await.unwrap_err();
    assert!(
        refused.to_string().contains("evals field must not be set"),
        "{refused}"
    );
    assert_eq!(row().unwrap().client_description, before.client_description);
    call(update(Vec::new())).await.unwrap();
    until("it is told", || {
        row().is_some_and(|a| a.client_description == "told")
    })
    .await;
    let after = row().unwrap();
    assert_eq!(
        (&after.desired_status, &after.job_id),
        (&before.desired_status, &before.job_id)
    );
}

/// Name and answer of a method.
macro_rules! answer {
    ($caller:ident, $method:ident, $request:expr) => {{
        let answer = $caller
            .once::<$method>(&$request, drover_testkit::LONG)
            .await;
        let said = match answer {
            Ok(_) => "answered".to_owned(),
            Err(error) => error.to_string(),
        };
        (stringify!($method), said)
    }};
}

/// What methods of nodes and allocations answer to a caller with another secret than the node's.
async fn denied(caller: &Caller, node: &str, alloc: &str) -> Vec<(&'static str, String)> {
    vec![
        answer!(
            caller,
            NodeUpdateStatus,
            NodeUpdateStatusRequest {
                node_id: node.into(),
                status: "down".into(),
                ..NodeUpdateStatusRequest::default()
            }
        ),
        answer!(
            caller,
            NodeUpdateAlloc,
            AllocUpdateRequest {
                alloc: vec![Allocation {
                    id: alloc.into(),
                    node_id: node.into(),
                    client_status: "failed".into(),
                    ..Allocation::default()
                }],
                ..AllocUpdateRequest::default()
            }
        ),
        answer!(
            caller,
            NodeGetClientAllocs,
            NodeSpecificRequest {
                node_id: node.into(),
                ..NodeSpecificRequest::default()
            }
        ),
        answer!(
            caller,
            AllocGetAllocs,
            AllocsGetRequest {
                alloc_ids: vec![alloc.into()],
                ..AllocsGetRequest::default()
            }
        ),
        answer!(
            caller,
            NodeEmitEvents,
            EmitNodeEventsRequest {
                node_events: [(node.to_owned(), vec![NodeEvent::default()])].into(),
            }
        ),
        answer!(
            caller,
            NodeUpdateDrain,
            NodeUpdateDrainRequest {
                node_id: node.into(),
                drain_spec: Some(DrainSpec::default()),
                ..NodeUpdateDrainRequest::default()
            }
        ),
        answer!(
            caller,
            NodeGetNode,
            NodeSpecificRequest {
                node_id: node.into(),
                ..NodeSpecificRequest::default()
            }
        ),
    ]
}

/// A request for a service of an allocation.
fn service_of(node: &str, alloc: &Allocation) -> ServiceUpsertRequest {
    ServiceUpsertRequest {
        services: vec![ServiceRegistration {
            id: "own".into(),
            namespace: alloc.namespace.clone(),
            node_id: node.to_owned(),
            alloc_id: alloc.id.clone(),
            job_id: alloc.job_id.clone(),
            ..ServiceRegistration::default()
        }],
        ..ServiceUpsertRequest::default()
    }
}

/// What methods of services answer to one.
async fn denied_services(caller: &Caller, node: &str, alloc: &str) -> Vec<(&'static str, String)> {
    vec![
        answer!(
            caller,
            ServiceUpsert,
            ServiceUpsertRequest {
                services: vec![ServiceRegistration {
                    id: "x".into(),
                    namespace: "default".into(),
                    node_id: node.into(),
                    alloc_id: alloc.into(),
                    ..ServiceRegistration::default()
                }],
                ..ServiceUpsertRequest::default()
            }
        ),
        answer!(
            caller,
            ServiceUpsert,
            ServiceUpsertRequest {
                node_id: node.into(),
                allocs: vec![alloc.into()],
                ..ServiceUpsertRequest::default()
            }
        ),
        answer!(
            caller,
            ServiceDelete,
            ServiceDeleteRequest {
                namespace: "default".into(),
                id: "own".into(),
            }
        ),
    ]
}

/// What every method answers to a caller with another secret than the node's.
async fn all_denied(
    world: &World,
    secret: &str,
    node: &str,
    alloc: &str,
) -> Vec<(&'static str, String)> {
    let servers = Servers::new(vec![world.rpc.addr().to_string()]);
    let stranger = Caller::network(Pool::new(1), servers, secret);
    let mut said = denied(&stranger, node, alloc).await;
    said.extend(denied_services(&stranger, node, alloc).await);
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_or_empty_secret_of_a_node_is_refused_by_every_method() {
    let world = World::start().await;
    let client = world.client();
    world
        .register("svc", "service", 1, serde_json::json!({"run_for": "1h"}))
        .await;
    let row = || world.allocs("svc").into_iter().next();
    until("it runs", || {
        row().is_some_and(|a| a.client_status == "running")
    })
    .await;
    let (node, alloc) = (client.node_id(), row().unwrap());
    // A service of its own that nobody else may remove, and a quiet cluster.
    let own = service_of(&node, &alloc);
    let caller = &client.core.caller;
    caller
        .once::<ServiceUpsert>(&own, drover_testkit::LONG)
        .await
        .unwrap();
    let shown = || {
        let view = world.server.projections.view();
        let services = view.scan::<Services>(Scan::all()).count();
        let node = nodes::get(&view, &node).unwrap().unwrap();
        (
            services,
            node.status,
            node.events.len(),
            row().unwrap().client_status,
        )
    };
    let before = shown();
    let other = uuid::Uuid::new_v4().to_string();
    for secret in ["", "nonsense", &other] {
        let said = all_denied(&world, secret, &node, &alloc.id).await;
        assert_eq!(said.len(), 10);
        for (method, said) in said {
            assert!(
                said.contains("Permission denied"),
                "{method} with {secret:?}: {said}"
            );
        }
        assert_eq!(shown(), before, "{secret:?}");
    }
    // Who has no secret, or another one, does not describe the node either.
    for (secret, text) in [
        ("", "missing node secret"),
        (other.as_str(), "does not match"),
    ] {
        let mut request = NodeRegisterRequest {
            node: (**client.core.node.lock()).clone(),
        };
        request.node.secret_id = secret.into();
        request.node.name = "taken".into();
        let said = caller
            .once::<NodeRegister>(&request, drover_testkit::LONG)
            .await;
        let said = said.unwrap_err().to_string();
        assert!(said.contains(text), "{said}");
    }
    let view = world.server.projections.view();
    assert_eq!(nodes::get(&view, &node).unwrap().unwrap().name, "node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_who_proved_nothing_waits_for_nothing() {
    use crate::rpc::RpcError;
    use crate::rpc::methods::{AllocGetAllocs, AllocsGetRequest};
    let world = World::start().await;
    let client = world.client();
    until("the node is there", || {
        let view = world.server.projections.view();
        nodes::get(&view, &client.node_id()).is_ok_and(|node| node.is_some())
    })
    .await;
    // An index that never comes, and all the time there is.
    let request = AllocsGetRequest {
        alloc_ids: vec![uuid::Uuid::new_v4().to_string()],
        min_query_index: u64::MAX,
        max_query_time: 300_000_000_000,
    };
    let stranger = |node: &str| {
        let servers = Servers::new(vec![world.rpc.addr().to_string()]);
        Caller::network(Pool::new(1), servers, "wrong").of_node(node)
    };
    // Had he to wait, his time as a stranger would be over first.
    let soon = Duration::from_secs(19);
    // Nor does he learn whether there is such an allocation.
    for named in ["", &client.node_id()] {
        let refused = stranger(named).once::<AllocGetAllocs>(&request, soon).await;
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refused.code, crate::error::Code::PermissionDenied);
    }
}
