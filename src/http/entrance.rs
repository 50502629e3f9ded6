//! How a request is let in, step by step, in one order for all of them: at a server and at an agent
//! without one, with a body and without.
//!
//! Who asks is found out, and let in, before anything else of a request is taken in. Then comes its
//! body, where it is wanted whole; that may take its time, so who asks is let in once more.

use std::sync::Arc;

use axum::body::Body;

use super::front::{self, check_region};
use super::gate::Access;
use super::request::Request;
use super::state::{Api, Settings};
use super::{past, requests};
use crate::error::Refusal;
use crate::requests::RequestLog;

/// What is taken in of a request before its handler has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Its body, which says more of what is to be read. It alone may be about the past.
    Query,
    /// Its body, whole.
    Body,
    /// Its head: the body is taken by the handler as it comes, if at all.
    Head,
}

impl Takes {
    /// What is to be taken in of a body before the handler, and what is left for the handler.
    pub(super) fn of(self, body: Body) -> (Option<Body>, Body) {
        match self {
            Self::Query | Self::Body => (Some(body), Body::empty()),
            Self::Head => (None, body),
        }
    }
}

/// Who lets a request in.
pub(super) trait Entrance: Send + Sync {
    /// The limits of what comes in.
    fn settings(&self) -> &Settings;

    /// Finds out who asks, and lets in who may; refuses what cannot be answered here.
    fn let_in(&self, request: &mut Request) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Lets in who still may, by the tables of now.
    fn let_in_again(
        &self,
        request: &mut Request,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Takes in a request, with its body where there is one to be taken in.
///
/// # Errors
/// Why it is not let in, or why the body does not come.
pub(super) async fn taken_in<E: Entrance>(
    entrance: &E,
    mut request: Request,
    body: Option<Body>,
) -> Result<Request, Refusal> {
    entrance.let_in(&mut request).await?;
    if let Some(body) = body {
        let settings = entrance.settings();
        request
            .read_body(body, settings.body_limit, &settings.bodies)
            .await?;
        // It may have taken its time: what counts are the rights of now.
        if !request.body.is_empty() {
            entrance.let_in_again(&mut request).await?;
        }
    }
    Ok(request)
}

/// Lets in who may; the request log has who may not.
pub(super) async fn admitted(
    log: &Arc<RequestLog>,
    request: &Request,
    allowed: Result<(), Refusal>,
) -> Result<(), Refusal> {
    let Err(refusal) = allowed else {
        return Ok(());
    };
    let denied = || requests::denial(request);
    let refused = requests::answered(log, None, denied, Err(refusal)).await;
    refused.map(drop)
}

/// The way to a route of a server.
pub(super) struct ServerEntrance {
    pub(super) api: Arc<Api>,
    /// What the route asks of its caller.
    pub(super) access: Access,
    pub(super) takes: Takes,
}

impl Entrance for ServerEntrance {
    fn settings(&self) -> &Settings {
        &self.api.settings
    }

    async fn let_in(&self, request: &mut Request) -> Result<(), Refusal> {
        front::admit(&self.api, request, self.access).await?;
        if self.takes != Takes::Query {
            past::refuse(request)?;
        }
        check_region(&self.api, request)
    }

    async fn let_in_again(&self, request: &mut Request) -> Result<(), Refusal> {
        if self.api.gate.is_guarded() {
            request.identity = front::identity(&self.api, request).await?;
            let allowed = self.access.admit(request, &request.identity);
            admitted(&self.api.requests, request, allowed).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Lets in so many times.
    struct Counted {
        settings: Settings,
        times: usize,
        /// How long the body was each time.
        seen: Mutex<Vec<usize>>,
    }

    impl Counted {
        fn see(&self, request: &Request) -> Result<(), Refusal> {
            let mut seen = self.seen.lock();
            seen.push(request.body.len());
            match seen.len() > self.times {
                true => Err(Refusal::permission_denied()),
                false => Ok(()),
            }
        }
    }

    impl Entrance for Counted {
        fn settings(&self) -> &Settings {
            &self.settings
        }

        async fn let_in(&self, request: &mut Request) -> Result<(), Refusal> {
            self.see(request)
        }

        async fn let_in_again(&self, request: &mut Request) -> Result<(), Refusal> {
            self.see(request)
        }
    }

    #[tokio::test]
    async fn whoever_sends_a_body_is_let_in_before_it_and_behind_it() {
        for (takes, body, times, wanted, is_in) in [
            (Takes::Query, "{}", 2, vec![0, 2], true),
            (Takes::Body, "{}", 2, vec![0, 2], true),
            (Takes::Body, "{}", 1, vec![0, 2], false),
            (Takes::Body, "{}", 0, vec![0], false),
            (Takes::Body, "", 2, vec![0], true),
            (Takes::Head, "{}", 2, vec![0], true),
        ] {
            let entrance = Counted {
                settings: Settings::default(),
                times,
                seen: Mutex::default(),
            };
            let (parts, ()) = hyper::Request::put("/v1/jobs")
                .body(())
                .expect("a request")
                .into_parts();
            let request = Request::head(parts).expect("a head");
            let (body, left) = takes.of(Body::from(body));
            let taken = taken_in(&entrance, request, body).await;
            assert_eq!(taken.is_ok(), is_in, "{takes:?}");
            assert_eq!(*entrance.seen.lock(), wanted, "{takes:?}");
            let left = axum::body::to_bytes(left, 100).await.expect("a body");
            assert_eq!(left.is_empty(), takes != Takes::Head, "{takes:?}");
        }
    }
}
