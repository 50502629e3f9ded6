//! What is read of a node's row, and what the allocations on it take and give back.

use drover_events::model::{AllocatedResources, Allocation, Node};
use serde_json::{Value, json};

use super::*;
use crate::fit::check;

fn info(change: impl FnOnce(&mut Value)) -> NodeInfo {
    let mut row = json!({
        "ID": "n1",
        "Status": "ready",
        "SchedulingEligibility": "eligible",
        "NodeMaxAllocs": 9,
        "Events": [{ "Message": "registered" }],
        "NodeResources": {
            "Cpu": { "CpuShares": 4000, "TotalCpuCores": 8, "ReservableCpuCores": [0, 1, 2, 3] },
            "Memory": { "MemoryMB": 4096 },
            "Disk": { "DiskMB": 10000 },
            "Processors": { "Topology": { "Cores": [{}, {}, { "Disable": true }] } },
            "MinDynamicPort": 21000,
            "MaxDynamicPort": 0,
            "NodeNetworks": [{
                "Device": "eth0",
                "Addresses": [
                    { "Alias": "default", "Address": "10.0.0.1", "ReservedPorts": "80" },
                ],
            }],
            "Networks": [{ "IP": "" }, { "IP": "10.0.0.9", "Device": "eth9" }],
        },
        "ReservedResources": {
            "Cpu": { "CpuShares": 500, "ReservedCpuCores": [1] },
            "Memory": { "MemoryMB": 96 },
            "Disk": { "DiskMB": 1000 },
            "Networks": { "ReservedHostPorts": "22" },
        },
    });
    change(&mut row);
    let node: Node = serde_json::from_value(row).expect("a node");
    NodeInfo::new(node, &mut Interner::default())
}

#[test]
fn what_a_node_offers_is_what_it_has_without_what_is_reserved() {
    let node = info(|_| {});
    assert_eq!((node.cpu, node.memory, node.disk), (3_500, 4_000, 9_000));
    assert_eq!(node.cores, [0, 2, 3]);
    assert_eq!(node.core_speed, 2_000, "of the two cores that are on");
    assert_eq!((node.min_port, node.max_port), (21_000, 32_000));
    assert_eq!((node.max_allocs, node.ready), (9, true));
    assert!(node.node.events.is_empty());
    let bare = info(|row| row["NodeResources"]["Processors"] = json!({}));
    assert_eq!(bare.core_speed, 500, "of the eight that it tells");
}

#[test]
fn ports_are_taken_on_the_addresses_of_a_node_and_its_main_one_where_there_is_none() {
    let address = |alias: &str, ip: &str, device: &str, reserved: &[(u16, u16)]| Address {
        alias: alias.into(),
        ip: ip.into(),
        device: device.into(),
        reserved: reserved.to_vec(),
    };
    let node = info(|_| {});
    let reserved = [(22, 22), (80, 80)];
    assert_eq!(
        node.addresses,
        [address("default", "10.0.0.1", "eth0", &reserved)]
    );
    let old = info(|row| row["NodeResources"]["NodeNetworks"] = json!([]));
    let reserved = [(22, 22)];
    assert_eq!(
        old.addresses,
        [address("default", "10.0.0.9", "eth9", &reserved)]
    );
}

/// What the tasks of one allocation were given: so much of each phase.
fn given() -> AllocatedResources {
    let task =
        |cpu: i64| json!({ "Cpu": { "CpuShares": cpu }, "Memory": { "MemoryMB": cpu / 10 } });
    let mut main = task(500);
    main["Cpu"]["ReservedCores"] = json!([2, 3]);
    main["Devices"] = json!([{
        "Vendor": "v", "Type": "gpu", "Name": "x", "DeviceIDs": ["d1", "d2"],
    }]);
    main["Networks"] = json!([{
        "IP": "10.0.0.1",
        "ReservedPorts": [{ "Label": "a", "Value": 81 }],
        "DynamicPorts": [{ "Label": "b", "Value": 21001 }],
    }]);
    serde_json::from_value(json!({
        "Tasks": {
            "early": task(900), "main": main, "late": task(700), "sidecar": task(100),
        },
        "TaskLifecycles": {
            "early": { "Hook": "prestart" },
            "late": { "Hook": "poststop" },
            "sidecar": { "Hook": "prestart", "Sidecar": true },
            "main": null,
        },
        "Shared": {
            "DiskMB": 150,
            "Ports": [{ "Label": "c", "Value": 82, "HostIP": "10.0.0.1" }],
        },
    }))
    .expect("resources")
}

#[test]
fn tasks_of_one_phase_add_up_and_phases_share_their_room() {
    let one = demand(&given());
    assert_eq!((one.cpu, one.memory, one.disk), (1_000, 100, 150));
    assert_eq!(one.cores, [2, 3]);
    let device = |id: &str| device_key("v", "gpu", "x", id);
    assert_eq!(one.devices, [device("d1"), device("d2")]);
    let port = |port: u16| PortKey::new("10.0.0.1", port);
    assert_eq!(one.ports, [port(81), port(21_001), port(82)]);
    let poststart = drover_events::model::TaskLifecycleConfig {
        hook: "poststart".into(),
        sidecar: false,
    };
    assert_eq!(phase(Some(&poststart)), Phase::Main, "it runs beside them");
    let mut more = given();
    let second = more.tasks.get("main").expect("it is there").clone();
    more.tasks.insert("second", second);
    let more = demand(&more);
    assert_eq!(
        (more.cpu, more.memory),
        (1_100, 110),
        "two of 500 beside 100"
    );
}

#[test]
fn what_is_used_is_the_sum_and_what_ends_gives_back_what_it_took() {
    let first = demand(&given());
    let second = Demand {
        cpu: 7,
        memory: 8,
        disk: 9,
        ports: vec![PortKey::new("10.0.0.1", 90)],
        cores: vec![9],
        devices: vec![u64::MAX],
        volumes: Vec::new(),
    };
    let mut used = Usage::default();
    used.add(&second);
    let only_second = used.clone();
    used.add(&first);
    assert_eq!((used.cpu, used.memory, used.disk), (1_007, 108, 159));
    assert_eq!((used.allocs, used.ports.len()), (2, 4));
    assert_eq!(used.cores(), [2, 3, 9], "sorted");
    assert_eq!(used.devices().len(), 3);
    assert!(used.devices().is_sorted());
    used.sub(&first);
    assert_eq!(used, only_second);
    used.sub(&second);
    assert_eq!(used, Usage::default());
    // Cores without devices, and devices without cores.
    for special in [(vec![4], vec![]), (vec![], vec![6])] {
        let (cores, devices) = special;
        let one = Demand {
            cores: cores.clone(),
            devices: devices.clone(),
            ..Demand::default()
        };
        used.add(&one);
        assert_eq!((used.cores(), used.devices()), (&cores[..], &devices[..]));
        used.add(&second);
        used.sub(&one);
        assert_eq!((used.cores(), used.devices()), (&[9][..], &[u64::MAX][..]));
        used.sub(&second);
        assert_eq!(used, Usage::default());
    }
    let core = Demand {
        cores: vec![4],
        ..Demand::default()
    };
    let device = Demand {
        devices: vec![6],
        ..Demand::default()
    };
    for (goes, stays) in [(&core, &device), (&device, &core)] {
        used.add(goes);
        used.add(stays);
        used.sub(goes);
        assert_eq!(used.cores(), stays.cores);
        assert_eq!(used.devices(), stays.devices);
        used.sub(stays);
    }
}

#[test]
fn nodes_are_found_and_ordered_by_their_ids_and_free_places_are_taken_again() {
    let node = |id: &str| Node {
        id: id.into(),
        ..Node::default()
    };
    let mut cluster = Cluster::default();
    let b = cluster.upsert_node(node("b"));
    assert_eq!(cluster.by_node_id(), [b]);
    let a = cluster.upsert_node(node("a"));
    assert_eq!(cluster.by_node_id(), [a, b], "whatever was met first");
    assert!(cluster.is_taken(a));
    cluster.remove_node("b");
    assert!(!cluster.is_taken(b));
    assert_eq!(cluster.by_node_id(), [a]);
    assert_eq!(cluster.upsert_node(node("c")), b);
    assert_eq!(cluster.find("b"), None);
    cluster.set_index(7);
    assert_eq!(cluster.index(), 7);
}

#[test]
fn an_allocation_takes_room_until_a_server_or_its_client_ends_it() {
    let takes = |desired: &str, client: &str| {
        takes_resources(&Allocation {
            desired_status: desired.into(),
            client_status: client.into(),
            ..Allocation::default()
        })
    };
    for client in ["pending", "running", "unknown"] {
        assert!(takes("run", client), "{client}");
        assert!(
            !takes("stop", client) && !takes("evict", client),
            "{client}"
        );
    }
    for client in ["complete", "failed", "lost"] {
        assert!(!takes("run", client), "{client}");
    }
}

#[test]
fn what_is_used_reserved_or_not_there_does_not_fit() {
    let node = info(|_| {});
    let port = |port: u16| vec![PortKey::new("10.0.0.1", port)];
    let mut used = Usage::default();
    used.add(&Demand {
        cpu: 3_000,
        memory: 3_500,
        disk: 8_500,
        ports: port(90),
        cores: vec![0],
        devices: vec![5],
        volumes: Vec::new(),
    });
    let nothing = Demand::default;
    let of_cores = |cores: &[u16]| Demand {
        cores: cores.to_vec(),
        ..nothing()
    };
    let of_device = |device: u64| Demand {
        devices: vec![device],
        ..nothing()
    };
    let amounts = |cpu, memory, disk| Demand {
        cpu,
        memory,
        disk,
        ..nothing()
    };
    let of_port = |number| Demand {
        ports: port(number),
        ..nothing()
    };
    for (ask, want) in [
        (of_cores(&[2, 3]), Ok(())),
        (of_cores(&[2, 0]), Err("cores")),
        (of_cores(&[2, 1]), Err("cores")),
        (amounts(500, 500, 500), Ok(())),
        (amounts(501, 500, 500), Err("cpu")),
        (amounts(500, 501, 500), Err("memory")),
        (amounts(500, 500, 501), Err("disk")),
        (of_port(91), Ok(())),
        (of_port(90), Err("reserved port collision")),
        (of_device(6), Ok(())),
        (of_device(5), Err("device oversubscribed")),
    ] {
        assert_eq!(check(&node, &used, &ask), want, "{ask:?}");
    }
    used.allocs = 9;
    let full = check(&node, &used, &nothing());
    assert_eq!(full, Err("max allocation exceeded"));
}
