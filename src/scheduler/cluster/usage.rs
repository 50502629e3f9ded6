//! What allocations use of a node, and what one allocation requests.

use std::sync::Arc;

use drover_events::model::status::Hook;
use drover_events::model::{AllocatedResources, Allocation, TaskLifecycleConfig};

use super::ports::{PortKey, PortSet, hash};
use super::volumes::{VolumeUse, uses_of_alloc};

/// What one allocation takes from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// MHz.
    pub cpu: i64,
    /// MiB.
    pub memory: i64,
    /// MiB of ephemeral disk.
    pub disk: i64,
    /// Host ports.
    pub ports: Vec<PortKey>,
    /// Reserved core ids.
    pub cores: Vec<u16>,
    /// Device instances, as hashes of vendor, type, name and id.
    pub devices: Vec<u64>,
    /// Volumes that it does not share as it likes. They are counted in the cluster, not of a node.
    pub volumes: Vec<VolumeUse>,
}

/// What is used of a node in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// MHz.
    pub cpu: i64,
    /// MiB.
    pub memory: i64,
    /// MiB of ephemeral disk.
    pub disk: i64,
    /// How many allocations there are.
    pub allocs: u32,
    /// Taken host ports.
    pub ports: PortSet,
    /// Rare things: reserved cores and device instances.
    pub special: Option<Arc<Special>>,
}

/// Reserved cores and device instances in use; few nodes have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Special {
    /// Core ids, sorted.
    pub cores: Vec<u16>,
    /// Device instances, sorted.
    pub devices: Vec<u64>,
}

impl Usage {
    /// Adds an allocation.
    pub fn add(&mut self, demand: &Demand) {
        self.cpu += demand.cpu;
        self.memory += demand.memory;
        self.disk += demand.disk;
        self.allocs += 1;
        for port in &demand.ports {
            self.ports.insert(*port);
        }
        if !demand.cores.is_empty() || !demand.devices.is_empty() {
            let special = Arc::make_mut(self.special.get_or_insert_default());
            special.cores.extend(&demand.cores);
            special.cores.sort_unstable();
            special.devices.extend(&demand.devices);
            special.devices.sort_unstable();
        }
    }

    /// Takes an allocation away.
    pub fn sub(&mut self, demand: &Demand) {
        self.cpu -= demand.cpu;
        self.memory -= demand.memory;
        self.disk -= demand.disk;
        self.allocs = self.allocs.saturating_sub(1);
        for port in &demand.ports {
            self.ports.remove(*port);
        }
        if !demand.cores.is_empty() || !demand.devices.is_empty() {
            let Some(special) = &mut self.special else {
                return;
            };
            let special = Arc::make_mut(special);
            special.cores.retain(|core| !demand.cores.contains(core));
            special
                .devices
                .retain(|device| !demand.devices.contains(device));
            if special.cores.is_empty() && special.devices.is_empty() {
                self.special = None;
            }
        }
    }

    /// The reserved cores in use.
    pub fn cores(&self) -> &[u16] {
        self.special.as_ref().map_or(&[], |special| &special.cores)
    }

    /// The device instances in use.
    pub fn devices(&self) -> &[u64] {
        self.special
            .as_ref()
            .map_or(&[], |special| &special.devices)
    }
}

/// The key of a device instance.
pub fn device_key(vendor: &str, kind: &str, name: &str, id: &str) -> u64 {
    hash(&format!("{vendor}/{kind}/{name}\0{id}"))
}

/// What an allocation with these resources takes: tasks that run one after the other share their
/// resources (prestart tasks that end, the main tasks, poststop tasks), sidecars come on top.
pub fn demand(resources: &AllocatedResources) -> Demand {
    let mut early = [0_i64; 2];
    let mut main = [0_i64; 2];
    let mut late = [0_i64; 2];
    let mut sidecars = [0_i64; 2];
    let mut demand = Demand::default();
    for (name, task) in resources.tasks.iter() {
        let lifecycle = resources.task_lifecycles.get(name).and_then(Option::as_ref);
        let phase = match phase(lifecycle) {
            Phase::Early => &mut early,
            Phase::Main => &mut main,
            Phase::Late => &mut late,
            Phase::Sidecar => &mut sidecars,
        };
        phase[0] += task.cpu.cpu_shares;
        phase[1] += task.memory.memory_mb;
        demand.cores.extend(task.cpu.reserved_cores.iter());
        for device in task.devices.iter() {
            for id in device.device_ids.iter() {
                demand
                    .devices
                    .push(device_key(&device.vendor, &device.r#type, &device.name, id));
            }
        }
        for network in task.networks.iter() {
            for port in network
                .reserved_ports
                .iter()
                .chain(network.dynamic_ports.iter())
            {
                demand.ports.extend(port_key(&network.ip, port.value));
            }
        }
    }
    let shared = &resources.shared;
    for port in shared.ports.iter() {
        demand.ports.extend(port_key(&port.host_ip, port.value));
    }
    demand.cpu = sidecars[0] + early[0].max(main[0]).max(late[0]);
    demand.memory = sidecars[1] + early[1].max(main[1]).max(late[1]);
    demand.disk = shared.disk_mb;
    demand
}

fn port_key(ip: &str, value: i64) -> Option<PortKey> {
    u16::try_from(value).ok().map(|port| PortKey::new(ip, port))
}

/// When a task runs, for what it needs beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the main tasks, and ends before they start.
    Early,
    /// With the main tasks.
    Main,
    /// After them.
    Late,
    /// Beside all of them.
    Sidecar,
}

/// The phase of a task by its lifecycle.
pub fn phase(lifecycle: Option<&TaskLifecycleConfig>) -> Phase {
    match lifecycle.map(|l| (l.hook(), l.sidecar)) {
        Some((Some(Hook::Prestart), true)) => Phase::Sidecar,
        Some((Some(Hook::Prestart), false)) => Phase::Early,
        Some((Some(Hook::Poststop), _)) => Phase::Late,
        Some((Some(Hook::Poststart) | None, _)) | None => Phase::Main,
    }
}

/// Whether an allocation still takes resources on its node: the server wants it and the client has
/// not ended it.
pub fn takes_resources(alloc: &Allocation) -> bool {
    !alloc.server_terminal() && !alloc.client_terminal()
}

/// What an allocation takes; nothing without resources, and no volumes without its job.
pub fn demand_of(alloc: &Allocation) -> Demand {
    let resources = alloc.allocated_resources.as_ref();
    Demand {
        volumes: uses_of_alloc(alloc),
        ..resources.map(demand).unwrap_or_default()
    }
}
