//! The event stream: what happened, as it happens, to every subscriber.
//!
//! While there is a subscriber, every applied index is rendered once by the [`Publisher`] and kept
//! in a ring of pages; a subscriber holds a position, takes what it wants from the ring, and reads
//! `changes`, `history` and the log when it starts or falls behind it. So no subscriber is cut off
//! and nothing is skipped: the stream has no gap, no repeat and no reordering. A reader that is
//! slow waits at its own channel, which holds few pieces; what it costs is bounded by bytes,
//! however large an event is, but for one CloudEvent, which goes out whole.
//!
//! By default it is Nomad's, byte for byte the same from every server. What is ours: server-sent
//! events and CloudEvents, topics for what Nomad is silent about (`**` stands for all topics, `*`
//! for those of Nomad), selection by kind, actor and payload, positions by time, checkpoints.
//!
//! It must not know how events are applied or replicated. A row that cannot be read is sent as
//! such: the event is there, with the reason in place of its payload.
//!
//! Start reading at [`serve`], then `reader.rs`, `ring.rs` and `report.rs`.

mod form;
mod own;
mod page;
mod payload;
mod permit;
mod publisher;
mod reader;
mod report;
pub(super) mod right;
mod ring;
mod sample;
pub(super) mod schema;
mod selection;
mod start;
mod walk;

#[cfg(test)]
mod page_test;
#[cfg(test)]
mod reader_test;
#[cfg(test)]
mod stream_test;
#[cfg(test)]
pub(crate) mod testing;

use crate::identity::Identity;
use std::sync::Arc;

use tokio::sync::mpsc;

pub use publisher::{Publisher, Shape};

use super::answer::Answer;
use super::body::Body;
use super::gate::Late;
use super::permit::Permit;
use super::query::Query;
use crate::error::Refusal;
use form::Form;
use reader::{BACKLOG, StreamReader};
use report::{PastWalk, Subscription};
use selection::Selection;

/// The parameters of the stream.
const PARAMETERS: [&str; 11] = [
    "topic",
    "namespace",
    "kind",
    "actor",
    "filter",
    "index",
    "since",
    "epoch",
    "format",
    "checkpoints",
    "numbers",
];
/// What Nomad's clients put on every request.
const EVERYWHERE: [&str; 10] = [
    "region",
    "stale",
    "consistent",
    "wait",
    "pretty",
    "prefix",
    "reverse",
    "per_page",
    "next_token",
    "as_of",
];

/// Refuses parameters that nothing here reads: a misspelt one would widen what is sent.
///
/// # Errors
/// 400 with those there are.
fn known(query: &Query) -> Result<(), Refusal> {
    let unknown = |name: &&str| !PARAMETERS.contains(name) && !EVERYWHERE.contains(name);
    match query.names().find(unknown) {
        None => Ok(()),
        Some(name) => Err(Refusal::bad_request(format!(
            "{name:?} is no parameter of the event stream; there are {}",
            PARAMETERS.join(", ")
        ))),
    }
}

/// `GET /v1/event/stream`.
///
/// # Errors
/// 400 that names the parameter; 410 for a position that is not sent from here.
pub(super) async fn serve(publisher: Arc<Publisher>, late: Late) -> Result<Answer, Refusal> {
    let (api, request) = (&late.api, &late.request);
    known(&request.query)?;
    let form = Form::read(request)?;
    let subscription = Subscription {
        selection: Selection::read(&request.query, form.cloud)?,
        form,
        permit: Permit::of(Arc::clone(&request.identity.acl)),
        clouds: publisher.clouds(api.log.epoch().id),
    };
    subscription.permit.admit(&subscription.selection)?;
    let (content_type, epoch) = (
        subscription.form.content_type(),
        hex::encode(subscription.clouds.epoch),
    );
    let subscriber = publisher.ring().subscribe(subscription.needs()).await;
    let position = start::position(api, request).await?;
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let reader = StreamReader {
        projections: Arc::clone(&api.projections),
        log: Arc::clone(&api.log),
        subscription,
        position,
        past: PastWalk::default(),
        subscriber,
        sender,
        begun: false,
    };
    // Each event has a right of its own: a subscriber that may see more or less begins anew.
    let first = Arc::clone(&request.identity.acl);
    let same = move |now: &Identity| now.acl == first;
    let right = right::changed(Arc::clone(api), Arc::clone(request), same);
    tokio::spawn(reader.run(right));
    Ok(Answer::of(content_type, Body::stream(receiver))
        .header("cache-control", "no-cache")
        .header(start::EPOCH, epoch))
}
