//! A subscriber's right to go on: it ends within a second of what gave it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Code, Refusal};
use crate::http::front;
use crate::http::request::Request;
use crate::http::state::Api;
use crate::identity::Identity;

/// How often it is looked after.
const OFTEN: Duration = Duration::from_millis(500);

/// The refusal for a subscriber whose rights changed; it may subscribe again with those of now.
pub(super) fn ended() -> Refusal {
    let text = "subscription closed by server, client should resubscribe";
    Refusal::new(Code::PermissionDenied, text)
}

/// Waits until the caller of a request no longer has the right that let it in.
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

/// Waits until the caller, looked up again and again, no longer has the right.
pub(in crate::http) async fn lost<I, Fut>(
    again: impl Fn() -> Fut,
    holds: impl Fn(&Identity) -> bool,
) where
    I: Deref<Target = Identity>,
    Fut: Future<Output = Result<I, Refusal>>,
{
    loop {
        tokio::time::sleep(OFTEN).await;
        match again().await {
            Ok(now) if now.refusal.is_none() && holds(&now) => {}
            // What cannot be read now is read again later: nothing more can be sent meanwhile.
            Err(_) => {}
            Ok(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::identity::Rejection;

    /// How often the caller was looked up, until that ended; the first time nothing can be read.
    /// The right holds so often.
    async fn looked(refusal: Option<Rejection>, holds: usize) -> usize {
        let looked = AtomicUsize::new(0);
        let again = async || match looked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Refusal::internal("unread")),
            _ => Ok(Box::new(Identity {
                refusal,
                ..Identity::default()
            })),
        };
        lost(again, |_| looked.load(Ordering::Relaxed) <= holds).await;
        looked.into_inner()
    }

    #[tokio::test]
    async fn what_is_followed_ends_within_a_second_of_the_right_to_it() {
        const {
            assert!(
                2 * OFTEN.as_millis() <= 1_000,
                "it is looked after that often"
            )
        };
        let refused = looked(Some(Rejection::Unknown), usize::MAX);
        // It ends at once when it is found out, and goes on while it holds or nothing can be read.
        assert_eq!(tokio::join!(looked(None, 3), refused), (4, 2));
    }
}
