//! Rules of tasks.

use super::{artifact, escapes, many, placement, secret, service, short, template, when, wrapped};
use crate::duration::format as dur;
use crate::pattern::Patterns;
use drover_events::model::status::{Hook, job_type};
use drover_events::model::{Job, Resources, Task, TaskGroup};
use std::collections::BTreeSet;

pub(super) fn check(
    t: &Task,
    g: &TaskGroup,
    (job, patterns): (&Job, &Patterns),
    errors: &mut Vec<String>,
) {
    names(t, errors);
    times(t, g, errors);
    match &t.resources {
        Some(r) => resources(r, patterns, errors),
        None => errors.push("Missing task resources".into()),
    }
    logs(t, g, errors);
    for (i, c) in t.constraints.iter().enumerate() {
        when(
            errors,
            matches!(c.operand.as_str(), "distinct_hosts" | "distinct_property"),
            || {
                format!(
                    "Constraint {} has disallowed Operand at task level: {}",
                    i + 1,
                    c.operand
                )
            },
        );
    }
    placement::constraints(&t.constraints, patterns, errors);
    if job.r#type == job_type::SYSTEM {
        when(errors, !t.affinities.is_empty(), || {
            "System jobs may not have an affinity block".into()
        });
    } else {
        placement::affinities(&t.affinities, patterns, errors);
    }
    service::task(t, g, errors);
    for (i, a) in t.artifacts.iter().enumerate() {
        wrapped(
            errors,
            || format!("Artifact {} validation failed", i + 1),
            |e| artifact::check(a, e),
        );
    }
    template::check(&t.templates, errors);
    parts(t, errors);
    mounts(t, g, errors);
    secret::check(t, errors);
}

fn names(t: &Task, errors: &mut Vec<String>) {
    when(errors, t.name.is_empty(), || "Missing task name".into());
    when(errors, t.name == "alloc", || {
        "Task cannot be named \"alloc\"".into()
    });
    when(errors, t.name.contains(['/', '\\']), || {
        "Task name cannot include slashes".into()
    });
    when(errors, t.name == "." || t.name == "..", || {
        format!("Task cannot be named {:?}", t.name)
    });
    when(errors, t.name.contains('\0'), || {
        "Task name cannot include null characters".into()
    });
    short(errors, [("Task name", &t.name), ("Task driver", &t.driver)]);
    when(errors, t.driver.is_empty(), || "Missing task driver".into());
}

fn times(t: &Task, g: &TaskGroup, errors: &mut Vec<String>) {
    when(errors, t.kill_timeout < 0, || {
        "KillTimeout must be a positive value".into()
    });
    if let Some(update) = &g.update {
        let deadline = update.progress_deadline;
        when(errors, deadline > 0 && t.kill_timeout > deadline, || {
            format!(
                "KillTimout ({}) longer than the group's ProgressDeadline ({})",
                dur(t.kill_timeout),
                dur(deadline)
            )
        });
    }
    when(errors, t.shutdown_delay < 0, || {
        "ShutdownDelay must be a positive value".into()
    });
}

fn resources(r: &Resources, patterns: &Patterns, errors: &mut Vec<String>) {
    when(errors, r.cores > 0 && r.cpu > 0, || {
        "Task can only ask for 'cpu' or 'cores' resource, not both.".into()
    });
    when(errors, r.cores < 0, || {
        format!("cores value ({}) cannot be negative", r.cores)
    });
    when(errors, r.cpu < 1 && r.cores == 0, || {
        format!("minimum CPU value is 1; got {}", r.cpu)
    });
    when(errors, r.memory_mb < 10, || {
        format!("minimum MemoryMB value is 10; got {}", r.memory_mb)
    });
    let max = r.memory_max_mb;
    when(errors, max != 0 && max != -1 && max < r.memory_mb, || {
        format!(
            "MemoryMaxMB value ({max}) should be larger than MemoryMB value ({})",
            r.memory_mb
        )
    });
    when(errors, r.secrets_mb > r.memory_mb, || {
        format!(
            "SecretsMB value ({}) cannot be larger than MemoryMB value ({})",
            r.secrets_mb, r.memory_mb
        )
    });
    when(errors, r.secrets_mb < 0, || {
        format!("SecretsMB value ({}) cannot be negative", r.secrets_mb)
    });
    for (i, device) in r.devices.iter().enumerate() {
        let mut inner = Vec::new();
        let parts = device.name.split('/').count();
        let empty = device.name.split('/').any(str::is_empty);
        when(&mut inner, parts > 3 || empty, || {
            "device name must be given as one of the following: type, vendor/type, or \
                vendor/type/name"
                .into()
        });
        placement::constraints(&device.constraints, patterns, &mut inner);
        placement::affinities(&device.affinities, patterns, &mut inner);
        if !inner.is_empty() {
            errors.push(format!(
                "device {} failed validation: {}",
                i + 1,
                many(&inner)
            ));
        }
    }
    if let Some(numa) = &r.numa {
        when(
            errors,
            !matches!(numa.affinity.as_str(), "none" | "prefer" | "require"),
            || "numa affinity must be one of none, prefer, or require".into(),
        );
        for name in numa.devices.iter() {
            when(errors, !r.devices.iter().any(|d| d.name == *name), || {
                format!("numa device {name:?} not requested as task resource")
            });
        }
    }
}

fn logs(t: &Task, g: &TaskGroup, errors: &mut Vec<String>) {
    let Some(logs) = &t.log_config else {
        errors.push("Missing Log Config".into());
        return;
    };
    when(errors, logs.max_files < 1, || {
        format!("minimum number of files is 1; got {}", logs.max_files)
    });
    when(errors, logs.max_file_size_mb < 1, || {
        format!("minimum file size is 1MB; got {}", logs.max_file_size_mb)
    });
    let used = logs.max_files.saturating_mul(logs.max_file_size_mb);
    if let Some(disk) = g
        .ephemeral_disk
        .as_ref()
        .filter(|d| d.size_mb <= used && !logs.disabled)
    {
        errors.push(format!(
            "log storage ({used} MB) must be less than requested disk capacity ({} MB)",
            disk.size_mb
        ));
    }
}

fn parts(t: &Task, errors: &mut Vec<String>) {
    if let Some(lifecycle) = &t.lifecycle {
        match lifecycle.hook() {
            Some(Hook::Prestart | Hook::Poststart | Hook::Poststop) => {}
            None if lifecycle.hook.is_empty() => errors.push("no lifecycle hook provided".into()),
            None => errors.push(format!("invalid hook: {}", lifecycle.hook)),
        }
    }
    if let Some(payload) = &t.dispatch_payload {
        when(errors, escapes(&payload.file, 2), || {
            "Dispatch Payload validation failed: destination escapes allocation directory".into()
        });
    }
    let mut seen = BTreeSet::new();
    for action in t.actions.iter() {
        when(errors, !seen.insert(&action.name), || {
            format!("Action {} defined multiple times", action.name)
        });
        when(errors, action.command.is_empty(), || {
            "command cannot be empty".into()
        });
    }
    if let Some(csi) = &t.csi_plugin_config {
        when(errors, csi.id.is_empty(), || {
            "CSIPluginConfig must have a non-empty PluginID".into()
        });
        when(
            errors,
            !matches!(csi.r#type.as_str(), "node" | "controller" | "monolith"),
            || {
                format!(
                    "CSIPluginConfig PluginType must be one of 'node', 'controller', or \
                        'monolith', got: {:?}",
                    csi.r#type
                )
            },
        );
        let inside = csi
            .stage_publish_base_dir
            .starts_with(&(csi.mount_dir.clone() + "/"));
        when(errors, !csi.mount_dir.is_empty() && inside, || {
            format!(
                "CSIPluginConfig StagePublishBaseDir must not be a subdirectory of MountDir, got: \
                 StagePublishBaseDir={:?} MountDir={:?}",
                csi.stage_publish_base_dir, csi.mount_dir
            )
        });
    }
}

fn mounts(t: &Task, g: &TaskGroup, errors: &mut Vec<String>) {
    for (i, mount) in t.volume_mounts.iter().enumerate() {
        let mut inner = Vec::new();
        when(&mut inner, mount.volume.is_empty(), || {
            "volume mount references an empty volume".into()
        });
        let mode = mount.propagation_mode.as_str();
        when(
            &mut inner,
            !matches!(mode, "" | "private" | "host-to-task" | "bidirectional"),
            || format!("volume mount has an invalid propagation mode: {mode:?}"),
        );
        let label = mount.se_linux_label.as_str();
        when(&mut inner, !matches!(label, "" | "z" | "Z"), || {
            format!("volume mount has an invalid SELinux label: {label:?}")
        });
        for text in inner {
            errors.push(format!("Volume Mount ({i}) is invalid: {text:?}"));
        }
        when(
            errors,
            !mount.volume.is_empty() && g.volumes.get(&mount.volume).is_none(),
            || {
                format!(
                    "Volume Mount ({i}) references undefined volume {}",
                    mount.volume
                )
            },
        );
    }
}
