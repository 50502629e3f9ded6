//! Paths under `/v1/job/`, which are all of one route.
//!
//! A job's id may hold slashes: it is what stands before one of the known endings, tried in Nomad's
//! order. By the ending a request is answered, and named where requests are counted.

use super::query;
use crate::error::Refusal;

/// The route of every request under `/v1/job/`.
pub(super) const ROUTE: &str = "/v1/job/{*rest}";
/// What all of their paths begin with.
const PREFIX: &str = "/v1/job/";

/// Endings of paths, in the order they are tried.
pub(super) const ENDINGS: [&str; 19] = [
    "evaluate",
    "allocations",
    "evaluations",
    "periodic/force",
    "plan",
    "summary",
    "dispatch",
    "dispatch/payload",
    "versions",
    "revert",
    "deployments",
    "deployment",
    "stable",
    "scale",
    "services",
    "submission",
    "actions",
    "action",
    "tag",
];

/// A path under `/v1/job/`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobPath {
    /// The job's id, decoded.
    pub(super) id: String,
    /// The ending, empty for the job itself.
    pub(super) ending: &'static str,
}

impl JobPath {
    /// Takes a request's path apart.
    ///
    /// # Errors
    /// 400 for a broken escape.
    pub(super) fn of(path: &str) -> Result<Self, Refusal> {
        Self::parse(path.strip_prefix(PREFIX).unwrap_or_default())
    }

    /// The id, as it stands there, and the ending.
    fn ending(path: &str) -> (&str, &'static str) {
        let found = ENDINGS.iter().find_map(|ending| {
            let id = path.strip_suffix(ending)?.strip_suffix('/')?;
            Some((id, *ending))
        });
        found.unwrap_or((path, ""))
    }

    fn parse(path: &str) -> Result<Self, Refusal> {
        let (id, ending) = Self::ending(path);
        Ok(Self {
            id: query::decode(id, false)?,
            ending,
        })
    }
}

/// The route of a path, as lists of routes show it.
pub(super) fn route_of(path: &str) -> String {
    let path = path.strip_prefix(PREFIX).unwrap_or_default();
    match JobPath::ending(path) {
        (_, "") => "/v1/job/{id}".to_owned(),
        (_, ending) => format!("/v1/job/{{id}}/{ending}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_what_stands_before_a_known_ending() {
        for (path, id, ending) in [
            ("web", "web", ""),
            ("web/allocations", "web", "allocations"),
            ("a/b/periodic-7/summary", "a/b/periodic-7", "summary"),
            ("a%2Fb%20c/dispatch/payload", "a/b c", "dispatch/payload"),
            ("x/periodic/force", "x", "periodic/force"),
            ("summary", "summary", ""),
            ("\u{4e16}\u{754c}/plan", "\u{4e16}\u{754c}", "plan"),
        ] {
            let want = JobPath {
                id: id.to_owned(),
                ending,
            };
            assert_eq!(JobPath::parse(path).unwrap(), want, "{path}");
        }
    }
}
