//! Who calls, and how much a caller may send at once.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{NodeEvent, ServiceRegistration};
use drover_events::{Actor, BodyParts, Header};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::nodes::Nodes;
use drover_projections::tables::services::Services;
use drover_projections::{Scan, View};
use drover_testkit::LONG;

use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::config::Config;
use crate::endpoints::testing::Marking;
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::csi::{CsiVolumeClaimRequest, CsiVolumeUnpublishRequest};
use crate::rpc::methods::{
    AllocUpdateRequest, AllocsGetRequest, EmitNodeEventsRequest, NodeRegisterRequest,
    NodeServerInfo, NodeSpecificRequest, NodeUpdateDrainRequest, NodeUpdateStatusRequest,
    ServiceDeleteRequest, ServiceUpsertRequest,
};
use crate::rpc::server::{CallerLimits, RpcServer, serve};
use crate::rpc::{Rpc, RpcError};
use crate::server::testing::Stopping;
use drover_testkit::fixtures as testing;

pub(super) const SECRET: &str = "11111111-2222-4333-8444-555555555555";

pub(super) struct World {
    pub(super) server: Stopping,
    rpc: RpcServer,
    pub(super) node: String,
    _data: tempfile::TempDir,
}

impl World {
    /// A server that knows one node.
    pub(super) async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let telemetry = crate::telemetry::install(Duration::from_secs(10));
        let config = Arc::new(Config::dev());
        let server = Server::start(config, data.path(), telemetry).await.unwrap();
        server.wait_ready().await;
        let mut node = testing::node(1);
        node.secret_id = secret_hash(SECRET);
        let id = node.id.clone();
        let command = RegisterNode {
            node,
            create_node_pool: true,
        };
        server.submit(command, Origin::default()).await.unwrap();
        let beat = Box::new(|_: &str| Duration::from_secs(60));
        let service = Arc::new(Marking(Arc::new(service(server.clone(), beat))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            rpc: serve(listener, service, CallerLimits::default()).unwrap(),
            server: Stopping(server),
            node: id,
            _data: data,
        }
    }

    pub(super) fn view(&self) -> View {
        self.server.projections.view()
    }

    /// What a method answers to a caller who names a node and has a secret.
    pub(super) async fn call<M: Rpc>(
        &self,
        (node, secret): (&str, &str),
        request: M::Req,
    ) -> Result<M::Res, Refusal> {
        let servers = Servers::new(vec![self.rpc.addr().to_string()]);
        let caller = Caller::network(Pool::new(1), servers, secret).of_node(node);
        match caller.once::<M>(&request, LONG).await {
            Ok(answer) => Ok(answer),
            Err(RpcError::Api(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    /// What each method that is about a node answers to one who is not it.
    async fn refusals(&self, node: &str) -> Vec<(&'static str, Refusal)> {
        let who = (node, "66666666-2222-4333-8444-555555555555");
        let id = || node.to_owned();
        let service = || ServiceRegistration {
            id: "x".into(),
            namespace: "default".into(),
            node_id: id(),
            ..ServiceRegistration::default()
        };
        let alloc = drover_events::model::Allocation {
            id: "a".into(),
            node_id: id(),
            ..Default::default()
        };
        let mut answers = Vec::new();
        macro_rules! refused {
            ($method:ident, $request:expr) => {
                let answer = self.call::<$method>(who, $request).await.map(drop);
                answers.push((<$method as Rpc>::NAME, answer.unwrap_err()));
            };
        }
        let specific = || NodeSpecificRequest {
            node_id: id(),
            ..Default::default()
        };
        let (taken, released, unpublished) = claims_of(node);
        refused!(CsiVolumeClaim, taken);
        refused!(CsiVolumeClaim, released);
        refused!(CsiVolumeUnpublish, unpublished);
        refused!(NodeGetNode, specific());
        refused!(NodeGetClientAllocs, specific());
        refused!(
            NodeUpdateAlloc,
            AllocUpdateRequest {
                alloc: vec![alloc],
                ..Default::default()
            }
        );
        refused!(
            NodeEmitEvents,
            EmitNodeEventsRequest {
                node_events: [(id(), Vec::new())].into(),
            }
        );
        refused!(
            NodeUpdateDrain,
            NodeUpdateDrainRequest {
                node_id: id(),
                drain_spec: Some(Default::default()),
                ..Default::default()
            }
        );
        refused!(
            ServiceUpsert,
            ServiceUpsertRequest {
                services: vec![service()],
                ..Default::default()
            }
        );
        refused!(
            ServiceDelete,
            ServiceDeleteRequest {
                namespace: "default".into(),
                id: "x".into(),
            }
        );
        answers
    }
}

/// What a node requests of volumes.
fn claims_of(
    node: &str,
) -> (
    CsiVolumeClaimRequest,
    CsiVolumeClaimRequest,
    CsiVolumeUnpublishRequest,
) {
    let taken = CsiVolumeClaimRequest {
        node_id: node.to_owned(),
        ..Default::default()
    };
    let claim = crate::rpc::csi::NamedClaim {
        node_id: node.to_owned(),
        ..Default::default()
    };
    let released = CsiVolumeClaimRequest {
        state: 3,
        ..taken.clone()
    };
    let unpublished = CsiVolumeUnpublishRequest {
        claim: Some(claim),
        ..Default::default()
    };
    (taken, released, unpublished)
}

/// Whether a node or a registration exists is not shown to a caller that proved nothing. Only a
/// heartbeat says that the node is gone: clients register again then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_unknown_is_answered_as_a_secret_that_is_wrong() {
    let world = World::start().await;
    let nobody = "99999999-2222-4333-8444-555555555555";
    let (wrong, unknown) = (
        world.refusals(&world.node).await,
        world.refusals(nobody).await,
    );
    assert_eq!(wrong, unknown);
    for (method, error) in wrong {
        assert_eq!(error, Refusal::permission_denied(), "{method}");
    }
    let beat = |node: &str| NodeUpdateStatusRequest {
        node_id: node.to_owned(),
        status: "ready".to_owned(),
        ..NodeUpdateStatusRequest::default()
    };
    for (node, code) in [
        (&*world.node, Code::PermissionDenied),
        (nobody, Code::NotFound),
    ] {
        let who = (node, "nonsense");
        let refused = world.call::<NodeUpdateStatus>(who, beat(node)).await;
        assert_eq!(refused.unwrap_err().code, code, "{node}");
    }
    let own = (&*world.node, SECRET);
    let answer = world.call::<NodeUpdateStatus>(own, beat(&world.node)).await;
    let answer = answer.unwrap();
    assert!(answer.heartbeat_ttl > 0);
    // It gets the servers that it may call.
    let server = NodeServerInfo {
        rpc_advertise_addr: world.server.me.rpc_addr.clone(),
        datacenter: "dc1".to_owned(),
    };
    assert_eq!(answer.servers, [server]);
    world.server.shutdown().await;
}

/// Who it was stands in the log: the node that reports something, or the server, where it gathered
/// what many reported at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_tells_is_logged_in_its_name() {
    use super::alloc_batch::Lane as _;
    let world = World::start().await;
    let own = (&*world.node, SECRET);
    let happened = NodeEvent {
        message: "something happened".to_owned(),
        ..NodeEvent::default()
    };
    let request = EmitNodeEventsRequest {
        node_events: [(world.node.clone(), vec![happened])].into(),
    };
    let done = world.call::<NodeEmitEvents>(own, request).await.unwrap();
    let entry = world.server.raft.log().read(done.index).unwrap().unwrap();
    let parts = BodyParts::split(&entry.body).unwrap();
    let (header, _) = Header::decode(parts.rest).unwrap();
    assert_eq!(header.actor, Actor::node(&world.node, "127.0.0.1"));
    let server = Actor::server(&world.server.me.id, "client-updates");
    assert_eq!(world.server.gathered().actor, server);
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_asks_for_a_thousand_allocations_at_once_and_no_more() {
    let world = World::start().await;
    let own = (&*world.node, SECRET);
    let asks = |count: usize| AllocsGetRequest {
        alloc_ids: vec!["99999999-2222-4333-8444-555555555555".to_owned(); count],
        ..AllocsGetRequest::default()
    };
    let reported = world.call::<AllocGetAllocs>(own, asks(1_000)).await;
    assert!(reported.unwrap().allocs.is_empty(), "there is none");
    let refused = world.call::<AllocGetAllocs>(own, asks(1_001)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::BadRequest);
    assert!(refused.message.contains("at most 1000"), "{refused}");
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_so_many_services_at_once_and_no_longer_ones() {
    let world = World::start().await;
    let own = (&*world.node, SECRET);
    let service = |id: String| ServiceRegistration {
        id,
        namespace: "default".into(),
        node_id: world.node.clone(),
        ..ServiceRegistration::default()
    };
    let services = |count: usize| ServiceUpsertRequest {
        services: (0..count).map(|n| service(n.to_string())).collect(),
        node_id: world.node.clone(),
        ..ServiceUpsertRequest::default()
    };
    let allocs = |count: usize| ServiceUpsertRequest {
        allocs: vec![String::new(); count],
        ..services(1)
    };
    let mut long = services(1);
    long.services[0].tags = vec!["x".repeat(100_000)].into();
    for (request, wanted) in [
        (services(8_193), "Services has 8193 elements; at most 8192"),
        (allocs(8_193), "Allocs has 8193 elements; at most 8192"),
        (services(0), "no services given"),
        (long, "tags are 100000 bytes long; at most 65536"),
    ] {
        let refused = world.call::<ServiceUpsert>(own, request).await.unwrap_err();
        assert_eq!(refused.code, Code::BadRequest);
        assert!(refused.message.contains(wanted), "{refused}");
    }
    // None is of an allocation that there is, so none is kept.
    let taken = world.call::<ServiceUpsert>(own, services(8_192)).await;
    assert!(taken.is_ok(), "{taken:?}");
    assert_eq!(world.view().scan::<Services>(Scan::all()).count(), 0);
    world.server.shutdown().await;
}

/// A node registers services of what runs on it, and of nothing else.
async fn services_of_its_own(world: &World, id: &str, other: (&str, &str)) {
    let own = (&*world.node, SECRET);
    let job = world.view().get::<Allocs>(id).unwrap().unwrap();
    let service = |node: &str, namespace: &str, job: &str| ServiceRegistration {
        id: "_nomad-task-1".into(),
        service_name: "db".into(),
        namespace: namespace.into(),
        node_id: node.into(),
        job_id: job.into(),
        alloc_id: id.to_owned(),
        ..ServiceRegistration::default()
    };
    let (space, name) = (job.alloc.namespace.as_str(), job.alloc.job_id.as_str());
    for (who, service, may) in [
        (own, service(&world.node, "elsewhere", name), false),
        (own, service(&world.node, space, "another"), false),
        (other, service(other.0, space, name), false),
        (own, service(&world.node, space, name), true),
        (other, service(other.0, space, name), false),
    ] {
        let reported = format!("{service:?}");
        let request = ServiceUpsertRequest {
            services: vec![service],
            ..ServiceUpsertRequest::default()
        };
        let answer = world.call::<ServiceUpsert>(who, request).await;
        assert_eq!(answer.is_ok(), may, "{reported}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allocation_is_told_to_its_own_node_and_nobody_else() {
    let world = World::start().await;
    let own = (&*world.node, SECRET);
    let secret = "77777777-2222-4333-8444-555555555555";
    for _ in 0..2 {
        let beat = NodeUpdateStatusRequest {
            node_id: world.node.clone(),
            status: "ready".to_owned(),
            ..NodeUpdateStatusRequest::default()
        };
        world.call::<NodeUpdateStatus>(own, beat).await.unwrap();
    }
    let register = RegisterJob {
        job: testing::job("service", 1),
        eval_id: uuid::Uuid::new_v4().to_string(),
        ..RegisterJob::default()
    };
    world
        .server
        .submit(register, Origin::default())
        .await
        .unwrap();
    let placed = || {
        let view = world.view();
        let mut rows = view.scan::<Allocs>(Scan::all());
        let first = rows.next().ok_or("none yet")?;
        Ok::<_, &str>(first.unwrap().alloc.id)
    };
    let id = drover_testkit::eventually("a placement", LONG, placed).await;
    let id = id.unwrap();
    let mut other = testing::node(2);
    other.secret_id = secret_hash(secret);
    let other_id = other.id.clone();
    let command = RegisterNode {
        node: other,
        create_node_pool: true,
    };
    world
        .server
        .submit(command, Origin::default())
        .await
        .unwrap();
    services_of_its_own(&world, &id, (&other_id, secret)).await;
    let asks = |id: &str| AllocsGetRequest {
        alloc_ids: vec![id.to_owned()],
        ..AllocsGetRequest::default()
    };
    let reported = world.call::<AllocGetAllocs>(own, asks(&id)).await.unwrap();
    assert_eq!((reported.allocs.len(), &reported.allocs[0].id), (1, &id));
    assert!(reported.index > 0);
    let nobody = "99999999-2222-4333-8444-555555555555";
    let none = world.call::<AllocGetAllocs>(own, asks(nobody)).await;
    assert_eq!(none.unwrap().allocs.len(), 0);
    for who in [
        (&*other_id, secret),
        (&*other_id, SECRET),
        (&*world.node, secret),
        (&*world.node, ""),
        (nobody, SECRET),
        ("", SECRET),
    ] {
        let refused = world.call::<AllocGetAllocs>(who, asks(&id)).await;
        assert_eq!(
            refused.unwrap_err(),
            Refusal::permission_denied(),
            "{who:?}"
        );
    }
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_a_caller_is_known_by_the_secret_of_the_node_that_it_names() {
    use crate::rpc::service::Dispatch;
    let world = World::start().await;
    let server = &world.server.0;
    let beat = || -> Beat { Box::new(|_: &str| Duration::from_secs(60)) };
    let served = service(server.clone(), beat());
    let upper = SECRET.to_uppercase();
    for (node, token, known) in [
        (&*world.node, SECRET, true),
        (&world.node, SECRET, true),
        (&world.node, &upper, true),
        (&world.node, "", false),
        (&world.node, "66666666-2222-4333-8444-555555555555", false),
        ("99999999-2222-4333-8444-555555555555", SECRET, false),
        ("", SECRET, false),
    ] {
        let call = Call {
            node: node.into(),
            token: token.into(),
            ..Call::default()
        };
        assert_eq!(served.knows(&call).await, known, "{node} {token}");
    }
    let endpoints = ClientEndpoints {
        server: auth::Guarded::new(server.clone()),
        beat: beat(),
        batch: alloc_batch::Batcher::start(server.clone()),
        proven: auth::Proven::default(),
        pace: blocking::WakePace::default(),
        requests: Rates::none(),
    };
    let call = Call {
        addr: "10.1.2.3".into(),
        ..Call::default()
    };
    let origin = || auth::newcomer(&call, "n1").into_origin();
    let (one, other) = (origin(), origin());
    assert_eq!(one.actor, drover_events::Actor::node("n1", "10.1.2.3"));
    assert_ne!(one.request_id, other.request_id);
    let epoch = hex::encode(server.raft.log().epoch().id);
    assert_eq!(endpoints.epoch(), epoch);
    assert!(!epoch.is_empty());
    world.server.shutdown().await;
}

/// What a node says of itself is stored and logged; its secret is neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_30_of_a_secret_that_a_node_registers_with_its_hash_is_kept_and_nothing_else() {
    const NAME: &str = "a-node-whose-name-is-in-the-log";
    let world = World::start().await;
    let secret = "abcdef00-2222-4333-8444-555555555555";
    let mut node = testing::node(2);
    node.secret_id = secret.to_owned();
    node.name = NAME.to_owned();
    let id = node.id.clone();
    let who = (&*id, secret);
    let done = world
        .call::<NodeRegister>(who, NodeRegisterRequest { node })
        .await
        .unwrap();
    let row = world.view().get::<Nodes>(id.as_str()).unwrap().unwrap();
    assert_eq!(row.secret_id, secret_hash(secret));
    // Its class is what servers make of it.
    let class = crate::scheduler::feasible::computed_class(&testing::node(2));
    assert_eq!(row.computed_class, class);
    let entry = world
        .server
        .raft
        .log()
        .read(done.index)
        .unwrap()
        .unwrap()
        .body;
    let holds = |bytes: &[u8], text: &str| {
        let text = text.as_bytes();
        bytes.windows(text.len()).any(|window| window == text)
    };
    assert!(holds(&entry, NAME), "the entry is that of the registration");
    assert!(!holds(&entry, secret));
    assert!(holds(&entry, &secret_hash(secret)));
    world.server.shutdown().await;
}
