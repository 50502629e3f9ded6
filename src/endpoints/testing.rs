//! Services in tests.

use std::sync::Arc;

use bytes::Bytes;
use drover_projections::serving::marked;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::Refusal;
use crate::rpc::duplex::{Duplex, Keepalive};
use crate::rpc::service::{Call, Dispatch};

/// A service none of whose calls reads the tables on a thread that serves.
pub(crate) struct Marking(pub(crate) Arc<dyn Dispatch>);

impl Dispatch for Marking {
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        marked(self.0.dispatch(name, call, body)).boxed()
    }

    fn streams(&self, name: &str) -> Option<Keepalive> {
        self.0.streams(name)
    }

    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        marked(self.0.open(name, call, stream)).boxed()
    }

    fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
        marked(self.0.knows(call)).boxed()
    }
}

/// Compares a table of the page of routes with what is registered; `DROVER_BLESS=1` writes it
/// anew.
pub(crate) fn listed(columns: &str, now: &str) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/docs/routes.md");
    let text = std::fs::read_to_string(page).expect("there is a page");
    let line = format!("|{}\n", "---|".repeat(columns.matches('|').count() - 1));
    let head = format!("{columns}\n{line}");
    let (before, rest) = text.split_once(&head).expect("the page has the table");
    let (rows, after) = match rest.split_once("\n\n") {
        Some((rows, after)) => (format!("{rows}\n"), format!("\n{after}")),
        None => (rest.to_owned(), String::new()),
    };
    if std::env::var_os("DROVER_BLESS").is_some() {
        let written = std::fs::write(page, format!("{before}{head}{now}{after}"));
        return written.expect("it can be written");
    }
    assert_eq!(rows, now, "DROVER_BLESS=1 writes src/docs/routes.md anew");
}

/// A body as it is sent.
pub(crate) fn encoded(value: &impl serde::Serialize) -> bytes::Bytes {
    crate::rpc::encode(value).expect("it is one that can be sent")
}
