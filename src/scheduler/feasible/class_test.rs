//! Nodes of one class look the same to every check that is remembered for a class (SCH-19).

use drover_events::model::{
    Attribute, ClientHostNetworkConfig, DriverInfo, NetworkResource, NodeDevice,
    NodeDeviceResource, NodeNetworkAddress, NodeNetworkResource, NodeResources, Port,
    RequestedDevice, Resources, Task,
};

use super::*;
use crate::cluster::Cluster;

fn device(name: &str, healthy: [bool; 2], memory: i64) -> NodeDeviceResource {
    let instance = |(n, healthy): (usize, &bool)| NodeDevice {
        id: format!("{name}-{n}"),
        healthy: *healthy,
        ..NodeDevice::default()
    };
    let memory = Attribute {
        int: Some(memory),
        ..Attribute::default()
    };
    NodeDeviceResource {
        vendor: "acme".into(),
        r#type: "gpu".into(),
        name: name.into(),
        instances: healthy.iter().enumerate().map(instance).collect(),
        attributes: [("memory", memory)].into(),
    }
}

fn base() -> Node {
    let mut node = Node {
        id: "n1".into(),
        name: "one".into(),
        datacenter: "dc1".into(),
        node_class: "big".into(),
        node_pool: "default".into(),
        ..Node::default()
    };
    for (key, value) in [("cpu.arch", "amd64"), ("unique.hostname", "a")] {
        node.attributes.insert(key, value.to_owned());
        node.meta.insert(key, value.to_owned());
    }
    let driver = DriverInfo {
        detected: true,
        healthy: true,
        ..DriverInfo::default()
    };
    node.drivers.insert("exec", driver);
    let address = NodeNetworkAddress {
        alias: "default".into(),
        address: "10.0.0.1".into(),
        ..NodeNetworkAddress::default()
    };
    let network = NodeNetworkResource {
        mode: "host".into(),
        addresses: vec![address].into(),
        ..NodeNetworkResource::default()
    };
    node.node_resources = Some(NodeResources {
        devices: vec![device("a100", [true, true], 40)].into(),
        node_networks: vec![network].into(),
        ..NodeResources::default()
    });
    node
}

fn resources(node: &mut Node) -> &mut NodeResources {
    node.node_resources.get_or_insert_default()
}

type Change = (&'static str, bool, fn(&mut Node));

/// What may differ between two nodes, and whether their classes differ by it.
const CHANGES: &[Change] = &[
    ("datacenter", true, |n| n.datacenter = "dc2".into()),
    ("class", true, |n| n.node_class = "small".into()),
    ("pool", true, |n| n.node_pool = "gpu".into()),
    ("attribute", true, |n| {
        n.attributes.insert("cpu.arch", "arm64".to_owned());
    }),
    ("attribute that is unique in its middle", true, |n| {
        n.attributes.insert("platform.unique.zone", "a".to_owned());
    }),
    ("metadata", true, |n| {
        n.meta.insert("rack", "r2".to_owned());
    }),
    ("driver's health", true, |n| {
        n.drivers.insert("exec", DriverInfo::default());
    }),
    ("another driver", true, |n| {
        n.drivers.insert("docker", DriverInfo::default());
    }),
    ("mode of a network", true, |n| {
        let bridge = NetworkResource {
            mode: "bridge".into(),
            ..NetworkResource::default()
        };
        resources(n).networks = vec![bridge].into();
    }),
    ("alias of an address", true, |n| {
        resources(n).node_networks.to_mut()[0].addresses.to_mut()[0].alias = "public".into();
    }),
    ("host network", true, |n| {
        n.host_networks
            .insert("public", ClientHostNetworkConfig::default());
    }),
    ("no device", true, |n| {
        resources(n).devices = Vec::new().into()
    }),
    ("another device", true, |n| {
        resources(n).devices = vec![device("h100", [true, true], 40)].into();
    }),
    ("attribute of a device", true, |n| {
        resources(n).devices = vec![device("a100", [true, true], 80)].into();
    }),
    ("health of a device", true, |n| {
        resources(n).devices = vec![device("a100", [true, false], 40)].into();
    }),
    ("which device is healthy", false, |n| {
        resources(n).devices.to_mut()[0].instances.to_mut()[0].id = "other".into();
    }),
    ("one more address of the same alias", false, |n| {
        let more = resources(n).node_networks[0].clone();
        resources(n).node_networks.to_mut().push(more);
    }),
    ("id", false, |n| n.id = "n2".into()),
    ("name", false, |n| n.name = "two".into()),
    ("unique attribute", false, |n| {
        n.attributes.insert("unique.hostname", "b".to_owned());
    }),
    ("unique metadata", false, |n| {
        n.meta.insert("unique.hostname", "b".to_owned());
    }),
    ("address", false, |n| {
        resources(n).node_networks.to_mut()[0].addresses.to_mut()[0].address = "10.0.0.2".into();
    }),
    ("room", false, |n| resources(n).memory.memory_mb = 1),
];

fn constraint(left: &str, right: &str) -> Constraint {
    Constraint {
        l_target: left.into(),
        r_target: right.into(),
        operand: "=".into(),
    }
}

fn group(task: Task) -> TaskGroup {
    TaskGroup {
        name: "g".into(),
        tasks: vec![task].into(),
        ..TaskGroup::default()
    }
}

fn constrained(left: &str, right: &str) -> TaskGroup {
    group(Task {
        driver: "exec".into(),
        constraints: vec![constraint(left, right)].into(),
        ..Task::default()
    })
}

fn with_device(name: &str, count: u64, constraints: Vec<Constraint>) -> TaskGroup {
    let request = RequestedDevice {
        name: name.into(),
        count,
        constraints: constraints.into(),
        ..RequestedDevice::default()
    };
    group(Task {
        driver: "exec".into(),
        resources: Some(Resources {
            devices: vec![request].into(),
            ..Resources::default()
        }),
        ..Task::default()
    })
}

fn with_network(mode: &str, host_network: &str) -> TaskGroup {
    let port = Port {
        label: "http".into(),
        host_network: host_network.into(),
        ..Port::default()
    };
    let network = NetworkResource {
        mode: mode.into(),
        dynamic_ports: vec![port].into(),
        ..NetworkResource::default()
    };
    TaskGroup {
        networks: vec![network].into(),
        ..group(Task::default())
    }
}

/// Groups whose checks between them read all that checks read.
fn groups() -> Vec<TaskGroup> {
    let mut groups: Vec<TaskGroup> = [
        ("${node.datacenter}", "dc1"),
        ("${node.class}", "big"),
        ("${node.pool}", "default"),
        ("${node.unique.id}", "n1"),
        ("${node.unique.name}", "one"),
        ("${attr.cpu.arch}", "amd64"),
        ("${attr.platform.unique.zone}", "a"),
        ("${attr.unique.hostname}", "a"),
        ("${meta.rack}", "r2"),
        ("${meta.unique.hostname}", "a"),
        ("a", "${attr.unique.hostname}"),
    ]
    .map(|(left, right)| constrained(left, right))
    .into();
    let one_constraint = |left: &str, right: &str| vec![constraint(left, right)];
    groups.extend([
        with_device("gpu", 2, Vec::new()),
        with_device("acme/gpu/a100", 1, Vec::new()),
        with_device("gpu", 1, one_constraint("${device.attr.memory}", "40")),
        with_device("gpu", 1, one_constraint("${device.ids}", "a100-0,a100-1")),
        with_device("gpu", 1, one_constraint("${device.model}", "a100")),
        with_network("bridge", ""),
        with_network("host", "public"),
        with_network("host", "${attr.unique.hostname}"),
        group(Task {
            driver: "docker".into(),
            ..Task::default()
        }),
    ]);
    groups
}

#[test]
fn sch_19_the_class_holds_what_cached_checks_read_and_nothing_of_a_nodes_own() {
    let class = computed_class(&base());
    for (what, differs, change) in CHANGES {
        let mut node = base();
        change(&mut node);
        assert_eq!(computed_class(&node) != class, *differs, "{what}");
    }
    // What is stored today is what any later release must come to.
    assert_eq!(class, "v2:8f0681cd84b592c62ba530de5b89a27e");
}

/// Each node is checked for each group, once by itself and once after another node of its class may
/// have been checked: the answer is the same.
#[test]
fn sch_19_no_answer_comes_from_a_node_that_another_check_would_tell_apart() {
    let mut reported_apart = 0;
    for group in groups() {
        for (what, _, change) in CHANGES {
            let mut cluster = Cluster::default();
            for (id, changed) in [("first", false), ("second", true)] {
                let mut node = base();
                if changed {
                    change(&mut node);
                }
                node.computed_class = computed_class(&node);
                // The key of a slot; the id that checks read is the node's own.
                let slot = cluster.upsert_node(Node {
                    id: id.into(),
                    ..node.clone()
                });
                let info = NodeInfo {
                    node: std::sync::Arc::new(node),
                    ..NodeInfo::clone(cluster.slot(slot).info.as_ref().unwrap())
                };
                cluster.slot_mut(slot).info = Some(std::sync::Arc::new(info));
            }
            let mut operands = OperandCache::default();
            let mut passes = |level: &mut Level, id: &str| {
                let verdict = level.check(cluster.node(id).unwrap(), &mut operands);
                matches!(verdict, Verdict::Pass)
            };
            let mut cached = Level::of_group(&group);
            let first = passes(&mut cached, "first");
            let second = passes(&mut cached, "second");
            let alone = passes(&mut Level::of_group(&group), "second");
            assert_eq!(second, alone, "{what} for {group:?}");
            reported_apart += usize::from(first != second);
        }
    }
    assert!(reported_apart > 20, "{reported_apart}");
}

#[test]
fn sch_19_the_order_in_which_a_client_finds_its_networks_is_no_class() {
    let class_of = |aliases: [&str; 3]| {
        let mut node = base();
        let network = |alias: &&str| {
            let address = NodeNetworkAddress {
                alias: (*alias).into(),
                ..NodeNetworkAddress::default()
            };
            NodeNetworkResource {
                mode: "host".into(),
                addresses: vec![address].into(),
                ..NodeNetworkResource::default()
            }
        };
        resources(&mut node).node_networks = aliases.iter().map(network).collect();
        computed_class(&node)
    };
    let class = class_of(["a", "b", "c"]);
    for order in [["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]] {
        assert_eq!(class_of(order), class, "{order:?}");
    }
    assert_ne!(class_of(["a", "b", "b"]), class);
}

#[test]
fn as_many_devices_of_a_kind_are_healthy_as_are_asked_for() {
    for (healthy, count, passes) in [
        ([true, true], 2, true),
        ([true, true], 3, false),
        ([true, false], 1, true),
        ([true, false], 2, false),
        ([false, false], 1, false),
    ] {
        let mut node = base();
        // Two kinds are not added up.
        let kinds = vec![
            device("a100", healthy, 40),
            device("h100", [false, true], 40),
        ];
        resources(&mut node).devices = kinds.into();
        let asks = with_device("acme/gpu/a100", count, Vec::new());
        let request = &asks.tasks[0].resources.as_ref().unwrap().devices[0];
        let possible = DeviceAsk::new(request).possible(&node, &mut OperandCache::default());
        assert_eq!(possible, passes, "{healthy:?} {count}");
    }
}
