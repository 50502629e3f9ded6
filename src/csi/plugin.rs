//! A plugin, reached over its socket.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::call::{CallLimits, made};
use crate::error::CallError;
use crate::features::{self, Features};
use crate::proto::{self, controller_client, identity_client, node_client};

/// What the name in every request's address is: a socket has none, and some servers refuse
/// requests without one.
const AUTHORITY: &str = "http://localhost";
/// Longest name of a plugin, as the specification has it, and longest text where it says nothing
/// else; bytes.
const LONGEST_NAME: usize = 63;
const TEXT: usize = 128;
/// Longest name of a node, and most that a map may hold; bytes.
const LONGEST_NODE: usize = 256;
const MAP: usize = 4096;

/// The identity that a plugin reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The provider's name, as `hostpath.csi.example.com`.
    pub name: String,
    /// The provider's version.
    pub version: String,
}

/// Where a node plugin says it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// The provider's name for the node.
    pub id: String,
    /// Most volumes that can be used there; 0 if there is no limit.
    pub max_volumes: i64,
    /// The segments of the topology it lies in.
    pub topology: Option<std::collections::BTreeMap<String, String>>,
}

/// A plugin behind a socket. It need not be there yet, and may come back: each call connects
/// where there is no connection. Clones share one.
#[derive(Clone)]
pub struct Plugin {
    channel: Channel,
    limits: CallLimits,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $client:ident :: $kind:ident . $name:literal,
        $limit:ident: $request:ident -> $answer:ident;)*) => {
        impl Plugin {
            $($(#[$doc])*
            ///
            /// # Errors
            /// What the plugin answered, or that it did not.
            pub async fn $call(
                &self,
                request: proto::$request,
            ) -> Result<proto::$answer, CallError> {
                let mut client = $client::$kind::new(self.channel.clone());
                made($name, self.limits.$limit, request, async |request| {
                    client.$call(request).await
                })
                .await
            })*
        }
    };
}

calls! {
    /// Whether the plugin is ready.
    probe = identity_client::IdentityClient."Probe",
        quick: ProbeRequest -> ProbeResponse;
    /// The identity of the plugin.
    get_plugin_info = identity_client::IdentityClient."GetPluginInfo",
        quick: GetPluginInfoRequest -> GetPluginInfoResponse;
    /// What the plugin is made of.
    get_plugin_capabilities = identity_client::IdentityClient."GetPluginCapabilities",
        quick: GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse;
    /// What the controller can.
    controller_get_capabilities = controller_client::ControllerClient."ControllerGetCapabilities",
        quick: ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse;
    /// Makes a volume; the same name and options again answer with the same volume.
    create_volume = controller_client::ControllerClient."CreateVolume",
        work: CreateVolumeRequest -> CreateVolumeResponse;
    /// Deletes a volume; one that is gone is deleted.
    delete_volume = controller_client::ControllerClient."DeleteVolume",
        work: DeleteVolumeRequest -> DeleteVolumeResponse;
    /// Attaches a volume to a node.
    controller_publish_volume = controller_client::ControllerClient."ControllerPublishVolume",
        work: ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse;
    /// Detaches a volume from a node.
    controller_unpublish_volume = controller_client::ControllerClient."ControllerUnpublishVolume",
        work: ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    /// Whether a volume can be used in these ways.
    validate_volume_capabilities = controller_client::ControllerClient."ValidateVolumeCapabilities",
        work: ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    /// A page of the volumes.
    list_volumes = controller_client::ControllerClient."ListVolumes",
        work: ListVolumesRequest -> ListVolumesResponse;
    /// Makes a volume larger.
    controller_expand_volume = controller_client::ControllerClient."ControllerExpandVolume",
        work: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    /// Makes a snapshot; the same name and volume again answer with the same snapshot.
    create_snapshot = controller_client::ControllerClient."CreateSnapshot",
        work: CreateSnapshotRequest -> CreateSnapshotResponse;
    /// Deletes a snapshot; one that is gone is deleted.
    delete_snapshot = controller_client::ControllerClient."DeleteSnapshot",
        work: DeleteSnapshotRequest -> DeleteSnapshotResponse;
    /// A page of the snapshots.
    list_snapshots = controller_client::ControllerClient."ListSnapshots",
        work: ListSnapshotsRequest -> ListSnapshotsResponse;
    /// What the node plugin can.
    node_get_capabilities = node_client::NodeClient."NodeGetCapabilities",
        quick: NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse;
    /// Where the node plugin runs.
    node_get_info = node_client::NodeClient."NodeGetInfo",
        quick: NodeGetInfoRequest -> NodeGetInfoResponse;
    /// Brings a volume to the node, once for all that use it there.
    node_stage_volume = node_client::NodeClient."NodeStageVolume",
        work: NodeStageVolumeRequest -> NodeStageVolumeResponse;
    /// Takes a volume from the node.
    node_unstage_volume = node_client::NodeClient."NodeUnstageVolume",
        work: NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse;
    /// Brings a volume to a path.
    node_publish_volume = node_client::NodeClient."NodePublishVolume",
        work: NodePublishVolumeRequest -> NodePublishVolumeResponse;
    /// Takes a volume from a path.
    node_unpublish_volume = node_client::NodeClient."NodeUnpublishVolume",
        work: NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse;
    /// Makes what is mounted as large as the volume has become.
    node_expand_volume = node_client::NodeClient."NodeExpandVolume",
        work: NodeExpandVolumeRequest -> NodeExpandVolumeResponse;
}

/// Connects to a socket that lies where its plugin writes: a link there is not followed, wherever
/// it leads.
async fn connected(path: &Path) -> std::io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if kind != FileType::Socket {
        let text = format!("{} is no socket", path.display());
        return Err(std::io::Error::other(text));
    }
    UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd())).await
}

impl Plugin {
    /// The plugin that listens, or will listen, on this socket. Call it inside of a runtime.
    pub fn at(socket: &Path) -> Plugin {
        Plugin::with_limits(socket, CallLimits::default())
    }

    /// As [`Plugin::at`], with limits of the caller's.
    pub fn with_limits(socket: &Path, limits: CallLimits) -> Plugin {
        let socket: Arc<Path> = Arc::from(socket);
        let connect = tower::service_fn(move |_| {
            let socket = Arc::clone(&socket);
            async move { connected(&socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static(AUTHORITY).connect_timeout(limits.quick);
        let channel = endpoint.connect_with_connector_lazy(connect);
        Plugin { channel, limits }
    }

    /// Whether the plugin is ready; one that does not say is.
    ///
    /// # Errors
    /// It did not answer, or says that it is broken.
    pub async fn is_ready(&self) -> Result<bool, CallError> {
        let answer = self.probe(proto::ProbeRequest {}).await?;
        Ok(answer.ready.unwrap_or(true))
    }

    /// The identity of the plugin.
    ///
    /// # Errors
    /// It did not answer, or has no name that the specification allows.
    pub async fn identity(&self) -> Result<Identity, CallError> {
        let answer = self.get_plugin_info(proto::GetPluginInfoRequest {}).await?;
        let (name, version) = (answer.name, answer.vendor_version);
        for (what, text, most) in [("name", &name, LONGEST_NAME), ("version", &version, TEXT)] {
            if text.len() > most || what == "name" && text.is_empty() {
                let text = format!("a {what} of {} characters", text.len());
                return Err(CallError::invalid_response("GetPluginInfo", &text));
            }
        }
        Ok(Identity { name, version })
    }

    /// The capabilities of the plugin, and of those of its parts that it has.
    ///
    /// # Errors
    /// A part that it reports to have does not answer.
    pub async fn features(&self, controller: bool, node: bool) -> Result<Features, CallError> {
        let parts = self
            .get_plugin_capabilities(proto::GetPluginCapabilitiesRequest {})
            .await?;
        let mut features = Features {
            plugin: features::plugin(&parts),
            ..Features::default()
        };
        if controller && features.plugin.controller {
            let request = proto::ControllerGetCapabilitiesRequest {};
            let answer = self.controller_get_capabilities(request).await?;
            features.controller = Some(features::controller(&answer));
        }
        if node {
            let request = proto::NodeGetCapabilitiesRequest {};
            features.node = Some(features::node(&self.node_get_capabilities(request).await?));
        }
        Ok(features)
    }

    /// Where the node plugin runs.
    ///
    /// # Errors
    /// It did not answer, or names no node.
    pub async fn node_info(&self) -> Result<NodeInfo, CallError> {
        let answer = self.node_get_info(proto::NodeGetInfoRequest {}).await?;
        if answer.node_id.is_empty() {
            return Err(CallError::invalid_response("NodeGetInfo", "no node id"));
        }
        let segments = answer.accessible_topology.iter();
        let segments = segments.flat_map(|topology| &topology.segments);
        let length: usize = segments.map(|(key, value)| key.len() + value.len()).sum();
        if answer.node_id.len() > LONGEST_NODE || length > MAP {
            let text = "a longer node id or topology than the specification allows";
            return Err(CallError::invalid_response("NodeGetInfo", text));
        }
        Ok(NodeInfo {
            id: answer.node_id,
            max_volumes: answer.max_volumes_per_node.max(0),
            topology: answer.accessible_topology.map(|found| found.segments),
        })
    }

    /// Makes a volume, and sees that what came back is one.
    ///
    /// # Errors
    /// It was not made, or has no id.
    pub async fn created(
        &self,
        request: proto::CreateVolumeRequest,
    ) -> Result<proto::Volume, CallError> {
        let volume = self.create_volume(request).await?.volume;
        volume
            .filter(|volume| !volume.volume_id.is_empty())
            .ok_or_else(|| CallError::invalid_response("CreateVolume", "no volume id"))
    }

    /// Makes a snapshot, and sees that what came back is one of this volume.
    ///
    /// # Errors
    /// It was not made, has no id, or is of another volume.
    pub async fn snapshot(
        &self,
        request: proto::CreateSnapshotRequest,
    ) -> Result<proto::Snapshot, CallError> {
        let source = request.source_volume_id.clone();
        let broken = |text| CallError::invalid_response("CreateSnapshot", text);
        let snapshot = self.create_snapshot(request).await?.snapshot;
        let snapshot = snapshot
            .filter(|snapshot| !snapshot.snapshot_id.is_empty())
            .ok_or_else(|| broken("no snapshot id"))?;
        match snapshot.source_volume_id == source {
            true => Ok(snapshot),
            false => Err(broken("the snapshot is of another volume")),
        }
    }

    /// Whether a volume can be used in all of these ways; what the plugin says if it cannot.
    ///
    /// # Errors
    /// The plugin did not answer, or knows no such volume.
    pub async fn can_be_used(
        &self,
        request: proto::ValidateVolumeCapabilitiesRequest,
    ) -> Result<Result<(), String>, CallError> {
        let wanted = request.volume_capabilities.clone();
        let secrets: Vec<String> = request.secrets.values().cloned().collect();
        let answer = self.validate_volume_capabilities(request).await?;
        let Some(confirmed) = answer.confirmed else {
            return Ok(Err(CallError::cleaned(answer.message, secrets.iter())));
        };
        // What a plugin does not repeat, it does not know of: it has not confirmed it.
        let missing = wanted
            .iter()
            .find(|wanted| !features::supports(&confirmed.volume_capabilities, wanted));
        Ok(match missing {
            None => Ok(()),
            Some(missing) => Err(format!("not confirmed: {missing:?}")),
        })
    }
}
