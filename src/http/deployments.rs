//! Deployments.

use drover_projections::tables::allocs::AllocsByDeployment;
use drover_projections::tables::deployments::{Deployments, DeploymentsByNamespace};
use drover_projections::watch::Interest;
use drover_projections::{Id, Scan};
use smallvec::SmallVec;

use super::answer::Answer;
use super::front::Read;
use super::list::{self, storage};
use super::request::Request;
use super::rows::{self, Created};
use crate::error::ApiError;

/// `GET /v1/deployments`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, ApiError> {
    let (kind, rows) = rows::created::<DeploymentsByNamespace>(&read.view, read.options)?;
    let answer = list::render(read.options, kind, rows, |row| row.token(kind), Ok)?;
    Ok(answer.at(read.view.table_index::<Deployments>()))
}

/// The row of the deployment in the path.
pub(super) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, ApiError> {
    let id = request.segment(2)?;
    Ok([Interest::row::<Deployments>(id.as_str())]
        .into_iter()
        .collect())
}

/// `GET /v1/deployment/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = read.request.segment(2)?;
    let deployment = read.view.get::<Deployments>(id.as_str()).map_err(storage)?;
    let deployment = deployment.ok_or_else(|| ApiError::not_found("deployment not found"))?;
    Ok(Answer::json(&deployment)?.at(deployment.modify_index))
}

/// The allocations of the deployment in the path.
pub(super) fn watched_allocs(request: &Request) -> Result<SmallVec<[Interest; 2]>, ApiError> {
    let id = request.segment(3)?;
    let group = Interest::group::<AllocsByDeployment>(id.as_str());
    Ok([group].into_iter().collect())
}

/// `GET /v1/deployment/allocations/:id`.
pub(super) fn allocations(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = read.request.segment(3)?;
    let rows = list::of_index::<AllocsByDeployment>(read, Scan::group::<Id>(id.as_str()))?;
    super::allocations::stubs_of(read, rows, |_| Ok(true))
}
