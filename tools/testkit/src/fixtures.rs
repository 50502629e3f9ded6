//! Nodes and jobs for tests.

use drover_events::model::{
    DriverInfo, EphemeralDisk, Job, Node, NodeResources, ReschedulePolicy, Resources, Task,
    TaskGroup, UpdateStrategy,
};

pub const SECOND: i64 = 1_000_000_000;

/// A ready node of 4,000 MHz, 8,192 MiB and 100 GiB, as simulated nodes are.
pub fn node(number: usize) -> Node {
    let mut node = Node {
        id: format!("{number:08x}-0000-0000-0000-000000000000"),
        name: format!("node-{number}"),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        computed_class: "v1:1".into(),
        status: "ready".into(),
        scheduling_eligibility: "eligible".into(),
        ..Node::default()
    };
    node.attributes.insert("kernel.name", "linux".to_owned());
    let driver = DriverInfo {
        detected: true,
        healthy: true,
        ..DriverInfo::default()
    };
    node.drivers.insert("mock_driver", driver);
    let mut resources = NodeResources::default();
    resources.cpu.cpu_shares = 4000;
    resources.memory.memory_mb = 8192;
    resources.disk.disk_mb = 100 * 1024;
    let address = drover_events::model::NodeNetworkAddress {
        family: "ipv4".into(),
        alias: "default".into(),
        address: format!("10.0.{}.{}", number / 250, number % 250),
        ..Default::default()
    };
    resources.node_networks = vec![drover_events::model::NodeNetworkResource {
        mode: "host".into(),
        device: "eth0".into(),
        addresses: vec![address].into(),
        ..Default::default()
    }]
    .into();
    node.node_resources = Some(resources);
    node
}

/// A job with one group `g` of one task `t`.
pub fn job(kind: &str, count: i64) -> Job {
    let task = Task {
        name: "t".into(),
        driver: "mock_driver".into(),
        resources: Some(Resources {
            cpu: 20,
            memory_mb: 20,
            ..Resources::default()
        }),
        ..Task::default()
    };
    let reschedule = if kind == "batch" {
        ReschedulePolicy {
            attempts: 1,
            interval: 24 * 3600 * SECOND,
            delay: 5 * SECOND,
            delay_function: "constant".into(),
            ..Default::default()
        }
    } else {
        ReschedulePolicy {
            unlimited: true,
            delay: 30 * SECOND,
            delay_function: "exponential".into(),
            max_delay: 3600 * SECOND,
            ..Default::default()
        }
    };
    let group = TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task].into(),
        ephemeral_disk: Some(EphemeralDisk {
            size_mb: 10,
            ..Default::default()
        }),
        reschedule_policy: Some(reschedule),
        ..TaskGroup::default()
    };
    Job {
        id: "j".into(),
        name: "j".into(),
        namespace: "default".into(),
        r#type: kind.into(),
        priority: 50,
        datacenters: vec!["*".to_owned()].into(),
        node_pool: "default".into(),
        task_groups: vec![group].into(),
        create_index: 1,
        ..Job::default()
    }
}

/// An update strategy that replaces so many at a time.
pub fn update(max_parallel: i64, canary: i64) -> UpdateStrategy {
    UpdateStrategy {
        max_parallel,
        canary,
        progress_deadline: 600 * SECOND,
        ..Default::default()
    }
}
