//! Why an evaluation came out as it did: its decision made again, and compared with what was
//! committed.
//!
//! The log says from what each decision was made (the index of the view, the time, the seed, the
//! version of the rules). The state as of that index is read from the history, the same pure
//! scheduler runs on it, and what it says is laid beside the events that the decision became: by
//! the same rules it must be the same to the last bit, whatever has happened since. By other rules
//! (a newer binary) the answer is marked as recomputed, and may differ.
//!
//! It must not know HTTP or the command line. Start reading at [`explain`].

mod compare;
mod shape;

use drover_events::Event;
use drover_events::model::Evaluation;
use drover_events::plan::{DecisionInputs, PlanApplied};
use drover_projections::tables::evals::Evals;
use drover_projections::{StorageError, View};

use crate::log::{LogEngine, LogError};
use crate::scheduler::{self, Inputs, ReadError};
use crate::scheduling_view::Snapshot;

pub use compare::Comparison;
pub use shape::{Explanation, GroupExplained, NodeExplained, SearchExplained};

/// Why a decision cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no such evaluation.
    #[error("eval not found")]
    NoEval,
    /// It no longer exists: its id, and the index at which it was deleted.
    #[error(
        "evaluation {0} was deleted at index {1}: query an earlier index, with as_of={before} \
         (drover eval explain -at={before} {0})",
        before = .1.saturating_sub(1)
    )]
    Deleted(String, u64),
    /// Nothing was decided about it yet, or what was decided is not kept.
    #[error("no decision about evaluation {0} was committed: it is {1}")]
    Undecided(String, String),
    /// No decision was made from this index.
    #[error("snapshot: no decision about this evaluation was made from index {0}")]
    NoSuchSnapshot(u64),
    /// The state of then is not kept.
    #[error("the state as of {0}, from which it was decided, is not kept")]
    Gone(u64),
    /// The state cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The projections cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An event cannot be decoded.
    #[error(transparent)]
    Decode(#[from] drover_migrations::DecodeError),
}

/// One decision, as the log has it.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// From what it was made.
    pub inputs: DecisionInputs,
    /// The indexes of its events.
    pub indexes: Vec<u64>,
    /// Its plan, in as many events as it took.
    pub plans: Vec<PlanApplied>,
    /// The evaluations that were written with it.
    pub evals: Vec<Evaluation>,
}

/// Explains the last decision about an evaluation that had a plan, else the last; or the one that
/// was made from `snapshot`. The view says up to when: one of the past knows less.
///
/// # Errors
/// [`ExplainError`].
pub fn explain(
    view: &View,
    log: &LogEngine,
    id: &str,
    snapshot: Option<u64>,
) -> Result<Explanation, ExplainError> {
    let Some(eval) = view.get::<Evals>(id)? else {
        return Err(absent(view, id)?);
    };
    let decisions = decisions(view, log, &eval)?;
    let chosen = match snapshot {
        Some(index) => decisions.iter().rfind(|d| d.inputs.snapshot_index == index),
        None => {
            let planned = decisions
                .iter()
                .rfind(|decision| !decision.plans.is_empty());
            planned.or(decisions.last())
        }
    };
    let decision = match (chosen, snapshot) {
        (Some(decision), _) => decision,
        (None, Some(index)) => return Err(ExplainError::NoSuchSnapshot(index)),
        // It was decided before the log that is kept begins, as before a restore.
        (None, None) if eval.modify_index < log.bounds().0 => {
            return Err(ExplainError::Gone(eval.modify_index));
        }
        (None, None) => return Err(ExplainError::Undecided(eval.id, eval.status)),
    };
    let inputs = &decision.inputs;
    let index = inputs.snapshot_index;
    // What the scheduler reads holds no time but that of its inputs.
    let then = view
        .as_of(index, inputs.now)
        .ok_or(ExplainError::Gone(index))?;
    let subject = then.get::<Evals>(id)?.ok_or(ExplainError::Gone(index))?;
    let state = Snapshot::read(then)?;
    let inputs = Inputs {
        snapshot_index: index,
        now: inputs.now,
        seed: inputs.seed,
        scheduler_version: inputs.scheduler_version,
    };
    let outcome = scheduler::explain(&state, &subject, &inputs)?;
    let attempts = scheduler::attempts(&subject.r#type);
    let given_up = scheduler::give_up(&subject, &outcome.finished, &inputs, attempts);
    let comparison = compare::compare(decision, &outcome, &given_up);
    let again = (outcome, comparison);
    Ok(shape::explanation(&eval, decision, &decisions, again))
}

/// Why there is no such evaluation: it never was there, or it was deleted. The beginning of its id
/// will do.
fn absent(view: &View, id: &str) -> Result<ExplainError, StorageError> {
    let known = match id.len() {
        0 | 1 => Vec::new(),
        _ => view.ids_including_deleted::<Evals>(id, 2)?,
    };
    let [known] = known.as_slice() else {
        return Ok(ExplainError::NoEval);
    };
    let change_indexes = view.change_indexes::<Evals>(known.as_str(), 0)?;
    let gone = view.get::<Evals>(known.as_str())?.is_none();
    Ok(match change_indexes.last() {
        Some(deleted) if gone => ExplainError::Deleted(known.clone(), *deleted),
        _ => ExplainError::NoEval,
    })
}

/// Every committed decision about an evaluation, in the order of the log. Each of them wrote its
/// row, so the history of the row names their indexes.
fn decisions(
    view: &View,
    log: &LogEngine,
    eval: &Evaluation,
) -> Result<Vec<Decision>, ExplainError> {
    let mut found: Vec<Decision> = Vec::new();
    let first = log.bounds().0;
    for index in view.change_indexes::<Evals>(eval.id.as_str(), first)? {
        let Some(entry) = log.read(index)? else {
            break;
        };
        let event = drover_migrations::decode(&entry.body)?;
        let Some(event) = event.envelope.map(|envelope| envelope.event) else {
            continue;
        };
        let Some((inputs, plan, evals)) = about(event, &eval.id) else {
            continue;
        };
        if found
            .last()
            .is_none_or(|decision| decision.inputs != inputs)
        {
            found.push(Decision {
                inputs,
                ..Decision::default()
            });
        }
        if let Some(decision) = found.last_mut() {
            decision.indexes.push(entry.index);
            decision.plans.extend(plan);
            decision.evals.extend(evals);
        }
    }
    Ok(found)
}

/// What an event says about a decision about this evaluation, if it does.
fn about(event: Event, id: &str) -> Option<(DecisionInputs, Option<PlanApplied>, Vec<Evaluation>)> {
    match event {
        Event::PlanApplied(plan) if plan.eval_id == id => {
            let (inputs, evals) = (plan.decision.clone(), plan.evals.clone());
            Some((inputs, Some(*plan), evals))
        }
        Event::EvalsUpserted(ended) => {
            let inputs = ended.decision?;
            let about = ended.evals.iter().any(|eval| eval.id == id);
            about.then_some((inputs, None, ended.evals))
        }
        _ => None,
    }
}
