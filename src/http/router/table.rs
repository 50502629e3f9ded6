//! The route table, third part: cluster, agents, clients, history, volumes; and [`all`], which
//! joins the three parts. Each names paths, their methods, what they require of the caller and
//! their handlers, and nothing else.
//!
//! `get` is a plain read, `query` one whose parameters may stand in the body; `call` is no plain
//! read, `late` one that checks rights in the handler, `upload` one that takes the body as it
//! comes, `upgraded` one that may change the connection; `not_built` refuses. A blocking read waits
//! for changes of `Tables` or `Rows`; `NeverBlocks` and `History` wait for nothing, and of
//! `History` only a few run at a time; `NoPast` neither blocks nor takes `as_of`.

use drover_projections::Table as _;
use drover_projections::tables::root_keys::RootKeys;

use super::Methods::{Any, Delete, Get, OnlyPost, OnlyPut, Put};
use super::{RouteTable, call, get, late, not_built, objects, query, upgraded, upload, work};
use crate::acl::OperatorCapability::{KeyringRead, SnapshotSave};
use crate::http::front::Watched::{History, NeverBlocks, NoPast, Rows, Tables};
use crate::http::gate::Access::{
    Absent, Agent, Listed, Management, Metrics, Namespace, Node, Object, Operation, Operator,
    Plugins, Public,
};
use crate::http::gate::Right::{Read, Write};
use crate::http::gate::Somewhere;
use crate::http::{
    absent, agent, audit, autopilot, client, log, operator, projections, requests, schema,
    snapshot, system, volumes,
};

/// Every route.
pub(super) fn all() -> RouteTable {
    [
        work::workloads,
        work::allocated,
        work::evaluated,
        work::rollouts,
        work::promoted,
        objects::machines,
        objects::pools,
        objects::settings,
        objects::found,
        objects::access,
        cluster,
        agents,
        clients,
        history,
        at_plugins,
        volumes,
        host_volumes,
        plugins,
        not_in_this_version,
    ]
    .into_iter()
    .fold(RouteTable::default(), |table, part| part(table))
}

/// The cluster, and what operators look after.
fn cluster(table: RouteTable) -> RouteTable {
    table
        .route("/v1/status/leader", [get(Public, NoPast, agent::leader)])
        .route("/v1/status/peers", [get(Public, NoPast, agent::peers)])
        .route("/v1/regions", [get(Public, NoPast, agent::regions)])
        .route(
            "/v1/operator/raft/configuration",
            [get(Management, NoPast, operator::raft_configuration)],
        )
        .route(
            "/v1/operator/scheduler/configuration",
            [
                get(
                    Operator(Read),
                    NeverBlocks,
                    operator::scheduler_configuration,
                ),
                call(Put, Operator(Write), operator::configure_scheduler),
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
                call(Get, Operation(SnapshotSave), snapshot::save),
                upload(Put, Management, snapshot::restore),
            ],
        )
        .route(
            "/v1/operator/autopilot/configuration",
            [
                get(Operator(Read), NeverBlocks, autopilot::configuration),
                call(OnlyPut, Operator(Write), autopilot::configure),
            ],
        )
        .route(
            "/v1/operator/autopilot/health",
            [get(Operator(Read), NoPast, autopilot::health)],
        )
        .route(
            "/v1/operator/digests",
            [get(Operator(Read), NeverBlocks, operator::digests)],
        )
        .route(
            "/v1/operator/reactors",
            [get(Operator(Read), NoPast, operator::reactors)],
        )
        .route("/v1/system/gc", [call(OnlyPut, Management, system::gc)])
        .route(
            "/v1/system/reconcile/summaries",
            [call(OnlyPut, Management, system::reconcile)],
        )
        .route(
            "/.well-known/jwks.json",
            [get(Public, NeverBlocks, operator::jwks)],
        )
        .route(
            "/.well-known/openid-configuration",
            [get(Public, NoPast, absent::openid)],
        )
}

/// The agent itself.
fn agents(table: RouteTable) -> RouteTable {
    table
        .route(
            "/v1/agent/self",
            [get(Agent(Read), NoPast, agent::describe)],
        )
        .route(
            "/v1/agent/members",
            [get(Node(Read), NoPast, agent::members)],
        )
        .route(
            "/v1/agent/servers",
            [
                get(Agent(Read), NoPast, agent::servers),
                not_built(Put, absent::SERVERS),
            ],
        )
        .route("/v1/agent/health", [get(Public, NoPast, agent::health)])
        .route("/v1/agent/reload", [call(Put, Agent(Write), agent::reload)])
        .route(
            "/v1/agent/monitor",
            [call(Get, Agent(Read), client::of_agent)],
        )
        .route(
            "/v1/agent/monitor/export",
            [call(Get, Agent(Read), client::of_agent)],
        )
        .route("/v1/agent/host", [call(Get, Agent(Read), client::of_agent)])
        .route(
            "/v1/agent/pprof/",
            [call(Get, Agent(Write), client::of_agent)],
        )
        .route(
            "/v1/agent/pprof/{profile}",
            [call(Get, Agent(Write), client::of_agent)],
        )
        .route("/v1/metrics", [get(Metrics, NoPast, agent::metrics)])
}

/// Clients, on whichever machine they run.
fn clients(table: RouteTable) -> RouteTable {
    table
        .route("/v1/client/stats", [call(Get, Node(Read), client::of_node)])
        .route("/v1/client/gc", [call(Any, Node(Write), client::of_node)])
        .route(
            "/v1/client/metadata",
            [
                call(Get, Node(Read), client::of_node),
                call(OnlyPost, Node(Write), client::describe),
            ],
        )
        .route(
            "/v1/client/allocation/{id}/{verb}",
            [late(
                Any,
                (
                    "by verb: alloc-lifecycle, submit-job or gc-allocation, submit-job or \
                     pause-allocation, read-job",
                    Somewhere::Anything,
                ),
                client::allocation,
            )],
        )
        .route(
            "/v1/client/allocation/{id}/exec",
            [upgraded(
                (
                    "alloc-exec; alloc-node-exec too where tasks see the node's files",
                    Somewhere::Anything,
                ),
                client::exec::serve,
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
fn history(table: RouteTable) -> RouteTable {
    let proofs = Operator(Read);
    let seen = Listed(
        "any topic of the event stream; each row by its own right",
        audit::readable,
    );
    table
        .route("/v1/log/checkpoint", [get(proofs, NoPast, log::checkpoint)])
        .route("/v1/log/keys", [get(proofs, NoPast, log::keys)])
        .route(
            "/v1/log/proof/inclusion",
            [get(proofs, NeverBlocks, log::inclusion)],
        )
        .route(
            "/v1/log/proof/consistency",
            [get(proofs, NeverBlocks, log::consistency)],
        )
        .route(
            "/v1/log/tile/{*tile}",
            [get(proofs, NeverBlocks, log::tile)],
        )
        .route(
            "/v1/log/entries",
            [get(Management, NeverBlocks, log::entries)],
        )
        .route("/v1/log/segments", [get(Management, NoPast, log::segments)])
        .route("/v1/schema/events", [get(Public, NoPast, schema::index)])
        .route(
            "/v1/schema/events/{kind}",
            [get(Public, NoPast, schema::kind)],
        )
        .route("/v1/schema/stream", [get(Public, NoPast, schema::stream)])
        .route(
            "/v1/operator/projections",
            [get(Management, NoPast, projections::list)],
        )
        .route(
            "/v1/operator/projections/rebuild",
            [
                get(Management, NoPast, projections::status),
                call(Put, Management, projections::rebuild),
                call(Delete, Management, projections::cancel),
            ],
        )
        .route(
            "/v1/operator/projections/verify",
            [
                get(Management, NoPast, projections::status),
                call(Put, Management, projections::verify),
                call(Delete, Management, projections::cancel),
            ],
        )
        .route(
            "/v1/operator/projections/kept",
            [call(Delete, Management, projections::discard)],
        )
        .route(
            "/v1/audit",
            [
                get(seen, History, audit::list),
                query(Put, seen, History, audit::list),
            ],
        )
        .route(
            "/v1/audit/requests",
            [get(Management, NoPast, requests::list)],
        )
        .route("/v1/audit/trace", [get(seen, History, audit::trace)])
        .route("/v1/state/diff", [get(seen, History, audit::between)])
}

/// What has to be done at the plugins of volumes.
fn at_plugins(table: RouteTable) -> RouteTable {
    let write = (
        "csi-write-volume and plugin:read",
        Somewhere::Namespace(volumes::csi::WRITE),
    );
    let mount = (
        "csi-mount-volume and plugin:read",
        Somewhere::Namespace(volumes::provision::MOUNT),
    );
    let list = (
        "csi-list-volume and plugin:read",
        Somewhere::Namespace(volumes::provision::EXTERNAL),
    );
    table
        .route(
            "/v1/volume/csi/{id}/create",
            [late(OnlyPut, write, volumes::provision::create)],
        )
        .route(
            "/v1/volume/csi/{id}/delete",
            [late(Delete, write, volumes::provision::delete)],
        )
        .route(
            "/v1/volume/csi/{id}/detach",
            [late(Delete, mount, volumes::provision::detach)],
        )
        .route(
            "/v1/volumes/external",
            [late(Get, list, volumes::provision::external)],
        )
        .route(
            "/v1/volumes/snapshot",
            [
                late(Get, list, volumes::provision::snapshots),
                late(Put, write, volumes::provision::create_snapshots),
                late(Delete, write, volumes::provision::delete_snapshot),
            ],
        )
}

/// The list of volumes, CSI volumes, and claims on host volumes.
fn volumes(table: RouteTable) -> RouteTable {
    let within = Somewhere::Namespace(volumes::csi::WRITE);
    let register = ("csi-write-volume and plugin:read", within);
    let read = Object(
        "csi-read-volume or csi-mount-volume or read-job, and plugin:read",
        volumes::csi::readable,
    );
    let list = Listed(
        "csi-list-volume, csi-read-volume, csi-mount-volume, list-jobs or host-volume-read",
        volumes::listable,
    );
    let claims = Listed("host-volume-read", volumes::claims_listable);
    let release = (
        "host-volume-delete",
        Somewhere::Namespace(volumes::host::DELETE),
    );
    table
        .route(
            "/v1/volumes",
            [
                get(list, Tables(volumes::VOLUMES), volumes::list),
                late(Put, register, volumes::csi::register),
            ],
        )
        .route(
            "/v1/volume/csi/{id}",
            [
                get(read, Rows(volumes::csi::watched_row), volumes::csi::get),
                late(OnlyPut, register, volumes::csi::register),
                call(
                    Delete,
                    Namespace(volumes::csi::WRITE),
                    volumes::csi::deregister,
                ),
            ],
        )
        .route(
            "/v1/volume/csi/{id}/explain",
            [get(read, NeverBlocks, volumes::explain::get)],
        )
        .route(
            "/v1/volumes/claims",
            [get(
                claims,
                Tables(volumes::HOST_VOLUME_CLAIMS),
                volumes::host::claims,
            )],
        )
        .route(
            "/v1/volumes/claim/{id}",
            [late(Delete, release, volumes::host::release)],
        )
}

fn host_volumes(table: RouteTable) -> RouteTable {
    let create = (
        "host-volume-create",
        Somewhere::Namespace(volumes::host::CREATE),
    );
    let registers = (
        "host-volume-register",
        Somewhere::Namespace(volumes::host::REGISTER),
    );
    table
        .route(
            "/v1/volume/host/{id}",
            [
                get(
                    Namespace(volumes::host::READ),
                    Rows(volumes::host::watched_row),
                    volumes::host::get,
                ),
                call(
                    Delete,
                    Namespace(volumes::host::DELETE),
                    volumes::host::delete,
                ),
            ],
        )
        .route(
            "/v1/volume/host/{id}/delete",
            [call(
                Delete,
                Namespace(volumes::host::DELETE),
                volumes::host::delete,
            )],
        )
        .route(
            "/v1/volume/host/create",
            [late(Put, create, volumes::host::create)],
        )
        .route(
            "/v1/volume/host/register",
            [late(Put, registers, volumes::host::register)],
        )
}

/// Plugins of volumes.
fn plugins(table: RouteTable) -> RouteTable {
    table
        .route(
            "/v1/plugins",
            [get(
                Listed("plugin:list", volumes::plugins::listable),
                Tables(volumes::PLUGINS),
                volumes::plugins::list,
            )],
        )
        .route(
            "/v1/plugin/csi/{id}",
            [get(
                Plugins,
                Tables(volumes::PLUGINS),
                volumes::plugins::get,
            )],
        )
}

/// Routes that this version does not have: they say so.
fn not_in_this_version(table: RouteTable) -> RouteTable {
    let mut table = table.route(
        "/v1/operator/license",
        [
            get(Public, NoPast, absent::license),
            call(Put, Absent, absent::enterprise),
        ],
    );
    for path in ENTERPRISE {
        table = table.route(path, [call(Any, Absent, absent::enterprise)]);
    }
    for (path, why) in absent::NOT_BUILT {
        table = table.route(path, [not_built(Any, why)]);
    }
    table
}

/// Routes of Nomad Enterprise.
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
