//! Search by the beginning of a name or id.

pub(in crate::http) mod fuzzy;

use drover_events::gojson::{List, Map};
use drover_events::model::{
    Deployment, Evaluation, HostVolume, Job, Namespace, NodePool, ScalingPolicy, VariableEncrypted,
};
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::host_volumes::HostVolumes;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::nodes::Nodes;
use drover_projections::tables::scaling_policies::ScalingPolicies;
use drover_projections::tables::variables::Variables;
use drover_projections::{Id, Prefix, Scan, StorageError, Table};

use crate::acl::{Acl, NamespaceCapability as Ns, NodePoolCapability, VariableCapability};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{READ_JOB, in_namespace};
use crate::http::list::storage;
use crate::http::query::ReadOptions;
use crate::http::rows;
use crate::http::sight::Sight;
use crate::http::volumes::{csi, host};

/// Matches shown per context at most.
pub(in crate::http) const MOST: usize = 20;
/// Rows of a context that are looked at at most: a caller that may see few of many has to name more
/// of them.
pub(super) const LOOKED: usize = 200_000;
/// What can be searched.
pub(in crate::http) const CONTEXTS: [&str; 12] = [
    "allocs",
    "deployment",
    "evals",
    "host_volumes",
    "jobs",
    "namespaces",
    "node_pools",
    "nodes",
    "plugins",
    "scaling_policy",
    "vars",
    "volumes",
];

drover_events::wire! {
    /// What to search for, and where.
    pub(in crate::http) struct SearchRequest {
        prefix: String = "Prefix",
        context: String = "Context",
        namespace: String = "Namespace",
    }

    /// What was found, by context.
    pub(crate) struct SearchResponse {
        matches: Map<List<String>> = "Matches",
        truncations: Map<bool> = "Truncations",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// The contexts that a search names: one, or all of them.
///
/// # Errors
/// 500 with Nomad's text for one that is none.
pub(in crate::http) fn contexts(requested: &str) -> Result<Vec<&'static str>, Refusal> {
    if matches!(requested, "" | "all") {
        return Ok(CONTEXTS.to_vec());
    }
    match CONTEXTS.iter().find(|context| **context == requested) {
        Some(context) => Ok(vec![*context]),
        None => Err(Refusal::by_rule(format!(
            "context must be one of {CONTEXTS:?} or 'all' for all contexts; got {requested:?}"
        ))),
    }
}

/// `PUT /v1/search`.
pub(in crate::http) fn prefix(read: &Read<'_>) -> Result<Answer, Refusal> {
    let requested: SearchRequest = read.request.json()?;
    let namespace = match requested.namespace.as_str() {
        "" => read.request.namespace(),
        name => name,
    };
    let mut answer = SearchResponse {
        known_leader: read.api.server.leader_address().is_some(),
        ..SearchResponse::default()
    };
    let scope = Scope::new(read, namespace);
    for context in contexts(&requested.context)? {
        let mut found = ids_of(&scope, context, &requested.prefix).map_err(storage)?;
        answer.truncations.insert(context, found.len() > MOST);
        found.truncate(MOST);
        let found = if found.is_empty() {
            List::nil()
        } else {
            found.into()
        };
        answer.matches.insert(context, found);
    }
    answer.index = read.view.index();
    let index = answer.index;
    Ok(Answer::json(&answer)?.at(index))
}

/// What of a search its caller may see, in the namespace that is searched or in all of them.
pub(in crate::http) struct Scope<'a> {
    read: &'a Read<'a>,
    namespace: &'a str,
}

impl<'a> Scope<'a> {
    /// A search in a namespace, `*` for all.
    pub(super) fn new(read: &'a Read<'_>, namespace: &'a str) -> Self {
        Self { read, namespace }
    }

    /// Whether anything of a context may be shown at all; what may not is not looked for.
    pub(super) fn may_show(&self, context: &str) -> bool {
        let acl = self.acl();
        match context {
            "nodes" => self.shows_nodes(),
            "plugins" => self.shows_plugins(),
            "volumes" => in_namespace(acl, self.namespace, csi::LIST),
            "host_volumes" => in_namespace(acl, self.namespace, host::READ),
            "vars" if self.namespace == "*" => acl.variable_anywhere(),
            "vars" => acl.variable_any(self.namespace),
            "namespaces" | "node_pools" => true,
            "scaling_policy" => {
                let any_of = [Ns::ListScalingPolicies, Ns::ReadJob];
                in_namespace(acl, self.namespace, &any_of)
            }
            _ => in_namespace(acl, self.namespace, READ_JOB),
        }
    }

    fn acl(&self) -> &Acl {
        &self.read.identity.acl
    }

    /// Whether what belongs to a namespace is shown, to a caller that sees jobs there.
    pub(super) fn shows(&self, namespace: &str) -> bool {
        (self.namespace == "*" || self.namespace == namespace)
            && self.read.sees(namespace, READ_JOB)
    }

    /// Whether a volume of a namespace is shown, to a caller that has one of these rights there.
    fn shows_volume(&self, namespace: &str, any_of: &[Ns]) -> bool {
        (self.namespace == "*" || self.namespace == namespace) && self.read.sees(namespace, any_of)
    }

    /// Whether a variable is shown.
    pub(super) fn shows_variable(&self, namespace: &str, path: &str) -> bool {
        (self.namespace == "*" || self.namespace == namespace)
            && self
                .acl()
                .variable_allows(namespace, path, VariableCapability::List)
    }

    /// Whether a namespace itself is shown.
    pub(super) fn shows_namespace(&self, name: &str) -> bool {
        self.acl().namespace_visible(name)
    }

    /// Whether nodes are shown.
    pub(super) fn shows_nodes(&self) -> bool {
        self.acl().node_read()
    }

    /// Whether plugins are shown.
    fn shows_plugins(&self) -> bool {
        self.acl().plugin_list()
    }

    /// Whether a node pool is shown.
    pub(super) fn shows_pool(&self, name: &str) -> bool {
        self.acl().node_pool_allows(name, NodePoolCapability::Read)
    }

    /// Whether a scaling policy is shown.
    fn shows_policy(&self, policy: &ScalingPolicy) -> bool {
        let namespace = policy.target.get("Namespace").map_or("", String::as_str);
        let any_of = [Ns::ListScalingPolicies, Ns::ReadJob];
        (self.namespace == "*" || self.namespace == namespace) && self.read.sees(namespace, &any_of)
    }

    /// The keys of the namespace that is searched, or of all, that begin with a prefix.
    pub(super) fn spaced(&self, prefix: &str) -> Scan {
        match self.namespace {
            "*" => Scan::all(),
            name => Scan::prefix(Prefix::new().str(name).str_prefix(prefix)),
        }
    }
}

/// The names or ids of a context that begin with a prefix, a few more than are shown.
pub(super) fn ids_of(
    scope: &Scope<'_>,
    context: &str,
    prefix: &str,
) -> Result<Vec<String>, StorageError> {
    if !scope.may_show(context) {
        return Ok(Vec::new());
    }
    let view = &scope.read.view;
    let named = Scan::prefix(Prefix::new().str_prefix(prefix));
    let spaced = || (scope.spaced(prefix), prefix);
    match context {
        "allocs" => {
            let seen = |row: &AllocRow| scope.shows(&row.namespace);
            ids::<Allocs>(view, prefix, seen, |row| row.alloc.id)
        }
        "deployment" => {
            let seen = |row: &Deployment| scope.shows(&row.namespace);
            ids::<Deployments>(view, prefix, seen, |row| row.id)
        }
        "evals" => {
            let seen = |row: &Evaluation| scope.shows(&row.namespace);
            ids::<Evals>(view, prefix, seen, |row| row.id)
        }
        "nodes" => ids::<Nodes>(view, prefix, |_| scope.shows_nodes(), |row| row.id),
        "jobs" => {
            let seen = |row: &Job| scope.shows(&row.namespace);
            texts::<Jobs>(view, spaced(), seen, |row| row.id)
        }
        "vars" => {
            let seen = |row: &VariableEncrypted| scope.shows_variable(&row.namespace, &row.path);
            texts::<Variables>(view, spaced(), seen, |row| row.path)
        }
        "namespaces" => {
            let seen = |row: &Namespace| scope.shows_namespace(&row.name);
            texts::<Namespaces>(view, (named, prefix), seen, |row| row.name)
        }
        "node_pools" => {
            let seen = |row: &NodePool| scope.shows_pool(&row.name);
            texts::<NodePools>(view, (named, prefix), seen, |row| row.name)
        }
        "plugins" => {
            let seen = |_: &_| scope.shows_plugins();
            texts::<CsiPlugins>(view, (named, prefix), seen, |row| row.plugin.id)
        }
        "volumes" => {
            let seen = |row: &CsiVolumeRow| scope.shows_volume(&row.volume.namespace, csi::LIST);
            texts::<CsiVolumes>(view, spaced(), seen, |row| row.volume.id)
        }
        "host_volumes" => {
            let seen = |row: &HostVolume| scope.shows_volume(&row.namespace, host::READ);
            texts::<HostVolumes>(view, (scope.spaced(""), prefix), seen, |row| row.id)
        }
        "scaling_policy" => {
            let seen = |row: &ScalingPolicy| scope.shows_policy(row);
            ids::<ScalingPolicies>(view, prefix, seen, |row| row.id)
        }
        _ => Ok(Vec::new()),
    }
}

/// Ids that begin with a prefix; an odd number of digits is rounded down first.
fn ids<T: Table<Key = Id>>(
    view: &Sight,
    prefix: &str,
    seen: impl Fn(&T::Row) -> bool,
    id: impl Fn(T::Row) -> String,
) -> Result<Vec<String>, StorageError> {
    let odd = prefix.chars().filter(|c| *c != '-').count() % 2 == 1;
    let even = if odd {
        prefix.get(..prefix.len() - 1).unwrap_or_default()
    } else {
        prefix
    };
    let options = ReadOptions::by_prefix(even);
    let Ok(rows) = rows::ids::<T>(view, &options) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for row in rows.at_most(LOOKED).seen_by(|_, row| seen(row)) {
        found.extend(Some(id(row?)).filter(|id| id.starts_with(prefix)));
        if found.len() > MOST {
            break;
        }
    }
    Ok(found)
}

fn texts<T: Table>(
    view: &Sight,
    (scan, prefix): (Scan, &str),
    seen: impl Fn(&T::Row) -> bool,
    text: impl Fn(T::Row) -> String,
) -> Result<Vec<String>, StorageError> {
    let mut found = Vec::new();
    let rows = view.rows::<T>(scan).at_most(LOOKED);
    for row in rows.seen_by(|_, row| seen(row)) {
        found.extend(Some(text(row?)).filter(|text| text.starts_with(prefix)));
        if found.len() > MOST {
            break;
        }
    }
    Ok(found)
}
