//! What is allowed, but perhaps not meant.

use super::JobLimits;
use crate::canonical;
use drover_events::model::status::check;
use drover_events::model::{Job, Service, Task, TaskGroup, UpdateStrategy};

/// All warnings about a job.
pub(super) fn of(job: &Job, limits: &JobLimits) -> Vec<String> {
    let mut out = Vec::new();
    for g in job.task_groups.iter() {
        let inner = group(g);
        if !inner.is_empty() {
            out.push(format!(
                "Group {:?} has warnings: {}",
                g.name,
                super::many(&inner)
            ));
        }
    }
    let promoting = |g: &TaskGroup| g.update.as_ref().is_some_and(|u| u.auto_promote);
    let canaries = |g: &TaskGroup| g.update.as_ref().is_some_and(|u| u.canary > 0);
    let any = job.task_groups.iter().any(promoting);
    if any && job.task_groups.iter().any(|g| canaries(g) && !promoting(g)) {
        out.push("auto_promote must be true for all groups to enable automatic promotion".into());
    }
    if job.periodic.as_ref().is_some_and(|p| !p.spec.is_empty()) {
        out.push(
            "cron is deprecated and may be removed in a future release. Use crons instead".into(),
        );
    }
    for g in job.task_groups.iter() {
        shutdown(g, &mut out);
    }
    for g in job.task_groups.iter() {
        out.extend(g.tasks.iter().filter_map(|t| no_disk(g, t)));
        without_effect(g, &mut out);
        out.extend(initial_statuses(g));
        out.extend(consuls_alone(g));
        out.extend(inner_addresses(g));
    }
    out.extend(ui(job));
    if job.is_system() {
        let updated = job
            .task_groups
            .iter()
            .filter_map(|g| Some((g, g.update.as_ref()?)));
        out.extend(updated.filter_map(|(g, update)| undeployed(g, update)));
    }
    if !limits.memory_oversubscription {
        for g in job.task_groups.iter() {
            for t in g
                .tasks
                .iter()
                .filter(|t| t.resources.as_ref().is_some_and(|r| r.memory_max_mb != 0))
            {
                out.push(format!(
                    "Memory oversubscription is not enabled; Task \"{}.{}\" memory_max value will \
                        be ignored. \
                     Update the Scheduler Configuration to allow oversubscription.",
                    g.name, t.name
                ));
            }
        }
    }
    out
}

/// A disk of its own, which no task has.
fn no_disk(g: &TaskGroup, t: &Task) -> Option<String> {
    let requested = t.resources.as_ref().is_some_and(|r| r.disk_mb > 0);
    requested.then(|| {
        format!(
            "Task \"{}.{}\" asks for disk, which is ignored: the group's ephemeral_disk is what \
             its tasks share",
            g.name, t.name
        )
    })
}

/// What an update says of deployments, where there are none.
fn undeployed(g: &TaskGroup, update: &UpdateStrategy) -> Option<String> {
    let usual = canonical::unstated::<UpdateStrategy>();
    let plain = ["", usual.health_check.as_str()].contains(&update.health_check.as_str());
    let settings = [
        ("canary", update.canary > 0),
        ("auto_revert", update.auto_revert),
        ("auto_promote", update.auto_promote),
        ("health_check", !plain),
        (
            "min_healthy_time",
            update.min_healthy_time != usual.min_healthy_time,
        ),
        (
            "healthy_deadline",
            update.healthy_deadline != usual.healthy_deadline,
        ),
        (
            "progress_deadline",
            update.progress_deadline != usual.progress_deadline,
        ),
    ];
    let settings: Vec<&str> = super::there(settings).collect();
    (!settings.is_empty()).then(|| {
        format!(
            "Group {:?}: {} of an update has no effect in a system job: it makes no deployment; \
             max_parallel and stagger say how it is updated",
            g.name,
            settings.join(", ")
        )
    })
}

/// A user interface would show it.
fn ui(job: &Job) -> Option<String> {
    let ui = job.ui.as_ref()?;
    let is_set = !ui.description.is_empty() || !ui.links.is_empty();
    is_set.then(|| "Job: ui of a job has no effect: there is no user interface".to_owned())
}

/// Services of the cluster's own registry.
fn native(g: &TaskGroup) -> impl Iterator<Item = &Service> {
    let of_tasks = g.tasks.iter().flat_map(|t| t.services.iter());
    let all = g.services.iter().chain(of_tasks);
    all.filter(|service| service.provider == "nomad")
}

/// Checks of the cluster's own registry begin alike, whatever they say: they have not run yet.
fn initial_statuses(g: &TaskGroup) -> impl Iterator<Item = String> {
    let checks = native(g).flat_map(|s| s.checks.iter().map(move |check| (s, check)));
    let other = checks.filter(|(_, c)| !matches!(c.initial_status.as_str(), "" | check::PENDING));
    other.map(move |(service, check)| {
        format!(
            "Group {:?}: initial_status of check {:?} of service {:?} has no effect: checks are \
             pending until they are looked at",
            g.name, check.name, service.name
        )
    })
}

/// What the cluster's own registry has no place for.
fn consuls_alone(g: &TaskGroup) -> impl Iterator<Item = String> {
    native(g).filter_map(move |service| {
        let weights = service.weights.as_ref();
        let weights = weights.is_some_and(|w| (w.passing, w.warning) != (1, 1));
        let cluster = !matches!(service.cluster.as_str(), "" | "default");
        let fields = [
            ("enable_tag_override", service.enable_tag_override),
            ("meta", !service.meta.is_empty()),
            ("canary_meta", !service.canary_meta.is_empty()),
            ("tagged_addresses", !service.tagged_addresses.is_empty()),
            ("weights", weights),
            ("kind", !service.kind.is_empty()),
            ("identity", service.identity.is_some()),
            ("cluster", cluster),
        ];
        let set: Vec<&str> = super::there(fields).collect();
        (!set.is_empty()).then(|| {
            format!(
                "Group {:?}: {} of service {:?} has no effect: only Consul acts on it, and the \
                 service's provider is \"nomad\"",
                g.name,
                set.join(", "),
                service.name
            )
        })
    })
}

/// Tasks have no network, and so no addresses, of their own.
fn inner_addresses(g: &TaskGroup) -> impl Iterator<Item = String> {
    let named = native(g).flat_map(|service| {
        let whose = format!("service {:?}", service.name);
        let of_checks = service.checks.iter().map({
            let whose = whose.clone();
            move |check| {
                (
                    &check.address_mode,
                    format!("check {:?} of {whose}", check.name),
                )
            }
        });
        std::iter::once((&service.address_mode, whose)).chain(of_checks)
    });
    let inner = named.filter(|(mode, _)| mode.as_str() == "alloc_ipv6");
    inner.map(move |(mode, whose)| {
        format!(
            "Group {:?}: address_mode = {mode:?} of {whose} has no effect: tasks have the host's \
             network",
            g.name
        )
    })
}

/// What is kept with a job and has no effect in this version.
fn without_effect(g: &TaskGroup, out: &mut Vec<String>) {
    for (what, is_set) in of_networks(g) {
        super::when(out, is_set, || {
            format!(
                "Group {:?}: {what} of a network has no effect: tasks have the host's network",
                g.name
            )
        });
    }
    let far = g.ephemeral_disk.as_ref().is_some_and(|disk| disk.migrate);
    super::when(out, far, || {
        format!(
            "Group {:?}: migrate of an ephemeral_disk has no effect between nodes: only what is \
             on the same node is taken over",
            g.name
        )
    });
    for t in g.tasks.iter() {
        for (what, is_set, why) in of_task(t) {
            super::when(out, is_set, || {
                format!(
                    "Task \"{}.{}\": {what} of a task has no effect: {why}",
                    g.name, t.name
                )
            });
        }
    }
}

pub(super) fn of_networks(g: &TaskGroup) -> [(&'static str, bool); 3] {
    [
        ("dns", g.networks.iter().any(|n| n.dns.is_some())),
        (
            "hostname",
            g.networks.iter().any(|n| !n.hostname.is_empty()),
        ),
        ("cni", g.networks.iter().any(|n| n.cni.is_some())),
    ]
}

/// With why it has none.
pub(super) fn of_task(t: &Task) -> [(&'static str, bool, &'static str); 4] {
    let secrets = t.resources.as_ref().map_or(0, |r| r.secrets_mb);
    let shares_files = t.driver == "raw_exec";
    let plugin = t.csi_plugin_config.as_ref();
    let named_dirs = plugin
        .is_some_and(|csi| csi.mount_dir != "/csi" || csi.stage_publish_base_dir != "/local/csi");
    [
        (
            "actions",
            !t.actions.is_empty(),
            "they are listed, and nothing runs them",
        ),
        (
            "kind",
            !t.kind.is_empty(),
            "there is no service mesh that it could belong to",
        ),
        (
            "mount_dir or stage_publish_base_dir",
            shares_files && named_dirs,
            "a plugin of its driver sees the node's files; its socket is at CSI_ENDPOINT",
        ),
        (
            "secrets",
            secrets > 0,
            "the directory of its secrets is as large as its disk",
        ),
    ]
}

/// Services go away with their tasks; without a delay callers may still be sent there.
fn shutdown(g: &TaskGroup, out: &mut Vec<String>) {
    let delayed = g.shutdown_delay.is_some_and(|d| d > 0);
    if !g.services.is_empty() && !delayed && g.tasks.iter().all(|t| t.shutdown_delay == 0) {
        out.push(format!(
            "group {:?} defines services, but neither the group nor any of its tasks have \
                shutdown_delay set",
            g.name
        ));
    }
}

fn group(g: &TaskGroup) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(update) = &g.update
        && update.max_parallel > g.count
        && g.count > 0
        && update.max_parallel > 1
    {
        out.push(format!(
            "Update max parallel count is greater than task group count ({} > {}). A destructive \
                change would \
             result in the simultaneous replacement of all allocations.",
            update.max_parallel, g.count
        ));
    }
    if g.max_client_disconnect.is_some() {
        out.push(
            "MaxClientDisconnect is deprecated and ignored in favor of Disconnect.LostAfter".into(),
        );
    }
    if g.stop_after_client_disconnect.is_some() {
        let text = "StopAfterClientDisconnect is deprecated and ignored favor of \
            Disconnect.StopOnClientAfter";
        out.push(text.into());
    }
    if g.prevent_reschedule_on_lost {
        out.push(
            "PreventRescheduleOnLost is deprecated and ignored in favor of Disconnect.Replace"
                .into(),
        );
    }
    if g.networks.iter().any(|n| n.mbits > 0) {
        out.push(
            "mbits has been deprecated as of Nomad 0.12.0. Please remove mbits from the network \
                block"
                .into(),
        );
    }
    for t in g.tasks.iter() {
        let inner = task(t);
        if !inner.is_empty() {
            out.push(format!(
                "Task {:?} has warnings: {}",
                t.name,
                super::many(&inner)
            ));
        }
    }
    out
}

fn task(t: &Task) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(resources) = &t.resources {
        if resources.iops != 0 {
            out.push(
                "IOPS has been deprecated as of Nomad 0.9.0. Please remove IOPS from \
                resource block."
                    .into(),
            );
        }
        if !resources.networks.is_empty() {
            out.push(
                "task network resources have been deprecated as of Nomad 0.12.0. Please configure \
                    networking via \
                 group network block."
                    .into(),
            );
        }
    }
    if t.templates.iter().any(|t| t.vault_grace != 0) {
        out.push(
            "VaultGrace has been deprecated as of Nomad 0.11 and ignored since Vault 0.5. Please \
                remove VaultGrace / \
             vault_grace from template block."
                .into(),
        );
    }
    for identity in t.identities.iter() {
        if identity.audience.is_empty() {
            out.push("identities without an audience are insecure".into());
        }
        if identity.audience.len() > 1 {
            let text = "while multiple audiences is allowed, it is more secure to use 1 audience \
                per identity";
            out.push(text.into());
        }
        if identity.ttl == 0 {
            out.push("identities without an expiration are insecure".into());
        }
    }
    out
}
