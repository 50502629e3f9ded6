use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_events::model::{CsiControllerInfo, CsiInfo, CsiTopology, CsiTopologyRequest};
use drover_events::node::NodeRegistered;
use drover_testkit::fixtures;

use super::*;
use crate::volumes::harness::{World, volume};
use crate::volumes::testing::Fault;

/// A plugin whose controller runs on a node of its own.
fn plugin(world: &World, id: &str) {
    let mut node = fixtures::node(9);
    let info = CsiInfo {
        plugin_id: id.into(),
        healthy: true,
        requires_controller_plugin: true,
        controller_info: Some(CsiControllerInfo::default()),
        ..CsiInfo::default()
    };
    node.csi_controller_plugins = [(id, info)].into();
    world.direct.apply(NodeRegistered {
        node: Box::new(node),
        ..NodeRegistered::default()
    });
}

#[tokio::test]
async fn csi_02_what_is_known_of_a_volume_is_shown_to_no_other_plugin() {
    let world = World::new(1);
    plugin(&world, "other");
    world.volume("data", ONE);
    let changes: [fn(&mut CsiVolume); 2] = [
        |new| new.plugin_id = "other".into(),
        |new| new.external_id = "of somebody else".into(),
    ];
    for change in changes {
        let mut new = volume("data", ONE);
        change(&mut new);
        for work in ["register", "create"] {
            let (new, origin) = (vec![new.clone()], Origin::default());
            let refused = match work {
                "create" => world.volumes.create(new, &origin).await,
                _ => world.volumes.register(new, &origin).await,
            };
            let refused = refused.unwrap_err();
            let text = "volume identity cannot be updated: data";
            assert_eq!(refused.to_string(), text, "{work}");
        }
    }
    assert_eq!(world.strict.calls(), [""; 0], "no plugin was called");
    let same = vec![volume("data", ONE)];
    let registered = world.volumes.register(same, &Origin::default()).await;
    registered.unwrap();
    assert_eq!(world.strict.count("ControllerValidate"), 1);
}

#[tokio::test]
async fn csi_05_nothing_is_made_for_a_namespace_that_is_not_there() {
    let world = World::new(1);
    for namespace in ["nowhere", "*", "default*"] {
        let mut new = volume("new", ONE);
        (new.namespace, new.external_id) = (namespace.into(), String::new());
        let new = vec![volume("fine", ONE), new];
        let origin = Origin::default();
        let created = world.volumes.create(new.clone(), &origin).await;
        let registered = world.volumes.register(new, &origin).await;
        for refused in [created.unwrap_err(), registered.unwrap_err()] {
            let text = format!("volume \"new\" is in nonexistent namespace \"{namespace}\"");
            assert_eq!(refused.to_string(), text);
        }
    }
    assert_eq!(world.strict.calls(), [""; 0], "no provider made anything");
}

#[tokio::test]
async fn what_one_row_stands_for_is_registered_by_no_other() {
    let world = World::new(1);
    let origin = Origin::default();
    let named = |id: &str| CsiVolume {
        external_id: "vol-1".into(),
        ..volume(id, ONE)
    };
    // Of two that come at once, and of two of one request, one at most is registered.
    let both = vec![named("one"), named("two")];
    let refused = world.volumes.register(both, &origin).await.unwrap_err();
    let text = "volume \"vol-1\" of plugin \"strict\" is registered as \"one\" in namespace \
                \"default\"";
    assert_eq!(refused.to_string(), text);
    let register = |id: &str| world.volumes.register(vec![named(id)], &origin);
    let (one, two) = tokio::join!(register("one"), register("two"));
    one.unwrap();
    assert_eq!(two.unwrap_err().to_string(), text);
    // The row itself is described again, and another plugin's volume is another one.
    register("one").await.unwrap();
    plugin(&world, "other");
    let elsewhere = CsiVolume {
        plugin_id: "other".into(),
        ..named("three")
    };
    let elsewhere = world.volumes.register(vec![elsewhere], &origin).await;
    elsewhere.unwrap();
    // While it may still be deleted, too.
    let key = ("default".to_owned(), "one".to_owned());
    world
        .strict
        .fault("ControllerDeleteVolume", &[Fault::Later]);
    let deleted = world.volumes.delete(&key, Secrets::default(), &origin);
    deleted.await.unwrap_err();
    assert_eq!(register("two").await.unwrap_err().to_string(), text);
}

#[tokio::test]
async fn csi_02_who_registers_a_volume_twice_at_once_registers_it_once() {
    let world = World::new(1);
    let (origin, before) = (Origin::default(), world.index());
    world
        .strict
        .fault("ControllerValidateVolume", &[Fault::Slow(2_000)]);
    let register = || world.volumes.register(vec![volume("data", ONE)], &origin);
    let (one, two) = tokio::join!(register(), register());
    let indexes = BTreeSet::from([one.unwrap().1, two.unwrap().1]);
    assert_eq!(indexes, BTreeSet::from([0, before + 1]));
    assert_eq!(world.index(), before + 1, "one event");
}

fn zone(name: &str) -> CsiTopology {
    CsiTopology {
        segments: [("zone", name.to_owned())].into(),
    }
}

#[tokio::test]
async fn csi_03_a_volume_that_is_registered_is_where_its_request_says() {
    let world = World::new(1);
    let origin = Origin::default();
    let with_topologies = |required: &[&str], preferred: &[&str]| {
        let zones = |names: &[&str]| names.iter().map(|name| zone(name)).collect();
        CsiVolume {
            requested_topologies: Some(CsiTopologyRequest {
                required: zones(required),
                preferred: zones(preferred),
            }),
            ..volume("data", ONE)
        }
    };
    let register = |volume: CsiVolume| world.volumes.register(vec![volume], &origin);
    let refused = register(with_topologies(&["z1"], &["z2"]))
        .await
        .unwrap_err();
    let text = "validation: preferred topologies are for volumes that are created";
    assert_eq!((refused.code, &*refused.text), (Code::BadRequest, text));
    assert_eq!(world.strict.calls(), [""; 0]);
    register(with_topologies(&["z1", "z2"], &[])).await.unwrap();
    let is = || world.row("data").volume.topologies.to_vec();
    assert_eq!(is(), [zone("z1"), zone("z2")]);
    // The same again changes nothing, and other topologies are refused.
    register(with_topologies(&["z1", "z2"], &[])).await.unwrap();
    let mut moved = volume("data", ONE);
    moved.topologies = vec![zone("z3")].into();
    let refused = register(moved).await.unwrap_err();
    assert_eq!(refused.to_string(), "volume topology cannot be updated");
    assert_eq!(is(), [zone("z1"), zone("z2")]);
}
