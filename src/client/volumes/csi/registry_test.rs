//! Which plugins a node has, and how they are.

use std::collections::BTreeMap;

use drover_events::model::CsiInfo;
use futures_util::FutureExt;

use super::registry::PluginKind;
use super::testing::{World, found};
use super::*;
use crate::journal::alloc_key;

#[tokio::test]
async fn mod_08_plugins_are_known_by_name_and_part_and_again_after_a_restart() {
    let world = World::new();
    let csi = world.csi();
    world
        .register(&csi, "old", PluginKind::Monolith, found(true))
        .await;
    world
        .register(&csi, "new", PluginKind::Node, found(false))
        .await;
    // A caller that waits for what is reported to servers of them is woken by it, once.
    let hears = |csi: &Csi| {
        csi.describe();
        csi.described().now_or_never().is_some()
    };
    assert!(hears(&csi) && !hears(&csi));
    let found_alloc = |csi: &Csi, part| {
        let found = csi.registry.find(part, "p").into_iter().next();
        found.map(|live| live.instance.alloc)
    };
    // PLG-11: the newest that is healthy, during an update.
    assert_eq!(found_alloc(&csi, CsiPart::Node), Some("old".to_owned()));
    assert!(csi.registry.update(("new", "t"), found(true)).await);
    assert_eq!(found_alloc(&csi, CsiPart::Node), Some("new".to_owned()));
    assert_eq!(
        found_alloc(&csi, CsiPart::Controller),
        Some("old".to_owned())
    );
    assert!(csi.part(CsiPart::Node, "other").await.is_err());

    // A new agent, which knows one of the two allocations.
    world
        .journal
        .put(&alloc_key("old"), b"x".to_vec())
        .await
        .unwrap();
    let later = world.restarted();
    assert_eq!(found_alloc(&later, CsiPart::Node), Some("old".to_owned()));
    assert_eq!(later.registry.all().len(), 1);
    // Nothing is done with it before it has reported what it can.
    assert!(later.part(CsiPart::Node, "p").await.is_err());
    let _fake = world.fake();
    let live = later.part(CsiPart::Node, "p").await.unwrap();
    assert!(live.found.features.node.unwrap().stage);

    assert!(csi.registry.deregister("old", "t").await);
    assert!(!csi.registry.deregister("old", "t").await);
    assert!(hears(&csi) && !hears(&csi));
    assert!(csi.part(CsiPart::Controller, "p").await.is_err());
}

#[tokio::test]
async fn plg_11_to_servers_a_plugin_is_what_it_was_until_a_new_agent_knows_better() {
    let world = World::new();
    let csi = world.csi();
    world
        .register(&csi, "old", PluginKind::Monolith, found(true))
        .await;
    let key = alloc_key("old");
    world.journal.put(&key, b"x".to_vec()).await.unwrap();
    let later = world.restarted();
    // It has not answered yet, and is to servers what it was.
    let reported = |node: &Node| {
        let parts = [&node.csi_node_plugins, &node.csi_controller_plugins];
        parts.map(|part| {
            part.get("p")
                .map(|info| (info.alloc_id.clone(), info.healthy))
        })
    };
    let as_before = Some(("old".to_owned(), true));
    assert_eq!(reported(&world.node.lock()), [as_before.clone(), as_before]);

    // It is there until it is found, or is not: then it goes.
    assert!(later.registry.deregister("old", "t").await);
    later.describe();
    assert_eq!(reported(&world.node.lock()), [None, None]);
    // What an older agent wrote says nothing of that.
    let older = rmp_serde::to_vec_named(&[world.instance("old", PluginKind::Node)]).unwrap();
    let key = "dynamicplugins/registry_state";
    world.journal.put(key, older).await.unwrap();
    let later = world.restarted();
    assert_eq!(later.registry.find(CsiPart::Node, "p").len(), 1);
    assert_eq!(reported(&world.node.lock()), [None, None]);
}

#[tokio::test]
async fn plg_04_the_node_says_which_plugins_it_has_and_how_they_are() {
    let world = World::new();
    let csi = world.csi();
    let reported = |node: &Node| {
        let shown = |(name, info): (&String, &CsiInfo)| {
            let of = (
                info.alloc_id.clone(),
                info.healthy,
                info.health_description.clone(),
            );
            (name.clone(), of)
        };
        let nodes: BTreeMap<_, _> = node.csi_node_plugins.iter().map(shown).collect();
        let controllers = node.csi_controller_plugins.len();
        (nodes.get("p").cloned(), controllers)
    };
    let of = |alloc: &str, healthy, text: &str| Some((alloc.to_owned(), healthy, text.to_owned()));
    world
        .register(&csi, "a1", PluginKind::Monolith, found(true))
        .await;
    csi.describe();
    csi.described().await;
    let node = world.node.lock().clone();
    assert_eq!(reported(&node), (of("a1", true, "healthy"), 1));
    let info = &node.csi_node_plugins["p"];
    assert_eq!(
        (&*info.provider, &*info.provider_version),
        ("fake.example.com", "1.2.3")
    );
    assert!(info.requires_controller_plugin && info.controller_info.is_none());
    let of_node = info.node_info.as_ref().unwrap();
    assert!(of_node.requires_node_stage_volume);
    assert_eq!(of_node.id, "far-node");

    // The same again is no news.
    csi.describe();
    assert!(csi.described().now_or_never().is_none());
    // One that is not healthy does not hide one that is.
    world
        .register(&csi, "a2", PluginKind::Node, found(false))
        .await;
    csi.describe();
    assert_eq!(reported(&world.node.lock()), (of("a1", true, "healthy"), 1));
    csi.registry.update(("a1", "t"), found(false)).await;
    csi.describe();
    let sick = of("a2", false, "it says nothing");
    assert_eq!(reported(&world.node.lock()), (sick, 1));
    for alloc in ["a1", "a2"] {
        csi.registry.deregister(alloc, "t").await;
    }
    csi.describe();
    assert_eq!(reported(&world.node.lock()), (None, 0));
}
