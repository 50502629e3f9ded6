//! Volumes and plugins: CSI volumes in `csi.rs`, what becomes of claims on them in `explain.rs`,
//! and what is done at plugins in `provision.rs`; host volumes in `host.rs`, plugins in
//! `plugins.rs`.

pub(in crate::http) mod csi;
pub(in crate::http) mod explain;
pub(in crate::http) mod host;
pub(in crate::http) mod plugins;
pub(in crate::http) mod provision;

use drover_events::model::AllocListStub;
use drover_events::model::status::VolumeType;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::{
    csi_plugins::CsiPlugins, csi_volumes::CsiVolumes, host_volume_claims::HostVolumeClaims,
    host_volumes::HostVolumes,
};
use drover_projections::{StorageError, Table as _};

use super::answer::{Answer, JSON};
use super::front::Read;
use super::gate::{demand, in_namespace};
use super::request::Request;
use super::{allocations, ignored, list};
use crate::error::Refusal;

/// The tables of volumes, for reads that wait.
pub(in crate::http) const VOLUMES: &[u16] = &[CsiVolumes::ID, HostVolumes::ID];
/// The table of plugins.
pub(in crate::http) const PLUGINS: &[u16] = &[CsiPlugins::ID];
/// The table of claims on host volumes.
pub(in crate::http) const HOST_VOLUME_CLAIMS: &[u16] = &[HostVolumeClaims::ID];

/// Whether volumes of the requested type may be seen in the namespace of the request.
pub(in crate::http) fn listable(read: &Read<'_>) -> Result<(), Refusal> {
    let within = |any_of| in_namespace(&read.identity.acl, &read.options.namespace, any_of);
    demand(match VolumeType::of(read.request.query.text("type")) {
        Some(VolumeType::Csi) => within(csi::LIST),
        Some(VolumeType::Host) => within(host::READ),
        None => within(csi::LIST) || within(host::READ),
    })
}

/// Whether claims on host volumes may be seen in the namespace of the request.
pub(in crate::http) fn claims_listable(read: &Read<'_>) -> Result<(), Refusal> {
    let acl = &read.identity.acl;
    demand(in_namespace(acl, &read.options.namespace, host::READ))
}

/// `GET /v1/volumes`: of one type; without one there is nothing to show.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let kind = read.request.query.text("type");
    match VolumeType::of(kind) {
        Some(VolumeType::Csi) => csi::list(read),
        Some(VolumeType::Host) => host::list(read),
        None if kind.is_empty() => {
            list::filter(read.options)?;
            let index = VOLUMES
                .iter()
                .map(|table| read.view.last_changed_at(*table));
            let index = index.max().unwrap_or_default();
            Ok(Answer::of(JSON, "[]".to_owned()).at(index))
        }
        None => Err(Refusal::not_found("resource not found")),
    }
}

/// What of a request has no effect, a line each.
fn warnings(request: &Request) -> String {
    let lines: Vec<String> = ignored::warnings(request.query.ignored()).collect();
    lines.join("\n")
}

/// The `force` parameter, as Go's `ParseBool` reads it; empty is false.
fn force(request: &Request) -> Result<bool, Refusal> {
    match request.query.text("force") {
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        _ => Err(Refusal::bad_request("invalid force value")),
    }
}

/// What is shown of an allocation beside a volume or a plugin; none of one that is gone.
fn stub_of(read: &Read<'_>, id: &str) -> Result<Option<AllocListStub>, StorageError> {
    let row = read.view.get::<Allocs>(id)?;
    Ok(row.map(|row| AllocListStub {
        allocated_resources: None,
        ..allocations::stub(row.alloc, row.job_type, row.job_version)
    }))
}
