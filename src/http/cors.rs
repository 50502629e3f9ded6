//! Which routes browsers may call from pages of other origins, and the headers that say so.
//! Every origin may call them; what counts is the token.

use axum::response::{IntoResponse, Response};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::front::Incoming;

const READ: &[&str] = &["HEAD", "GET"];
const READ_AND_WRITE: &[&str] = &["HEAD", "GET", "PUT", "DELETE"];

/// The methods other origins may use on a path.
fn methods(path: &str) -> &'static [&'static str] {
    let below = ["/v1/client/fs/", "/v1/client/allocation/"];
    let exactly = [
        "/v1/client/stats",
        "/v1/client/metadata",
        "/v1/client/identity",
        "/v1/client/identity/renew",
        "/v1/vars",
    ];
    if path.starts_with("/v1/var/") {
        READ_AND_WRITE
    } else if exactly.contains(&path) || below.iter().any(|prefix| path.starts_with(prefix)) {
        READ
    } else {
        &[]
    }
}

/// Whether a request from a page of some origin is allowed for every origin.
pub(super) fn permits(parts: &Parts) -> bool {
    parts.headers.contains_key(header::ORIGIN)
        && methods(parts.uri.path()).contains(&parts.method.as_str())
}

/// Lets every origin read the answer.
pub(super) fn open(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        HeaderValue::from_static("true"),
    );
}

/// The answer to a browser's preflight request, if this is one and the route is open.
pub(super) fn preflight(incoming: &Incoming) -> Option<Response> {
    let incoming_headers = incoming.headers();
    let wanted = incoming_headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    let allowed = methods(incoming.uri().path());
    if *incoming.method() != Method::OPTIONS || allowed.is_empty() {
        return None;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let fits = wanted.to_str().is_ok_and(|m| allowed.contains(&m));
    if incoming_headers.contains_key(header::ORIGIN) && fits {
        open(headers);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, wanted.clone());
        if let Some(names) = incoming_headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
    }
    Some(response)
}
