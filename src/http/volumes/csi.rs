//! CSI volumes.

use std::sync::Arc;

use drover_events::gojson::List;
use drover_events::model::{CsiVolListStub, CsiVolume};
use drover_projections::Scan;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::query::csi as stored;
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes, CsiVolumesByPlugin};
use drover_projections::watch::Interest;
use serde_json::Value;
use smallvec::SmallVec;

use super::provision;
use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::commands::csi::DeregisterVolumes;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{Late, Write, demand, in_namespace};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::sight::Unchecked;
use crate::http::variables;

/// Seeing volumes in lists.
pub(in crate::http) const LIST: &[Ns] = &[
    Ns::CsiListVolume,
    Ns::CsiReadVolume,
    Ns::CsiMountVolume,
    Ns::ListJobs,
];
/// Seeing a volume.
const READ: &[Ns] = &[Ns::CsiReadVolume, Ns::CsiMountVolume, Ns::ReadJob];
/// Changing volumes.
pub(in crate::http) const WRITE: &[Ns] = &[Ns::CsiWriteVolume];

drover_events::wire! {
    /// Volumes to be registered.
    pub(in crate::http) struct RegisterRequest {
        volumes: List<CsiVolume> = "Volumes",
    }

    /// Volumes as they are registered now.
    pub(crate) struct RegisterResponse {
        volumes: List<CsiVolume> = "Volumes",
        warnings: String = "Warnings",
    }
}

/// The rows a list is made of, in the order of namespace and id: of all volumes, of those of a
/// plugin, or of those that the allocations of a node request (EV-19, JOB-13).
fn rows<'v>(read: &'v Read<'_>) -> Result<Unchecked<'v, Arc<CsiVolumeRow>>, Refusal> {
    let query = &read.request.query;
    let (node, plugin) = (query.text("node_id"), query.text("plugin_id"));
    if !node.is_empty() {
        let found = stored::volumes_of_node(read.view.unfiltered(), node).map_err(storage)?;
        let of_plugin =
            move |row: &Arc<CsiVolumeRow>| plugin.is_empty() || row.volume.plugin_id == plugin;
        let found = found.into_iter().filter(of_plugin).map(Ok);
        let mut found: Vec<_> = found.collect();
        if read.options.reverse() {
            found.reverse();
        }
        return Ok(read.view.found(found.into_iter()));
    }
    if plugin.is_empty() {
        let rows = read.view.rows::<CsiVolumes>(variables::scan(read.options));
        return Ok(rows.map(Arc::new));
    }
    let scan = Scan::with_key_prefix::<String>(plugin);
    let scan = match read.options.reverse() {
        true => scan.reverse(),
        false => scan,
    };
    Ok(read.view.rows_by::<CsiVolumesByPlugin>(scan).map(Arc::new))
}

/// `GET /v1/volumes?type=csi`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (namespace, prefix) = (read.options.namespace.as_str(), read.options.prefix());
    let shown = |row: &CsiVolumeRow| {
        let volume = &row.volume;
        (namespace == "*" || volume.namespace == namespace) && volume.id.starts_with(prefix)
    };
    let seen =
        |acl: &Acl, row: &Arc<CsiVolumeRow>| acl.namespace_allows_any(&row.volume.namespace, LIST);
    let stubs = rows(read)?.seen_by(seen).filter_map(|row| match row {
        Ok(row) if !shown(&row) => None,
        Ok(row) => {
            Some(stored::with_past_claims(read.view.unfiltered(), &row).map(|volume| volume.stub()))
        }
        Err(error) => Some(Err(error)),
    });
    let token =
        |row: &CsiVolListStub| PageToken::NamespaceId(row.namespace.clone(), row.id.clone());
    let answer = list::render(read.options, TokenKind::NamespaceId, stubs, token, Ok)?;
    Ok(answer.at(read.view.table_index::<CsiVolumes>()))
}

/// The row of the volume in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(3)?;
    let row = Interest::row::<CsiVolumes>((request.namespace(), id.as_str()));
    Ok([row].into_iter().collect())
}

/// Whether the volume in the path may be seen, and its plugin with it (CSI-17, NS-03).
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let acl = &read.identity.acl;
    demand(in_namespace(acl, &read.options.namespace, READ) && acl.plugin_read())
}

/// `GET /v1/volume/csi/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let key = (read.options.namespace.as_str(), id.as_str());
    let volume = stored::volume(read.view.unfiltered(), key).map_err(storage)?;
    let volume = volume.ok_or_else(|| Refusal::not_found("volume not found"))?;
    let mut stubs = List::empty();
    for alloc in volume.row.holders() {
        stubs
            .to_mut()
            .extend(super::stub_of(read, alloc).map_err(storage)?);
    }
    let internal = |error: serde_json::Error| Refusal::internal(error.to_string());
    let mut shown = serde_json::to_value(volume.shown()).map_err(internal)?;
    let stubs = serde_json::to_value(stubs).map_err(internal)?;
    if let Value::Object(fields) = &mut shown {
        fields.insert("Allocations".to_owned(), stubs);
    }
    Ok(Answer::json(&shown)?.at(volume.row.volume.modify_index))
}

/// `PUT /v1/volumes` and `PUT /v1/volume/csi/:id`: what the plugin confirms (CSI-02). Secrets are
/// encrypted before anything is decided (CSI-09).
pub(in crate::http) async fn register(late: Late) -> Result<Answer, Refusal> {
    let body: RegisterRequest = late.json().await?;
    let mut volumes = body.volumes.into_vec();
    let named = late.request.segment(3)?;
    for volume in &mut volumes {
        if volume.namespace.is_empty() {
            late.request.namespace().clone_into(&mut volume.namespace);
        }
        if !named.is_empty() && volume.id.is_empty() {
            volume.id.clone_from(&named);
        }
    }
    let may = |acl: &Acl| {
        let within = |volume: &CsiVolume| in_namespace(acl, &volume.namespace, WRITE);
        acl.plugin_read() && volumes.iter().all(within)
    };
    let allowed = may(late.acl());
    let write = late.authorize(allowed)?;
    if !named.is_empty() && volumes.iter().any(|volume| volume.id != named) {
        return Err(Refusal::bad_request(
            "Volume ID does not match request path",
        ));
    }
    let mut warnings = super::warnings(&write.request);
    let registered = async move {
        let volume_service = &write.api.server.volumes;
        volume_service.register(volumes, &write.origin()).await
    };
    // On the heap: the future is large, for it holds the volumes and every step of their checks.
    let (volumes, index) = provision::run_detached(Box::pin(registered)).await?;
    for volume in volumes.iter().filter(|volume| is_of_unknown_size(volume)) {
        let line = match warnings.is_empty() {
            true => "",
            false => "\n",
        };
        warnings += line;
        warnings += &format!(
            "capacity_min of volume {:?} was not passed to any plugin: its size is unchanged; it \
             grows when it is registered again with another capacity_min",
            volume.id
        );
    }
    let answer = RegisterResponse {
        volumes: volumes.into(),
        warnings,
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// Whether a minimum size was requested of a volume of unknown size: one that was registered as it
/// is, which no plugin created or grew for this cluster.
fn is_of_unknown_size(volume: &CsiVolume) -> bool {
    volume.capacity == 0 && volume.requested_capacity_min != 0
}

/// `DELETE /v1/volume/csi/:id`: nothing is unmounted or detached (CSI-42).
pub(in crate::http) async fn deregister(write: Write) -> Result<Answer, Refusal> {
    let force = super::force(&write.request)?;
    let command = DeregisterVolumes {
        namespace: write.request.namespace().to_owned(),
        ids: vec![write.request.segment(3)?],
        force,
        deleted: false,
    };
    let done = write.submit(command).await?;
    Ok(Answer::nothing().written(done.index))
}
