//! The list of jobs.

use drover_events::gojson::Map;
use drover_events::model::{Job, JobSummary};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Prefix, Scan, Table};

use super::JobListStub;
use super::ready_list::JobList;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::{Read, table_index};
use crate::http::gate::LIST_JOBS;
use crate::http::list;
use crate::http::query::ReadOptions;
use crate::http::ready;

/// `GET /v1/jobs`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    if !read.request.query.flag("meta")?
        && let Some(proof) = read.proof_of_all(LIST_JOBS)
        && let Some(answer) = ready::answer::<JobList>(read, proof)?
    {
        return Ok(answer);
    }
    list_of(read, |_| true)
}

/// `GET /v1/jobs` from the rendered list alone, if that is ready and one namespace is requested;
/// none otherwise, and where `list` has to read tables.
pub(in crate::http) fn near_list(read: &Read<'_>) -> Option<Answer> {
    let plain = read.request.query.flag("meta") == Ok(false);
    let proof = read.proof_of_all(LIST_JOBS).filter(|_| plain)?;
    ready::near::<JobList>(read, proof)
}

/// A page of the jobs for which `keep` is true.
pub(in crate::http) fn list_of(
    read: &Read<'_>,
    keep: impl Fn(&Job) -> bool,
) -> Result<Answer, Refusal> {
    let meta = read.request.query.flag("meta")?;
    let options = read.options;
    let rows = read.view.rows::<Jobs>(scan(options));
    let rows = rows.seen_by(|acl, job| acl.namespace_allows_any(&job.namespace, LIST_JOBS));
    let rows = rows.filter(|row| {
        row.as_ref().map_or(true, |job| {
            job.id.starts_with(options.prefix()) && keep(job)
        })
    });
    let answer = list::render(options, TokenKind::NamespaceId, rows, token, |job| {
        let summary = read
            .view
            .get::<JobSummaries>((job.namespace.as_str(), job.id.as_str()));
        Ok(stub(job, summary.map_err(list::storage)?, meta))
    })?;
    Ok(answer.at(table_index(
        read.view.unfiltered(),
        &[Jobs::ID, JobSummaries::ID],
    )))
}

fn token(job: &Job) -> PageToken {
    PageToken::NamespaceId(job.namespace.clone(), job.id.clone())
}

/// The rows of a page from its token on: of one namespace those whose ids begin with the prefix, or
/// all of every namespace.
fn scan(options: &ReadOptions) -> Scan {
    let scan = match options.namespace.as_str() {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name).str_prefix(options.prefix())),
    };
    let scan = match options.next_token().split_once('.') {
        Some((namespace, id)) => scan.from(Prefix::new().str(namespace).str(id).as_bytes()),
        None => scan,
    };
    if options.reverse() {
        scan.reverse()
    } else {
        scan
    }
}

/// What a list shows of a job.
pub(super) fn stub(job: Job, summary: Option<JobSummary>, meta: bool) -> JobListStub {
    JobListStub {
        periodic: job.is_periodic(),
        parameterized_job: job.is_parameterized(),
        id: job.id,
        parent_id: job.parent_id,
        name: job.name,
        namespace: job.namespace,
        datacenters: job.datacenters,
        node_pool: job.node_pool,
        multiregion: job.multiregion,
        r#type: job.r#type,
        priority: job.priority,
        stop: job.stop,
        status: job.status,
        status_description: job.status_description,
        job_summary: summary,
        create_index: job.create_index,
        modify_index: job.modify_index,
        job_modify_index: job.job_modify_index,
        submit_time: job.submit_time,
        meta: if meta { job.meta } else { Map::nil() },
    }
}
