//! Volumes and plugins: CSI volumes in `csi.rs`, what becomes of claims on them in `explain.rs`,
//! host volumes in `host.rs`, plugins in `plugins.rs`, and what is done at plugins in
//! `provision.rs`.

pub(in crate::http) mod csi;
pub(in crate::http) mod explain;
pub(in crate::http) mod host;
pub(in crate::http) mod plugins;
pub(in crate::http) mod provision;

use drover_events::model::AllocListStub;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::{
    csi_plugins::CsiPlugins, csi_volumes::CsiVolumes, host_volume_claims::HostVolumeClaims,
    host_volumes::HostVolumes,
};
use drover_projections::{StorageError, Table as _};

use super::answer::{Answer, JSON};
use super::front::Read;
use super::{allocations, list};
use crate::error::ApiError;

/// The tables of volumes, for those who wait.
pub(in crate::http) const VOLUMES: &[u16] = &[CsiVolumes::ID, HostVolumes::ID];
/// The table of plugins.
pub(in crate::http) const PLUGINS: &[u16] = &[CsiPlugins::ID];
/// The table of claims on host volumes.
pub(in crate::http) const CLAIMS: &[u16] = &[HostVolumeClaims::ID];

/// `GET /v1/volumes`: of one type; without one there is nothing to show.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, ApiError> {
    match read.request.query.text("type") {
        "csi" => csi::list(read),
        "host" => host::list(read),
        "" => {
            list::filter(read.options)?;
            let index = VOLUMES.iter().map(|table| read.view.table_index_of(*table));
            let index = index.max().unwrap_or_default();
            Ok(Answer::of(JSON, "[]".to_owned()).at(index))
        }
        _ => Err(ApiError::not_found("resource not found")),
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
