//! Services in tests.

use std::sync::Arc;

use bytes::Bytes;
use drover_projections::serving::marked;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::duplex::{Duplex, Pace};
use super::service::{Call, Dispatch};
use crate::error::ApiError;

/// A service none of whose calls reads the tables on a thread that serves.
pub(crate) struct Marking(pub(crate) Arc<dyn Dispatch>);

impl Dispatch for Marking {
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, ApiError>> {
        marked(self.0.dispatch(name, call, body)).boxed()
    }

    fn streams(&self, name: &str) -> Option<Pace> {
        self.0.streams(name)
    }

    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), ApiError>> {
        marked(self.0.open(name, call, stream)).boxed()
    }

    fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
        marked(self.0.knows(call)).boxed()
    }
}

/// A body as it is sent.
pub(crate) fn encoded(value: &impl serde::Serialize) -> bytes::Bytes {
    super::wire::encode(value).expect("it is one that can be sent")
}
