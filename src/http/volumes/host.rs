//! Host volumes, and which group holds a sticky one.

use drover_events::gojson::List;
use drover_events::model::{HostVolume, HostVolumeStub, TaskGroupHostVolumeClaim};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::query::host_volumes;
use drover_projections::tables::host_volume_claims::{HostVolumeClaims, HostVolumeClaimsById};
use drover_projections::tables::host_volumes::{HostVolumes, HostVolumesByNode};
use drover_projections::watch::Interest;
use drover_projections::{Id, Prefix, Scan};
use smallvec::SmallVec;

use crate::acl::NamespaceCapability as Ns;
use crate::commands::host_volume::ReleaseHostVolumeClaim;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{Late, Write};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::table_reads::spawn_detached;

/// Seeing host volumes.
pub(in crate::http) const READ: &[Ns] = &[Ns::HostVolumeRead];
/// Having them made.
pub(in crate::http) const CREATE: &[Ns] = &[Ns::HostVolumeCreate];
/// Registering what is there.
pub(in crate::http) const REGISTER: &[Ns] = &[Ns::HostVolumeRegister];
/// Removing them, and claims on them.
pub(in crate::http) const DELETE: &[Ns] = &[Ns::HostVolumeDelete];

drover_events::wire! {
    struct HostVolumeRequest {
        volume: Option<HostVolume> = "Volume",
    }

    pub(crate) struct HostVolumeResponse {
        volume: Option<HostVolume> = "Volume",
        warnings: String = "Warnings",
        index: u64 = "Index",
    }

    struct HostVolumeDeleted {
        index: u64 = "Index",
    }
}

/// `GET /v1/volumes?type=host`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let query = &read.request.query;
    let (node, pool) = (query.text("node_id"), query.text("node_pool"));
    let (namespace, prefix) = (read.options.namespace.as_str(), read.options.prefix());
    let scan = match (node, namespace) {
        ("", "*") => Scan::all(),
        ("", name) => Scan::prefix(Prefix::new().str(name)),
        (node, _) => Scan::with_key_prefix::<Id>(node),
    };
    let scan = match read.options.reverse() {
        true => scan.reverse(),
        false => scan,
    };
    let rows = match node {
        "" => read.view.rows::<HostVolumes>(scan),
        _ => read.view.rows_by::<HostVolumesByNode>(scan),
    };
    let rows = rows.seen_by(|acl, row| acl.namespace_allows_any(&row.namespace, READ));
    let shown = |row: &HostVolume| {
        (namespace == "*" || row.namespace == namespace)
            && row.id.starts_with(prefix)
            && (pool.is_empty() || row.node_pool == pool)
    };
    let stubs = rows.filter_map(|row| match row {
        Ok(row) if !shown(&row) => None,
        Ok(row) => Some(Ok(host_volumes::stub(row))),
        Err(error) => Some(Err(error)),
    });
    let token =
        |row: &HostVolumeStub| PageToken::NamespaceId(row.namespace.clone(), row.id.clone());
    let answer = list::render(read.options, TokenKind::NamespaceId, stubs, token, Ok)?;
    Ok(answer.at(read.view.table_index::<HostVolumes>()))
}

/// The row of the volume in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(3)?;
    let row = Interest::row::<HostVolumes>((request.namespace(), id.as_str()));
    Ok([row].into_iter().collect())
}

/// `GET /v1/volume/host/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let key = (read.options.namespace.as_str(), id.as_str());
    let volume = read.view.get::<HostVolumes>(key).map_err(storage)?;
    let mut volume = volume.ok_or_else(|| Refusal::not_found("volume not found"))?;
    let mut stubs = List::empty();
    for alloc in host_volumes::users(read.view.unfiltered(), &volume).map_err(storage)? {
        stubs
            .to_mut()
            .extend(super::stub_of(read, &alloc).map_err(storage)?);
    }
    volume.allocations = stubs;
    Ok(Answer::json(&volume)?.at(volume.modify_index))
}

/// `GET /v1/volumes/claims`.
pub(in crate::http) fn claims(read: &Read<'_>) -> Result<Answer, Refusal> {
    let query = &read.request.query;
    let (namespace, prefix) = (read.options.namespace.as_str(), read.options.prefix());
    let scan = match namespace {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name)),
    };
    let is = |filter: &str, known: &str| filter.is_empty() || filter == known;
    let shown = |row: &TaskGroupHostVolumeClaim| {
        row.id.starts_with(prefix)
            && is(query.text("job_id"), &row.job_id)
            && is(query.text("task_group"), &row.task_group_name)
            && is(query.text("volume_name"), &row.volume_name)
    };
    let rows = read.view.rows::<HostVolumeClaims>(scan);
    let rows = rows.seen_by(|acl, row| acl.namespace_allows_any(&row.namespace, READ));
    let rows = rows.filter(|row| row.as_ref().map_or(true, shown));
    // The table is in the order of jobs, the list in that of ids.
    let mut rows: Vec<_> = rows.collect::<Result<_, _>>().map_err(storage)?;
    rows.sort_by(|a, b| (&a.namespace, &a.id).cmp(&(&b.namespace, &b.id)));
    if read.options.reverse() {
        rows.reverse();
    }
    let rows = rows.into_iter().map(Ok);
    let token = |row: &TaskGroupHostVolumeClaim| {
        PageToken::NamespaceId(row.namespace.clone(), row.id.clone())
    };
    let answer = list::render(read.options, TokenKind::NamespaceId, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<HostVolumeClaims>()))
}

/// The volume that a request is about, in the namespace that it names, or else the request's.
async fn requested_volume(late: &Late) -> Result<HostVolume, Refusal> {
    let body: HostVolumeRequest = late.json().await?;
    let missing = || Refusal::bad_request("missing volume definition");
    let mut volume = body.volume.ok_or_else(missing)?;
    if volume.namespace.is_empty() {
        late.request.namespace().clone_into(&mut volume.namespace);
    }
    Ok(volume)
}

fn answer(warnings: String, (volume, index): (HostVolume, u64)) -> Result<Answer, Refusal> {
    let answer = HostVolumeResponse {
        volume: Some(volume),
        warnings,
        index,
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `PUT /v1/volume/host/create`.
pub(in crate::http) async fn create(late: Late) -> Result<Answer, Refusal> {
    let volume = requested_volume(&late).await?;
    let write = late.in_namespace(&volume.namespace, CREATE)?;
    let warnings = super::warnings(&write.request);
    let made = async move {
        let volume_service = &write.api.server.host_volumes;
        volume_service.create(volume, &write.origin()).await
    };
    answer(warnings, spawn_detached(made).await??)
}

/// `PUT /v1/volume/host/register`.
pub(in crate::http) async fn register(late: Late) -> Result<Answer, Refusal> {
    let volume = requested_volume(&late).await?;
    let write = late.in_namespace(&volume.namespace, REGISTER)?;
    let warnings = super::warnings(&write.request);
    let registered = async move {
        let volume_service = &write.api.server.host_volumes;
        volume_service.register(volume, &write.origin()).await
    };
    answer(warnings, spawn_detached(registered).await??)
}

/// `DELETE /v1/volume/host/:id`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    let force = super::force(&write.request)?;
    let (namespace, id) = (
        write.request.namespace().to_owned(),
        write.request.segment(3)?,
    );
    let deleted = async move {
        let volume_service = &write.api.server.host_volumes;
        let key = (namespace.as_str(), id.as_str());
        volume_service.delete(key, force, &write.origin()).await
    };
    let index = spawn_detached(deleted).await??;
    Ok(Answer::json(&HostVolumeDeleted { index })?.written(index))
}

/// `DELETE /v1/volumes/claim/:id`.
pub(in crate::http) async fn release(late: Late) -> Result<Answer, Refusal> {
    let id = late.request.segment(3)?;
    let view = late.api.server.projections.view();
    let (named, missing) = (id.clone(), || Refusal::by_rule("claim not found"));
    let found = crate::table_reads::read_apart_from_api(move || {
        let scan = Scan::with_key_prefix::<Id>(named.as_str());
        let claim = view.by_index_scan::<HostVolumeClaimsById>(scan).next();
        claim
            .transpose()
            .map(|claim| claim.map(|claim| claim.namespace))
    });
    let namespace = found.await?.map_err(storage)?;
    // A claim of a namespace that the caller may not see is answered as one that is not there.
    let somewhere = DELETE
        .iter()
        .any(|one| late.acl().any_namespace_allows(*one));
    let write = late.in_namespace_of(DELETE, |_| Ok(namespace), missing);
    let write = write.map_err(|error| match somewhere {
        true => missing(),
        false => error,
    })?;
    let done = write.submit(ReleaseHostVolumeClaim { id }).await?;
    Ok(Answer::nothing().written(done.index))
}
