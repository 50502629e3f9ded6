//! Snapshots: copies.

use drover_csi::proto;
use tonic::Status;

use crate::calls::{Failed, HostPath, given, let_in};
use crate::place;
use crate::record;
use crate::state::{Snapshot, State};

pub(crate) fn create(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::CreateSnapshotRequest,
) -> Result<proto::CreateSnapshotResponse, Failed> {
    let name = given(&requested.name, "name")?;
    let source = given(&requested.source_volume_id, "source volume id")?;
    let there = state.snapshots.iter().find(|(_, one)| one.name == name);
    if let Some((id, there)) = there {
        return match there.volume == source {
            true => Ok(made(id, there)),
            false => Err(Status::already_exists(format!("{name} is of another volume")).into()),
        };
    }
    let none = || Status::not_found(format!("no volume {source}"));
    let volume = state.volumes.get(source).ok_or_else(none)?;
    let_in(&volume.parameters, &requested.secrets)?;
    let snapshot = Snapshot {
        name: name.to_owned(),
        volume: source.to_owned(),
        kind: volume.kind,
        bytes: volume.bytes,
        made: i64::try_from(record::now()).unwrap_or(i64::MAX),
    };
    state.given += 1;
    let id = format!("snap-{:06}", state.given);
    let (from, to) = (plugin.store.volume(source), plugin.store.snapshot(&id));
    place::make(&to, snapshot.kind, snapshot.bytes, Some(&from))?;
    let answer = made(&id, &snapshot);
    state.snapshots.insert(id, snapshot);
    Ok(answer)
}

fn made(id: &str, snapshot: &Snapshot) -> proto::CreateSnapshotResponse {
    proto::CreateSnapshotResponse {
        snapshot: Some(shown(id, snapshot)),
    }
}

/// A snapshot as answers have it.
pub(crate) fn shown(id: &str, snapshot: &Snapshot) -> proto::Snapshot {
    const SECOND: i64 = 1_000_000_000;
    proto::Snapshot {
        size_bytes: snapshot.bytes,
        snapshot_id: id.to_owned(),
        source_volume_id: snapshot.volume.clone(),
        creation_time: Some(prost_types::Timestamp {
            seconds: snapshot.made / SECOND,
            nanos: i32::try_from(snapshot.made % SECOND).unwrap_or(0),
        }),
        ready_to_use: true,
        ..Default::default()
    }
}

pub(crate) fn delete(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::DeleteSnapshotRequest,
) -> Result<proto::DeleteSnapshotResponse, Failed> {
    let id = given(&requested.snapshot_id, "snapshot id")?;
    if state.snapshots.remove(id).is_some() {
        place::remove(&plugin.store.snapshot(id))?;
    }
    Ok(proto::DeleteSnapshotResponse {})
}
