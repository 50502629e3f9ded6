//! Workers: threads that take an evaluation and run the scheduler on it.
//!
//! What comes of it is committed by tasks: a worker goes on with the next evaluation while the plan
//! of the last one is on its way. A plan that was refused, in whole or in part, brings its
//! evaluation back to the workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
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
/// How many evaluations may be on their way to their end.
const UNFINISHED: usize = 128;
/// How many plans may wait for their check before workers pause.
const PLANS: usize = 4;

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
    /// The scheduler has a fault.
    #[error("the scheduler panicked")]
    Panic,
}

impl From<ApiError> for WorkError {
    fn from(error: ApiError) -> Self {
        Self::Propose(error.to_string())
    }
}

/// An evaluation that somebody works on.
#[derive(Clone, Debug)]
pub(super) struct Item {
    eval: Evaluation,
    token: u64,
    /// How often its plan was refused as a whole.
    failures: u32,
}

/// Works until the scheduling is stopped.
pub(super) fn run(shared: &Arc<Shared>) {
    while let Some(item) = next(shared) {
        let caught = std::panic::AssertUnwindSafe(|| work(shared, &item));
        let ended = match std::panic::catch_unwind(caught) {
            Ok(Ok(None)) => continue,
            Ok(Ok(Some(()))) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WorkError::Panic),
        };
        end(shared, &item, ended);
    }
}

fn next(shared: &Shared) -> Option<Item> {
    let types = shared.settings.types.names();
    let mut core = shared.core.lock();
    loop {
        if shared.is_stopped() {
            return None;
        }
        if let Some(again) = shared.again.lock().pop_front() {
            return Some(again);
        }
        let busy =
            shared.unfinished.load(Ordering::Acquire) >= UNFINISHED || shared.plans.len() >= PLANS;
        if !busy && let Some((eval, token)) = core.broker.dequeue(&types, shared.clock.now()) {
            return Some(Item {
                eval,
                token,
                failures: 0,
            });
        }
        shared.ready.wait_for(&mut core, IDLE);
    }
}

/// An evaluation is over, or has failed and comes again later.
fn end(shared: &Shared, item: &Item, ended: Result<(), WorkError>) {
    let (id, token) = (item.eval.id.as_str(), item.token);
    let now = shared.clock.now();
    let mut core = shared.core.lock();
    let settled = match ended {
        Ok(()) => core.broker.ack(id, token, now),
        Err(error) => {
            tracing::warn!(eval = id, %error, "evaluation failed");
            core.broker.nack(id, token, now)
        }
    };
    drop(core);
    if let Err(error) = settled {
        tracing::debug!(eval = id, %error, "evaluation was taken back before its end");
    }
    shared.changed();
}

/// A view, and the cluster at its index.
pub(super) fn snapshot(shared: &Shared) -> Result<Snapshot, StorageError> {
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, shared.clock.now())?;
    let cluster = core.cache.cluster().clone();
    Ok(Snapshot::new(view, cluster))
}

/// Runs the scheduler. Answers nothing if a task sees the evaluation through.
fn work(shared: &Arc<Shared>, item: &Item) -> Result<Option<()>, WorkError> {
    let id = item.eval.id.as_str();
    if shared
        .core
        .lock()
        .broker
        .is_outstanding(id, item.token)
        .is_err()
    {
        return Ok(None);
    }
    let snapshot = snapshot(shared)?;
    let view = snapshot.view().clone();
    let Some(current) = view.get::<Evals>(id)? else {
        return Ok(Some(()));
    };
    if !matches!(current.status.as_str(), "pending" | "blocked") {
        return Ok(Some(()));
    }
    let guard = view.guard::<Evals>(id)?;
    let inputs = Inputs {
        snapshot_index: view.index(),
        now: shared.clock.now().max(view.time()),
        seed: seed_of(&current.id, view.index()),
        scheduler_version: SCHEDULER_VERSION,
    };
    let outcome = schedule(&snapshot, &current, &inputs)?;
    let signing_key = signing_key(&view)?;
    drop((view, snapshot));
    let item = Item {
        eval: current,
        ..item.clone()
    };
    let shared_too = Arc::clone(shared);
    shared.unfinished.fetch_add(1, Ordering::AcqRel);
    shared.runtime.spawn(async move {
        let request = Request {
            guard,
            outcome,
            inputs,
            signing_key,
        };
        see_through(&shared_too, item, request).await;
        shared_too.unfinished.fetch_sub(1, Ordering::AcqRel);
        shared_too.changed();
    });
    Ok(None)
}

/// What a worker hands on.
struct Request {
    guard: Guard,
    outcome: Outcome,
    inputs: Inputs,
    signing_key: String,
}

/// Commits what was decided, and ends the evaluation or brings it back.
async fn see_through(shared: &Arc<Shared>, mut item: Item, request: Request) {
    let Request {
        guard,
        outcome,
        inputs,
        signing_key,
    } = request;
    let finished = outcome.finished.clone();
    let answer = if outcome.plan.is_empty() {
        let evals = evals_of(outcome);
        conclude(shared, guard, evals, &item.eval, &inputs).await
    } else {
        let (eval, token) = (item.eval.clone(), item.token);
        submit(
            shared,
            PlanRequest {
                eval,
                token,
                guard,
                outcome,
                inputs,
                signing_key,
            },
        )
        .await
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return end(shared, &item, Err(error)),
    };
    if answer.full {
        return end(shared, &item, Ok(()));
    }
    item.failures = if answer.progress {
        0
    } else {
        item.failures + 1
    };
    let limit = attempts(&item.eval.r#type);
    if item.failures < limit {
        shared.again.lock().push_back(item);
        return shared.changed();
    }
    let ended = abandon(shared, &item, &finished, &inputs, limit).await;
    end(shared, &item, ended);
}

/// Plans of this evaluation were refused too often.
async fn abandon(
    shared: &Shared,
    item: &Item,
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
        if key.meta.state == "active" {
            return Ok(key.meta.key_id);
        }
    }
    Ok(String::new())
}

async fn submit(shared: &Shared, request: PlanRequest) -> Result<PlanAnswer, WorkError> {
    match shared.plans.submit(request).await {
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
async fn conclude(
    shared: &Shared,
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
    let settled = propose(&shared.proposer, decided).await?;
    let full = settled.rejection.is_none();
    Ok(PlanAnswer {
        full,
        progress: false,
        index: settled.index,
    })
}
