//! One call: how long it may take, and what its request keeps secret.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Request, Response, Status};

use crate::error::CallError;
use crate::proto;

/// How long calls may take.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// What a plugin knows by itself: its identity, what it can, where it runs.
    pub quick: Duration,
    /// What it does with storage.
    pub work: Duration,
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        CallLimits {
            quick: Duration::from_secs(10),
            work: Duration::from_secs(120),
        }
    }
}

/// What a request may hold that no text repeats.
pub(crate) trait Confidential {
    fn secrets(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
}

macro_rules! confidential {
    ($($request:ident),* ; $($open:ident),*) => {
        $(impl Confidential for proto::$request {
            fn secrets(&self) -> Option<&BTreeMap<String, String>> {
                Some(&self.secrets)
            }
        })*
        $(impl Confidential for proto::$open {})*
    };
}

confidential!(
    CreateVolumeRequest,
    DeleteVolumeRequest,
    ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest,
    ControllerExpandVolumeRequest,
    ValidateVolumeCapabilitiesRequest,
    CreateSnapshotRequest,
    DeleteSnapshotRequest,
    ListSnapshotsRequest,
    NodeStageVolumeRequest,
    NodePublishVolumeRequest,
    NodeExpandVolumeRequest;
    ListVolumesRequest,
    NodeUnstageVolumeRequest,
    NodeUnpublishVolumeRequest,
    NodeGetInfoRequest,
    NodeGetCapabilitiesRequest,
    ControllerGetCapabilitiesRequest,
    GetPluginInfoRequest,
    GetPluginCapabilitiesRequest,
    ProbeRequest
);

/// Makes a call that ends in time; the limit is sent to the plugin too.
pub(crate) async fn made<R: Confidential, A>(
    name: &'static str,
    limit: Duration,
    message: R,
    call: impl AsyncFnOnce(Request<R>) -> Result<Response<A>, Status>,
) -> Result<A, CallError> {
    let secrets: Vec<String> = match message.secrets() {
        Some(secrets) => secrets.values().cloned().collect(),
        None => Vec::new(),
    };
    let mut request = Request::new(message);
    request.set_timeout(limit);
    match tokio::time::timeout(limit, call(request)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CallError::answered(name, &status, secrets.iter())),
        Err(_) => Err(CallError::timed_out(name, limit)),
    }
}
