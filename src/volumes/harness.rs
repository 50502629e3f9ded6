//! A server of one with nodes that run a plugin, and what is done with its volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::{CsiVolumeClaimed, claim_mode};
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
use drover_projections::tables::jobs::Jobs;
use drover_testkit::fixtures;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::testing::{Strict, Way, turns};
use super::{ClaimGrant, PluginCallLimits, StepError, VolumeStore, Volumes};
use crate::commands::Command;
use crate::commands::csi::RegisterVolumes;
use crate::csi_calls::Lead;
use crate::error::Refusal;
use crate::keyring::Keyring;
use crate::proposer::{Committed, Origin};
use crate::reactors::testing::{Direct, Faulty};
use crate::rpc::csi::NamedClaim;

pub(crate) const PLUGIN: &str = "strict";
/// So long no call attaches where a detach may be done late, with a leader that is patient.
pub(crate) const QUIET: Duration = Duration::from_millis(300);
/// A call without an answer is done soon, or not at all.
const SOON: PluginCallLimits = PluginCallLimits {
    late: Duration::from_millis(20),
    quiet: Duration::from_millis(2),
    ..PluginCallLimits::USUAL
};

/// The way to change the state, for one leader.
pub(crate) struct Leader {
    direct: Arc<Direct>,
    /// In which it leads.
    pub term: AtomicU64,
    pub leads: AtomicBool,
    /// It is cut off from the others, and does not know.
    pub cut: AtomicBool,
    /// In whose name commands were given.
    pub origins: Mutex<Vec<Origin>>,
    /// Whether what had to write nothing is answered with the index of the state.
    pub knows_where: AtomicBool,
    /// What is done to one thing fails, where there is one that is bad.
    pub faulty: Mutex<Option<Arc<Faulty>>>,
}

impl Leader {
    fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    fn checked(&self, command: &dyn Command) -> Result<(), Refusal> {
        let faulty = self.faulty.lock().clone();
        faulty.map_or(Ok(()), |faulty| faulty.checked(command))
    }
}

impl Lead for Leader {
    fn term(&self) -> Option<u64> {
        self.leads().then(|| self.term.load(Ordering::SeqCst))
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        // A leader that is cut off learns it here.
        let cut = self.cut.load(Ordering::SeqCst);
        let confirmed = match self.leads() && !cut {
            true => Ok(()),
            false => Err(Refusal::no_leader()),
        };
        std::future::ready(confirmed).boxed()
    }
}

impl VolumeStore for Leader {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        self.origins.lock().push(origin);
        let done = match self.leads() {
            false => Err(Refusal::no_leader()),
            true => self
                .checked(&*command)
                .and_then(|()| self.direct.command(&*command))
                .and_then(|(index, outcome)| match outcome {
                    Outcome::Applied(reply) => Ok(Committed {
                        index: match self.knows_where.load(Ordering::Relaxed) {
                            true => index.max(self.direct.projections.applied_index()),
                            false => index,
                        },
                        reply,
                        is_written: index > 0,
                    }),
                    Outcome::Rejected(why) => Err(Refusal::by_rule(format!("{why:?}"))),
                }),
        };
        // As other tasks do that share the thread.
        async move {
            turns(1).await;
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
        let world = Self::on(Direct::new());
        world.direct.apply(barrier());
        for number in 0..nodes {
            world.node(number, true);
        }
        world
    }

    /// With what such a state holds.
    pub(crate) fn on(direct: Arc<Direct>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(Keyring::open(dir.path()).unwrap().0);
        let strict = Strict::new();
        let way = Arc::new(Way::to(&strict));
        let (leader, volumes) = elected(&direct, &way, &keyring);
        Self {
            direct,
            strict,
            way,
            leader,
            volumes,
            keyring,
            _dir: dir,
        }
    }

    /// Another leader takes over: whatever the former does comes to nothing.
    pub(crate) fn elect(&mut self) {
        self.leader.leads.store(false, Ordering::SeqCst);
        (self.leader, self.volumes) = elected(&self.direct, &self.way, &self.keyring);
    }

    /// A leader whose patience is short.
    pub(crate) fn hurry(&mut self) {
        let short = Duration::from_millis(20);
        let limits = PluginCallLimits {
            controller: short,
            node: short,
            list: short,
            ..SOON
        };
        self.volumes = Volumes::with_limits(
            Arc::clone(&self.direct.projections),
            self.leader.clone(),
            (self.way.clone(), limits),
            Arc::clone(&self.keyring),
        );
    }

    /// A leader that waits so long for what may be done late.
    pub(crate) fn patient(&mut self, quiet: Duration) {
        let limits = PluginCallLimits { quiet, ..SOON };
        self.volumes = Volumes::with_limits(
            Arc::clone(&self.direct.projections),
            self.leader.clone(),
            (self.way.clone(), limits),
            Arc::clone(&self.keyring),
        );
    }

    /// A node registers, with a plugin that is healthy or not.
    pub(crate) fn node(&self, number: usize, healthy: bool) {
        self.registers(number, &node_id(number), (healthy, false));
    }

    /// A node registers that its plugin calls so.
    pub(crate) fn node_called(&self, number: usize, name: &str) {
        self.registers(number, name, (true, false));
    }

    /// A node registers, whose controller can attach volumes that are only to be read, or cannot.
    pub(crate) fn node_reads_only(&self, number: usize, can: bool) {
        self.registers(number, &node_id(number), (true, can));
    }

    /// A node registers, whose plugin knows where its volumes are.
    pub(crate) fn node_knows_places(&self, number: usize) {
        let mut node = registered(number, &node_id(number), (true, false));
        let parts = &mut node.node.csi_controller_plugins;
        let mut info = parts[PLUGIN].clone();
        info.requires_topologies = true;
        *parts = [(PLUGIN, info)].into();
        self.direct.apply(node);
    }

    fn registers(&self, number: usize, name: &str, how: (bool, bool)) {
        self.direct.apply(registered(number, name, how));
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
        self.node_goes_from_the_state(number);
    }

    /// A node is given up, and lives.
    pub(crate) fn node_is_given_up(&self, number: usize) {
        self.strict.give_up(&node_id(number));
        self.node_goes_from_the_state(number);
    }

    /// The state knows a node no more.
    pub(crate) fn node_goes_from_the_state(&self, number: usize) {
        self.direct.apply(NodesDeregistered {
            node_ids: vec![node_id(number)],
            ..NodesDeregistered::default()
        });
    }

    /// A volume that the provider has.
    pub(crate) fn volume(&self, id: &str, access: &str) {
        self.volume_as(id, &[access]);
    }

    /// A volume that may be used in these ways.
    pub(crate) fn volume_as(&self, id: &str, accesses: &[&str]) {
        let mut volume = volume(id, accesses[0]);
        let ways = accesses.iter().map(|access| capability(access));
        volume.requested_capabilities = ways.collect();
        let command = RegisterVolumes {
            volumes: vec![volume],
        };
        self.direct.command(&command).unwrap();
    }

    /// An allocation that requests a volume starts on a node.
    pub(crate) fn alloc(&self, number: usize, node: usize, volume: &str, access: &str) -> String {
        self.alloc_as((number, node), volume, (access, false))
    }

    /// An allocation of this number starts on a node, and requests a volume in this way, perhaps
    /// only to read.
    pub(crate) fn alloc_as(
        &self,
        (number, node): (usize, usize),
        volume: &str,
        how: (&str, bool),
    ) -> String {
        let id = alloc_id(number);
        let (job_id, index) = self.job(volume, how);
        let placed = placed((number, node), (&job_id, index));
        let (_, outcome) = self.direct.apply(placed);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        id
    }

    /// The job whose group requests a volume, and its modify index.
    fn job(&self, volume: &str, (access, read_only): (&str, bool)) -> (String, u64) {
        let id = format!("job-{volume}-{access}-{read_only}");
        let known = self
            .direct
            .projections
            .view()
            .get::<Jobs>(("default", id.as_str()));
        if let Some(known) = known.unwrap() {
            return (id, known.job_modify_index);
        }
        let (index, _) = self
            .direct
            .apply(submitted(&id, volume, (access, read_only)));
        (id, index)
    }

    /// What its client reports of an allocation.
    pub(crate) fn alloc_is(&self, alloc: &str, status: &str) {
        self.direct.apply(reported(alloc, status));
    }

    /// An allocation is collected.
    pub(crate) fn alloc_goes(&self, alloc: &str) {
        self.direct.apply(EvalsDeleted {
            alloc_ids: vec![alloc.to_owned()],
            ..EvalsDeleted::default()
        });
    }

    pub(crate) async fn claim(&self, volume: &str, alloc: &str) -> Result<ClaimGrant, StepError> {
        self.claim_as(volume, alloc, claim_mode::WRITE).await
    }

    pub(crate) async fn claim_as(
        &self,
        volume: &str,
        alloc: &str,
        mode: u8,
    ) -> Result<ClaimGrant, StepError> {
        let claim = claim_request(volume, alloc, ("", mode));
        self.volumes.claim(claim, Origin::default()).await
    }

    /// A claim of a time in which the names of nodes at plugins were not noted.
    pub(crate) fn old_claim(&self, volume: &str, alloc: &str, access: &str) {
        let (_, outcome) = self.direct.apply(published(volume, alloc, access));
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    /// A client gives back what an allocation of its node has.
    pub(crate) async fn give_back(
        &self,
        volume: &str,
        alloc: &str,
        node: usize,
    ) -> Result<u64, StepError> {
        let (place, claim) = (("default", volume), named(alloc, node, claim_mode::WRITE));
        let origin = Origin::default();
        self.volumes.release_by_node(place, &claim, &origin).await
    }

    pub(crate) async fn unpublish(&self, volume: &str, alloc: &str) -> Result<u64, StepError> {
        let place = ("default", volume);
        self.volumes
            .unpublish(place, alloc, &Origin::default())
            .await
    }

    pub(crate) fn row(&self, volume: &str) -> CsiVolumeRow {
        self.known(volume).expect("it is there")
    }

    /// The volume, if it is there.
    pub(crate) fn known(&self, volume: &str) -> Option<CsiVolumeRow> {
        let view = self.direct.projections.view();
        view.get::<CsiVolumes>(("default", volume)).unwrap()
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

/// Every server of a cluster knows all there is.
pub(crate) fn barrier() -> VersionBarrierRaised {
    VersionBarrierRaised {
        level: drover_migrations::FEATURE_LEVEL,
        ..VersionBarrierRaised::default()
    }
}

/// A node registers that its plugin calls so: healthy, and able to attach what is only read.
pub(crate) fn registered(
    number: usize,
    name: &str,
    (healthy, reads_only): (bool, bool),
) -> NodeRegistered {
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
            supports_list_volumes: true,
            supports_read_only_attach: reads_only,
            ..CsiControllerInfo::default()
        }),
        ..info.clone()
    };
    let on_node = CsiInfo {
        node_info: Some(CsiNodeInfo {
            id: name.to_owned(),
            ..CsiNodeInfo::default()
        }),
        ..info
    };
    node.csi_controller_plugins = [(PLUGIN, controller)].into();
    node.csi_node_plugins = [(PLUGIN, on_node)].into();
    NodeRegistered {
        node: Box::new(node),
        ..NodeRegistered::default()
    }
}

/// An allocation of a job starts on a node.
pub(crate) fn placed(
    (number, node): (usize, usize),
    (job_id, job_modify_index): (&str, u64),
) -> PlanApplied {
    let alloc = Allocation {
        id: alloc_id(number),
        name: format!("{job_id}.g[0]"),
        namespace: "default".into(),
        job_id: job_id.to_owned(),
        task_group: "g".into(),
        node_id: node_id(node),
        desired_status: "run".into(),
        client_status: "pending".into(),
        ..Allocation::default()
    };
    PlanApplied {
        placed: vec![PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index,
        }],
        ..PlanApplied::default()
    }
}

/// A job whose group requests a volume in this way, perhaps only to read.
pub(crate) fn submitted(
    id: &str,
    volume: &str,
    (access, read_only): (&str, bool),
) -> JobRegistered {
    let mut job = fixtures::job("service", 1);
    id.clone_into(&mut job.id);
    id.clone_into(&mut job.name);
    let requested = VolumeRequest {
        name: "v".into(),
        r#type: "csi".into(),
        source: volume.into(),
        access_mode: access.into(),
        attachment_mode: "file-system".into(),
        read_only,
        ..VolumeRequest::default()
    };
    job.task_groups.to_mut()[0].volumes = [("v", requested)].into();
    JobRegistered {
        job: Arc::new(job),
        ..JobRegistered::default()
    }
}

/// What its client reports of an allocation.
pub(crate) fn reported(alloc: &str, status: &str) -> AllocsUpdatedByClient {
    let update = ClientAllocUpdate {
        id: alloc.to_owned(),
        client_status: status.into(),
        ..ClientAllocUpdate::default()
    };
    AllocsUpdatedByClient {
        updates: vec![update],
        ..AllocsUpdatedByClient::default()
    }
}

fn elected(
    direct: &Arc<Direct>,
    way: &Arc<Way>,
    keyring: &Arc<Keyring>,
) -> (Arc<Leader>, Arc<Volumes>) {
    let leader = Arc::new(Leader {
        direct: Arc::clone(direct),
        term: AtomicU64::new(direct.projections.applied_index()),
        leads: AtomicBool::new(true),
        cut: AtomicBool::new(false),
        origins: Mutex::default(),
        knows_where: AtomicBool::new(false),
        faulty: Mutex::default(),
    });
    let volumes = Volumes::with_limits(
        Arc::clone(&direct.projections),
        leader.clone(),
        (way.clone(), SOON),
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
        requested_capabilities: vec![capability(access)].into(),
        ..CsiVolume::default()
    }
}

fn capability(access: &str) -> CsiVolumeCapability {
    CsiVolumeCapability {
        access_mode: access.into(),
        attachment_mode: "file-system".into(),
    }
}

/// What a client requests.
pub(crate) fn claim_request(
    volume: &str,
    alloc: &str,
    (access, mode): (&str, u8),
) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        namespace: "default".into(),
        volume_id: volume.to_owned(),
        allocation_id: alloc.to_owned(),
        access_mode: access.to_owned(),
        mode,
        ..CsiVolumeClaimed::default()
    }
}

/// A claim of a time in which the names of nodes at plugins were not noted.
pub(crate) fn published(volume: &str, alloc: &str, access: &str) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        published: true,
        attachment_mode: "file-system".into(),
        ..claim_request(volume, alloc, (access, claim_mode::WRITE))
    }
}

/// What a client gives back.
pub(crate) fn named(alloc: &str, node: usize, mode: u8) -> NamedClaim {
    NamedClaim {
        allocation_id: alloc.to_owned(),
        node_id: node_id(node),
        mode,
        attachment_mode: "file-system".into(),
        ..NamedClaim::default()
    }
}
