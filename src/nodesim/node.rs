//! What a simulated node says it is.

use drover_events::gojson::{Map, Time};
use drover_events::model::status::{DEFAULT_NODE_POOL, eligibility, node as status};
use drover_events::model::{
    DriverInfo, NetworkResource, Node, NodeNetworkAddress, NodeNetworkResource,
    NodeReservedResources, NodeResources,
};
use sha2::{Digest, Sha256};

use super::SimOptions;
use crate::base::clock::unix_nanos;
use crate::base::version::{NOMAD_VERSION, VERSION};

/// MHz of a simulated node.
const CPU_MHZ: i64 = 4000;
/// MiB of memory.
const MEMORY_MB: i64 = 8192;
/// MiB of disk.
const DISK_MB: i64 = 100 * 1024;
/// Dynamic ports, as real clients offer them.
const PORTS: (i64, i64) = (20_000, 32_000);

/// The node of a number: another process gives the same number another identity.
pub(super) fn simulated(number: usize, options: &SimOptions) -> Node {
    let name = format!("sim-{number}");
    let address = address(number);
    let mut resources = NodeResources {
        min_dynamic_port: PORTS.0,
        max_dynamic_port: PORTS.1,
        ..NodeResources::default()
    };
    resources.cpu.cpu_shares = CPU_MHZ;
    resources.cpu.total_cpu_cores = 4;
    resources.cpu.reservable_cpu_cores = vec![0, 1, 2, 3].into();
    resources.memory.memory_mb = MEMORY_MB;
    resources.disk.disk_mb = DISK_MB;
    resources.networks.push(NetworkResource {
        mode: "host".into(),
        device: "eth0".into(),
        cidr: format!("{address}/32"),
        ip: address.clone(),
        mbits: 1000,
        ..NetworkResource::default()
    });
    resources.node_networks.push(NodeNetworkResource {
        mode: "host".into(),
        device: "eth0".into(),
        speed: 1000,
        addresses: vec![NodeNetworkAddress {
            family: "ipv4".into(),
            alias: "default".into(),
            address,
            ..NodeNetworkAddress::default()
        }]
        .into(),
        ..NodeNetworkResource::default()
    });
    Node {
        id: uuid::Uuid::new_v4().to_string(),
        secret_id: uuid::Uuid::new_v4().to_string(),
        name: name.clone(),
        datacenter: options.datacenter.clone(),
        node_class: options.class.clone(),
        node_pool: DEFAULT_NODE_POOL.into(),
        attributes: attributes(&name),
        meta: Map::empty(),
        links: Map::empty(),
        drivers: [("mock_driver", driver())].into(),
        node_resources: Some(resources),
        reserved_resources: Some(NodeReservedResources::default()),
        scheduling_eligibility: eligibility::ELIGIBLE.into(),
        status: status::INIT.into(),
        ..Node::default()
    }
}

fn attributes(name: &str) -> Map<String> {
    [
        ("kernel.name", "linux"),
        ("os.name", "linux"),
        ("cpu.arch", "amd64"),
        ("cpu.numcores", "4"),
        ("cpu.totalcompute", "4000"),
        ("driver.mock_driver", "1"),
        ("nomad.version", NOMAD_VERSION),
        ("drover.version", VERSION),
        ("unique.hostname", name),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .into()
}

fn driver() -> DriverInfo {
    DriverInfo {
        attributes: [("driver.mock_driver", "true".to_owned())].into(),
        detected: true,
        healthy: true,
        health_description: "Healthy".into(),
        update_time: Time(unix_nanos()),
    }
}

/// An address of its own in 10.0.0.0/8, scattered so that numbers far apart do not meet.
fn address(number: usize) -> String {
    let hash = Sha256::digest(number.to_le_bytes());
    format!("10.{}.{}.{}", hash[0], hash[1], hash[2])
}
