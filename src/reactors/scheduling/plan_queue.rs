//! The plan queue: plans are checked one after the other, in the order of their priority, and
//! proceed to be committed without waiting for the one before.
//!
//! Each is guarded by the ids of those in flight that it builds on (node marks). If one of them is
//! rejected, no node's mark equals its id and what was built on it is rejected too. No plan is
//! checked then until all that were in flight have ended: a plan that builds on one that is bound
//! to be rejected would be rejected as well, and its evaluation would run out of attempts.

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
use super::worker::MAX_WAITING_PLANS;
use crate::error::Refusal;
use crate::error::chain;
use crate::proposer::decided::{Decided, PendingOutcome, Propose};
use crate::telemetry::took;

/// How many plans may be in flight.
pub(super) const MAX_IN_FLIGHT: u32 = 16;

/// What became of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanAnswer {
    /// All of it is committed, the end of its evaluation included.
    pub full: bool,
    /// Some of it is.
    pub progress: bool,
}

type Answer = oneshot::Sender<Result<PlanAnswer, Refusal>>;

/// Plans that wait.
#[derive(Default)]
pub struct PlanQueue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    /// No plan is checked before all in flight have ended: one was rejected, and others that build
    /// on it may be in flight.
    drain_first: AtomicBool,
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

/// Checks and proposes plans until scheduling stops. The submitter of a plan that panics gets no
/// answer; the queue continues.
pub(super) async fn run(shared: Arc<SchedulingShared>) {
    let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT as usize));
    loop {
        let proposed = AssertUnwindSafe(propose_next(&shared, &permits)).catch_unwind();
        match proposed.await {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => tracing::error!("a plan panicked"),
        }
    }
}

/// Waits for the next plan, checks it and proposes it; a task awaits its outcomes. False once
/// scheduling has stopped.
async fn propose_next(shared: &Arc<SchedulingShared>, permits: &Arc<Semaphore>) -> bool {
    let (request, answer) = shared.plans.next().await;
    if shared.plans.len() + 1 == MAX_WAITING_PLANS {
        // Workers paused while the queue was full.
        shared.changed();
    }
    if shared.plans.drain_first.swap(false, Ordering::AcqRel) {
        // Waits for all that are in flight.
        drop(permits.acquire_many(MAX_IN_FLIGHT).await);
    }
    let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
        return false;
    };
    if shared.is_stopped() {
        // The permit may be of a plan whose task was dropped with the rest, and did not end.
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
    let in_flight = InFlightPlan {
        shared: Arc::clone(shared),
        eval,
        token,
        allocs: prepared.allocs,
        slots: prepared.slots.into_iter().collect(),
        ids: prepared.events.iter().map(|event| event.id).collect(),
    };
    took("nomad.nomad.plan.evaluate", began);
    let partial = !prepared.rejected_nodes.is_empty() || prepared.cut_short;
    let began = Instant::now();
    let proposed = propose_plan(&*shared.proposer, prepared.events, partial).await;
    shared.tasks.spawn(async move {
        let _permit = permit;
        let result = in_flight.await_outcomes(proposed).await;
        took("nomad.nomad.plan.apply", began);
        let _ = answer.send(result);
    });
    true
}

/// What is left of a plan once it is checked. Nodes that it no longer fits on are counted.
pub(super) fn checked(
    shared: &SchedulingShared,
    request: PlanRequest,
) -> Result<Prepared, Refusal> {
    let (now, began) = (shared.clock.now(), Instant::now());
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, now).map_err(unreadable)?;
    took("nomad.nomad.plan.wait_for_index", began);
    let outstanding = core.broker.pause(&request.eval.id, request.token);
    outstanding.map_err(|error| Refusal::internal(error.to_string()))?;
    let prepared = prepare(&mut core, request, now);
    let rejected = prepared.rejected_nodes.len() as u64;
    if rejected > 0 {
        metrics::counter!("nomad.nomad.plan.node_rejected").increment(rejected);
    }
    Ok(prepared)
}

/// A plan whose events are queued at the proposer.
struct ProposedPlan {
    pending: Vec<PendingOutcome>,
    /// Why an event could not be queued; those after it were not tried.
    failed: Option<Refusal>,
    /// Whether the events are only a part of what the evaluation wanted.
    partial: bool,
}

async fn propose_plan(proposer: &dyn Propose, events: Vec<Decided>, partial: bool) -> ProposedPlan {
    let mut proposed = ProposedPlan {
        pending: Vec::with_capacity(events.len()),
        failed: None,
        partial,
    };
    for event in events {
        match proposer.queue(event).await {
            Ok(pending) => proposed.pending.push(pending),
            Err(error) => {
                proposed.failed = Some(error);
                break;
            }
        }
    }
    proposed
}

/// A plan in flight. However it ends, its entries are removed from `Core::in_flight`: one that
/// stayed would guard every later plan on its node by a mark that the node never gets, and all of
/// them would be rejected.
struct InFlightPlan {
    shared: Arc<SchedulingShared>,
    eval: String,
    token: u64,
    allocs: Vec<String>,
    slots: Vec<u32>,
    ids: Vec<EventId>,
}

impl InFlightPlan {
    /// Waits for the outcomes of all its events.
    async fn await_outcomes(self, proposed: ProposedPlan) -> Result<PlanAnswer, Refusal> {
        let mut answer = PlanAnswer {
            full: !proposed.partial,
            progress: false,
        };
        let mut failed = proposed.failed;
        for pending in proposed.pending {
            match pending.await {
                Ok(outcome) => {
                    if let Some(rejection) = outcome.rejection {
                        tracing::debug!(eval = %self.eval, ?rejection, "plan rejected");
                        answer.full = false;
                        self.shared.plans.drain_first.store(true, Ordering::Release);
                    } else {
                        answer.progress = true;
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        if failed.is_some() {
            // What builds on it is bound to be rejected.
            self.shared.plans.drain_first.store(true, Ordering::Release);
        }
        failed.map_or(Ok(answer), Err)
    }
}

impl Drop for InFlightPlan {
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
        // The broker may have taken the evaluation back meanwhile; then there is nothing to resume.
        let _ = core.broker.resume(&self.eval, self.token, now);
    }
}

fn unreadable(error: drover_projections::StorageError) -> Refusal {
    Refusal::internal(format!("state could not be read: {error}"))
}
