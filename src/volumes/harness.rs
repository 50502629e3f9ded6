//! A server of one with nodes that run a plugin, and what is done with its volumes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

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
use drover_projections::tables::jobs::Jobs;
use drover_testkit::fixtures;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::testing::{Strict, Way};
use super::{Limits, Record, StepError, Taken, Volumes};
use crate::commands::Command;
use crate::commands::csi::RegisterVolumes;
use crate::error::ApiError;
use crate::keyring::Keyring;
use crate::proposer::{Committed, Origin};
use crate::reactors::testing::Direct;

pub(crate) const PLUGIN: &str = "strict";

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
            let mut waited = false;
            poll_fn(|context| match std::mem::replace(&mut waited, true) {
                true => Poll::Ready(()),
                false => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
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
        let way = Arc::new(Way::to(&strict));
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
        let limits = Limits {
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
        let (job_id, index) = self.job(volume, access);
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

    /// The job whose group asks for a volume, and its modify index.
    fn job(&self, volume: &str, access: &str) -> (String, u64) {
        let id = format!("job-{volume}");
        let known = self
            .direct
            .projections
            .view()
            .get::<Jobs>(("default", id.as_str()));
        if let Some(known) = known.unwrap() {
            return (id, known.job_modify_index);
        }
        let mut job = fixtures::job("service", 1);
        job.id.clone_from(&id);
        job.name.clone_from(&id);
        let asked = VolumeRequest {
            name: "v".into(),
            r#type: "csi".into(),
            source: volume.into(),
            access_mode: access.into(),
            attachment_mode: "file-system".into(),
            ..VolumeRequest::default()
        };
        job.task_groups.to_mut()[0].volumes = [("v", asked)].into();
        let (index, _) = self.direct.apply(JobRegistered {
            job: Arc::new(job),
            ..JobRegistered::default()
        });
        (id, index)
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
