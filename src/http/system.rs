//! Work that operators request of the servers.

use drover_events::model::Evaluation;
use drover_events::model::status::{core_job, eval, job_type, trigger};
use drover_projections::Reply;

use super::answer::Answer;
use super::gate::Write;
use super::new_id;
use crate::commands::eval::UpsertEvals;
use crate::commands::job::ReconcileSummaries;
use crate::error::Refusal;

/// Core jobs go before all others.
const PRIORITY: i64 = 200;

/// `PUT /v1/system/gc`: everything that is over goes, whatever its age.
pub(super) async fn gc(write: Write) -> Result<Answer, Refusal> {
    let index = write.api.projections.applied_index();
    let request = Evaluation {
        id: new_id(),
        namespace: "-".to_owned(),
        priority: PRIORITY,
        r#type: job_type::CORE.to_owned(),
        triggered_by: trigger::SCHEDULED.to_owned(),
        job_id: format!("{}:{index}", core_job::FORCE_GC),
        status: eval::PENDING.to_owned(),
        ..Evaluation::default()
    };
    let done = write
        .submit(UpsertEvals {
            evals: vec![request],
            decision: None,
        })
        .await?;
    Ok(Answer::nothing().written(done.index))
}

/// `PUT /v1/system/reconcile/summaries`: summaries are counted again, page by page.
pub(super) async fn reconcile(write: Write) -> Result<Answer, Refusal> {
    let mut page_token = String::new();
    loop {
        let done = write.submit(ReconcileSummaries { page_token }).await?;
        match done.reply {
            Reply::Page { next, .. } if !next.is_empty() => page_token = next,
            _ => return Ok(Answer::nothing().written(done.index)),
        }
    }
}
