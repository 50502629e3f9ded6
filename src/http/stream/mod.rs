//! The event stream: what happened, as it happens, to whoever asks (HTTP API 14).
//!
//! While anybody subscribes, every applied index is rendered once by the [`Publisher`] and kept in
//! a ring; a subscriber holds a position, takes what he wants from the ring, and reads `changes`
//! and `history` when he starts or falls behind it. So nobody is cut off and
//! nothing is skipped: the stream has no gap,
//! no repeat and no reordering. A reader who is slow waits at his own bounded channel.
//!
//! Start reading at [`serve`], then `ring.rs` and `render.rs`.

mod batch;
mod payload;
mod publisher;
mod render;
mod ring;
mod subscription;

#[cfg(test)]
mod stream_test;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_projections::Projections;
use tokio::sync::{mpsc, watch};

pub use publisher::Publisher;
use ring::{Found, Ring};
use subscription::Subscription;

use super::answer::{Answer, JSON};
use super::body::Body;
use super::front::Write;
use crate::error::{ApiError, Code};

/// Time between heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Bytes of lines sent in one piece at most (a longer single line goes as it is).
const PIECE: usize = 64 << 10;
/// Pieces that may wait for a slow reader.
const BACKLOG: usize = 4;
/// Indexes of the past that are read in one view.
const PAST: u64 = 512;

/// `GET /v1/event/stream`.
///
/// # Errors
/// 400 for a malformed index or topic.
pub(super) async fn serve(write: Write) -> Result<Answer, ApiError> {
    let query = &write.request.query;
    let subscription = Subscription::read(query)?;
    let index = match query.text("index") {
        "" => 0,
        raw => raw.parse::<u64>().map_err(|_| {
            ApiError::bad_request(format!(
                "Unable to parse index: strconv.Atoi: parsing \"{raw}\": invalid syntax"
            ))
        })?,
    };
    if index != 0 {
        told(&write.api.projections, index)?;
    }
    let ring = Arc::clone(write.api.stream.ring());
    let published = ring.listen().await;
    let position = if index == 0 { ring.head() } else { index };
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let reader = Reader {
        projections: Arc::clone(&write.api.projections),
        ring,
        subscription,
        position,
        published,
        sender,
    };
    tokio::spawn(reader.run());
    Ok(Answer::of(JSON, Body::stream(receiver)).header("cache-control", "no-cache"))
}

/// Refuses a position whose events are not told by this server.
///
/// # Errors
/// 410 that names the first index there is.
fn told(projections: &Projections, index: u64) -> Result<(), ApiError> {
    let floor = projections.view().position().floor;
    if index > floor {
        return Ok(());
    }
    let first = floor + 1;
    let text = format!("the events at index {index} are gone; the first ones here are at {first}");
    Err(ApiError::new(Code::Gone, text))
}

/// One subscriber.
struct Reader {
    projections: Arc<Projections>,
    ring: Arc<Ring>,
    subscription: Subscription,
    /// The next index to look at.
    position: u64,
    /// Told after every index that was published.
    published: watch::Receiver<u64>,
    sender: mpsc::Sender<Bytes>,
}

impl Reader {
    async fn run(mut self) {
        if !self.send(Bytes::from_static(b"{}\n")).await {
            return;
        }
        let mut heartbeat =
            tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        loop {
            self.published.mark_unchanged();
            let lines = match self.next() {
                Ok(lines) => lines,
                Err(error) if error.code == Code::Gone => {
                    tracing::info!(%error, "a subscriber has to start again");
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "the event stream cannot go on");
                    return;
                }
            };
            match lines {
                Some(lines) if lines.is_empty() => tokio::task::yield_now().await,
                Some(lines) => {
                    if !self.send(lines.into()).await {
                        return;
                    }
                }
                None => tokio::select! {
                    changed = self.published.changed() => if changed.is_err() { return },
                    _ = heartbeat.tick() => {
                        if !self.send(Bytes::from_static(b"{}\n")).await {
                            return;
                        }
                    }
                    () = self.sender.closed() => return,
                },
            }
        }
    }

    /// The lines that are there now; none when the subscriber has seen everything.
    fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        match self.ring.read(self.position, PIECE) {
            Found::Nothing => Ok(None),
            Found::Batches(batches, next) => {
                let mut lines = Vec::new();
                for batch in batches {
                    batch.line_for(&self.subscription, &mut lines);
                }
                self.position = next;
                Ok(Some(lines))
            }
            Found::Before => self.past().map(Some),
        }
    }

    /// Lines of indexes that the ring has no longer.
    fn past(&mut self) -> Result<Vec<u8>, ApiError> {
        told(&self.projections, self.position)?;
        let view = self.projections.view();
        let last = self.position.saturating_add(PAST - 1).min(view.index());
        let mut lines = Vec::new();
        for batch in render::batches(&view, self.position, last)? {
            batch.line_for(&self.subscription, &mut lines);
        }
        self.position = last + 1;
        Ok(lines)
    }

    async fn send(&self, lines: Bytes) -> bool {
        self.sender.send(lines).await.is_ok()
    }
}
