//! Making, deleting and enlarging volumes.

use std::collections::BTreeMap;

use drover_csi::proto::{self, volume_content_source};
use tonic::Status;

use crate::calls::{Failed, HostPath, given, let_in};
use crate::controller::named;
use crate::kinds;
use crate::place;
use crate::state::{Kind, Source, State, Volume};

/// The size of a volume whose request names none.
const USUAL: i64 = 1 << 30;
/// What comes back with a volume, and has to be shown to nodes.
const CONTEXT: &str = "hostpath";

pub(crate) fn create(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::CreateVolumeRequest,
) -> Result<proto::CreateVolumeResponse, Failed> {
    let name = given(&requested.name, "name")?;
    let kind = only_kind(&requested.volume_capabilities)?;
    let_in(&requested.parameters, &requested.secrets)?;
    let source = source(requested.volume_content_source.as_ref())?;
    let least = least(state, source.as_ref(), kind)?;
    let range = requested.capacity_range.unwrap_or_default();
    let there = state.volumes.iter().find(|(_, volume)| volume.name == name);
    if let Some((id, volume)) = there {
        let fits = range.required_bytes <= volume.bytes
            && (range.limit_bytes == 0 || volume.bytes <= range.limit_bytes);
        let same = volume.kind == kind
            && volume.source == source
            && volume.parameters == requested.parameters;
        return match fits && same {
            true => Ok(made(id, volume)),
            false => Err(Status::already_exists(format!("{name} is another volume")).into()),
        };
    }
    let bytes = size(range, least)?;
    if bytes > left(plugin, state) {
        return Err(Status::out_of_range(format!("no room for {bytes} bytes")).into());
    }
    let place = chosen(plugin, state, requested.accessibility_requirements.as_ref())?;
    state.given += 1;
    let id = format!("vol-{:06}", state.given);
    let from = match &source {
        Some(Source::Volume(from)) => Some(plugin.store.volume(from)),
        Some(Source::Snapshot(from)) => Some(plugin.store.snapshot(from)),
        None => None,
    };
    place::make(&plugin.store.volume(&id), kind, bytes, from.as_deref())?;
    let volume = Volume {
        name: name.to_owned(),
        kind,
        bytes,
        parameters: requested.parameters,
        source,
        place,
        attached: BTreeMap::new(),
        staged: BTreeMap::new(),
        published: BTreeMap::new(),
    };
    let answer = made(&id, &volume);
    state.volumes.insert(id, volume);
    Ok(answer)
}

/// What all of the capabilities use a volume as: one thing.
fn only_kind(capabilities: &[proto::VolumeCapability]) -> Result<Kind, Status> {
    let mut kinds = capabilities.iter().map(kinds::kind);
    let none = || Status::invalid_argument("no volume capabilities");
    let first = kinds.next().ok_or_else(none)??;
    for other in kinds {
        if other? != first {
            return Err(Status::invalid_argument("a folder and a device at once"));
        }
    }
    Ok(first)
}

fn source(given: Option<&proto::VolumeContentSource>) -> Result<Option<Source>, Status> {
    let Some(given) = given else { return Ok(None) };
    match &given.r#type {
        Some(volume_content_source::Type::Snapshot(from)) => {
            Ok(Some(Source::Snapshot(from.snapshot_id.clone())))
        }
        Some(volume_content_source::Type::Volume(from)) => {
            Ok(Some(Source::Volume(from.volume_id.clone())))
        }
        None => Err(Status::invalid_argument("a source of nothing")),
    }
}

/// How large what is copied is.
fn least(state: &State, source: Option<&Source>, kind: Kind) -> Result<i64, Status> {
    let (is, bytes) = match source {
        None => return Ok(0),
        Some(Source::Volume(id)) => match state.volumes.get(id) {
            Some(volume) => (volume.kind, volume.bytes),
            None => return Err(Status::not_found(format!("no volume {id}"))),
        },
        Some(Source::Snapshot(id)) => match state.snapshots.get(id) {
            Some(snapshot) => (snapshot.kind, snapshot.bytes),
            None => return Err(Status::not_found(format!("no snapshot {id}"))),
        },
    };
    match is == kind {
        true => Ok(bytes),
        false => Err(Status::invalid_argument("the source is of another kind")),
    }
}

fn size(range: proto::CapacityRange, least: i64) -> Result<i64, Status> {
    let (required, limit) = (range.required_bytes, range.limit_bytes);
    if required < 0 || limit < 0 || (limit > 0 && limit < required) {
        return Err(Status::out_of_range("no size is in this range"));
    }
    let usual = if limit > 0 { USUAL.min(limit) } else { USUAL };
    let bytes = if required > 0 {
        required
    } else {
        usual.max(least)
    };
    match bytes < least || (limit > 0 && bytes > limit) {
        true => Err(Status::out_of_range("the source is larger")),
        false => Ok(bytes),
    }
}

/// How many bytes are free.
fn left(plugin: &HostPath, state: &State) -> i64 {
    let used: i64 = state.volumes.values().map(|volume| volume.bytes).sum();
    plugin.options.capacity.saturating_sub(used)
}

/// The segments in which a volume is made: preferred ones first, then any that will do.
fn chosen(
    plugin: &HostPath,
    state: &State,
    wanted: Option<&proto::TopologyRequirement>,
) -> Result<BTreeMap<String, String>, Status> {
    let own: BTreeMap<String, String> = plugin.options.topology.iter().cloned().collect();
    let Some(wanted) = wanted.filter(|_| !own.is_empty()) else {
        return Ok(own);
    };
    let mut order = wanted.preferred.iter().chain(&wanted.requisite).peekable();
    if order.peek().is_none() {
        return Ok(own);
    }
    let known = |segments: &BTreeMap<String, String>| {
        *segments == own || state.nodes.values().any(|node| node.place == *segments)
    };
    let found = order.find(|topology| known(&topology.segments));
    let none = || Status::resource_exhausted("no storage in any of these places");
    found
        .map(|topology| topology.segments.clone())
        .ok_or_else(none)
}

fn made(id: &str, volume: &Volume) -> proto::CreateVolumeResponse {
    proto::CreateVolumeResponse {
        volume: Some(shown(id, volume)),
    }
}

/// A volume as answers have it.
pub(crate) fn shown(id: &str, volume: &Volume) -> proto::Volume {
    let content_source = volume.source.as_ref().map(|source| {
        let from = match source {
            Source::Volume(id) => {
                let volume_id = id.clone();
                volume_content_source::Type::Volume(volume_content_source::VolumeSource {
                    volume_id,
                })
            }
            Source::Snapshot(id) => {
                let snapshot_id = id.clone();
                volume_content_source::Type::Snapshot(volume_content_source::SnapshotSource {
                    snapshot_id,
                })
            }
        };
        proto::VolumeContentSource { r#type: Some(from) }
    });
    let place = Some(&volume.place).filter(|place| !place.is_empty());
    let place = place.map(|place| proto::Topology {
        segments: place.clone(),
    });
    proto::Volume {
        capacity_bytes: volume.bytes,
        volume_id: id.to_owned(),
        volume_context: [(CONTEXT.to_owned(), id.to_owned())].into(),
        content_source,
        accessible_topology: place.into_iter().collect(),
    }
}

/// Whether what came along is of this volume; a volume that was registered has none.
pub(crate) fn is_own(context: &BTreeMap<String, String>, id: &str) -> Result<(), Status> {
    match context.get(CONTEXT) {
        Some(other) if other != id => Err(Status::invalid_argument("the context of another")),
        _ => Ok(()),
    }
}

pub(crate) fn delete(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::DeleteVolumeRequest,
) -> Result<proto::DeleteVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    if let Some(volume) = state.volumes.get(id) {
        let_in(&volume.parameters, &requested.secrets)?;
        if volume.is_used() {
            return Err(Status::failed_precondition(format!("{id} is in use")).into());
        }
        place::remove(&plugin.store.volume(id))?;
        state.volumes.remove(id);
    }
    Ok(proto::DeleteVolumeResponse {})
}

pub(crate) fn capacity(
    plugin: &HostPath,
    state: &mut State,
    _: proto::GetCapacityRequest,
) -> Result<proto::GetCapacityResponse, Failed> {
    Ok(proto::GetCapacityResponse {
        available_capacity: left(plugin, state).max(0),
        ..Default::default()
    })
}

pub(crate) fn expand(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::ControllerExpandVolumeRequest,
) -> Result<proto::ControllerExpandVolumeResponse, Failed> {
    let id = given(&requested.volume_id, "volume id")?;
    let none = || Status::invalid_argument("no capacity range");
    let range = requested.capacity_range.ok_or_else(none)?;
    let space = left(plugin, state);
    let volume = named(state, id)?;
    let_in(&volume.parameters, &requested.secrets)?;
    if plugin.options.offline && volume.is_used() {
        return Err(Status::failed_precondition(format!("{id} is in use")).into());
    }
    let wanted = range.required_bytes.max(volume.bytes);
    if range.limit_bytes > 0 && wanted > range.limit_bytes {
        return Err(Status::out_of_range("it is larger than that").into());
    }
    if wanted - volume.bytes > space {
        return Err(Status::out_of_range(format!("no room for {wanted} bytes")).into());
    }
    if volume.kind == Kind::Device {
        place::grow(&plugin.store.volume(id), wanted)?;
    }
    volume.bytes = wanted;
    Ok(proto::ControllerExpandVolumeResponse {
        capacity_bytes: wanted,
        // Its device is looked at again, and for folders the record shows that the expansion was
        // requested.
        node_expansion_required: true,
    })
}
