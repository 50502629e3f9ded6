//! The route table, first part: jobs, and what becomes of them.

use axum::routing::any;
use drover_projections::Table as _;
use drover_projections::tables::{
    allocs::Allocs, deployments::Deployments, evals::Evals, job_summaries::JobSummaries,
    jobs::Jobs, services::Services,
};

use super::Methods::{Delete, Get, OnlyPost, Put};
use super::{RouteTable, call, get, get_near, late, query, streamed};
use crate::http::front::Watched::{NeverBlocks, Rows, Tables, Within};
use crate::http::gate::Access::{Anyone, Management, Namespace, Object};
use crate::http::gate::{LIST_JOBS, READ_JOB, Somewhere};
use crate::http::{allocations, client, deployments, evaluations, explain, job_path, jobs};

/// The table of lists of allocations.
pub(super) const ALLOCS: &[u16] = &[Allocs::ID];

/// Jobs, and what becomes of them: allocations, evaluations.
pub(super) fn workloads(table: RouteTable) -> RouteTable {
    let jobs = Tables(&[Jobs::ID, JobSummaries::ID]);
    let statuses = Tables(jobs::statuses::TABLES);
    table
        .route(
            "/v1/jobs",
            [
                get_near(Namespace(LIST_JOBS), jobs, jobs::near_list, jobs::list),
                late(
                    Put,
                    (
                        "submit-job or register-job",
                        Somewhere::Namespace(jobs::REGISTER),
                    ),
                    jobs::register,
                ),
            ],
        )
        .route(
            "/v1/jobs/statuses",
            [
                get(Namespace(READ_JOB), statuses, jobs::statuses::all),
                query(OnlyPost, Anyone, statuses, jobs::statuses::named),
            ],
        )
        .route(
            "/v1/jobs/parse",
            [call(Put, Namespace(jobs::PARSE), jobs::parse)],
        )
        .route(
            "/v1/validate/job",
            [late(
                Put,
                ("read-job", Somewhere::Namespace(READ_JOB)),
                jobs::validate,
            )],
        )
        .below(
            job_path::ROUTE,
            "/v1/job/{id}",
            jobs::listed(),
            any(jobs::route),
        )
}

/// Allocations.
pub(super) fn allocated(table: RouteTable) -> RouteTable {
    let allocs = Tables(ALLOCS);
    table
        .route(
            "/v1/allocations",
            [get_near(
                Namespace(READ_JOB),
                allocs,
                allocations::near_list,
                allocations::list,
            )],
        )
        .route(
            "/v1/allocation/{id}",
            [get(
                Object("read-job", allocations::readable),
                Rows(allocations::watched_row),
                allocations::get,
            )],
        )
        .route(
            "/v1/allocation/{id}/stop",
            [late(
                Put,
                ("alloc-lifecycle", Somewhere::Anything),
                allocations::write::stop,
            )],
        )
        .route(
            "/v1/allocation/{id}/services",
            [get(
                Object("read-job", allocations::readable),
                Tables(&[Services::ID]),
                allocations::services,
            )],
        )
        .route(
            "/v1/allocation/{id}/checks",
            [late(
                Get,
                ("read-job", Somewhere::Namespace(READ_JOB)),
                client::checks,
            )],
        )
}

/// Evaluations.
pub(super) fn evaluated(table: RouteTable) -> RouteTable {
    let evals = Tables(&[Evals::ID]);
    let readable = Object("read-job", evaluations::readable);
    table
        .route(
            "/v1/evaluations",
            [
                get(Namespace(READ_JOB), evals, evaluations::list),
                call(Delete, Management, evaluations::write::delete),
            ],
        )
        .route(
            "/v1/evaluations/count",
            [get(Namespace(READ_JOB), evals, evaluations::count)],
        )
        .route(
            "/v1/evaluation/{id}",
            [get(
                readable,
                Rows(evaluations::watched_row),
                evaluations::get,
            )],
        )
        .route(
            "/v1/evaluation/{id}/explain",
            [get(
                Object("read-job", explain::readable),
                NeverBlocks,
                explain::get,
            )],
        )
        .route(
            "/v1/evaluation/{id}/allocations",
            [get(
                readable,
                Within(ALLOCS, evaluations::watched_allocs),
                evaluations::allocations,
            )],
        )
}

/// Deployments, and the stream of everything that happens.
pub(super) fn rollouts(table: RouteTable) -> RouteTable {
    let rows = Tables(&[Deployments::ID]);
    table
        .route(
            "/v1/deployments",
            [get(Namespace(READ_JOB), rows, deployments::list)],
        )
        .route(
            "/v1/deployment/{id}",
            [get(
                Object("read-job", deployments::readable),
                Rows(deployments::watched_row),
                deployments::get,
            )],
        )
        .route(
            "/v1/deployment/allocations/{id}",
            [get(
                Object("read-job", deployments::allocations_readable),
                Within(ALLOCS, deployments::watched_allocs),
                deployments::allocations,
            )],
        )
}

/// Changes of deployments, and the stream of everything that happens.
pub(super) fn promoted(table: RouteTable) -> RouteTable {
    table
        .route(
            "/v1/deployment/fail/{id}",
            [late(
                Put,
                ("submit-job or fail-deployment", Somewhere::Anything),
                deployments::write::fail,
            )],
        )
        .route(
            "/v1/deployment/pause/{id}",
            [late(
                Put,
                ("submit-job or pause-deployment", Somewhere::Anything),
                deployments::write::pause,
            )],
        )
        .route(
            "/v1/deployment/promote/{id}",
            [late(
                Put,
                ("submit-job or promote-deployment", Somewhere::Anything),
                deployments::write::promote,
            )],
        )
        .route(
            "/v1/deployment/unblock/{id}",
            [late(
                Put,
                ("submit-job or unblock-deployment", Somewhere::Anything),
                deployments::write::unblock,
            )],
        )
        .route(
            "/v1/deployment/allocation-health/{id}",
            [late(
                Put,
                (
                    "submit-job or set-alloc-health-deployment",
                    Somewhere::Anything,
                ),
                deployments::write::health,
            )],
        )
        .route(
            "/v1/event/stream",
            [streamed(("by topic, event by event", Somewhere::Anything))],
        )
}
