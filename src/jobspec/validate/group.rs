//! Rules of task groups.

use super::{network, placement, policy, service, short, task, volume, when, wrapped};
use crate::pattern::Patterns;
use drover_events::model::status::{JobType, job_type};
use drover_events::model::{Job, Service, TaskGroup};
use std::collections::BTreeMap;

pub(super) fn check(
    g: &TaskGroup,
    (job, patterns): (&Job, &Patterns),
    system: bool,
    errors: &mut Vec<String>,
) {
    when(errors, g.name.is_empty(), || {
        "Missing task group name".into()
    });
    when(errors, g.name.contains('\0'), || {
        "Task group name contains null character".into()
    });
    short(errors, [("Task group name", &g.name)]);
    for (name, request) in g.volumes.iter() {
        short(
            errors,
            [("Volume name", name), ("Volume source", &request.source)],
        );
    }
    when(errors, g.count < 0, || {
        "Task group count can't be negative".into()
    });
    // A gateway's task is Connect's own.
    let gateway = |s: &Service| s.connect.as_ref().is_some_and(|c| c.gateway.is_some());
    let given = g.services.iter().any(gateway);
    when(errors, g.tasks.is_empty() && !given, || {
        "Missing tasks for task group".into()
    });
    when(errors, g.shutdown_delay.is_some_and(|d| d < 0), || {
        "ShutdownDelay must be a positive value".into()
    });
    if let Some(duration) = g.max_run_duration {
        when(errors, duration <= 0, || {
            "MaxRunDuration must be greater than zero".into()
        });
        when(errors, !job.is_batch(), || {
            format!("Job type {:?} does not allow max_run_duration", job.r#type)
        });
    }
    placement::constraints(&g.constraints, patterns, errors);
    if job.r#type == job_type::SYSTEM {
        when(errors, !g.affinities.is_empty(), || {
            "System jobs may not have an affinity block".into()
        });
        when(errors, !g.spreads.is_empty(), || {
            "System jobs may not have a spread block".into()
        });
    } else {
        placement::affinities(&g.affinities, patterns, errors);
        placement::spreads(&g.spreads, errors);
    }
    policies(g, job, system, errors);
    network::check(g, errors);
    names(g, errors);
    volumes(g, job, errors);
    service::group(g, errors);
    scaling(g, job, errors);
    for t in g.tasks.iter() {
        wrapped(
            errors,
            || format!("Task {} validation failed", t.name),
            |e| task::check(t, g, (job, patterns), e),
        );
    }
}

fn policies(g: &TaskGroup, job: &Job, system: bool, errors: &mut Vec<String>) {
    match &g.restart_policy {
        Some(restart) => policy::restart(restart, errors),
        None => errors.push(format!(
            "Task Group {} should have a restart policy",
            g.name
        )),
    }
    match (&g.reschedule_policy, system) {
        (Some(_), true) => {
            errors.push("System or sysbatch jobs should not have a reschedule policy".into());
        }
        (Some(reschedule), false) => policy::reschedule(reschedule, errors),
        (None, false) => errors.push(format!(
            "Task Group {} should have a reschedule policy",
            g.name
        )),
        (None, true) => {}
    }
    match &g.ephemeral_disk {
        Some(disk) => when(errors, disk.size_mb < 10, || {
            format!("minimum DiskMB value is 10; got {}", disk.size_mb)
        }),
        None => errors.push(format!(
            "Task Group {} should have an ephemeral disk object",
            g.name
        )),
    }
    if let Some(update) = &g.update {
        match job.kind() {
            Some(JobType::Service | JobType::System) => policy::update(update, errors),
            Some(JobType::Batch | JobType::Sysbatch | JobType::Core) | None => {
                let other = &job.r#type;
                errors.push(format!("Job type {other:?} does not allow update block"));
            }
        }
    }
    if let Some(migrate) = &g.migrate {
        match job.kind() {
            Some(JobType::Service) => policy::migrate(migrate, errors),
            Some(JobType::Batch | JobType::System | JobType::Sysbatch | JobType::Core) | None => {
                let other = &job.r#type;
                errors.push(format!("Job type {other:?} does not allow migrate block"));
            }
        }
    }
    if let Some(disconnect) = &g.disconnect {
        policy::disconnect(disconnect, &job.r#type, errors);
    }
}

fn names(g: &TaskGroup, errors: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, t) in g.tasks.iter().enumerate() {
        let number = i + 1;
        if t.name.is_empty() {
            errors.push(format!("Task {number} missing name"));
        } else if let Some(first) = seen.get(t.name.as_str()) {
            errors.push(format!(
                "Task {number} redefines '{}' from task {first}",
                t.name
            ));
        } else {
            seen.insert(&t.name, number);
        }
    }
    when(
        errors,
        g.tasks.iter().filter(|t| t.leader).count() > 1,
        || "Only one task may be marked as leader".into(),
    );
}

fn volumes(g: &TaskGroup, job: &Job, errors: &mut Vec<String>) {
    let canaries = g.update.as_ref().is_some_and(|u| u.canary > 0);
    for (name, request) in g.volumes.iter() {
        wrapped(
            errors,
            || format!("Task group volume validation for {name} failed"),
            |e| {
                volume::check(request, &job.r#type, g.count, canaries, e);
            },
        );
    }
}

fn scaling(g: &TaskGroup, job: &Job, errors: &mut Vec<String>) {
    let Some(policy) = &g.scaling else { return };
    let invalid = "Scaling policy invalid";
    when(errors, policy.max < 0, || {
        format!("{invalid}: maximum count must be specified and non-negative")
    });
    when(errors, policy.min < 0, || {
        format!("{invalid}: minimum count must be specified and non-negative")
    });
    when(errors, policy.max >= 0 && policy.max < policy.min, || {
        format!("{invalid}: maximum count must not be less than minimum count")
    });
    when(errors, policy.r#type.is_empty(), || {
        format!("{invalid}: missing scaling policy type")
    });
    when(errors, g.count > policy.max, || {
        format!(
            "{invalid}: task group count must not be greater than maximum count in scaling policy"
        )
    });
    when(errors, g.count < policy.min && !job.stop, || {
        format!("{invalid}: task group count must not be less than minimum count in scaling policy")
    });
    for (key, what) in [
        ("Namespace", "namespace"),
        ("Job", "job"),
        ("Group", "group"),
    ] {
        when(
            errors,
            policy.target.get(key).is_none_or(String::is_empty),
            || format!("{invalid}: missing target {what}"),
        );
    }
}
