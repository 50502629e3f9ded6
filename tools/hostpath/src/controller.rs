//! The controller.

use drover_csi::proto::controller_server::Controller;
use drover_csi::proto::controller_service_capability::rpc::Type;
use drover_csi::proto::{self, controller_service_capability};
use tonic::{Request, Response, Status, async_trait};

use crate::calls::{Failed, HostPath, Plugin, given, let_in};
use crate::kinds;
use crate::state::{State, Use, Volume};
use crate::{create, listing, snapshot};

/// The answer to a call that is done by one function.
macro_rules! answers {
    ($($call:ident = $name:literal, $request:ident -> $answer:ident, $work:expr;)*) => {
        #[async_trait]
        impl Controller for Plugin {
            $(async fn $call(
                &self,
                request: Request<proto::$request>,
            ) -> Result<Response<proto::$answer>, Status> {
                self.answer($name, request, $work).await
            })*
        }
    };
}

answers! {
    controller_get_capabilities = "ControllerGetCapabilities",
        ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse, can;
    create_volume = "CreateVolume",
        CreateVolumeRequest -> CreateVolumeResponse, create::create;
    delete_volume = "DeleteVolume",
        DeleteVolumeRequest -> DeleteVolumeResponse, create::delete;
    controller_publish_volume = "ControllerPublishVolume",
        ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse, attach;
    controller_unpublish_volume = "ControllerUnpublishVolume",
        ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse, detach;
    validate_volume_capabilities = "ValidateVolumeCapabilities",
        ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse, validate;
    list_volumes = "ListVolumes",
        ListVolumesRequest -> ListVolumesResponse, listing::volumes;
    get_capacity = "GetCapacity",
        GetCapacityRequest -> GetCapacityResponse, create::capacity;
    controller_expand_volume = "ControllerExpandVolume",
        ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse, create::expand;
    create_snapshot = "CreateSnapshot",
        CreateSnapshotRequest -> CreateSnapshotResponse, snapshot::create;
    delete_snapshot = "DeleteSnapshot",
        DeleteSnapshotRequest -> DeleteSnapshotResponse, snapshot::delete;
    list_snapshots = "ListSnapshots",
        ListSnapshotsRequest -> ListSnapshotsResponse, listing::snapshots;
}

fn can(
    plugin: &HostPath,
    _: &mut State,
    _: proto::ControllerGetCapabilitiesRequest,
) -> Result<proto::ControllerGetCapabilitiesResponse, Failed> {
    let mut kinds = vec![
        Type::CreateDeleteVolume,
        Type::ListVolumes,
        Type::GetCapacity,
        Type::CreateDeleteSnapshot,
        Type::ListSnapshots,
        Type::CloneVolume,
        Type::ExpandVolume,
        Type::VolumeCondition,
        Type::SingleNodeMultiWriter,
    ];
    if !plugin.options.no_attach {
        kinds.push(Type::PublishUnpublishVolume);
        kinds.push(Type::PublishReadonly);
        kinds.push(Type::ListVolumesPublishedNodes);
    }
    let capability = |kind| proto::ControllerServiceCapability {
        r#type: Some(controller_service_capability::Type::Rpc(
            controller_service_capability::Rpc {
                r#type: i32::from(kind),
            },
        )),
    };
    let capabilities = kinds.into_iter().map(capability).collect();
    Ok(proto::ControllerGetCapabilitiesResponse { capabilities })
}

/// The volume that a call names.
pub(crate) fn named<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Volume, Status> {
    let id = given(id, "volume id")?;
    let found = state.volumes.get_mut(id);
    found.ok_or_else(|| Status::not_found(format!("no volume {id}")))
}

/// What the node has to be shown that the volume was attached to it.
pub(crate) fn attachment(volume: &str, node: &str) -> String {
    format!("{volume}@{node}")
}

/// The key of it.
pub(crate) const ATTACHMENT: &str = "attachment";

fn attach(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::ControllerPublishVolumeRequest,
) -> Result<proto::ControllerPublishVolumeResponse, Failed> {
    if plugin.options.no_attach {
        return Err(Status::unimplemented("volumes are not attached").into());
    }
    let node = given(&requested.node_id, "node id")?;
    given(&requested.volume_id, "volume id")?;
    if requested.volume_capability.is_none() {
        return Err(Status::invalid_argument("no volume capability").into());
    }
    let nodes = state.nodes.clone();
    let attached = state.volumes.values();
    let attached = attached.filter(|volume| volume.attached.contains_key(node));
    let attached = i64::try_from(attached.count()).unwrap_or(i64::MAX);
    let volume = named(state, &requested.volume_id)?;
    let known = nodes.get(node);
    let known = known.ok_or_else(|| Status::not_found(format!("no node {node}")))?;
    let_in(&volume.parameters, &requested.secrets)?;
    let wanted = Use {
        readonly: requested.readonly,
        ..kinds::wanted(requested.volume_capability.as_ref(), volume.kind)?
    };
    if volume.place != known.place && !volume.place.is_empty() {
        return Err(Status::failed_precondition("the volume lies elsewhere").into());
    }
    match volume.attached.get(node) {
        Some(is) if *is == wanted => {}
        Some(_) => {
            let text = format!("attached to {node} in another way");
            return Err(Status::already_exists(text).into());
        }
        None => {
            free(volume, &wanted)?;
            if known.max_volumes > 0 && attached >= known.max_volumes {
                let text = format!("{node} has {attached} volumes, as many as it can");
                return Err(Status::resource_exhausted(text).into());
            }
            volume.attached.insert(node.to_owned(), wanted);
        }
    }
    let shown = attachment(&requested.volume_id, node);
    Ok(proto::ControllerPublishVolumeResponse {
        publish_context: [(ATTACHMENT.to_owned(), shown)].into(),
    })
}

/// Whether a volume that others may have can go to one more node.
fn free(volume: &Volume, wanted: &Use) -> Result<(), Status> {
    let Some((node, is)) = volume.attached.first_key_value() else {
        return Ok(());
    };
    if !kinds::is_of_many_nodes(&is.access) || !kinds::is_of_many_nodes(&wanted.access) {
        let text = format!("attached to {node} as {}", is.access);
        return Err(Status::failed_precondition(text));
    }
    Ok(())
}

fn detach(
    _: &HostPath,
    state: &mut State,
    requested: proto::ControllerUnpublishVolumeRequest,
) -> Result<proto::ControllerUnpublishVolumeResponse, Failed> {
    given(&requested.volume_id, "volume id")?;
    let done = proto::ControllerUnpublishVolumeResponse {};
    // What is not there is attached to nothing.
    let Some(volume) = state.volumes.get_mut(&requested.volume_id) else {
        return Ok(done);
    };
    let nodes: Vec<String> = match requested.node_id.is_empty() {
        true => volume.attached.keys().cloned().collect(),
        false => vec![requested.node_id],
    };
    for node in nodes {
        if !volume.attached.contains_key(&node) {
            continue;
        }
        let_in(&volume.parameters, &requested.secrets)?;
        if volume.is_used_on(&node) {
            let text = format!("staged or published on {node}");
            return Err(Status::failed_precondition(text).into());
        }
        volume.attached.remove(&node);
    }
    Ok(done)
}

fn validate(
    _: &HostPath,
    state: &mut State,
    requested: proto::ValidateVolumeCapabilitiesRequest,
) -> Result<proto::ValidateVolumeCapabilitiesResponse, Failed> {
    given(&requested.volume_id, "volume id")?;
    if requested.volume_capabilities.is_empty() {
        return Err(Status::invalid_argument("no volume capabilities").into());
    }
    let volume = named(state, &requested.volume_id)?;
    let_in(&volume.parameters, &requested.secrets)?;
    for capability in &requested.volume_capabilities {
        if kinds::kind(capability)? != volume.kind {
            return Ok(proto::ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: format!("the volume is a {:?}", volume.kind).to_lowercase(),
            });
        }
    }
    let confirmed = proto::validate_volume_capabilities_response::Confirmed {
        volume_context: requested.volume_context,
        volume_capabilities: requested.volume_capabilities,
        parameters: requested.parameters,
        mutable_parameters: requested.mutable_parameters,
    };
    Ok(proto::ValidateVolumeCapabilitiesResponse {
        confirmed: Some(confirmed),
        message: String::new(),
    })
}
