//! Allocations.

mod ready_list;
pub(super) mod write;

use drover_events::model::{AllocListStub, Allocation, Job};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::{self, AllocRow, Allocs, AllocsByNamespace};
use drover_projections::tables::services::ServicesByAlloc;
use drover_projections::view::View;
use drover_projections::watch::Interest;
use drover_projections::{Id, Scan, StorageError};
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use super::answer::Answer;
use super::front::Read;
use super::gate::{self, READ_JOB};
use super::list::{self, storage};
use super::ready;
use super::request::Request;
use super::rows::{self, Created};
use super::services;
use super::sight::{Keyed, Unchecked};
use super::state::Api;
use crate::error::Refusal;
use crate::table_reads::glance;
use ready_list::AllocationList;

/// A row as lists and filters see it.
struct Listed {
    alloc: Allocation,
    job_type: String,
    job_version: u64,
    token: PageToken,
}

impl Listed {
    fn stub(self, resources: bool, task_states: bool) -> AllocListStub {
        let stub = stub(self.alloc, self.job_type, self.job_version);
        shortened(stub, resources, task_states)
    }
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.alloc.serialize(serializer)
    }
}

/// `GET /v1/allocations`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let resources = read.request.query.flag("resources")?;
    let task_states = read.request.query.flag_or("task_states", true)?;
    if !resources
        && task_states
        && let Some(proof) = read.proof_of_all(READ_JOB)
        && let Some(answer) = ready::answer::<AllocationList>(read, proof)?
    {
        return Ok(answer);
    }
    let (kind, rows) = rows::created::<AllocsByNamespace>(&read.view, read.options, READ_JOB)?;
    let rows = rows.map(|row| listed(read, row?, kind));
    let token = |row: &Listed| row.token.clone();
    let answer = list::render(read.options, kind, rows, token, |row| {
        Ok(row.stub(resources, task_states))
    })?;
    Ok(answer.at(read.view.table_index::<Allocs>()))
}

/// A row as lists see it. A filter may look into the job; nothing else does.
fn listed(read: &Read<'_>, row: AllocRow, kind: TokenKind) -> Result<Listed, StorageError> {
    let token = row.token(kind);
    let alloc = match read.options.filter().is_empty() {
        true => row.alloc,
        false => row.with_job(read.view.unfiltered())?,
    };
    Ok(Listed {
        alloc,
        job_type: row.job_type,
        job_version: row.job_version,
        token,
    })
}

/// The row of the allocation in the path.
pub(super) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    Ok([Interest::row::<Allocs>(id.as_str())].into_iter().collect())
}

/// The list from the rendered one alone, if that is ready; none where tables have to be read.
pub(super) fn near_list(read: &Read<'_>) -> Option<Answer> {
    let query = &read.request.query;
    let plain =
        query.flag("resources") == Ok(false) && query.flag_or("task_states", true) == Ok(true);
    let proof = read.proof_of_all(READ_JOB).filter(|_| plain)?;
    ready::near::<AllocationList>(read, proof)
}

/// Whether the allocation in the path may be seen. One that may not is answered as Nomad does.
pub(super) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let id = read.request.segment(2)?;
    let hidden = || Refusal::by_rule(format!("Unknown allocation {id:?}"));
    let found = read.view.get::<Allocs>(id.as_str()).map_err(storage)?;
    gate::object(read, found.map(|row| row.alloc.namespace), hidden)
}

/// The namespace of an allocation.
pub(super) fn namespace_of(api: &Api, id: &str) -> Result<Option<String>, Refusal> {
    let view = api.projections.view();
    let found = glance(|| view.get::<Allocs>(id)).map_err(storage)?;
    Ok(found.map(|row| row.alloc.namespace))
}

/// `GET /v1/allocation/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let alloc = allocs::get(read.view.unfiltered(), &id).map_err(storage)?;
    let alloc = alloc.ok_or_else(|| Refusal::not_found("alloc not found"))?;
    let index = alloc.modify_index;
    Ok(Answer::json(&alloc.with_summed_resources())?.at(index))
}

/// `GET /v1/allocation/:id/services`.
pub(super) fn services(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    if read
        .view
        .get::<Allocs>(id.as_str())
        .map_err(storage)?
        .is_none()
    {
        return Err(Refusal::not_found("allocation not found"));
    }
    let rows = list::of_index::<ServicesByAlloc>(read, Scan::with_key_prefix::<Id>(id.as_str()))?;
    services::of(read, rows)
}

/// What a list shows of an allocation.
pub(super) fn stub(alloc: Allocation, job_type: String, job_version: u64) -> AllocListStub {
    AllocListStub {
        id: alloc.id,
        eval_id: alloc.eval_id,
        name: alloc.name,
        namespace: alloc.namespace,
        node_id: alloc.node_id,
        node_name: alloc.node_name,
        job_id: alloc.job_id,
        job_type,
        job_version,
        task_group: alloc.task_group,
        allocated_resources: alloc.allocated_resources,
        desired_status: alloc.desired_status,
        desired_description: alloc.desired_description,
        client_status: alloc.client_status,
        client_description: alloc.client_description,
        desired_transition: alloc.desired_transition,
        task_states: alloc.task_states,
        deployment_status: alloc.deployment_status,
        followup_eval_id: alloc.followup_eval_id,
        next_allocation: alloc.next_allocation,
        reschedule_tracker: alloc.reschedule_tracker,
        preempted_allocations: alloc.preempted_allocations,
        preempted_by_allocation: alloc.preempted_by_allocation,
        create_index: alloc.create_index,
        modify_index: alloc.modify_index,
        create_time: alloc.create_time,
        modify_time: alloc.modify_time,
    }
}

fn shortened(mut stub: AllocListStub, resources: bool, task_states: bool) -> AllocListStub {
    if !resources {
        stub.allocated_resources = None;
    }
    if !task_states {
        stub.task_states = drover_events::gojson::Map::nil();
    }
    stub
}

/// Stubs of the allocations that belong to something, as far as `keep` leaves them.
///
/// # Errors
/// 400 for a filter that is none, 500 when the rows cannot be read.
pub(super) fn stubs_of(
    read: &Read<'_>,
    rows: Unchecked<'_, Keyed<AllocRow>>,
    keep: impl Fn(&AllocRow) -> Result<bool, Refusal>,
) -> Result<Answer, Refusal> {
    let filter = list::filter(read.options)?;
    let rows = rows.seen_by(|acl, (_, row)| acl.namespace_allows_any(&row.namespace, READ_JOB));
    let answer = list::render_whole(read.options, rows, |row| {
        if !keep(&row)? {
            return Ok(None);
        }
        let row = listed(read, row, TokenKind::Id).map_err(storage)?;
        Ok(list::matches(filter.as_ref(), &row)?.then(|| row.stub(false, true)))
    })?;
    Ok(answer.at(read.view.table_index::<Allocs>()))
}

/// Whether an allocation is of this incarnation of its job: the same creation.
pub(super) fn belongs_to(view: &View, row: &AllocRow, job: Option<&Job>) -> Result<bool, Refusal> {
    let Some(job) = job else { return Ok(true) };
    let own = view.get::<AllocJobs>(&row.job_key()).map_err(storage)?;
    Ok(own.is_none_or(|own| own.create_index == job.create_index))
}
