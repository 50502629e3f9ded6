//! Paths that no route takes: 404 with an empty body, or in Nomad's words where a name is missing
//! or a path goes too far.

use axum::response::{IntoResponse, Response};
use hyper::{StatusCode, header};

use super::answer::TEXT;
use super::front::Incoming;

/// What is answered below a prefix, when nothing follows it and when something does.
const WORDS: [(&str, Words, Words); 19] = [
    ("/v1/allocation/", missing("alloc not found"), FAR),
    ("/v1/evaluation/", missing("eval not found"), EMPTY),
    ("/v1/deployment/", missing("deployment not found"), EMPTY),
    ("/v1/job/", missing("job not found"), EMPTY),
    ("/v1/node/", missing("node not found"), EMPTY),
    ("/v1/namespace/", bad("Missing Namespace Name"), EMPTY),
    ("/v1/var/", bad("missing variable path"), EMPTY),
    ("/v1/service/", bad("missing service name"), EMPTY),
    ("/v1/client/allocation/", FAR, FAR),
    ("/v1/client/fs/", missing("Invalid method"), EMPTY),
    ("/v1/scaling/policy/", missing("policy not found"), EMPTY),
    ("/v1/volume/", FAR, FAR),
    ("/v1/volumes/", FAR, FAR),
    ("/v1/plugin/", FAR, FAR),
    ("/v1/agent/pprof/", missing("Invalid method"), EMPTY),
    ("/v1/acl/policy/", bad("Missing Policy Name"), EMPTY),
    ("/v1/acl/token/", bad("Missing Token Accessor"), EMPTY),
    (
        "/v1/acl/role/name/",
        bad("missing ACL role name"),
        bad("invalid URI"),
    ),
    (
        "/v1/acl/role/",
        bad("missing ACL role ID"),
        bad("invalid URI"),
    ),
];

/// A status and the text with it.
type Words = (u16, &'static str);

/// Without a text.
const EMPTY: Words = (404, "");
/// The path goes on too far.
const FAR: Words = missing("resource not found");

const fn missing(text: &'static str) -> Words {
    (404, text)
}

const fn bad(text: &'static str) -> Words {
    (400, text)
}

fn words(path: &str) -> Words {
    let found = WORDS.iter().find_map(|(prefix, alone, further)| {
        let rest = path.strip_prefix(prefix)?;
        Some(if rest.is_empty() { *alone } else { *further })
    });
    found.unwrap_or(EMPTY)
}

/// Answers a request for a path that no route takes.
pub(super) async fn nothing_here(incoming: Incoming) -> Response {
    let (status, text) = words(incoming.uri().path());
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    if text.is_empty() {
        return status.into_response();
    }
    (status, [(header::CONTENT_TYPE, TEXT)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_name_and_a_path_too_far_are_said() {
        for (path, status, text) in [
            ("/v1/nothing", 404, ""),
            ("/v1/namespace/", 400, "Missing Namespace Name"),
            ("/v1/allocation/", 404, "alloc not found"),
            ("/v1/allocation/a/b/c", 404, "resource not found"),
            ("/v1/evaluation/a/b", 404, ""),
        ] {
            assert_eq!(words(path), (status, text), "{path}");
        }
    }
}
