//! The one task that renders what is applied and puts it into the ring.

use std::sync::Arc;
use std::time::Duration;

use drover_projections::Projections;
use tokio_util::sync::CancellationToken;

use super::render;
use super::ring::{HEAD, Ring};
use crate::error::ApiError;

/// Indexes rendered in one view at most.
const STRIDE: u64 = 256;
/// Time between two tries when what was applied cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// The live end of the stream.
#[derive(Default)]
pub struct Publisher {
    ring: Arc<Ring>,
}

impl Publisher {
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Publishes until told to stop. While nobody subscribes nothing is rendered or kept.
    pub async fn run(&self, projections: Arc<Projections>, stop: CancellationToken) {
        loop {
            let outcome = tokio::select! {
                outcome = self.publish(&projections) => outcome,
                () = stop.cancelled() => return,
            };
            let Err(error) = outcome else { return };
            // Subscribers before the new beginning read the past, so nobody misses anything.
            tracing::error!(%error, "the event stream starts over");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn publish(&self, projections: &Projections) -> Result<(), ApiError> {
        loop {
            self.ring.somebody().await;
            let mut position = self.begin(projections)?;
            while self.ring.is_read() {
                let applied = tokio::select! {
                    applied = projections.watch().beyond(position) => applied,
                    () = self.ring.nobody() => continue,
                };
                while position < applied {
                    let view = projections.view();
                    let floor = view.position().floor;
                    if floor > position {
                        // A snapshot took the place of what was here: its rows are no news, and
                        // what happened in between is not told here. Who waits for that is told
                        // to leave.
                        self.ring.begin(floor + 1, Vec::new(), floor);
                        position = floor;
                        continue;
                    }
                    let last = (position + STRIDE).min(applied);
                    let batches = render::batches(&view, position + 1, last)?;
                    self.ring.push(batches, last);
                    position = last;
                    tokio::task::yield_now().await;
                }
            }
            self.ring.forget(position);
        }
    }

    /// Fills the ring with the newest batches of the past; answers the index it reaches.
    fn begin(&self, projections: &Projections) -> Result<u64, ApiError> {
        let view = projections.view();
        let applied = view.index();
        let oldest = view.position().floor + 1;
        let mut stretch = HEAD as u64 * 2;
        loop {
            let first = applied.saturating_sub(stretch).max(oldest);
            let batches = render::batches(&view, first, applied)?;
            if batches.len() >= HEAD || first == oldest {
                self.ring.begin(first, batches, applied);
                return Ok(applied);
            }
            stretch *= 8;
        }
    }
}
