//! Summaries: how many allocations of each group are in which state, and how many children a
//! parent has in which.

use std::collections::BTreeMap;

use drover_events::gojson::Map;
use drover_events::model::status::{ClientStatus, JobStatus};
use drover_events::model::{
    Allocation, Evaluation, Job, JobChildrenSummary, JobSummary, TaskGroupSummary,
};

use crate::engine::outcome::Refused;
use crate::engine::txn::{Ctx, Txn};
use crate::tables::job_summaries::JobSummaries;

/// Moves the counts of a group as an allocation changes.
pub(crate) fn count(group: &mut TaskGroupSummary, before: Option<&Allocation>, after: &Allocation) {
    let was = before.map(|alloc| alloc.client_status.as_str());
    if was == Some(after.client_status.as_str()) {
        return;
    }
    if was.is_none() {
        group.queued -= 1;
    }
    match after.client() {
        Some(ClientStatus::Pending) => group.starting += 1,
        Some(ClientStatus::Running) => group.running += 1,
        Some(ClientStatus::Complete) => group.complete += 1,
        Some(ClientStatus::Failed) => group.failed += 1,
        Some(ClientStatus::Lost) => group.lost += 1,
        Some(ClientStatus::Unknown) => group.unknown += 1,
        None => {}
    }
    match before.and_then(Allocation::client) {
        Some(ClientStatus::Pending) => group.starting -= 1,
        Some(ClientStatus::Running) => group.running -= 1,
        Some(ClientStatus::Lost) => group.lost -= 1,
        Some(ClientStatus::Unknown) => group.unknown -= 1,
        // What ended stays counted as ended, as clients expect.
        Some(ClientStatus::Complete | ClientStatus::Failed) | None => {}
    }
}

/// Adds gathered counts to a job's summary; a summary of a later job of that name is left alone.
pub(crate) fn add(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    job: (&str, &str),
    create_index: u64,
    groups: &BTreeMap<String, TaskGroupSummary>,
) -> Result<(), Refused> {
    if groups
        .values()
        .all(|group| *group == TaskGroupSummary::default())
    {
        return Ok(());
    }
    let Some(known) = txn.get::<JobSummaries>(job)? else {
        return Ok(());
    };
    if known.create_index != create_index {
        return Ok(());
    }
    let mut row = JobSummary::clone(&known);
    for (name, delta) in groups {
        let mut group = row.summary.get(name).cloned().unwrap_or_default();
        for (value, by) in [
            (&mut group.queued, delta.queued),
            (&mut group.complete, delta.complete),
            (&mut group.failed, delta.failed),
            (&mut group.running, delta.running),
            (&mut group.starting, delta.starting),
            (&mut group.lost, delta.lost),
            (&mut group.unknown, delta.unknown),
        ] {
            *value = (*value + by).max(0);
        }
        row.summary.insert(name.as_str(), group);
    }
    if row != *known {
        row.modify_index = ctx.index;
        txn.put::<JobSummaries>(row)?;
    }
    Ok(())
}

/// What an evaluation could not place is queued.
pub(crate) fn set_queued(txn: &mut Txn<'_>, ctx: &Ctx, eval: &Evaluation) -> Result<(), Refused> {
    if eval.queued_allocations.is_empty() {
        return Ok(());
    }
    let key = (eval.namespace.as_str(), eval.job_id.as_str());
    let Some(known) = txn.get::<JobSummaries>(key)? else {
        return Ok(());
    };
    let mut row = JobSummary::clone(&known);
    for (name, queued) in eval.queued_allocations.iter() {
        if let Some(group) = row.summary.get_mut(name) {
            group.queued = *queued;
        }
    }
    if row != *known {
        row.modify_index = ctx.index;
        txn.put::<JobSummaries>(row)?;
    }
    Ok(())
}

/// A registered job has a summary with every one of its groups.
pub(crate) fn ensure(txn: &mut Txn<'_>, ctx: &Ctx, job: &Job) -> Result<(), Refused> {
    let known = txn.get::<JobSummaries>((job.namespace.as_str(), job.id.as_str()))?;
    let mut row = known.as_deref().cloned().unwrap_or_else(|| JobSummary {
        job_id: job.id.clone(),
        namespace: job.namespace.clone(),
        summary: Map::from(BTreeMap::new()),
        children: Some(JobChildrenSummary::default()),
        create_index: ctx.index,
        modify_index: 0,
    });
    for group in &job.task_groups {
        if !row.summary.contains_key(&group.name) {
            row.summary
                .insert(group.name.as_str(), TaskGroupSummary::default());
        }
    }
    if known.as_deref() != Some(&row) {
        row.modify_index = ctx.index;
        txn.put::<JobSummaries>(row)?;
    }
    Ok(())
}

/// A child of the job moved from one status to another; `None`: it was not there, or is gone.
pub(crate) fn child_moved(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    parent: (&str, &str),
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<JobSummaries>(parent)? else {
        return Ok(());
    };
    let mut row = JobSummary::clone(&known);
    let children = row.children.get_or_insert_default();
    let mut step = |name: Option<&str>, by: i64| {
        let value = match name.and_then(JobStatus::of) {
            Some(JobStatus::Pending) => &mut children.pending,
            Some(JobStatus::Running) => &mut children.running,
            Some(JobStatus::Dead) => &mut children.dead,
            None => return,
        };
        *value = (*value + by).max(0);
    };
    step(from, -1);
    step(to, 1);
    if row != *known {
        row.modify_index = ctx.index;
        txn.put::<JobSummaries>(row)?;
    }
    Ok(())
}
