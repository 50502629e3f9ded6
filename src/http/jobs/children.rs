//! Dispatching parameterized jobs, launching periodic ones.

use drover_events::gojson::{Base64, Map};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;

use crate::commands::job::{DispatchJob, ForceLaunch, dispatched};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Write;
use crate::http::list::storage;
use crate::http::new_id;
use crate::table_reads::glance;
use crate::table_reads::glancing;

drover_events::wire! {
    /// What a dispatch gives the child.
    struct DispatchBody {
        job_id: String = "JobID",
        payload: Base64 = "Payload",
        meta: Map<String> = "Meta",
        id_prefix_template: String = "IdPrefixTemplate",
        priority: i64 = "Priority",
    }

    /// The child of a dispatch.
    pub(crate) struct DispatchResponse {
        dispatched_job_id: String = "DispatchedJobID",
        eval_id: String = "EvalID",
        eval_create_index: u64 = "EvalCreateIndex",
        job_create_index: u64 = "JobCreateIndex",
        index: u64 = "Index",
    }

    /// The evaluation of a launch.
    pub(crate) struct ForceResponse {
        eval_id: String = "EvalID",
        eval_create_index: u64 = "EvalCreateIndex",
        index: u64 = "Index",
    }
}

/// `PUT /v1/job/:id/dispatch`.
pub(super) async fn dispatch(write: Write) -> Result<Answer, Refusal> {
    let body: DispatchBody = write.json().await?;
    if !body.job_id.is_empty() && body.job_id != super::job_id(&write.request)? {
        return Err(Refusal::bad_request("Job ID does not match"));
    }
    dispatch_with(write, body).await
}

/// `PUT /v1/job/:id/dispatch/payload`: the body is the payload.
pub(super) async fn dispatch_payload(write: Write) -> Result<Answer, Refusal> {
    let body = DispatchBody {
        payload: Base64::from(write.request.body.to_vec()),
        ..DispatchBody::default()
    };
    dispatch_with(write, body).await
}

async fn dispatch_with(write: Write, body: DispatchBody) -> Result<Answer, Refusal> {
    let job_id = super::job_id(&write.request)?;
    let namespace = write.request.namespace().to_owned();
    let token = write.request.query.text("idempotency_token").to_owned();
    let seconds = crate::base::clock::unix_nanos() / 1_000_000_000;
    let digits = new_id();
    let digits = digits.get(..8).unwrap_or_default();
    let command = DispatchJob {
        child_id: DispatchJob::child_id(&job_id, &body.id_prefix_template, seconds, digits),
        namespace: namespace.clone(),
        job_id: job_id.clone(),
        payload: body.payload.to_vec(),
        meta: body.meta.into_map(),
        priority: body.priority,
        max_priority: write.api.settings.job_max_priority,
        idempotency_token: token.clone(),
        eval_id: new_id(),
    };
    let (child_id, eval_id) = (command.child_id.clone(), command.eval_id.clone());
    let index = write.submit(command).await?.index;
    let view = write.api.projections.view();
    let found = glancing({
        let (child, token) = (child_id.clone(), token.clone());
        move || {
            let created = view.get::<Jobs>((namespace.as_str(), child.as_str()));
            match created.map_err(storage)? {
                Some(child) => Ok((Some(child), None)),
                // An earlier dispatch had the same token.
                None => Ok((None, dispatched(&view, (&namespace, &job_id), &token)?)),
            }
        }
    });
    let (created, earlier) = found.await.flatten()?;
    let answer = match created {
        Some(child) => DispatchResponse {
            dispatched_job_id: child_id,
            eval_create_index: if child.has_children() { 0 } else { index },
            eval_id: if child.has_children() {
                String::new()
            } else {
                eval_id
            },
            job_create_index: child.create_index,
            index,
        },
        None => {
            let earlier = earlier.ok_or_else(|| Refusal::internal("the child is gone"))?;
            DispatchResponse {
                dispatched_job_id: earlier.id.clone(),
                job_create_index: earlier.create_index,
                index,
                ..DispatchResponse::default()
            }
        }
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `PUT /v1/job/:id/periodic/force`.
pub(super) async fn force(write: Write) -> Result<Answer, Refusal> {
    let eval_id = new_id();
    let command = ForceLaunch {
        namespace: write.request.namespace().to_owned(),
        job_id: super::job_id(&write.request)?,
        eval_id: eval_id.clone(),
    };
    let index = write.submit(command).await?.index;
    let view = write.api.projections.view();
    let made = glance(|| view.modify_index::<Evals>(eval_id.as_str()));
    let made = made.map_err(storage)?.is_some();
    let answer = ForceResponse {
        eval_create_index: if made { index } else { 0 },
        eval_id: if made { eval_id } else { String::new() },
        index,
    };
    Ok(Answer::json(&answer)?.written(index))
}
