//! What one allocation of a group requests of a node, worked out once for the group.

use drover_events::model::{
    AllocatedCpuResources, AllocatedMemoryResources, AllocatedResources, AllocatedSharedResources,
    AllocatedTaskResources, NetworkResource, Port, TaskGroup,
};

use crate::cluster::{Demand, NodeInfo, Phase, phase};
use crate::feasible::DeviceAsk;

/// What a task requests.
#[derive(Clone, Debug)]
pub struct TaskAsk {
    /// The task's name.
    pub name: String,
    phase: Phase,
    cpu: i64,
    memory: i64,
    /// Whole cores, which replace `cpu`.
    pub cores: usize,
    pub devices: Vec<DeviceAsk>,
    /// The task's own network, an old form.
    pub network: Option<NetworkResource>,
}

/// What one allocation of a group requests.
#[derive(Clone, Debug)]
pub struct GroupAsk {
    /// Each task.
    pub tasks: Vec<TaskAsk>,
    /// MHz, MiB, MiB: without cores.
    plain: (i64, i64, i64),
    /// Whole cores in all.
    pub cores: usize,
    /// The group's network.
    pub network: Option<NetworkResource>,
    /// What every allocation of the group is given, before ports, cores and devices.
    pub given: AllocatedResources,
}

impl GroupAsk {
    /// Works out what a group requests. Without oversubscription `memory_max` has no effect.
    pub fn new(group: &TaskGroup, oversubscription: bool) -> Self {
        let mut given = AllocatedResources::default();
        let mut tasks = Vec::with_capacity(group.tasks.len());
        for task in &group.tasks {
            let resources = task.resources.clone().unwrap_or_default();
            let memory_max = if oversubscription {
                resources.memory_max_mb
            } else {
                0
            };
            given.tasks.insert(
                task.name.as_str(),
                AllocatedTaskResources {
                    cpu: AllocatedCpuResources {
                        cpu_shares: resources.cpu,
                        ..Default::default()
                    },
                    memory: AllocatedMemoryResources {
                        memory_mb: resources.memory_mb,
                        memory_max_mb: memory_max,
                    },
                    ..Default::default()
                },
            );
            given
                .task_lifecycles
                .insert(task.name.as_str(), task.lifecycle.clone());
            tasks.push(TaskAsk {
                name: task.name.clone(),
                phase: phase(task.lifecycle.as_ref()),
                cpu: resources.cpu,
                memory: resources.memory_mb,
                cores: usize::try_from(resources.cores).unwrap_or(0),
                devices: resources.devices.iter().map(DeviceAsk::new).collect(),
                network: resources.networks.first().cloned(),
            });
        }
        let disk = group.ephemeral_disk.as_ref().map_or(0, |disk| disk.size_mb);
        given.shared = AllocatedSharedResources {
            disk_mb: disk,
            ..Default::default()
        };
        let cores = tasks.iter().map(|t| t.cores).sum();
        let mut ask = Self {
            tasks,
            plain: (0, 0, 0),
            cores,
            network: group.networks.first().cloned(),
            given,
        };
        let (cpu, memory) = ask.sum(0);
        ask.plain = (cpu, memory, disk);
        ask
    }

    fn sum(&self, core_speed: i64) -> (i64, i64) {
        let mut sums = [(0_i64, 0_i64); 4];
        for task in &self.tasks {
            let sum = &mut sums[task.phase as usize];
            let cpu = match task.cores {
                0 => task.cpu,
                cores => (cores as i64).saturating_mul(core_speed),
            };
            // A request that is too large for every node stays too large.
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(task.memory));
        }
        let [early, main, late, side] = sums;
        (
            side.0.saturating_add(early.0.max(main.0).max(late.0)),
            side.1.saturating_add(early.1.max(main.1).max(late.1)),
        )
    }

    /// MHz, memory and disk that an allocation takes on a node.
    pub fn amounts(&self, info: &NodeInfo) -> (i64, i64, i64) {
        if self.cores == 0 {
            return self.plain;
        }
        let (cpu, memory) = self.sum(info.core_speed);
        (cpu, memory, self.plain.2)
    }

    /// The amounts as a demand, without ports, cores and devices.
    pub fn demand(&self, info: &NodeInfo) -> Demand {
        let (cpu, memory, disk) = self.amounts(info);
        Demand {
            cpu,
            memory,
            disk,
            ..Demand::default()
        }
    }

    /// Whether it needs ports.
    pub fn wants_ports(&self) -> bool {
        self.networks()
            .any(|n| n.reserved_ports.len() + n.dynamic_ports.len() > 0)
    }

    /// The group's network and the tasks' own.
    pub fn networks(&self) -> impl Iterator<Item = &NetworkResource> {
        self.network
            .iter()
            .chain(self.tasks.iter().filter_map(|t| t.network.as_ref()))
    }

    /// Whether it needs devices.
    pub fn wants_devices(&self) -> bool {
        self.tasks.iter().any(|t| !t.devices.is_empty())
    }
}

/// The host network a port is to be on.
pub(super) fn host_network(port: &Port) -> &str {
    if port.host_network.is_empty() {
        "default"
    } else {
        &port.host_network
    }
}
