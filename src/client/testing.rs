//! Servers that only pretend, and clients of theirs: what these request and report is written down,
//! and a test says what they are answered.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use drover_events::model::{Allocation, Node};
use parking_lot::Mutex;

use super::agent::{Client, ClientStart};
use super::alloc::runner_test::factory;
use super::clock::{Clock, SECOND};
use drover_error::Refusal;
use drover_rpc::Rpc;
use drover_rpc::caller::Caller;
use drover_rpc::methods::{
    AllocGetAllocs, AllocUpdateRequest, AllocsGetRequest, AllocsGetResponse,
    NodeClientAllocsResponse, NodeGetClientAllocs, NodeRegister, NodeRegisterRequest,
    NodeSpecificRequest, NodeUpdateAlloc, NodeUpdateResponse, NodeUpdateStatus,
    NodeUpdateStatusRequest, ServiceDelete, ServiceDeleteRequest, ServiceUpsert,
    ServiceUpsertRequest, WriteResponse,
};
use drover_rpc::service::{Access, Call, Service};

/// The state that the servers are at, and the epoch of their log.
pub(super) const INDEX: u64 = 10;
pub(super) const EPOCH: &str = "first";

/// What the servers answer, and what was reported to them.
#[derive(Default)]
pub(super) struct Pretended {
    /// No registration is answered: so no loop of a client begins, and a test makes their steps
    /// itself.
    silent: bool,
    /// The index of the node, as heartbeats are answered.
    pub(super) node_index: AtomicU64,
    /// Ids and indexes of the allocations that the node should have.
    pub(super) wanted: Mutex<BTreeMap<String, u64>>,
    /// Those that are there when they are fetched.
    pub(super) there: Mutex<Vec<Allocation>>,
    /// What was reported of allocations, in its order.
    pub(super) updates: Mutex<Vec<Allocation>>,
    /// What was reported of services, one text for each call.
    pub(super) services: Mutex<Vec<String>>,
    /// The node as it was reported last.
    pub(super) node: Mutex<Option<Node>>,
    /// The methods that were called, in their order.
    pub(super) methods: Mutex<Vec<&'static str>>,
    beats: AtomicUsize,
}

impl Pretended {
    /// Servers that answer every request.
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Servers that never answer a registration.
    pub(super) fn silent() -> Arc<Self> {
        Arc::new(Self {
            silent: true,
            ..Self::default()
        })
    }

    /// The way to them.
    pub(super) fn caller(self: &Arc<Self>) -> Caller {
        let service = Service::new(Arc::clone(self))
            .method::<NodeRegister, _, _>(Access::Public, register)
            .method::<NodeUpdateStatus, _, _>(Access::Public, beat)
            .method::<NodeGetClientAllocs, _, _>(Access::Public, wanted)
            .method::<AllocGetAllocs, _, _>(Access::Public, fetched)
            .method::<NodeUpdateAlloc, _, _>(Access::Public, updated)
            .method::<ServiceUpsert, _, _>(Access::Public, offered)
            .method::<ServiceDelete, _, _>(Access::Public, withdrawn);
        Caller::process(Arc::new(service), "secret")
    }

    /// A client that knows no others, and keeps what it has in `dir`.
    pub(super) fn client(self: &Arc<Self>, dir: &Path) -> Arc<Client> {
        let factory = factory(dir);
        factory.settings.update(|settings| settings.dev = true);
        Client::start(ClientStart {
            settings: factory.settings.clone(),
            node: Arc::clone(&factory.node),
            caller: self.caller(),
            journal: Arc::clone(&factory.journal),
            services: Arc::clone(&factory.services),
            clock: Clock::System,
            csi: None,
            factory: Arc::new(factory),
        })
    }

    /// How many heartbeats came.
    pub(super) fn beats(&self) -> usize {
        self.beats.load(Ordering::Relaxed)
    }

    /// How often something was reported of an allocation.
    pub(super) fn reported(&self, alloc: &str) -> usize {
        let updates = self.updates.lock();
        updates.iter().filter(|update| update.id == alloc).count()
    }

    fn of_node(&self) -> NodeUpdateResponse {
        NodeUpdateResponse {
            heartbeat_ttl: SECOND / 10,
            node_modify_index: self.node_index.load(Ordering::Relaxed),
            epoch: EPOCH.to_owned(),
            scheduling_eligibility: "eligible".to_owned(),
            ..NodeUpdateResponse::default()
        }
    }
}

async fn register(
    servers: Arc<Pretended>,
    _: Call,
    sent: NodeRegisterRequest,
) -> Result<NodeUpdateResponse, Refusal> {
    servers.methods.lock().push(NodeRegister::NAME);
    *servers.node.lock() = Some(sent.node);
    match servers.silent {
        true => std::future::pending().await,
        false => Ok(servers.of_node()),
    }
}

async fn beat(
    servers: Arc<Pretended>,
    _: Call,
    _: NodeUpdateStatusRequest,
) -> Result<NodeUpdateResponse, Refusal> {
    servers.beats.fetch_add(1, Ordering::Relaxed);
    Ok(servers.of_node())
}

/// Nothing ever changes: a caller that knows what there is waits for ever.
async fn wanted(
    servers: Arc<Pretended>,
    _: Call,
    requested: NodeSpecificRequest,
) -> Result<NodeClientAllocsResponse, Refusal> {
    servers.methods.lock().push(NodeGetClientAllocs::NAME);
    if requested.min_query_index >= INDEX {
        return std::future::pending().await;
    }
    Ok(NodeClientAllocsResponse {
        allocs: servers.wanted.lock().clone(),
        index: INDEX,
        epoch: EPOCH.to_owned(),
        ..NodeClientAllocsResponse::default()
    })
}

async fn fetched(
    servers: Arc<Pretended>,
    _: Call,
    requested: AllocsGetRequest,
) -> Result<AllocsGetResponse, Refusal> {
    let there = servers.there.lock();
    let allocs = there
        .iter()
        .filter(|one| requested.alloc_ids.contains(&one.id));
    Ok(AllocsGetResponse {
        allocs: allocs.cloned().collect(),
        index: INDEX,
    })
}

async fn updated(
    servers: Arc<Pretended>,
    _: Call,
    reported: AllocUpdateRequest,
) -> Result<WriteResponse, Refusal> {
    servers.updates.lock().extend(reported.alloc);
    Ok(WriteResponse { index: INDEX })
}

async fn offered(
    servers: Arc<Pretended>,
    _: Call,
    reported: ServiceUpsertRequest,
) -> Result<WriteResponse, Refusal> {
    let services = reported
        .services
        .iter()
        .map(|s| format!("{}:{}", s.id, s.port));
    let whole = reported.allocs.iter().map(|id| format!("all of {id}"));
    let text = services.chain(whole).collect::<Vec<_>>().join(", ");
    servers.services.lock().push(text);
    Ok(WriteResponse { index: INDEX })
}

async fn withdrawn(
    servers: Arc<Pretended>,
    _: Call,
    reported: ServiceDeleteRequest,
) -> Result<WriteResponse, Refusal> {
    servers.services.lock().push(format!("not {}", reported.id));
    Ok(WriteResponse { index: INDEX })
}
