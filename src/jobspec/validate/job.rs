//! Rules of the job itself.

use super::{JobLimits, group, placement, quoted, short, when, wrapped};
use drover_events::model::Job;
use drover_events::model::status::{JobType, job_type};
use std::collections::BTreeMap;

use crate::cron::{self, Schedule};
use crate::pattern::Patterns;

pub(super) fn check(job: &Job, limits: &JobLimits, patterns: &Patterns, errors: &mut Vec<String>) {
    basics(job, limits, errors);
    placement::constraints(&job.constraints, patterns, errors);
    let system = job.is_system();
    if job.r#type == job_type::SYSTEM {
        when(errors, !job.affinities.is_empty(), || {
            "System jobs may not have an affinity block".into()
        });
        when(errors, !job.spreads.is_empty(), || {
            "System jobs may not have a spread block".into()
        });
    } else {
        placement::affinities(&job.affinities, patterns, errors);
        placement::spreads(&job.spreads, errors);
    }
    groups(job, errors);
    for g in job.task_groups.iter() {
        wrapped(
            errors,
            || format!("Task group {} validation failed", g.name),
            |e| {
                group::check(g, (job, patterns), system, e);
            },
        );
    }
    let total: i64 = job
        .task_groups
        .iter()
        .map(|g| g.count.max(0))
        .fold(0, i64::saturating_add);
    when(
        errors,
        limits.max_count > 0 && total > limits.max_count,
        || {
            format!(
                "total count was greater than configured job_max_count: {total} > {}",
                limits.max_count
            )
        },
    );
    launchers(job, errors);
    enterprise(job, errors);
}

fn basics(job: &Job, limits: &JobLimits, errors: &mut Vec<String>) {
    when(
        errors,
        job.region.is_empty() && job.multiregion.is_none(),
        || "Missing job region".into(),
    );
    if job.id.is_empty() {
        errors.push("Missing job ID".into());
    } else {
        when(errors, job.id.contains(' '), || {
            "Job ID contains a space".into()
        });
        when(errors, job.id.contains('\0'), || {
            "Job ID contains a null character".into()
        });
    }
    if job.name.is_empty() {
        errors.push("Missing job name".into());
    } else {
        when(errors, job.name.contains('\0'), || {
            "Job Name contains a null character".into()
        });
    }
    when(errors, job.namespace.is_empty(), || {
        "Job must be in a namespace".into()
    });
    names(job, errors);
    match job.kind() {
        Some(JobType::Service | JobType::Batch | JobType::System | JobType::Sysbatch) => {}
        Some(JobType::Core) => errors.push("job type cannot be core".into()),
        None if job.r#type.is_empty() => errors.push("Missing job type".into()),
        None => errors.push(format!("Invalid job type: {:?}", job.r#type)),
    }
    when(
        errors,
        !(1..=limits.max_priority).contains(&job.priority),
        || format!("job priority must be between [1, {}]", limits.max_priority),
    );
    if job.datacenters.is_empty() && job.multiregion.is_none() {
        errors.push("Missing job datacenters".into());
    }
    when(errors, job.datacenters.iter().any(String::is_empty), || {
        "Job datacenter must be non-empty string".into()
    });
    when(errors, job.task_groups.is_empty(), || {
        "Missing job task groups".into()
    });
    when(errors, !job.payload.is_empty() && !job.dispatched, || {
        "job can't be submitted with a payload, only dispatched".into()
    });
    when(errors, job.dispatched && job.parent_id.is_empty(), || {
        "job can't be submitted with 'Dispatched' set".into()
    });
    if let Some(ui) = &job.ui {
        let length = ui.description.chars().count();
        when(errors, length > 1000, || {
            format!("UI description must be under 1000 characters, currently {length}")
        });
    }
    if let Some(tag) = &job.version_tag {
        let length = tag.description.chars().count();
        when(errors, length > 1000, || {
            format!("Tagged version description must be under 1000 characters, currently {length}")
        });
    }
}

fn names(job: &Job, errors: &mut Vec<String>) {
    short(
        errors,
        [
            ("Job ID", &job.id),
            ("Job name", &job.name),
            ("Job namespace", &job.namespace),
            ("Job region", &job.region),
            ("Job node pool", &job.node_pool),
            ("Job parent ID", &job.parent_id),
            ("Dispatch token", &job.dispatch_idempotency_token),
        ],
    );
    short(
        errors,
        job.datacenters.iter().map(|dc| ("Job datacenter", dc)),
    );
}

fn groups(job: &Job, errors: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, g) in job.task_groups.iter().enumerate() {
        let number = i + 1;
        if g.name.is_empty() {
            errors.push(format!("Job task group {number} missing name"));
        } else if let Some(first) = seen.get(g.name.as_str()) {
            errors.push(format!(
                "Job task group {number} redefines '{}' from group {first}",
                g.name
            ));
        } else {
            seen.insert(&g.name, number);
        }
        if job.r#type == job_type::SYSTEM {
            when(errors, g.count > 1, || {
                format!(
                    "Job task group {} has count {}. Count cannot exceed 1 with system scheduler",
                    g.name, g.count
                )
            });
        }
    }
}

fn launchers(job: &Job, errors: &mut Vec<String>) {
    let batch = job.is_batch();
    if let Some(periodic) = job.periodic.as_ref().filter(|p| p.enabled) {
        when(errors, !batch, || {
            "Periodic can only be used with \"batch\" or \"sysbatch\" scheduler".into()
        });
        when(
            errors,
            !periodic.spec.is_empty() && !periodic.specs.is_empty(),
            || "Only cron or crons may be used".into(),
        );
        when(
            errors,
            periodic.spec.is_empty() && periodic.specs.is_empty(),
            || "Must specify a spec".into(),
        );
        if let Err(text) = cron::check_limits(periodic) {
            errors.push(text);
            return;
        }
        if !periodic.time_zone.is_empty()
            && let Err(err) = jiff::tz::TimeZone::get(&periodic.time_zone)
        {
            errors.push(format!("Invalid time zone {:?}: {err}", periodic.time_zone));
        }
        match periodic.spec_type.as_str() {
            "cron" => {
                let one = Some(&periodic.spec).filter(|s| !s.is_empty());
                for spec in one.into_iter().chain(periodic.specs.iter()) {
                    match Schedule::parse(spec) {
                        Err(err) => errors.push(format!("Invalid cron spec {spec:?}: {err}")),
                        Ok(schedule) => when(errors, !schedule.ever_occurs(), || {
                            format!("Invalid cron spec {spec:?}: there is no such day")
                        }),
                    }
                }
            }
            "_internal_test" => {}
            other => errors.push(format!("Unknown periodic specification type {other:?}")),
        }
    }
    let Some(parameterized) = &job.parameterized_job else {
        return;
    };
    when(errors, !batch, || {
        "Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler".into()
    });
    let payload = parameterized.payload.as_str();
    when(
        errors,
        !matches!(payload, "optional" | "required" | "forbidden"),
        || format!("Unknown payload requirement: {payload:?}"),
    );
    let both: Vec<&String> = parameterized
        .meta_required
        .iter()
        .filter(|k| parameterized.meta_optional.contains(k))
        .collect();
    when(errors, !both.is_empty(), || {
        format!(
            "Required and optional meta keys should be disjoint. Following keys exist in both: {}",
            quoted(&both)
        )
    });
}

/// What the community edition refuses, and so do we.
fn enterprise(job: &Job, errors: &mut Vec<String>) {
    when(errors, job.multiregion.is_some(), || {
        "Multiregion jobs are unlicensed.".into()
    });
    let tasks = || job.task_groups.iter().flat_map(|g| g.tasks.iter());
    let numa = |a: &str| !matches!(a, "" | "none");
    when(
        errors,
        tasks().any(|t| {
            let wanted = t.resources.as_ref().and_then(|r| r.numa.as_ref());
            wanted.is_some_and(|n| numa(&n.affinity))
        }),
        || "numa scheduling requires Nomad Enterprise".into(),
    );
    when(errors, tasks().any(|t| t.schedule.is_some()), || {
        "task schedules requires Nomad Enterprise".into()
    });
    when(
        errors,
        tasks().any(|t| {
            t.vault
                .as_ref()
                .is_some_and(|v| !matches!(v.cluster.as_str(), "" | "default"))
        }),
        || "non-default Vault cluster requires Nomad Enterprise".into(),
    );
    let consul = |c: &str| !matches!(c, "" | "default");
    let services = job.task_groups.iter().flat_map(|g| {
        g.services
            .iter()
            .chain(g.tasks.iter().flat_map(|t| t.services.iter()))
    });
    let named = services
        .into_iter()
        .any(|s| s.provider == "consul" && consul(&s.cluster))
        || job
            .task_groups
            .iter()
            .any(|g| g.consul.as_ref().is_some_and(|c| consul(&c.cluster)));
    when(errors, named, || {
        "non-default Consul cluster requires Nomad Enterprise".into()
    });
}
