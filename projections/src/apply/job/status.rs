//! The status of a job: a function of what it is and of what there is of it.

use drover_events::model::Job;
use drover_events::model::status::{job as status, job_type};

use super::summary;
use crate::engine::outcome::Refused;
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::jobs::Jobs;

/// Looks at a job's status again and writes it if it moved. `live`: an allocation that this event
/// wrote is not terminal. `evals_deleted`: a job of which nothing is left was there before.
pub(crate) fn refresh(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (namespace, id): (&str, &str),
    live: bool,
    evals_deleted: bool,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<Jobs>((namespace, id))? else {
        return Ok(());
    };
    let now = if live {
        status::RUNNING
    } else {
        derive(txn, &known, evals_deleted)?
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
