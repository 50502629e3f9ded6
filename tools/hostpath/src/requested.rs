//! What a request names, in the form in which it is recorded.

use std::collections::BTreeMap;

use drover_csi::proto;
use serde::Serialize;

use crate::kinds;
use crate::state::Use;

/// What is recorded of a request; what is empty is left out. Of secrets only the names.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RequestRecord {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) volume: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) snapshot: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) on: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) staging: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) target: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) readonly: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) uses: Vec<Use>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) context: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) publish_context: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) bytes: i64,
}

fn is_zero(bytes: &i64) -> bool {
    *bytes == 0
}

/// A request that can be recorded.
pub(crate) trait Recordable {
    fn reported(&self) -> RequestRecord;
}

/// Takes each field from the request's field.
macro_rules! reported {
    ($($request:ident { $($field:ident: $from:ident),* $(; $($more:tt)*)? })*) => {
        $(impl Recordable for proto::$request {
            fn reported(&self) -> RequestRecord {
                #[allow(unused_mut)]
                let mut requested = RequestRecord {
                    $($field: self.$from.clone(),)*
                    ..RequestRecord::default()
                };
                $(reported!(@ self, requested, $($more)*);)?
                requested
            }
        })*
    };
    (@ $request:expr, $requested:expr, secrets $($more:tt)*) => {
        $requested.secrets = $request.secrets.keys().cloned().collect();
        reported!(@ $request, $requested, $($more)*);
    };
    (@ $request:expr, $requested:expr, use $($more:tt)*) => {
        $requested.uses = $request.volume_capability.iter().map(kinds::used).collect();
        reported!(@ $request, $requested, $($more)*);
    };
    (@ $request:expr, $requested:expr, uses $($more:tt)*) => {
        $requested.uses = $request.volume_capabilities.iter().map(kinds::used).collect();
        reported!(@ $request, $requested, $($more)*);
    };
    (@ $request:expr, $requested:expr, bytes $($more:tt)*) => {
        $requested.bytes = $request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        reported!(@ $request, $requested, $($more)*);
    };
    (@ $request:expr, $requested:expr,) => {};
}

reported! {
    GetPluginInfoRequest {}
    GetPluginCapabilitiesRequest {}
    ProbeRequest {}
    ControllerGetCapabilitiesRequest {}
    NodeGetCapabilitiesRequest {}
    NodeGetInfoRequest {}
    ListVolumesRequest { name: starting_token }
    GetCapacityRequest { parameters: parameters }
    CreateVolumeRequest { name: name, parameters: parameters; secrets uses bytes }
    DeleteVolumeRequest { volume: volume_id; secrets }
    ControllerPublishVolumeRequest {
        volume: volume_id, on: node_id, readonly: readonly, context: volume_context; secrets use
    }
    ControllerUnpublishVolumeRequest { volume: volume_id, on: node_id; secrets }
    ValidateVolumeCapabilitiesRequest {
        volume: volume_id, parameters: parameters, context: volume_context; secrets uses
    }
    ControllerExpandVolumeRequest { volume: volume_id; secrets use bytes }
    CreateSnapshotRequest { volume: source_volume_id, name: name, parameters: parameters; secrets }
    DeleteSnapshotRequest { snapshot: snapshot_id; secrets }
    ListSnapshotsRequest { snapshot: snapshot_id, volume: source_volume_id; secrets }
    NodeStageVolumeRequest {
        volume: volume_id, staging: staging_target_path, context: volume_context,
        publish_context: publish_context; secrets use
    }
    NodeUnstageVolumeRequest { volume: volume_id, staging: staging_target_path }
    NodePublishVolumeRequest {
        volume: volume_id, staging: staging_target_path, target: target_path,
        readonly: readonly, context: volume_context, publish_context: publish_context; secrets use
    }
    NodeUnpublishVolumeRequest { volume: volume_id, target: target_path }
    NodeGetVolumeStatsRequest { volume: volume_id, target: volume_path }
    NodeExpandVolumeRequest { volume: volume_id, target: volume_path; secrets use bytes }
}
