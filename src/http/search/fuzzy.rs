//! Search for names that contain a text.

use std::collections::BTreeMap;

use drover_events::gojson::{List, Map};
use drover_events::model::{Job, Namespace, Node, NodePool, Service, VariableEncrypted};
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::nodes::Nodes;
use drover_projections::tables::variables::Variables;
use drover_projections::{Scan, Table};

use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::list::storage;
use crate::http::search::{CONTEXTS, LOOKED, Scope, contexts, ids_of};
use crate::http::sight::Sight;

/// What is found by the beginning of its id, not by its name.
const BY_ID: [&str; 5] = [
    "evals",
    "deployment",
    "volumes",
    "host_volumes",
    "scaling_policy",
];

drover_events::wire! {
    /// What to search for, and where.
    struct FuzzyRequest {
        text: String = "Text",
        context: String = "Context",
        namespace: String = "Namespace",
    }

    /// A name that contains the text, and where it stands.
    struct FuzzyMatch {
        id: String = "ID",
        scope: List<String> = "Scope" omit,
    }

    /// What was found, by context.
    struct FuzzyResponse {
        matches: Map<List<FuzzyMatch>> = "Matches",
        truncations: Map<bool> = "Truncations",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// Where the text was found in a name, the name, and the ids of what has it.
type Hit = (usize, String, Vec<String>);

/// Everything found so far: by context, each with the place of the text in the name.
struct FuzzyMatches {
    text: String,
    by_context: BTreeMap<&'static str, Vec<Hit>>,
}

impl FuzzyMatches {
    fn offer(&mut self, context: &'static str, name: &str, scope: &[&str]) {
        if let Some(at) = name.to_lowercase().find(&self.text) {
            let scope = scope.iter().map(|part| (*part).to_owned()).collect();
            let list = self.by_context.entry(context).or_default();
            list.push((at, name.to_owned(), scope));
        }
    }

    fn services(&mut self, services: &[Service], scope: &[&str]) {
        for service in services {
            self.offer("services", &service.name, scope);
        }
    }

    /// A job's name, and the names in it.
    fn job(&mut self, job: &Job) {
        let (namespace, id) = (job.namespace.as_str(), job.id.as_str());
        self.offer("jobs", &job.name, &[namespace, id]);
        for group in &job.task_groups {
            let name = group.name.as_str();
            self.offer("groups", name, &[namespace, id]);
            self.services(&group.services, &[namespace, id, name]);
            for task in &group.tasks {
                let scope = [namespace, id, name, task.name.as_str()];
                self.offer("tasks", &task.name, &scope[..3]);
                self.services(&task.services, &scope);
                let (context, key) = match task.driver.as_str() {
                    "docker" => ("images", "image"),
                    "exec" | "raw_exec" => ("commands", "command"),
                    "java" => ("classes", "class"),
                    _ => continue,
                };
                if let Some(text) = task.config.get(key).and_then(|value| value.as_str()) {
                    self.offer(context, text, &scope);
                }
            }
        }
    }

    /// The best matches per context: the text near the beginning, then short names.
    fn finish(
        self,
        most: usize,
        truncations: &mut Map<bool>,
    ) -> BTreeMap<String, List<FuzzyMatch>> {
        let mut matches = BTreeMap::new();
        for (context, mut found) in self.by_context {
            found.sort_by(|a, b| (a.0, a.1.len(), &a.1, &a.2).cmp(&(b.0, b.1.len(), &b.1, &b.2)));
            if found.len() > most {
                truncations.insert(context, true);
            }
            found.truncate(most);
            let found = found.into_iter().map(|(_, id, scope)| FuzzyMatch {
                id,
                scope: scope.into(),
            });
            matches.insert(context.to_owned(), found.collect());
        }
        matches
    }
}

/// `PUT /v1/search/fuzzy`.
pub(in crate::http) fn fuzzy(read: &Read<'_>) -> Result<Answer, Refusal> {
    let requested: FuzzyRequest = read.request.json()?;
    let bounds = &read.api.settings.search;
    if !bounds.fuzzy_enabled {
        return Err(Refusal::by_rule("fuzzy search is not enabled"));
    }
    let (length, shortest) = (requested.text.chars().count(), bounds.min_term_length);
    if length < shortest {
        return Err(Refusal::by_rule(format!(
            "fuzzy search query must be at least {shortest} characters, got {length}"
        )));
    }
    let namespace = match requested.namespace.as_str() {
        "" => read.request.namespace(),
        name => name,
    };
    let contexts = contexts(&requested.context)?;
    let scope = Scope::new(read, namespace);
    let mut answer = FuzzyResponse {
        known_leader: read.api.server.leader_address().is_some(),
        index: read.view.index(),
        ..FuzzyResponse::default()
    };
    for context in &contexts {
        answer.truncations.insert(*context, false);
    }
    let mut found = FuzzyMatches {
        text: requested.text.to_lowercase(),
        by_context: BTreeMap::new(),
    };
    let mut by_id = BTreeMap::new();
    for context in contexts {
        if BY_ID.contains(&context) {
            let mut ids = ids_of(&scope, context, &requested.text).map_err(storage)?;
            answer
                .truncations
                .insert(context, ids.len() > crate::http::search::MOST);
            ids.truncate(crate::http::search::MOST);
            let ids = ids.into_iter().map(|id| FuzzyMatch {
                id,
                ..FuzzyMatch::default()
            });
            by_id.insert(context.to_owned(), ids.collect::<Vec<_>>().into());
        } else {
            names(read, &scope, context, &mut found)?;
        }
    }
    let mut matches = found.finish(bounds.limit_results, &mut answer.truncations);
    matches.extend(by_id);
    answer.matches = matches.into();
    let index = answer.index;
    Ok(Answer::json(&answer)?.at(index))
}

/// Offers every name of a context that the caller may see.
fn names(
    read: &Read<'_>,
    scope: &Scope<'_>,
    context: &str,
    found: &mut FuzzyMatches,
) -> Result<(), Refusal> {
    if !scope.may_show(context) {
        return Ok(());
    }
    let view = &read.view;
    let most = match read.api.settings.search.limit_query {
        0 => usize::MAX,
        most => most,
    };
    match context {
        "jobs" => {
            let seen = |job: &Job| scope.shows(&job.namespace);
            each::<Jobs>(view, scope.spaced(""), seen, most, |job| found.job(&job))
        }
        "allocs" => {
            let seen = |row: &AllocRow| scope.shows(&row.namespace);
            each::<Allocs>(view, Scan::all(), seen, most, |row| {
                found.offer("allocs", &row.name, &[&row.namespace, &row.id]);
            })
        }
        "nodes" => {
            let seen = |_: &Node| scope.shows_nodes();
            each::<Nodes>(view, Scan::all(), seen, most, |node| {
                found.offer("nodes", &node.name, &[&node.id]);
            })
        }
        "node_pools" => {
            let seen = |pool: &NodePool| scope.shows_pool(&pool.name);
            each::<NodePools>(view, Scan::all(), seen, most, |pool| {
                found.offer("node_pools", &pool.name, &[]);
            })
        }
        "namespaces" => {
            let seen = |row: &Namespace| scope.shows_namespace(&row.name);
            each::<Namespaces>(view, Scan::all(), seen, most, |row| {
                found.offer("namespaces", &row.name, &[]);
            })
        }
        "vars" => {
            let seen = |var: &VariableEncrypted| scope.shows_variable(&var.namespace, &var.path);
            each::<Variables>(view, scope.spaced(""), seen, most, |var| {
                found.offer("vars", &var.path, &[&var.namespace, &var.path]);
            })
        }
        other => {
            debug_assert!(CONTEXTS.contains(&other));
            Ok(())
        }
    }
}

/// As many rows of a range as may be looked at, of those that may be seen.
fn each<T: Table>(
    view: &Sight,
    scan: Scan,
    seen: impl Fn(&T::Row) -> bool,
    most: usize,
    mut offer: impl FnMut(T::Row),
) -> Result<(), Refusal> {
    let mut left = most;
    let rows = view.rows::<T>(scan).at_most(LOOKED);
    for row in rows.seen_by(|_, row| seen(row)) {
        let row = row.map_err(storage)?;
        if left == 0 {
            break;
        }
        left -= 1;
        offer(row);
    }
    Ok(())
}
