//! The route table: every path of the API, its methods, what they ask of the caller and their
//! handlers, and nothing else.

use axum::routing::any;
use drover_projections::Table as _;
use drover_projections::tables::{
    acl_policies::AclPolicies, acl_roles::AclRoles, acl_tokens::AclTokens, allocs::Allocs,
    auth_methods::AuthMethods, binding_rules::BindingRules, deployments::Deployments, evals::Evals,
    job_summaries::JobSummaries, jobs::Jobs, namespaces::Namespaces, node_pools::NodePools,
    root_keys::RootKeys, services::Services, variables::Variables,
};

use super::Methods::{Any, Delete, Get, OnlyPost, OnlyPut, Put, Writes};
use super::{Table, body, get, get_near, late, later, query, upload};
use crate::acl::OperatorCapability::{KeyringRead, SnapshotSave};
use crate::http::front::Watched::{Nothing, Now, Rows, Tables, Within};
use crate::http::gate::Access::{
    Agent, Anyone, Management, Metrics, Namespace, Node, Object, Operation, Operator, Plugins,
    Public,
};
use crate::http::gate::Right::{Read, Write};
use crate::http::gate::{LIST_JOBS, READ_JOB, Somewhere};
use crate::http::{
    absent, acl, agent, allocations, audit, autopilot, client, deployments, evaluations, explain,
    jobs, log, namespaces, node_pools, nodes, operator, projections, requests, scaling, schema,
    search, services, snapshot, stream, system, variables,
};

/// Every route.
pub(super) fn all() -> Table {
    [
        workloads, evaluated, rollouts, machines, settings, access, cluster, agents, history,
        elsewhere,
    ]
    .into_iter()
    .fold(Table::default(), |table, part| part(table))
}

/// The table of lists of allocations.
const ALLOCS: &[u16] = &[Allocs::ID];

/// Jobs, and what becomes of them: allocations, evaluations.
fn workloads(table: Table) -> Table {
    let jobs = Tables(&[Jobs::ID, JobSummaries::ID]);
    let statuses = Tables(jobs::statuses::TABLES);
    let allocs = Tables(ALLOCS);
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
            [body(Put, Namespace(jobs::PARSE), jobs::parse)],
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
            "/v1/job/{*rest}",
            "/v1/job/{id}",
            jobs::listed(),
            any(jobs::route),
        )
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
                allocations::stop,
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

/// Policies, tokens and roles.
fn access(table: Table) -> Table {
    let policies = Tables(&[AclPolicies::ID]);
    let own = Object("the policy is the caller's", acl::policies::readable);
    let table = table
        .route(
            "/v1/acl/bootstrap",
            [body(Put, Public, acl::bootstrap::put)],
        )
        .route(
            "/v1/acl/policies",
            [get(Anyone, policies, acl::policies::list)],
        )
        .route(
            "/v1/acl/policy/self",
            [get(Anyone, policies, acl::policies::own)],
        )
        .route(
            "/v1/acl/policy/{name}",
            [
                get(own, Rows(acl::policies::watched_row), acl::policies::get),
                body(Put, Management, acl::policies::upsert),
                body(Delete, Management, acl::policies::delete),
            ],
        );
    let table = tokens(table);
    let own = Object("the role is the caller's", acl::roles::readable);
    let named = Object("the role is the caller's", acl::roles::name_readable);
    let roles = Tables(&[AclRoles::ID]);
    let mut table = table
        .route("/v1/acl/roles", [get(Anyone, roles, acl::roles::list)])
        .route("/v1/acl/role", [body(Put, Management, acl::roles::upsert)])
        .route(
            "/v1/acl/role/{id}",
            [
                get(own, Rows(acl::roles::watched_row), acl::roles::get),
                body(Put, Management, acl::roles::upsert),
                body(Delete, Management, acl::roles::delete),
            ],
        )
        .route(
            "/v1/acl/role/name/{name}",
            [get(named, roles, acl::roles::get_by_name)],
        )
        .route(
            "/v1/acl/auth-methods",
            [get(Public, Tables(&[AuthMethods::ID]), acl::auth_methods)],
        )
        .route(
            "/v1/acl/binding-rules",
            [get(
                Management,
                Tables(&[BindingRules::ID]),
                acl::binding_rules,
            )],
        );
    for path in acl::SIGN_IN {
        table = table.route(path, [body(Any, Anyone, acl::sign_in)]);
    }
    table
}

/// Tokens.
fn tokens(table: Table) -> Table {
    let own = Object("the token is the caller's", acl::tokens::readable);
    let tokens = Tables(&[AclTokens::ID]);
    table
        .route(
            "/v1/acl/tokens",
            [get(Management, tokens, acl::tokens::list)],
        )
        .route(
            "/v1/acl/token",
            [body(Put, Management, acl::tokens::upsert)],
        )
        .route(
            "/v1/acl/token/self",
            [get(Anyone, tokens, acl::tokens::own)],
        )
        .route(
            "/v1/acl/token/{accessor}",
            [
                get(own, Rows(acl::tokens::watched_row), acl::tokens::get),
                body(Put, Management, acl::tokens::upsert),
                body(Delete, Management, acl::tokens::delete),
            ],
        )
        .route(
            "/v1/acl/token/onetime",
            [body(Put, Anyone, acl::one_time::issue)],
        )
        .route(
            "/v1/acl/token/onetime/exchange",
            [body(Put, Public, acl::one_time::exchange)],
        )
}

/// Evaluations.
fn evaluated(table: Table) -> Table {
    let evals = Tables(&[Evals::ID]);
    let readable = Object("read-job", evaluations::readable);
    table
        .route(
            "/v1/evaluations",
            [
                get(Namespace(READ_JOB), evals, evaluations::list),
                body(Delete, Management, evaluations::delete),
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
                Nothing,
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
fn rollouts(table: Table) -> Table {
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
            [late(
                Get,
                ("by topic, event by event", Somewhere::Anything),
                stream::serve,
            )],
        )
}

/// Nodes and node pools.
fn machines(table: Table) -> Table {
    let pools = Tables(&[NodePools::ID]);
    let rows = Tables(nodes::TABLES);
    let write = Node(Write);
    table
        .route(
            "/v1/nodes",
            [get_near(Node(Read), rows, nodes::near_list, nodes::list)],
        )
        .route(
            "/v1/node/{id}",
            [get(Node(Read), Rows(nodes::watched_rows), nodes::get)],
        )
        .route(
            "/v1/node/{id}/allocations",
            [get(
                Node(Read),
                Within(ALLOCS, nodes::watched_allocs),
                nodes::allocations,
            )],
        )
        .route(
            "/v1/node/{id}/drain",
            [body(Put, write, nodes::write::drain)],
        )
        .route(
            "/v1/node/{id}/eligibility",
            [body(Put, write, nodes::write::eligibility)],
        )
        .route(
            "/v1/node/{id}/purge",
            [body(Put, write, nodes::write::purge)],
        )
        .route(
            "/v1/node/{id}/evaluate",
            [body(Put, write, nodes::write::evaluate)],
        )
        .route(
            "/v1/node/pools",
            [
                get(Anyone, pools, node_pools::list),
                late(
                    Put,
                    ("node_pool write", Somewhere::Anything),
                    node_pools::write::upsert,
                ),
            ],
        )
        .route(
            "/v1/node/pool/{name}",
            [
                get(
                    Object("node_pool read", node_pools::readable),
                    Rows(node_pools::watched_row),
                    node_pools::get,
                ),
                late(
                    Put,
                    ("node_pool write", Somewhere::Anything),
                    node_pools::write::upsert,
                ),
                late(
                    Delete,
                    ("node_pool delete", Somewhere::Anything),
                    node_pools::write::delete,
                ),
            ],
        )
        .route(
            "/v1/node/pool/{name}/nodes",
            [get(
                Object("node_pool read and node:read", node_pools::nodes_readable),
                rows,
                node_pools::nodes,
            )],
        )
        .route(
            "/v1/node/pool/{name}/jobs",
            [get(
                Object("node_pool read and list-jobs", node_pools::jobs_readable),
                Tables(&[Jobs::ID]),
                node_pools::jobs,
            )],
        )
}

/// Namespaces, variables, services.
fn settings(table: Table) -> Table {
    let registered = Tables(&[Services::ID]);
    table
        .route(
            "/v1/namespaces",
            [get(Anyone, Tables(&[Namespaces::ID]), namespaces::list)],
        )
        .route(
            "/v1/namespace",
            [body(Put, Management, namespaces::write::upsert)],
        )
        .route(
            "/v1/namespace/{name}",
            [
                get(
                    Object("any right in it", namespaces::readable),
                    Rows(namespaces::watched_row),
                    namespaces::get,
                ),
                body(Put, Management, namespaces::write::upsert),
                body(Delete, Management, namespaces::write::delete),
            ],
        )
        .route(
            "/v1/vars",
            [get(Anyone, Tables(&[Variables::ID]), variables::list)],
        )
        .route(
            "/v1/var/{*path}",
            [
                get(
                    Object("variables read", variables::readable),
                    Rows(variables::watched_row),
                    variables::get,
                ),
                late(
                    Put,
                    ("variables write", Somewhere::Variable),
                    variables::write::put,
                ),
                late(
                    Delete,
                    ("variables destroy", Somewhere::Variable),
                    variables::write::delete,
                ),
            ],
        )
        .route(
            "/v1/services",
            [get(Namespace(READ_JOB), registered, services::list)],
        )
        .route(
            "/v1/service/{*name}",
            [
                get(Namespace(READ_JOB), registered, services::get),
                body(Delete, Namespace(services::DELETE), services::delete),
            ],
        )
        .route("/v1/search", [query(Put, Anyone, Nothing, search::prefix)])
        .route(
            "/v1/search/fuzzy",
            [query(Put, Anyone, Nothing, search::fuzzy::fuzzy)],
        )
        .route(
            "/v1/scaling/policies",
            [get(
                Object(
                    "list-scaling-policies, or list-jobs and read-job",
                    scaling::listable,
                ),
                Tables(scaling::TABLES),
                scaling::list,
            )],
        )
        .route(
            "/v1/scaling/policy/{id}",
            [get(
                Object(
                    "read-scaling-policy, or list-jobs and read-job",
                    scaling::readable,
                ),
                Rows(scaling::watched_row),
                scaling::get,
            )],
        )
}

/// The cluster, and what operators look after.
fn cluster(table: Table) -> Table {
    table
        .route("/v1/status/leader", [get(Public, Now, agent::leader)])
        .route("/v1/status/peers", [get(Public, Now, agent::peers)])
        .route("/v1/regions", [get(Public, Now, agent::regions)])
        .route(
            "/v1/operator/raft/configuration",
            [get(Management, Now, operator::raft_configuration)],
        )
        .route(
            "/v1/operator/scheduler/configuration",
            [
                get(Operator(Read), Nothing, operator::scheduler_configuration),
                body(Put, Operator(Write), operator::configure_scheduler),
            ],
        )
        .route(
            "/v1/operator/keyring/keys",
            [get(
                Operation(KeyringRead),
                Tables(&[RootKeys::ID]),
                operator::keys,
            )],
        )
        .route(
            "/v1/operator/snapshot",
            [
                body(Get, Operation(SnapshotSave), snapshot::save),
                upload(Put, Management, snapshot::restore),
            ],
        )
        .route(
            "/v1/operator/autopilot/configuration",
            [
                get(Operator(Read), Nothing, autopilot::configuration),
                body(OnlyPut, Operator(Write), autopilot::configure),
            ],
        )
        .route(
            "/v1/operator/autopilot/health",
            [get(Operator(Read), Now, autopilot::health)],
        )
        .route(
            "/v1/operator/digests",
            [get(Operator(Read), Nothing, operator::digests)],
        )
        .route(
            "/v1/operator/reactors",
            [get(Operator(Read), Now, operator::reactors)],
        )
        .route("/v1/system/gc", [body(OnlyPut, Management, system::gc)])
        .route(
            "/v1/system/reconcile/summaries",
            [body(OnlyPut, Management, system::reconcile)],
        )
        .route(
            "/.well-known/jwks.json",
            [get(Public, Nothing, operator::jwks)],
        )
        .route(
            "/.well-known/openid-configuration",
            [get(Public, Now, absent::openid)],
        )
}

/// The agent, and the client in it.
fn agents(table: Table) -> Table {
    table
        .route("/v1/agent/self", [get(Agent(Read), Now, agent::describe)])
        .route("/v1/agent/members", [get(Node(Read), Now, agent::members)])
        .route(
            "/v1/agent/servers",
            [
                get(Agent(Read), Now, agent::servers),
                later(Put, absent::SERVERS),
            ],
        )
        .route("/v1/agent/health", [get(Public, Now, agent::health)])
        .route("/v1/agent/reload", [body(Put, Agent(Write), agent::reload)])
        .route("/v1/metrics", [get(Metrics, Now, agent::metrics)])
        .route("/v1/client/stats", [body(Get, Node(Read), client::stats)])
        .route(
            "/v1/client/gc",
            [body(Any, Node(Write), client::collect_all)],
        )
        .route(
            "/v1/client/metadata",
            [
                body(Get, Node(Read), client::metadata),
                later(Put, absent::METADATA),
            ],
        )
        .route(
            "/v1/client/allocation/{id}/{verb}",
            [late(
                Any,
                (
                    "by verb: read-job, alloc-lifecycle, submit-job",
                    Somewhere::Anything,
                ),
                client::allocation,
            )],
        )
        .route(
            "/v1/client/fs/{*rest}",
            [late(
                Get,
                (
                    "read-fs; for logs read-logs or read-fs",
                    Somewhere::Anything,
                ),
                client::files,
            )],
        )
}

/// The log itself, the tables that follow from it, and who did what, when and why.
fn history(table: Table) -> Table {
    let proofs = Operator(Read);
    table
        .route("/v1/log/checkpoint", [get(proofs, Now, log::checkpoint)])
        .route("/v1/log/keys", [get(proofs, Now, log::keys)])
        .route(
            "/v1/log/proof/inclusion",
            [get(proofs, Nothing, log::inclusion)],
        )
        .route(
            "/v1/log/proof/consistency",
            [get(proofs, Nothing, log::consistency)],
        )
        .route("/v1/log/tile/{*tile}", [get(proofs, Nothing, log::tile)])
        .route("/v1/log/entries", [get(Management, Nothing, log::entries)])
        .route("/v1/log/segments", [get(Management, Now, log::segments)])
        .route("/v1/schema/events", [get(Public, Now, schema::index)])
        .route("/v1/schema/events/{kind}", [get(Public, Now, schema::kind)])
        .route("/v1/schema/stream", [get(Public, Now, schema::stream)])
        .route(
            "/v1/operator/projections",
            [get(Management, Now, projections::list)],
        )
        .route(
            "/v1/operator/projections/rebuild",
            [
                get(Management, Now, projections::status),
                body(Put, Management, projections::rebuild),
                body(Delete, Management, projections::cancel),
            ],
        )
        .route(
            "/v1/operator/projections/verify",
            [
                get(Management, Now, projections::status),
                body(Put, Management, projections::verify),
                body(Delete, Management, projections::cancel),
            ],
        )
        .route(
            "/v1/operator/projections/kept",
            [body(Delete, Management, projections::discard)],
        )
        .route(
            "/v1/audit",
            [
                get(Management, Nothing, audit::list),
                query(Put, Management, Nothing, audit::list),
            ],
        )
        .route("/v1/audit/requests", [get(Management, Now, requests::list)])
        .route("/v1/audit/trace", [get(Management, Nothing, audit::trace)])
        .route("/v1/state/diff", [get(Management, Nothing, audit::between)])
}

/// What this version has none of, or not yet: said in words.
fn elsewhere(table: Table) -> Table {
    let mut table = table
        .route(
            "/v1/volumes",
            [
                get(Anyone, Tables(absent::VOLUMES), absent::volumes),
                later(Put, absent::NO_VOLUMES),
            ],
        )
        .route(
            "/v1/volumes/claims",
            [get(Anyone, Tables(absent::CLAIMS), absent::claims)],
        )
        .route(
            "/v1/plugins",
            [get(Anyone, Tables(absent::PLUGINS), absent::plugins)],
        )
        .route(
            "/v1/plugin/csi/{id}",
            [get(Plugins, Tables(absent::PLUGINS), absent::plugin)],
        )
        .route(
            "/v1/operator/license",
            [
                get(Public, Now, absent::license),
                body(Put, Anyone, absent::enterprise),
            ],
        );
    for path in ["/v1/volume/csi/{id}", "/v1/volume/host/{id}"] {
        let read = get(Anyone, Tables(absent::VOLUMES), absent::volume);
        table = table.route(path, [read, later(Writes, absent::NO_VOLUMES)]);
    }
    for path in ENTERPRISE {
        table = table.route(path, [body(Any, Anyone, absent::enterprise)]);
    }
    for (path, advice) in absent::LATER {
        table = table.route(path, [later(Any, advice)]);
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
