//! Who has volumes and how they become free again, and who learns of their secrets: over HTTP, with
//! a client that answers as one does.

use drover_events::csi::{claim_mode, state};
use drover_projections::tables::nodes;
use drover_testkit::{LONG, eventually, so};
use serde_json::{Value, json};

use super::gate_test::namespaces;
use super::harness::Harness;
use super::volume_calls_test::{DEFAULT, one, status_and_text};
use super::volume_world_test::{PLUGIN, World, volume};
use crate::commands::csi::ClaimVolume;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_48_job_13_readers_and_writers_are_told_apart_and_lists_are_of_a_node_or_a_plugin() {
    let world = World::open().await;
    world.register(DEFAULT, "data").await;
    world.register(DEFAULT, "idle").await;
    let place = (DEFAULT, "data");
    let (writer, reader) = (
        world.user(place, false).await,
        world.user(place, true).await,
    );
    world.claim(place, &writer, false).await.unwrap();
    world.claim(place, &reader, true).await.unwrap();
    let shown = world.h.get("/v1/volume/csi/data").await.json();
    assert_eq!(shown["WriteAllocs"], json!({writer.clone(): null}));
    assert_eq!(shown["ReadAllocs"], json!({reader.clone(): null}));
    let stubs = shown["Allocations"].as_array().unwrap();
    let mut ids: Vec<_> = stubs
        .iter()
        .map(|stub| stub["ID"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    let mut both = [writer.as_str(), reader.as_str()];
    both.sort_unstable();
    assert_eq!(ids, both);
    for stub in stubs {
        assert!(stub.get("Job").is_none() && stub["JobID"].as_str().unwrap().starts_with("job-"));
        assert_eq!(stub["NodeID"], json!(world.node));
    }
    let node = format!("node_id={}", world.node);
    let elsewhere = "node_id=00000000-0000-4000-8000-00000000dead";
    for (query, wanted) in [
        (String::new(), vec!["data", "idle"]),
        ("plugin_id=p".to_owned(), vec!["data", "idle"]),
        ("plugin_id=q".to_owned(), vec![]),
        (node.clone(), vec!["data"]),
        (format!("{node}&plugin_id=p"), vec!["data"]),
        (format!("{node}&plugin_id=q"), vec![]),
        (elsewhere.to_owned(), vec![]),
    ] {
        let listed = world
            .h
            .get(&format!("/v1/volumes?type=csi&{query}"))
            .await
            .json();
        let rows = listed.as_array().unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row["ID"].as_str().unwrap()).collect();
        assert_eq!(ids, wanted, "{query}");
        if let Some(data) = rows.iter().find(|row| row["ID"] == "data") {
            assert_eq!(
                (&data["CurrentReaders"], &data["CurrentWriters"]),
                (&json!(1), &json!(1))
            );
        }
    }
    world.h.stop().await;
}

async fn node_is(world: &World, status: &str) {
    let command = UpdateNodeStatus {
        node_id: world.node.clone(),
        status: status.to_owned(),
        event: None,
    };
    world.h.submit(command).await;
}

/// Whether no allocation has the volume.
fn is_free(volume: &Value) -> bool {
    volume["WriteAllocs"] == json!({}) && volume["ReadAllocs"] == json!({})
}

/// A volume is free again after the job that had it was stopped: its node and its controller were
/// called for it.
async fn is_given_back(world: &World, place: (&str, &str)) {
    let (namespace, id) = place;
    world.register(namespace, id).await;
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    let job = format!("/v1/job/job-{id}-false?namespace={namespace}");
    let stopped = world.h.ask("DELETE", &job, "").await;
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    node_is(world, "down").await;
    node_is(world, "ready").await;
    world.alloc_is(&alloc, "complete").await;
    let volume = format!("/v1/volume/csi/{id}?namespace={namespace}");
    world.until(&volume, is_free).await;
    let names = world.requested.names();
    assert!(
        names.ends_with(&["NodeDetachVolume", "ControllerDetachVolume"]),
        "{names:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_04_a_volume_is_taken_from_its_node_in_its_own_namespace() {
    let world = World::open().await;
    namespaces(&world.h).await;
    is_given_back(&world, ("red", "data")).await;
    let requested = world.requested.only("NodeDetachVolume");
    let place = (&requested["VolumeNamespace"], &requested["VolumeID"]);
    assert_eq!(place, (&json!("red"), &json!("data")), "{requested}");
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eval_14_vw_15_a_volume_is_free_again_without_a_core_evaluation() {
    let world = World::open().await;
    is_given_back(&world, (DEFAULT, "data")).await;
    // Nothing that ever happened names one.
    let all = world.h.get("/v1/audit?payload=true&per_page=1000").await;
    assert!(all.text().contains("\"JobDeregistered\""), "{}", all.text());
    assert!(!all.text().contains("_core") && !all.text().contains("csi-volume-claim-gc"));
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vw_01_evaluations_are_processed_while_the_watcher_waits_for_a_plugin() {
    // With one alone, who holds up a scheduling worker holds up everything.
    let world = World::with(Harness::scheduling(1).await).await;
    world.register(DEFAULT, "data").await;
    let place = (DEFAULT, "data");
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    let held = world.requested.held_detaches().await;
    world.alloc_is(&alloc, "complete").await;
    let is_detaching = || so(world.requested.names().contains(&"NodeDetachVolume"));
    eventually("the watcher to call", LONG, is_detaching)
        .await
        .unwrap();
    let registered = world.h.register("web").await.json();
    let path = format!("/v1/evaluation/{}", registered["EvalID"].as_str().unwrap());
    let done = |eval: &Value| eval["Status"] == "complete";
    world.until(&path, done).await;
    let placed = world.h.get("/v1/job/web/allocations").await.json();
    assert_eq!(placed.as_array().unwrap().len(), 1, "{placed}");
    let shown = world.h.get("/v1/volume/csi/data").await.json();
    assert!(!is_free(&shown), "it is waited for: {shown}");
    drop(held);
    world.until("/v1/volume/csi/data", is_free).await;
    let names = world.requested.names();
    let both = ["NodeDetachVolume", "ControllerDetachVolume"];
    assert!(names.ends_with(&both), "{names:?}");
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_42_a_volume_removed_by_force_is_neither_unmounted_nor_detached() {
    let world = World::open().await;
    for id in ["data", "other"] {
        world.register(DEFAULT, id).await;
    }
    let forced = "/v1/volume/csi/data?force=true";
    let place = (DEFAULT, "data");
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    let text = "volume in use: data".to_owned();
    assert_eq!(
        status_and_text(&world.h.ask("DELETE", forced, "").await),
        (500, text)
    );
    // No server reaches the node while its allocation is taken for lost.
    node_is(&world, "down").await;
    let path = format!("/v1/allocation/{alloc}");
    world
        .until(&path, |alloc| alloc["ClientStatus"] == "lost")
        .await;
    assert_eq!(
        status_and_text(&world.h.ask("DELETE", forced, "").await),
        (200, String::new())
    );
    assert_eq!(
        status_and_text(&world.h.get("/v1/volume/csi/data").await).0,
        404
    );
    node_is(&world, "ready").await;
    // The watcher has followed what was before when it has freed what comes after.
    let place = (DEFAULT, "other");
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    world.alloc_is(&alloc, "complete").await;
    world.until("/v1/volume/csi/other", is_free).await;
    let calls = world.requested.take();
    let of_data = calls
        .iter()
        .filter(|(_, requested)| requested.to_string().contains("ext-data"));
    let of_data: Vec<_> = of_data.map(|(method, _)| *method).collect();
    assert_eq!(
        of_data,
        ["ControllerValidateVolume", "ControllerAttachVolume"]
    );
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_12_by_force_a_plugin_detaches_what_nobody_claims_and_nothing_that_somebody_does() {
    let world = World::open().await;
    world.register(DEFAULT, "data").await;
    let target = format!("/v1/volume/csi/data/detach?node={}", world.node);
    let detach = async |force: &str| {
        status_and_text(&world.h.ask("DELETE", &format!("{target}{force}"), "").await)
    };
    let text = format!("volume \"data\" has no claims on node \"{}\"", world.node);
    for force in ["", "&force=false"] {
        assert_eq!(detach(force).await, (500, text.clone()), "{force}");
    }
    let odd = (400, "invalid force value".to_owned());
    assert_eq!(detach("&force=maybe").await, odd);
    assert_eq!(world.requested.names(), ["ControllerValidateVolume"]);
    assert_eq!(detach("&force=true").await, (200, String::new()));
    assert_eq!(
        world.requested.names(),
        ["ControllerValidateVolume", "ControllerDetachVolume"]
    );
    let requested = world.requested.only("ControllerDetachVolume");
    for (field, value) in [("VolumeID", "ext-data"), ("ClientCSINodeID", "node-far")] {
        assert_eq!(requested[field], value, "{requested}");
    }
    let place = (DEFAULT, "data");
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    let text = format!("volume \"data\" is in use on node \"{}\"", world.node);
    assert_eq!(detach("&force=true").await, (500, text));
    world.requested.only("ControllerDetachVolume");
    world.h.stop().await;
}

/// A claim that is on its way back.
fn unpublishing(volume: &str, alloc: &str) -> ClaimVolume {
    let mut claim = ClaimVolume::default();
    claim.claim.namespace = DEFAULT.into();
    claim.claim.volume_id = volume.into();
    claim.claim.allocation_id = alloc.to_owned();
    claim.claim.mode = claim_mode::WRITE;
    claim.claim.state = state::UNPUBLISHING;
    claim
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_a_plugin_hinders_a_node_where_it_is_not_healthy_and_only_there() {
    let world = World::open().await;
    for (id, healthy, why) in [
        ("data", true, ""),
        ("other", false, "plugin \"p\" is not healthy on the node"),
    ] {
        let place = (DEFAULT, id);
        world.register(DEFAULT, id).await;
        let alloc = world.user(place, false).await;
        world.claim(place, &alloc, false).await.unwrap();
        world.report(healthy, "").await;
        let index = world.h.submit(unpublishing(id, &alloc)).await;
        // As it was before anything was tried.
        let target = format!("/v1/volume/csi/{id}/explain?as_of={index}");
        let explained = world.h.get(&target).await.json();
        let claim = &explained["Claims"][0];
        assert_eq!(
            (&claim["WaitsFor"], &claim["HinderedBy"]),
            (&json!("its node to unmount it"), &json!(why)),
            "{id}: {explained}"
        );
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_31_which_part_of_a_plugin_keeps_a_volume_from_jobs_is_explained() {
    let world = World::open().await;
    world.register(DEFAULT, "data").await;
    for (controller, node, says) in [
        (true, true, "nobody holds it"),
        (true, false, "no node has a healthy plugin \"p\""),
        (false, true, "no controller of plugin \"p\" is healthy"),
    ] {
        let view = world.h.server.projections.view();
        let known = nodes::get(&view, &world.node).expect("it is read");
        drop(view);
        let mut known = known.expect("it is registered");
        for (part, healthy) in [
            (&mut known.csi_controller_plugins, controller),
            (&mut known.csi_node_plugins, node),
        ] {
            let mut info = part[PLUGIN].clone();
            info.healthy = healthy;
            *part = [(PLUGIN, info)].into();
        }
        let registered = RegisterNode {
            node: known,
            create_node_pool: false,
        };
        world.h.submit(registered).await;
        let explained = world.h.get("/v1/volume/csi/data/explain").await.json();
        assert_eq!(explained["Says"], says, "{explained}");
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_09_no_answer_and_no_byte_of_the_log_has_a_secret() {
    let world = World::open().await;
    world.register(DEFAULT, "data").await;
    let place = (DEFAULT, "data");
    let alloc = world.user(place, false).await;
    world.claim(place, &alloc, false).await.unwrap();
    // To be explained.
    world.h.submit(unpublishing("data", &alloc)).await;
    let shown: Vec<_> = world.requested.names();
    let reported = world.requested.only("ControllerAttachVolume").to_string();
    assert!(
        reported.contains("canary"),
        "the plugin is shown it: {shown:?}"
    );
    let again = world
        .h
        .put("/v1/volume/csi/data", &one(&volume("data")))
        .await;
    assert!(
        again.status == 200 && !again.text().contains("canary"),
        "{}",
        again.text()
    );
    let search = json!({"Prefix": "da", "Context": "volumes"});
    let found = world.h.put("/v1/search", &search).await;
    assert!(!found.text().contains("canary"));
    for target in [
        "/v1/volumes?type=csi",
        "/v1/volume/csi/data",
        "/v1/volume/csi/data/explain",
        "/v1/audit?payload=true&all_changes=true&per_page=1000",
        "/v1/audit?type=csi-volume&id=data&payload=true&all_changes=true",
        "/v1/state/diff?from=1",
        "/v1/plugin/csi/p",
        "/v1/audit/requests",
    ] {
        let reply = world.h.get(target).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        let about = target.contains("requests") || reply.text().contains("data");
        assert!(
            about || target.contains("plugin"),
            "{target}: {}",
            reply.text()
        );
        assert!(
            !reply.text().contains("canary"),
            "{target}: {}",
            reply.text()
        );
    }
    let reported = streamed(&world).await;
    assert!(
        reported.contains("CSIVolume") && !reported.contains("canary"),
        "{reported}"
    );
    let World { h, .. } = world;
    h.server.shutdown().await;
    let bytes = searched(h.data.path());
    assert!(bytes > 10_000, "only {bytes} bytes were looked at");
}

/// How many bytes lie below a folder; none of them is a secret's.
fn searched(folder: &std::path::Path) -> usize {
    let (mut bytes, mut files) = (0, vec![folder.to_owned()]);
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(&path).unwrap();
            files.extend(inside.map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read(&path).unwrap();
        bytes += text.len();
        let found = text.windows(6).any(|part| part == b"canary");
        assert!(!found, "{}", path.display());
    }
    bytes
}

/// What the stream sends up to the last step of the volume.
async fn streamed(world: &World) -> String {
    let end = tokio_util::sync::CancellationToken::new();
    let publisher = world.h.publish(end.clone());
    let request = hyper::Request::builder()
        .uri("/v1/event/stream?topic=CSIVolume&namespace=*&index=1")
        .body(axum::body::Body::empty())
        .unwrap();
    let reply = tower::ServiceExt::oneshot(world.h.router(), request).await;
    let mut body = reply.unwrap().into_body();
    let mut reported = String::new();
    let all = async {
        while reported.matches("CSIVolumeClaim").count() < 2 {
            let frame = http_body_util::BodyExt::frame(&mut body).await;
            let frame = frame.unwrap().unwrap();
            reported += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    };
    let in_time = tokio::time::timeout(LONG, all).await;
    in_time.unwrap_or_else(|_| panic!("only {reported}"));
    end.cancel();
    publisher.abort();
    reported
}
