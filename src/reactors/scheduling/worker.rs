//! Workers: threads that take an evaluation, run the scheduler on it and see its plan through.

use std::sync::Arc;
use std::time::Duration;

use drover_events::Guard;
use drover_events::eval::EvalsUpserted;
use drover_events::model::Evaluation;
use drover_events::plan::DecisionInputs;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::root_keys::RootKeys;
use drover_projections::{Scan, StorageError, View};

use super::Shared;
use super::plan_check::PlanRequest;
use super::plan_queue::PlanAnswer;
use super::snapshot::Snapshot;
use crate::error::ApiError;
use crate::reactors::propose::{Decided, propose};
use crate::scheduler::rng::seed_of;
use crate::scheduler::{
    Inputs, Outcome, ReadError, SCHEDULER_VERSION, attempts, give_up, schedule,
};

/// How long a worker sleeps before it looks whether it should stop.
const IDLE: Duration = Duration::from_millis(500);

/// The types of evaluations that are worked on here. Core work has no scheduler's plan.
const TYPES: [&str; 4] = ["service", "batch", "system", "sysbatch"];

/// Why an evaluation could not be seen through.
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
}

impl From<ApiError> for WorkError {
    fn from(error: ApiError) -> Self {
        Self::Propose(error.to_string())
    }
}

/// Works until the scheduling is stopped.
pub(super) fn run(shared: &Arc<Shared>) {
    while let Some((eval, token)) = next(shared) {
        let id = eval.id.clone();
        let caught = std::panic::AssertUnwindSafe(|| work(shared, eval, token));
        let result = std::panic::catch_unwind(caught);
        let now = shared.clock.now();
        let mut core = shared.core.lock();
        let settled = match result {
            Ok(Ok(())) => core.broker.ack(&id, token, now),
            Ok(Err(error)) => {
                tracing::warn!(eval = %id, %error, "evaluation failed");
                core.broker.nack(&id, token, now)
            }
            Err(_) => {
                tracing::error!(eval = %id, "the scheduler panicked");
                core.broker.nack(&id, token, now)
            }
        };
        drop(core);
        if let Err(error) = settled {
            tracing::debug!(eval = %id, %error, "evaluation was taken back before its end");
        }
        shared.changed();
    }
}

fn next(shared: &Shared) -> Option<(Evaluation, u64)> {
    let mut core = shared.core.lock();
    loop {
        if shared.is_stopped() {
            return None;
        }
        if let Some(given) = core.broker.dequeue(&TYPES, shared.clock.now()) {
            return Some(given);
        }
        shared.ready.wait_for(&mut core, IDLE);
    }
}

/// A view, and the cluster at its index.
pub(super) fn snapshot(shared: &Shared) -> Result<Snapshot, StorageError> {
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, shared.clock.now())?;
    let cluster = core.cache.cluster().clone();
    Ok(Snapshot::new(view, cluster))
}

fn work(shared: &Arc<Shared>, eval: Evaluation, token: u64) -> Result<(), WorkError> {
    let limit = attempts(&eval.r#type);
    let mut failures = 0;
    loop {
        let snapshot = snapshot(shared)?;
        let view = snapshot.view().clone();
        let Some(current) = view.get::<Evals>(eval.id.as_str())? else {
            return Ok(());
        };
        if !matches!(current.status.as_str(), "pending" | "blocked") {
            return Ok(());
        }
        let guard = view.guard::<Evals>(eval.id.as_str())?;
        let inputs = Inputs {
            snapshot_index: view.index(),
            now: shared.clock.now().max(view.time()),
            seed: seed_of(&current.id, view.index()),
            scheduler_version: SCHEDULER_VERSION,
        };
        let outcome = schedule(&snapshot, &current, &inputs)?;
        let signing_key = signing_key(&view)?;
        drop((view, snapshot));
        let finished = outcome.finished.clone();
        let answer = if outcome.plan.is_empty() {
            conclude(shared, guard, evals_of(outcome), &current, &inputs)?
        } else {
            let eval = current.clone();
            let request = PlanRequest {
                eval,
                token,
                guard,
                outcome,
                inputs,
                signing_key,
            };
            submit(shared, request)?
        };
        if answer.full {
            return Ok(());
        }
        failures = if answer.progress { 0 } else { failures + 1 };
        if failures >= limit {
            let view = shared.projections.view();
            let guard = view.guard::<Evals>(current.id.as_str())?;
            let evals = give_up(&current, &finished, &inputs, limit);
            conclude(shared, guard, evals, &current, &inputs)?;
            return Ok(());
        }
    }
}

fn signing_key(view: &View) -> Result<String, StorageError> {
    for key in view.scan::<RootKeys>(Scan::all()) {
        let key = key?;
        if key.meta.state == "active" {
            return Ok(key.meta.key_id);
        }
    }
    Ok(String::new())
}

fn submit(shared: &Shared, request: PlanRequest) -> Result<PlanAnswer, WorkError> {
    let wait = shared.plans.submit(request);
    match wait.blocking_recv() {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(WorkError::Propose("scheduling has stopped".to_owned())),
    }
}

fn evals_of(outcome: Outcome) -> Vec<Evaluation> {
    let mut evals = vec![outcome.finished];
    evals.extend(outcome.blocked);
    evals.extend(outcome.follow_ups);
    evals
}

/// Writes the end of an evaluation that has no plan.
fn conclude(
    shared: &Shared,
    guard: Guard,
    evals: Vec<Evaluation>,
    eval: &Evaluation,
    inputs: &Inputs,
) -> Result<PlanAnswer, WorkError> {
    let decision = DecisionInputs {
        snapshot_index: inputs.snapshot_index,
        now: inputs.now,
        seed: inputs.seed,
        scheduler_version: inputs.scheduler_version,
    };
    let event = EvalsUpserted {
        evals,
        decision: Some(decision),
    };
    let decided = Decided::new("scheduling", event)
        .guarded(guard)
        .caused_by(eval.modify_index);
    let settled = shared
        .runtime
        .block_on(propose(&shared.proposer, decided))?;
    let full = settled.rejection.is_none();
    Ok(PlanAnswer {
        full,
        progress: false,
        index: settled.index,
    })
}
