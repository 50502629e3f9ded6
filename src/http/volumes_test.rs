//! Volumes and plugins over HTTP: what is answered, to which callers, and in which shape.

use drover_events::csi::{claim_mode, state};
use drover_events::gojson::Map;
use drover_events::model::{CsiControllerInfo, CsiInfo, CsiNodeInfo, CsiVolume, VolumeRequest};
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::nodes;
use drover_testkit::{eventually_async, fixtures};
use serde_json::{Value, json};

use super::harness::{Harness, is_filled};
use crate::commands::csi::{ClaimVolume, NoteGrowth, RegisterVolumes};
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::proposer::Origin;
use crate::volumes::PendingRelease;

pub(super) fn described(id: &str) -> Value {
    json!({
        "ID": id, "Name": id, "PluginID": "hostpath", "ExternalID": format!("ext-{id}"),
        "RequestedCapabilities": [
            {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"},
        ],
        "MountOptions": {"FSType": "ext4", "MountFlags": ["password=canary"]},
        "Secrets": {"key": "canary"},
    })
}

/// A server, and a node that runs the plugin; its id.
async fn with_plugin() -> (Harness, String) {
    let h = Harness::start().await;
    let mut node = fixtures::node(1);
    node.secret_id = "hash".into();
    let info = CsiInfo {
        plugin_id: "hostpath".into(),
        healthy: true,
        provider: "csi.example".into(),
        provider_version: "1.0".into(),
        ..CsiInfo::default()
    };
    node.csi_node_plugins = Map::from([("hostpath", info)]);
    let id = node.id.clone();
    let create_node_pool = false;
    h.submit(RegisterNode {
        node,
        create_node_pool,
    })
    .await;
    (h, id)
}

pub(super) async fn register(h: &Harness, id: &str) {
    let reply = h
        .put(
            &format!("/v1/volume/csi/{id}"),
            &json!({"Volumes": [described(id)]}),
        )
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_48_job_13_a_volume_is_registered_shown_listed_and_removed() {
    let (h, node) = with_plugin().await;
    let body = json!({"Volumes": [described("data")]});
    let reply = h.put("/v1/volume/csi/data", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert_eq!(answer["Warnings"], "");
    assert_eq!(answer["Volumes"][0]["ID"], "data");
    assert_eq!(answer["Volumes"][0]["NodesHealthy"], 1);
    let written = reply.index();
    let reply = h.get("/v1/volume/csi/data").await;
    assert_eq!(reply.index(), written);
    let shown = reply.json();
    for (field, value) in [
        ("Secrets", Value::Null),
        ("Allocations", json!([])),
        ("ReadAllocs", json!({})),
        ("Schedulable", json!(true)),
        ("Provider", json!("csi.example")),
        ("AccessMode", json!("")),
        ("ControllerRequired", json!(false)),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(shown["MountOptions"]["MountFlags"], json!(["[REDACTED]"]));
    assert!(shown["CreateTime"].as_i64().unwrap() > 0);
    let keys: Vec<_> = shown.as_object().unwrap().keys().cloned().collect();
    assert!(keys.is_sorted(), "{keys:?}");
    assert!(!reply.text().contains("canary"));
    let listed = h.get("/v1/volumes?type=csi").await;
    assert_eq!(listed.json()[0]["CurrentReaders"], 0);
    assert_eq!(listed.json()[0]["PluginID"], "hostpath");
    let of_node = format!("&node_id={node}");
    for (query, count) in [
        ("&plugin_id=hostpath", 1),
        ("&plugin_id=other", 0),
        ("&prefix=da", 1),
        ("&prefix=x", 0),
        ("&namespace=other", 0),
        ("&namespace=*", 1),
        (of_node.as_str(), 0),
    ] {
        let found = h.get(&format!("/v1/volumes?type=csi{query}")).await.json();
        assert_eq!(found.as_array().map_or(0, Vec::len), count, "{query}");
    }
    assert_eq!(h.get("/v1/volumes").await.text(), "[]", "of no type");
    let bad = h.ask("DELETE", "/v1/volume/csi/data?force=maybe", "").await;
    assert_eq!(
        (bad.status, bad.text().as_str()),
        (400, "invalid force value")
    );
    let gone = h.ask("DELETE", "/v1/volume/csi/data", "").await;
    assert_eq!((gone.status, gone.text().as_str()), (200, ""));
    let missing = h.get("/v1/volume/csi/data").await;
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "volume not found")
    );
    let missing = h.ask("DELETE", "/v1/volume/csi/data", "").await;
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (500, "volume not found: data")
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_05_a_least_size_that_nobody_was_asked_for_is_warned_of() {
    let (h, _) = with_plugin().await;
    let text = "capacity_min of volume \"data\" was not passed to any plugin: its size is \
                unchanged; it grows when it is registered again with another capacity_min";
    let mut wanted = described("data");
    for (least, warned) in [(0, ""), (10, text), (10, text), (0, "")] {
        wanted["ID"] = json!(if warned.is_empty() { "other" } else { "data" });
        wanted["ExternalID"] = json!(format!("ext-{least}"));
        wanted["RequestedCapacityMin"] = json!(least);
        let body = json!({"Volumes": [wanted]});
        let reply = h.put("/v1/volumes", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["Warnings"], warned, "{least}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_09_an_event_shows_of_a_volume_what_a_read_shows() {
    let (h, _) = with_plugin().await;
    let body = json!({"Volumes": [described("data")]});
    let index = h.put("/v1/volume/csi/data", &body).await.index();
    let publisher = h.publish(tokio_util::sync::CancellationToken::new());
    let target = format!("/v1/event/stream?topic=CSIVolume&index={index}");
    let request = hyper::Request::get(target).body(axum::body::Body::empty());
    let reply = tower::ServiceExt::oneshot(h.router(), request.unwrap()).await;
    let mut body = reply.unwrap().into_body();
    let mut reported = String::new();
    let shown = async {
        while !reported.contains("MountFlags") {
            let frame = http_body_util::BodyExt::frame(&mut body).await;
            let frame = frame.unwrap().unwrap();
            reported += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    };
    let in_time = tokio::time::timeout(drover_testkit::LONG, shown).await;
    in_time.unwrap_or_else(|_| panic!("only {reported}"));
    assert!(
        reported.contains("\"MountFlags\":[\"[REDACTED]\"]"),
        "{reported}"
    );
    assert!(!reported.contains("canary"), "{reported}");
    publisher.abort();
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_01_csi_02_what_is_wrong_with_a_registration_is_said() {
    let (h, _) = with_plugin().await;
    let index = h.get("/v1/volumes?type=csi").await.index();
    for (body, status, text) in [
        (json!({}), 400, "missing volume definition"),
        (json!({"Volumes": [{}]}), 400, "missing plugin id"),
        (
            json!({"Volumes": [{"ID": "x", "PluginID": "typo", "RequestedCapabilities": [
                {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]}]}),
            500,
            "no CSI plugin named: typo could be found",
        ),
        (
            json!({"Volumes": [{"ID": "y"}]}),
            400,
            "Volume ID does not match request path",
        ),
    ] {
        let reply = h.put("/v1/volume/csi/x", &body).await;
        assert!(reply.text().contains(text), "{}", reply.text());
        assert_eq!(reply.status, status, "{text}");
    }
    let after = h.get("/v1/volumes?type=csi").await.index();
    assert_eq!(after, index, "nothing reached the log");
    let post = h.ask("POST", "/v1/volume/csi/x", "{}").await;
    assert_eq!(post.status, 405);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_09_secrets_of_a_volume_are_ciphertext_in_the_log_and_nowhere_shown() {
    let (h, _) = with_plugin().await;
    register(&h, "data").await;
    let view = h.server.projections.view();
    let row = view
        .get::<CsiVolumes>(("default", "data"))
        .unwrap()
        .unwrap();
    let opened = h
        .api
        .keyring
        .open_volume_secrets(("default", "data"), &row.volume.secrets)
        .unwrap();
    assert_eq!(*opened["key"], "canary");
    assert!(!format!("{:?}", row.volume.secrets).contains("canary"));
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_47_ev_19_who_holds_a_volume_is_shown_and_a_node_lists_those_of_its_allocations() {
    let (h, node) = with_plugin().await;
    register(&h, "data").await;
    register(&h, "other").await;
    let alloc = place(&h).await;
    let key = ("default", "data");
    let mut claim = ClaimVolume::default();
    claim.claim.namespace = key.0.into();
    claim.claim.volume_id = key.1.into();
    claim.claim.allocation_id.clone_from(&alloc);
    claim.claim.mode = claim_mode::WRITE;
    h.submit(claim).await;
    let shown = h.get("/v1/volume/csi/data").await.json();
    assert_eq!(shown["WriteAllocs"], json!({alloc.clone(): null}));
    assert_eq!(shown["Allocations"][0]["ID"], json!(alloc));
    assert!(shown["Allocations"][0].get("Job").is_none(), "a stub");
    assert_eq!(shown["AccessMode"], "single-node-writer");
    let listed = h
        .get(&format!("/v1/volumes?type=csi&node_id={node}"))
        .await
        .json();
    let ids: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["ID"])
        .collect();
    assert_eq!(ids, ["data"]);
    assert_eq!(listed[0]["CurrentWriters"], 1);
    for force in ["", "?force=true"] {
        let used = h
            .ask("DELETE", &format!("/v1/volume/csi/data{force}"), "")
            .await;
        assert_eq!(
            (used.status, used.text().as_str()),
            (500, "volume in use: data")
        );
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_what_a_step_failed_at_is_told_and_not_what_may_be() {
    let (h, _) = with_plugin().await;
    register(&h, "data").await;
    let alloc = place(&h).await;
    h.submit(held(&alloc)).await;
    for tries in 1..=2 {
        let volumes = &h.server.volumes;
        let origin = crate::proposer::Origin::default();
        let failed = volumes.unpublish(("default", "data"), &alloc, &origin);
        let error = failed.await.expect_err("nobody reaches the node");
        let reported = h.get("/v1/volume/csi/data/explain").await.json();
        let held = &reported["Claims"][0];
        assert_eq!(held["HinderedBy"], json!(error.to_string()));
        // The watcher tries as well.
        assert!(held["Tries"].as_u64() >= Some(tries), "{held}");
        // What was shows nothing of it; it is over once something else happened.
        let namespaces = vec![drover_events::model::Namespace {
            name: format!("later-{tries}"),
            ..Default::default()
        }];
        h.submit(crate::commands::namespace::UpsertNamespaces { namespaces })
            .await;
        let index = &reported["ModifyIndex"];
        let path = format!("/v1/volume/csi/data/explain?as_of={index}");
        let was = h.get(&path).await.json();
        let was = &was["Claims"][0];
        assert_eq!((&was["State"], &was["Tries"]), (&held["State"], &json!(0)));
        assert_ne!(was["HinderedBy"], held["HinderedBy"]);
    }
    h.stop().await;
}

/// A server, and a node whose plugin has a controller that no server reaches; two volumes of it.
async fn with_controller() -> Harness {
    let (h, node) = with_plugin().await;
    let view = h.server.projections.view();
    let mut node = nodes::get(&view, &node).unwrap().unwrap();
    drop(view);
    let mut info = node.csi_node_plugins["hostpath"].clone();
    info.requires_controller_plugin = true;
    info.controller_info = Some(CsiControllerInfo {
        supports_attach_detach: true,
        ..CsiControllerInfo::default()
    });
    node.csi_controller_plugins = Map::from([("hostpath", info.clone())]);
    info.controller_info = None;
    info.node_info = Some(CsiNodeInfo {
        id: "one".into(),
        ..CsiNodeInfo::default()
    });
    node.csi_node_plugins = Map::from([("hostpath", info)]);
    let create_node_pool = false;
    h.submit(RegisterNode {
        node,
        create_node_pool,
    })
    .await;
    for id in ["data", "other"] {
        let mut volume: CsiVolume = serde_json::from_value(described(id)).unwrap();
        volume.namespace = "default".into();
        volume.secrets = Map::nil();
        let volumes = vec![volume];
        h.submit(RegisterVolumes { volumes }).await;
    }
    h
}

/// What an allocation holds of the volume `data`.
fn held(alloc: &str) -> ClaimVolume {
    let mut held = ClaimVolume::default();
    held.claim.namespace = "default".into();
    held.claim.volume_id = "data".into();
    held.claim.allocation_id = alloc.to_owned();
    held.claim.mode = claim_mode::WRITE;
    held
}

/// The first row of what is said of a volume, and the index of it.
async fn first_reported(h: &Harness, id: &str) -> (Value, Value) {
    let reported = h.get(&format!("/v1/volume/csi/{id}/explain")).await.json();
    (
        reported["Claims"][0].clone(),
        reported["ModifyIndex"].clone(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_what_keeps_a_volume_from_who_has_claimed_it_is_explained() {
    let h = with_controller().await;
    let alloc = place(&h).await;
    let origin = crate::proposer::Origin::default();
    let claimed = h.server.volumes.claim(held(&alloc).claim, origin).await;
    let error = claimed.expect_err("nobody reaches a controller");
    let (reported, index) = first_reported(&h, "data").await;
    assert_eq!(reported["State"], "held", "{reported}");
    assert_eq!(
        reported["WaitsFor"],
        "a controller to attach it to its node"
    );
    assert_eq!(reported["HinderedBy"], json!(error.to_string()));
    assert_eq!(reported["Tries"], 1);
    let since = |field: &str| reported[field].as_i64().unwrap();
    assert!(since("Since") > 0 && since("HinderedSince") >= since("Since"));
    let mut attached = held(&alloc);
    attached.claim.published = true;
    h.submit(attached).await;
    let (reported, _) = first_reported(&h, "data").await;
    assert_eq!(
        (&reported["WaitsFor"], &reported["Tries"]),
        (&json!(""), &json!(0))
    );
    let path = format!("/v1/volume/csi/data/explain?as_of={index}");
    let was = h.get(&path).await.json()["Claims"][0].clone();
    assert_eq!(was["WaitsFor"], "a controller to attach it to its node");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_an_unconfirmed_detach_and_a_deletion_are_explained() {
    let h = with_controller().await;
    let alloc = place(&h).await;
    h.submit(held(&alloc)).await;
    let mut detaching = held(&alloc);
    detaching.claim.state = state::DETACH_UNCONFIRMED;
    h.submit(detaching).await;
    let (reported, _) = first_reported(&h, "data").await;
    assert_eq!(
        (&reported["AllocationID"], &reported["State"]),
        (&json!(alloc), &json!("detach-unconfirmed"))
    );
    assert_eq!(
        reported["WaitsFor"],
        "the end of a call that may still be under way"
    );
    assert!(reported["Since"].as_i64().unwrap() > 0);
    let mut deleted = ClaimVolume::default();
    deleted.claim.namespace = "default".into();
    deleted.claim.volume_id = "other".into();
    deleted.claim.mode = claim_mode::DELETE;
    h.submit(deleted).await;
    let (reported, _) = first_reported(&h, "other").await;
    assert_eq!(
        (&reported["AllocationID"], &reported["State"]),
        (&json!(""), &json!("deleting"))
    );
    assert_eq!(reported["WaitsFor"], "its provider to delete it");
    assert!(reported["Since"].as_i64().unwrap() > 0);
    let place = ("default", "other");
    let (waiting, origin) = (PendingRelease::Deletion, Origin::default());
    // The watcher works on it as well: what is reported is the outcome of its last look.
    let reported = eventually_async(
        "what hinders it is told",
        drover_testkit::LONG,
        async || {
            let volumes = &h.server.volumes;
            let seen = volumes.retry_release(place, &waiting, &origin).await;
            let error = seen.expect_err("it may still be deleted").to_string();
            let (reported, _) = first_reported(&h, "other").await;
            match reported["HinderedBy"] == json!(error) {
                true => Ok(reported),
                false => Err(format!("{reported}, not {error}")),
            }
        },
    );
    let reported = reported.await.unwrap();
    assert!(
        reported["HinderedSince"].as_i64().unwrap() > 0,
        "{reported}"
    );
    let growth = NoteGrowth {
        namespace: "default".to_owned(),
        id: "data".to_owned(),
        done: 0,
    };
    h.submit(growth).await;
    let reported = h.get("/v1/volume/csi/data/explain").await.json();
    let says = reported["Says"].as_str().unwrap();
    assert!(
        says.contains("as large as it is at its provider"),
        "{reported}"
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_45_what_was_attached_waits_for_a_controller_whatever_its_plugin_is_now() {
    let (h, _) = with_plugin().await;
    register(&h, "data").await;
    let alloc = place(&h).await;
    for (to, published) in [(state::CLAIMED, true), (state::NODE_DETACHED, false)] {
        let mut claim = held(&alloc);
        claim.claim.state = to;
        claim.claim.published = published;
        h.submit(claim).await;
    }
    let reported = h.get("/v1/volume/csi/data/explain").await.json();
    let waits = &reported["Claims"][0]["WaitsFor"];
    assert_eq!(
        waits, "a controller to detach it from its node",
        "{reported}"
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_who_holds_a_volume_and_what_each_claim_waits_for_is_explained() {
    let (h, node) = with_plugin().await;
    register(&h, "data").await;
    let explained = async || h.get("/v1/volume/csi/data/explain").await.json();
    assert_eq!(explained().await["Says"], "nobody holds it");
    let alloc = place(&h).await;
    let claim = |to: u8| {
        let mut claim = held(&alloc);
        claim.claim.state = to;
        claim
    };
    for (to, name, waits, says) in [
        (
            state::CLAIMED,
            "held",
            "",
            "it is held as long as its allocations run",
        ),
        (
            state::UNPUBLISHING,
            "unpublishing",
            "its node to unmount it",
            "it is being released",
        ),
        (
            state::NODE_DETACHED,
            "node-detached",
            "a server to free it",
            "it is being released",
        ),
    ] {
        h.submit(claim(to)).await;
        let reported = explained().await;
        let held = &reported["Claims"][0];
        assert_eq!(held["AllocationID"], json!(alloc));
        assert_eq!(held["NodeID"], json!(node));
        assert_eq!(
            (&held["State"], &held["Mode"]),
            (&json!(name), &json!("write"))
        );
        assert_eq!(
            (&held["WaitsFor"], &reported["Says"]),
            (&json!(waits), &json!(says)),
            "{name}"
        );
        if to == state::CLAIMED {
            assert_eq!(held["HinderedBy"], "");
        }
        assert!(held["Since"].as_i64().unwrap() > 0);
    }
    h.submit(claim(state::READY_TO_FREE)).await;
    assert_eq!(explained().await["Claims"], json!([]));
    let missing = h.get("/v1/volume/csi/none/explain").await;
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "volume not found")
    );
    h.stop().await;
}

/// Registers a job that uses the volume `data`, and waits for its allocation; its id.
async fn place(h: &Harness) -> String {
    h.register("web").await;
    let view = h.server.projections.view();
    let mut job = view.get::<Jobs>(("default", "web")).unwrap().unwrap();
    drop(view);
    let request = VolumeRequest {
        name: "v".into(),
        r#type: "csi".into(),
        source: "data".into(),
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        ..VolumeRequest::default()
    };
    job.id = "db".into();
    job.task_groups.to_mut()[0].volumes = Map::from([("v", request)]);
    h.submit(RegisterJob {
        job,
        eval_id: "00000000-0000-4000-8000-000000000777".into(),
        ..RegisterJob::default()
    })
    .await;
    let list = "/v1/job/db/allocations";
    let allocs = h.until(list, is_filled).await;
    allocs.json()[0]["ID"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_12_ev_07_plugins_are_listed_shown_and_found() {
    let (h, node) = with_plugin().await;
    register(&h, "data").await;
    let listed = h.get("/v1/plugins?type=csi").await.json();
    assert_eq!(listed[0]["ID"], "hostpath");
    assert_eq!(listed[0]["NodesHealthy"], 1);
    assert_eq!(
        h.get("/v1/plugins?type=csi&prefix=x").await.json(),
        json!([])
    );
    let shown = h.get("/v1/plugin/csi/hostpath").await.json();
    assert_eq!(shown["Nodes"][node.as_str()]["Healthy"], true);
    assert_eq!(shown["Allocations"], json!([]));
    for _ in 0..20 {
        assert_eq!(
            h.get("/v1/plugin/csi/hostpath").await.json(),
            shown,
            "EV-07"
        );
    }
    let missing = h.get("/v1/plugin/csi/x").await;
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "plugin not found")
    );
    for (context, prefix, found) in [("volumes", "da", "data"), ("plugins", "host", "hostpath")] {
        let requested = json!({"Context": context, "Prefix": prefix});
        let matches = h.put("/v1/search", &requested).await.json()["Matches"][context].clone();
        assert_eq!(matches, json!([found]), "{context}");
    }
    h.stop().await;
}
