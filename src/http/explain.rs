//! Why an evaluation came out as it did. Not Nomad's.

use super::answer::Answer;
use super::aside::aside;
use super::front::Read;
use crate::error::{ApiError, Code};
use crate::explain::{ExplainError, explain};

/// `GET /v1/evaluation/:id/explain[?snapshot=N]`: its last decision, or the one that was made from
/// index N, made again on the state of then: every node with its score or why it was refused, and
/// whether that is what was committed.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = read.request.segment(2)?;
    let snapshot = read.request.query.number("snapshot")?;
    let explained = aside(|| explain(&read.view, &read.api.log, &id, snapshot));
    Answer::json(&explained.map_err(refusal)?)
}

fn refusal(error: ExplainError) -> ApiError {
    let text = error.to_string();
    match error {
        ExplainError::NoEval => ApiError::not_found(text),
        ExplainError::Undecided(..) => ApiError::new(Code::Conflict, text),
        ExplainError::NoSuchSnapshot(_) => ApiError::bad_request(text),
        ExplainError::Deleted(..) | ExplainError::Gone(_) => ApiError::new(Code::Gone, text),
        error => {
            tracing::error!(%error, "a decision cannot be made again");
            ApiError::internal(text)
        }
    }
}

#[cfg(test)]
#[path = "explain_test.rs"]
mod tests;
