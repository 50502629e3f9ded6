//! The way to the leader, which may be another server at any time.
//!
//! The leader may be this server, another one, or unknown for a while. An attempt at one takes as
//! long as there is time, and is given up only when another server leads: one that is slow is
//! reached all the same.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::caller::{Caller, RETRY, RETRY_MAX};
use super::duplex::Duplex;
use super::{RpcError, Streaming};

/// Where the leader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderLocation {
    Here,
    /// At this address, `host:port`.
    There(String),
    /// That is not known now.
    Unknown,
}

/// Finds where the leader is, and when that changes.
pub struct LeaderLocator {
    now: Box<dyn Fn() -> LeaderLocation + Send + Sync>,
    moved: Box<dyn Fn(LeaderLocation) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl LeaderLocator {
    /// Of the leader that `location` finds in what is watched.
    pub fn watched<T: Send + Sync + 'static>(
        watched: watch::Receiver<T>,
        location: fn(&T) -> LeaderLocation,
    ) -> Self {
        let looked_at = watched.clone();
        Self {
            now: Box::new(move || location(&looked_at.borrow())),
            moved: Box::new(move |from| {
                let mut watched = watched.clone();
                async move {
                    let moved = watched.wait_for(|seen| location(seen) != from);
                    let is_over = moved.await.is_err();
                    if is_over {
                        // The sender is gone: the leader stays where it was.
                        std::future::pending().await
                    }
                }
                .boxed()
            }),
        }
    }

    /// Where the leader is now.
    pub fn now(&self) -> LeaderLocation {
        (self.now)()
    }

    /// Ready once the leader is not there any more.
    async fn moved(&self, from: &LeaderLocation) {
        (self.moved)(from.clone()).await;
    }
}

impl Caller {
    /// Opens a stream to the leader wherever it is then, and tries again while that may help and
    /// until `deadline` is over; none where the leader is this server, or not known.
    ///
    /// # Errors
    /// The refusal, or the last reason why there was no answer, with the address of the server that
    /// gave it.
    pub async fn reach_whom<R: Streaming>(
        &self,
        whom: &LeaderLocator,
        request: &R::Req,
        deadline: Duration,
    ) -> Result<Option<Duplex>, (String, RpcError)> {
        let end = Instant::now() + deadline;
        let mut wait = RETRY;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let place = whom.now();
            let addr = match &place {
                LeaderLocation::Here => return Ok(None),
                LeaderLocation::Unknown => match timeout(left, whom.moved(&place)).await {
                    Ok(()) => continue,
                    Err(_) => return Ok(None),
                },
                LeaderLocation::There(addr) => addr.clone(),
            };
            let there = self.at(&addr);
            let opened = tokio::select! {
                biased;
                opened = there.open::<R>(request, left.max(RETRY)) => opened,
                () = whom.moved(&place) => {
                    wait = RETRY;
                    continue;
                }
            };
            match opened {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) if error.is_transient() => {
                    let pause = error.retry_after_or(wait);
                    if Instant::now() + pause >= end {
                        return Err((addr, error));
                    }
                    // The next leader is tried at once.
                    let _ = timeout(pause, whom.moved(&place)).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(error) => return Err((addr, error)),
            }
        }
    }
}

#[cfg(test)]
#[path = "leader_locator_test.rs"]
mod tests;
