//! The one task that renders what is applied and puts it into the ring.

use std::sync::Arc;
use std::time::Duration;

use drover_events::public::PublicFields;
use drover_projections::Projections;
use tokio_util::sync::CancellationToken;

use super::page::{Clouds, StreamPage};
use super::ring::Ring;
use super::walk::WalkSource;
use crate::error::Refusal;
use crate::history::record::Redactor;
use crate::keyring::Keyring;
use crate::log::LogEngine;
use crate::table_reads::offload;

/// Indexes rendered in one view at most.
const STRIDE: u64 = 256;
/// Time between two tries when what was applied cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// The live end of the stream.
#[derive(Default)]
pub struct Publisher {
    ring: Arc<Ring>,
    shape: Shape,
}

/// What CloudEvents of the stream look like.
#[derive(Default)]
pub struct Shape {
    /// The keys that sensitive values are hashed with. None: nothing can be hashed.
    pub keyring: Option<Arc<Keyring>>,
    /// Fields of the hashed classes that are shown in clear.
    pub public: PublicFields,
    /// The address of an agent, where events report their schemas to be.
    pub agent: String,
}

impl Publisher {
    /// One whose CloudEvents look like this.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            ..Self::default()
        }
    }

    /// What CloudEvents of the log with this epoch need, confidential values hidden as in exports.
    pub(super) fn clouds(&self, epoch: [u8; 16]) -> Clouds {
        let keyring = self.shape.keyring.as_deref();
        let redactor = keyring.map(Redactor::of).unwrap_or_default();
        Clouds {
            epoch,
            redactor: redactor.showing(self.shape.public.clone()),
            redactor_without_hashes: Redactor::default().showing(self.shape.public.clone()),
            agent: self.shape.agent.clone(),
        }
    }

    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Publishes until it is to stop. While there is no subscriber nothing is rendered or kept.
    pub async fn run(
        &self,
        projections: Arc<Projections>,
        log: Arc<LogEngine>,
        stop: CancellationToken,
    ) {
        loop {
            let outcome = tokio::select! {
                outcome = self.publish(&projections, &log) => outcome,
                () = stop.cancelled() => return,
            };
            let Err(error) = outcome else { return };
            // Subscribers before the new beginning read the projections and the log, so none misses
            // anything.
            tracing::error!(%error, "the event stream starts over");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn publish(&self, projections: &Projections, log: &LogEngine) -> Result<(), Refusal> {
        loop {
            self.ring.wait_for_subscriber().await;
            let view = projections.view();
            let mut position = view.index();
            self.ring.begin(position, view.time());
            drop(view);
            while self.ring.has_subscribers() {
                let applied = tokio::select! {
                    applied = projections.watch().beyond(position) => applied,
                    () = self.ring.wait_for_none() => continue,
                };
                while position < applied {
                    position = offload(|| self.step(projections, log, (position, applied)))?;
                    tokio::task::yield_now().await;
                }
            }
            self.ring.forget(position);
        }
    }

    /// Publishes some of what was applied after a position; answers the index it reaches.
    fn step(
        &self,
        projections: &Projections,
        log: &LogEngine,
        (position, applied): (u64, u64),
    ) -> Result<u64, Refusal> {
        let view = projections.view();
        let floor = view.position().floor;
        if floor > position {
            // A snapshot took the place of what was here: its rows are no news, and what happened
            // in between is not sent from here. The stream of a subscriber that waits for that
            // ends.
            self.ring.begin(floor, view.time());
            return Ok(floor);
        }
        let last = (position + STRIDE).min(applied);
        let source = WalkSource { view: &view, log };
        let needs = self.ring.needs();
        let epoch = log.epoch().id;
        let clouds = match needs.cloud_events || needs.cloud_events_without_hashes {
            true => self.clouds(epoch),
            false => Clouds::default(),
        };
        let page = StreamPage::render(source, (position + 1, last), needs, &clouds)?;
        let upto = page.upto;
        self.ring.push(page, view.time());
        Ok(upto)
    }
}
