//! Why an evaluation came out as it did. Not Nomad's.

use drover_projections::tables::evals::Evals;

use super::answer::Answer;
use super::evaluations;
use super::front::Read;
use super::list::storage;
use crate::error::{Code, Refusal, chain};
use crate::history::explain::{ExplainError, explain};
use crate::table_reads::offload;

/// `GET /v1/evaluation/:id/explain[?snapshot=N]`: its last decision, or the one that was made from
/// index N, made again on the state of then: every node with its score or why it was refused, and
/// whether that is what was committed.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let snapshot = read.request.query.number("snapshot")?;
    let explained = offload(|| explain(read.view.unfiltered(), &read.api.log, &id, snapshot));
    Answer::json(&explained.map_err(refusal)?)
}

/// Whether the decision may be seen. What is no longer there is shown to managers only, and only
/// they may name it by its beginning: a deleted evaluation is in no namespace any more.
pub(super) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    evaluations::readable(read)?;
    let id = read.request.segment(2)?;
    match read
        .view
        .modify_index::<Evals>(id.as_str())
        .map_err(storage)?
    {
        Some(_) => Ok(()),
        None => Err(Refusal::not_found("eval not found")),
    }
}

fn refusal(error: ExplainError) -> Refusal {
    let text = chain(&error);
    match error {
        ExplainError::NoEval => Refusal::not_found(text),
        ExplainError::Undecided(..) => Refusal::new(Code::Conflict, text),
        ExplainError::NoSuchSnapshot(_) => Refusal::bad_request(text),
        ExplainError::Deleted(..) | ExplainError::Gone(_) => Refusal::new(Code::Gone, text),
        _ => {
            tracing::error!(error = text, "a decision cannot be made again");
            Refusal::internal(text)
        }
    }
}

#[cfg(test)]
#[path = "explain_test.rs"]
mod tests;
