//! Host volumes: registration, readiness, use, and which group holds a sticky one.

use drover_events::cluster::VersionBarrierRaised;
use drover_events::gojson::Map;
use drover_events::host_volume::*;
use drover_events::model::*;
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_events::node::{NodeStatusUpdated, NodesDeregistered};

use super::csi::{reported, world, world_at};
use super::*;
use crate::Scan;
use crate::tables::host_volume_claims::HostVolumeClaims;
use crate::tables::host_volumes::HostVolumes;

fn volume(number: u32, name: &str, node: u32) -> HostVolume {
    HostVolume {
        namespace: "default".into(),
        id: id(number),
        name: name.into(),
        plugin_id: "mkdir".into(),
        node_id: id(node),
        ..HostVolume::default()
    }
}

fn registers(volume: HostVolume) -> HostVolumeRegistered {
    HostVolumeRegistered { volume }
}

fn row(world: &World, number: u32) -> HostVolume {
    let key = ("default", &*id(number));
    world.view().get::<HostVolumes>(key).unwrap().unwrap()
}

fn claims(world: &World) -> Vec<TaskGroupHostVolumeClaim> {
    let view = world.view();
    let rows = view.scan::<HostVolumeClaims>(Scan::all());
    rows.collect::<Result<_, _>>().unwrap()
}

/// A node that has the volume.
fn offers(number: u32, volume: &HostVolume) -> Node {
    let offered = ClientHostVolumeConfig {
        name: volume.name.clone(),
        id: volume.id.clone(),
        path: "/v".into(),
        ..ClientHostVolumeConfig::default()
    };
    Node {
        host_volumes: Map::from([(volume.name.clone(), offered)]),
        ..node(number)
    }
}

fn sticky_job(name: &str) -> Job {
    let mut job = job(name);
    let request = VolumeRequest {
        r#type: "host".into(),
        source: "data".into(),
        sticky: true,
        ..VolumeRequest::default()
    };
    let mut group = job.task_groups[0].clone();
    group.volumes = Map::from([("v", request)]);
    job.task_groups = vec![group].into();
    job
}

#[test]
fn a_volume_is_ready_when_its_node_says_that_it_has_it() {
    let mut world = world();
    assert!(
        world
            .refused(registers(volume(70, "data", 10)))
            .contains("not found")
    );
    world.given(registered(node(10)));
    world.given(registers(volume(70, "data", 10)));
    let made = world.index;
    assert_eq!(row(&world, 70).state, "pending");
    assert_eq!(row(&world, 70).node_pool, "default");
    world.given(registered(offers(10, &volume(70, "data", 10))));
    assert_eq!(row(&world, 70).state, "ready");
    assert_eq!(
        (row(&world, 70).create_index, row(&world, 70).modify_index),
        (made, world.index)
    );
    let mut renamed = volume(70, "other", 10);
    assert_eq!(
        world.refused(registers(renamed.clone())),
        "volume name cannot be updated"
    );
    renamed.id = id(71);
    renamed.name = "data".into();
    assert!(world.refused(registers(renamed)).contains("is on node"));
    let delete = NamespacesDeleted {
        names: vec!["default".into()],
    };
    assert!(world.refused(delete).contains("default namespace"));
}

#[test]
fn ns_07_a_namespace_with_a_host_volume_stays_until_that_is_gone() {
    let mut world = world();
    world.given(registered(node(10)));
    world.given(NamespacesUpserted {
        namespaces: vec![Namespace {
            name: "prod".into(),
            ..Namespace::default()
        }],
    });
    let mut prod = volume(70, "data", 10);
    prod.namespace = "prod".into();
    world.given(registers(prod));
    let delete = NamespacesDeleted {
        names: vec!["prod".into()],
    };
    let text = format!(
        "namespace \"prod\" contains at least one host volume \"{}\". All host volumes in \
         namespace must be deleted before it can be deleted",
        id(70)
    );
    assert_eq!(world.refused(delete.clone()), text);
    world.given(HostVolumeDeleted {
        namespace: "prod".into(),
        volume_id: id(70),
        force: false,
    });
    world.given(delete);
}

#[test]
fn a_volume_in_use_stays_and_goes_with_what_groups_hold_of_it() {
    let mut world = world();
    world.given(registered(node(10)));
    world.given(registers(volume(70, "data", 10)));
    world.given(submitted(sticky_job("web")));
    let web = world.index;
    world.given(placed(vec![alloc(40, "web", 10)], web));
    let first = claims(&world);
    assert_eq!(first.len(), 1);
    assert_eq!(
        (first[0].volume_id.as_str(), first[0].alloc_id.as_str()),
        (&*id(70), &*id(40))
    );
    assert!(uuid_like(&first[0].id), "{}", first[0].id);
    let deleted = HostVolumeDeleted {
        namespace: "default".into(),
        volume_id: id(70),
        force: false,
    };
    let text = format!("volume {} in use by allocations: [{}]", id(70), id(40));
    assert_eq!(world.refused(deleted.clone()), text);
    // A replacement goes on with the same claim.
    world.given(reported(&[40], "failed"));
    world.given(placed(vec![alloc(41, "web", 10)], web));
    let next = claims(&world);
    assert_eq!((next.len(), next[0].id.as_str()), (1, first[0].id.as_str()));
    assert_eq!(next[0].alloc_id, id(41));
    let release = |claim_id: &str| HostVolumeClaimReleased {
        claim_id: claim_id.into(),
    };
    assert_eq!(world.refused(release(&id(99))), "claim not found");
    world.given(release(&next[0].id));
    assert!(claims(&world).is_empty());
    world.given(reported(&[41], "complete"));
    world.given(placed(vec![alloc(42, "web", 10)], web));
    assert_ne!(
        claims(&world)[0].id,
        first[0].id,
        "another claim is another one"
    );
    world.given(reported(&[42], "complete"));
    world.given(deleted.clone());
    assert!(claims(&world).is_empty());
    assert_eq!(
        world.refused(deleted),
        format!("no such volume: {}", id(70))
    );
}

/// A world whose servers follow nodes with their volumes.
fn following() -> World {
    let mut world = world();
    world.given(VersionBarrierRaised {
        level: HOST_VOLUME_LEVEL,
        ..VersionBarrierRaised::default()
    });
    world
}

fn heard(node: u32, status: &str) -> NodeStatusUpdated {
    NodeStatusUpdated {
        node_id: id(node),
        status: status.into(),
        ..NodeStatusUpdated::default()
    }
}

#[test]
fn a_volume_is_there_as_long_as_its_node_is_and_has_it() {
    let mut world = following();
    let data = volume(70, "data", 10);
    world.given(registered(node(10)));
    world.given(registers(data.clone()));
    world.given(registered(node(10)));
    assert_eq!(row(&world, 70).state, "pending", "it never was there");
    world.given(heard(10, "down"));
    world.given(heard(10, "ready"));
    assert_eq!(row(&world, 70).state, "pending");
    world.given(registered(offers(10, &data)));
    let ready = row(&world, 70);
    assert_eq!(
        (ready.state.as_str(), ready.host_path.as_str()),
        ("ready", "/v")
    );
    // The same again is no change.
    world.given(registered(offers(10, &data)));
    world.given(heard(10, "ready"));
    assert_eq!(row(&world, 70), ready);
    for status in ["down", "disconnected"] {
        world.given(heard(10, status));
        assert_eq!(row(&world, 70).state, "unavailable", "{status}");
        assert_eq!(row(&world, 70).modify_index, world.index);
        world.given(heard(10, "ready"));
        assert_eq!(row(&world, 70).state, "ready", "{status}");
    }
    // The node is back without it.
    world.given(heard(10, "down"));
    world.given(registered(node(10)));
    world.given(heard(10, "ready"));
    assert_eq!(row(&world, 70).state, "unavailable");
    world.given(registered(offers(10, &data)));
    assert_eq!(row(&world, 70).state, "ready");
    world.given(NodesDeregistered {
        node_ids: vec![id(10)],
        ..NodesDeregistered::default()
    });
    assert_eq!(row(&world, 70).state, "unavailable");
    world.given(registered(offers(10, &data)));
    assert_eq!(row(&world, 70).state, "ready", "the node came back");
}

#[test]
fn volumes_go_with_a_node_that_says_so() {
    let mut world = following();
    let data = volume(70, "data", 10);
    let mut node = offers(10, &data);
    node.gc_volumes_on_node_gc = true;
    world.given(registered(node));
    world.given(registers(data.clone()));
    world.given(submitted(sticky_job("web")));
    let web = world.index;
    world.given(placed(vec![alloc(40, "web", 10)], web));
    assert_eq!(claims(&world).len(), 1);
    world.given(NodesDeregistered {
        node_ids: vec![id(10)],
        ..NodesDeregistered::default()
    });
    let key = ("default", &*id(70));
    assert_eq!(world.view().get::<HostVolumes>(key).unwrap(), None);
    assert!(claims(&world).is_empty());
}

#[test]
fn servers_of_before_do_not_follow_nodes() {
    let mut world = world_at(HOST_VOLUME_LEVEL - 1);
    let data = volume(70, "data", 10);
    world.given(registered(node(10)));
    world.given(registers(data.clone()));
    world.given(registered(offers(10, &data)));
    let ready = row(&world, 70);
    assert_eq!(
        (ready.state.as_str(), ready.host_path.as_str()),
        ("ready", "")
    );
    world.given(heard(10, "down"));
    world.given(registered(node(10)));
    assert_eq!(row(&world, 70), ready);
}

fn uuid_like(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.as_bytes()[14] == b'4'
}
