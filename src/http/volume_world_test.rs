//! A server whose one node runs the plugin `p`, with a client that answers as one does and keeps
//! what was requested of it; and jobs that use volumes.

use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_events::gojson::Map;
use drover_events::model::{
    Allocation, CsiControllerInfo, CsiInfo, CsiNodeInfo, CsiSnapshot, CsiVolumeExternalStub,
    TaskCsiPluginConfig, VolumeRequest,
};
use drover_projections::tables::jobs::Jobs;
use drover_testkit::fixtures;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockWriteGuard};

use super::harness::{Harness, Reply, is_filled, job};
use super::provision_test::client;
use crate::commands::alloc::UpdateAllocsFromClient;
use crate::commands::job::RegisterJob;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};
use crate::error::Refusal;
use crate::gate::Gate;
use crate::proposer::Origin;
use crate::rpc::csi::*;
use crate::rpc::service::{Access, Call, Dispatch, Service};
use crate::volumes::{ClaimGrant, StepError};

/// The plugin of these tests.
pub(super) const PLUGIN: &str = "p";

/// What was requested of the plugin: the method, and the request as it came.
#[derive(Default)]
pub(super) struct PluginRequests {
    calls: Mutex<Vec<(&'static str, Value)>>,
    /// Who detaches a volume, reads it first.
    detaching: RwLock<()>,
}

impl PluginRequests {
    /// The names of all calls, in their order.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.calls.lock().iter().map(|(name, _)| *name).collect()
    }

    /// The one call by a method.
    pub(super) fn only(&self, method: &str) -> Value {
        let calls = self.calls.lock();
        let found: Vec<_> = calls.iter().filter(|(name, _)| *name == method).collect();
        assert_eq!(found.len(), 1, "{method}: {found:?}");
        found[0].1.clone()
    }

    /// All calls, which are forgotten.
    pub(super) fn take(&self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.calls.lock())
    }

    /// Whatever is to detach a volume, and is not done yet, answers once this is let go of.
    pub(super) async fn held_detaches(&self) -> RwLockWriteGuard<'_, ()> {
        self.detaching.write().await
    }

    /// A call has come; it goes on when it may.
    async fn comes(&self, method: &'static str, reported: Value) {
        self.calls.lock().push((method, reported));
        if method.contains("Detach") {
            drop(self.detaching.read().await);
        }
    }
}

/// What the plugin refuses, a volume that it calls so.
pub(super) const BAD: &str = "bad";

fn known(volume: &str, call: &str) -> Result<(), Refusal> {
    match volume {
        BAD => Err(Refusal::by_rule(format!(
            "{call}: NotFound: no volume \"bad\""
        ))),
        _ => Ok(()),
    }
}

/// One volume that was not made here, and that is not well.
fn listed_volumes(
    request: ControllerListVolumesRequest,
) -> Result<ControllerListVolumesResponse, Refusal> {
    let stub = CsiVolumeExternalStub {
        external_id: "far".to_owned(),
        capacity_bytes: 9,
        is_abnormal: true,
        status: "it leaks".to_owned(),
        published_external_node_ids: vec!["node-far".to_owned()].into(),
        ..CsiVolumeExternalStub::default()
    };
    Ok(ControllerListVolumesResponse {
        entries: vec![stub].into(),
        next_token: format!("after-{}-{}", request.starting_token, request.max_entries),
    })
}

/// One snapshot, with a secret that is not to be shown.
fn listed_snapshots(
    request: ControllerListSnapshotsRequest,
) -> Result<ControllerListSnapshotsResponse, Refusal> {
    let snapshot = CsiSnapshot {
        id: "snap-one".to_owned(),
        external_source_volume_id: "far".to_owned(),
        size_bytes: 11,
        is_ready: true,
        secrets: [("key", "canary".to_owned())].into(),
        ..CsiSnapshot::default()
    };
    Ok(ControllerListSnapshotsResponse {
        entries: vec![snapshot].into(),
        next_token: format!("after-{}-{}", request.starting_token, request.max_entries),
    })
}

macro_rules! plugin {
    ($requested:expr; $($method:ident($req:ty) => $answer:expr;)*) => {
        Service::new($requested)$(.method::<$method, _, _>(
            Access::Server,
            async |requested: Arc<PluginRequests>, _: Call, request: $req| {
                let reported = serde_json::to_value(&request).unwrap();
                requested.comes(stringify!($method), reported).await;
                let answer: fn($req) -> Result<_, Refusal> = $answer;
                answer(request)
            },
        ))*
    };
}

fn plugin(requested: Arc<PluginRequests>) -> Arc<dyn Dispatch> {
    Arc::new(plugin! { requested;
        ControllerCreateVolume(ControllerCreateVolumeRequest) => |request| {
            Ok(ControllerCreateVolumeResponse {
                external_volume_id: format!("ext-{}", request.name),
                capacity_bytes: request.capacity_min,
                volume_context: [("made", "here".to_owned())].into(),
                ..ControllerCreateVolumeResponse::default()
            })
        };
        ControllerValidateVolume(ControllerValidateVolumeRequest) => |request| {
            known(&request.volume_id, "ValidateVolumeCapabilities").map(|()| Done {})
        };
        ControllerExpandVolume(ControllerExpandVolumeRequest) => |request| {
            Ok(ControllerExpandVolumeResponse {
                capacity_bytes: request.required_bytes,
                node_expansion_required: true,
            })
        };
        ControllerAttachVolume(ControllerAttachVolumeRequest) => |request| {
            let device = format!("/dev/{}", request.volume_id);
            Ok(ControllerAttachVolumeResponse {
                publish_context: [("device", device)].into(),
            })
        };
        ControllerDetachVolume(ControllerDetachVolumeRequest) => |_| Ok(Done {});
        ControllerDeleteVolume(ControllerDeleteVolumeRequest) => |_| Ok(Done {});
        ControllerListVolumes(ControllerListVolumesRequest) => listed_volumes;
        ControllerCreateSnapshot(ControllerCreateSnapshotRequest) => |request| {
            Ok(ControllerCreateSnapshotResponse {
                id: format!("snap-{}", request.name),
                external_source_volume_id: request.volume_id,
                size_bytes: 11,
                create_time: 1_700_000_000,
                is_ready: true,
            })
        };
        ControllerDeleteSnapshot(ControllerDeleteSnapshotRequest) => |_| Ok(Done {});
        ControllerListSnapshots(ControllerListSnapshotsRequest) => listed_snapshots;
        NodeDetachVolume(NodeDetachVolumeRequest) => |_| Ok(Done {});
        NodeExpandVolume(NodeExpandVolumeRequest) => |request| {
            Ok(NodeExpandVolumeResponse { capacity_bytes: request.required_bytes, places: 1 })
        };
    })
}

/// The server, the plugin, and the node that runs it.
pub(super) struct World {
    pub(super) h: Harness,
    pub(super) requested: Arc<PluginRequests>,
    pub(super) node: String,
}

/// What the plugin's controller and its node part say of themselves.
fn info(healthy: bool) -> CsiInfo {
    CsiInfo {
        plugin_id: PLUGIN.into(),
        healthy,
        provider: "csi.example".into(),
        provider_version: "1.2".into(),
        requires_controller_plugin: true,
        controller_info: Some(CsiControllerInfo {
            supports_attach_detach: true,
            supports_create_delete: true,
            supports_create_delete_snapshot: true,
            supports_expand: true,
            supports_list_volumes: true,
            supports_list_snapshots: true,
            ..CsiControllerInfo::default()
        }),
        node_info: Some(CsiNodeInfo {
            id: "node-far".into(),
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    }
}

impl World {
    /// Where every caller may do everything.
    pub(super) async fn open() -> World {
        World::with(Harness::asking(Gate::open()).await).await
    }

    /// With a node in a server that is there.
    pub(super) async fn with(h: Harness) -> World {
        let world = World {
            h,
            requested: Arc::default(),
            node: fixtures::node(1).id,
        };
        world.report(true, "").await;
        let handlers = plugin(Arc::clone(&world.requested));
        client(&world.h.server.sessions, world.node.clone(), handlers);
        world
    }

    /// The node reports its plugin, healthy or not, as run by an allocation.
    pub(super) async fn report(&self, healthy: bool, alloc: &str) {
        self.registers(1, healthy, alloc).await;
    }

    /// A second node with the plugin, and a client of its own: its id, and what is requested of
    /// that.
    pub(super) async fn second(&self) -> (String, Arc<PluginRequests>) {
        let (node, requested) = (fixtures::node(2).id, Arc::<PluginRequests>::default());
        self.registers(2, true, "").await;
        let handlers = plugin(Arc::clone(&requested));
        client(&self.h.server.sessions, node.clone(), handlers);
        (node, requested)
    }

    async fn registers(&self, number: usize, healthy: bool, alloc: &str) {
        let mut node = fixtures::node(number);
        let reported = CsiInfo {
            alloc_id: alloc.to_owned(),
            ..info(healthy)
        };
        node.csi_controller_plugins = [(PLUGIN, reported.clone())].into();
        node.csi_node_plugins = [(PLUGIN, reported)].into();
        let node_id = node.id.clone();
        let command = RegisterNode {
            node,
            create_node_pool: true,
        };
        let done = self.h.server.submit(command, Origin::default()).await;
        done.expect("it registers");
        let ready = UpdateNodeStatus {
            node_id,
            status: "ready".into(),
            event: None,
        };
        let ready = self.h.server.submit(ready, Origin::default()).await;
        ready.expect("it is ready");
    }

    /// Registers a volume, which the plugin calls `ext-ID`.
    pub(super) async fn register(&self, namespace: &str, id: &str) {
        let target = format!("/v1/volume/csi/{id}?namespace={namespace}");
        let body = json!({"Volumes": [volume(id)]}).to_string();
        let reply = self.h.by("root", "PUT", &target, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// A job uses a volume, in its namespace; its allocation.
    pub(super) async fn user(&self, (namespace, id): (&str, &str), read_only: bool) -> String {
        let access = "multi-node-multi-writer";
        let request = VolumeRequest {
            name: "v".into(),
            r#type: "csi".into(),
            source: id.into(),
            access_mode: access.into(),
            attachment_mode: "file-system".into(),
            read_only,
            ..VolumeRequest::default()
        };
        let job = format!("job-{id}-{read_only}");
        self.run(namespace, &job, |job| {
            job.task_groups.to_mut()[0].volumes = Map::from([("v", request)]);
        })
        .await
    }

    /// A job runs the plugin; its allocation, which the node's plugin is then of.
    pub(super) async fn plugin_job(&self, namespace: &str) -> String {
        let config = TaskCsiPluginConfig {
            id: PLUGIN.into(),
            r#type: "monolith".into(),
            ..TaskCsiPluginConfig::default()
        };
        let alloc = self.run(namespace, "plugin", |job| {
            let group = &mut job.task_groups.to_mut()[0];
            group.tasks.to_mut()[0].csi_plugin_config = Some(config);
        });
        let alloc = alloc.await;
        self.report(true, &alloc).await;
        alloc
    }

    /// Registers a job with a change, past the API, and waits for its allocation.
    async fn run(
        &self,
        namespace: &str,
        id: &str,
        change: impl FnOnce(&mut drover_events::model::Job),
    ) -> String {
        let target = format!("/v1/jobs?namespace={namespace}");
        let reply = self.h.by("root", "PUT", &target, job("shape")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let view = self.h.server.projections.view();
        let shape = view.get::<Jobs>((namespace, "shape")).unwrap();
        drop(view);
        let mut job = shape.expect("it is registered");
        job.id = id.to_owned();
        job.name = id.to_owned();
        change(&mut job);
        self.h
            .submit(RegisterJob {
                job,
                eval_id: uuid::Uuid::new_v4().to_string(),
                ..RegisterJob::default()
            })
            .await;
        let list = format!("/v1/job/{id}/allocations?namespace={namespace}");
        let found = self.until(&list, is_filled).await;
        found.json()[0]["ID"].as_str().unwrap().to_owned()
    }

    /// An allocation takes a volume, as its client requests it.
    pub(super) async fn claim(
        &self,
        (namespace, volume): (&str, &str),
        alloc: &str,
        read_only: bool,
    ) -> Result<ClaimGrant, StepError> {
        let claim = CsiVolumeClaimed {
            namespace: namespace.to_owned(),
            volume_id: volume.to_owned(),
            allocation_id: alloc.to_owned(),
            mode: if read_only {
                claim_mode::READ
            } else {
                claim_mode::WRITE
            },
            ..CsiVolumeClaimed::default()
        };
        let volumes = &self.h.server.volumes;
        volumes.claim(claim, Origin::default()).await
    }

    /// What its client says of an allocation.
    pub(super) async fn alloc_is(&self, alloc: &str, status: &str) {
        let reported = Allocation {
            id: alloc.to_owned(),
            node_id: self.node.clone(),
            client_status: status.to_owned(),
            ..Allocation::default()
        };
        let command = UpdateAllocsFromClient {
            allocs: vec![reported],
            caller: None,
        };
        self.h.submit(command).await;
    }

    /// The number of the last event.
    pub(super) fn index(&self) -> u64 {
        self.h.server.projections.applied_index()
    }

    /// Waits, as blocking queries do, until what is shown at a path is as wanted.
    pub(super) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Reply {
        self.h.until_by("root", path, wanted).await
    }
}

/// A volume as an operator describes it.
pub(super) fn volume(id: &str) -> Value {
    json!({
        "ID": id, "Name": id, "PluginID": PLUGIN, "ExternalID": format!("ext-{id}"),
        "RequestedCapabilities": [
            {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"},
            {"AccessMode": "multi-node-multi-writer", "AttachmentMode": "file-system"},
        ],
        "MountOptions": {"FSType": "ext4", "MountFlags": ["noatime"]},
        "Parameters": {"tier": "gold"},
        "Context": {"zone": "a"},
        "Secrets": {"key": "canary"},
    })
}
