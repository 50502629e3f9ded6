use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_events::model::{CsiControllerInfo, CsiInfo};
use drover_events::node::NodeRegistered;
use drover_testkit::fixtures;

use super::*;
use crate::volumes::harness::{World, volume};

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
    assert_eq!(world.strict.calls(), [""; 0], "nobody was asked");
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
