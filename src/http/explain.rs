//! Why an evaluation came out as it did. Not Nomad's.

use drover_projections::tables::evals::Evals;

use super::answer::Answer;
use super::evaluations;
use super::front::Read;
use super::list::storage;
use super::offload::offload;
use crate::error::{ApiError, Code, chain};
use crate::history::explain::{ExplainError, explain};

/// `GET /v1/evaluation/:id/explain[?snapshot=N]`: its last decision, or the one that was made from
/// index N, made again on the state of then: every node with its score or why it was refused, and
/// whether that is what was committed.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = read.request.segment(2)?;
    let snapshot = read.request.query.number("snapshot")?;
    let explained = offload(|| explain(read.view.one(), &read.api.log, &id, snapshot));
    Answer::json(&explained.map_err(refusal)?)
}

/// Whether the decision may be seen. Of what is no longer there only managers are told, and only
/// they may name it by its beginning: a deleted evaluation is in no namespace any more.
pub(super) fn readable(read: &Read<'_>) -> Result<(), ApiError> {
    evaluations::readable(read)?;
    let id = read.request.segment(2)?;
    match read.view.modified::<Evals>(id.as_str()).map_err(storage)? {
        Some(_) => Ok(()),
        None => Err(ApiError::not_found("eval not found")),
    }
}

fn refusal(error: ExplainError) -> ApiError {
    let text = chain(&error);
    match error {
        ExplainError::NoEval => ApiError::not_found(text),
        ExplainError::Undecided(..) => ApiError::new(Code::Conflict, text),
        ExplainError::NoSuchSnapshot(_) => ApiError::bad_request(text),
        ExplainError::Deleted(..) | ExplainError::Gone(_) => ApiError::new(Code::Gone, text),
        _ => {
            tracing::error!(error = text, "a decision cannot be made again");
            ApiError::internal(text)
        }
    }
}

#[cfg(test)]
#[path = "explain_test.rs"]
mod tests;
