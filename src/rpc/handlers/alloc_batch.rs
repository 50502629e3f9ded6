//! Updates of many clients become one event (HB-07).
//!
//! What arrives within [`WINDOW`] goes into one command; each caller hears of its own part.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::alloc::AllocsUpdatedByClient;
use drover_events::model::Allocation;
use drover_events::{Event, EventId};
use drover_projections::{Reply, View};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::commands::alloc::UpdateAllocsFromClient;
use crate::commands::{Command, Decision, Stamp};
use crate::error::{ApiError, Code};
use crate::raft::Origin;
use crate::server::Server;

/// How long the first update waits for others.
const WINDOW: Duration = Duration::from_millis(50);
/// How many allocations one event holds at most: an apply is short.
const MAX_ALLOCS: usize = 256;
/// Updates that may wait for the batcher.
const QUEUE: usize = 10_000;

struct Part {
    command: UpdateAllocsFromClient,
    origin: Origin,
    answer: oneshot::Sender<Result<u64, ApiError>>,
}

/// Takes updates and answers each with the index of its event.
pub(super) struct Batcher {
    tx: mpsc::Sender<Part>,
}

impl Batcher {
    pub(super) fn start(server: Arc<Server>) -> Self {
        let (tx, rx) = mpsc::channel(QUEUE);
        tokio::spawn(run(server, rx));
        Self { tx }
    }

    pub(super) async fn submit(
        &self,
        node: String,
        allocs: Vec<Allocation>,
        origin: Origin,
    ) -> Result<u64, ApiError> {
        let command = UpdateAllocsFromClient {
            allocs,
            caller: Some(node),
        };
        let (answer, answered) = oneshot::channel();
        let ends = || ApiError::new(Code::Unavailable, "the server is stopping");
        self.tx
            .send(Part {
                command,
                origin,
                answer,
            })
            .await
            .map_err(|_| ends())?;
        answered.await.map_err(|_| ends())?
    }
}

async fn run(server: Arc<Server>, mut rx: mpsc::Receiver<Part>) {
    while let Some(first) = rx.recv().await {
        let end = Instant::now() + WINDOW;
        let mut count = first.command.allocs.len();
        let mut parts = vec![first];
        while count < MAX_ALLOCS {
            match tokio::time::timeout_at(end, rx.recv()).await {
                Ok(Some(part)) => {
                    count += part.command.allocs.len();
                    parts.push(part);
                }
                Ok(None) | Err(_) => break,
            }
        }
        // The next batch fills while this one is on its way.
        tokio::spawn(send(server.clone(), parts));
    }
}

async fn send(server: Arc<Server>, parts: Vec<Part>) {
    let mut commands = Vec::with_capacity(parts.len());
    let mut answers = Vec::with_capacity(parts.len());
    let mut origin = None;
    for Part {
        command,
        origin: from,
        answer,
    } in parts
    {
        commands.push(command);
        answers.push(answer);
        origin.get_or_insert(from);
    }
    let batch = Arc::new(Batch {
        refused: Mutex::new(vec![None; commands.len()]),
        commands,
    });
    let origin = match (answers.len(), origin) {
        (1, Some(origin)) => origin,
        // Many nodes act at once: the server that gathered them speaks for them.
        _ => server.origin("client-updates"),
    };
    let command: Arc<dyn Command> = batch.clone();
    let result = server.proposer.submit(command, origin).await;
    let refused = std::mem::take(&mut *batch.refused.lock());
    for (answer, refused) in answers.into_iter().zip(refused) {
        let result = match (refused, &result) {
            (Some(error), _) => Err(error),
            (None, Ok(committed)) => Ok(committed.index),
            (None, Err(error)) => Err(error.clone()),
        };
        // A caller that has gone away needs no answer.
        let _ = answer.send(result);
    }
}

/// One command made of many; parts that are refused are left out and told so.
struct Batch {
    commands: Vec<UpdateAllocsFromClient>,
    refused: Mutex<Vec<Option<ApiError>>>,
}

impl Command for Batch {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, ApiError> {
        let mut all = AllocsUpdatedByClient {
            updated_at: stamp.now,
            ..Default::default()
        };
        let mut guards = Vec::new();
        let (mut jobs, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        let mut refused = vec![None; self.commands.len()];
        for (n, command) in self.commands.iter().enumerate() {
            let stamp = Stamp {
                id: derived(stamp.id, n),
                now: stamp.now,
            };
            match command.decide(view, &stamp) {
                Err(error) => refused[n] = Some(error),
                Ok(Decision::Event {
                    event: Event::AllocsUpdatedByClient(part),
                    guards: more,
                }) => {
                    guards.extend(more);
                    all.updates.extend(part.updates);
                    nodes.extend(part.nodes);
                    let new = part
                        .evals
                        .into_iter()
                        .filter(|eval| jobs.insert((eval.namespace.clone(), eval.job_id.clone())));
                    all.evals.extend(new);
                }
                Ok(_) => {}
            }
        }
        *self.refused.lock() = refused;
        all.nodes = nodes.into_iter().collect();
        if all.updates.is_empty() && all.nodes.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::guarded(all, guards))
    }

    /// Of parts that were refused nothing follows.
    fn cause(&self, view: &View) -> Option<u64> {
        let refused = self.refused.lock();
        let taken = self.commands.iter().zip(refused.iter());
        taken
            .filter(|(_, refused)| refused.is_none())
            .filter_map(|(command, _)| command.cause(view))
            .min()
    }
}

/// An id of its own for each part, so that what is made from it differs.
fn derived(EventId(mut id): EventId, n: usize) -> EventId {
    for (byte, add) in id.iter_mut().zip((n as u64).to_le_bytes()) {
        *byte ^= add;
    }
    EventId(id)
}
