//! The way to somebody who moves: the server that leads.
//!
//! Whoever leads may be this server, another one, or nobody for a while. An attempt at one takes as
//! long as there is time, and is given up only when somebody else leads: one that is slow is
//! reached all the same.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::caller::{Caller, RETRY, RETRY_MAX};
use super::duplex::Duplex;
use super::{RpcError, Streaming};

/// Where somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPlace {
    /// Here.
    Here,
    /// At this address, `host:port`.
    There(String),
    /// That is not known now.
    Unknown,
}

/// Says where somebody is, and when that is somewhere else.
pub struct Whereabouts {
    now: Box<dyn Fn() -> ClientPlace + Send + Sync>,
    moved: Box<dyn Fn(ClientPlace) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Whereabouts {
    /// Of whoever `place` finds in what is watched.
    pub fn watched<T: Send + Sync + 'static>(
        watched: watch::Receiver<T>,
        place: fn(&T) -> ClientPlace,
    ) -> Self {
        let looked_at = watched.clone();
        Self {
            now: Box::new(move || place(&looked_at.borrow())),
            moved: Box::new(move |from| {
                let mut watched = watched.clone();
                async move {
                    let moved = watched.wait_for(|seen| place(seen) != from);
                    let is_over = moved.await.is_err();
                    if is_over {
                        // Nobody says any more where he is: he stays where he was.
                        std::future::pending().await
                    }
                }
                .boxed()
            }),
        }
    }

    /// Where he is now.
    pub fn now(&self) -> ClientPlace {
        (self.now)()
    }

    /// Ready once he is not there any more.
    async fn moved(&self, from: &ClientPlace) {
        (self.moved)(from.clone()).await;
    }
}

impl Caller {
    /// Opens a stream at somebody wherever he is then, and tries again while that may help and
    /// until `deadline` is over; none where he is here, or it is not known where.
    ///
    /// # Errors
    /// The refusal, or the last reason why there was no answer, with the address of who gave it.
    pub async fn reach_whom<R: Streaming>(
        &self,
        whom: &Whereabouts,
        request: &R::Req,
        deadline: Duration,
    ) -> Result<Option<Duplex>, (String, RpcError)> {
        let end = Instant::now() + deadline;
        let mut wait = RETRY;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let place = whom.now();
            let addr = match &place {
                ClientPlace::Here => return Ok(None),
                ClientPlace::Unknown => match timeout(left, whom.moved(&place)).await {
                    Ok(()) => continue,
                    Err(_) => return Ok(None),
                },
                ClientPlace::There(addr) => addr.clone(),
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
                    let pause = error.reported_or(wait);
                    if Instant::now() + pause >= end {
                        return Err((addr, error));
                    }
                    // Whoever leads next is asked at once.
                    let _ = timeout(pause, whom.moved(&place)).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(error) => return Err((addr, error)),
            }
        }
    }
}

#[cfg(test)]
#[path = "whereabouts_test.rs"]
mod tests;
