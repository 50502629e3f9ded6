//! Evaluations: upsert, and deletion by ids or by rule.

use std::collections::BTreeSet;

use drover_events::eval::*;
use drover_events::model::Evaluation;
use drover_events::model::status::eval as status;
use drover_filter as filter;

use super::ApplyResult;
use super::effects::Effects;
use super::job;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::scan::{Prefix, Scan};
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::read::page::{PageStep, PageToken, Pager};
use crate::tables::allocs::Allocs;
use crate::tables::evals::Evals;
use crate::tables::scheduler_config::SchedulerConfigTable;

/// How many evaluations one page looks at, whether they match or not, so that a filter that matches
/// little holds up no other work (EV-13).
pub const DELETE_SCAN_LIMIT: u64 = 4_096;

/// Evaluations are created or changed.
pub(super) fn upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &EvalsUpserted) -> ApplyResult {
    upsert_all(txn, ctx, &ev.evals)?;
    Ok(Reply::None)
}

/// Writes evaluations, and looks at the statuses of their jobs again.
pub(super) fn upsert_all(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    evals: &[Evaluation],
) -> Result<(), Refused> {
    let mut jobs = BTreeSet::new();
    for eval in evals {
        upsert(txn, ctx, eval)?;
        jobs.insert((eval.namespace.as_str(), eval.job_id.as_str()));
    }
    for key in jobs {
        job::status::refresh(txn, ctx, key)?;
    }
    Ok(())
}

fn upsert(txn: &mut Txn<'_>, ctx: &Ctx, eval: &Evaluation) -> Result<(), Refused> {
    let known = txn.get::<Evals>(eval.id.as_str())?;
    let mut row = eval.clone();
    row.create_index = known.as_ref().map_or(ctx.index, |known| known.create_index);
    row.modify_index = ctx.index;
    job::summary::set_queued(txn, ctx, &row)?;
    if row.status == status::COMPLETE && row.failed_tg_allocs.is_empty() {
        cancel_blocked(txn, ctx, &row)?;
    }
    txn.put::<Evals>(row)?;
    Ok(())
}

/// Everything is placed: evaluations that wait for capacity for the same job have nothing left to
/// do.
fn cancel_blocked(txn: &mut Txn<'_>, ctx: &Ctx, done: &Evaluation) -> Result<(), Refused> {
    let key = (done.namespace.as_str(), done.job_id.as_str());
    for blocked in query::blocked_evals(txn, key)? {
        if blocked.id == done.id {
            continue;
        }
        let mut row = Evaluation::clone(&blocked);
        row.status = status::CANCELED.to_owned();
        row.status_description = format!("evaluation \"{}\" successful", done.id);
        row.modify_index = ctx.index;
        row.modify_time = ctx.time;
        txn.put::<Evals>(row)?;
    }
    Ok(())
}

/// An evaluation that is no longer needed is cancelled, if it is still open.
pub(super) fn cancel(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    description: &str,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<Evals>(id)? else {
        return Ok(());
    };
    if !known.terminal_status() {
        txn.update::<Evals>(id, |row| {
            row.status = status::CANCELED.to_owned();
            row.status_description = description.to_owned();
            row.modify_index = ctx.index;
            row.modify_time = ctx.time;
        })?;
    }
    Ok(())
}

/// The evaluation of a plan was written with it.
pub(super) fn touch(txn: &mut Txn<'_>, ctx: &Ctx, id: &str) -> Result<(), Refused> {
    txn.update::<Evals>(id, |row| {
        row.modify_index = ctx.index;
        row.modify_time = ctx.time;
    })?;
    Ok(())
}

/// Evaluations go: those named, or one page of those a filter matches (EVAL-02, EVAL-03).
pub(super) fn deleted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &EvalsDeleted) -> ApplyResult {
    if ev.user_initiated && !broker_paused(txn)? {
        let text = "eval broker is enabled; eval broker must be paused to delete evals";
        return Err(Refused::because(text));
    }
    let mut effects = Effects::default();
    effects.note_evals_deleted();
    let reply = if ev.filter.is_empty() {
        let mut count = 0;
        for id in &ev.eval_ids {
            count += u64::from(delete(txn, id, &mut effects, false)?);
        }
        Reply::Count(count)
    } else {
        delete_page(txn, ev, &mut effects)?
    };
    for id in &ev.alloc_ids {
        if let Some(alloc) = txn.get::<Allocs>(id.as_str())? {
            effects.removed(txn, &alloc)?;
            txn.delete::<Allocs>(id.as_str())?;
        }
    }
    effects.write_gathered(txn, ctx)?;
    Ok(reply)
}

fn broker_paused(txn: &Txn<'_>) -> Result<bool, Refused> {
    let config = txn.get::<SchedulerConfigTable>(())?;
    Ok(config.is_some_and(|config| config.pause_eval_broker))
}

fn delete(
    txn: &mut Txn<'_>,
    id: &str,
    effects: &mut Effects,
    by_rule: bool,
) -> Result<bool, Refused> {
    let Some(known) = txn.get::<Evals>(id)? else {
        return Ok(false);
    };
    effects.touch_job(&known.namespace, &known.job_id);
    if by_rule {
        txn.delete_by_rule::<Evals>(id)?;
    } else {
        txn.delete::<Evals>(id)?;
    }
    Ok(true)
}

/// The page is made again here, from the rule and the token, the same on every server (EV-12).
fn delete_page(
    txn: &mut Txn<'_>,
    ev: &EvalsDeleted,
    effects: &mut Effects,
) -> Result<Reply, Refused> {
    let refuse = |error: &dyn std::fmt::Display| {
        Refused::because(format!("failed to read filter expression: {error}"))
    };
    let version = u16::try_from(ev.filter_version).unwrap_or(u16::MAX);
    let filter = filter::compile(&ev.filter, version).map_err(|error| refuse(&error))?;
    let mut scan = Scan::all();
    if !ev.page_token.is_empty() {
        scan = scan.from(Prefix::new().id(&ev.page_token).as_bytes());
    }
    let rows = match ev.row_limit {
        0 => DELETE_SCAN_LIMIT,
        rows => u64::from(rows).min(DELETE_SCAN_LIMIT),
    };
    let mut pager = Pager::new(None, ev.per_page, false).scan_limit(rows);
    let mut page = Vec::new();
    for row in txn.scan_to_write::<Evals>(scan) {
        let row = row?;
        let token = PageToken::Id(row.id.clone());
        match pager
            .offer(&token, || filter.matches(&*row))
            .map_err(|error| refuse(&error))?
        {
            PageStep::Take => page.push(row.id.clone()),
            PageStep::Skip => {}
            PageStep::Stop => break,
        }
    }
    for id in &page {
        delete(txn, id, effects, true)?;
    }
    let next = pager
        .next_token()
        .map(PageToken::to_string)
        .unwrap_or_default();
    Ok(Reply::Page {
        count: page.len() as u64,
        next,
    })
}
