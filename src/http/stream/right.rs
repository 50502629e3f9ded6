//! A subscriber's right to go on: it ends within a second of what gave it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

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

/// Waits until the caller of a request no longer has the right that let him in.
pub(in crate::http) async fn changed(
    api: Arc<Api>,
    request: Arc<Request>,
    holds: impl Fn(&Identity) -> bool,
) {
    if !api.gate.is_guarded() {
        return std::future::pending().await;
    }
    let again = || {
        let (api, request) = (Arc::clone(&api), Arc::clone(&request));
        async move { front::identity(&api, &request).await }
    };
    lost(again, holds).await;
}

/// Waits until who asks again no longer has the right.
pub(in crate::http) async fn lost<I, Fut>(
    again: impl Fn() -> Fut,
    holds: impl Fn(&Identity) -> bool,
) where
    I: Deref<Target = Identity>,
    Fut: Future<Output = Result<I, ApiError>>,
{
    loop {
        tokio::time::sleep(OFTEN).await;
        match again().await {
            Ok(now) if now.refusal.is_none() && holds(&now) => {}
            // What cannot be read now is looked after again: nothing more can be told meanwhile.
            Err(_) => {}
            Ok(_) => return,
        }
    }
}
