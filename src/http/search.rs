//! Search by prefix.

use drover_events::gojson::{List, Map};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::nodes::Nodes;
use drover_projections::tables::variables::Variables;
use drover_projections::view::View;
use drover_projections::{Id, Prefix, Scan, StorageError, Table};

use super::answer::Answer;
use super::front::Write;
use super::list::storage;
use super::rows;
use crate::error::ApiError;

/// Matches shown per context at most.
const MOST: usize = 20;
const CONTEXTS: [&str; 12] = [
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
    pub(super) struct SearchRequest {
        prefix: String = "Prefix",
        context: String = "Context",
        namespace: String = "Namespace",
    }

    /// What was found, by context.
    pub(super) struct SearchResponse {
        matches: Map<List<String>> = "Matches",
        truncations: Map<bool> = "Truncations",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// `PUT /v1/search`.
pub(super) async fn prefix(write: Write) -> Result<Answer, ApiError> {
    let asked: SearchRequest = write.request.json()?;
    let view = write.api.projections.view();
    let namespace = match asked.namespace.as_str() {
        "" => write.request.namespace(),
        name => name,
    };
    let contexts: Vec<&str> = match asked.context.as_str() {
        "" | "all" => CONTEXTS.to_vec(),
        one => match CONTEXTS.iter().find(|c| **c == one) {
            Some(context) => vec![*context],
            None => {
                let text = format!(
                    "context must be one of {CONTEXTS:?} or 'all' for all contexts; got {one:?}"
                );
                return Err(ApiError::refused(text));
            }
        },
    };
    let mut answer = SearchResponse {
        known_leader: write.api.agent.leader().is_some(),
        ..SearchResponse::default()
    };
    for context in contexts {
        let mut found = matches(&view, context, namespace, &asked.prefix).map_err(storage)?;
        answer.truncations.insert(context, found.len() > MOST);
        found.truncate(MOST);
        let found = if found.is_empty() {
            List::nil()
        } else {
            found.into()
        };
        answer.matches.insert(context, found);
    }
    answer.index = view.index();
    let index = answer.index;
    Ok(Answer::json(&answer)?.at(index))
}

fn matches(
    view: &View,
    context: &str,
    namespace: &str,
    prefix: &str,
) -> Result<Vec<String>, StorageError> {
    let own = |name: &str| namespace == "*" || name == namespace;
    let spaced = || match namespace {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name).open(prefix)),
    };
    let named = Scan::prefix(Prefix::new().open(prefix));
    match context {
        "allocs" => ids::<Allocs>(view, prefix, |row| {
            own(&row.namespace).then_some(row.alloc.id)
        }),
        "deployment" => {
            ids::<Deployments>(view, prefix, |row| own(&row.namespace).then_some(row.id))
        }
        "evals" => ids::<Evals>(view, prefix, |row| own(&row.namespace).then_some(row.id)),
        "nodes" => ids::<Nodes>(view, prefix, |row| Some(row.id)),
        "jobs" => texts::<Jobs>(view, spaced(), prefix, |row| row.id),
        "vars" => texts::<Variables>(view, spaced(), prefix, |row| row.path),
        "namespaces" => texts::<Namespaces>(view, named, prefix, |row| row.name),
        "node_pools" => texts::<NodePools>(view, named, prefix, |row| row.name),
        _ => Ok(Vec::new()),
    }
}

/// Ids that begin with a prefix; an odd number of digits is rounded down first.
fn ids<T: Table<Key = Id>>(
    view: &View,
    prefix: &str,
    id: impl Fn(T::Row) -> Option<String>,
) -> Result<Vec<String>, StorageError> {
    let odd = prefix.chars().filter(|c| *c != '-').count() % 2 == 1;
    let even = if odd {
        &prefix[..prefix.len() - 1]
    } else {
        prefix
    };
    let Ok(rows) = rows::ids::<T>(view, even, false) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for row in rows {
        found.extend(id(row?).filter(|id| id.starts_with(prefix)));
        if found.len() > MOST {
            break;
        }
    }
    Ok(found)
}

fn texts<T: Table>(
    view: &View,
    scan: Scan,
    prefix: &str,
    text: impl Fn(T::Row) -> String,
) -> Result<Vec<String>, StorageError> {
    let mut found = Vec::new();
    for row in view.scan::<T>(scan) {
        found.extend(Some(text(row?)).filter(|text| text.starts_with(prefix)));
        if found.len() > MOST {
            break;
        }
    }
    Ok(found)
}
