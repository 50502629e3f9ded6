//! A subscriber's right to go on: it ends within a second of what gave it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acl::Acl;
use crate::error::{ApiError, Code};
use crate::http::front;
use crate::http::request::Request;
use crate::http::state::Api;
use crate::identity::Identity;

/// How often it is looked after.
const OFTEN: Duration = Duration::from_millis(500);

/// What a subscriber is told whose rights changed; he may ask again with those of now.
pub(super) fn ended() -> ApiError {
    let text = "subscription closed by server, client should resubscribe";
    ApiError::new(Code::PermissionDenied, text)
}

/// Whether two callers may do the same; they mostly share what says so.
fn same(one: &Arc<Acl>, other: &Arc<Acl>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Waits until what the caller of a request may do is no longer what it was.
pub(in crate::http) async fn changed(api: Arc<Api>, request: Arc<Request>) {
    if !api.gate.is_guarded() {
        return std::future::pending().await;
    }
    let first = Arc::clone(&request.identity.acl);
    let again = || {
        let (api, request) = (Arc::clone(&api), Arc::clone(&request));
        async move { front::identity(&api, &request).await }
    };
    lost(first, again).await;
}

/// Waits until who asks again may no longer do what he could first.
pub(in crate::http) async fn lost<I, Fut>(first: Arc<Acl>, again: impl Fn() -> Fut)
where
    I: Deref<Target = Identity>,
    Fut: Future<Output = Result<I, ApiError>>,
{
    loop {
        tokio::time::sleep(OFTEN).await;
        match again().await {
            Ok(now) if now.refusal.is_none() && same(&now.acl, &first) => {}
            // What cannot be read now is looked after again: nothing more can be told meanwhile.
            Err(_) => {}
            Ok(_) => return,
        }
    }
}
