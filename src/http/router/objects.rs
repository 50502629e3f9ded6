//! The route table, second part: what jobs run on and with, and who may.

use drover_projections::Table as _;
use drover_projections::tables::{
    acl_policies::AclPolicies, acl_roles::AclRoles, acl_tokens::AclTokens,
    auth_methods::AuthMethods, binding_rules::BindingRules, jobs::Jobs, namespaces::Namespaces,
    node_pools::NodePools, services::Services, variables::Variables,
};

use super::Methods::{Any, Delete, Put};
use super::work::ALLOCS;
use super::{RouteTable, call, get, get_near, late, query};
use crate::http::front::Watched::{NeverBlocks, Rows, Tables, Within};
use crate::http::gate::Access::{
    Absent, Anyone, Listed, Management, Namespace, Node, Object, Public,
};
use crate::http::gate::Right::{Read, Write};
use crate::http::gate::{READ_JOB, Somewhere};
use crate::http::{acl, namespaces, node_pools, nodes, scaling, search, services, variables};

/// Nodes and node pools.
pub(super) fn machines(table: RouteTable) -> RouteTable {
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
            [call(Put, write, nodes::write::drain)],
        )
        .route(
            "/v1/node/{id}/eligibility",
            [call(Put, write, nodes::write::eligibility)],
        )
        .route(
            "/v1/node/{id}/purge",
            [call(Put, write, nodes::write::purge)],
        )
        .route(
            "/v1/node/{id}/evaluate",
            [call(Put, write, nodes::write::evaluate)],
        )
}

/// Node pools.
pub(super) fn pools(table: RouteTable) -> RouteTable {
    let pools = Tables(&[NodePools::ID]);
    let rows = Tables(nodes::TABLES);
    table
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
                Listed("node_pool read and list-jobs", node_pools::jobs_readable),
                Tables(&[Jobs::ID]),
                node_pools::jobs,
            )],
        )
}

/// Namespaces, variables, services.
pub(super) fn settings(table: RouteTable) -> RouteTable {
    table
        .route(
            "/v1/namespaces",
            [get(Anyone, Tables(&[Namespaces::ID]), namespaces::list)],
        )
        .route(
            "/v1/namespace",
            [call(Put, Management, namespaces::write::upsert)],
        )
        .route(
            "/v1/namespace/{name}",
            [
                get(
                    Object("any right in it", namespaces::readable),
                    Rows(namespaces::watched_row),
                    namespaces::get,
                ),
                call(Put, Management, namespaces::write::upsert),
                call(Delete, Management, namespaces::write::delete),
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
}

/// Services, searches, scaling policies.
pub(super) fn found(table: RouteTable) -> RouteTable {
    let registered = Tables(&[Services::ID]);
    table
        .route(
            "/v1/services",
            [get(Namespace(READ_JOB), registered, services::list)],
        )
        .route(
            "/v1/service/{*name}",
            [
                get(Namespace(READ_JOB), registered, services::get),
                call(
                    Delete,
                    Namespace(services::write::DELETE),
                    services::write::delete,
                ),
            ],
        )
        .route(
            "/v1/search",
            [query(Put, Anyone, NeverBlocks, search::prefix)],
        )
        .route(
            "/v1/search/fuzzy",
            [query(Put, Anyone, NeverBlocks, search::fuzzy::fuzzy)],
        )
        .route(
            "/v1/scaling/policies",
            [get(
                Listed(
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

/// Policies, tokens and roles.
pub(super) fn access(table: RouteTable) -> RouteTable {
    let policies = Tables(&[AclPolicies::ID]);
    let own = Object("the policy is the caller's", acl::policies::readable);
    let table = table
        .route(
            "/v1/acl/bootstrap",
            [call(Put, Public, acl::bootstrap::put)],
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
                call(Put, Management, acl::policies::upsert),
                call(Delete, Management, acl::policies::delete),
            ],
        );
    let table = tokens(table);
    let own = Object("the role is the caller's", acl::roles::readable);
    let named = Object("the role is the caller's", acl::roles::name_readable);
    let roles = Tables(&[AclRoles::ID]);
    let mut table = table
        .route("/v1/acl/roles", [get(Anyone, roles, acl::roles::list)])
        .route("/v1/acl/role", [call(Put, Management, acl::roles::upsert)])
        .route(
            "/v1/acl/role/{id}",
            [
                get(own, Rows(acl::roles::watched_row), acl::roles::get),
                call(Put, Management, acl::roles::upsert),
                call(Delete, Management, acl::roles::delete),
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
        table = table.route(path, [call(Any, Absent, acl::sign_in)]);
    }
    table
}

fn tokens(table: RouteTable) -> RouteTable {
    let own = Object("the token is the caller's", acl::tokens::readable);
    let tokens = Tables(&[AclTokens::ID]);
    table
        .route(
            "/v1/acl/tokens",
            [get(Management, tokens, acl::tokens::list)],
        )
        .route(
            "/v1/acl/token",
            [call(Put, Management, acl::tokens::upsert)],
        )
        .route(
            "/v1/acl/token/self",
            [get(Anyone, tokens, acl::tokens::own)],
        )
        .route(
            "/v1/acl/token/{accessor}",
            [
                get(own, Rows(acl::tokens::watched_row), acl::tokens::get),
                call(Put, Management, acl::tokens::upsert),
                call(Delete, Management, acl::tokens::delete),
            ],
        )
        .route(
            "/v1/acl/token/onetime",
            [call(Put, Anyone, acl::one_time::issue)],
        )
        .route(
            "/v1/acl/token/onetime/exchange",
            [call(Put, Public, acl::one_time::exchange)],
        )
}
