//! Reads of one job and what belongs to it.

use drover_events::gojson::{self, List};
use drover_events::model::{Deployment, Job, JobDiff};
use drover_projections::tables::allocs::{Allocs, AllocsByJob};
use drover_projections::tables::deployments::{Deployments, DeploymentsByJob};
use drover_projections::tables::evals::{Evals, EvalsByJob};
use drover_projections::tables::job_submissions::JobSubmissions;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Scan, Table as _};

use super::path::job_id;
use crate::error::ApiError;
use crate::http::allocations::AllocStubs;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::list::storage;
use crate::http::pieces::Pieces;
use crate::scheduler::diff::job_diff;

/// The job a request names; 404 when there is none.
fn job(read: &Read<'_>) -> Result<Option<Job>, ApiError> {
    let id = job_id(read.request)?;
    read.view
        .get::<Jobs>((read.request.namespace(), id.as_str()))
        .map_err(storage)
}

fn missing() -> ApiError {
    ApiError::not_found("job not found")
}

/// `GET /v1/job/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str());
    // No stored name holds a zero byte, so no two jobs share a name here.
    let name = format!("{}\0{id}", key.0);
    let modified = || {
        let found = read.view.modified::<Jobs>(key).map_err(storage)?;
        found.ok_or_else(missing)
    };
    read.api
        .rendered
        .answer(read, (Jobs::ID, &name), modified, || {
            let job = job(read)?.ok_or_else(missing)?;
            gojson::to_vec(&job).map_err(|error| ApiError::internal(error.to_string()))
        })
}

/// `GET /v1/job/:id/summary`.
pub(super) fn summary(read: &Read<'_>) -> Result<Answer, ApiError> {
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
pub(super) fn allocations(read: &Read<'_>) -> Result<Answer, ApiError> {
    let all = read.request.query.flag("all")?;
    let id = job_id(read.request)?;
    let current = job(read)?;
    let mut stubs = AllocStubs::new(&read.view, false);
    for row in read
        .view
        .by_index::<AllocsByJob>((read.request.namespace(), id.as_str()))
    {
        let row = row.map_err(storage)?;
        if all || stubs.belongs_to(&row, current.as_ref())? {
            stubs.push(row)?;
        }
    }
    Ok(stubs.finish().at(read.view.table_index::<Allocs>()))
}

/// `GET /v1/job/:id/evaluations`.
pub(super) fn evaluations(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = job_id(read.request)?;
    let mut pieces = Pieces::default();
    let newest_first = Scan::group::<(String, String)>((read.request.namespace(), id.as_str()));
    for eval in read
        .view
        .by_index_scan::<EvalsByJob>(newest_first.reverse())
    {
        pieces.push(&eval.map_err(storage)?)?;
    }
    Ok(Answer::pieces(pieces.finish()).at(read.view.table_index::<Evals>()))
}

/// The deployments of the job a request names, newest first; of this incarnation unless `all`.
fn deployments_of(read: &Read<'_>, all: bool) -> Result<Vec<Deployment>, ApiError> {
    let id = job_id(read.request)?;
    let current = job(read)?;
    let scan = Scan::group::<(String, String)>((read.request.namespace(), id.as_str())).reverse();
    let mut found = Vec::new();
    for deployment in read.view.by_index_scan::<DeploymentsByJob>(scan) {
        let deployment = deployment.map_err(storage)?;
        let own = current
            .as_ref()
            .is_none_or(|j| j.create_index == deployment.job_create_index);
        if all || own {
            found.push(deployment);
        }
    }
    Ok(found)
}

/// `GET /v1/job/:id/deployments`.
pub(super) fn deployments(read: &Read<'_>) -> Result<Answer, ApiError> {
    let all = read.request.query.flag("all")?;
    Ok(Answer::json(&deployments_of(read, all)?)?.at(read.view.table_index::<Deployments>()))
}

/// `GET /v1/job/:id/deployment`: the newest one, or `null`.
pub(super) fn deployment(read: &Read<'_>) -> Result<Answer, ApiError> {
    let newest = deployments_of(read, false)?.into_iter().next();
    Ok(Answer::json(&newest)?.at(read.view.table_index::<Deployments>()))
}

drover_events::wire! {
    /// The versions of a job, newest first.
    pub(super) struct JobVersionsResponse {
        versions: List<Job> = "Versions",
        diffs: List<JobDiff> = "Diffs",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// What each version changed: from the one before it, or from the one that the request names by
/// number or tag.
fn diffs(read: &Read<'_>, versions: &[Job]) -> Result<List<JobDiff>, ApiError> {
    let query = &read.request.query;
    let number: Option<u64> = query.number("diff_version")?;
    let base = match (query.text("diff_tag"), number) {
        ("", None) => {
            let pairs = versions.windows(2);
            let diffs = pairs.map(|pair| job_diff(Some(&pair[1]), Some(&pair[0]), false));
            let diffs: Vec<JobDiff> = diffs.collect();
            return Ok(Some(diffs).filter(|diffs| !diffs.is_empty()).into());
        }
        ("", Some(number)) => versions
            .iter()
            .find(|job| job.version == number)
            .ok_or_else(|| ApiError::refused(format!("version {number} not found")))?,
        (tag, _) => versions
            .iter()
            .find(|job| job.version_tag.as_ref().is_some_and(|t| t.name == tag))
            .ok_or_else(|| ApiError::refused(format!("tag \"{tag}\" not found")))?,
    };
    let others = versions.iter().filter(|job| job.version != base.version);
    Ok(others
        .map(|job| job_diff(Some(base), Some(job), false))
        .collect())
}

/// `GET /v1/job/:id/versions`.
pub(super) fn versions(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = job_id(read.request)?;
    let scan = Scan::prefix(
        drover_projections::Prefix::new()
            .str(read.request.namespace())
            .str(&id),
    );
    let versions = read.view.scan::<JobVersions>(scan.reverse());
    let versions = versions.collect::<Result<Vec<Job>, _>>().map_err(storage)?;
    let Some(newest) = versions.first() else {
        return Err(ApiError::not_found("job versions not found"));
    };
    let index = newest.modify_index;
    let diffs = if read.request.query.flag("diffs")? {
        diffs(read, &versions)?
    } else {
        List::nil()
    };
    let answer = JobVersionsResponse {
        index,
        known_leader: read.api.agent.leader().is_some(),
        versions: versions.into(),
        diffs,
        ..JobVersionsResponse::default()
    };
    Ok(Answer::json(&answer)?.at(index))
}

/// `GET /v1/job/:id/submission`.
pub(super) fn submission(read: &Read<'_>) -> Result<Answer, ApiError> {
    let version: u64 =
        read.request.query.text("version").parse().map_err(|_| {
            ApiError::bad_request("Unable to parse job submission version parameter")
        })?;
    let id = job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str(), version);
    let submission = read.view.get::<JobSubmissions>(key).map_err(storage)?;
    let submission = submission.ok_or_else(|| ApiError::not_found("job source not found"))?;
    Ok(Answer::json(&submission)?.at(submission.job_modify_index))
}
