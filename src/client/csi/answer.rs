//! What servers ask of the plugins of this node.

use std::sync::Arc;

use drover_csi::capability::{Attachment, access, capability};
use drover_csi::mounts::{MountError, Returned};
use drover_csi::proto::{self, volume_content_source};
use drover_csi::{CallError, Standing};
use drover_events::gojson::List;
use drover_events::model::{
    CsiMountOptions, CsiSnapshot, CsiTopology, CsiVolumeCapability, CsiVolumeExternalStub,
};

use super::registry::{Live, Part};
use super::{Csi, root};
use crate::error::{ApiError, Code};
use crate::rpc::csi::*;
use crate::rpc::service::{Access, Service};

/// What is said of a step that failed (PLG-10): what was tried, and the plugin's own text.
fn failed(what: &str, error: &CallError) -> ApiError {
    let code = match error.standing() {
        Standing::Again => Code::Unavailable,
        Standing::Refused | Standing::Done => Code::Refused,
    };
    ApiError::new(code, format!("{what}: {error}"))
}

/// What is undone already is undone (CSI-34).
fn undone(what: &str, answer: Result<(), CallError>) -> Result<Done, ApiError> {
    match answer {
        Err(error) if error.standing() != Standing::Done => Err(failed(what, &error)),
        _ => Ok(Done::default()),
    }
}

/// The messages for the ways that a volume is to be used in.
fn capabilities(
    wanted: &List<CsiVolumeCapability>,
    options: Option<&CsiMountOptions>,
) -> Result<Vec<proto::VolumeCapability>, ApiError> {
    let each = wanted.iter();
    each.map(|one| one_way(&one.attachment_mode, &one.access_mode, options))
        .collect()
}

fn one_way(
    attachment: &str,
    mode: &str,
    options: Option<&CsiMountOptions>,
) -> Result<proto::VolumeCapability, ApiError> {
    let unknown = |word: &str| ApiError::bad_request(format!("unknown mode {word:?}"));
    let kind = Attachment::parse(attachment).ok_or_else(|| unknown(attachment))?;
    let mode = access(mode).ok_or_else(|| unknown(mode))?;
    let (fs_type, flags) = match options {
        Some(options) => (&*options.fs_type, options.mount_flags.to_vec()),
        None => ("", Vec::new()),
    };
    Ok(capability(mode, kind, fs_type, &flags))
}

fn range(min: i64, max: i64) -> Option<proto::CapacityRange> {
    (min != 0 || max != 0).then_some(proto::CapacityRange {
        required_bytes: min,
        limit_bytes: max,
    })
}

/// The methods, for the sessions that servers open.
pub fn service(csi: &Arc<Csi>) -> Service<Csi> {
    macro_rules! methods {
        ($($method:ident => $work:ident),* $(,)?) => {
            Service::new(Arc::clone(csi))$(.method::<$method, _, _>(
                Access::Server,
                |csi: Arc<Csi>, _, asked| async move { csi.$work(asked).await },
            ))*
        };
    }
    methods! {
        ControllerAttachVolume => attach,
        ControllerDetachVolume => detach,
        ControllerValidateVolume => validate,
        ControllerCreateVolume => create,
        ControllerExpandVolume => expand,
        ControllerDeleteVolume => delete,
        ControllerListVolumes => list,
        ControllerCreateSnapshot => create_snapshot,
        ControllerDeleteSnapshot => delete_snapshot,
        ControllerListSnapshots => list_snapshots,
        NodeDetachVolume => node_detach,
        NodeExpandVolume => node_expand,
    }
}

impl Csi {
    async fn controller(&self, id: &str) -> Result<Live, ApiError> {
        let found = self.part(Part::Controller, id).await;
        found.map_err(|text| ApiError::new(Code::Unavailable, text))
    }

    async fn attach(
        &self,
        asked: ControllerAttachVolumeRequest,
    ) -> Result<ControllerAttachVolumeResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let options = asked.mount_options.as_ref();
        let way = one_way(&asked.attachment_mode, &asked.access_mode, options)?;
        let request = proto::ControllerPublishVolumeRequest {
            volume_id: asked.volume_id,
            node_id: asked.client_csi_node_id,
            volume_capability: Some(way),
            readonly: asked.read_only,
            secrets: asked.secrets.0,
            volume_context: asked.volume_context.into_map(),
        };
        let answer = live.plugin.controller_publish_volume(request).await;
        let answer = answer.map_err(|error| failed("controller attach volume", &error))?;
        Ok(ControllerAttachVolumeResponse {
            publish_context: answer.publish_context.into(),
        })
    }

    async fn detach(&self, asked: ControllerDetachVolumeRequest) -> Result<Done, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: asked.volume_id,
            node_id: asked.client_csi_node_id,
            secrets: asked.secrets.0,
        };
        let answer = live.plugin.controller_unpublish_volume(request).await;
        undone("controller detach volume", answer.map(drop))
    }

    async fn validate(&self, asked: ControllerValidateVolumeRequest) -> Result<Done, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::ValidateVolumeCapabilitiesRequest {
            volume_capabilities: capabilities(
                &asked.volume_capabilities,
                asked.mount_options.as_ref(),
            )?,
            volume_id: asked.volume_id,
            volume_context: asked.context.into_map(),
            parameters: asked.parameters.into_map(),
            secrets: asked.secrets.0,
            ..Default::default()
        };
        let answer = live.plugin.can_be_used(request).await;
        match answer.map_err(|error| failed("controller validate volume", &error))? {
            Ok(()) => Ok(Done::default()),
            Err(text) => Err(ApiError::refused(format!(
                "controller validate volume: {text}"
            ))),
        }
    }

    async fn create(
        &self,
        asked: ControllerCreateVolumeRequest,
    ) -> Result<ControllerCreateVolumeResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = created(asked)?;
        let volume = live.plugin.created(request).await;
        let volume = volume.map_err(|error| failed("controller create volume", &error))?;
        let (snapshot_id, clone_id) = origin(volume.content_source);
        let topologies = volume.accessible_topology.into_iter();
        Ok(ControllerCreateVolumeResponse {
            external_volume_id: volume.volume_id,
            capacity_bytes: volume.capacity_bytes,
            volume_context: volume.volume_context.into(),
            snapshot_id,
            clone_id,
            topologies: topologies.map(topology).collect(),
        })
    }

    async fn expand(
        &self,
        asked: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let way = asked.volume_capability.as_ref();
        let way = way.map(|way| one_way(&way.attachment_mode, &way.access_mode, None));
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: asked.external_volume_id,
            capacity_range: range(asked.required_bytes, asked.limit_bytes),
            secrets: asked.secrets.0,
            volume_capability: way.transpose()?,
        };
        let answer = live.plugin.controller_expand_volume(request).await;
        let answer = answer.map_err(|error| failed("controller expand volume", &error))?;
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: answer.capacity_bytes,
            node_expansion_required: answer.node_expansion_required,
        })
    }

    async fn delete(&self, asked: ControllerDeleteVolumeRequest) -> Result<Done, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::DeleteVolumeRequest {
            volume_id: asked.external_volume_id,
            secrets: asked.secrets.0,
        };
        let answer = live.plugin.delete_volume(request).await;
        undone("controller delete volume", answer.map(drop))
    }

    async fn list(
        &self,
        asked: ControllerListVolumesRequest,
    ) -> Result<ControllerListVolumesResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::ListVolumesRequest {
            max_entries: asked.max_entries,
            starting_token: asked.starting_token,
        };
        let answer = live.plugin.list_volumes(request).await;
        let answer = answer.map_err(|error| failed("controller list volumes", &error))?;
        let entries = answer.entries.into_iter();
        Ok(ControllerListVolumesResponse {
            entries: entries.filter_map(external).collect(),
            next_token: answer.next_token,
        })
    }

    async fn create_snapshot(
        &self,
        asked: ControllerCreateSnapshotRequest,
    ) -> Result<ControllerCreateSnapshotResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::CreateSnapshotRequest {
            source_volume_id: asked.volume_id,
            name: asked.name,
            secrets: asked.secrets.0,
            parameters: asked.parameters.into_map(),
        };
        let snapshot = live.plugin.snapshot(request).await;
        let snapshot = snapshot.map_err(|error| failed("controller create snapshot", &error))?;
        Ok(ControllerCreateSnapshotResponse {
            id: snapshot.snapshot_id,
            external_source_volume_id: snapshot.source_volume_id,
            size_bytes: snapshot.size_bytes,
            create_time: snapshot.creation_time.map_or(0, |time| time.seconds),
            is_ready: snapshot.ready_to_use,
        })
    }

    async fn delete_snapshot(
        &self,
        asked: ControllerDeleteSnapshotRequest,
    ) -> Result<Done, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: asked.id,
            secrets: asked.secrets.0,
        };
        let answer = live.plugin.delete_snapshot(request).await;
        undone("controller delete snapshot", answer.map(drop))
    }

    async fn list_snapshots(
        &self,
        asked: ControllerListSnapshotsRequest,
    ) -> Result<ControllerListSnapshotsResponse, ApiError> {
        let live = self.controller(&asked.plugin_id).await?;
        let request = proto::ListSnapshotsRequest {
            max_entries: asked.max_entries,
            starting_token: asked.starting_token,
            secrets: asked.secrets.0,
            ..Default::default()
        };
        let answer = live.plugin.list_snapshots(request).await;
        let answer = answer.map_err(|error| failed("controller list snapshots", &error))?;
        let plugin_id = asked.plugin_id;
        let entries = answer
            .entries
            .into_iter()
            .filter_map(|entry| entry.snapshot);
        let told = |snapshot: proto::Snapshot| CsiSnapshot {
            id: snapshot.snapshot_id,
            external_source_volume_id: snapshot.source_volume_id,
            size_bytes: snapshot.size_bytes,
            create_time: snapshot.creation_time.map_or(0, |time| time.seconds),
            is_ready: snapshot.ready_to_use,
            plugin_id: plugin_id.clone(),
            ..CsiSnapshot::default()
        };
        Ok(ControllerListSnapshotsResponse {
            entries: entries.map(told).collect(),
            next_token: answer.next_token,
        })
    }

    /// Takes a volume back from an allocation. It is done where the node does not count the
    /// allocation among the volume's users, whether or not the plugin is there (CSI-34, CSI-45).
    async fn node_detach(&self, asked: NodeDetachVolumeRequest) -> Result<Done, ApiError> {
        let what = "node detach volume";
        let live = self.part(Part::Node, &asked.plugin_id).await;
        let live =
            live.map_err(|text| ApiError::new(Code::Unavailable, format!("{what}: {text}")))?;
        let remote = match asked.external_id.is_empty() {
            true => asked.volume_id.clone(),
            false => asked.external_id,
        };
        let given = Returned {
            alloc: asked.alloc_id,
            namespace: asked.volume_namespace,
            volume: asked.volume_id,
            remote,
            read_only: asked.read_only,
            attachment: asked.attachment_mode,
            access: asked.access_mode,
        };
        let stages = live.found.features.node.unwrap_or_default().stage;
        let root = root(&live);
        let done = self.mounts.unmount(&live.plugin, stages, &root, &given);
        match done.await {
            Ok(()) => Ok(Done::default()),
            Err(MountError::Call(error)) => Err(failed(what, &error)),
            Err(error) => Err(ApiError::new(Code::Unavailable, format!("{what}: {error}"))),
        }
    }

    async fn node_expand(
        &self,
        asked: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, ApiError> {
        let what = "node expand volume";
        let unavailable =
            |text: String| ApiError::new(Code::Unavailable, format!("{what}: {text}"));
        let live = self.part(Part::Node, &asked.plugin_id).await;
        let live = live.map_err(unavailable)?;
        let (root, key) = (root(&live), (&*asked.volume_namespace, &*asked.volume_id));
        let places = drover_csi::mounts::places(&root, key, &asked.alloc_id).await;
        let places = places.map_err(|error| unavailable(error.to_string()))?;
        let mut bytes = 0;
        for (staging, target) in places {
            let request = proto::NodeExpandVolumeRequest {
                volume_id: asked.external_id.clone(),
                volume_path: target,
                capacity_range: range(asked.required_bytes, asked.limit_bytes),
                staging_target_path: staging,
                volume_capability: Some(one_way(&asked.attachment_mode, &asked.access_mode, None)?),
                ..Default::default()
            };
            let answer = live.plugin.node_expand_volume(request).await;
            bytes = answer.map_err(|error| failed(what, &error))?.capacity_bytes;
        }
        Ok(NodeExpandVolumeResponse {
            capacity_bytes: bytes,
        })
    }
}

fn created(asked: ControllerCreateVolumeRequest) -> Result<proto::CreateVolumeRequest, ApiError> {
    let from = match (asked.snapshot_id.is_empty(), asked.clone_id.is_empty()) {
        (false, _) => Some(volume_content_source::Type::Snapshot(
            volume_content_source::SnapshotSource {
                snapshot_id: asked.snapshot_id,
            },
        )),
        (true, false) => Some(volume_content_source::Type::Volume(
            volume_content_source::VolumeSource {
                volume_id: asked.clone_id,
            },
        )),
        (true, true) => None,
    };
    let segments = |all: List<CsiTopology>| {
        let all = all.into_iter().map(|one| proto::Topology {
            segments: one.segments.into_map(),
        });
        all.collect()
    };
    let places = asked
        .requested_topologies
        .map(|wanted| proto::TopologyRequirement {
            requisite: segments(wanted.required),
            preferred: segments(wanted.preferred),
        });
    Ok(proto::CreateVolumeRequest {
        volume_capabilities: capabilities(
            &asked.volume_capabilities,
            asked.mount_options.as_ref(),
        )?,
        name: asked.name,
        capacity_range: range(asked.capacity_min, asked.capacity_max),
        parameters: asked.parameters.into_map(),
        secrets: asked.secrets.0,
        volume_content_source: from.map(|from| proto::VolumeContentSource { r#type: Some(from) }),
        accessibility_requirements: places,
        ..Default::default()
    })
}

/// The snapshot and the volume that one was made from.
fn origin(source: Option<proto::VolumeContentSource>) -> (String, String) {
    match source.and_then(|source| source.r#type) {
        Some(volume_content_source::Type::Snapshot(from)) => (from.snapshot_id, String::new()),
        Some(volume_content_source::Type::Volume(from)) => (String::new(), from.volume_id),
        None => Default::default(),
    }
}

fn topology(found: proto::Topology) -> CsiTopology {
    CsiTopology {
        segments: found.segments.into(),
    }
}

fn external(entry: proto::list_volumes_response::Entry) -> Option<CsiVolumeExternalStub> {
    let volume = entry.volume?;
    let status = entry.status.unwrap_or_default();
    let condition = status.volume_condition.unwrap_or_default();
    let (snapshot_id, clone_id) = origin(volume.content_source);
    Some(CsiVolumeExternalStub {
        external_id: volume.volume_id,
        capacity_bytes: volume.capacity_bytes,
        volume_context: volume.volume_context.into(),
        clone_id,
        snapshot_id,
        published_external_node_ids: status.published_node_ids.into_iter().collect(),
        is_abnormal: condition.abnormal,
        status: condition.message,
    })
}
