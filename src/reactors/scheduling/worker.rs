//! Workers: threads that take an evaluation and run the scheduler on it.
//!
//! Tasks commit the results: a worker continues with the next evaluation while the plan of the last
//! one is on its way. A plan that was rejected, in whole or in part, brings its evaluation back to
//! the workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use drover_events::Guard;
use drover_events::eval::EvalsUpserted;
use drover_events::model::Evaluation;
use drover_events::model::status::{EvalStatus, JobType, root_key};
use drover_events::plan::DecisionInputs;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::root_keys::RootKeys;
use drover_projections::{Scan, StorageError, View};

use super::SchedulingShared;
use super::plan_check::PlanRequest;
use super::plan_queue::PlanAnswer;
use crate::error::{Refusal, chain};
use crate::proposer::decided::{Decided, propose};
use crate::scheduler::rng::seed_of;
use crate::scheduler::{
    Inputs, Outcome, ReadError, SCHEDULER_VERSION, attempts, give_up, schedule,
};
use crate::scheduling_view::Snapshot;
use crate::telemetry::took;

/// How long a worker sleeps before it looks whether it should stop.
const IDLE: Duration = Duration::from_millis(500);
/// How many evaluations may be on their way to their end.
pub(super) const UNFINISHED: usize = 128;
/// How many plans may wait for their check before workers pause.
pub(super) const MAX_WAITING_PLANS: usize = 4;
/// How long a plan waits for the cluster's first key, which signs what it places (KR-03), before
/// its evaluation is worked on again; nanoseconds.
const NO_KEY: i64 = 250_000_000;

/// Why an evaluation could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The projections could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Nothing can be proposed now.
    #[error("plan was not committed: {0}")]
    Propose(String),
    /// The scheduler has a fault.
    #[error("the scheduler panicked")]
    Panic,
}

impl From<Refusal> for WorkError {
    fn from(error: Refusal) -> Self {
        Self::Propose(error.to_string())
    }
}

/// An evaluation in work.
#[derive(Clone, Debug)]
pub(super) struct EvalItem {
    eval: Evaluation,
    token: u64,
    /// How often its plan was rejected as a whole.
    failures: u32,
}

/// Works until the scheduling is stopped.
pub(super) fn run(shared: &Arc<SchedulingShared>) {
    while let Some(item) = next(shared) {
        let mut held = EvalLease::new(shared, item);
        let caught = std::panic::AssertUnwindSafe(|| work(shared, &mut held));
        if let Ok(Err(error)) = std::panic::catch_unwind(caught) {
            held.end(Err(error));
        }
        // What panicked is given back when it is dropped here.
    }
}

/// An evaluation in a worker's hands. Dropping it before its end, by a panic or because everything
/// stops, gives it back to the broker as failed.
struct EvalLease {
    shared: Arc<SchedulingShared>,
    item: Option<EvalItem>,
    /// One of the places among those on their way to their end.
    place: Option<WorkerSlot>,
}

impl EvalLease {
    fn new(shared: &Arc<SchedulingShared>, item: EvalItem) -> Self {
        Self {
            shared: Arc::clone(shared),
            item: Some(item),
            place: None,
        }
    }

    /// It is over, or comes again later.
    fn end(mut self, ended: Result<(), WorkError>) {
        self.give_back(ended);
    }

    /// The broker has it back. Workers are notified once: here, or when the place is left.
    fn give_back(&mut self, ended: Result<(), WorkError>) {
        if let Some(item) = self.item.take() {
            end(&self.shared, &item, ended);
            if self.place.take().is_none() {
                self.shared.changed();
            }
        }
    }

    /// Another worker takes it at once.
    fn again(mut self) {
        self.shared.again.lock().extend(self.item.take());
    }
}

impl Drop for EvalLease {
    fn drop(&mut self) {
        self.give_back(Err(WorkError::Panic));
    }
}

/// A place among the evaluations on their way to their end; there are [`UNFINISHED`].
struct WorkerSlot(Arc<SchedulingShared>);

impl WorkerSlot {
    fn take(shared: &Arc<SchedulingShared>) -> Self {
        shared.unfinished.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.0.unfinished.fetch_sub(1, Ordering::AcqRel);
        self.0.changed();
    }
}

fn next(shared: &SchedulingShared) -> Option<EvalItem> {
    let began = Instant::now();
    let types = shared.settings.types.names();
    let mut core = shared.core.lock();
    loop {
        if shared.is_stopped() {
            return None;
        }
        if let Some(again) = shared.again.lock().pop_front() {
            return Some(again);
        }
        if shared.space() > 0
            && let Some((eval, token)) = core.broker.dequeue(&types, shared.clock.now())
        {
            took("nomad.nomad.worker.dequeue_eval", began);
            return Some(EvalItem {
                eval,
                token,
                failures: 0,
            });
        }
        shared.ready.wait_for(&mut core, IDLE);
    }
}

/// An evaluation is over, or has failed and comes again later.
fn end(shared: &SchedulingShared, item: &EvalItem, ended: Result<(), WorkError>) {
    if shared.is_stopped() {
        // The next leader finds it where it was.
        return;
    }
    let (id, token) = (item.eval.id.as_str(), item.token);
    let (now, began) = (shared.clock.now(), Instant::now());
    let mut core = shared.core.lock();
    let answered = match ended {
        Ok(()) => core.broker.ack(id, token, now),
        Err(error) => {
            tracing::warn!(eval = id, error = chain(&error), "evaluation failed");
            // It comes again sooner than the follower knows.
            shared.hurry.notify_one();
            core.broker.nack(id, token, now)
        }
    };
    drop(core);
    took("nomad.nomad.worker.send_ack", began);
    if let Err(error) = answered {
        tracing::debug!(eval = id, %error, "evaluation was taken back before its end");
    }
}

/// What a run of the scheduler is called in metrics.
fn invoked(kind: &str) -> &'static str {
    match JobType::of(kind) {
        Some(JobType::Service) => "nomad.nomad.worker.invoke_scheduler.service",
        Some(JobType::Batch) => "nomad.nomad.worker.invoke_scheduler.batch",
        Some(JobType::System) => "nomad.nomad.worker.invoke_scheduler.system",
        Some(JobType::Sysbatch | JobType::Core) | None => {
            "nomad.nomad.worker.invoke_scheduler.sysbatch"
        }
    }
}

/// A view, and the cluster at its index.
fn snapshot(shared: &SchedulingShared) -> Result<Snapshot, StorageError> {
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, shared.clock.now())?;
    let cluster = core.cache.cluster().clone();
    Ok(Snapshot::new(view, cluster))
}

/// Runs the scheduler, and hands on the result.
fn work(shared: &Arc<SchedulingShared>, held: &mut EvalLease) -> Result<(), WorkError> {
    let Some(item) = held.item.clone() else {
        return Ok(());
    };
    let id = item.eval.id.as_str();
    let outstanding = shared.core.lock().broker.is_outstanding(id, item.token);
    if outstanding.is_err() {
        // It was taken back: another worker has it, or will.
        held.item = None;
        return Ok(());
    }
    let began = Instant::now();
    let snapshot = snapshot(shared)?;
    took("nomad.nomad.worker.wait_for_index", began);
    let view = snapshot.view().clone();
    let current = view.get::<Evals>(id)?;
    let open = |eval: &Evaluation| {
        matches!(
            eval.status(),
            Some(EvalStatus::Pending | EvalStatus::Blocked)
        )
    };
    let Some(current) = current.filter(open) else {
        EvalLease::new(shared, item).end(Ok(()));
        held.item = None;
        return Ok(());
    };
    let guard = view.guard::<Evals>(id)?;
    let inputs = Inputs {
        snapshot_index: view.index(),
        now: shared.clock.now().max(view.time()),
        seed: seed_of(&current.id, view.index()),
        scheduler_version: SCHEDULER_VERSION,
    };
    let began = Instant::now();
    let outcome = schedule(&snapshot, &current, &inputs)?;
    took(invoked(&current.r#type), began);
    let signing_key = signing_key(&view)?;
    drop((view, snapshot));
    if signing_key.is_empty() && !outcome.plan.placements.is_empty() {
        let now = shared.clock.now();
        let waits = shared
            .core
            .lock()
            .broker
            .postpone(id, item.token, now, NO_KEY);
        held.item = None;
        shared.hurry.notify_one();
        if let Err(error) = waits {
            tracing::debug!(id, %error, "taken back");
        }
        return Ok(());
    }
    held.item = None;
    let eval = current;
    let mut held = EvalLease::new(shared, EvalItem { eval, ..item });
    held.place = Some(WorkerSlot::take(shared));
    let request = Request {
        guard,
        outcome,
        inputs,
        signing_key,
    };
    shared.tasks.spawn(commit_and_finish(held, request));
    Ok(())
}

/// What a worker hands on.
struct Request {
    guard: Guard,
    outcome: Outcome,
    inputs: Inputs,
    signing_key: String,
}

/// Commits what was decided, and ends the evaluation or brings it back.
async fn commit_and_finish(mut held: EvalLease, request: Request) {
    let Some(mut item) = held.item.clone() else {
        return;
    };
    let shared = Arc::clone(&held.shared);
    let Request {
        guard,
        outcome,
        inputs,
        signing_key,
    } = request;
    let finished = outcome.finished.clone();
    let began = Instant::now();
    let answer = if outcome.plan.is_empty() {
        let evals = evals_of(outcome);
        let written = conclude(&shared, guard, evals, &item.eval, &inputs).await;
        took("nomad.nomad.worker.update_eval", began);
        written
    } else {
        let request = PlanRequest {
            eval: item.eval.clone(),
            token: item.token,
            guard,
            outcome,
            inputs,
            signing_key,
        };
        let submitted = submit(&shared, request).await;
        took("nomad.nomad.worker.submit_plan", began);
        took("nomad.nomad.plan.submit", began);
        submitted
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return held.end(Err(error)),
    };
    if answer.full {
        return held.end(Ok(()));
    }
    item.failures = if answer.progress {
        0
    } else {
        item.failures + 1
    };
    let limit = attempts(&item.eval.r#type);
    held.item = Some(item.clone());
    if item.failures < limit {
        return held.again();
    }
    let ended = abandon(&shared, &item, &finished, &inputs, limit).await;
    held.end(ended);
}

/// Plans of this evaluation were rejected too often.
async fn abandon(
    shared: &SchedulingShared,
    item: &EvalItem,
    finished: &Evaluation,
    inputs: &Inputs,
    limit: u32,
) -> Result<(), WorkError> {
    let guard = shared
        .projections
        .view()
        .guard::<Evals>(item.eval.id.as_str())?;
    let evals = give_up(&item.eval, finished, inputs, limit);
    conclude(shared, guard, evals, &item.eval, inputs).await?;
    Ok(())
}

fn signing_key(view: &View) -> Result<String, StorageError> {
    for key in view.scan::<RootKeys>(Scan::all()) {
        let key = key?;
        if key.meta.state == root_key::ACTIVE {
            return Ok(key.meta.key_id);
        }
    }
    Ok(String::new())
}

async fn submit(shared: &SchedulingShared, request: PlanRequest) -> Result<PlanAnswer, WorkError> {
    match shared.plans.submit(request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(WorkError::Propose("scheduling has stopped".to_owned())),
    }
}

fn evals_of(outcome: Outcome) -> Vec<Evaluation> {
    let mut evals = vec![outcome.finished];
    evals.extend(outcome.blocked);
    evals.extend(outcome.next);
    evals.extend(outcome.follow_ups);
    evals
}

/// Writes the end of an evaluation that has no plan.
async fn conclude(
    shared: &SchedulingShared,
    guard: Guard,
    evals: Vec<Evaluation>,
    eval: &Evaluation,
    inputs: &Inputs,
) -> Result<PlanAnswer, WorkError> {
    let decision = DecisionInputs::from(*inputs);
    let event = EvalsUpserted {
        evals,
        decision: Some(decision),
    };
    let decided = Decided::new("scheduling", event)
        .guarded(guard)
        .caused_by(eval.modify_index);
    let outcome = propose(&shared.proposer, decided).await?;
    let full = outcome.rejection.is_none();
    Ok(PlanAnswer {
        full,
        progress: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Scheduling, SchedulingSettings};
    use super::*;
    use crate::reactors::testing::Direct;
    use crate::telemetry::TelemetryOptions;

    #[tokio::test(flavor = "multi_thread")]
    async fn how_long_it_takes_until_the_end_of_an_evaluation_is_known_is_measured() {
        let direct = Direct::new();
        let projections = Arc::clone(&direct.projections);
        let settings = SchedulingSettings::default();
        let scheduling = Scheduling::start(projections, direct, settings).unwrap();
        let item = EvalItem {
            eval: Evaluation::default(),
            token: 0,
            failures: 0,
        };
        let (telemetry, recorder) = crate::telemetry::build(&TelemetryOptions::default());
        let ends = || end(&scheduling.shared, &item, Ok(()));
        metrics::with_local_recorder(&recorder, ends);
        let text = telemetry.prometheus();
        let counted = "nomad_nomad_worker_send_ack_count 1";
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}
