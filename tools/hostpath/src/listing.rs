//! Lists, in pages.

use drover_csi::proto::{self, list_snapshots_response, list_volumes_response};
use tonic::Status;

use crate::calls::{Failed, HostPath};
use crate::create;
use crate::snapshot;
use crate::state::State;

/// One page: the entries, and the token of the next. A token is the last id of the page before, so
/// that what comes and goes meanwhile moves nothing.
fn page<T>(
    all: impl Iterator<Item = (String, T)>,
    token: &str,
    most: i32,
) -> Result<(Vec<T>, String), Status> {
    let most = usize::try_from(most).map_err(|_| Status::invalid_argument("max_entries"))?;
    let after = match token.strip_prefix("after:") {
        Some(after) => after,
        None if token.is_empty() => "",
        None => return Err(Status::aborted("no token of this list")),
    };
    let mut rest = all.filter(|(id, _)| id.as_str() > after).peekable();
    let mut found = Vec::new();
    let mut last = String::new();
    while most == 0 || found.len() < most {
        let Some((id, entry)) = rest.next() else {
            break;
        };
        found.push(entry);
        last = id;
    }
    let next = match rest.peek() {
        Some(_) => format!("after:{last}"),
        None => String::new(),
    };
    Ok((found, next))
}

pub(crate) fn volumes(
    plugin: &HostPath,
    state: &mut State,
    requested: proto::ListVolumesRequest,
) -> Result<proto::ListVolumesResponse, Failed> {
    let all = state.volumes.iter().map(|(id, volume)| {
        let gone = !plugin.store.volume(id).exists();
        let status = list_volumes_response::VolumeStatus {
            published_node_ids: volume.attached.keys().cloned().collect(),
            volume_condition: Some(proto::VolumeCondition {
                abnormal: gone,
                message: if gone { "its bytes are gone" } else { "" }.to_owned(),
            }),
        };
        let entry = list_volumes_response::Entry {
            volume: Some(create::shown(id, volume)),
            status: Some(status),
        };
        (id.clone(), entry)
    });
    let (entries, next_token) = page(all, &requested.starting_token, requested.max_entries)?;
    Ok(proto::ListVolumesResponse {
        entries,
        next_token,
    })
}

pub(crate) fn snapshots(
    _: &HostPath,
    state: &mut State,
    requested: proto::ListSnapshotsRequest,
) -> Result<proto::ListSnapshotsResponse, Failed> {
    let fits = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
    let all = state.snapshots.iter().filter(|(id, snapshot)| {
        fits(&requested.snapshot_id, id) && fits(&requested.source_volume_id, &snapshot.volume)
    });
    let all = all.map(|(id, snapshot)| {
        let entry = list_snapshots_response::Entry {
            snapshot: Some(snapshot::shown(id, snapshot)),
        };
        (id.clone(), entry)
    });
    let (entries, next_token) = page(all, &requested.starting_token, requested.max_entries)?;
    Ok(proto::ListSnapshotsResponse {
        entries,
        next_token,
    })
}
