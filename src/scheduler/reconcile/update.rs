//! What a new version of a job means for an allocation: nothing, a change in place, or a
//! replacement.

use std::sync::Arc;

use drover_events::gojson::Map;
use drover_events::model::status::client;
use drover_events::model::{
    Job, LogConfig, NetworkResource, Resources, RestartPolicy, Service, Task, TaskGroup,
};

use super::classify::{is_terminal, own_group};
use super::{Alloc, NodeState, Reconciler};

impl Reconciler<'_> {
    /// Sorts allocations that run into those that stay, those that change in place (written to
    /// the result; their number is answered) and those to replace.
    pub(super) fn updates(
        &mut self,
        job: &Arc<Job>,
        group: &TaskGroup,
        untainted: &[Alloc],
    ) -> (Vec<Alloc>, usize) {
        let mut destructive = Vec::new();
        let (mut ignored, mut in_place) = (0, 0);
        for alloc in untainted {
            match self.update_of(job, group, alloc) {
                Update::Nothing => ignored += 1,
                Update::Replace => destructive.push(Alloc::clone(alloc)),
                Update::InPlace(updated) => {
                    in_place += 1;
                    self.result.in_place.push((Alloc::clone(alloc), *updated));
                }
            }
        }
        let desired = self.desired(&group.name);
        desired.ignore += ignored;
        desired.in_place_update += in_place;
        (destructive, in_place as usize)
    }

    fn update_of(&mut self, job: &Arc<Job>, group: &TaskGroup, alloc: &Alloc) -> Update {
        let Some(own) = &alloc.job else {
            return Update::Replace;
        };
        if own.job_modify_index == job.job_modify_index && own.create_index == job.create_index {
            return Update::Nothing;
        }
        if alloc.client_status == client::UNKNOWN || self.is_away(alloc) {
            return Update::Nothing;
        }
        let Some(old) = own_group(alloc) else {
            return Update::Replace;
        };
        if tasks_updated(job, group, own, old) {
            return Update::Replace;
        }
        if is_terminal(alloc) {
            return Update::Nothing;
        }
        match (self.in_place)(alloc, job, group) {
            Some(updated) => Update::InPlace(Box::new(updated)),
            None => Update::Replace,
        }
    }

    /// Whether an allocation that is not over goes out of contact just now, with its node: no
    /// client can take a change of it.
    fn is_away(&self, alloc: &Alloc) -> bool {
        let node = self.nodes.get(&alloc.node_id);
        matches!(node, Some(NodeState::Disconnected | NodeState::Down)) && !is_terminal(alloc)
    }
}

enum Update {
    Nothing,
    Replace,
    InPlace(Box<drover_events::model::Allocation>),
}

/// Whether two versions of a group differ in what only a new allocation can have. Every field is
/// named, here and below: a new one says which it is.
pub fn tasks_updated(new_job: &Job, new: &TaskGroup, old_job: &Job, old: &TaskGroup) -> bool {
    let TaskGroup {
        tasks,
        ephemeral_disk,
        networks,
        services,
        volumes,
        consul,
        // Part of each task's.
        meta: _,
        // Whether its node still suits it is found out where it changes in place; the rest is read
        // of the job that an allocation is of.
        name: _,
        count: _,
        update: _,
        migrate: _,
        constraints: _,
        scaling: _,
        restart_policy: _,
        disconnect: _,
        reschedule_policy: _,
        affinities: _,
        spreads: _,
        shutdown_delay: _,
        max_run_duration: _,
        stop_after_client_disconnect: _,
        max_client_disconnect: _,
        prevent_reschedule_on_lost: _,
    } = new;
    tasks.len() != old.tasks.len()
        || *ephemeral_disk != old.ephemeral_disk
        || networks_differ(networks, &old.networks)
        || connect_differs(services, &old.services)
        || *volumes != old.volumes
        || *consul != old.consul
        || tasks.iter().any(|task| {
            let before = old.tasks.iter().find(|t| t.name == task.name);
            before.is_none_or(|before| {
                task_differs(task, before)
                    || combined_meta(new_job, new, task) != combined_meta(old_job, old, before)
            })
        })
}

fn task_differs(new: &Task, old: &Task) -> bool {
    let Task {
        driver,
        user,
        config,
        env,
        vault,
        secrets,
        consul,
        templates,
        resources,
        restart_policy,
        log_config,
        artifacts,
        volume_mounts,
        csi_plugin_config,
        identity,
        identities,
        schedule,
        // By which the two were found.
        name: _,
        // With that of the group and the job.
        meta: _,
        // A running task, or the next run of it, takes them.
        services: _,
        constraints: _,
        affinities: _,
        dispatch_payload: _,
        lifecycle: _,
        kill_timeout: _,
        leader: _,
        shutdown_delay: _,
        scaling_policies: _,
        kill_signal: _,
        kind: _,
        actions: _,
    } = new;
    let restart = |policy: &Option<RestartPolicy>| {
        let policy = policy.as_ref();
        policy.is_some_and(|policy| policy.render_templates)
    };
    let no_logs = |logs: &Option<LogConfig>| logs.as_ref().is_some_and(|logs| logs.disabled);
    *driver != old.driver
        || *user != old.user
        || *config != old.config
        || *env != old.env
        || *artifacts != old.artifacts
        || *vault != old.vault
        || *secrets != old.secrets
        || *consul != old.consul
        || *templates != old.templates
        || *csi_plugin_config != old.csi_plugin_config
        || *volume_mounts != old.volume_mounts
        || *identity != old.identity
        || *identities != old.identities
        || *schedule != old.schedule
        || no_logs(log_config) != no_logs(&old.log_config)
        || restart(restart_policy) != restart(&old.restart_policy)
        || resources_differ(
            resources.clone().unwrap_or_default(),
            old.resources.clone().unwrap_or_default(),
        )
}

fn resources_differ(new: Resources, old: Resources) -> bool {
    let Resources {
        cpu,
        cores,
        memory_mb,
        memory_max_mb,
        networks,
        devices,
        numa,
        secrets_mb,
        // Tasks had it in the past; a group's disk is ephemeral_disk.
        disk_mb: _,
        iops: _,
    } = new;
    cpu != old.cpu
        || cores != old.cores
        || memory_mb != old.memory_mb
        || memory_max_mb != old.memory_max_mb
        || secrets_mb != old.secrets_mb
        || devices != old.devices
        || numa != old.numa
        || networks_differ(&networks, &old.networks)
}

/// A task's meta with that of its group and job, the closer one winning.
fn combined_meta(job: &Job, group: &TaskGroup, task: &Task) -> Map<String> {
    let mut meta: Map<String> = Map::empty();
    for part in [&job.meta, &group.meta, &task.meta] {
        meta.extend(part.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    meta
}

fn networks_differ(new: &[NetworkResource], old: &[NetworkResource]) -> bool {
    new.len() != old.len()
        || new.iter().zip(old).any(|(new, old)| {
            new.mode != old.mode
                || new.mbits != old.mbits
                || new.hostname != old.hostname
                || new.dns != old.dns
                || new.cni != old.cni
                || ports_of(new) != ports_of(old)
        })
}

/// Ports without the numbers of dynamic ones: label, fixed number, inner port, host network.
fn ports_of(network: &NetworkResource) -> Vec<(String, i64, i64, String)> {
    let fixed = network.reserved_ports.iter().map(|p| (p, p.value));
    let dynamic = network.dynamic_ports.iter().map(|p| (p, -1));
    let mut ports: Vec<_> = fixed
        .chain(dynamic)
        .map(|(p, value)| (p.label.clone(), value, p.to, p.host_network.clone()))
        .collect();
    ports.sort();
    ports
}

/// Sidecars and gateways of services cannot be changed in place.
fn connect_differs(new: &[Service], old: &[Service]) -> bool {
    let of = |services: &[Service]| -> Vec<(String, String)> {
        let connect = services.iter().filter_map(|s| {
            let connect = s.connect.as_ref()?;
            Some((s.name.clone(), format!("{connect:?}")))
        });
        connect.collect()
    };
    of(new) != of(old)
}
