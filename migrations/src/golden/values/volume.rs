//! Samples about volumes.

use drover_events::csi::*;
use drover_events::host_volume::*;
use drover_events::model::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::id;

pub(super) fn event(kind: EventKind) -> Option<Event> {
    let namespace = || "default".to_owned();
    let claim = CsiVolumeClaimed {
        namespace: namespace(),
        volume_id: "data".into(),
        allocation_id: id(40),
        node_id: id(10),
        external_node_id: "i-1".into(),
        mode: 1,
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        state: 0,
        timestamp: TIME,
        ..CsiVolumeClaimed::default()
    };
    Some(match kind {
        EventKind::CsiVolumesRegistered => {
            let volume = CsiVolume {
                id: "data".into(),
                namespace: namespace(),
                ..Default::default()
            };
            CsiVolumesRegistered {
                volumes: vec![volume],
                timestamp: TIME,
            }
            .into()
        }
        EventKind::CsiVolumeDeregistered => CsiVolumeDeregistered {
            namespace: namespace(),
            volume_ids: vec!["data".into()],
            force: true,
        }
        .into(),
        EventKind::CsiVolumeClaimed => claim.into(),
        EventKind::CsiVolumeClaimsApplied => CsiVolumeClaimsApplied {
            claims: vec![claim],
        }
        .into(),
        EventKind::CsiPluginDeleted => CsiPluginDeleted { id: "ebs".into() }.into(),
        EventKind::HostVolumeRegistered => {
            let volume = HostVolume {
                id: id(70),
                name: "data".into(),
                ..Default::default()
            };
            HostVolumeRegistered { volume }.into()
        }
        EventKind::HostVolumeDeleted => HostVolumeDeleted {
            namespace: namespace(),
            volume_id: id(70),
            force: true,
        }
        .into(),
        EventKind::HostVolumeClaimReleased => HostVolumeClaimReleased { claim_id: id(71) }.into(),
        _ => return None,
    })
}
