//! Calls that stand for requests of this API: the same routes answer them, in the same words, for
//! callers that may do the same.

use axum::Router;
use axum::body::{Body, to_bytes};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Request};
use tower::Service;

use super::query::encode;
use super::request::{Called, Remote};
use crate::error::{Code, Refusal};
use crate::net::Peer;
use crate::rpc::forward::{Answered, Question};

/// The longest answer, bytes: that of a call.
const LONGEST: usize = 32 << 20;

/// Answers a request that a call stands for.
pub(super) async fn ask(
    mut router: Router,
    peer: Peer,
    question: Question,
) -> Result<Answered, Refusal> {
    let request = request(peer, question)?;
    let Ok(response) = router.call(request).await;
    let (head, body) = response.into_parts();
    let body = to_bytes(body, LONGEST).await.map_err(|error| {
        let text = format!("the answer cannot be given whole: {error}; request pages (PerPage)");
        Refusal::new(Code::PayloadTooLarge, text)
    })?;
    Ok(Answered {
        status: head.status.as_u16(),
        index: number(&head.headers, "x-nomad-index").unwrap_or_default(),
        next_token: text(&head.headers, "x-nomad-nexttoken").to_owned(),
        retry_after: number(&head.headers, "retry-after").unwrap_or_default(),
        body,
    })
}

fn request(peer: Peer, question: Question) -> Result<Request<Body>, Refusal> {
    let segments = question.path.iter().map(|part| encode(part));
    let mut target = segments.fold("/v1".to_owned(), |path, part| format!("{path}/{part}"));
    for (at, (name, value)) in question.query.iter().enumerate() {
        let before = if at == 0 { '?' } else { '&' };
        target.push_str(&format!("{before}{name}={}", encode(value)));
    }
    let begun = Request::builder().method(question.method).uri(target);
    let add = |request: Builder, (name, value)| request.header::<&str, String>(name, value);
    let request = question.headers.into_iter().fold(begun, add);
    let mut request = request
        .body(Body::from(question.body))
        .map_err(|error| Refusal::bad_request(format!("the call cannot be answered: {error}")))?;
    let beside = request.extensions_mut();
    if let Some(address) = peer.address {
        beside.insert(Remote(address));
    }
    beside.insert(peer);
    beside.insert(Called);
    Ok(request)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<N> {
    text(headers, name).parse().ok()
}
