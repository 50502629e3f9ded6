//! What this version has none of: volumes and plugins (nothing can be registered, so lists are
//! empty), ACLs while they are off, another edition's routes, and operations that come later.
//! Writes are refused in words, so that nobody takes silence for success.

use drover_projections::Table as _;
use drover_projections::tables::{
    csi_plugins::CsiPlugins, csi_volumes::CsiVolumes, host_volume_claims::HostVolumeClaims,
    host_volumes::HostVolumes,
};

use super::answer::{Answer, JSON};
use super::front::{Read, Write};
use super::list;
use crate::error::{ApiError, Code};

/// The tables of volumes, for those who wait.
pub(super) const VOLUMES: &[u16] = &[CsiVolumes::ID, HostVolumes::ID];
/// The table of plugins.
pub(super) const PLUGINS: &[u16] = &[CsiPlugins::ID];
/// The table of claims on host volumes.
pub(super) const CLAIMS: &[u16] = &[HostVolumeClaims::ID];

/// The empty list, at the index of its table; a broken filter is refused all the same.
fn empty(read: &Read<'_>, table: u16) -> Result<Answer, ApiError> {
    list::filter(read.options)?;
    Ok(Answer::of(JSON, "[]".to_owned()).at(read.view.table_index_of(table)))
}

/// `GET /v1/volumes`.
pub(super) fn volumes(read: &Read<'_>) -> Result<Answer, ApiError> {
    match read.request.query.text("type") {
        "" | "csi" => empty(read, CsiVolumes::ID),
        "host" => empty(read, HostVolumes::ID),
        _ => Err(ApiError::not_found("resource not found")),
    }
}

/// `GET /v1/volumes/claims`.
pub(super) fn claims(read: &Read<'_>) -> Result<Answer, ApiError> {
    empty(read, HostVolumeClaims::ID)
}

/// `GET /v1/volume/csi/:id` and `GET /v1/volume/host/:id`.
pub(super) fn volume(_read: &Read<'_>) -> Result<Answer, ApiError> {
    Err(ApiError::not_found("volume not found"))
}

/// `GET /v1/plugins`.
pub(super) fn plugins(read: &Read<'_>) -> Result<Answer, ApiError> {
    match read.request.query.text("type") {
        "" | "csi" => empty(read, CsiPlugins::ID),
        _ => Ok(Answer::nothing()),
    }
}

/// `GET /v1/plugin/csi/:id`.
pub(super) fn plugin(_read: &Read<'_>) -> Result<Answer, ApiError> {
    Err(ApiError::not_found("plugin not found"))
}

/// Anything under `/v1/acl/` while ACLs are off.
pub(super) async fn acl(_write: Write) -> Result<Answer, ApiError> {
    Err(ApiError::bad_request("ACL support disabled"))
}

/// A route of another edition.
pub(super) async fn enterprise(_write: Write) -> Result<Answer, ApiError> {
    let text = "Nomad Enterprise only endpoint";
    Err(ApiError::new(Code::NotImplemented, text))
}

/// `GET /v1/operator/license`: there is none.
pub(super) fn license(_read: &Read<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::nothing().status(204))
}

/// An operation that comes later.
pub(super) async fn later(write: Write) -> Result<Answer, ApiError> {
    let (method, path) = (&write.request.method, &write.request.path);
    let text = format!("{method} {path} is not supported by this version");
    Err(ApiError::new(Code::NotImplemented, text))
}
