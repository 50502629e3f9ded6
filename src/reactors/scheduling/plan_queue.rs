//! The plan queue: plans are checked one after the other, in the order of their priority, and
//! proceed to be committed without waiting for the one before.
//!
//! Each is guarded by the ids of those in flight that it builds on. If one of them is refused, no
//! mark equals its id and what was built on it fails by itself. No plan is checked then until all
//! that were in flight have landed: a plan that builds on one that is bound to fail would fail as
//! well, and its evaluation would run out of attempts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use drover_events::EventId;
use drover_projections::Projections;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::SchedulingShared;
use super::plan_check::{PlanRequest, Prepared, prepare};
use super::worker::PLANS;
use crate::error::Refusal;
use crate::error::chain;
use crate::proposer::decided::{Decided, PendingOutcome, Propose};
use crate::telemetry::took;

/// How many plans may be in flight.
pub(super) const DEPTH: u32 = 16;

/// What became of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanAnswer {
    /// All of it is committed, the end of its evaluation included.
    pub full: bool,
    /// Some of it is.
    pub progress: bool,
    /// The index to look at next.
    pub index: u64,
}

type Answer = oneshot::Sender<Result<PlanAnswer, Refusal>>;

/// Plans that wait.
#[derive(Default)]
pub struct PlanQueue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    /// One was refused, and others that build on it may be in flight.
    refused: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    plans: BTreeMap<(Reverse<i64>, u64), (PlanRequest, Answer)>,
    next: u64,
    /// The queue takes no plans any more.
    closed: bool,
}

impl PlanQueue {
    /// Queues a plan; where the queue is closed there is no answer.
    pub fn submit(&self, request: PlanRequest) -> oneshot::Receiver<Result<PlanAnswer, Refusal>> {
        let (answer, wait) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return wait;
        }
        let key = (Reverse(request.eval.priority), waiting.next);
        waiting.next += 1;
        waiting.plans.insert(key, (request, answer));
        drop(waiting);
        self.arrived.notify_one();
        wait
    }

    /// How many plans wait.
    pub fn len(&self) -> usize {
        self.waiting.lock().plans.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what waits, and whatever comes later: the submitter gets no answer.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.plans.clear();
    }

    async fn next(&self) -> (PlanRequest, Answer) {
        loop {
            let arrived = self.arrived.notified();
            if let Some((_, plan)) = self.waiting.lock().plans.pop_first() {
                return plan;
            }
            arrived.await;
        }
    }
}

/// Works the queue off until it is dropped. A panic goes back to the submitter; the queue
/// continues.
pub(super) async fn run(shared: Arc<SchedulingShared>) {
    let depth = Arc::new(Semaphore::new(DEPTH as usize));
    loop {
        let turn = AssertUnwindSafe(turn(&shared, &depth)).catch_unwind();
        match turn.await {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => tracing::error!("a plan panicked"),
        }
    }
}

/// Sends the next plan on its way. Answers whether there is a next turn.
async fn turn(shared: &Arc<SchedulingShared>, depth: &Arc<Semaphore>) -> bool {
    let (request, answer) = shared.plans.next().await;
    if shared.plans.len() + 1 == PLANS {
        // There is capacity for a plan again.
        shared.changed();
    }
    if shared.plans.refused.swap(false, Ordering::AcqRel) {
        // Waits for all that are in flight.
        drop(depth.acquire_many(DEPTH).await);
    }
    let Ok(permit) = Arc::clone(depth).acquire_owned().await else {
        return false;
    };
    if shared.is_stopped() {
        // There is capacity because what is in flight is no longer waited for.
        return false;
    }
    let (eval, token) = (request.eval.id.clone(), request.token);
    let began = Instant::now();
    let prepared = match checked(shared, request) {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = answer.send(Err(error));
            return true;
        }
    };
    let flight = Flight {
        shared: Arc::clone(shared),
        eval,
        token,
        allocs: prepared.allocs,
        slots: prepared.slots.into_iter().collect(),
        ids: prepared.events.iter().map(|event| event.id).collect(),
    };
    took("nomad.nomad.plan.evaluate", began);
    let refused = !prepared.refused.is_empty() || prepared.cut_short;
    if !prepared.refused.is_empty() {
        let nodes = prepared.refused.len() as u64;
        metrics::counter!("nomad.nomad.plan.node_rejected").increment(nodes);
    }
    let began = Instant::now();
    let launched = launch(&*shared.proposer, prepared.events, refused).await;
    shared.tasks.spawn(async move {
        let _permit = permit;
        let result = flight.land(launched).await;
        took("nomad.nomad.plan.apply", began);
        let _ = answer.send(result);
    });
    true
}

fn checked(shared: &SchedulingShared, request: PlanRequest) -> Result<Prepared, Refusal> {
    let (now, began) = (shared.clock.now(), Instant::now());
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, now).map_err(unreadable)?;
    took("nomad.nomad.plan.wait_for_index", began);
    let outstanding = core.broker.pause(&request.eval.id, request.token);
    outstanding.map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(prepare(&mut core, request, now))
}

/// A plan whose events are queued.
struct Launched {
    pending: Vec<PendingOutcome>,
    failed: Option<Refusal>,
    refused: bool,
}

async fn launch(proposer: &dyn Propose, events: Vec<Decided>, refused: bool) -> Launched {
    let mut launched = Launched {
        pending: Vec::with_capacity(events.len()),
        failed: None,
        refused,
    };
    for event in events {
        match proposer.queue(event).await {
            Ok(pending) => launched.pending.push(pending),
            Err(error) => {
                launched.failed = Some(error);
                break;
            }
        }
    }
    launched
}

/// A plan on its way. However it ends, it is taken out of what is in flight: what stayed there
/// would be waited for by every later plan on its nodes.
struct Flight {
    shared: Arc<SchedulingShared>,
    eval: String,
    token: u64,
    allocs: Vec<String>,
    slots: Vec<u32>,
    ids: Vec<EventId>,
}

impl Flight {
    /// Waits for all of it.
    async fn land(self, launched: Launched) -> Result<PlanAnswer, Refusal> {
        let mut answer = PlanAnswer {
            full: !launched.refused,
            ..PlanAnswer::default()
        };
        let mut failed = launched.failed;
        for pending in launched.pending {
            match pending.await {
                Ok(outcome) => {
                    answer.index = answer.index.max(outcome.index);
                    if let Some(rejection) = outcome.rejection {
                        tracing::debug!(eval = %self.eval, ?rejection, "plan refused");
                        answer.full = false;
                        self.shared.plans.refused.store(true, Ordering::Release);
                    } else {
                        answer.progress = true;
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        if failed.is_some() {
            // What builds on it is bound to fail as well.
            self.shared.plans.refused.store(true, Ordering::Release);
        }
        failed.map_or(Ok(answer), Err)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let mut core = self.shared.core.lock();
        let view = Projections::view(&self.shared.projections);
        if let Err(error) = core.catch_up(&view, now) {
            tracing::error!(
                error = chain(&error),
                "scheduling cannot follow the projections"
            );
        }
        core.cache.forget_in_flight(self.allocs.iter());
        for slot in &self.slots {
            let ours = core
                .in_flight
                .get(slot)
                .is_some_and(|f| self.ids.contains(&f.mark));
            if ours {
                core.in_flight.remove(slot);
            }
        }
        // Its evaluation may have been taken back in the meantime; then this is not waited for.
        let _ = core.broker.resume(&self.eval, self.token, now);
    }
}

fn unreadable(error: drover_projections::StorageError) -> Refusal {
    Refusal::internal(format!("state could not be read: {error}"))
}
