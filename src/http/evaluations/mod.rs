//! Evaluations.

pub(super) mod write;

use drover_events::model::{Evaluation, EvaluationStub};
use drover_projections::filter::Filter;
use drover_projections::page::TokenKind;
use drover_projections::tables::allocs::AllocsByEval;
use drover_projections::tables::evals::{Evals, EvalsByJob, EvalsByNamespace};
use drover_projections::watch::Interest;
use drover_projections::{Id, Scan};
use smallvec::SmallVec;

use super::answer::Answer;
use super::front::Read;
use super::gate::{self, READ_JOB};
use super::list::{self, storage};
use super::query::ReadOptions;
use super::request::Request;
use super::rows::{self, Created};
use super::sight::Rows;
use crate::error::Refusal;

/// The rows that a request's parameters leave.
fn wanted<'v>(read: &'v Read<'_>) -> Result<(TokenKind, Rows<'v, Evaluation>), Refusal> {
    let status = read.request.query.text("status");
    let job = read.request.query.text("job");
    if !read.options.filter().is_empty() && (!status.is_empty() || !job.is_empty()) {
        return Err(Refusal::bad_request(
            "Filter expression cannot be used with other filter parameters",
        ));
    }
    let (kind, rows) = rows::created::<EvalsByNamespace>(&read.view, read.options, READ_JOB)?;
    let rows = rows.filter(move |row| {
        row.as_ref().map_or(true, |eval| {
            (status.is_empty() || eval.status == status) && (job.is_empty() || eval.job_id == job)
        })
    });
    Ok((kind, Box::new(rows)))
}

/// `GET /v1/evaluations`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let (kind, rows) = wanted(read)?;
    let answer = list::render(read.options, kind, rows, |eval| eval.token(kind), Ok)?;
    Ok(answer.at(read.view.table_index::<Evals>()))
}

drover_events::wire! {
    /// How many evaluations there are.
    pub(crate) struct EvalCountResponse {
        count: u64 = "Count",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// `GET /v1/evaluations/count`.
pub(super) fn count(read: &Read<'_>) -> Result<Answer, Refusal> {
    // Pages are no matter of a count, nor are the older parameters of the list.
    let options = read.options.of_all();
    let count = match list::filter(&options)? {
        None if options.prefix().is_empty() => {
            rows::count::<EvalsByNamespace>(&read.view, &options, READ_JOB)?
        }
        filter => count_matching(read, &options, filter.as_ref())?,
    };
    let index = read.view.table_index::<Evals>();
    let known_leader = read.api.server.leader_address().is_some();
    let answer = EvalCountResponse {
        count,
        index,
        known_leader,
        ..EvalCountResponse::default()
    };
    Ok(Answer::json(&answer)?.at(index))
}

fn count_matching(
    read: &Read<'_>,
    options: &ReadOptions,
    filter: Option<&Filter>,
) -> Result<u64, Refusal> {
    let (_, rows) = rows::created::<EvalsByNamespace>(&read.view, options, READ_JOB)?;
    let mut count = 0;
    for row in rows {
        let row = row.map_err(storage)?;
        count += u64::from(list::matches(filter, &row)?);
    }
    Ok(count)
}

/// Whether the evaluation in the path may be seen. One that may not is as one that is not there.
pub(super) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let id = read.request.segment(2)?;
    let found = read.view.get::<Evals>(id.as_str()).map_err(storage)?;
    let hidden = || Refusal::not_found("eval not found");
    gate::object_there(read, found.map(|eval| eval.namespace), hidden)
}

/// The row of the evaluation in the path.
pub(super) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    Ok([Interest::row::<Evals>(id.as_str())].into_iter().collect())
}

/// `GET /v1/evaluation/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let eval = read.view.get::<Evals>(id.as_str()).map_err(storage)?;
    let mut eval = eval.ok_or_else(|| Refusal::not_found("eval not found"))?;
    if read.request.query.flag("related")? {
        eval.related_evals = related(read, &eval)?.into();
    }
    Ok(Answer::json(&eval)?.at(eval.modify_index))
}

/// The evaluations of the same job that lead to this one or follow from it.
fn related(read: &Read<'_>, eval: &Evaluation) -> Result<Vec<EvaluationStub>, Refusal> {
    let key = (eval.namespace.as_str(), eval.job_id.as_str());
    let others = read
        .view
        .rows_by::<EvalsByJob>(Scan::with_key_prefix::<(String, String)>(key));
    let others = others.in_namespace(&eval.namespace, READ_JOB);
    let mut others: Vec<_> = others.collect::<Result<_, _>>().map_err(storage)?;
    let mut found = Vec::new();
    let mut open = vec![eval.clone()];
    while let Some(from) = open.pop() {
        let links = |other: &Evaluation| {
            let ids = [&from.next_eval, &from.previous_eval, &from.blocked_eval];
            let back = [&other.next_eval, &other.previous_eval, &other.blocked_eval];
            other.id != eval.id && (ids.contains(&&other.id) || back.contains(&&from.id))
        };
        for other in others.extract_if(.., |other| links(other)) {
            found.push(other.stub());
            open.push(other);
        }
    }
    found.sort_by(|a, b| (a.create_index, &a.id).cmp(&(b.create_index, &b.id)));
    Ok(found)
}

/// What the evaluation in the path placed.
pub(super) fn watched_allocs(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    let group = Interest::group::<AllocsByEval>(id.as_str());
    Ok([group].into_iter().collect())
}

/// `GET /v1/evaluation/:id/allocations`.
pub(super) fn allocations(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let rows = list::of_index::<AllocsByEval>(read, Scan::with_key_prefix::<Id>(id.as_str()))?;
    super::allocations::stubs_of(read, rows, |_| Ok(true))
}
