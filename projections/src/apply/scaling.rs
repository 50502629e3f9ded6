//! Scaling: what is recorded about the count of groups.

use drover_events::model::ScalingEvent;
use drover_events::scaling::ScalingEventRecorded;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::scaling_events::{JobScalingEvents, ScalingEvents};

/// How many events of a group are kept, the newest.
const MAX_SCALING_EVENTS: usize = 20;

/// Something about a group's count is recorded.
pub(super) fn recorded(txn: &mut Txn<'_>, ctx: &Ctx, ev: &ScalingEventRecorded) -> ApplyResult {
    record(
        txn,
        ctx,
        (&ev.namespace, &ev.job_id, &ev.task_group),
        &ev.event,
    )?;
    Ok(Reply::None)
}

/// Adds an event to a group of (namespace, job, group), newest first.
pub(super) fn record(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (namespace, job, group): (&str, &str, &str),
    event: &ScalingEvent,
) -> Result<(), Refused> {
    let known = txn.get::<ScalingEvents>((namespace, job))?;
    let mut row = known
        .as_deref()
        .cloned()
        .unwrap_or_else(|| JobScalingEvents {
            namespace: namespace.to_owned(),
            job_id: job.to_owned(),
            ..JobScalingEvents::default()
        });
    let event = ScalingEvent {
        create_index: ctx.index,
        ..event.clone()
    };
    let mut events = row.scaling_events.remove(group).unwrap_or_default();
    events.to_mut().insert(0, event);
    events.to_mut().truncate(MAX_SCALING_EVENTS);
    row.scaling_events.insert(group, events);
    row.modify_index = ctx.index;
    txn.put::<ScalingEvents>(row)?;
    Ok(())
}
