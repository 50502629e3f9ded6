//! Jobs with the state of their allocations, as user interfaces show them: newest change first.

use drover_events::gojson::List;
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::model::{Deployment, Job};
use drover_projections::tables::allocs::{Allocs, AllocsByJob};
use drover_projections::tables::deployments::{Deployments, DeploymentsByJob};
use drover_projections::tables::jobs::{Jobs, JobsByModify};
use drover_projections::view::View;
use drover_projections::{Prefix, Scan, StorageError, Table as _, query};

use super::statuses_shapes::{
    JobStatusesAlloc, JobStatusesDeployment, JobStatusesJob, JobStatusesLatestDeployment,
};
use crate::error::Refusal;
use crate::http::allocations::belongs_to;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{READ_JOB, demand, in_namespace};
use crate::http::list::{self, storage};

/// The tables it is made of.
pub(in crate::http) const TABLES: &[u16] = &[Jobs::ID, Allocs::ID, Deployments::ID];

drover_events::wire! {
    /// Which jobs are wanted.
    struct StatusesBody {
        jobs: List<NamedJob> = "Jobs",
        include_children: bool = "IncludeChildren",
    }

    /// A job by its name.
    struct NamedJob {
        namespace: String = "Namespace",
        id: String = "ID",
    }
}

/// What a request selects.
struct StatusesQuery {
    /// The namespace, `*` for all.
    namespace: String,
    /// Namespace and id of the jobs wanted; none: all.
    jobs: Option<Vec<(String, String)>>,
    children: bool,
}

impl StatusesQuery {
    fn takes(&self, job: &Job) -> bool {
        let named = |(namespace, id): &(String, String)| {
            *id == job.id && (*namespace == job.namespace || namespace.is_empty())
        };
        (self.namespace == "*" || self.namespace == job.namespace)
            && (self.children || job.parent_id.is_empty())
            && self.jobs.as_ref().is_none_or(|jobs| jobs.iter().any(named))
    }
}

/// `GET /v1/jobs/statuses`: all jobs.
pub(in crate::http) fn all(read: &Read<'_>) -> Result<Answer, Refusal> {
    let request = StatusesQuery {
        namespace: read.options.namespace.clone(),
        jobs: None,
        children: read.request.query.flag("include_children")?,
    };
    page(read, &request)
}

/// `POST /v1/jobs/statuses`: those that the body names.
pub(in crate::http) fn named(read: &Read<'_>) -> Result<Answer, Refusal> {
    let body: StatusesBody = read.request.json()?;
    if body.jobs.is_empty() {
        return Err(Refusal::bad_request("no jobs in request"));
    }
    demand(in_namespace(&read.identity.acl, "*", READ_JOB))?;
    let jobs = body.jobs.into_vec().into_iter();
    let namespace = match read.options.namespace.as_str() {
        DEFAULT_NAMESPACE => "*",
        name => name,
    };
    let request = StatusesQuery {
        namespace: namespace.to_owned(),
        jobs: Some(jobs.map(|job| (job.namespace, job.id)).collect()),
        children: body.include_children,
    };
    page(read, &request)
}

/// Where a page starts: a modify index, and of the jobs with that index the first one, if named.
struct StatusesStart {
    index: u64,
    job: Option<(String, String)>,
}

impl StatusesStart {
    fn read(token: &str) -> Result<Option<Self>, Refusal> {
        if token.is_empty() {
            return Ok(None);
        }
        let mut parts = token.splitn(3, '.');
        let index = parts.next().and_then(|part| part.parse().ok());
        let index = index.ok_or_else(|| {
            Refusal::by_rule(format!(
                "failed to create result paginator: invalid next_token {token:?}"
            ))
        })?;
        let job = parts.next().zip(parts.next());
        Ok(Some(Self {
            index,
            job: job.map(|(namespace, id)| (namespace.to_owned(), id.to_owned())),
        }))
    }

    /// Whether a job lies before the page.
    fn skips(&self, job: &Job, ascending: bool) -> bool {
        let key = (job.namespace.as_str(), job.id.as_str());
        let own = self.job.as_ref().map(|(ns, id)| (ns.as_str(), id.as_str()));
        if job.modify_index == self.index {
            return own.is_some_and(|own| if ascending { key < own } else { key > own });
        }
        (job.modify_index < self.index) == ascending
    }
}

/// The token of a job's place: Nomad's, its modify index, unless the job before has the same.
fn token(job: &Job, before: u64) -> String {
    if job.modify_index == before {
        format!("{}.{}.{}", job.modify_index, job.namespace, job.id)
    } else {
        job.modify_index.to_string()
    }
}

fn page(read: &Read<'_>, request: &StatusesQuery) -> Result<Answer, Refusal> {
    let options = read.options;
    let filter = list::filter(options).map_err(|error| Refusal::by_rule(error.message))?;
    let start = StatusesStart::read(options.next_token())?;
    let most = list::most(options);
    let mut pieces = list::begun(options);
    let (mut taken, mut last, mut index, mut next) = (0, 0, 0, None);
    for job in rows(read, start.as_ref()) {
        let job = job.map_err(storage)?;
        if !request.takes(&job)
            || start
                .as_ref()
                .is_some_and(|s| s.skips(&job, options.reverse()))
        {
            continue;
        }
        let matches = list::matches(filter.as_ref(), &job);
        if !matches.map_err(|error| Refusal::by_rule(error.message))? {
            continue;
        }
        let full = options.per_page() > 0 && taken == options.per_page();
        if next.is_none() && (full || pieces.bytes() >= most) {
            next = Some(token(&job, last));
            // What is sent later has no say in the index any more.
            if options.per_page() > 0 || options.later {
                break;
            }
        }
        (taken, last) = (taken + 1, job.modify_index);
        let (shown, changed) = status(read.view.unfiltered(), job)?;
        index = index.max(changed);
        if next.is_none() {
            pieces.push(&shown)?;
        }
    }
    // A caller that waits for named jobs is not woken by others; but a job that is gone is news.
    let complete = request
        .jobs
        .as_ref()
        .is_some_and(|jobs| jobs.len() == taken as usize);
    if !complete {
        index = index.max(read.view.table_index::<Jobs>());
    }
    if options.per_page() == 0
        && let Some(rest) = next
    {
        return Ok(Answer::begun(pieces, rest).at(index));
    }
    let mut answer = Answer::pieces(pieces.finish()).at(index);
    answer.next_token = next;
    Ok(answer)
}

/// The jobs in the list's order, from where the page starts on.
fn rows<'v>(
    read: &'v Read<'_>,
    start: Option<&StatusesStart>,
) -> impl Iterator<Item = Result<Job, StorageError>> + 'v {
    let scan = match (start, read.options.reverse()) {
        (None, _) => Scan::all(),
        (Some(start), true) => Scan::all().from(Prefix::new().u64(start.index).as_bytes()),
        (Some(start), false) => {
            let above = start.index.saturating_add(1);
            Scan::all().from(Prefix::new().u64(above).as_bytes())
        }
    };
    let scan = match read.options.reverse() {
        true => scan,
        false => scan.reverse(),
    };
    let rows = read.view.rows_by::<JobsByModify>(scan);
    rows.seen_by(|acl, job| acl.namespace_allows_any(&job.namespace, READ_JOB))
}

/// A job as it is shown, and the last index at which anything of that changed.
fn status(view: &View, job: Job) -> Result<(JobStatusesJob, u64), Refusal> {
    let mut index = job.modify_index;
    let mut shown = JobStatusesJob {
        group_count_sum: job.task_groups.iter().map(|group| group.count).sum(),
        is_pack: job.meta.contains_key("pack.name"),
        allocs: List::empty(),
        ..JobStatusesJob::default()
    };
    let key = (job.namespace.as_str(), job.id.as_str());
    if job.has_children() {
        let children = query::children_of_job(view, key).map_err(storage)?;
        index = children
            .iter()
            .map(|c| c.modify_index)
            .fold(index, u64::max);
        shown.child_statuses = children.iter().map(|c| c.status.clone()).collect();
    } else {
        let mut allocs = Vec::new();
        for row in view.by_index::<AllocsByJob>(key) {
            let row = row.map_err(storage)?;
            if belongs_to(view, &row, Some(&job))? {
                index = index.max(row.modify_index);
                allocs.push(alloc(&row, row.job_version));
            }
        }
        shown.allocs = allocs.into();
        let newest = Scan::with_key_prefix::<(String, String)>(key).reverse();
        if let Some(found) = view.by_index_scan::<DeploymentsByJob>(newest).next() {
            let found = found.map_err(storage)?;
            index = index.max(found.modify_index);
            if found.job_create_index == job.create_index {
                shown.latest_deployment = Some(deployment(found));
            }
        }
    }
    shown.id = job.id;
    shown.namespace = job.namespace;
    shown.name = job.name;
    shown.r#type = job.r#type;
    shown.node_pool = job.node_pool;
    shown.datacenters = job.datacenters;
    shown.priority = job.priority;
    shown.version = job.version;
    shown.submit_time = job.submit_time;
    shown.modify_index = job.modify_index;
    shown.parent_id = job.parent_id;
    shown.stop = job.stop;
    shown.status = job.status;
    Ok((shown, index))
}

fn alloc(alloc: &drover_events::model::Allocation, job_version: u64) -> JobStatusesAlloc {
    let health = alloc.deployment_status.as_ref();
    JobStatusesAlloc {
        id: alloc.id.clone(),
        group: alloc.task_group.clone(),
        client_status: alloc.client_status.clone(),
        node_id: alloc.node_id.clone(),
        deployment_status: JobStatusesDeployment {
            canary: health.is_some_and(|h| h.canary),
            healthy: health.and_then(|h| h.healthy),
        },
        job_version,
        followup_eval_id: alloc.followup_eval_id.clone(),
        has_paused_task: alloc.task_states.values().any(|t| !t.paused.is_empty()),
    }
}

fn deployment(found: Deployment) -> JobStatusesLatestDeployment {
    JobStatusesLatestDeployment {
        is_active: found.active(),
        all_auto_promote: found.has_auto_promote(),
        requires_promotion: found.requires_promotion(),
        id: found.id,
        job_version: found.job_version,
        status: found.status,
        status_description: found.status_description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(index: u64, id: &str) -> Job {
        Job {
            namespace: "default".to_owned(),
            id: id.to_owned(),
            modify_index: index,
            ..Job::default()
        }
    }

    #[test]
    fn a_token_names_one_job_even_among_equals() {
        assert_eq!(token(&job(7, "a.b"), 9), "7");
        let tie = token(&job(7, "a.b"), 7);
        assert_eq!(tie, "7.default.a.b");
        let start = StatusesStart::read(&tie).unwrap().unwrap();
        for (index, id, before) in [
            (8, "a", true),
            (7, "c", true),
            (7, "a.b", false),
            (7, "a", false),
            (6, "z", false),
        ] {
            assert_eq!(start.skips(&job(index, id), false), before, "{index} {id}");
        }
        assert!(start.skips(&job(6, "z"), true) && !start.skips(&job(7, "c"), true));
        assert!(StatusesStart::read("x").is_err() && StatusesStart::read("").unwrap().is_none());
    }
}
