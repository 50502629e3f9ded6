//! What servers ask, and what becomes of it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::registry::Kind;
use super::testing::{World, call, detaching, found, seen, user};
use super::*;
use crate::error::Code;
use crate::rpc::csi::*;

#[tokio::test]
async fn csi_34_csi_45_a_volume_is_taken_back_once_by_its_plugin_and_from_nobody_who_lives() {
    let world = World::new();
    let csi = world.csi();
    let detach = detaching();
    // What was never mounted needs no plugin to be taken back.
    call::<NodeDetachVolume>(&csi, &detach).await.unwrap();

    let fake = world.fake();
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    let (hook, given) = world.hook(&csi, user(&Value::Null));
    hook.prerun(&given, &Value::Null).await.unwrap();
    let count = |name: &str| seen(&fake, name).len();
    // CSI-45: what was is not said to be done without it.
    csi.registry.deregister("plug", "t").await;
    let error = call::<NodeDetachVolume>(&csi, &detach).await.unwrap_err();
    let text = "no node plugin \"p\" runs on this node";
    assert_eq!((error.code, &*error.message), (Code::Unavailable, text));
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    // Nor is it taken from who may still write, whatever servers think became of him.
    let lives = Arc::new(AtomicBool::new(true));
    let is_living = Arc::clone(&lives);
    csi.knows(move |_| match is_living.load(Ordering::Relaxed) {
        true => Known::Lives,
        false => Known::Ended,
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
