//! What a registration would do, without doing it.

use drover_events::gojson::Time;
use drover_events::model::{Evaluation, Job, PlanAnnotations};
use drover_projections::tables::jobs::Jobs;
use tokio::sync::Semaphore;

use super::JobPlanResponse;
use super::write::{JobBody, warnings};
use crate::acl::NamespaceCapability as Ns;
use crate::error::{Refusal, chain};
use crate::http::answer::Answer;
use crate::http::gate::Late;
use crate::http::list::storage;
use crate::jobspec::{ParsedJob, cron};
use crate::scheduler::{diff, dry_run};
use crate::scheduling_view::Snapshot;
use crate::table_reads::in_turn;

drover_events::wire! {
    /// How a job is planned; the job itself is read by its own table.
    struct PlanBody {
        job: ParsedJob = "Job",
        diff: bool = "Diff",
        region: String = "Region",
        namespace: String = "Namespace",
    }
}

/// Jobs planned at a time.
static PLANNING: Semaphore = Semaphore::const_new(8);

/// `PUT /v1/job/:id/plan`.
pub(super) async fn plan(late: Late) -> Result<Answer, Refusal> {
    let given = late.judged(|call| {
        let body: PlanBody = call.request.json()?;
        let job = JobBody {
            job: body.job,
            region: body.region,
            namespace: body.namespace,
        };
        let job = job.canonical(call)?;
        if job.id != super::job_id(&call.request)? {
            return Err(Refusal::bad_request("Job ID does not match"));
        }
        let warnings = warnings(call, &job)?;
        Ok((body.diff, job, warnings))
    });
    let (with_diff, job, warnings) = given.await?;
    let write = late.in_namespace(&job.namespace, &[Ns::SubmitJob, Ns::PlanJob])?;
    let api = write.into_call().api;
    // The scheduler may look at every node: not a task for the threads that serve. Nothing ends it
    // before its time, so a request that gets no turn soon is refused.
    let planned = in_turn(&PLANNING, move || {
        let snapshot = Snapshot::read(api.projections.view()).map_err(storage)?;
        planned(&snapshot, &job, with_diff, warnings)
    });
    planned.await?
}

fn planned(
    snapshot: &Snapshot,
    job: &Job,
    with_diff: bool,
    warnings: String,
) -> Result<Answer, Refusal> {
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
    let now = crate::base::clock::unix_nanos();
    let outcome =
        dry_run(snapshot, job, changed, now).map_err(|error| Refusal::internal(chain(&error)))?;
    answer.annotations = Some(PlanAnnotations {
        desired_tg_updates: outcome.desired.into(),
        ..PlanAnnotations::default()
    });
    if let Some(periodic) = job.periodic.as_ref().filter(|periodic| periodic.enabled) {
        let next = cron::next_launch(periodic, now).unwrap_or_default();
        answer.next_periodic_launch = Time(next);
    }
    let later = outcome.follow_ups.into_iter().chain(outcome.next);
    let created: Vec<Evaluation> = later.chain(outcome.blocked).collect();
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
