//! What answers under `/v1/job/`, by the ending of a path (`src/http/job_path.rs`).

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::{
    allocs, deployments, evals, job_submissions, job_versions, services,
};
use drover_projections::watch::Interest;
use drover_projections::{Index, Table};
use hyper::Method;
use smallvec::SmallVec;

use super::{children, plan, read, scale, tags, versions, write};
use crate::acl::NamespaceCapability as Ns;
use crate::error::{Code, Refusal};
use crate::http::absent;
use crate::http::answer::Answer;
use crate::http::front::{self, Incoming, Reader, Watched};
use crate::http::gate::{Access, READ_JOB, Somewhere, Write};
use crate::http::job_path::{ENDINGS, JobPath};
use crate::http::methods::Methods;
use crate::http::request::Request;
use crate::http::state::Api;

/// Waits for the job's deployments.
const DEPLOYMENTS: Watched = Watched::Within(
    &[deployments::Deployments::ID],
    group_of_job::<deployments::DeploymentsByJob>,
);

/// The id of the job a request is about.
pub(in crate::http) fn job_id(request: &Request) -> Result<String, Refusal> {
    JobPath::of(&request.path).map(|path| path.id)
}

fn job_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let key = (request.namespace(), job_id(request)?);
    let key = (key.0, key.1.as_str());
    Ok([Interest::row::<Jobs>(key)].into_iter().collect())
}

fn summary_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = job_id(request)?;
    let key = (request.namespace(), id.as_str());
    Ok([Interest::row::<JobSummaries>(key)].into_iter().collect())
}

/// Waits for any row of the job in an index.
fn group_of_job<I>(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal>
where
    I: Index<Group = (String, String)>,
{
    let id = job_id(request)?;
    let group = Interest::group::<I>((request.namespace(), id.as_str()));
    Ok([group].into_iter().collect())
}

/// The read behind an ending.
fn reader(ending: &str) -> Option<(Access, Watched, Reader)> {
    let (watched, run): (Watched, Reader) = match ending {
        "" => (Watched::Rows(job_row), read::get),
        "summary" => (Watched::Rows(summary_row), read::summary),
        "allocations" => (
            Watched::Within(&[allocs::Allocs::ID], group_of_job::<allocs::AllocsByJob>),
            read::allocations,
        ),
        "evaluations" => (
            Watched::Within(&[evals::Evals::ID], group_of_job::<evals::EvalsByJob>),
            read::evaluations,
        ),
        "versions" => (
            Watched::Tables(&[job_versions::JobVersions::ID]),
            versions::versions,
        ),
        "deployments" => (DEPLOYMENTS, read::deployments),
        "deployment" => (DEPLOYMENTS, read::deployment),
        "submission" => (
            Watched::Tables(&[job_submissions::JobSubmissions::ID]),
            read::submission,
        ),
        "services" => (
            Watched::Within(
                &[services::Services::ID],
                group_of_job::<services::ServicesByJob>,
            ),
            read::services,
        ),
        "scale" => (
            Watched::Within(scale::TABLES, scale::watched),
            scale::status,
        ),
        "actions" => (Watched::Rows(job_row), tags::actions),
        _ => return None,
    };
    let access = match ending {
        "scale" => Access::Namespace(&[Ns::ReadJob, Ns::ReadJobScaling]),
        _ => Access::Namespace(READ_JOB),
    };
    Some((access, watched, run))
}

/// What a write by an ending requires of its caller; none where there is no such write.
fn write_access(ending: &str, deletes: bool) -> Option<Access> {
    Some(match (ending, deletes) {
        ("", false) => Access::Late(
            "submit-job or register-job; PolicyOverride: sentinel-override too",
            Somewhere::Namespace(write::REGISTER),
        ),
        ("", true) => Access::Late(
            "submit-job, deregister-job or, to purge, purge-job",
            Somewhere::Namespace(&[Ns::SubmitJob, Ns::DeregisterJob, Ns::PurgeJob]),
        ),
        ("plan", false) => Access::Late(
            "submit-job or plan-job",
            Somewhere::Namespace(&[Ns::SubmitJob, Ns::PlanJob]),
        ),
        ("evaluate", false) => Access::Namespace(&[Ns::SubmitJob, Ns::EvaluateJob]),
        ("stable", false) => Access::Namespace(&[Ns::SubmitJob, Ns::StableJob]),
        ("revert", false) => Access::Namespace(&[Ns::SubmitJob, Ns::RevertJob]),
        ("scale", false) => Access::Namespace(&[Ns::ScaleJob, Ns::SubmitJob]),
        ("dispatch" | "dispatch/payload", false) => Access::Namespace(&[Ns::DispatchJob]),
        ("periodic/force", false) => {
            Access::Namespace(&[Ns::DispatchJob, Ns::SubmitJob, Ns::ForcePeriodicJob])
        }
        ("tag", _) => Access::Namespace(&[Ns::SubmitJob, Ns::TagJobVersion]),
        _ => return None,
    })
}

/// All that is answered under `/v1/job/`: the ending, the methods, what is required of the caller.
pub(in crate::http) fn listed() -> impl Iterator<Item = (&'static str, Methods, Access)> {
    let endings = || [""].into_iter().chain(ENDINGS);
    let reads = endings().filter_map(|ending| {
        let (access, ..) = reader(ending)?;
        Some((ending, Methods::Get, access))
    });
    let writes = |(methods, deletes)| {
        endings().filter_map(move |ending| {
            let access = write_access(ending, deletes)?;
            Some((ending, methods, access))
        })
    };
    let writes = [(Methods::Put, false), (Methods::Delete, true)].map(writes);
    reads.chain(writes.into_iter().flatten())
}

/// What a blocking read under `/v1/job/` waits for.
#[cfg(test)]
pub(in crate::http) fn watched(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    match reader(JobPath::of(&request.path)?.ending) {
        Some((_, Watched::Within(_, named) | Watched::Rows(named), _)) => named(request),
        _ => Ok(SmallVec::new()),
    }
}

/// Serves any request under `/v1/job/`.
pub(in crate::http) async fn route(State(api): State<Arc<Api>>, incoming: Incoming) -> Response {
    let ending = JobPath::of(incoming.uri().path()).map_or("", |p| p.ending);
    let puts = matches!(*incoming.method(), Method::PUT | Method::POST);
    let deletes = *incoming.method() == Method::DELETE;
    // Nomad does not look at the method of a request for a summary.
    let reads = matches!(*incoming.method(), Method::GET | Method::HEAD)
        || ending == "summary" && (puts || deletes);
    if reads && let Some((access, watched, run)) = reader(ending) {
        return front::read(api, incoming, access, watched, run).await;
    }
    let Some(access) = write_access(ending, deletes).filter(|_| puts || deletes) else {
        return front::write(api, incoming, Access::Anyone, refuse).await;
    };
    match ending {
        "" if deletes => front::late(api, incoming, access, write::deregister).await,
        "" => front::late(api, incoming, access, write::update).await,
        "plan" => front::late(api, incoming, access, plan::plan).await,
        "evaluate" => front::write(api, incoming, access, write::evaluate).await,
        "stable" => front::write(api, incoming, access, write::stable).await,
        "revert" => front::write(api, incoming, access, write::revert).await,
        "scale" => front::write(api, incoming, access, scale::scale).await,
        "dispatch" => front::write(api, incoming, access, children::dispatch).await,
        "dispatch/payload" => front::write(api, incoming, access, children::dispatch_payload).await,
        "periodic/force" => front::write(api, incoming, access, children::force).await,
        _ => front::write(api, incoming, access, tags::tag).await,
    }
}

/// Methods and endings that are none, and the one of later.
async fn refuse(write: Write) -> Result<Answer, Refusal> {
    let path = JobPath::of(&write.request.path)?;
    if path.ending == "action" {
        let advice = "GET /v1/job/:id/actions lists them; a shell on the node runs them";
        return Err(absent::unsupported("running actions of tasks is", advice));
    }
    Err(Refusal::new(Code::MethodNotAllowed, "Invalid method"))
}
