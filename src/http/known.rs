//! Which parameters mean something here. What a caller sets and nobody reads is named in the
//! answer,
//! in the header `X-Drover-Ignored` and in the warnings of a job, so that nobody takes silence for
//! consent.

use super::query::Query;

/// The header that names what was ignored.
pub(super) const HEADER: &str = "x-drover-ignored";

/// Every parameter that some route reads, in the order of their names.
#[rustfmt::skip]
const PARAMETERS: &[&str] = &[
    "actor", "actor_kind", "address", "all", "all_changes", "as_of", "at", "cas", "changes",
    "checkpoints", "choose", "class", "diff", "diff_tag", "diff_version", "diffs", "epoch",
    "eval_priority", "fields", "filter", "follow", "format", "from", "full", "id",
    "idempotency_token", "include_children", "index", "job", "key", "kind", "limit", "meta",
    "namespace", "next_token", "no_shutdown_delay", "node_id", "numbers", "offset", "origin", "os",
    "outcome", "path", "payload", "per_page", "plain", "prefix", "pretty", "purge", "region",
    "related", "request_id", "reschedule", "resources", "resume", "reverse", "server_id", "since",
    "size", "snapshot", "stale", "status", "table", "task", "task_states", "to", "topic", "type",
    "until", "value", "version", "wait",
];

/// The parameters of a query that nobody reads. As it came: a name that is escaped is none of ours.
pub(super) fn ignored(raw: &str) -> Vec<&str> {
    let names = raw.split('&').filter(|part| !part.is_empty());
    let names = names.map(|part| part.split_once('=').map_or(part, |(name, _)| name));
    let unknown = |name: &&str| PARAMETERS.binary_search(name).is_err();
    let mut found: Vec<&str> = names.filter(unknown).collect();
    found.dedup();
    found
}

/// The same as a warning for each.
pub(super) fn warnings(query: &Query) -> impl Iterator<Item = String> {
    let unknown = |name: &&str| PARAMETERS.binary_search(name).is_err();
    let names = query.names().filter(unknown);
    names.map(|name| format!("Parameter {name:?} means nothing here and was ignored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_named() {
        assert!(PARAMETERS.is_sorted());
        assert_eq!(ignored(""), [""; 0]);
        assert_eq!(ignored("pretty&index=1&namespace=a"), [""; 0]);
        assert_eq!(
            ignored("global=true&index=1&policy_override&x%20y=1"),
            ["global", "policy_override", "x%20y"]
        );
    }

    /// What handlers ask for by name must be known, or it would be called ignored.
    #[test]
    fn every_parameter_that_is_read_is_known() {
        let asks = [
            "text", "flag", "flag_or", "number", "get", "all", "since", "until", "named",
        ];
        let mut seen = 0;
        let mut open = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let inside = std::fs::read_dir(&path).unwrap();
                open.extend(inside.map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| line.contains("query")) {
                for ask in asks {
                    let Some((_, rest)) = line.split_once(&format!("{ask}(")) else {
                        continue;
                    };
                    let Some(name) = rest.split('"').nth(1) else {
                        continue;
                    };
                    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                    if plain && !name.is_empty() {
                        seen += 1;
                        assert!(PARAMETERS.contains(&name), "{name} in {}", path.display());
                    }
                }
            }
        }
        assert!(seen > 30, "only {seen} were found");
    }
}
