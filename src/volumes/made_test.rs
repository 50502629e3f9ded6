use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;

use super::*;
use crate::proposer::Origin;
use crate::volumes::harness::{World, volume};
use crate::volumes::testing::Fault;

/// A volume that is to be made, and what it is to be like.
fn new(id: &str, is: impl FnOnce(&mut CsiVolume)) -> Vec<CsiVolume> {
    let mut new = volume(id, ONE);
    new.external_id = String::new();
    is(&mut new);
    vec![new]
}

fn zone(name: &str) -> CsiTopology {
    CsiTopology {
        segments: [("zone", name.to_owned())].into(),
    }
}

#[tokio::test]
async fn csi_46_a_volume_is_made_as_large_and_where_and_from_what_was_asked_for() {
    let world = World::new(1);
    world.node_knows_places(0);
    let origin = Origin::default();
    let topologies = CsiTopologyRequest {
        required: vec![zone("z1"), zone("z2")].into(),
        preferred: vec![zone("z2")].into(),
    };
    for (id, snapshot, clone) in [("one", "snap", ""), ("two", "", "far")] {
        let requested = new(id, |new| {
            (new.snapshot_id, new.clone_id) = (snapshot.into(), clone.into());
            new.requested_capacity_min = 10;
            new.requested_capacity_max = 20;
            new.requested_topologies = Some(topologies.clone());
        });
        world.volumes.create(requested, &origin).await.unwrap();
        let requested = world.strict.made_as(&format!("made-{id}"));
        assert_eq!(
            (&*requested.snapshot_id, &*requested.clone_id),
            (snapshot, clone)
        );
        assert_eq!((requested.capacity_min, requested.capacity_max), (10, 20));
        assert_eq!(requested.requested_topologies.as_ref(), Some(&topologies));
    }
}

#[tokio::test]
async fn csi_46_what_was_made_from_something_else_is_not_taken_for_what_was_asked_for() {
    let world = World::new(1);
    let origin = Origin::default();
    let create = |snapshot: &str, clone: &str| {
        let requested = new("new", |new| {
            (new.snapshot_id, new.clone_id) = (snapshot.into(), clone.into());
        });
        world.volumes.create(requested, &origin)
    };
    for (snapshot, clone, wanted) in [
        ("snap", "", "snapshot \"snap\""),
        ("", "far", "volume \"far\""),
    ] {
        world.strict.fault("ControllerCreateVolume", &[Fault::Lies]);
        let refused = create(snapshot, clone).await.unwrap_err();
        let text = format!(
            "controller create volume: plugin \"strict\" made volume \"made-another\" from nothing \
             and not from {wanted}; it stays at the provider: delete it there, or give the new one \
             another name"
        );
        assert_eq!(refused.to_string(), text);
        assert!(world.known("new").is_none());
    }
    create("snap", "").await.unwrap();
    assert!(world.known("new").is_some());
}

#[tokio::test]
async fn csi_46_a_plugin_that_knows_no_places_is_asked_for_none() {
    let world = World::new(1);
    let origin = Origin::default();
    let create = |required: Vec<CsiTopology>, preferred: Vec<CsiTopology>| {
        let (required, preferred) = (required.into(), preferred.into());
        let topologies = CsiTopologyRequest {
            required,
            preferred,
        };
        let requested = new("new", |new| new.requested_topologies = Some(topologies));
        world.volumes.create(requested, &origin)
    };
    let text = "plugin \"strict\" makes volumes for every node: it takes no topology_request";
    for (required, preferred) in [(vec![zone("z1")], vec![]), (vec![], vec![zone("z1")])] {
        let refused = create(required, preferred).await.unwrap_err();
        assert_eq!(refused.to_string(), text);
    }
    assert_eq!(world.strict.calls(), [""; 0], "no plugin was called");
    create(vec![], vec![]).await.unwrap();
    assert_eq!(world.strict.made_as("made-new").requested_topologies, None);
}
