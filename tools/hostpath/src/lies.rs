//! Answers that a rule can make name another thing than the one that is meant.

use drover_csi::proto;

/// An answer with an id in it, if it has one.
pub(crate) trait Lie {
    /// Puts this id in the place of the true one.
    fn lie(&mut self, _id: &str) {}
}

macro_rules! honest {
    ($($answer:ident),* $(,)?) => { $(impl Lie for proto::$answer {})* };
}

honest!(
    GetPluginCapabilitiesResponse,
    ProbeResponse,
    ControllerGetCapabilitiesResponse,
    NodeGetCapabilitiesResponse,
    DeleteVolumeResponse,
    DeleteSnapshotResponse,
    ControllerUnpublishVolumeResponse,
    ValidateVolumeCapabilitiesResponse,
    GetCapacityResponse,
    ControllerExpandVolumeResponse,
    NodeStageVolumeResponse,
    NodeUnstageVolumeResponse,
    NodePublishVolumeResponse,
    NodeUnpublishVolumeResponse,
    NodeGetVolumeStatsResponse,
    NodeExpandVolumeResponse,
);

impl Lie for proto::GetPluginInfoResponse {
    fn lie(&mut self, id: &str) {
        id.clone_into(&mut self.name);
    }
}

impl Lie for proto::NodeGetInfoResponse {
    fn lie(&mut self, id: &str) {
        id.clone_into(&mut self.node_id);
    }
}

impl Lie for proto::CreateVolumeResponse {
    fn lie(&mut self, id: &str) {
        if let Some(volume) = &mut self.volume {
            id.clone_into(&mut volume.volume_id);
        }
    }
}

impl Lie for proto::ControllerPublishVolumeResponse {
    fn lie(&mut self, id: &str) {
        for value in self.publish_context.values_mut() {
            id.clone_into(value);
        }
    }
}

impl Lie for proto::CreateSnapshotResponse {
    fn lie(&mut self, id: &str) {
        if let Some(snapshot) = &mut self.snapshot {
            id.clone_into(&mut snapshot.source_volume_id);
        }
    }
}

impl Lie for proto::ListVolumesResponse {
    fn lie(&mut self, id: &str) {
        for volume in self.entries.iter_mut().flat_map(|entry| &mut entry.volume) {
            id.clone_into(&mut volume.volume_id);
        }
    }
}

impl Lie for proto::ListSnapshotsResponse {
    fn lie(&mut self, id: &str) {
        for snapshot in self
            .entries
            .iter_mut()
            .flat_map(|entry| &mut entry.snapshot)
        {
            id.clone_into(&mut snapshot.snapshot_id);
        }
    }
}
