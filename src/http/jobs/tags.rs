//! Names for versions of jobs; the actions tasks offer.

use drover_events::gojson::List;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Prefix, Scan};
use hyper::Method;

use crate::commands::job::TagJobVersion;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::Write;
use crate::http::list::storage;
use crate::http::query;
use crate::http::request::Request;
use crate::table_reads::glancing;

drover_events::wire! {
    /// The version to be named.
    struct TagBody {
        version: u64 = "Version",
        latest: bool = "Latest",
        description: String = "Description",
    }

    /// A name of a version.
    struct TagResponse {
        name: String = "Name",
        description: String = "Description",
        tagged_time: i64 = "TaggedTime",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }

    /// A command that a task offers.
    struct JobAction {
        name: String = "Name",
        command: String = "Command",
        args: List<String> = "Args",
        task_name: String = "TaskName",
        task_group_name: String = "TaskGroupName",
    }
}

/// The job and the name in `/v1/job/:id/versions/:name/tag`.
fn named(request: &Request) -> Result<(String, String), Refusal> {
    let path = request.path.strip_prefix("/v1/job/").unwrap_or_default();
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [id, "versions", name, "tag"] => {
            Ok((query::decode(id, false)?, query::decode(name, false)?))
        }
        _ => Err(Refusal::not_found("invalid job tag endpoint")),
    }
}

/// `PUT` and `DELETE /v1/job/:id/versions/:name/tag`.
pub(super) async fn tag(write: Write) -> Result<Answer, Refusal> {
    let (job_id, name) = named(&write.request)?;
    let namespace = write.request.namespace().to_owned();
    let tag = if write.request.method == Method::DELETE {
        None
    } else {
        let body: TagBody = write.json().await?;
        let latest = body.latest && body.version == 0;
        Some(((!latest).then_some(body.version), body.description))
    };
    let command = TagJobVersion {
        namespace: namespace.clone(),
        job_id: job_id.clone(),
        name: name.clone(),
        tag,
    };
    let index = write.submit(command).await?.index;
    let mut answer = TagResponse {
        index,
        ..TagResponse::default()
    };
    let view = write.api.projections.view();
    let tag = glancing(move || {
        let versions = Scan::prefix(Prefix::new().str(&namespace).str(&job_id));
        let mut tags = view.scan::<JobVersions>(versions).filter_map(|version| {
            let tag = version.map(|version| version.version_tag).transpose()?;
            let named = tag.as_ref().map_or(true, |tag| tag.name == name);
            named.then_some(tag)
        });
        tags.next().transpose()
    });
    if let Some(tag) = tag.await?.map_err(storage)? {
        answer.name = tag.name;
        answer.description = tag.description;
        answer.tagged_time = tag.tagged_time;
    }
    Ok(Answer::json(&answer)?.written(index))
}

/// `GET /v1/job/:id/actions`.
pub(super) fn actions(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = super::job_id(read.request)?;
    let key = (read.request.namespace(), id.as_str());
    let job = read.view.get::<Jobs>(key).map_err(storage)?;
    let job = job.ok_or_else(|| Refusal::not_found("job not found"))?;
    let mut found = Vec::new();
    for group in &job.task_groups {
        for task in &group.tasks {
            found.extend(task.actions.iter().map(|action| JobAction {
                name: action.name.clone(),
                command: action.command.clone(),
                args: action.args.clone(),
                task_name: task.name.clone(),
                task_group_name: group.name.clone(),
            }));
        }
    }
    Ok(Answer::json(&found)?.at(job.modify_index))
}
