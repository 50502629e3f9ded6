//! What is counted of requests: how many, and of which endpoint and kind, by the names that Nomad
//! has for the calls which its API makes of them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use hyper::Method;
use hyper::http::request::Parts;

use super::job_path;
use crate::telemetry::labels;

/// The endpoints of the API, by the first parts of their paths; the longest that fits counts.
const ENDPOINTS: &[(&str, &str)] = &[
    (".well-known", "keyring"),
    ("acl", "acl"),
    ("agent", "agent"),
    ("allocation", "alloc"),
    ("allocations", "alloc"),
    ("audit", "audit"),
    ("client/allocation", "client_allocations"),
    ("client/fs", "file_system"),
    ("client/gc", "client_allocations"),
    ("client/identity", "node_identity"),
    ("client/metadata", "node_meta"),
    ("client/stats", "client_stats"),
    ("deployment", "deployment"),
    ("deployments", "deployment"),
    ("evaluation", "eval"),
    ("evaluations", "eval"),
    ("event", "event"),
    ("job", "job"),
    ("jobs", "job"),
    ("log", "log"),
    ("metrics", "metrics"),
    ("namespace", "namespace"),
    ("namespaces", "namespace"),
    ("node", "node"),
    ("nodes", "node"),
    ("node/pool", "node_pool"),
    ("node/pools", "node_pool"),
    ("operator", "operator"),
    ("operator/keyring", "keyring"),
    ("plugin", "csi_plugin"),
    ("plugins", "csi_plugin"),
    ("quota", "quota"),
    ("quota-usages", "quota"),
    ("quotas", "quota"),
    ("recommendation", "recommendation"),
    ("recommendations", "recommendation"),
    ("regions", "region"),
    ("scaling", "scaling"),
    ("schema", "schema"),
    ("search", "search"),
    ("sentinel", "sentinel"),
    ("service", "service_registration"),
    ("services", "service_registration"),
    ("state", "state"),
    ("status", "status"),
    ("system", "system"),
    ("validate", "job"),
    ("var", "variables"),
    ("vars", "variables"),
    ("volume/csi", "csi_volume"),
    ("volume/host", "host_volume"),
    ("volumes", "csi_volume"),
    ("volumes/claim", "host_volume"),
    ("volumes/claims", "host_volume"),
];

/// Paths that are lists of something.
const LISTS: &[&str] = &[
    "acl/policies",
    "acl/roles",
    "acl/tokens",
    "allocations",
    "audit",
    "audit/requests",
    "deployments",
    "evaluations",
    "jobs",
    "log/entries",
    "log/segments",
    "namespaces",
    "node/pools",
    "nodes",
    "plugins",
    "quota-usages",
    "quotas",
    "recommendations",
    "regions",
    "scaling/policies",
    "sentinel/policies",
    "services",
    "vars",
    "volumes",
    "volumes/claims",
    "volumes/external",
];

/// Paths of requests that have a body and change nothing.
const REQUESTED: &[&str] = &["jobs/parse", "jobs/statuses", "search", "validate"];

/// Put beside a request: its endpoint and kind, and as what it was counted, once it was where it is
/// served.
#[derive(Clone)]
pub(super) struct Counted {
    endpoint: Option<(&'static str, &'static str)>,
    served: Arc<OnceLock<labels::Served>>,
}

/// The route that a request came by, as lists of routes show it.
pub(super) fn route(parts: &Parts) -> Cow<'static, str> {
    match parts
        .extensions
        .get::<MatchedPath>()
        .map(MatchedPath::as_str)
    {
        Some(job_path::ROUTE) => job_path::route_of(parts.uri.path()).into(),
        Some(path) => path.to_owned().into(),
        None => "".into(),
    }
}

/// A route and a method as metrics name it: of the methods there are, for a caller may send any.
fn named(method: &Method, route: &str) -> String {
    const METHODS: [Method; 6] = [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::POST,
        Method::PUT,
        Method::DELETE,
    ];
    match METHODS.contains(method) {
        true => format!("{method} {route}"),
        false => format!("other {route}"),
    }
}

/// Counts a request where it is served, once it is known who calls and before it is refused. The
/// label says who; without it requests of all callers are one number.
pub(super) fn served(request: &super::request::Request, label: Option<&str>) {
    let found = match &request.counted {
        Some(counted) => counted.endpoint,
        None => endpoint(&request.method, &request.path),
    };
    let Some((endpoint, kind)) = found else {
        return;
    };
    metrics::counter!("nomad.nomad.rpc.request").increment(1);
    let served = labels::served(&named(&request.method, &request.route), label);
    if let Some(counted) = &request.counted {
        // Set once: setting it again sets the same.
        let _ = counted.served.set(served);
    }
    labels::count(&format!("nomad.nomad.rpc.{endpoint}.{kind}"), label);
    if kind != "write" {
        metrics::counter!("nomad.nomad.rpc.query").increment(1);
    }
}

/// Measures how long a request takes until its answer begins, and counts whether it failed here.
/// Of one that waits for a change the time says nothing.
pub(super) async fn timed(mut request: Request, next: Next) -> Response {
    let counted = Counted {
        endpoint: endpoint(request.method(), request.uri().path()),
        served: Arc::default(),
    };
    request.extensions_mut().insert(counted.clone());
    let query = request.uri().query().unwrap_or_default();
    let mut parts = query.split('&');
    let waits = parts.any(|part| part.starts_with("index=") || part.starts_with("wait="));
    let began = Instant::now();
    let response = next.run(request).await;
    let Some((endpoint, kind)) = counted.endpoint else {
        return response;
    };
    if !waits {
        let took = began.elapsed();
        if let Some(served) = counted.served.get() {
            served.took(took);
        }
        let labels = [("endpoint", endpoint), ("kind", kind)];
        metrics::histogram!("drover.http.request.seconds", &labels).record(took.as_secs_f64());
    }
    if response.status().is_server_error() {
        metrics::counter!("nomad.nomad.rpc.request_error").increment(1);
    }
    response
}

/// The endpoint that a path belongs to, and what is done there.
fn endpoint(method: &Method, path: &str) -> Option<(&'static str, &'static str)> {
    let known = || {
        let path = path.strip_prefix('/')?;
        path.starts_with(".well-known/").then_some(path)
    };
    let path = { path.strip_prefix("/v1/").or_else(known)? }.trim_end_matches('/');
    let within = |part: &str| {
        path.strip_prefix(part)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let fits = ENDPOINTS.iter().filter(|(part, _)| within(part));
    let (_, endpoint) = fits.max_by_key(|(part, _)| part.len())?;
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let kind = match reads || REQUESTED.iter().any(|requested| within(requested)) {
        false => "write",
        true if LISTS.contains(&path) => "list",
        true => "read",
    };
    Some((endpoint, kind))
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn how_long_requests_take_is_measured_by_endpoint_but_for_those_that_wait() {
        let (telemetry, recorder) =
            crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        metrics::with_local_recorder(&recorder, || {
            for target in [
                "/v1/jobs",
                "/v1/jobs?prefix=a",
                "/v1/jobs?index=7&wait=1s",
                "/ui/",
            ] {
                let router = axum::Router::new()
                    .fallback(async || "")
                    .layer(axum::middleware::from_fn(timed));
                let request = Request::get(target).body(axum::body::Body::empty());
                runtime.block_on(router.oneshot(request.unwrap())).unwrap();
            }
        });
        let text = telemetry.prometheus();
        let labels = "drover_http_request_seconds_count{endpoint=\"job\",kind=\"list\"} 2";
        assert!(text.contains(labels), "{text}");
        assert_eq!(text.matches("drover_http_request_seconds_count").count(), 1);
    }

    #[test]
    fn auth_07_requests_are_named_by_their_route_and_never_by_what_callers_make_up() {
        async fn shown(method: &str, path: &str) -> String {
            async fn reported(request: Request) -> String {
                let parts = request.into_parts().0;
                named(&parts.method, &route(&parts))
            }
            let router = axum::Router::new()
                .route("/v1/node/{id}/drain", axum::routing::any(reported))
                .route(job_path::ROUTE, axum::routing::any(reported))
                .layer(axum::middleware::from_fn(timed));
            let request = Request::builder().method(method).uri(path);
            let request = request.body(axum::body::Body::empty()).unwrap();
            let body = router.oneshot(request).await.unwrap().into_body();
            let bytes = axum::body::to_bytes(body, 1_000).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        }
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        for (method, path, expected) in [
            ("PUT", "/v1/node/x/drain", "PUT /v1/node/{id}/drain"),
            ("MADEUP", "/v1/node/x/drain", "other /v1/node/{id}/drain"),
            ("GET", "/v1/job/a/b", "GET /v1/job/{id}"),
            ("GET", "/v1/job/a/b/plan", "GET /v1/job/{id}/plan"),
            ("GET", "/v1/job/%ff/plan", "GET /v1/job/{id}/plan"),
            (
                "POST",
                "/v1/job/a/periodic/force",
                "POST /v1/job/{id}/periodic/force",
            ),
        ] {
            assert_eq!(runtime.block_on(shown(method, path)), expected);
        }
        // All of them are on the page of routes.
        let pages = crate::http::router::lines();
        let page = |path: &str| pages.iter().any(|line| line.path == path);
        assert!(page("/v1/job/{id}/periodic/force") && page("/v1/job/{id}"));
    }

    #[test]
    fn auth_07_every_route_is_counted_at_some_endpoint() {
        let lines = crate::http::router::lines();
        assert!(lines.len() > 150, "{}", lines.len());
        for line in lines {
            assert!(endpoint(&Method::GET, &line.path).is_some(), "{line:?}");
        }
    }

    #[test]
    fn a_request_counts_as_the_call_that_nomad_makes_of_it() {
        for (method, path, expected) in [
            (Method::GET, "/v1/jobs", Some(("job", "list"))),
            (Method::PUT, "/v1/jobs", Some(("job", "write"))),
            (Method::POST, "/v1/jobs/parse", Some(("job", "read"))),
            (Method::GET, "/v1/job/a/b", Some(("job", "read"))),
            (Method::DELETE, "/v1/job/a", Some(("job", "write"))),
            (Method::GET, "/v1/node/pools", Some(("node_pool", "list"))),
            (Method::GET, "/v1/node/pool/x", Some(("node_pool", "read"))),
            (Method::PUT, "/v1/node/x/drain", Some(("node", "write"))),
            (Method::GET, "/v1/nodes", Some(("node", "list"))),
            (Method::POST, "/v1/search/fuzzy", Some(("search", "read"))),
            (Method::GET, "/v1/vars", Some(("variables", "list"))),
            (Method::GET, "/v1/volumes", Some(("csi_volume", "list"))),
            (
                Method::PUT,
                "/v1/volume/csi/a",
                Some(("csi_volume", "write")),
            ),
            (
                Method::GET,
                "/v1/volume/host/a",
                Some(("host_volume", "read")),
            ),
            (
                Method::GET,
                "/v1/volumes/claims",
                Some(("host_volume", "list")),
            ),
            (Method::GET, "/v1/plugins", Some(("csi_plugin", "list"))),
            (
                Method::GET,
                "/v1/client/fs/logs/x",
                Some(("file_system", "read")),
            ),
            (Method::GET, "/v1/audit", Some(("audit", "list"))),
            (Method::GET, "/v1/audit/trace", Some(("audit", "read"))),
            (Method::GET, "/v1/log/tile/0/0", Some(("log", "read"))),
            (
                Method::GET,
                "/.well-known/jwks.json",
                Some(("keyring", "read")),
            ),
            (Method::GET, "/nodes", None),
            (Method::GET, "/v1/nodesX", None),
            (Method::GET, "/ui/", None),
        ] {
            assert_eq!(endpoint(&method, path), expected, "{method} {path}");
        }
    }
}
