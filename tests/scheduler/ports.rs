//! Ports on nodes with more than one address.

use drover_events::model::{NetworkResource, NodeNetworkAddress, Port};

use super::world::World;
use drover_testkit::fixtures::{job, node};

#[test]
fn a_static_port_is_not_taken_to_another_address_of_the_node() {
    let mut job = job("service", 2);
    let fixed = Port {
        label: "web".into(),
        value: 8080,
        ..Port::default()
    };
    job.task_groups[0].networks = vec![NetworkResource {
        reserved_ports: vec![fixed].into(),
        ..NetworkResource::default()
    }]
    .into();
    let mut world = World::new(0, job);
    let mut both = node(1);
    let networks = &mut both.node_resources.as_mut().unwrap().node_networks;
    let second = NodeNetworkAddress {
        family: "ipv6".into(),
        alias: "default".into(),
        address: "::1".into(),
        ..Default::default()
    };
    networks[0].addresses.extend([second]);
    world.add_node(both);
    let outcome = world.run("job-register");
    assert_eq!(world.live().len(), 1);
    let reasons = &outcome.failed["g"].dimension_exhausted;
    assert_eq!(
        reasons.get("network: reserved port collision web=8080"),
        Some(&1)
    );
}
