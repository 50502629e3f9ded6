//! What plugins are called for, with what, and what is shown of volumes: over HTTP, with a client
//! that answers as one does.

use drover_events::model::CsiSnapshot;
use serde_json::{Value, json};

use super::harness::Reply;
use super::volume_world_test::{BAD, World, volume};
use crate::proposer::Origin;

pub(super) const DEFAULT: &str = "default";

pub(super) fn status_and_text(reply: &Reply) -> (u16, String) {
    (reply.status, reply.text())
}

pub(super) fn one(volume: &Value) -> Value {
    json!({ "Volumes": [volume] })
}

/// A change of what describes a volume.
fn with(id: &str, field: &str, value: Value) -> Value {
    let mut volume = volume(id);
    volume[field] = value;
    volume
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_02_what_its_plugin_does_not_confirm_is_nowhere_and_is_no_event() {
    let world = World::open().await;
    let list = "/v1/volumes?type=csi";
    let before = world.h.get(list).await.index();
    let events = async || {
        let all = world.h.get("/v1/audit?per_page=1000").await.text();
        all.matches("\"CsiVolumesRegistered\"").count()
    };
    let refused = async |volume: Value, text: &str| {
        let target = format!("/v1/volume/csi/{}", volume["ID"].as_str().unwrap());
        let reply = world.h.put(&target, &one(&volume)).await;
        assert_eq!(reply.status, 500, "{}", reply.text());
        assert!(reply.text().contains(text), "{}", reply.text());
        assert_eq!(status_and_text(&world.h.get(&target).await).0, 404);
    };
    let text =
        "controller validate volume: ValidateVolumeCapabilities: NotFound: no volume \"bad\"";
    refused(with("data", "ExternalID", json!(BAD)), text).await;
    assert_eq!(world.requested.names(), ["ControllerValidateVolume"]);
    let typo = with("data", "PluginID", json!("pp"));
    refused(typo, "no CSI plugin named: pp could be found").await;
    world.report(false, "").await;
    refused(
        volume("data"),
        "failed to find clients running controller plugin \"p\"",
    )
    .await;
    assert_eq!(
        world.requested.names().len(),
        1,
        "nobody was asked but once"
    );
    let listed = world.h.get(list).await;
    assert_eq!((listed.index(), listed.text()), (before, "[]".to_owned()));
    assert_eq!(events().await, 0, "nothing of it is in the log");
    world.report(true, "").await;
    world.register(DEFAULT, "data").await;
    assert_eq!(events().await, 1, "once it is confirmed");
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_06_whatever_describes_a_volume_is_held_to_the_same_rules() {
    let world = World::open().await;
    world.register(DEFAULT, "known").await;
    let odd = json!([{"AccessMode": "odd", "AttachmentMode": "file-system"}]);
    let other = json!([{"AccessMode": "single-node-writer", "AttachmentMode": "block-device"}]);
    for (volume, text) in [
        (with("data", "PluginID", json!("")), "missing plugin id"),
        (
            with("data", "RequestedCapabilities", json!([])),
            "at least one capability",
        ),
        (
            with("data", "RequestedCapabilities", odd),
            "unknown access mode \"odd\"",
        ),
        (
            with("data", "RequestedCapacityMin", json!(-1)),
            "is no range",
        ),
        (
            with("data", "Namespace", json!("nowhere")),
            "nonexistent namespace",
        ),
        // One that is there stays what it is.
        (
            with("known", "PluginID", json!("q")),
            "no CSI plugin named: q",
        ),
        (
            with("known", "ExternalID", json!("another")),
            "identity cannot be updated",
        ),
        (
            with("known", "Parameters", json!({"tier": "tin"})),
            "parameters cannot be updated",
        ),
        (
            with("known", "RequestedCapabilities", other),
            "capabilities update",
        ),
    ] {
        let id = volume["ID"].as_str().unwrap().to_owned();
        let before = world.index();
        let mut reported = Vec::new();
        for target in [
            "/v1/volumes".to_owned(),
            format!("/v1/volume/csi/{id}"),
            format!("/v1/volume/csi/{id}/create"),
        ] {
            let reply = world.h.put(&target, &one(&volume)).await;
            assert!(
                reply.text().contains(text),
                "{target} {text}: {}",
                reply.text()
            );
            reported.push(status_and_text(&reply));
        }
        assert!(
            reported.iter().all(|one| *one == reported[0]),
            "{reported:?}"
        );
        assert_eq!(world.index(), before, "{text}: it is in the log");
    }
    world.h.stop().await;
}

/// What a call of the plugin brings: the name of the volume, and whether there are secrets, opaque
/// parameters and context in it.
type Brings = (&'static str, &'static str, bool, bool, &'static str);

const BRINGS: [Brings; 9] = [
    (
        "ControllerValidateVolume",
        "VolumeID",
        true,
        true,
        "Context",
    ),
    (
        "ControllerAttachVolume",
        "VolumeID",
        true,
        false,
        "VolumeContext",
    ),
    ("ControllerDetachVolume", "VolumeID", true, false, ""),
    (
        "ControllerExpandVolume",
        "ExternalVolumeID",
        true,
        false,
        "",
    ),
    (
        "ControllerDeleteVolume",
        "ExternalVolumeID",
        true,
        false,
        "",
    ),
    (
        "ControllerCreateSnapshot",
        "ExternalSourceVolumeID",
        true,
        false,
        "",
    ),
    ("NodeDetachVolume", "ExternalID", false, false, ""),
    ("NodeExpandVolume", "ExternalID", true, false, ""),
    ("ControllerCreateVolume", "Name", true, true, ""),
];

/// Each call has what its volume is and has, and the node of a controller where one is called.
fn check(calls: &[(&'static str, Value)], node: &str, name: &str, context: &Value) {
    for (method, requested) in calls {
        let brings = BRINGS.iter().find(|one| one.0 == *method);
        let (_, field, secret, parameters, in_context) = brings.expect(method);
        let wanted = if *method == "ControllerCreateVolume" {
            "made"
        } else {
            name
        };
        assert_eq!(requested[field], wanted, "{method}: {requested}");
        assert_eq!(requested["PluginID"], "p", "{method}");
        if *secret {
            assert_eq!(
                requested["Secrets"],
                json!({"key": "canary"}),
                "{method}: {requested}"
            );
        }
        if *parameters {
            assert_eq!(
                requested["Parameters"],
                json!({"tier": "gold"}),
                "{method}: {requested}"
            );
        }
        if !in_context.is_empty() {
            assert_eq!(&requested[in_context], context, "{method}: {requested}");
        }
        match method.starts_with("Controller") {
            true => assert_eq!(requested["ControllerNodeID"], node, "{method}: PLG-06"),
            false => assert_eq!(requested["NodeID"], node, "{method}: {requested}"),
        }
    }
}

/// A volume is claimed, grown where it may be, copied, given back and deleted.
async fn live(world: &World, volume: &Value, grows: bool) {
    let id = volume["ID"].as_str().unwrap();
    let place = (DEFAULT, id);
    let alloc = world.user(place, false).await;
    let taken = world.claim(place, &alloc, false).await.unwrap();
    // What a client is given to go on with.
    assert_eq!(taken.volume.parameters["tier"], "gold");
    assert_eq!(taken.volume.secrets["key"], "canary");
    assert!(!taken.volume.context.is_empty());
    let attach = world.requested.only("ControllerAttachVolume");
    for (field, value) in [
        ("ClientCSINodeID", json!("node-far")),
        ("AttachmentMode", json!("file-system")),
        ("AccessMode", json!("multi-node-multi-writer")),
        ("ReadOnly", json!(false)),
        (
            "MountOptions",
            json!({"FSType": "ext4", "MountFlags": ["noatime"]}),
        ),
    ] {
        assert_eq!(attach[field], value, "{field}");
    }
    if grows {
        let mut larger = volume.clone();
        larger["RequestedCapacityMin"] = json!(50);
        let target = format!("/v1/volume/csi/{id}/create");
        let grown = world.h.put(&target, &one(&larger)).await;
        assert_eq!(
            grown.json()["Volumes"][0]["Capacity"],
            50,
            "{}",
            grown.text()
        );
        assert_eq!(
            world.requested.only("NodeExpandVolume")["AllocID"],
            json!(alloc)
        );
    }
    let volumes = &world.h.server.volumes;
    let snapshot = CsiSnapshot {
        source_volume_id: id.to_owned(),
        name: "s".to_owned(),
        ..CsiSnapshot::default()
    };
    volumes
        .create_snapshots(DEFAULT, vec![snapshot])
        .await
        .unwrap();
    volumes
        .unpublish(place, &alloc, &Origin::default())
        .await
        .unwrap();
    let target = format!("/v1/volume/csi/{id}/delete");
    let gone = world.h.ask("DELETE", &target, "").await;
    assert_eq!(status_and_text(&gone), (200, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_08_csi_09_csi_10_plg_06_every_call_brings_what_the_volume_has() {
    let world = World::open().await;
    let mut seen = std::collections::BTreeSet::new();
    let unnamed = with("plain", "ExternalID", json!(""));
    for (volume, name) in [(volume("far"), "ext-far"), (unnamed, "plain")] {
        let target = format!("/v1/volume/csi/{}", volume["ID"].as_str().unwrap());
        let reply = world.h.put(&target, &one(&volume)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        live(&world, &volume, false).await;
        let calls = world.requested.take();
        check(&calls, &world.node, name, &json!({"zone": "a"}));
        seen.extend(calls.iter().map(|(method, _)| *method));
    }
    // One that the plugin makes, and names.
    let mut wanted = with("made", "ExternalID", json!(""));
    wanted["RequestedCapacityMin"] = json!(7);
    let reply = world
        .h
        .put("/v1/volume/csi/made/create", &one(&wanted))
        .await;
    assert_eq!(
        reply.json()["Volumes"][0]["Parameters"],
        json!({"tier": "gold"}),
        "{}",
        reply.text()
    );
    live(&world, &wanted, true).await;
    let calls = world.requested.take();
    check(&calls, &world.node, "ext-made", &json!({"made": "here"}));
    seen.extend(calls.iter().map(|(method, _)| *method));
    let all: std::collections::BTreeSet<_> = BRINGS.iter().map(|one| one.0).collect();
    assert_eq!(seen, all);
    // Those that are of no volume choose their node as well.
    for (method, target) in [
        ("GET", "/v1/volumes/external?plugin_id=p"),
        ("GET", "/v1/volumes/snapshot?plugin_id=p"),
        ("DELETE", "/v1/volumes/snapshot?plugin_id=p&snapshot_id=s"),
    ] {
        let reply = world.h.ask(method, target, "").await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    }
    let calls = world.requested.take();
    assert!(
        calls
            .iter()
            .all(|(_, requested)| requested["ControllerNodeID"] == world.node),
        "{calls:?}"
    );
    assert_eq!(calls.len(), 3);
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plg_07_plg_09_a_call_goes_over_the_stream_of_its_node_and_names_both() {
    let world = World::open().await;
    let (second, requested) = world.second().await;
    let mut detached = Vec::new();
    for number in 0..4 {
        let id = format!("data-{number}");
        world.register(DEFAULT, &id).await;
        let place = (DEFAULT, id.as_str());
        let alloc = world.user(place, false).await;
        world.claim(place, &alloc, false).await.unwrap();
        let shown = world.h.get(&format!("/v1/allocation/{alloc}")).await.json();
        detached.push(shown["NodeID"].as_str().unwrap().to_owned());
        let volumes = &world.h.server.volumes;
        let origin = Origin::default();
        let done = volumes.unpublish(place, &alloc, &origin);
        done.await.unwrap();
    }
    let mut nodes = Vec::new();
    for (node, requested) in [(&world.node, &world.requested), (&second, &requested)] {
        let calls = requested.take();
        assert!(calls.len() >= 4, "each controller has its turn: {calls:?}");
        for (method, request) in calls {
            let field = match method.starts_with("Controller") {
                true => "ControllerNodeID",
                false => "NodeID",
            };
            assert_eq!(request[field], *node, "{method}: {request}");
            assert_eq!(request["PluginID"], "p", "{method}: {request}");
            if method == "NodeDetachVolume" {
                nodes.push(node.clone());
            }
        }
    }
    nodes.sort_unstable();
    detached.sort_unstable();
    assert_eq!(nodes, detached, "each on the node of its allocation");
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_12_provider_and_version_are_in_every_view_of_volume_and_plugin() {
    let world = World::open().await;
    world.register(DEFAULT, "data").await;
    let one = world.h.get("/v1/volume/csi/data").await.json();
    assert_eq!(
        (&one["Provider"], &one["ProviderVersion"]),
        (&json!("csi.example"), &json!("1.2"))
    );
    let listed = world.h.get("/v1/volumes?type=csi").await.json();
    assert_eq!(
        (&listed[0]["Provider"], &listed[0]["ProviderVersion"]),
        (&json!("csi.example"), &json!("1.2"))
    );
    let plugin = world.h.get("/v1/plugin/csi/p").await.json();
    assert_eq!(
        (&plugin["Provider"], &plugin["Version"]),
        (&json!("csi.example"), &json!("1.2"))
    );
    let listed = world.h.get("/v1/plugins?type=csi").await.json();
    assert_eq!(
        (&listed[0]["Provider"], &listed[0]["Version"]),
        (&json!("csi.example"), &json!("1.2"))
    );
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_46_what_a_provider_has_is_listed_by_a_controller_page_by_page() {
    let world = World::open().await;
    let listed = world
        .h
        .get("/v1/volumes/external?plugin_id=p&per_page=3&next_token=x")
        .await;
    let reported = listed.json();
    assert_eq!(reported["NextToken"], "after-x-3", "{reported}");
    let stub = &reported["Volumes"][0];
    for (field, value) in [
        ("ExternalID", json!("far")),
        ("CapacityBytes", json!(9)),
        ("IsAbnormal", json!(true)),
        ("Status", json!("it leaks")),
        ("PublishedExternalNodeIDs", json!(["node-far"])),
    ] {
        assert_eq!(stub[field], value, "{field}: {reported}");
    }
    let request = hyper::Request::get("/v1/volumes/snapshot?plugin_id=p&per_page=2&next_token=y")
        .header("X-Nomad-CSI-Secrets", "key=hidden")
        .body(http_body_util::Full::default())
        .unwrap();
    let reported = world.h.send(request).await;
    assert!(!reported.text().contains("canary"), "{}", reported.text());
    let reported = reported.json();
    assert_eq!(reported["NextToken"], "after-y-2", "{reported}");
    let snapshot = &reported["Snapshots"][0];
    assert_eq!(
        (&snapshot["ID"], &snapshot["Secrets"]),
        (&json!("snap-one"), &Value::Null)
    );
    let requested = world.requested.only("ControllerListSnapshots");
    assert_eq!(requested["Secrets"], json!({"key": "hidden"}));
    assert_eq!(
        (&requested["MaxEntries"], &requested["StartingToken"]),
        (&json!(2), &json!("y"))
    );
    let requested = world.requested.only("ControllerListVolumes");
    assert_eq!(
        (&requested["MaxEntries"], &requested["StartingToken"]),
        (&json!(3), &json!("x"))
    );
    // Without a healthy controller there is none to call.
    world.report(false, "").await;
    for target in [
        "/v1/volumes/external?plugin_id=p",
        "/v1/volumes/snapshot?plugin_id=p",
    ] {
        let refused = world.h.get(target).await;
        assert_eq!(refused.status, 500);
        let none = "failed to find clients running controller plugin \"p\"";
        assert!(refused.text().contains(none), "{}", refused.text());
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_acts_on_is_named_in_the_answer_and_its_warnings() {
    let world = World::open().await;
    let mut body = one(&volume("data"));
    body["PolicyOverride"] = json!(true);
    body["Timestamp"] = json!(5);
    for target in [
        "/v1/volumes",
        "/v1/volume/csi/data",
        "/v1/volume/csi/data/create",
    ] {
        let reply = world.h.put(target, &body).await;
        let named = reply.header("x-drover-ignored");
        assert_eq!(
            named,
            "field PolicyOverride, field Timestamp",
            "{}",
            reply.text()
        );
        let warned = reply.json()["Warnings"].as_str().unwrap().to_owned();
        assert_eq!(warned.lines().count(), 2, "{warned}");
        let plain = world.h.put(target, &one(&volume("data"))).await;
        assert_eq!(
            (plain.header("x-drover-ignored"), &plain.json()["Warnings"]),
            ("", &json!(""))
        );
    }
    world.h.stop().await;
}
