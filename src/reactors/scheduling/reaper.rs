//! Evaluations that need no more work: cancelled, given up, or freed after a while.

use std::sync::Arc;

use drover_events::gojson::Time;
use drover_events::model::Evaluation;
use drover_events::model::status::{eval, trigger};
use drover_projections::tables::evals::Evals;
use drover_projections::unreadable;

use super::SchedulingShared;
use super::core::Core;
use super::retry::Retry;
use crate::commands::Command;
use crate::commands::eval::UpsertEvals;
use crate::commands::system_jobs::EvaluateOverlooked;
use crate::error::Refusal;

/// How many evaluations one event cancels.
const BATCH: usize = 500;
const MINUTE: i64 = 60_000_000_000;

/// Writes evaluations that hang together. What cannot be written now is not forgotten: it comes
/// again with the next look where nothing can be written, and after a while where the reason is its
/// own. Where that may be because something of it cannot be read, the others of those that are
/// cancelled together are written without it, and it waits for other tables too: nothing says of an
/// error whether it is of such a row.
pub(super) async fn write_evals(shared: &SchedulingShared, whole: Retry<Vec<Evaluation>>) {
    let mut lists = vec![whole];
    while let Some(mut list) = lists.pop() {
        if list.what.iter().any(|eval| is_there(shared, eval)) {
            continue;
        }
        let command = UpsertEvals {
            evals: list.what.clone(),
            decision: None,
        };
        let Err(error) = submit(shared, command).await else {
            continue;
        };
        if list.is_news() {
            tracing::warn!(%error, "evaluations could not be written, and are tried again");
        }
        let may_split = unreadable::is_met() && list.what.len() > 1;
        if error.concerns_all() {
            shared.core.lock().unwritten.push(list);
        } else if may_split && list.what.iter().all(is_canceled) {
            let rest = list.split_off(list.what.len() / 2);
            lists.extend([list, rest]);
        } else {
            let list = list.later(shared.clock.now());
            shared.core.lock().unwritten.push(list);
        }
    }
}

fn is_canceled(eval: &Evaluation) -> bool {
    eval.status == eval::CANCELED
}

/// Whether what was reported as unwritten came to be after all: what follows an evaluation is not
/// made pending a second time.
fn is_there(shared: &SchedulingShared, eval: &Evaluation) -> bool {
    let row = || {
        shared
            .projections
            .view()
            .modify_index::<Evals>(eval.id.as_str())
    };
    eval.create_index == 0 && matches!(row(), Ok(Some(_)))
}

/// Submits the evaluation of system jobs that were overlooked when a node came; where that fails it
/// is submitted again, at once or after a while, as in [`write_evals`].
pub(super) async fn look_again(shared: &SchedulingShared, mut one: Retry<EvaluateOverlooked>) {
    if let Err(error) = submit(shared, one.what.clone()).await {
        if one.is_news() {
            let node = &one.what.node_id;
            tracing::warn!(%error, node, "system jobs could not be evaluated, and are tried again");
        }
        if !error.concerns_all() {
            one = one.later(shared.clock.now());
        }
        shared.core.lock().add_overlooked(one);
    }
}

async fn submit(shared: &SchedulingShared, command: impl Command) -> Result<(), Refusal> {
    let done = shared.proposer.submit(Arc::new(command), "scheduling");
    done.await.map(drop)
}

/// Lists of evaluations to be written now; each hangs together.
pub(super) fn reap(
    core: &mut Core,
    delivery_limit: u32,
    jitter: i64,
    now: i64,
) -> Vec<Retry<Vec<Evaluation>>> {
    let due = core.unwritten.extract_if(.., |list| list.is_due(now));
    let mut events: Vec<_> = due.collect();
    loop {
        let superfluous = core.broker.take_cancelable(BATCH);
        if superfluous.is_empty() {
            break;
        }
        let why = "canceled after more recent eval was processed".to_owned();
        let cancelled = superfluous
            .into_iter()
            .map(|eval| cancel(eval, why.clone(), now));
        events.push(Retry::new(cancelled.collect()));
    }
    let duplicates = core.blocked.take_duplicates();
    for batch in duplicates.chunks(BATCH) {
        let cancelled = batch.iter().map(|eval| {
            let why = format!(
                "existing blocked evaluation exists for job \"{}\"",
                eval.job_id
            );
            cancel(eval.clone(), why, now)
        });
        events.push(Retry::new(cancelled.collect()));
    }
    for eval in core.broker.take_failed() {
        let evals = given_up(eval, delivery_limit, jitter, now);
        events.push(Retry::new(evals));
    }
    events
}

fn cancel(mut eval: Evaluation, why: String, now: i64) -> Evaluation {
    eval.status = eval::CANCELED.to_owned();
    // What it could not place is no longer wanted, or counted by another evaluation.
    eval.queued_allocations = Default::default();
    eval.status_description = why;
    eval.modify_time = now;
    eval
}

/// A failed evaluation, and one that tries again after one to six minutes.
fn given_up(mut eval: Evaluation, limit: u32, jitter: i64, now: i64) -> Vec<Evaluation> {
    let wait = MINUTE + jitter.rem_euclid(5 * MINUTE);
    let next = Evaluation {
        id: uuid::Uuid::new_v4().to_string(),
        namespace: eval.namespace.clone(),
        priority: eval.priority,
        r#type: eval.r#type.clone(),
        triggered_by: trigger::FAILED_FOLLOW_UP.to_owned(),
        job_id: eval.job_id.clone(),
        job_modify_index: eval.job_modify_index,
        status: eval::PENDING.to_owned(),
        wait,
        wait_until: Time(now.saturating_add(wait)),
        previous_eval: eval.id.clone(),
        create_time: now,
        modify_time: now,
        ..Evaluation::default()
    };
    eval.status = eval::FAILED.to_owned();
    eval.status_description = format!("evaluation reached delivery limit ({limit})");
    eval.next_eval.clone_from(&next.id);
    eval.modify_time = now;
    vec![eval, next]
}
