//! Which slot of a periodic job is due: a function of its specification, its last launch and the
//! time.

use drover_events::model::Job;

use crate::jobspec::cron::next_launch;

const SECOND: i64 = 1_000_000_000;

/// When a job is due next, Unix nanoseconds; none for never. It counts from its last launch, and
/// not
/// from before its specification was submitted: a new schedule, or one that is switched on again,
/// has missed nothing.
#[must_use]
pub fn next(job: &Job, launched: i64) -> Option<i64> {
    let periodic = job.periodic.as_ref()?;
    if !job.is_periodic_active() {
        return None;
    }
    next_launch(periodic, launched.max(job.submit_time))
}

/// The slot that has come and is not taken, and the slot after now. Where several were missed it
/// is the last of them.
#[must_use]
pub fn due(job: &Job, launched: i64, now: i64) -> (Option<i64>, Option<i64>) {
    let (Some(first), Some(periodic)) = (next(job, launched), job.periodic.as_ref()) else {
        return (None, None);
    };
    if first > now {
        return (None, Some(first));
    }
    let after = next_launch(periodic, now);
    // Slots are whole seconds. Before `early` there is a later one that has come, after `late`
    // there is none.
    let (mut early, mut late, mut slot) = (first.saturating_sub(1), now, first);
    while late.saturating_sub(early) > SECOND {
        let middle = early + (late - early) / 2;
        match next_launch(periodic, middle) {
            Some(found) if found <= now => (early, slot) = (middle, found),
            _ => late = middle,
        }
    }
    (Some(slot), after)
}
