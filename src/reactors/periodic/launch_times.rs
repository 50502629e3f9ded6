//! Which launch time of a periodic job is due: a function of its specification, its last launch and
//! the time.

use drover_events::model::Job;

use crate::jobspec::cron::Launches;

const SECOND: i64 = 1_000_000_000;

/// The launches of a job, and from when on they count: not from before its specification was
/// submitted. A new schedule, or one that is switched on again, has missed nothing. None where it
/// has none.
fn launches(job: &Job, launched: i64) -> Result<Option<(Launches, i64)>, String> {
    match job.periodic.as_ref() {
        Some(periodic) if job.is_periodic_active() => {
            let launches = Launches::of(periodic)?;
            Ok(Some((launches, launched.max(job.submit_time))))
        }
        _ => Ok(None),
    }
}

/// When a job is due next after its last launch, Unix nanoseconds; none for never.
///
/// # Errors
/// Its specification cannot be looked through.
pub fn next(job: &Job, launched: i64) -> Result<Option<i64>, String> {
    let found = launches(job, launched)?;
    Ok(found.and_then(|(launches, from)| launches.after(from)))
}

/// The launch time that has come and is not taken, and the one after now. Where several were missed
/// it is the last of them.
///
/// # Errors
/// As [`next`].
pub fn due(job: &Job, launched: i64, now: i64) -> Result<(Option<i64>, Option<i64>), String> {
    let Some((launches, from)) = launches(job, launched)? else {
        return Ok((None, None));
    };
    let Some(first) = launches.after(from) else {
        return Ok((None, None));
    };
    if first > now {
        return Ok((None, Some(first)));
    }
    let after = launches.after(now);
    // Launch times are whole seconds. Before `early` there is a later one that has come, after
    // `late` there is none.
    let (mut early, mut late, mut launch_time) = (first.saturating_sub(1), now, first);
    while late.saturating_sub(early) > SECOND {
        let middle = early + (late - early) / 2;
        match launches.after(middle) {
            Some(found) if found <= now => (early, launch_time) = (middle, found),
            _ => late = middle,
        }
    }
    Ok((Some(launch_time), after))
}
