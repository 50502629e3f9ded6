//! What a real server answers on the wire to clients, and to those that only say they are.

use std::time::Duration;

use drover_events::model::{Allocation, DrainSpec, NodeEvent, ServiceRegistration};
use drover_projections::Scan;
use drover_projections::tables::nodes;
use drover_projections::tables::services::Services;
use drover_testkit::until;

use super::World;
use crate::error::Code;
use crate::rpc::RpcError;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::methods::{
    AllocGetAllocs, AllocUpdateRequest, AllocsGetRequest, EmitNodeEventsRequest, NodeEmitEvents,
    NodeGetClientAllocs, NodeGetNode, NodeRegister, NodeRegisterRequest, NodeSpecificRequest,
    NodeUpdateAlloc, NodeUpdateDrain, NodeUpdateDrainRequest, NodeUpdateStatus,
    NodeUpdateStatusRequest, ServiceDelete, ServiceDeleteRequest, ServiceUpsert,
    ServiceUpsertRequest,
};

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
        let caller = &client.caller();
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
        let text = match answer {
            Ok(_) => "answered".to_owned(),
            Err(error) => error.to_string(),
        };
        (stringify!($method), text)
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
    let mut answers = denied(&stranger, node, alloc).await;
    answers.extend(denied_services(&stranger, node, alloc).await);
    answers
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
    // A service of its own that no other node may remove, and a quiet cluster.
    let own = service_of(&node, &alloc);
    let caller = &client.caller();
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
        let answers = all_denied(&world, secret, &node, &alloc.id).await;
        assert_eq!(answers.len(), 10);
        for (method, answer) in answers {
            assert!(
                answer.contains("Permission denied"),
                "{method} with {secret:?}: {answer}"
            );
        }
        assert_eq!(shown(), before, "{secret:?}");
    }
    // A caller without a secret, or with another one, does not describe the node either.
    let known = {
        let view = world.server.projections.view();
        nodes::get(&view, &node).unwrap().unwrap()
    };
    for (secret, text) in [
        ("", "missing node secret"),
        (other.as_str(), "does not match"),
    ] {
        let mut request = NodeRegisterRequest {
            node: known.clone(),
        };
        request.node.secret_id = secret.into();
        request.node.name = "taken".into();
        let error = caller
            .once::<NodeRegister>(&request, drover_testkit::LONG)
            .await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let view = world.server.projections.view();
    assert_eq!(nodes::get(&view, &node).unwrap().unwrap().name, "node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_who_proved_nothing_waits_for_nothing() {
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
    // If this caller had to wait, a stranger's time would be over first.
    let soon = Duration::from_secs(19);
    // Nor does the caller learn whether there is such an allocation.
    for named in ["", &client.node_id()] {
        let refused = stranger(named).once::<AllocGetAllocs>(&request, soon).await;
        let Err(RpcError::Api(refused)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refused.code, Code::PermissionDenied);
    }
}
