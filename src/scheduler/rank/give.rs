//! What an allocation is given on the node that was found: ports, cores, devices.

use drover_events::model::{AllocatedDeviceResource, AllocatedResources};

use super::group::GroupState;
use super::ports;
use super::stack::{Choice, PlacementRequest, Stack};
use super::tally::Tally;
use crate::cluster::{Demand, NodeInfo, PortKey, device_key};
use crate::feasible::device_offer;
use crate::fit;

impl Stack<'_> {
    pub(super) fn devices(
        &mut self,
        group: &GroupState,
        slot: u32,
        info: &NodeInfo,
    ) -> Result<Vec<(String, AllocatedDeviceResource)>, String> {
        let mut given = Vec::new();
        let mut taken = Vec::new();
        let mut operands = std::mem::take(&mut self.operands);
        for task in &group.ask.tasks {
            for ask in &task.devices {
                let used = self.used(slot);
                let offer = device_offer(ask, &info.node, used, &taken, &mut operands);
                let Some(offer) = offer else {
                    self.operands = operands;
                    return Err("devices: no devices match request".to_owned());
                };
                taken.extend(
                    offer
                        .device_ids
                        .iter()
                        .map(|id| device_key(&offer.vendor, &offer.r#type, &offer.name, id)),
                );
                given.push((task.name.clone(), offer));
            }
        }
        self.operands = operands;
        Ok(given)
    }

    /// Chooses what an allocation gets on a node: ports, cores, devices.
    pub(super) fn give(&mut self, group: &GroupState, slot: u32) -> Result<Choice, String> {
        let cluster = self.cluster;
        let info = cluster.slot(slot).info.as_deref().ok_or("node is gone")?;
        let mut resources = group.ask.given.clone();
        let mut demand = group.ask.demand(info);
        demand.volumes = group.volumes.uses(&info.node.id);
        if group.ask.network.is_some() || group.ask.wants_ports() {
            self.give_ports(group, slot, info, &mut resources, &mut demand)?;
        }
        if group.ask.cores > 0 {
            let used = self.used(slot).cores();
            let mut free = info
                .cores
                .iter()
                .copied()
                .filter(|core| !used.contains(core));
            for task in group.ask.tasks.iter().filter(|t| t.cores > 0) {
                let cores: Vec<u16> = free.by_ref().take(task.cores).collect();
                demand.cores.extend(&cores);
                if let Some(given) = resources.tasks.get_mut(&task.name) {
                    given.cpu.cpu_shares = task.cores as i64 * info.core_speed;
                    given.cpu.reserved_cores = cores.into();
                }
            }
        }
        if group.ask.wants_devices() {
            for (task, device) in self.devices(group, slot, info)? {
                demand.devices.extend(
                    device
                        .device_ids
                        .iter()
                        .map(|id| device_key(&device.vendor, &device.r#type, &device.name, id)),
                );
                if let Some(given) = resources.tasks.get_mut(&task) {
                    given.devices.push(device);
                }
            }
        }
        fit::check(info, self.used(slot), &demand)?;
        Ok(Choice {
            slot,
            resources,
            demand,
        })
    }

    fn give_ports(
        &mut self,
        group: &GroupState,
        slot: u32,
        info: &NodeInfo,
        resources: &mut AllocatedResources,
        demand: &mut Demand,
    ) -> Result<(), String> {
        let mut used = self.used(slot).clone();
        if let Some(ask) = &group.ask.network {
            let offer = ports::assign(info, &mut used, ask, &mut self.rng)?;
            for port in offer.mappings.iter().filter(|p| !p.ignore_collision) {
                demand.ports.extend(port_key(&port.host_ip, port.value));
            }
            resources.shared.networks = vec![offer.network].into();
            if !offer.mappings.is_empty() {
                resources.shared.ports = offer.mappings.into();
            }
        }
        for task in &group.ask.tasks {
            let Some(ask) = &task.network else { continue };
            let offer = ports::assign(info, &mut used, ask, &mut self.rng)?;
            for port in &offer.mappings {
                demand.ports.extend(port_key(&port.host_ip, port.value));
            }
            if let Some(given) = resources.tasks.get_mut(&task.name) {
                given.networks = vec![offer.network].into();
            }
        }
        Ok(())
    }

    /// Whether a group may stay on a node with the given resources freed: the check of an update in
    /// place, which keeps ports, cores and devices.
    pub fn fits_in_place(
        &mut self,
        wanted: PlacementRequest<'_>,
        slot: u32,
        freed: &Demand,
    ) -> Option<Demand> {
        self.prepare();
        let mut group = self.groups.remove(wanted.group)?;
        group.volumes.seek(wanted.name, self.cluster.volumes());
        let answer = self.check_in_place(&mut group, slot, freed);
        self.groups.insert(wanted.group.to_owned(), group);
        answer
    }

    fn check_in_place(
        &mut self,
        group: &mut GroupState,
        slot: u32,
        freed: &Demand,
    ) -> Option<Demand> {
        let cluster = self.cluster;
        let info = cluster.slot(slot).info.as_deref()?;
        let mut tally = Tally::default();
        if !self.feasible(group, info, &mut tally) || !self.mounts(group, info, &mut tally) {
            return None;
        }
        let mut used = self.used(slot).clone();
        used.sub(freed);
        let (cpu, memory, disk) = group.ask.amounts(info);
        fit::check_amounts(info, &used, cpu, memory, disk).ok()?;
        Some(Demand {
            cpu,
            memory,
            disk,
            ..freed.clone()
        })
    }
}

fn port_key(ip: &str, value: i64) -> Option<PortKey> {
    u16::try_from(value).ok().map(|port| PortKey::new(ip, port))
}
