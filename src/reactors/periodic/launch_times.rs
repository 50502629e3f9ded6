//! Which launch time of a periodic job is due: a function of its specification, its last launch and
//! the time.

use drover_events::model::Job;

use crate::jobspec::cron::LaunchSchedule;

const SECOND: i64 = 1_000_000_000;

/// The launch schedule of a job, and from when on they count: not from before its specification was
/// submitted. A new schedule, or one that is switched on again, has missed nothing. None where it
/// has none.
fn launch_schedule(job: &Job, launched: i64) -> Result<Option<(LaunchSchedule, i64)>, String> {
    match job.periodic.as_ref() {
        Some(periodic) if job.is_periodic_active() => {
            let schedule = LaunchSchedule::of(periodic)?;
            Ok(Some((schedule, launched.max(job.submit_time))))
        }
        _ => Ok(None),
    }
}

/// When a job is due next after its last launch, Unix nanoseconds; none for never.
///
/// # Errors
/// Its specification cannot be looked through.
pub fn next(job: &Job, launched: i64) -> Result<Option<i64>, String> {
    let found = launch_schedule(job, launched)?;
    Ok(found.and_then(|(schedule, from)| schedule.after(from)))
}

/// The launch time that has come and is not taken, and the one after now. Where several were missed
/// it is the last of them.
///
/// # Errors
/// As [`next`].
pub fn due(job: &Job, launched: i64, now: i64) -> Result<(Option<i64>, Option<i64>), String> {
    let Some((schedule, from)) = launch_schedule(job, launched)? else {
        return Ok((None, None));
    };
    let Some(first) = schedule.after(from) else {
        return Ok((None, None));
    };
    if first > now {
        return Ok((None, Some(first)));
    }
    let after = schedule.after(now);
    // Launch times are whole seconds. Before `early` there is a later one that has come, after
    // `late` there is none.
    let (mut early, mut late, mut launch_time) = (first.saturating_sub(1), now, first);
    while late.saturating_sub(early) > SECOND {
        let middle = early + (late - early) / 2;
        match schedule.after(middle) {
            Some(found) if found <= now => (early, launch_time) = (middle, found),
            _ => late = middle,
        }
    }
    Ok((Some(launch_time), after))
}
