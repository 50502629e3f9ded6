//! Evaluations are deleted.

use drover_events::gojson::List;
use drover_projections::Reply;

use crate::commands::eval::{self, DeleteEvals, DeleteEvalsPage, Selection};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Write;

drover_events::wire! {
    /// How many evaluations were deleted.
    pub(crate) struct EvalDeleteResponse {
        count: u64 = "Count",
        index: u64 = "Index",
    }

    /// Which evaluations to delete: these, or those that match.
    struct EvalDeleteRequest {
        eval_ids: List<String> = "EvalIDs",
        filter: String = "Filter",
    }
}

/// `DELETE /v1/evaluations`: in pages, each of them one event (EVAL-02).
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    let body: EvalDeleteRequest = write.json().await?;
    let mut answer = EvalDeleteResponse::default();
    match eval::selection(body.eval_ids.into_vec(), body.filter)? {
        Selection::Ids(ids) => {
            for page in ids.chunks(eval::DELETE_PAGE as usize) {
                let command = DeleteEvals {
                    eval_ids: page.to_vec(),
                };
                answer.index = write.submit(command).await?.index;
                answer.count += page.len() as u64;
            }
        }
        Selection::Filter(filter) => {
            let mut page_token = String::new();
            loop {
                let command = DeleteEvalsPage {
                    filter: filter.clone(),
                    page_token,
                };
                let done = write.submit(command).await?;
                answer.index = done.index;
                let Reply::Page { count, next } = done.reply else {
                    break;
                };
                answer.count += count;
                if next.is_empty() {
                    break;
                }
                page_token = next;
            }
        }
    }
    Ok(Answer::json(&answer)?.written(answer.index))
}
