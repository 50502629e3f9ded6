//! Scaling.

use std::collections::BTreeMap;

use drover_events::gojson::{Any, Map};
use drover_events::model::status::{client, desired};
use drover_projections::tables::allocs::{Allocs, AllocsByJob};
use drover_projections::tables::deployments::{Deployments, DeploymentsByJob};
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::scaling_events::ScalingEvents;
use drover_projections::{Interest, Scan, Table as _};
use smallvec::SmallVec;

use super::{JobRegisterResponse, JobScaleStatus, TaskGroupScaleStatus};
use crate::commands::job::ScaleJob;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::{FrontCall, Read};
use crate::http::gate::Write;
use crate::http::list::storage;
use crate::http::new_id;
use crate::http::request::Request;

/// What the answer to `GET /v1/job/:id/scale` is made of: a client that decides on it waits for all
/// of it.
pub(super) const TABLES: &[u16] = &[
    Jobs::ID,
    ScalingEvents::ID,
    JobSummaries::ID,
    Allocs::ID,
    Deployments::ID,
];

/// What of these tables is the job's own.
pub(super) fn watched(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = super::job_id(request)?;
    let key = (request.namespace(), id.as_str());
    let own = [
        Interest::row::<Jobs>(key),
        Interest::row::<ScalingEvents>(key),
        Interest::row::<JobSummaries>(key),
        Interest::group::<AllocsByJob>(key),
        Interest::group::<DeploymentsByJob>(key),
    ];
    Ok(own.into_iter().collect())
}

/// `GET /v1/job/:id/scale`. Its index is that of the last change of any part of it.
pub(super) fn status(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = super::job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str());
    let job = read.view.get::<Jobs>(key).map_err(storage)?;
    let job = job.ok_or_else(|| Refusal::not_found("job not found"))?;
    let mut events = read
        .view
        .get::<ScalingEvents>(key)
        .map_err(storage)?
        .unwrap_or_default();
    let mut index = job.modify_index.max(events.modify_index);
    if let Some(summary) = read.view.get::<JobSummaries>(key).map_err(storage)? {
        index = index.max(summary.modify_index);
    }
    let newest = Scan::with_key_prefix::<(String, String)>(key).reverse();
    let rollouts = read.view.rows_by::<DeploymentsByJob>(newest);
    if let Some(last) = rollouts.of_route().next() {
        index = index.max(last.map_err(storage)?.modify_index);
    }
    let mut groups: BTreeMap<String, TaskGroupScaleStatus> = BTreeMap::new();
    for group in &job.task_groups {
        let status = TaskGroupScaleStatus {
            desired: group.count,
            events: events
                .scaling_events
                .remove(&group.name)
                .unwrap_or_default(),
            ..TaskGroupScaleStatus::default()
        };
        groups.insert(group.name.clone(), status);
    }
    let allocs = read
        .view
        .rows_by::<AllocsByJob>(Scan::with_key_prefix::<(String, String)>(key));
    for alloc in allocs.of_route() {
        let alloc = alloc.map_err(storage)?;
        index = index.max(alloc.modify_index);
        let Some(group) = groups.get_mut(&alloc.task_group) else {
            continue;
        };
        if alloc.terminal_status() || alloc.desired_status != desired::RUN {
            continue;
        }
        group.placed += 1;
        group.running += i64::from(alloc.client_status == client::RUNNING);
        match alloc.health() {
            Some(true) => group.healthy += 1,
            Some(false) => group.unhealthy += 1,
            None => {}
        }
    }
    let answer = JobScaleStatus {
        job_id: job.id,
        namespace: job.namespace,
        job_create_index: job.create_index,
        job_modify_index: job.modify_index,
        job_stopped: job.stop,
        task_groups: groups.into(),
    };
    Ok(Answer::json(&answer)?.at(index))
}

drover_events::wire! {
    /// A request for another count.
    struct ScaleBody {
        count: Option<i64> = "Count",
        target: Map<String> = "Target",
        message: String = "Message",
        error: bool = "Error",
        meta: Map<Any> = "Meta",
        job_modify_index: u64 = "JobModifyIndex",
    }
}

/// Refuses what no scaling can be.
fn checked(write: &FrontCall, body: &ScaleBody, job_id: &str) -> Result<(), Refusal> {
    let target = |name: &str| body.target.get(name).map_or("", String::as_str);
    let namespace = target("Namespace");
    let text = if job_id.is_empty() {
        "missing job ID for scaling action"
    } else if !namespace.is_empty() && namespace != write.request.namespace() {
        "namespace in payload did not match header"
    } else if target("Group").is_empty() {
        "missing task group name for scaling action"
    } else if body.count.is_some_and(|count| count < 0) {
        "scaling action count can't be negative"
    } else if body.count.is_some() && body.error {
        "scaling action should not contain count if error is true"
    } else {
        return Ok(());
    };
    Err(Refusal::bad_request(text))
}

/// `PUT /v1/job/:id/scale`.
pub(super) async fn scale(write: Write) -> Result<Answer, Refusal> {
    let mut body: ScaleBody = write.json().await?;
    let job_id = super::job_id(&write.request)?;
    if body
        .target
        .get("Job")
        .is_some_and(|named| !named.is_empty() && *named != job_id)
    {
        return Err(Refusal::bad_request("job ID in payload did not match URL"));
    }
    checked(&write, &body, &job_id)?;
    let eval_id = new_id();
    let changes = body.count.is_some();
    let done = write
        .submit(ScaleJob {
            namespace: write.request.namespace().to_owned(),
            job_id,
            group: body.target.remove("Group").unwrap_or_default(),
            count: body.count,
            message: body.message,
            error: body.error,
            meta: body.meta,
            job_modify_index: body.job_modify_index,
            eval_id: eval_id.clone(),
            tracked_versions: write.api.settings.job_tracked_versions,
            ..ScaleJob::default()
        })
        .await?;
    let mut answer = JobRegisterResponse {
        job_modify_index: done.index,
        index: done.index,
        known_leader: write.api.server.leader_address().is_some(),
        ..JobRegisterResponse::default()
    };
    if changes {
        (answer.eval_id, answer.eval_create_index) = (eval_id, done.index);
    }
    Ok(Answer::json(&answer)?.written(done.index))
}
