//! The route table: every path of the API, its methods and its handlers, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, get as axum_get, on};
use drover_projections::Table;
use drover_projections::tables::{
    allocs::Allocs, deployments::Deployments, evals::Evals, job_summaries::JobSummaries,
    jobs::Jobs, namespaces::Namespaces, node_pools::NodePools, root_keys::RootKeys,
    services::Services, variables::Variables,
};

use super::front::{self, Incoming, Reader, Watched, Write};
use super::state::Api;
use super::{
    agent, allocations, answer::Answer, deployments, evaluations, jobs, namespaces, nodes,
    operator, search, services, stream, variables,
};
use crate::error::ApiError;

type Routes = MethodRouter<Arc<Api>>;

/// GET (and HEAD) by a read handler.
fn get(watched: Watched, run: Reader) -> Routes {
    axum_get(move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::read(api, incoming, watched, run)
    })
}

/// Some methods by a handler that reads the body.
fn body<F, Fut>(methods: MethodFilter, run: F) -> Routes
where
    F: Fn(Write) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ApiError>> + Send + 'static,
{
    on(
        methods,
        move |State(api): State<Arc<Api>>, incoming: Incoming| front::write(api, incoming, run),
    )
}

/// PUT and POST, which Nomad takes as the same.
const PUT: MethodFilter = MethodFilter::PUT.or(MethodFilter::POST);

/// Every route of the API.
pub fn router(api: Arc<Api>) -> Router {
    use Watched::{Nothing, Rows, Tables};
    let evals = Tables(&[Evals::ID]);
    let allocs = Tables(&[Allocs::ID]);
    Router::new()
        // Jobs
        .route(
            "/v1/jobs",
            get(Tables(&[Jobs::ID, JobSummaries::ID]), jobs::list),
        )
        .route("/v1/job/{*rest}", any(jobs::route))
        // Allocations, evaluations, deployments
        .route("/v1/allocations", get(allocs, allocations::list))
        .route(
            "/v1/allocation/{id}",
            get(Rows(allocations::watched_row), allocations::get),
        )
        .route(
            "/v1/allocation/{id}/services",
            get(Tables(&[Services::ID]), allocations::services),
        )
        .route("/v1/evaluations", get(evals, evaluations::list))
        .route("/v1/evaluations/count", get(evals, evaluations::count))
        .route(
            "/v1/evaluation/{id}",
            get(Rows(evaluations::watched_row), evaluations::get),
        )
        .route(
            "/v1/evaluation/{id}/allocations",
            get(allocs, evaluations::allocations),
        )
        .route(
            "/v1/deployments",
            get(Tables(&[Deployments::ID]), deployments::list),
        )
        .route(
            "/v1/deployment/{id}",
            get(Rows(deployments::watched_row), deployments::get),
        )
        .route(
            "/v1/deployment/allocations/{id}",
            get(allocs, deployments::allocations),
        )
        // Nodes and node pools
        .route("/v1/nodes", get(Tables(nodes::TABLES), nodes::list))
        .route("/v1/node/{id}", get(Rows(nodes::watched_rows), nodes::get))
        .route("/v1/node/{id}/allocations", get(allocs, nodes::allocations))
        .route(
            "/v1/node/pools",
            get(Tables(&[NodePools::ID]), namespaces::pools),
        )
        .route(
            "/v1/node/pool/{name}",
            get(Rows(namespaces::watched_pool), namespaces::pool),
        )
        .route(
            "/v1/node/pool/{name}/nodes",
            get(Tables(nodes::TABLES), namespaces::pool_nodes),
        )
        .route(
            "/v1/node/pool/{name}/jobs",
            get(Tables(&[Jobs::ID]), namespaces::pool_jobs),
        )
        // Namespaces, variables, services
        .route(
            "/v1/namespaces",
            get(Tables(&[Namespaces::ID]), namespaces::list),
        )
        .route(
            "/v1/namespace/{name}",
            get(Rows(namespaces::watched_row), namespaces::get),
        )
        .route("/v1/vars", get(Tables(&[Variables::ID]), variables::list))
        .route(
            "/v1/var/{*path}",
            get(Rows(variables::watched_row), variables::get),
        )
        .route("/v1/services", get(Tables(&[Services::ID]), services::list))
        .route(
            "/v1/service/{*name}",
            get(Tables(&[Services::ID]), services::get),
        )
        .route("/v1/search", body(PUT, search::prefix))
        // The agent and its cluster
        .route("/v1/status/leader", get(Nothing, agent::leader))
        .route("/v1/status/peers", get(Nothing, agent::peers))
        .route("/v1/regions", get(Nothing, agent::regions))
        .route("/v1/agent/self", get(Nothing, agent::describe))
        .route("/v1/agent/members", get(Nothing, agent::members))
        .route("/v1/agent/health", get(Nothing, agent::health))
        .route("/v1/metrics", get(Nothing, agent::metrics))
        .route(
            "/v1/operator/raft/configuration",
            get(Nothing, operator::raft_configuration),
        )
        .route(
            "/v1/operator/scheduler/configuration",
            get(Nothing, operator::scheduler_configuration),
        )
        .route(
            "/v1/operator/keyring/keys",
            get(Tables(&[RootKeys::ID]), operator::keys),
        )
        .route("/v1/operator/digests", get(Nothing, operator::digests))
        .route("/v1/operator/reactors", get(Nothing, operator::reactors))
        .route("/.well-known/jwks.json", get(Nothing, operator::jwks))
        .route("/v1/event/stream", body(MethodFilter::GET, stream::serve))
        // Everything else
        .route("/", axum_get(root))
        .route("/ui/", axum_get(ui))
        .method_not_allowed_fallback(wrong_method)
        .fallback(nothing_here)
        .with_state(api)
}

/// An unknown path: 404 with an empty body.
async fn nothing_here() -> StatusCode {
    StatusCode::NOT_FOUND
}

async fn wrong_method() -> Response {
    let text = [(header::CONTENT_TYPE, super::answer::TEXT)];
    (StatusCode::METHOD_NOT_ALLOWED, text, "Invalid method").into_response()
}

/// Browsers are sent to the user interface.
async fn root(incoming: Incoming) -> Response {
    let query = incoming
        .uri()
        .query()
        .map(|q| format!("?{q}"))
        .unwrap_or_default();
    let place = [(header::LOCATION, format!("/ui/{query}"))];
    (StatusCode::TEMPORARY_REDIRECT, place).into_response()
}

async fn ui() -> Response {
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let page =
        "<!DOCTYPE html><html><body>The user interface is not part of this server.</body></html>";
    (html, page).into_response()
}
