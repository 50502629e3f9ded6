//! Requests of servers, and what becomes of them.

use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::model::{CsiTopology, CsiTopologyRequest};
use serde_json::Value;

use super::registry::PluginKind;
use super::testing::{World, call, detaching, found, seen, user};
use super::*;
use drover_error::Code;
use drover_rpc::csi::*;

#[tokio::test]
async fn csi_34_csi_45_plg_09_a_volume_is_taken_back_once_by_its_plugin_from_nobody_who_lives() {
    let world = World::new();
    let csi = world.csi();
    let detach = detaching();
    // What was never mounted needs no plugin to be taken back.
    call::<NodeDetachVolume>(&csi, &detach).await.unwrap();

    let fake = world.fake();
    world
        .register(&csi, "plug", PluginKind::Monolith, found(true))
        .await;
    let (hook, given) = world.hook(&csi, user(&Value::Null));
    hook.prerun(&given, &Value::Null).await.unwrap();
    let count = |name: &str| seen(&fake, name).len();
    // CSI-45: what was is not reported to be done without it.
    csi.registry.deregister("plug", "t").await;
    let error = call::<NodeDetachVolume>(&csi, &detach).await.unwrap_err();
    let text = "no node plugin \"p\" runs on this node";
    assert_eq!((error.code, &*error.message), (Code::Unavailable, text));
    world
        .register(&csi, "plug", PluginKind::Monolith, found(true))
        .await;
    // Nor is it taken from an allocation that may still write, whatever servers think became of it.
    let lives = Arc::new(AtomicBool::new(true));
    let is_living = Arc::clone(&lives);
    csi.knows(move |_| match is_living.load(Ordering::Relaxed) {
        true => AllocKnowledge::Lives,
        false => AllocKnowledge::Ended,
    });
    let error = call::<NodeDetachVolume>(&csi, &detach).await.unwrap_err();
    let text = "allocation a1 has not ended on this node";
    assert_eq!((error.code, &*error.message), (Code::Unavailable, text));
    assert_eq!(count("NodeUnpublish"), 0);
    lives.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
        assert_eq!(
            (count("NodeUnpublish"), count("NodeUnstage")),
            (1, 1),
            "CSI-34"
        );
    }
}

#[tokio::test]
async fn plg_09_servers_reach_plugins_and_what_they_refuse_is_told_in_their_words() {
    let (_world, csi, fake) = World::ready().await;
    let attach = ControllerAttachVolumeRequest {
        plugin_id: "p".to_owned(),
        volume_id: "far-vol".to_owned(),
        attachment_mode: "file-system".to_owned(),
        access_mode: "single-node-writer".to_owned(),
        ..ControllerAttachVolumeRequest::default()
    };
    call::<ControllerAttachVolume>(&csi, &attach).await.unwrap();
    let mut odd = attach.clone();
    odd.access_mode = "everybody".to_owned();
    let error = call::<ControllerAttachVolume>(&csi, &odd)
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::BadRequest);
    let gone = drover_csi::Code::NotFound;
    *fake.says.refuses.lock().unwrap() = Some(fake.status(gone, "no volume"));
    let error = call::<ControllerAttachVolume>(&csi, &attach)
        .await
        .unwrap_err();
    let text = "ControllerPublishVolume: NotFound: no volume";
    assert_eq!((error.code, &*error.message), (Code::Refused, text));
}

#[tokio::test]
async fn csi_05_a_plugin_that_makes_used_volumes_no_larger_is_not_asked_to() {
    let (world, csi, fake) = World::ready().await;
    let expand_request = |in_use: bool| ControllerExpandVolumeRequest {
        plugin_id: "p".to_owned(),
        external_volume_id: "far-vol".to_owned(),
        required_bytes: 10,
        in_use,
        ..ControllerExpandVolumeRequest::default()
    };
    let expand =
        async |in_use: bool| call::<ControllerExpandVolume>(&csi, &expand_request(in_use)).await;
    let count = || seen(&fake, "ControllerExpand").len();
    expand(true).await.unwrap();
    assert_eq!(count(), 1, "others are called");
    let mut offline = found(true);
    offline.features.plugin.offline_expansion_only = true;
    world
        .register(&csi, "plug", PluginKind::Monolith, offline)
        .await;
    let error = expand(true).await.unwrap_err();
    let text = "plugin \"p\" makes volumes larger only while nobody has them";
    assert_eq!((error.code, &*error.message), (Code::Conflict, text));
    assert_eq!(count(), 1);
    expand(false).await.unwrap();
    assert_eq!(count(), 2);
}

#[tokio::test]
async fn csi_46_what_a_volume_is_to_be_made_from_and_how_large_and_where_reaches_its_plugin() {
    let (_world, csi, fake) = World::ready().await;
    let zone = |name: &str| CsiTopology {
        segments: [("zone", name.to_owned())].into(),
    };
    for (snapshot, clone, from) in [
        (
            "snap",
            "",
            "Snapshot(SnapshotSource { snapshot_id: \"snap\" })",
        ),
        ("", "far", "Volume(VolumeSource { volume_id: \"far\" })"),
        // One of both is meant: the plugin takes one.
        (
            "snap",
            "far",
            "Snapshot(SnapshotSource { snapshot_id: \"snap\" })",
        ),
    ] {
        let requested = ControllerCreateVolumeRequest {
            plugin_id: "p".to_owned(),
            name: "new".to_owned(),
            capacity_min: 10,
            capacity_max: 20,
            snapshot_id: snapshot.to_owned(),
            clone_id: clone.to_owned(),
            requested_topologies: Some(CsiTopologyRequest {
                required: vec![zone("z1"), zone("z2")].into(),
                preferred: vec![zone("z2")].into(),
            }),
            ..ControllerCreateVolumeRequest::default()
        };
        let made = call::<ControllerCreateVolume>(&csi, &requested)
            .await
            .unwrap();
        let requested = seen(&fake, "CreateVolume").pop().unwrap();
        let segments = |zone: &str| format!("Topology {{ segments: {{\"zone\": \"{zone}\"}} }}");
        for reported in [
            from.to_owned(),
            "required_bytes: 10, limit_bytes: 20".to_owned(),
            format!("requisite: [{}, {}]", segments("z1"), segments("z2")),
            format!("preferred: [{}]", segments("z2")),
        ] {
            assert!(
                requested.contains(&reported),
                "{reported} is not in {requested}"
            );
        }
        // And what it was made from is reported.
        let clone = if snapshot.is_empty() { clone } else { "" };
        assert_eq!((&*made.snapshot_id, &*made.clone_id), (snapshot, clone));
    }
}
