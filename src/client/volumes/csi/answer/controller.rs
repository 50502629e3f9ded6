//! Requests of servers to controllers.

use std::time::Duration;

use drover_csi::proto;
use drover_events::model::CsiSnapshot;
use tokio::time::timeout;

use super::messages::{capabilities, created, external, one_way, origin, range, topology};
use super::{failed, undone};
use crate::volumes::csi::Csi;
use crate::volumes::csi::registry::{CsiPart, Live};
use drover_base::keyed_locks::KeyGuard;
use drover_error::{Code, Refusal};
use drover_rpc::csi::*;

/// How long a call waits for another one about its volume: with its own time that is less than
/// servers wait for it.
pub(super) const TURN: Duration = Duration::from_secs(20);

impl Csi {
    async fn controller(&self, id: &str) -> Result<Live, Refusal> {
        let found = self.part(CsiPart::Controller, id).await;
        found.map_err(|text| Refusal::new(Code::Unavailable, text))
    }

    /// Waits until no other call changes where a volume is: of two that come to a plugin at once
    /// the later one may be done first. What was begun is ended here, so a call of a server that
    /// died meanwhile is waited for; but not so long that the waiting call comes too late itself.
    pub(in crate::volumes::csi) async fn turn(
        &self,
        plugin: &str,
        volume: &str,
    ) -> Result<KeyGuard<'_, (String, String)>, Refusal> {
        self.turn_within(plugin, volume, TURN).await
    }

    pub(in crate::volumes::csi) async fn turn_within(
        &self,
        plugin: &str,
        volume: &str,
        limit: Duration,
    ) -> Result<KeyGuard<'_, (String, String)>, Refusal> {
        let turn = self.locks.lock((plugin.to_owned(), volume.to_owned()));
        timeout(limit, turn).await.map_err(|_| {
            let text = format!("another call about volume \"{volume}\" is under way");
            // That call may still do what is requested: nothing has ended here.
            Refusal::new(Code::Timeout, text)
        })
    }

    pub(super) async fn attach(
        &self,
        requested: ControllerAttachVolumeRequest,
    ) -> Result<ControllerAttachVolumeResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let _guard = self
            .turn(&requested.plugin_id, &requested.volume_id)
            .await?;
        let options = requested.mount_options.as_ref();
        let way = one_way(&requested.attachment_mode, &requested.access_mode, options)?;
        let request = proto::ControllerPublishVolumeRequest {
            volume_id: requested.volume_id,
            node_id: requested.client_csi_node_id,
            volume_capability: Some(way),
            readonly: requested.read_only,
            secrets: requested.secrets.0,
            volume_context: requested.volume_context.into_map(),
        };
        let answer = live.plugin.controller_publish_volume(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        Ok(ControllerAttachVolumeResponse {
            publish_context: answer.publish_context.into(),
        })
    }

    pub(super) async fn detach(
        &self,
        requested: ControllerDetachVolumeRequest,
    ) -> Result<Done, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let _guard = self
            .turn(&requested.plugin_id, &requested.volume_id)
            .await?;
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: requested.volume_id,
            node_id: requested.client_csi_node_id,
            secrets: requested.secrets.0,
        };
        let answer = live.plugin.controller_unpublish_volume(request).await;
        undone(answer.map(drop))
    }

    pub(super) async fn validate(
        &self,
        requested: ControllerValidateVolumeRequest,
    ) -> Result<Done, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = proto::ValidateVolumeCapabilitiesRequest {
            volume_capabilities: capabilities(
                &requested.volume_capabilities,
                requested.mount_options.as_ref(),
            )?,
            volume_id: requested.volume_id,
            volume_context: requested.context.into_map(),
            parameters: requested.parameters.into_map(),
            secrets: requested.secrets.0,
            ..Default::default()
        };
        let answer = live.plugin.can_be_used(request).await;
        match answer.map_err(|error| failed(&error))? {
            Ok(()) => Ok(Done::default()),
            Err(text) => Err(Refusal::by_rule(text)),
        }
    }

    pub(super) async fn create(
        &self,
        requested: ControllerCreateVolumeRequest,
    ) -> Result<ControllerCreateVolumeResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = created(requested)?;
        let volume = live.plugin.created(request).await;
        let volume = volume.map_err(|error| failed(&error))?;
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

    pub(super) async fn expand(
        &self,
        requested: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        if requested.in_use && live.found.features.plugin.offline_expansion_only {
            let text = format!(
                "plugin \"{}\" makes volumes larger only while nobody has them",
                requested.plugin_id
            );
            // What is larger already can stay as it is.
            return Err(Refusal::new(Code::Conflict, text));
        }
        let (way, options) = (
            &requested.volume_capability,
            requested.mount_options.as_ref(),
        );
        let way = way.as_ref();
        let way = way.map(|way| one_way(&way.attachment_mode, &way.access_mode, options));
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: requested.external_volume_id,
            capacity_range: range(requested.required_bytes, requested.limit_bytes),
            secrets: requested.secrets.0,
            volume_capability: way.transpose()?,
        };
        let answer = live.plugin.controller_expand_volume(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: answer.capacity_bytes,
            node_expansion_required: answer.node_expansion_required,
        })
    }

    pub(super) async fn delete(
        &self,
        requested: ControllerDeleteVolumeRequest,
    ) -> Result<Done, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let turn = self.turn(&requested.plugin_id, &requested.external_volume_id);
        let _guard = turn.await?;
        let request = proto::DeleteVolumeRequest {
            volume_id: requested.external_volume_id,
            secrets: requested.secrets.0,
        };
        let answer = live.plugin.delete_volume(request).await;
        undone(answer.map(drop))
    }

    pub(super) async fn list(
        &self,
        requested: ControllerListVolumesRequest,
    ) -> Result<ControllerListVolumesResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = proto::ListVolumesRequest {
            max_entries: requested.max_entries,
            starting_token: requested.starting_token,
        };
        let answer = live.plugin.list_volumes(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let entries = answer.entries.into_iter();
        Ok(ControllerListVolumesResponse {
            entries: entries.filter_map(external).collect(),
            next_token: answer.next_token,
        })
    }

    pub(super) async fn create_snapshot(
        &self,
        requested: ControllerCreateSnapshotRequest,
    ) -> Result<ControllerCreateSnapshotResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = proto::CreateSnapshotRequest {
            source_volume_id: requested.volume_id,
            name: requested.name,
            secrets: requested.secrets.0,
            parameters: requested.parameters.into_map(),
        };
        let snapshot = live.plugin.snapshot(request).await;
        let snapshot = snapshot.map_err(|error| failed(&error))?;
        Ok(ControllerCreateSnapshotResponse {
            id: snapshot.snapshot_id,
            external_source_volume_id: snapshot.source_volume_id,
            size_bytes: snapshot.size_bytes,
            create_time: snapshot.creation_time.map_or(0, |time| time.seconds),
            is_ready: snapshot.ready_to_use,
        })
    }

    pub(super) async fn delete_snapshot(
        &self,
        requested: ControllerDeleteSnapshotRequest,
    ) -> Result<Done, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: requested.id,
            secrets: requested.secrets.0,
        };
        let answer = live.plugin.delete_snapshot(request).await;
        undone(answer.map(drop))
    }

    pub(super) async fn list_snapshots(
        &self,
        requested: ControllerListSnapshotsRequest,
    ) -> Result<ControllerListSnapshotsResponse, Refusal> {
        let live = self.controller(&requested.plugin_id).await?;
        let request = proto::ListSnapshotsRequest {
            max_entries: requested.max_entries,
            starting_token: requested.starting_token,
            secrets: requested.secrets.0,
            ..Default::default()
        };
        let answer = live.plugin.list_snapshots(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let plugin_id = requested.plugin_id;
        let entries = answer
            .entries
            .into_iter()
            .filter_map(|entry| entry.snapshot);
        let reported = |snapshot: proto::Snapshot| CsiSnapshot {
            id: snapshot.snapshot_id,
            external_source_volume_id: snapshot.source_volume_id,
            size_bytes: snapshot.size_bytes,
            create_time: snapshot.creation_time.map_or(0, |time| time.seconds),
            is_ready: snapshot.ready_to_use,
            plugin_id: plugin_id.clone(),
            ..CsiSnapshot::default()
        };
        Ok(ControllerListSnapshotsResponse {
            entries: entries.map(reported).collect(),
            next_token: answer.next_token,
        })
    }
}
