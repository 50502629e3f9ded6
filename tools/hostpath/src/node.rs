//! The node part.

use std::path::{Path, PathBuf};

use drover_csi::proto::node_server::Node;
use drover_csi::proto::node_service_capability::rpc::Type;
use drover_csi::proto::{self, node_service_capability};
use tonic::{Request, Response, Status, async_trait};

use crate::calls::{Failed, HostPath, Plugin, given, let_in};
use crate::controller::{ATTACHMENT, attachment, named};
use crate::create::is_own;
use crate::kinds;
use crate::place;
use crate::state::{Kind, State, Use, Volume};

macro_rules! answers {
    ($($call:ident = $name:literal, $request:ident -> $answer:ident, $work:expr;)*) => {
        #[async_trait]
        impl Node for Plugin {
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
    node_get_capabilities = "NodeGetCapabilities",
        NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse, can;
    node_get_info = "NodeGetInfo", NodeGetInfoRequest -> NodeGetInfoResponse, info;
    node_stage_volume = "NodeStageVolume",
        NodeStageVolumeRequest -> NodeStageVolumeResponse, stage;
    node_unstage_volume = "NodeUnstageVolume",
        NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse, unstage;
    node_publish_volume = "NodePublishVolume",
        NodePublishVolumeRequest -> NodePublishVolumeResponse, publish;
    node_unpublish_volume = "NodeUnpublishVolume",
        NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse, unpublish;
    node_get_volume_stats = "NodeGetVolumeStats",
        NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse, stats;
    node_expand_volume = "NodeExpandVolume",
        NodeExpandVolumeRequest -> NodeExpandVolumeResponse, expand;
}

fn can(
    plugin: &HostPath,
    _: &mut State,
    _: proto::NodeGetCapabilitiesRequest,
) -> Result<proto::NodeGetCapabilitiesResponse, Failed> {
    let mut kinds = vec![
        Type::GetVolumeStats,
        Type::ExpandVolume,
        Type::SingleNodeMultiWriter,
    ];
    if !plugin.options.no_stage {
        kinds.push(Type::StageUnstageVolume);
    }
    let capability = |kind| proto::NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(
            node_service_capability::Rpc {
                r#type: i32::from(kind),
            },
        )),
    };
    let capabilities = kinds.into_iter().map(capability).collect();
    Ok(proto::NodeGetCapabilitiesResponse { capabilities })
}

fn info(
    plugin: &HostPath,
    _: &mut State,
    _: proto::NodeGetInfoRequest,
) -> Result<proto::NodeGetInfoResponse, Failed> {
    let segments: std::collections::BTreeMap<_, _> =
        plugin.options.topology.iter().cloned().collect();
    let topology = Some(segments).filter(|segments| !segments.is_empty());
    Ok(proto::NodeGetInfoResponse {
        node_id: plugin.options.node_id.clone(),
        max_volumes_per_node: plugin.options.max_volumes,
        accessible_topology: topology.map(|segments| proto::Topology { segments }),
    })
}

/// Whether the controller brought the volume here, and the caller shows it.
fn is_attached(
    plugin: &HostPath,
    id: &str,
    volume: &Volume,
    shown: &std::collections::BTreeMap<String, String>,
) -> Result<(), Status> {
    let node = &plugin.options.node_id;
    if plugin.options.no_attach || plugin.options.nodes_only {
        return Ok(());
    }
    if !volume.attached.contains_key(node) {
        let text = format!("{id} is not attached to {node}");
        return Err(Status::failed_precondition(text));
    }
    match shown.get(ATTACHMENT) == Some(&attachment(id, node)) {
        true => Ok(()),
        false => Err(Status::invalid_argument(
            "the context of another attachment",
        )),
    }
}

fn stage(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodeStageVolumeRequest,
) -> Result<proto::NodeStageVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    let staging = PathBuf::from(given(
        &requested.staging_target_path,
        "staging target path",
    )?);
    if requested.volume_capability.is_none() {
        return Err(Status::invalid_argument("no volume capability").into());
    }
    let volume = named(state, id)?;
    let_in(&volume.parameters, &requested.secrets)?;
    is_own(&requested.volume_context, id)?;
    is_attached(plugin, id, volume, &requested.publish_context)?;
    let wanted = kinds::wanted(requested.volume_capability.as_ref(), volume.kind)?;
    if !staging.is_dir() {
        let text = format!("no folder {}", staging.display());
        return Err(Status::failed_precondition(text).into());
    }
    let staged = volume.staged.entry(plugin.options.node_id.clone());
    let staged = staged.or_default();
    if staged.get(&staging).is_some_and(|is| *is != wanted) {
        return Err(Status::already_exists("staged there in another way").into());
    }
    let bytes = plugin.store.volume(id);
    match volume.kind {
        _ if plugin.options.links => {}
        Kind::Folder if place::is_mounted(&staging)? => {}
        Kind::Folder => place::bind(&bytes, &staging, false, &[])?,
        Kind::Device => drop(place::attach(&bytes)?),
    }
    staged.insert(staging, wanted);
    Ok(proto::NodeStageVolumeResponse {})
}

fn unstage(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodeUnstageVolumeRequest,
) -> Result<proto::NodeUnstageVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    let staging = PathBuf::from(given(
        &requested.staging_target_path,
        "staging target path",
    )?);
    let volume = named(state, id)?;
    let node = &plugin.options.node_id;
    let published = volume.published.get(node);
    let mut published = published.into_iter().flatten();
    if let Some((target, _)) = published.find(|(_, is)| is.staging == staging) {
        let text = format!("published at {}", target.display());
        return Err(Status::failed_precondition(text).into());
    }
    if !plugin.options.links {
        match volume.kind {
            Kind::Folder => place::unbind(&staging)?,
            Kind::Device => place::detach(&plugin.store.volume(id))?,
        }
    }
    if let Some(staged) = volume.staged.get_mut(node) {
        staged.remove(&staging);
        if staged.is_empty() {
            volume.staged.remove(node);
        }
    }
    Ok(proto::NodeUnstageVolumeResponse {})
}

fn publish(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodePublishVolumeRequest,
) -> Result<proto::NodePublishVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    let target = PathBuf::from(given(&requested.target_path, "target path")?);
    if requested.volume_capability.is_none() {
        return Err(Status::invalid_argument("no volume capability").into());
    }
    let node = &plugin.options.node_id;
    let volume = named(state, id)?;
    let_in(&volume.parameters, &requested.secrets)?;
    is_own(&requested.volume_context, id)?;
    is_attached(plugin, id, volume, &requested.publish_context)?;
    let staging = PathBuf::from(&requested.staging_target_path);
    let wanted = Use {
        readonly: requested.readonly,
        staging: staging.clone(),
        ..kinds::wanted(requested.volume_capability.as_ref(), volume.kind)?
    };
    let staged = volume.staged.get(node);
    if !plugin.options.no_stage && staged.is_none_or(|paths| !paths.contains_key(&staging)) {
        let text = format!("{id} is not staged at {}", staging.display());
        return Err(Status::failed_precondition(text).into());
    }
    let published = volume.published.entry(node.clone()).or_default();
    if published.get(&target).is_some_and(|is| *is != wanted) {
        return Err(Status::already_exists("published there in another way").into());
    }
    let one = kinds::is_of_one_path(&wanted.access);
    if one && published.keys().any(|other| *other != target) {
        return Err(Status::failed_precondition("published at another path").into());
    }
    let bytes = plugin.store.volume(id);
    show(plugin, volume.kind, &bytes, &target, &wanted)?;
    published.insert(target, wanted);
    Ok(proto::NodePublishVolumeResponse {})
}

/// Lets the volume be seen at a path, whose folder has to be there.
fn show(
    plugin: &HostPath,
    kind: Kind,
    bytes: &Path,
    target: &Path,
    wanted: &Use,
) -> Result<(), Failed> {
    let above = target.parent().unwrap_or(target);
    if !above.is_dir() {
        let text = format!("no folder {}", above.display());
        return Err(Status::failed_precondition(text).into());
    }
    if plugin.options.links {
        // A folder that the caller made, though the specification leaves it to the plugin.
        let _ = std::fs::remove_dir(target);
        place::remove(target)?;
        return Ok(std::os::unix::fs::symlink(bytes, target)?);
    }
    if place::is_mounted(target)? {
        return Ok(());
    }
    let readonly = wanted.readonly || kinds::is_for_readers(&wanted.access);
    match kind {
        Kind::Folder => {
            std::fs::create_dir_all(target)?;
            place::bind(bytes, target, readonly, &wanted.flags)?;
        }
        Kind::Device => {
            let device = place::attach(bytes)?;
            // A folder that the caller made is no place for a device.
            let _ = std::fs::remove_dir(target);
            std::fs::File::create(target)?;
            place::bind(&device, target, readonly, &[])?;
        }
    }
    Ok(())
}

fn unpublish(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodeUnpublishVolumeRequest,
) -> Result<proto::NodeUnpublishVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    let target = PathBuf::from(given(&requested.target_path, "target path")?);
    let volume = named(state, id)?;
    let node = &plugin.options.node_id;
    place::unbind(&target)?;
    // Never what a volume holds: only the place where it was seen.
    match std::fs::symlink_metadata(&target) {
        Ok(found) if found.is_dir() => std::fs::remove_dir(&target)?,
        Ok(_) => std::fs::remove_file(&target)?,
        Err(_) => {}
    }
    if let Some(published) = volume.published.get_mut(node) {
        published.remove(&target);
        if published.is_empty() {
            volume.published.remove(node);
        }
    }
    if volume.kind == Kind::Device && plugin.options.no_stage && !volume.is_used_on(node) {
        place::detach(&plugin.store.volume(id))?;
    }
    Ok(proto::NodeUnpublishVolumeResponse {})
}

/// Whether the volume is to be seen at this path.
fn is_at(plugin: &HostPath, volume: &Volume, path: &str) -> Result<(), Status> {
    let path = PathBuf::from(given(path, "volume path")?);
    let node = &plugin.options.node_id;
    let uses = [volume.published.get(node), volume.staged.get(node)];
    match uses
        .into_iter()
        .flatten()
        .any(|paths| paths.contains_key(&path))
    {
        true => Ok(()),
        false => Err(Status::not_found(format!("not at {}", path.display()))),
    }
}

fn stats(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodeGetVolumeStatsRequest,
) -> Result<proto::NodeGetVolumeStatsResponse, Failed> {
    given(&requested.volume_id, "volume id")?;
    given(&requested.volume_path, "volume path")?;
    let volume = named(state, &requested.volume_id)?;
    is_at(plugin, volume, &requested.volume_path)?;
    let usage = proto::VolumeUsage {
        total: volume.bytes,
        available: volume.bytes,
        unit: i32::from(proto::volume_usage::Unit::Bytes),
        ..Default::default()
    };
    Ok(proto::NodeGetVolumeStatsResponse {
        usage: vec![usage],
        volume_condition: None,
    })
}

fn expand(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::NodeExpandVolumeRequest,
) -> Result<proto::NodeExpandVolumeResponse, Failed> {
    given(&requested.volume_id, "volume id")?;
    given(&requested.volume_path, "volume path")?;
    let volume = named(state, &requested.volume_id)?;
    let_in(&volume.parameters, &requested.secrets)?;
    is_at(plugin, volume, &requested.volume_path)?;
    if volume.kind == Kind::Device && !plugin.options.links {
        place::refresh(&plugin.store.volume(&requested.volume_id))?;
    }
    Ok(proto::NodeExpandVolumeResponse {
        capacity_bytes: volume.bytes,
    })
}
