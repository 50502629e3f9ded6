//! Requests that come to a server while another one leads: the leader answers them.
//!
//! Requests to this very server, and reads that may be old, are answered here. Everything else goes
//! on as it came, before a caller is counted or refused: that is done where it is answered
//! (AUTH-04, AUTH-08). As long as nothing of a request was sent it goes to the leader of then,
//! which may be this server by now; while no leader is known it waits, and is answered here if that
//! goes on. What was handed on once is not handed on again: a server that leads no more by then
//! says so.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper::Method;
use hyper::http::request::Parts;

use super::forward;
use super::front::{self, Incoming, Outline};
use super::query::Query;
use super::state::Settings;
use crate::error::{Code, Refusal};
use crate::rpc::caller::Caller;
use crate::rpc::forward::ServerForward;
use crate::rpc::leader_locator::{LeaderLocation, LeaderLocator};

/// How long the leader is looked for.
const LOOKING: Duration = Duration::from_secs(5);
/// What every server answers about itself, and the nodes that it reaches itself.
const OWN: [&str; 5] = [
    "/v1/agent/",
    "/v1/audit/requests",
    "/v1/client/",
    "/v1/metrics",
    "/v1/status/",
];

/// What needs no leader: where none is known it is answered here at once. So is all that is no call
/// of the API, as pages and keys for others are.
const OF_ANY: [&str; 2] = ["/v1/regions", "/v1/schema/"];

/// The way to the server that leads.
pub struct Leading {
    /// Calls servers, with this one's certificate.
    pub caller: Caller,
    /// Where the server is that leads.
    pub leader: LeaderLocator,
    /// The settings of the API.
    pub settings: Settings,
}

/// The routes of a server that may follow another one.
pub fn follow(routes: Router, leading: Arc<Leading>) -> Router {
    routes.layer(from_fn_with_state(leading, handed_on))
}

async fn handed_on(
    State(leading): State<Arc<Leading>>,
    incoming: Incoming,
    next: Next,
) -> Response {
    let (mut parts, body) = incoming.into_parts();
    let here = match leading.leader.now() {
        LeaderLocation::Here => true,
        LeaderLocation::There(_) => is_own(&parts),
        LeaderLocation::Unknown => is_own(&parts) || is_of_any(&parts),
    };
    if here {
        return next.run(Incoming::from_parts(parts, body)).await;
    }
    let outline = Outline::of(&mut parts);
    let refused = |error: Refusal| front::finish(&leading.settings, None, outline, error.into());
    if let Err(error) = forward::knock(&leading.settings, &parts) {
        return refused(error);
    }
    let incoming = Incoming::from_parts(parts, body);
    let requested = forward::forward_request(&incoming);
    let stream = leading
        .caller
        .reach_whom::<ServerForward>(&leading.leader, &requested, LOOKING);
    match stream.await {
        Ok(Some(stream)) => match forward::over(stream, incoming).await {
            Ok(response) => response,
            Err(error) => refused(error),
        },
        Ok(None) => {
            forward::unknock(&leading.settings, &incoming);
            next.run(incoming).await
        }
        Err((addr, error)) => match forward::unreached(error) {
            error if error.code == Code::PermissionDenied => refused(stranger(&addr)),
            error => refused(error),
        },
    }
}

/// The leader does not take this server for one that hands on requests: that says nothing about the
/// caller.
fn stranger(leader: &str) -> Refusal {
    let text = format!(
        "the leader, {leader}, does not know this server by a certificate: requests are handed \
         on with tls {{ rpc = true }} and certificates of servers; send it to the leader"
    );
    Refusal::new(Code::Unavailable, text)
}

/// Whether any server answers a request as well as the one that leads.
fn is_of_any(parts: &Parts) -> bool {
    let path = parts.uri.path();
    !path.starts_with("/v1/") || OF_ANY.iter().any(|any| path.starts_with(any))
}

/// Whether a request is for this server, whichever leads.
fn is_own(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let stale = || Query::parse(parts.uri.query()).and_then(|query| query.stale());
    OWN.iter().any(|own| path.starts_with(own)) || (reads && stale().unwrap_or_default())
}
