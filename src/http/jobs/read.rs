//! Reads of one job and what belongs to it.

use drover_events::gojson;
use drover_events::model::{Deployment, Job};
use drover_projections::tables::allocs::AllocsByJob;
use drover_projections::tables::deployments::{Deployments, DeploymentsByJob};
use drover_projections::tables::evals::{Evals, EvalsByJob};
use drover_projections::tables::job_submissions::JobSubmissions;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::services::ServicesByJob;
use drover_projections::{Scan, Table as _};

use super::path::job_id;
use crate::error::Refusal;
use crate::http::allocations::belongs_to;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::list::{self, storage};
use crate::http::services;
use crate::http::sight::{Keyed, Rows};

/// The job a request names; 404 when there is none.
fn job(read: &Read<'_>) -> Result<Option<Job>, Refusal> {
    let id = job_id(read.request)?;
    read.view
        .get::<Jobs>((read.request.namespace(), id.as_str()))
        .map_err(storage)
}

fn missing() -> Refusal {
    Refusal::not_found("job not found")
}

/// `GET /v1/job/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str());
    // No stored name holds a zero byte, so no two jobs share a name here.
    let name = format!("{}\0{id}", key.0);
    let modified = || {
        let found = read.view.modify_index::<Jobs>(key).map_err(storage)?;
        found.ok_or_else(missing)
    };
    read.api
        .rendered
        .answer(read, (Jobs::ID, &name), modified, || {
            let job = job(read)?.ok_or_else(missing)?;
            gojson::to_vec(&job).map_err(|error| Refusal::internal(error.to_string()))
        })
}

/// `GET /v1/job/:id/summary`.
pub(super) fn summary(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str());
    let summary = read
        .view
        .get::<JobSummaries>(key)
        .map_err(storage)?
        .ok_or_else(missing)?;
    Ok(Answer::json(&summary)?.at(summary.modify_index))
}

/// `GET /v1/job/:id/allocations`.
pub(super) fn allocations(read: &Read<'_>) -> Result<Answer, Refusal> {
    let all = read.request.query.flag("all")?;
    let id = job_id(read.request)?;
    let current = job(read)?;
    let rows = list::of_index::<AllocsByJob>(read, of_job(read, &id))?;
    crate::http::allocations::stubs_of(read, rows, |row| {
        Ok(all || belongs_to(read.view.unfiltered(), row, current.as_ref())?)
    })
}

/// What an index has under a job.
fn of_job(read: &Read<'_>, id: &str) -> Scan {
    Scan::with_key_prefix::<(String, String)>((read.request.namespace(), id))
}

/// `GET /v1/job/:id/evaluations`.
pub(super) fn evaluations(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = job_id(read.request)?;
    let filter = list::filter(read.options)?;
    let newest_first = of_job(read, &id).reverse();
    let rows = list::of_index::<EvalsByJob>(read, newest_first)?.of_route();
    let answer = list::render_whole(read.options, rows, |eval| {
        Ok(list::matches(filter.as_ref(), &eval)?.then_some(eval))
    })?;
    Ok(answer.at(read.view.table_index::<Evals>()))
}

/// The deployments of the job a request names, newest first, and whether each is of this
/// incarnation.
type DeploymentsOf<'v> = (
    Rows<'v, Keyed<Deployment>>,
    Box<dyn Fn(&Deployment) -> bool>,
);

fn deployments_of<'v>(read: &'v Read<'_>) -> Result<DeploymentsOf<'v>, Refusal> {
    let id = job_id(read.request)?;
    let current = job(read)?.map(|job| job.create_index);
    let rows = list::of_index::<DeploymentsByJob>(read, of_job(read, &id).reverse())?;
    let rows = rows.of_route();
    let own = move |d: &Deployment| current.is_none_or(|created| created == d.job_create_index);
    Ok((rows, Box::new(own)))
}

/// `GET /v1/job/:id/deployments`: of this incarnation of the job unless `all`.
pub(super) fn deployments(read: &Read<'_>) -> Result<Answer, Refusal> {
    let all = read.request.query.flag("all")?;
    let filter = list::filter(read.options)?;
    let (rows, own) = deployments_of(read)?;
    let answer = list::render_whole(read.options, rows, |found| {
        let wanted = (all || own(&found)) && list::matches(filter.as_ref(), &found)?;
        Ok(wanted.then_some(found))
    })?;
    Ok(answer.at(read.view.table_index::<Deployments>()))
}

/// `GET /v1/job/:id/deployment`: the newest one, or `null`.
pub(super) fn deployment(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (rows, own) = deployments_of(read)?;
    let mut newest = None;
    for row in rows {
        let (_, found) = row.map_err(storage)?;
        if own(&found) {
            newest = Some(found);
            break;
        }
    }
    Ok(Answer::json(&newest)?.at(read.view.table_index::<Deployments>()))
}

/// `GET /v1/job/:id/submission`.
pub(super) fn submission(read: &Read<'_>) -> Result<Answer, Refusal> {
    let version: u64 =
        read.request.query.text("version").parse().map_err(|_| {
            Refusal::bad_request("Unable to parse job submission version parameter")
        })?;
    let id = job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str(), version);
    let submission = read.view.get::<JobSubmissions>(key).map_err(storage)?;
    let submission = submission.ok_or_else(|| Refusal::not_found("job source not found"))?;
    Ok(Answer::json(&submission)?.at(submission.job_modify_index))
}

/// `GET /v1/job/:id/services`.
pub(super) fn services(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = job_id(read.request)?;
    let key = (read.options.namespace.as_str(), id.as_str());
    if read.view.get::<Jobs>(key).map_err(storage)?.is_none() {
        return Err(Refusal::not_found("job not found"));
    }
    let rows =
        list::of_index::<ServicesByJob>(read, Scan::with_key_prefix::<(String, String)>(key))?;
    services::of(read, rows)
}
