//! Updates of many clients become one event (HB-07).
//!
//! What arrives within [`WINDOW`] goes into one command; each caller hears of its own part.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::EventId;
use drover_events::alloc::AllocsUpdatedByClient;
use drover_events::model::Allocation;
use drover_projections::{Reply, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::auth::Allowed;
use crate::commands::alloc::{ClientReport, UpdateAllocsFromClient, names_nodes};
use crate::commands::{Command, Decision, Stamp};
use crate::error::{Code, Refusal};
use crate::proposer::{Committed, Origin};
use crate::rpc::updates::{MAX_UPDATE, shrink, size};
use crate::server::Server;

/// How long the first update waits for others.
const WINDOW: Duration = Duration::from_millis(50);
/// How many allocations one event holds at most: an apply is short.
const MAX_ALLOCS: usize = 256;
/// How many are looked up where they came in.
const GLANCED: usize = 32;
/// Updates that may wait for the batcher.
const QUEUE: usize = 10_000;

/// How many bytes of updates one event holds, roughly: far below what an event may have.
const MAX_BYTES: usize = 2 << 20;
/// Of how many allocations it is remembered that their updates were cut.
const MAX_CUT: usize = 1_024;

struct BatchPart {
    command: Arc<UpdateAllocsFromClient>,
    bytes: usize,
    origin: Origin,
    answer: oneshot::Sender<Result<u64, Refusal>>,
}

/// The way to the log.
pub(super) trait Lane: Send + Sync + 'static {
    /// Submits a command.
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>>;
    /// The origin of what many nodes cause at once.
    fn gathered(&self) -> Origin;
}

impl Lane for Server {
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>> {
        Box::pin(self.proposer.submit(command, origin))
    }

    fn gathered(&self) -> Origin {
        self.origin("client-updates")
    }
}

/// Takes updates and answers each with the index of its event.
pub(super) struct Batcher {
    tx: mpsc::Sender<BatchPart>,
    /// Allocations of which it was logged that their updates are too large.
    cut: Mutex<BTreeSet<String>>,
}

impl Batcher {
    pub(super) fn start(lane: Arc<dyn Lane>) -> Self {
        let (tx, rx) = mpsc::channel(QUEUE);
        tokio::spawn(run(lane, rx));
        Self {
            tx,
            cut: Mutex::default(),
        }
    }

    /// Takes a node's updates. One that is larger than an update may be is cut: a client that was
    /// refused would report the same again and again, and servers would never learn what matters of
    /// it.
    pub(super) async fn submit(
        &self,
        node: String,
        mut allocs: Vec<Allocation>,
        allowed: Allowed,
    ) -> Result<u64, Refusal> {
        let mut bytes = 0;
        for alloc in &mut allocs {
            if let Some(size) = shrink(alloc) {
                self.report_cut(alloc, size);
            }
            bytes += size(alloc);
        }
        let command = Arc::new(UpdateAllocsFromClient {
            allocs,
            caller: Some(node),
        });
        let (answer, answered) = oneshot::channel();
        let ends = || Refusal::new(Code::Unavailable, "the server is stopping");
        let part = BatchPart {
            command,
            bytes,
            origin: allowed.into_origin(),
            answer,
        };
        self.tx.send(part).await.map_err(|_| ends())?;
        answered.await.map_err(|_| ends())?
    }

    /// Logs once of an allocation that what is reported of it is too much.
    fn report_cut(&self, alloc: &Allocation, size: usize) {
        let mut cut = self.cut.lock();
        if cut.len() >= MAX_CUT {
            cut.clear();
        }
        if cut.insert(alloc.id.clone()) {
            tracing::warn!(
                alloc = alloc.id,
                bytes = size,
                most = MAX_UPDATE,
                "an update of an allocation is too large: its words are cut, its state is taken"
            );
        }
    }
}

async fn run(lane: Arc<dyn Lane>, mut rx: mpsc::Receiver<BatchPart>) {
    while let Some(first) = rx.recv().await {
        let end = Instant::now() + WINDOW;
        let mut count = first.command.allocs.len();
        let mut bytes = first.bytes;
        let mut parts = vec![first];
        while count < MAX_ALLOCS && bytes < MAX_BYTES {
            match tokio::time::timeout_at(end, rx.recv()).await {
                Ok(Some(part)) => {
                    count += part.command.allocs.len();
                    bytes += part.bytes;
                    parts.push(part);
                }
                Ok(None) | Err(_) => break,
            }
        }
        // The next batch fills while this one is on its way.
        tokio::spawn(send(Arc::clone(&lane), parts));
    }
}

/// Sends a batch. One that fails as a whole is tried again in halves, down to its parts: what is
/// wrong with one is its own.
async fn send(lane: Arc<dyn Lane>, parts: Vec<BatchPart>) {
    let mut todo = vec![parts];
    while let Some(mut parts) = todo.pop() {
        let batch = Arc::new(UpdateBatch::of(&parts));
        let origin = match parts.as_slice() {
            [one] => one.origin.clone(),
            // Many nodes act at once: the server that gathered them speaks for them.
            _ => lane.gathered(),
        };
        let result = lane.submit(batch.clone(), origin).await;
        if let Err(error) = &result
            && parts.len() > 1
            && !error.concerns_all()
        {
            tracing::warn!(%error, parts = parts.len(), "a batch of client updates is cut");
            let rest = parts.split_off(parts.len() / 2);
            todo.extend([rest, parts]);
            continue;
        }
        let refused = std::mem::take(&mut batch.heard.lock().refused);
        for (part, refused) in parts.into_iter().zip(refused) {
            let result = match (refused, &result) {
                (Some(error), _) => Err(error),
                (None, Ok(committed)) => Ok(committed.index),
                (None, Err(error)) => Err(error.clone()),
            };
            // A caller that has gone away needs no answer.
            let _ = part.answer.send(result);
        }
    }
}

/// One command made of many; parts that are refused are left out and answered so.
struct UpdateBatch {
    commands: Vec<Arc<UpdateAllocsFromClient>>,
    heard: Mutex<Heard>,
}

/// What the last decision found.
#[derive(Default)]
struct Heard {
    /// Why a part was left out, for each part.
    refused: Vec<Option<Refusal>>,
    /// What those that were not follow from.
    cause: Option<u64>,
}

impl Heard {
    fn of(parts: usize) -> Self {
        Self {
            refused: vec![None; parts],
            cause: None,
        }
    }
}

impl UpdateBatch {
    fn of(parts: &[BatchPart]) -> Self {
        Self {
            commands: parts.iter().map(|part| part.command.clone()).collect(),
            heard: Mutex::new(Heard::of(parts.len())),
        }
    }
}

impl Command for UpdateBatch {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut all = AllocsUpdatedByClient {
            updated_at: stamp.now,
            ..Default::default()
        };
        let (mut jobs, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        // Nothing of a decision that was given up is answered.
        *self.heard.lock() = Heard::of(self.commands.len());
        let mut heard = Heard::default();
        let names_nodes = names_nodes(view)?;
        for (n, command) in self.commands.iter().enumerate() {
            let stamp = Stamp {
                id: derived(stamp.id, n),
                now: stamp.now,
            };
            let report = command.report(view, &stamp, names_nodes);
            heard.refused.push(report.as_ref().err().cloned());
            let Ok(ClientReport { event, cause }) = report else {
                continue;
            };
            heard.cause = heard.cause.into_iter().chain(cause).min();
            if let Some(part) = event {
                all.updates.extend(part.updates);
                nodes.extend(part.nodes);
                let new = part
                    .evals
                    .into_iter()
                    .filter(|eval| jobs.insert((eval.namespace.clone(), eval.job_id.clone())));
                all.evals.extend(new);
            }
        }
        *self.heard.lock() = heard;
        all.nodes = nodes.into_iter().collect();
        if all.updates.is_empty() && all.nodes.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(all))
    }

    fn is_long(&self) -> bool {
        let allocs = self.commands.iter().map(|command| command.allocs.len());
        allocs.sum::<usize>() > GLANCED
    }

    /// What the decision found, from the rows that it read.
    fn cause(&self, _: &View) -> Option<u64> {
        self.heard.lock().cause
    }
}

/// An id of its own for each part, so that what is made from it differs.
fn derived(EventId(mut id): EventId, n: usize) -> EventId {
    for (byte, add) in id.iter_mut().zip((n as u64).to_le_bytes()) {
        *byte ^= add;
    }
    EventId(id)
}

#[cfg(test)]
#[path = "alloc_batch_test.rs"]
mod tests;
