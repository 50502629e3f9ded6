//! What a registration would do, without doing it.

use std::time::Duration;

use drover_events::gojson::Time;
use drover_events::model::{Evaluation, Job, PlanAnnotations};
use drover_projections::tables::jobs::Jobs;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::JobPlanResponse;
use super::write::{RegisterBody, warnings};
use crate::error::{ApiError, Code};
use crate::http::answer::Answer;
use crate::http::front::Write;
use crate::http::list::storage;
use crate::jobspec::cron;
use crate::reactors::scheduling::snapshot::Snapshot;
use crate::scheduler::{diff, dry_run};

/// Jobs planned at a time, and how long one waits for its turn.
static PLANNING: Semaphore = Semaphore::const_new(8);
const PATIENCE: Duration = Duration::from_secs(10);

/// `PUT /v1/job/:id/plan`.
pub(super) async fn plan(write: Write) -> Result<Answer, ApiError> {
    let mut body: RegisterBody = write.request.json()?;
    let job = body.canonical(&write)?;
    if job.id != super::job_id(&write.request)? {
        return Err(ApiError::bad_request("Job ID does not match"));
    }
    let warnings = warnings(&write, &job)?;
    let api = write.api;
    // The scheduler may look at every node: not a task for the threads that serve. Nothing ends
    // it before its time, so who is not given a turn soon is sent away.
    let turn = turn(&PLANNING, PATIENCE).await?;
    let planned = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let snapshot = Snapshot::read(api.projections.view()).map_err(storage)?;
        planned(&snapshot, &job, body.diff, warnings)
    });
    planned
        .await
        .map_err(|error| ApiError::internal(error.to_string()))?
}

/// A turn to plan.
///
/// # Errors
/// 429 when there is none for so long.
async fn turn(
    turns: &'static Semaphore,
    patience: Duration,
) -> Result<SemaphorePermit<'static>, ApiError> {
    let turn = tokio::time::timeout(patience, turns.acquire()).await;
    turn.ok().and_then(Result::ok).ok_or_else(|| {
        let text = "too many jobs are being planned; try again later";
        ApiError::new(Code::TooManyRequests, text)
    })
}

fn planned(
    snapshot: &Snapshot,
    job: &Job,
    with_diff: bool,
    warnings: String,
) -> Result<Answer, ApiError> {
    let key = (job.namespace.as_str(), job.id.as_str());
    let known = snapshot.view().get::<Jobs>(key).map_err(storage)?;
    let changed = known.as_ref().is_none_or(|known| !known.same_spec(job));
    let mut answer = JobPlanResponse {
        warnings,
        index: snapshot.view().index(),
        job_modify_index: known.as_ref().map_or(0, |known| known.job_modify_index),
        ..JobPlanResponse::default()
    };
    // A job with children is not placed itself; what is shown is what a child would do.
    let now = crate::clock::unix_nanos();
    let outcome = dry_run(snapshot, job, changed, now)
        .map_err(|error| ApiError::internal(error.to_string()))?;
    answer.annotations = Some(PlanAnnotations {
        desired_tg_updates: outcome.desired.into(),
        ..PlanAnnotations::default()
    });
    if let Some(periodic) = job.periodic.as_ref().filter(|periodic| periodic.enabled) {
        let next = cron::next_launch(periodic, now).unwrap_or_default();
        answer.next_periodic_launch = Time(next);
    }
    let created = outcome.follow_ups.into_iter().chain(outcome.blocked);
    let created: Vec<Evaluation> = created.collect();
    if !created.is_empty() {
        answer.created_evals = created.into();
    }
    if !outcome.failed.is_empty() {
        answer.failed_tg_allocs = outcome.failed.into();
    }
    if with_diff {
        let mut difference = diff::job_diff(known.as_ref(), Some(job), false);
        if let Some(found) = &answer.annotations {
            diff::annotate(&mut difference, found);
        }
        answer.diff = Some(difference);
    }
    let index = snapshot.view().index();
    Ok(Answer::json(&answer)?.written(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_gets_no_turn_to_plan_is_sent_away() {
        static ONE: Semaphore = Semaphore::const_new(1);
        let held = turn(&ONE, PATIENCE).await.unwrap();
        let refused = turn(&ONE, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(refused.code, Code::TooManyRequests);
        drop(held);
        let _ = turn(&ONE, PATIENCE).await.unwrap();
    }
}
