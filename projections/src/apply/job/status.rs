//! The status of a job: a function of what it is and of what there is of it.

use drover_events::model::Job;
use drover_events::model::status::{job as status, job_type};

use super::summary;
use crate::engine::outcome::Refused;
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::jobs::Jobs;

/// What an event did that bears on the status of a job beyond the rows there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobTouch {
    /// It wrote an allocation of the job that is not terminal.
    pub(crate) live: bool,
    /// It deleted evaluations: a job of which nothing is left is dead, not pending.
    pub(crate) evals_deleted: bool,
}

/// Derives a job's status again and writes it if it changed.
pub(crate) fn refresh(txn: &mut Txn<'_>, ctx: &Ctx, key: (&str, &str)) -> Result<(), Refused> {
    refresh_after(txn, ctx, key, JobTouch::default())
}

/// The same after an event that wrote allocations or deleted evaluations.
pub(crate) fn refresh_after(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (namespace, id): (&str, &str),
    touch: JobTouch,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<Jobs>((namespace, id))? else {
        return Ok(());
    };
    let now = if touch.live {
        status::RUNNING
    } else {
        derive(txn, &known, touch.evals_deleted)?
    };
    if known.status == now {
        return Ok(());
    }
    let mut row = Job::clone(&known);
    row.status = now.to_owned();
    row.modify_index = ctx.index;
    txn.put::<Jobs>(row)?;
    if !known.parent_id.is_empty() {
        let from = Some(known.status.as_str()).filter(|status| !status.is_empty());
        summary::child_moved(txn, ctx, (namespace, &known.parent_id), from, Some(now))?;
    }
    Ok(())
}

/// What the status is, by the rule of Nomad.
fn derive(txn: &Txn<'_>, job: &Job, evals_deleted: bool) -> Result<&'static str, Refused> {
    if job.r#type == job_type::SYSTEM || job.has_children() {
        return Ok(if job.stop {
            status::DEAD
        } else {
            status::RUNNING
        });
    }
    let key = (job.namespace.as_str(), job.id.as_str());
    if query::has_live_alloc(txn, key)? || query::has_active_deployment(txn, key)? {
        return Ok(status::RUNNING);
    }
    if query::has_open_eval(txn, key)? {
        return Ok(status::PENDING);
    }
    if job.stop || evals_deleted || query::has_eval(txn, key)? || query::has_alloc(txn, key)? {
        return Ok(status::DEAD);
    }
    Ok(status::PENDING)
}
