//! The routes that an agent without a server answers itself: every path, its methods, what they
//! require of the caller, and what answers.

use hyper::Method;

use crate::acl::NamespaceCapability as Ns;
use crate::http::client::{COLLECT, LIFECYCLE, READ_FS, READ_LOGS};
use crate::http::gate::Access::{self, Agent, Metrics, Node, Public};
use crate::http::gate::READ_JOB;
use crate::http::gate::Right::{Read, Write};
use crate::http::methods::Methods::{self, Any, Get, OnlyPost, Put};

/// What a route requires of its caller, and which requests for it are this agent's own.
#[derive(Clone, Copy, Debug)]
pub(super) enum AccessRule {
    /// It is about this agent: all of them are.
    Agent(Access),
    /// It is about an agent or a node: those are that name no other.
    Here(Access),
    /// It is about an allocation: those are whose allocation is here. One of these rights in its
    /// namespace.
    Allocation(&'static [Ns]),
}

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Whether the agent is healthy.
    Health,
    /// What the agent is.
    Describe,
    /// The servers that it knows.
    ListServers,
    /// Names servers to it.
    NameServers,
    /// Reads its configuration again.
    Reload,
    /// Its figures.
    Measure,
    /// Sets what its node says of itself; the body may name another node.
    SetMetadata,
    /// What a client answers, wherever the request came in.
    Near,
    /// The same, where it changes what becomes of an allocation's tasks.
    Change,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RouteRow {
    /// The path, parameters in braces.
    pub(super) path: &'static str,
    pub(super) methods: Methods,
    /// What it requires.
    pub(super) asks: AccessRule,
    /// What answers.
    pub(super) does: Does,
}

const fn row(path: &'static str, methods: Methods, asks: AccessRule, does: Does) -> RouteRow {
    RouteRow {
        path,
        methods,
        asks,
        does,
    }
}

/// Something about this agent.
const fn agent(path: &'static str, methods: Methods, access: Access, does: Does) -> RouteRow {
    row(path, methods, AccessRule::Agent(access), does)
}

/// Something about this agent or its node, which a client answers.
const fn here(path: &'static str, methods: Methods, access: Access) -> RouteRow {
    row(path, methods, AccessRule::Here(access), Does::Near)
}

/// Something about an allocation.
const fn of(path: &'static str, methods: Methods, any_of: &'static [Ns], does: Does) -> RouteRow {
    row(path, methods, AccessRule::Allocation(any_of), does)
}

/// Every route.
pub(super) const ROWS: &[RouteRow] = &[
    agent("/v1/agent/health", Get, Public, Does::Health),
    agent("/v1/agent/self", Get, Agent(Read), Does::Describe),
    agent("/v1/agent/servers", Get, Agent(Read), Does::ListServers),
    agent("/v1/agent/servers", Put, Agent(Write), Does::NameServers),
    agent("/v1/agent/reload", Put, Agent(Write), Does::Reload),
    here("/v1/agent/monitor", Get, Agent(Read)),
    here("/v1/agent/monitor/export", Get, Agent(Read)),
    here("/v1/agent/host", Get, Agent(Read)),
    here("/v1/agent/pprof/", Get, Agent(Write)),
    here("/v1/agent/pprof/{profile}", Get, Agent(Write)),
    agent("/v1/metrics", Get, Metrics, Does::Measure),
    here("/v1/client/stats", Get, Node(Read)),
    here("/v1/client/gc", Any, Node(Write)),
    here("/v1/client/metadata", Get, Node(Read)),
    row(
        "/v1/client/metadata",
        OnlyPost,
        AccessRule::Here(Node(Write)),
        Does::SetMetadata,
    ),
    of(
        "/v1/client/allocation/{id}/restart",
        Any,
        LIFECYCLE,
        Does::Change,
    ),
    of(
        "/v1/client/allocation/{id}/signal",
        Any,
        LIFECYCLE,
        Does::Change,
    ),
    of("/v1/client/allocation/{id}/gc", Any, COLLECT, Does::Near),
    of(
        "/v1/client/allocation/{id}/stats",
        Get,
        READ_JOB,
        Does::Near,
    ),
    of(
        "/v1/client/allocation/{id}/checks",
        Get,
        READ_JOB,
        Does::Near,
    ),
    of("/v1/allocation/{id}/checks", Get, READ_JOB, Does::Near),
    of("/v1/client/fs/logs/{id}", Get, READ_LOGS, Does::Near),
    of("/v1/client/fs/ls/{id}", Get, READ_FS, Does::Near),
    of("/v1/client/fs/stat/{id}", Get, READ_FS, Does::Near),
    of("/v1/client/fs/cat/{id}", Get, READ_FS, Does::Near),
    of("/v1/client/fs/readat/{id}", Get, READ_FS, Does::Near),
    of("/v1/client/fs/stream/{id}", Get, READ_FS, Does::Near),
];

/// The route of a request, if it is one of these.
pub(super) fn found(method: &Method, path: &str) -> Option<&'static RouteRow> {
    let mut rows = ROWS.iter();
    rows.find(|row| row.methods.takes(method) && fits(row.path, path))
}

/// Whether a path is of a route: a parameter stands for one part that is not empty.
fn fits(route: &str, path: &str) -> bool {
    let mut given = path.split('/');
    let same = route.split('/').all(|part| match given.next() {
        Some(one) if part.starts_with('{') => !one.is_empty(),
        one => one == Some(part),
    });
    same && given.next().is_none()
}

impl RouteRow {
    /// The id that a path of this route names.
    pub(super) fn id<'p>(&self, path: &'p str) -> Option<&'p str> {
        let mut parts = self.path.split('/').zip(path.split('/'));
        parts.find(|(part, _)| *part == "{id}").map(|(_, id)| id)
    }

    /// What it requires, as lists of routes show it.
    #[cfg(test)]
    pub(super) fn access(&self) -> Access {
        match self.asks {
            AccessRule::Agent(access) | AccessRule::Here(access) => access,
            AccessRule::Allocation(any_of) => Access::Namespace(any_of),
        }
    }
}
