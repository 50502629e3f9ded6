//! A server of one, and a plugin in memory that refuses whatever comes in the wrong order and
//! remembers what should never have been asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::{CsiVolumeClaimed, mode};
use drover_events::eval::EvalsDeleted;
use drover_events::job::JobRegistered;
use drover_events::model::{
    Allocation, CsiControllerInfo, CsiInfo, CsiNodeInfo, CsiVolume, CsiVolumeCapability,
    VolumeRequest,
};
use drover_events::node::{NodeRegistered, NodeStatusUpdated, NodesDeregistered};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_projections::Outcome;
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Record, StepError, Taken, Volumes};
use crate::commands::Command;
use crate::commands::csi::RegisterVolumes;
use crate::error::{ApiError, Code};
use crate::keyring::Keyring;
use crate::proposer::{Committed, Origin};
use crate::reactors::testing::Direct;
use crate::rpc::asked::{Reach, Unanswered};
use crate::rpc::csi::*;
use crate::rpc::service::{Access, Call, Dispatch, Service};
use drover_testkit::fixtures;

pub(crate) const PLUGIN: &str = "strict";

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never comes to the plugin.
    Before,
    /// The plugin does it, and the answer is lost.
    Lost,
    /// The plugin answers so, and does nothing.
    Says(Code),
    /// It hangs until the caller gives up.
    Hangs,
}

/// What the storage is like, as the plugin sees it.
#[derive(Debug, Default)]
struct Storage {
    /// Volume, node.
    attached: BTreeSet<(String, String)>,
    /// Volume, node and allocation; and whether it writes.
    mounted: BTreeMap<(String, String, String), bool>,
    made: BTreeSet<String>,
    sizes: BTreeMap<String, i64>,
    calls: Vec<String>,
    wrong: Vec<String>,
    gone: BTreeSet<String>,
}

/// The plugin, and the clients of all its nodes.
pub(crate) struct Strict {
    storage: Mutex<Storage>,
    faults: Mutex<BTreeMap<&'static str, Vec<Fault>>>,
    /// Volumes that more than one may write to.
    pub shared: AtomicBool,
    /// How long each call takes.
    pub slow: Mutex<Duration>,
    handlers: Mutex<Option<Arc<dyn Dispatch>>>,
}

impl Strict {
    pub(crate) fn new() -> Arc<Self> {
        let strict = Arc::new(Self {
            storage: Mutex::default(),
            faults: Mutex::default(),
            shared: AtomicBool::new(false),
            slow: Mutex::new(Duration::ZERO),
            handlers: Mutex::new(None),
        });
        *strict.handlers.lock() = Some(strict.service());
        strict
    }

    fn service(self: &Arc<Self>) -> Arc<dyn Dispatch> {
        macro_rules! handled {
            ($service:ident; $($method:ident($req:ty) => $handler:ident;)*) => {
                $service$(.method::<$method, _, _>(
                    Access::Server,
                    |strict: Arc<Weakly>, _: Call, asked: $req| async move {
                        strict.0.upgrade().map_or_else(
                            || Err(ApiError::internal("it is gone")),
                            |strict| strict.$handler(asked),
                        )
                    },
                ))*
            };
        }
        let service = Service::new(Arc::new(Weakly(Arc::downgrade(self))));
        let service = handled! { service;
            ControllerAttachVolume(ControllerAttachVolumeRequest) => attach;
            ControllerDetachVolume(ControllerDetachVolumeRequest) => detach;
            NodeDetachVolume(NodeDetachVolumeRequest) => unmount;
            ControllerCreateVolume(ControllerCreateVolumeRequest) => create;
            ControllerDeleteVolume(ControllerDeleteVolumeRequest) => delete;
            ControllerValidateVolume(ControllerValidateVolumeRequest) => validate;
            ControllerExpandVolume(ControllerExpandVolumeRequest) => expand;
        };
        Arc::new(service)
    }

    /// The next calls by this method end so, one after the other.
    pub(crate) fn fault(&self, method: &'static str, faults: &[Fault]) {
        let mut known = self.faults.lock();
        known.entry(method).or_default().extend(faults);
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().clear();
    }

    /// A node, with everything on it, is gone for ever.
    pub(crate) fn lose(&self, node: &str) {
        let mut storage = self.storage.lock();
        storage.gone.insert(node.to_owned());
        storage.mounted.retain(|(_, at, _), _| at != node);
    }

    /// A node of that name is there again, with nothing on it.
    pub(crate) fn is_new(&self, node: &str) {
        self.storage.lock().gone.remove(node);
    }

    /// What was asked, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.storage.lock().calls.clone()
    }

    pub(crate) fn count(&self, begins: &str) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.starts_with(begins))
            .count()
    }

    /// What should never have been asked.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.storage.lock().wrong.clone()
    }

    /// Whether nothing is attached or mounted any more.
    pub(crate) fn is_idle(&self) -> bool {
        let storage = self.storage.lock();
        storage.attached.is_empty() && storage.mounted.is_empty()
    }

    /// The client mounts a volume for an allocation, as it does after its claim.
    pub(crate) fn mount(&self, volume: &str, node: &str, alloc: &str, writes: bool) {
        let mut storage = self.storage.lock();
        let place = (volume.to_owned(), node.to_owned());
        if !storage.attached.contains(&place) {
            let text = format!("{alloc} mounts {volume} on {node}, where it is not attached");
            storage.wrong.push(text);
        }
        let others = storage
            .mounted
            .iter()
            .filter(|((of, at, by), _)| of == volume && !storage.gone.contains(at) && by != alloc);
        let others = others.count();
        if others > 0 && !self.shared.load(Ordering::SeqCst) {
            storage
                .wrong
                .push(format!("{alloc} is the second that has {volume}"));
        }
        let key = (volume.to_owned(), node.to_owned(), alloc.to_owned());
        storage.mounted.insert(key, writes);
    }

    fn attach(
        &self,
        asked: ControllerAttachVolumeRequest,
    ) -> Result<ControllerAttachVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        let (volume, node) = (asked.volume_id, asked.client_csi_node_id);
        let elsewhere = storage
            .attached
            .iter()
            .find(|(of, at)| *of == volume && *at != node);
        if let Some((_, at)) = elsewhere
            && !self.shared.load(Ordering::SeqCst)
        {
            let text = format!("{volume} goes to {node} while it is on {at}");
            storage.wrong.push(text.clone());
            return Err(ApiError::new(Code::Unavailable, text));
        }
        storage.attached.insert((volume.clone(), node.clone()));
        Ok(ControllerAttachVolumeResponse {
            publish_context: [("device", format!("{volume} on {node}"))].into(),
        })
    }

    fn detach(&self, asked: ControllerDetachVolumeRequest) -> Result<Done, ApiError> {
        let mut storage = self.storage.lock();
        let (volume, node) = (asked.volume_id, asked.client_csi_node_id);
        let all = node.is_empty();
        let of = |at: &String| all || *at == node;
        let mounted = storage
            .mounted
            .keys()
            .find(|(id, at, _)| *id == volume && of(at))
            .cloned();
        if let Some((_, at, by)) = mounted {
            let text = format!("{volume} is taken from {at}, where {by} has it mounted");
            storage.wrong.push(text.clone());
            return Err(ApiError::refused(text));
        }
        storage.attached.retain(|(id, at)| *id != volume || !of(at));
        Ok(Done {})
    }

    fn unmount(&self, asked: NodeDetachVolumeRequest) -> Result<Done, ApiError> {
        let mut storage = self.storage.lock();
        let key = (asked.external_id, asked.node_id, asked.alloc_id);
        storage.mounted.remove(&key);
        Ok(Done {})
    }

    fn create(
        &self,
        asked: ControllerCreateVolumeRequest,
    ) -> Result<ControllerCreateVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        let id = format!("made-{}", asked.name);
        storage.made.insert(id.clone());
        storage.sizes.insert(id.clone(), asked.capacity_min);
        Ok(ControllerCreateVolumeResponse {
            external_volume_id: id,
            capacity_bytes: asked.capacity_min,
            volume_context: [("from", "strict".to_owned())].into(),
            ..ControllerCreateVolumeResponse::default()
        })
    }

    fn delete(&self, asked: ControllerDeleteVolumeRequest) -> Result<Done, ApiError> {
        self.storage.lock().made.remove(&asked.external_volume_id);
        Ok(Done {})
    }

    fn validate(&self, asked: ControllerValidateVolumeRequest) -> Result<Done, ApiError> {
        match asked.volume_id.starts_with("bad") {
            true => Err(ApiError::refused(
                "ValidateVolumeCapabilities: NotFound: no such volume",
            )),
            false => Ok(Done {}),
        }
    }

    fn expand(
        &self,
        asked: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        storage
            .sizes
            .insert(asked.external_volume_id, asked.required_bytes);
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: asked.required_bytes,
            node_expansion_required: false,
        })
    }
}

struct Weakly(std::sync::Weak<Strict>);

/// The way to the plugin.
pub(crate) struct Way {
    strict: Arc<Strict>,
    /// Nodes that no way leads to.
    pub cut: Mutex<BTreeSet<String>>,
}

impl Reach for Way {
    fn reaches(&self, node: &str) -> bool {
        !self.cut.lock().contains(node)
    }

    fn ask(
        &self,
        node: &str,
        method: &'static str,
        body: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unanswered>> {
        if !self.reaches(node) {
            let lost = Unanswered::Unreached("No path to node".to_owned());
            return std::future::ready(Err(lost)).boxed();
        }
        let (strict, node) = (Arc::clone(&self.strict), node.to_owned());
        async move {
            let slow = *strict.slow.lock();
            if !slow.is_zero() {
                tokio::time::sleep(slow).await;
            }
            let name = method.trim_start_matches("CSI.");
            let fault = {
                let mut faults = strict.faults.lock();
                let of = faults.get_mut(name).filter(|of| !of.is_empty());
                of.map(|of| of.remove(0))
            };
            let lost = || Unanswered::Unsure("the node was lost: it broke off".to_owned());
            strict
                .storage
                .lock()
                .calls
                .push(format!("{name} @{node} {fault:?}"));
            match fault {
                Some(Fault::Before) => return Err(lost()),
                Some(Fault::Hangs) => return std::future::pending().await,
                Some(Fault::Says(code)) => {
                    let error = ApiError::new(code, format!("{name}: the plugin says {code:?}"));
                    return Err(Unanswered::Refused(error));
                }
                Some(Fault::Lost) | None => {}
            }
            let handlers = strict.handlers.lock().clone().expect("they are set");
            let answer = handlers.dispatch(method, Call::default(), body).await;
            match fault {
                Some(_) => Err(lost()),
                None => answer.map_err(Unanswered::Refused),
            }
        }
        .boxed()
    }
}

/// The way to change the state, for one leader.
pub(crate) struct Leader {
    direct: Arc<Direct>,
    pub leads: AtomicBool,
}

impl Record for Leader {
    fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    fn record(
        &self,
        command: Arc<dyn Command>,
        _: Origin,
    ) -> BoxFuture<'_, Result<Committed, ApiError>> {
        let done = match self.leads() {
            false => Err(ApiError::no_leader()),
            true => self
                .direct
                .command(&*command)
                .and_then(|(index, outcome)| match outcome {
                    Outcome::Applied(reply) => Ok(Committed { index, reply }),
                    Outcome::Rejected(why) => Err(ApiError::refused(format!("{why:?}"))),
                }),
        };
        // As others do, who share the thread.
        async move {
            tokio::task::yield_now().await;
            done
        }
        .boxed()
    }
}

/// A state with nodes that run the plugin, and what is done with its volumes.
pub(crate) struct World {
    pub direct: Arc<Direct>,
    pub strict: Arc<Strict>,
    pub way: Arc<Way>,
    pub leader: Arc<Leader>,
    pub volumes: Arc<Volumes>,
    keyring: Arc<Keyring>,
    _dir: tempfile::TempDir,
}

impl World {
    /// With so many nodes, on each a controller and a node plugin.
    pub(crate) fn new(nodes: usize) -> Self {
        let direct = Direct::new();
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(Keyring::open(dir.path()).unwrap().0);
        let strict = Strict::new();
        let way = Arc::new(Way {
            strict: Arc::clone(&strict),
            cut: Mutex::default(),
        });
        let (leader, volumes) = elected(&direct, &way, &keyring);
        direct.apply(VersionBarrierRaised {
            level: drover_migrations::FEATURE_LEVEL,
            ..VersionBarrierRaised::default()
        });
        let world = Self {
            direct,
            strict,
            way,
            leader,
            volumes,
            keyring,
            _dir: dir,
        };
        for number in 0..nodes {
            world.node(number, true);
        }
        world
    }

    /// Another leader takes over: whatever the former does comes to nothing.
    pub(crate) fn elect(&mut self) {
        self.leader.leads.store(false, Ordering::SeqCst);
        (self.leader, self.volumes) = elected(&self.direct, &self.way, &self.keyring);
    }

    /// A leader whose patience is short.
    pub(crate) fn hurry(&mut self) {
        let short = Duration::from_millis(20);
        let limits = super::Limits {
            controller: short,
            node: short,
            list: short,
        };
        self.volumes = Volumes::with_limits(
            Arc::clone(&self.direct.projections),
            self.leader.clone(),
            (self.way.clone(), limits),
            Arc::clone(&self.keyring),
        );
    }

    /// A node registers, with a plugin that is healthy or not.
    pub(crate) fn node(&self, number: usize, healthy: bool) {
        let mut node = fixtures::node(number);
        let info = CsiInfo {
            plugin_id: PLUGIN.into(),
            healthy,
            requires_controller_plugin: true,
            provider: "strict.example.com".into(),
            ..CsiInfo::default()
        };
        let controller = CsiInfo {
            controller_info: Some(CsiControllerInfo {
                supports_attach_detach: true,
                supports_create_delete: true,
                supports_expand: true,
                ..CsiControllerInfo::default()
            }),
            ..info.clone()
        };
        let on_node = CsiInfo {
            node_info: Some(CsiNodeInfo {
                id: node.id.clone(),
                ..CsiNodeInfo::default()
            }),
            ..info
        };
        node.csi_controller_plugins = [(PLUGIN, controller)].into();
        node.csi_node_plugins = [(PLUGIN, on_node)].into();
        self.direct.apply(NodeRegistered {
            node: Box::new(node),
            ..NodeRegistered::default()
        });
    }

    /// A node is lost, or is back.
    pub(crate) fn node_is(&self, number: usize, status: &str) {
        self.direct.apply(NodeStatusUpdated {
            node_id: node_id(number),
            status: status.into(),
            ..NodeStatusUpdated::default()
        });
    }

    /// A node is gone for ever, and the state knows it.
    pub(crate) fn node_goes(&self, number: usize) {
        self.strict.lose(&node_id(number));
        self.direct.apply(NodesDeregistered {
            node_ids: vec![node_id(number)],
            ..NodesDeregistered::default()
        });
    }

    /// A volume that the provider has.
    pub(crate) fn volume(&self, id: &str, access: &str) {
        let command = RegisterVolumes {
            volumes: vec![volume(id, access)],
        };
        self.direct.command(&command).unwrap();
    }

    /// An allocation that asks for a volume starts on a node.
    pub(crate) fn alloc(&self, number: usize, node: usize, volume: &str, access: &str) -> String {
        let id = alloc_id(number);
        let mut job = fixtures::job("service", 1);
        job.id = format!("job-{number}");
        job.name.clone_from(&job.id);
        let asked = VolumeRequest {
            name: "v".into(),
            r#type: "csi".into(),
            source: volume.into(),
            access_mode: access.into(),
            attachment_mode: "file-system".into(),
            ..VolumeRequest::default()
        };
        job.task_groups.to_mut()[0].volumes = [("v", asked)].into();
        let job_id = job.id.clone();
        let (index, _) = self.direct.apply(JobRegistered {
            job: Arc::new(job),
            ..JobRegistered::default()
        });
        let alloc = Allocation {
            id: id.clone(),
            name: format!("{job_id}.g[0]"),
            namespace: "default".into(),
            job_id,
            task_group: "g".into(),
            node_id: node_id(node),
            desired_status: "run".into(),
            client_status: "pending".into(),
            ..Allocation::default()
        };
        let (_, outcome) = self.direct.apply(PlanApplied {
            placed: vec![PlacedAlloc {
                alloc: Box::new(alloc),
                job_modify_index: index,
            }],
            ..PlanApplied::default()
        });
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        id
    }

    /// What its client tells of an allocation.
    pub(crate) fn alloc_is(&self, alloc: &str, status: &str) {
        let update = ClientAllocUpdate {
            id: alloc.to_owned(),
            client_status: status.into(),
            ..ClientAllocUpdate::default()
        };
        self.direct.apply(AllocsUpdatedByClient {
            updates: vec![update],
            ..AllocsUpdatedByClient::default()
        });
    }

    /// An allocation is collected.
    pub(crate) fn alloc_goes(&self, alloc: &str) {
        self.direct.apply(EvalsDeleted {
            alloc_ids: vec![alloc.to_owned()],
            ..EvalsDeleted::default()
        });
    }

    pub(crate) async fn claim(&self, volume: &str, alloc: &str) -> Result<Taken, StepError> {
        let claim = CsiVolumeClaimed {
            namespace: "default".into(),
            volume_id: volume.to_owned(),
            allocation_id: alloc.to_owned(),
            claim: mode::WRITE,
            ..CsiVolumeClaimed::default()
        };
        self.volumes.claim(claim, Origin::default()).await
    }

    pub(crate) async fn unpublish(&self, volume: &str, alloc: &str) -> Result<u64, StepError> {
        let place = ("default", volume);
        self.volumes
            .unpublish(place, alloc, &Origin::default())
            .await
    }

    pub(crate) fn row(&self, volume: &str) -> CsiVolumeRow {
        let view = self.direct.projections.view();
        view.get::<CsiVolumes>(("default", volume))
            .unwrap()
            .unwrap()
    }

    /// The state of the claims that are being given back.
    pub(crate) fn past(&self, volume: &str) -> Vec<u8> {
        let row = self.row(volume);
        row.past_claims.values().map(|claim| claim.state).collect()
    }

    pub(crate) fn index(&self) -> u64 {
        self.direct.projections.applied_index()
    }
}

fn elected(
    direct: &Arc<Direct>,
    way: &Arc<Way>,
    keyring: &Arc<Keyring>,
) -> (Arc<Leader>, Arc<Volumes>) {
    let leader = Arc::new(Leader {
        direct: Arc::clone(direct),
        leads: AtomicBool::new(true),
    });
    let volumes = Volumes::new(
        Arc::clone(&direct.projections),
        leader.clone(),
        way.clone(),
        Arc::clone(keyring),
    );
    (leader, volumes)
}

pub(crate) fn node_id(number: usize) -> String {
    fixtures::node(number).id
}

pub(crate) fn alloc_id(number: usize) -> String {
    format!("{number:08x}-a000-4000-8000-000000000000")
}

pub(crate) fn volume(id: &str, access: &str) -> CsiVolume {
    CsiVolume {
        id: id.into(),
        name: id.into(),
        external_id: id.into(),
        namespace: "default".into(),
        plugin_id: PLUGIN.into(),
        requested_capabilities: vec![CsiVolumeCapability {
            access_mode: access.into(),
            attachment_mode: "file-system".into(),
        }]
        .into(),
        ..CsiVolume::default()
    }
}
