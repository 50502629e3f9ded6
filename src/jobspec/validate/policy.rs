//! Rules of update, restart, reschedule, migrate and disconnect.

use super::when;
use crate::duration::format as dur;
use drover_events::model::status::JobType;
use drover_events::model::{
    DisconnectStrategy, MigrateStrategy, ReschedulePolicy, RestartPolicy, UpdateStrategy,
};

const SECOND: i64 = 1_000_000_000;

pub(super) fn update(u: &UpdateStrategy, errors: &mut Vec<String>) {
    when(
        errors,
        !matches!(u.health_check.as_str(), "checks" | "task_states" | "manual"),
        || format!("Invalid health check given: {:?}", u.health_check),
    );
    when(errors, u.max_parallel < 0, || {
        format!(
            "Max parallel can not be less than zero: {} < 0",
            u.max_parallel
        )
    });
    when(errors, u.canary < 0, || {
        format!("Canary count can not be less than zero: {} < 0", u.canary)
    });
    when(errors, u.canary == 0 && u.auto_promote, || {
        "Auto Promote requires a Canary count greater than zero".into()
    });
    when(errors, u.min_healthy_time < 0, || {
        format!(
            "Minimum healthy time may not be less than zero: {}",
            dur(u.min_healthy_time)
        )
    });
    when(errors, u.healthy_deadline <= 0, || {
        format!(
            "Healthy deadline must be greater than zero: {}",
            dur(u.healthy_deadline)
        )
    });
    when(errors, u.progress_deadline < 0, || {
        format!(
            "Progress deadline must be zero or greater: {}",
            dur(u.progress_deadline)
        )
    });
    when(errors, u.min_healthy_time >= u.healthy_deadline, || {
        format!(
            "Minimum healthy time must be less than healthy deadline: {} > {}",
            dur(u.min_healthy_time),
            dur(u.healthy_deadline)
        )
    });
    when(
        errors,
        u.progress_deadline > 0 && u.healthy_deadline >= u.progress_deadline,
        || {
            format!(
                "Healthy deadline must be less than progress deadline: {} > {}",
                dur(u.healthy_deadline),
                dur(u.progress_deadline)
            )
        },
    );
    when(errors, u.stagger <= 0, || {
        format!("Stagger must be greater than zero: {}", dur(u.stagger))
    });
}

pub(super) fn restart(r: &RestartPolicy, errors: &mut Vec<String>) {
    when(errors, !matches!(r.mode.as_str(), "fail" | "delay"), || {
        format!("Unsupported restart mode: {:?}", r.mode)
    });
    when(errors, r.mode == "delay" && r.attempts == 0, || {
        format!(
            "Restart policy {:?} with {} attempts is ambiguous",
            r.mode, r.attempts
        )
    });
    when(errors, r.interval < 5 * SECOND, || {
        format!("Interval can not be less than 5s (got {})", dur(r.interval))
    });
    when(
        errors,
        r.attempts.saturating_mul(r.delay) > r.interval,
        || {
            format!(
                "Nomad can't restart the TaskGroup {} times in an interval of {} with a delay of \
                    {}",
                r.attempts,
                dur(r.interval),
                dur(r.delay)
            )
        },
    );
}

const FUNCTIONS: [&str; 3] = ["constant", "exponential", "fibonacci"];

pub(super) fn reschedule(r: &ReschedulePolicy, errors: &mut Vec<String>) {
    if r.attempts <= 0 && !r.unlimited {
        return;
    }
    when(errors, r.interval <= 0 && r.attempts > 0, || {
        "Interval must be a non zero value if Attempts > 0".into()
    });
    if r.attempts > 0 && r.unlimited {
        errors.push("If Attempts >0, Unlimited cannot also be set to true".into());
        errors.push(format!(
            "Reschedule Policy with Attempts = {}, Interval = {}, and Unlimited = {} is ambiguous",
            r.attempts,
            dur(r.interval),
            r.unlimited
        ));
    }
    let mut valid = true;
    if r.delay < 5 * SECOND {
        errors.push(format!(
            "Delay cannot be less than 5s (got {})",
            dur(r.delay)
        ));
        valid = false;
    }
    if !FUNCTIONS.contains(&r.delay_function.as_str()) {
        let known = super::quoted(&FUNCTIONS);
        errors.push(format!(
            "Invalid delay function {:?}, must be one of {known}",
            r.delay_function
        ));
        valid = false;
    }
    if r.delay_function != "constant" {
        if r.max_delay < 5 * SECOND {
            errors.push(format!(
                "Max Delay cannot be less than 5s (got {})",
                dur(r.delay)
            ));
            valid = false;
        }
        if r.max_delay < r.delay {
            errors.push(format!(
                "Max Delay cannot be less than Delay {} (got {})",
                dur(r.delay),
                dur(r.max_delay)
            ));
            valid = false;
        }
    }
    if !r.unlimited && r.interval < 15 * SECOND {
        errors.push(format!(
            "Interval cannot be less than 15s (got {})",
            dur(r.interval)
        ));
        valid = false;
    }
    if valid && !r.unlimited {
        attempts(r, errors);
    }
}

/// Whether all attempts fit into the interval.
fn attempts(r: &ReschedulePolicy, errors: &mut Vec<String>) {
    let mut possible = 0;
    let mut needed: i64 = 0;
    let (mut delay, mut before) = (r.delay, 0);
    for n in 0..r.attempts.min(10_000) {
        let ceiling = if r.delay_function == "constant" || r.max_delay <= 0 {
            i64::MAX
        } else {
            r.max_delay
        };
        needed = needed.saturating_add(delay.min(ceiling));
        if needed <= r.interval {
            possible = n + 1;
        }
        let next = match r.delay_function.as_str() {
            "exponential" => delay.saturating_mul(2),
            "fibonacci" => delay.saturating_add(if before == 0 { 0 } else { before }),
            _ => delay,
        };
        before = delay;
        delay = next;
    }
    if possible >= r.attempts {
        return;
    }
    if r.delay_function == "constant" {
        errors.push(format!(
            "Nomad can only make {possible} attempts in {} with initial delay {} and delay \
                function {:?}",
            dur(r.interval),
            dur(r.delay),
            r.delay_function
        ));
    } else {
        errors.push(format!(
            "Nomad can only make {possible} attempts in {} with initial delay {}, delay function \
                {:?}, and \
             delay ceiling {}",
            dur(r.interval),
            dur(r.delay),
            r.delay_function,
            dur(r.max_delay)
        ));
    }
    let minutes = needed.div_euclid(60 * SECOND) + i64::from(needed % (60 * SECOND) != 0);
    errors.push(format!(
        "Set the interval to at least {} to accommodate {} attempts",
        dur(minutes.saturating_mul(60 * SECOND)),
        r.attempts
    ));
}

pub(super) fn migrate(m: &MigrateStrategy, errors: &mut Vec<String>) {
    when(errors, m.max_parallel < 0, || {
        format!("MaxParallel must be >= 0 but found {}", m.max_parallel)
    });
    match m.health_check.as_str() {
        "checks" | "task_states" => {}
        "" => errors.push("Missing HealthCheck".into()),
        other => errors.push(format!("Invalid HealthCheck: {other:?}")),
    }
    when(errors, m.min_healthy_time < 0, || {
        format!(
            "MinHealthyTime is {} and must be >= 0",
            dur(m.min_healthy_time)
        )
    });
    when(errors, m.healthy_deadline < 0, || {
        format!(
            "HealthyDeadline is {} and must be >= 0",
            dur(m.healthy_deadline)
        )
    });
    when(errors, m.min_healthy_time > m.healthy_deadline, || {
        "MinHealthyTime must be less than HealthyDeadline".into()
    });
}

pub(super) fn disconnect(d: &DisconnectStrategy, kind: &str, errors: &mut Vec<String>) {
    let stop = d.stop_on_client_after;
    when(
        errors,
        d.lost_after != 0 && stop.is_some_and(|s| s != 0),
        || "Disconnect cannot be configured with both lost_after and stop_after".into(),
    );
    when(errors, d.lost_after < 0, || {
        "lost_after cannot be a negative duration".into()
    });
    when(errors, stop.is_some_and(|s| s < 0), || {
        "stop_after cannot be a negative duration".into()
    });
    when(
        errors,
        stop.is_some_and(|s| s != 0)
            && !matches!(JobType::of(kind), Some(JobType::Service | JobType::Batch)),
        || "stop_after can only be used with service or batch job types".into(),
    );
    let known = [
        "",
        "best_score",
        "keep_original",
        "keep_replacement",
        "longest_running",
    ];
    when(errors, !known.contains(&d.reconcile.as_str()), || {
        format!("reconcile option is invalid: {}", d.reconcile)
    });
}
