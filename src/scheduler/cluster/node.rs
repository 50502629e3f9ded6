//! What the scheduler knows of a node beside its use.

use std::sync::Arc;

use drover_events::model::Node;

use super::Interner;
use super::ports::parse_ranges;

/// An address that ports can be taken on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The host network it belongs to; `default` for the main one.
    pub alias: String,
    /// The address as text.
    pub ip: String,
    /// The interface.
    pub device: String,
    /// Ports never given out.
    pub reserved: Vec<(u16, u16)>,
}

impl Address {
    /// Whether a port is never given out here.
    pub fn is_reserved(&self, port: u16) -> bool {
        self.reserved
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&port))
    }

    /// How many of the ports between two numbers are never given out (overlaps count twice).
    pub fn reserved_between(&self, low: u16, high: u16) -> usize {
        self.reserved
            .iter()
            .map(|(l, h)| usize::from(high.min(*h) + 1).saturating_sub(usize::from(low.max(*l))))
            .sum()
    }
}

/// A node as the scheduler sees it: its row, and what is worked out from the row once.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The row, without its events.
    pub node: Arc<Node>,
    /// Interned computed class.
    pub class: u32,
    /// Interned datacenter.
    pub datacenter: u32,
    /// Interned node pool.
    pub pool: u32,
    /// May get new allocations: ready, eligible, not draining.
    pub ready: bool,
    /// MHz that allocations may use.
    pub cpu: i64,
    /// MiB that allocations may use.
    pub memory: i64,
    /// MiB of disk that allocations may use.
    pub disk: i64,
    /// MHz of one core.
    pub core_speed: i64,
    /// Core ids that can be reserved.
    pub cores: Vec<u16>,
    /// Addresses for ports.
    pub addresses: Vec<Address>,
    /// The first port given out as dynamic.
    pub min_port: u16,
    /// The last port given out as dynamic.
    pub max_port: u16,
    /// How many allocations may be here; 0 for any number.
    pub max_allocs: u32,
}

const DEFAULT_MIN_PORT: u16 = 20_000;
const DEFAULT_MAX_PORT: u16 = 32_000;

impl NodeInfo {
    /// Works out what the scheduler needs from a node's row.
    pub fn new(mut node: Node, names: &mut Interner) -> Self {
        node.events = Default::default();
        let resources = node.node_resources.clone().unwrap_or_default();
        let reserved = node.reserved_resources.clone().unwrap_or_default();
        let topology = resources.processors.topology.as_ref();
        let usable = topology.map_or(0, |t| t.cores.iter().filter(|c| !c.disable).count());
        let core_count = if usable > 0 {
            usable as i64
        } else {
            i64::from(resources.cpu.total_cpu_cores)
        };
        let mut cores: Vec<u16> = resources.cpu.reservable_cpu_cores.to_vec();
        cores.retain(|core| !reserved.cpu.reserved_cpu_cores.contains(core));
        Self {
            class: names.id(&node.computed_class),
            datacenter: names.id(&node.datacenter),
            pool: names.id(&node.node_pool),
            ready: is_ready(&node),
            cpu: resources.cpu.cpu_shares - reserved.cpu.cpu_shares,
            memory: resources.memory.memory_mb - reserved.memory.memory_mb,
            disk: resources.disk.disk_mb - reserved.disk.disk_mb,
            core_speed: resources
                .cpu
                .cpu_shares
                .checked_div(core_count)
                .unwrap_or(0),
            cores,
            addresses: addresses(&node, &parse_ranges(&reserved.networks.reserved_host_ports)),
            min_port: port_or(resources.min_dynamic_port, DEFAULT_MIN_PORT),
            max_port: port_or(resources.max_dynamic_port, DEFAULT_MAX_PORT),
            max_allocs: u32::try_from(node.node_max_allocs).unwrap_or(0),
            node: Arc::new(node),
        }
    }
}

/// Whether a node may get new allocations.
pub fn is_ready(node: &Node) -> bool {
    node.ready()
}

fn port_or(value: i64, default: u16) -> u16 {
    u16::try_from(value)
        .ok()
        .filter(|port| *port > 0)
        .unwrap_or(default)
}

fn addresses(node: &Node, reserved: &[(u16, u16)]) -> Vec<Address> {
    let Some(resources) = &node.node_resources else {
        return Vec::new();
    };
    let mut addresses: Vec<Address> = Vec::new();
    for network in resources.node_networks.iter() {
        for address in network.addresses.iter() {
            let mut taken = reserved.to_vec();
            taken.extend(parse_ranges(&address.reserved_ports));
            addresses.push(Address {
                alias: address.alias.clone(),
                ip: address.address.clone(),
                device: network.device.clone(),
                reserved: taken,
            });
        }
    }
    if addresses.is_empty() {
        for network in resources.networks.iter().filter(|n| !n.ip.is_empty()) {
            addresses.push(Address {
                alias: "default".to_owned(),
                ip: network.ip.clone(),
                device: network.device.clone(),
                reserved: reserved.to_vec(),
            });
        }
    }
    addresses
}
