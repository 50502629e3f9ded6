//! The route table: every path of the API, its methods and its handlers, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, get as axum_get, on};
use drover_projections::Table as _;
use drover_projections::tables::{
    allocs::Allocs, deployments::Deployments, evals::Evals, job_summaries::JobSummaries,
    jobs::Jobs, namespaces::Namespaces, node_pools::NodePools, root_keys::RootKeys,
    services::Services, variables::Variables,
};

use super::answer::Answer;
use super::front::{self, Incoming, Near, Reader, Watched, Write};
use super::state::Api;
use super::{
    absent, agent, allocations, audit, autopilot, client, cors, deployments, evaluations, explain,
    jobs, log, lost, measure, namespaces, node_pools, nodes, operator, projections, requests,
    scaling, schema, search, services, snapshot, stream, system, variables,
};
use crate::error::ApiError;
use Watched::{Nothing, Now, Rows, Tables, Within};

type Routes = MethodRouter<Arc<Api>>;

/// GET (and HEAD) by a read handler.
fn get(watched: Watched, run: Reader) -> Routes {
    axum_get(move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::read(api, incoming, watched, run)
    })
}

/// GET (and HEAD) by a read handler, or from what is in memory.
fn get_near(watched: Watched, near: Near, run: Reader) -> Routes {
    axum_get(move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::read_near(api, incoming, watched, near, run)
    })
}

/// Some methods by a read handler whose wishes stand in the body.
fn query(methods: MethodFilter, watched: Watched, run: Reader) -> Routes {
    on(
        methods,
        move |State(api): State<Arc<Api>>, incoming: Incoming| {
            front::query(api, incoming, watched, run)
        },
    )
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

/// Some methods by a handler that takes the body as it comes.
fn upload<F, Fut>(methods: MethodFilter, run: F) -> Routes
where
    F: Fn(Write, axum::body::Body) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ApiError>> + Send + 'static,
{
    on(
        methods,
        move |State(api): State<Arc<Api>>, incoming: Incoming| front::upload(api, incoming, run),
    )
}

/// Some methods that this version has not, and what to do instead.
fn later(methods: MethodFilter, advice: &'static str) -> Routes {
    body(methods, move |write| absent::later(write, advice))
}

/// PUT and POST, which Nomad takes as the same.
const PUT: MethodFilter = MethodFilter::PUT.or(MethodFilter::POST);

/// Where Nomad takes any method.
const ANY: MethodFilter = PUT.or(MethodFilter::GET).or(MethodFilter::DELETE);

/// DELETE by a handler that may read a body.
const DELETE: MethodFilter = MethodFilter::DELETE;

type Table = Router<Arc<Api>>;

/// Every route of the API.
pub fn router(api: Arc<Api>) -> Router {
    workloads(Router::new())
        .merge(rollouts(Router::new()))
        .merge(machines(Router::new()))
        .merge(settings(Router::new()))
        .merge(cluster(Router::new()))
        .merge(history(Router::new()))
        .merge(trails(Router::new()))
        .merge(elsewhere(Router::new()))
        .route("/", axum_get(root))
        .route("/ui/", axum_get(ui))
        .method_not_allowed_fallback(wrong_method)
        .fallback(lost::nothing_here)
        .layer(axum::middleware::from_fn(measure::count))
        .with_state(api)
}

/// The table of lists of allocations.
const ALLOCS: &[u16] = &[Allocs::ID];

/// Jobs, and what becomes of them: allocations, evaluations.
fn workloads(table: Table) -> Table {
    let jobs = Tables(&[Jobs::ID, JobSummaries::ID]);
    let evals = Tables(&[Evals::ID]);
    let allocs = Tables(ALLOCS);
    table
        .route(
            "/v1/jobs",
            get_near(jobs, jobs::near_list, jobs::list).merge(body(PUT, jobs::register)),
        )
        .route(
            "/v1/jobs/statuses",
            get(Tables(jobs::statuses::TABLES), jobs::statuses::all).merge(query(
                MethodFilter::POST,
                Tables(jobs::statuses::TABLES),
                jobs::statuses::named,
            )),
        )
        .route("/v1/jobs/parse", body(PUT, jobs::parse))
        .route("/v1/validate/job", body(PUT, jobs::validate))
        .route("/v1/job/{*rest}", any(jobs::route))
        .route(
            "/v1/allocations",
            get_near(allocs, allocations::near_list, allocations::list),
        )
        .route(
            "/v1/allocation/{id}",
            get(Rows(allocations::watched_row), allocations::get),
        )
        .route("/v1/allocation/{id}/stop", body(PUT, allocations::stop))
        .route(
            "/v1/allocation/{id}/services",
            get(Tables(&[Services::ID]), allocations::services),
        )
        .route(
            "/v1/allocation/{id}/checks",
            body(MethodFilter::GET, client::checks),
        )
        .route(
            "/v1/evaluations",
            get(evals, evaluations::list).merge(body(DELETE, evaluations::delete)),
        )
        .route("/v1/evaluations/count", get(evals, evaluations::count))
        .route(
            "/v1/evaluation/{id}",
            get(Rows(evaluations::watched_row), evaluations::get),
        )
        .route("/v1/evaluation/{id}/explain", get(Nothing, explain::get))
        .route(
            "/v1/evaluation/{id}/allocations",
            get(
                Within(ALLOCS, evaluations::watched_allocs),
                evaluations::allocations,
            ),
        )
}

/// Deployments, and the stream of everything that happens.
fn rollouts(table: Table) -> Table {
    let deployments = Tables(&[Deployments::ID]);
    table
        .route("/v1/deployments", get(deployments, deployments::list))
        .route(
            "/v1/deployment/{id}",
            get(Rows(deployments::watched_row), deployments::get),
        )
        .route(
            "/v1/deployment/allocations/{id}",
            get(
                Within(ALLOCS, deployments::watched_allocs),
                deployments::allocations,
            ),
        )
        .route(
            "/v1/deployment/fail/{id}",
            body(PUT, deployments::write::fail),
        )
        .route(
            "/v1/deployment/pause/{id}",
            body(PUT, deployments::write::pause),
        )
        .route(
            "/v1/deployment/promote/{id}",
            body(PUT, deployments::write::promote),
        )
        .route(
            "/v1/deployment/unblock/{id}",
            body(PUT, deployments::write::unblock),
        )
        .route(
            "/v1/deployment/allocation-health/{id}",
            body(PUT, deployments::write::health),
        )
        .route("/v1/event/stream", body(MethodFilter::GET, stream::serve))
}

/// Nodes and node pools.
fn machines(table: Table) -> Table {
    let pools = Tables(&[NodePools::ID]);
    let nodes = Tables(nodes::TABLES);
    table
        .route("/v1/nodes", get_near(nodes, nodes::near_list, nodes::list))
        .route("/v1/node/{id}", get(Rows(nodes::watched_rows), nodes::get))
        .route(
            "/v1/node/{id}/allocations",
            get(Within(ALLOCS, nodes::watched_allocs), nodes::allocations),
        )
        .route("/v1/node/{id}/drain", body(PUT, nodes::write::drain))
        .route(
            "/v1/node/{id}/eligibility",
            body(PUT, nodes::write::eligibility),
        )
        .route("/v1/node/{id}/purge", body(PUT, nodes::write::purge))
        .route("/v1/node/{id}/evaluate", body(PUT, nodes::write::evaluate))
        .route(
            "/v1/node/pools",
            get(pools, node_pools::list).merge(body(PUT, node_pools::write::upsert)),
        )
        .route(
            "/v1/node/pool/{name}",
            get(Rows(node_pools::watched_row), node_pools::get)
                .merge(body(PUT, node_pools::write::upsert))
                .merge(body(DELETE, node_pools::write::delete)),
        )
        .route("/v1/node/pool/{name}/nodes", get(nodes, node_pools::nodes))
        .route(
            "/v1/node/pool/{name}/jobs",
            get(Tables(&[Jobs::ID]), node_pools::jobs),
        )
}

/// Namespaces, variables, services.
fn settings(table: Table) -> Table {
    let services = Tables(&[Services::ID]);
    table
        .route(
            "/v1/namespaces",
            get(Tables(&[Namespaces::ID]), namespaces::list),
        )
        .route("/v1/namespace", body(PUT, namespaces::write::upsert))
        .route(
            "/v1/namespace/{name}",
            get(Rows(namespaces::watched_row), namespaces::get)
                .merge(body(PUT, namespaces::write::upsert))
                .merge(body(DELETE, namespaces::write::delete)),
        )
        .route("/v1/vars", get(Tables(&[Variables::ID]), variables::list))
        .route(
            "/v1/var/{*path}",
            get(Rows(variables::watched_row), variables::get)
                .merge(body(PUT, variables::write::put))
                .merge(body(DELETE, variables::write::delete)),
        )
        .route("/v1/services", get(services, services::list))
        .route(
            "/v1/service/{*name}",
            get(services, services::get).merge(body(DELETE, services::delete)),
        )
        .route("/v1/search", query(PUT, Nothing, search::prefix))
        .route(
            "/v1/search/fuzzy",
            query(PUT, Nothing, search::fuzzy::fuzzy),
        )
        .route(
            "/v1/scaling/policies",
            get(Tables(scaling::TABLES), scaling::list),
        )
        .route(
            "/v1/scaling/policy/{id}",
            get(Rows(scaling::watched_row), scaling::get),
        )
}

/// The agent, its cluster, and what operators look after.
fn cluster(table: Table) -> Table {
    let scheduler = get(Nothing, operator::scheduler_configuration);
    table
        .route("/v1/status/leader", get(Now, agent::leader))
        .route("/v1/status/peers", get(Now, agent::peers))
        .route("/v1/regions", get(Now, agent::regions))
        .route("/v1/agent/self", get(Now, agent::describe))
        .route("/v1/agent/members", get(Now, agent::members))
        .route(
            "/v1/agent/servers",
            get(Now, agent::servers).merge(later(PUT, absent::SERVERS)),
        )
        .route("/v1/agent/health", get(Now, agent::health))
        .route("/v1/agent/reload", body(PUT, agent::reload))
        .route("/v1/metrics", get(Now, agent::metrics))
        .route(
            "/v1/operator/raft/configuration",
            get(Now, operator::raft_configuration),
        )
        .route(
            "/v1/operator/scheduler/configuration",
            scheduler.merge(body(PUT, operator::configure_scheduler)),
        )
        .route(
            "/v1/operator/keyring/keys",
            get(Tables(&[RootKeys::ID]), operator::keys),
        )
        .route(
            "/v1/operator/snapshot",
            body(MethodFilter::GET, snapshot::save).merge(upload(PUT, snapshot::restore)),
        )
        .route("/v1/schema/events", get(Now, schema::index))
        .route("/v1/schema/events/{kind}", get(Now, schema::kind))
        .route("/v1/schema/stream", get(Now, schema::stream))
        .route(
            "/v1/operator/autopilot/configuration",
            get(Nothing, autopilot::configuration)
                .merge(body(MethodFilter::PUT, autopilot::configure)),
        )
        .route("/v1/operator/autopilot/health", get(Now, autopilot::health))
        .route("/v1/operator/digests", get(Nothing, operator::digests))
        .route("/v1/operator/reactors", get(Now, operator::reactors))
        .route("/v1/client/stats", body(MethodFilter::GET, client::stats))
        .route("/v1/client/gc", body(ANY, client::collect_all))
        .route(
            "/v1/client/metadata",
            body(MethodFilter::GET, client::metadata).merge(later(PUT, absent::METADATA)),
        )
        .route(
            "/v1/client/allocation/{id}/{verb}",
            body(ANY, client::allocation),
        )
        .route(
            "/v1/client/fs/{*rest}",
            body(MethodFilter::GET, client::files),
        )
        .route("/v1/system/gc", body(MethodFilter::PUT, system::gc))
        .route(
            "/v1/system/reconcile/summaries",
            body(MethodFilter::PUT, system::reconcile),
        )
        .route("/.well-known/jwks.json", get(Nothing, operator::jwks))
        .route(
            "/.well-known/openid-configuration",
            get(Now, absent::openid),
        )
}

/// The log itself, and the tables that follow from it.
fn history(table: Table) -> Table {
    table
        .route("/v1/log/checkpoint", get(Now, log::checkpoint))
        .route("/v1/log/keys", get(Now, log::keys))
        .route("/v1/log/proof/inclusion", get(Nothing, log::inclusion))
        .route("/v1/log/proof/consistency", get(Nothing, log::consistency))
        .route("/v1/log/tile/{*tile}", get(Nothing, log::tile))
        .route("/v1/log/entries", get(Nothing, log::entries))
        .route("/v1/log/segments", get(Now, log::segments))
        .route("/v1/operator/projections", get(Now, projections::list))
        .route(
            "/v1/operator/projections/rebuild",
            get(Now, projections::status)
                .merge(body(PUT, projections::rebuild))
                .merge(body(DELETE, projections::cancel)),
        )
        .route(
            "/v1/operator/projections/verify",
            get(Now, projections::status)
                .merge(body(PUT, projections::verify))
                .merge(body(DELETE, projections::cancel)),
        )
        .route(
            "/v1/operator/projections/kept",
            body(DELETE, projections::discard),
        )
}

/// Who did what, when and why.
fn trails(table: Table) -> Table {
    table
        .route(
            "/v1/audit",
            get(Nothing, audit::list).merge(query(PUT, Nothing, audit::list)),
        )
        .route("/v1/audit/requests", get(Now, requests::list))
        .route("/v1/audit/trace", get(Nothing, audit::trace))
        .route("/v1/state/diff", get(Nothing, audit::between))
}

/// What this version has none of, or not yet: said in words.
fn elsewhere(table: Table) -> Table {
    let mut table = table
        .route(
            "/v1/volumes",
            get(Tables(absent::VOLUMES), absent::volumes).merge(later(PUT, absent::NO_VOLUMES)),
        )
        .route(
            "/v1/volumes/claims",
            get(Tables(absent::CLAIMS), absent::claims),
        )
        .route("/v1/plugins", get(Tables(absent::PLUGINS), absent::plugins))
        .route(
            "/v1/plugin/csi/{id}",
            get(Tables(absent::PLUGINS), absent::plugin),
        )
        .route("/v1/acl/{*rest}", body(ANY, absent::acl))
        .route(
            "/v1/operator/license",
            get(Now, absent::license).merge(body(PUT, absent::enterprise)),
        );
    for path in ["/v1/volume/csi/{id}", "/v1/volume/host/{id}"] {
        let routes = get(Tables(absent::VOLUMES), absent::volume);
        table = table.route(
            path,
            routes.merge(later(PUT.or(DELETE), absent::NO_VOLUMES)),
        );
    }
    for path in ENTERPRISE {
        table = table.route(path, body(ANY, absent::enterprise));
    }
    for (path, advice) in absent::LATER {
        table = table.route(path, later(ANY, advice));
    }
    table
}

/// Routes of another edition.
const ENTERPRISE: [&str; 11] = [
    "/v1/operator/utilization",
    "/v1/sentinel/policies",
    "/v1/sentinel/policy/{id}",
    "/v1/quotas",
    "/v1/quota-usages",
    "/v1/quota",
    "/v1/quota/{*rest}",
    "/v1/recommendation",
    "/v1/recommendation/{id}",
    "/v1/recommendations",
    "/v1/recommendations/apply",
];

async fn wrong_method(incoming: Incoming) -> Response {
    if let Some(answer) = cors::preflight(&incoming) {
        return answer;
    }
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
