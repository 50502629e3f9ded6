//! Deployments.

pub(in crate::http) mod write;

use drover_projections::tables::allocs::AllocsByDeployment;
use drover_projections::tables::deployments::{Deployments, DeploymentsByNamespace};
use drover_projections::watch::Interest;
use drover_projections::{Id, Scan};
use smallvec::SmallVec;

use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{self, READ_JOB};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::rows::{self, Created};

/// `GET /v1/deployments`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (kind, rows) = rows::created::<DeploymentsByNamespace>(&read.view, read.options, READ_JOB)?;
    let answer = list::render(read.options, kind, rows, |row| row.token(kind), Ok)?;
    Ok(answer.at(read.view.table_index::<Deployments>()))
}

/// The row of the deployment in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    Ok([Interest::row::<Deployments>(id.as_str())]
        .into_iter()
        .collect())
}

/// Whether the deployment in the path may be seen. One that may not is as one that is not there.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    named_readable(read, &read.request.segment(2)?)
}

/// The same where the path goes on before its id.
pub(in crate::http) fn allocations_readable(read: &Read<'_>) -> Result<(), Refusal> {
    named_readable(read, &read.request.segment(3)?)
}

fn named_readable(read: &Read<'_>, id: &str) -> Result<(), Refusal> {
    let found = read.view.get::<Deployments>(id).map_err(storage)?;
    let hidden = || Refusal::not_found("deployment not found");
    gate::object_there(read, found.map(|row| row.namespace), hidden)
}

/// `GET /v1/deployment/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let deployment = read.view.get::<Deployments>(id.as_str()).map_err(storage)?;
    let deployment = deployment.ok_or_else(|| Refusal::not_found("deployment not found"))?;
    Ok(Answer::json(&deployment)?.at(deployment.modify_index))
}

/// The allocations of the deployment in the path.
pub(in crate::http) fn watched_allocs(
    request: &Request,
) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(3)?;
    let group = Interest::group::<AllocsByDeployment>(id.as_str());
    Ok([group].into_iter().collect())
}

/// `GET /v1/deployment/allocations/:id`.
pub(in crate::http) fn allocations(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let rows =
        list::of_index::<AllocsByDeployment>(read, Scan::with_key_prefix::<Id>(id.as_str()))?;
    crate::http::allocations::stubs_of(read, rows, |_| Ok(true))
}
