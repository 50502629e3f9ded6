//! The requests to plugins, and what they answer, as servers know it.

use drover_csi::capability::{AttachmentMode, access, capability};
use drover_csi::proto::{self, volume_content_source};
use drover_events::gojson::List;
use drover_events::model::{
    CsiMountOptions, CsiTopology, CsiVolumeCapability, CsiVolumeExternalStub,
};

use drover_error::Refusal;
use drover_rpc::csi::*;

/// The messages for the ways that a volume is to be used in.
pub(super) fn capabilities(
    wanted: &List<CsiVolumeCapability>,
    options: Option<&CsiMountOptions>,
) -> Result<Vec<proto::VolumeCapability>, Refusal> {
    let each = wanted.iter();
    each.map(|one| one_way(&one.attachment_mode, &one.access_mode, options))
        .collect()
}

pub(super) fn one_way(
    attachment: &str,
    mode: &str,
    options: Option<&CsiMountOptions>,
) -> Result<proto::VolumeCapability, Refusal> {
    let unknown = |word: &str| Refusal::bad_request(format!("unknown mode {word:?}"));
    let kind = AttachmentMode::of(attachment).ok_or_else(|| unknown(attachment))?;
    let mode = access(mode).ok_or_else(|| unknown(mode))?;
    let (fs_type, flags) = match options {
        Some(options) => (&*options.fs_type, options.mount_flags.to_vec()),
        None => ("", Vec::new()),
    };
    Ok(capability(mode, kind, fs_type, &flags))
}

pub(super) fn range(min: i64, max: i64) -> Option<proto::CapacityRange> {
    (min != 0 || max != 0).then_some(proto::CapacityRange {
        required_bytes: min,
        limit_bytes: max,
    })
}

pub(super) fn created(
    requested: ControllerCreateVolumeRequest,
) -> Result<proto::CreateVolumeRequest, Refusal> {
    let from = match (
        requested.snapshot_id.is_empty(),
        requested.clone_id.is_empty(),
    ) {
        (false, _) => Some(volume_content_source::Type::Snapshot(
            volume_content_source::SnapshotSource {
                snapshot_id: requested.snapshot_id,
            },
        )),
        (true, false) => Some(volume_content_source::Type::Volume(
            volume_content_source::VolumeSource {
                volume_id: requested.clone_id,
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
    let places = requested
        .requested_topologies
        .map(|wanted| proto::TopologyRequirement {
            requisite: segments(wanted.required),
            preferred: segments(wanted.preferred),
        });
    Ok(proto::CreateVolumeRequest {
        volume_capabilities: capabilities(
            &requested.volume_capabilities,
            requested.mount_options.as_ref(),
        )?,
        name: requested.name,
        capacity_range: range(requested.capacity_min, requested.capacity_max),
        parameters: requested.parameters.into_map(),
        secrets: requested.secrets.0,
        volume_content_source: from.map(|from| proto::VolumeContentSource { r#type: Some(from) }),
        accessibility_requirements: places,
        ..Default::default()
    })
}

/// The snapshot and the volume that one was made from.
pub(super) fn origin(source: Option<proto::VolumeContentSource>) -> (String, String) {
    match source.and_then(|source| source.r#type) {
        Some(volume_content_source::Type::Snapshot(from)) => (from.snapshot_id, String::new()),
        Some(volume_content_source::Type::Volume(from)) => (String::new(), from.volume_id),
        None => Default::default(),
    }
}

pub(super) fn topology(found: proto::Topology) -> CsiTopology {
    CsiTopology {
        segments: found.segments.into(),
    }
}

pub(super) fn external(
    entry: proto::list_volumes_response::Entry,
) -> Option<CsiVolumeExternalStub> {
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
