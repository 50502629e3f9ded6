//! Volumes and plugins over HTTP: answers of several tables, lists of a node, texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_events::csi::{claim_mode, state};
use drover_events::gojson::Map;
use drover_events::model::{
    Allocation, CsiInfo, HostVolume, HostVolumeCapability, Namespace, TaskCsiPluginConfig,
    VolumeRequest,
};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Table, View};
use drover_testkit::{LONG, eventually_async, fixtures, so};
use serde_json::{Value, json};

use super::gate_test::two_namespaces;
use super::harness::{Harness, is_filled};
use super::one_view_test::answers;
use super::reads_test::raw;
use super::volumes_test::{described, register};
use crate::commands::alloc::UpdateAllocsFromClient;
use crate::commands::csi::ClaimVolume;
use crate::commands::host_volume::RegisterHostVolume;
use crate::commands::job::RegisterJob;
use crate::commands::namespace::UpsertNamespaces;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};

/// The node that takes all allocations runs the plugin, as this allocation where one is named.
pub(super) async fn runs_plugin(h: &Harness, alloc: &str, healthy: bool) -> String {
    let mut node = fixtures::node(1);
    node.secret_id = "hash".into();
    let info = CsiInfo {
        plugin_id: "hostpath".into(),
        alloc_id: alloc.to_owned(),
        healthy,
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
    id
}

fn asks_for(source: &str) -> VolumeRequest {
    VolumeRequest {
        name: source.into(),
        r#type: "csi".into(),
        source: source.into(),
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        ..VolumeRequest::default()
    }
}

/// A job that uses these volumes, and its allocation once it is placed.
async fn place(h: &Harness, id: &str, sources: &[&str]) -> String {
    place_in(h, "default", id, sources).await
}

pub(super) async fn place_in(h: &Harness, namespace: &str, id: &str, sources: &[&str]) -> String {
    h.register("like").await;
    let view = h.server.projections.view();
    let mut job = view.get::<Jobs>(("default", "like")).unwrap().unwrap();
    drop(view);
    job.namespace = namespace.into();
    job.id = id.into();
    job.name = id.into();
    let volumes = sources.iter().map(|source| (*source, asks_for(source)));
    let group = &mut job.task_groups.to_mut()[0];
    group.volumes = volumes.collect();
    if id == "plugin" {
        // What a node says of a plugin counts where its allocation is of a job that runs it.
        group.tasks.to_mut()[0].csi_plugin_config = Some(TaskCsiPluginConfig {
            id: "hostpath".into(),
            r#type: "node".into(),
            ..TaskCsiPluginConfig::default()
        });
    }
    h.submit(RegisterJob {
        job,
        eval_id: uuid::Uuid::new_v4().to_string(),
        ..RegisterJob::default()
    })
    .await;
    let list = format!("/v1/job/{id}/allocations?namespace={namespace}");
    let allocs = h.until(&list, is_filled).await.json();
    allocs[0]["ID"].as_str().unwrap().to_owned()
}

pub(super) fn claim(volume: &str, alloc: &str, to: u8) -> ClaimVolume {
    let mut claim = ClaimVolume::default();
    claim.claim.namespace = "default".into();
    claim.claim.volume_id = volume.into();
    claim.claim.allocation_id = alloc.into();
    claim.claim.mode = claim_mode::WRITE;
    claim.claim.state = to;
    claim
}

/// A server whose plugin is run by an allocation, with a volume that another one holds; node,
/// plugin's allocation, holder.
pub(super) async fn held() -> (Harness, [String; 3]) {
    let h = Harness::start().await;
    let node = runs_plugin(&h, "", true).await;
    let plugin = place(&h, "plugin", &[]).await;
    runs_plugin(&h, &plugin, true).await;
    register(&h, "data").await;
    let holder = place(&h, "db", &["data"]).await;
    h.submit(claim("data", &holder, state::CLAIMED)).await;
    (h, [node, plugin, holder])
}

fn targets(node: &str) -> Vec<String> {
    vec![
        "/v1/volumes?type=csi".to_owned(),
        format!("/v1/volumes?type=csi&node_id={node}"),
        "/v1/volume/csi/data".to_owned(),
        "/v1/volume/csi/data/explain".to_owned(),
        "/v1/plugins?type=csi".to_owned(),
        "/v1/plugin/csi/hostpath".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_06_ev_07_csi_14_volumes_and_plugins_are_read_a_hundred_times_and_stay() {
    let (h, [node, plugin, holder]) = held().await;
    let stored = |view: &View| {
        let sums = [
            format!("{:?}", view.digest_of_rows(CsiVolumes::ID).unwrap()),
            format!("{:?}", view.digest_of_rows(CsiPlugins::ID).unwrap()),
        ];
        (raw::<CsiVolumes>(view), raw::<CsiPlugins>(view), sums)
    };
    let targets = targets(&node);
    let (_, first) = answers(&h, &targets).await;
    let before = stored(&h.server.projections.view());
    let shown: Value = serde_json::from_str(&first[5]).unwrap();
    assert_eq!(shown["Allocations"][0]["ID"], json!(plugin), "{shown}");
    let shown: Value = serde_json::from_str(&first[2]).unwrap();
    assert_eq!(shown["Allocations"][0]["ID"], json!(holder), "{shown}");
    assert_eq!(shown["NodesHealthy"], 1, "it is joined: {shown}");
    for _ in 0..100 {
        for (target, first) in targets.iter().zip(&first) {
            assert_eq!(&h.get(target).await.text(), first, "{target}");
        }
    }
    assert_eq!(stored(&h.server.projections.view()), before);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_10_answers_about_volumes_are_made_on_the_view_they_were_begun_with() {
    let (h, [node, plugin, holder]) = held().await;
    let targets = targets(&node);
    let (index, then) = answers(&h, &targets).await;
    // The holder is on its way out, its node is down, nothing is healthy, and another plugin came.
    h.submit(claim("data", &holder, state::UNPUBLISHING)).await;
    runs_plugin(&h, &plugin, false).await;
    let down = UpdateNodeStatus {
        node_id: node,
        status: "down".to_owned(),
        event: None,
    };
    h.submit(down).await;
    // What is shown of allocations has changed as well, not only what is shown of the volume.
    for alloc in [&plugin, &holder] {
        let target = format!("/v1/allocation/{alloc}");
        h.until(&target, |seen| seen["ClientStatus"] == "lost")
            .await;
    }
    for (target, then) in targets.iter().zip(&then) {
        let and = if target.contains('?') { '&' } else { '?' };
        let now = h.get(target).await.text();
        assert_ne!(
            &now, then,
            "{target} must have changed, or nothing is shown"
        );
        let past = h.get(&format!("{target}{and}as_of={index}")).await;
        assert_eq!(past.status, 200, "{target}: {}", past.text());
        assert_eq!(&past.text(), then, "{target}");
    }
    h.stop().await;
}

/// What the client of an allocation says of it.
pub(super) async fn becomes(h: &Harness, alloc: &Allocation, status: &str) {
    let reported = Allocation {
        client_status: status.into(),
        ..alloc.clone()
    };
    let (allocs, caller) = (vec![reported], None);
    h.submit(UpdateAllocsFromClient { allocs, caller }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_10_an_answer_about_a_volume_and_its_allocations_mixes_no_two_indexes() {
    let (h, [_, _, holder]) = held().await;
    let view = h.server.projections.view();
    let alloc = view.get::<Allocs>(holder.as_str()).unwrap().unwrap().alloc;
    drop(view);
    becomes(&h, &alloc, "running").await;
    let (h, over) = (Arc::new(h), Arc::new(AtomicBool::new(false)));
    let writing = {
        let (h, over) = (Arc::clone(&h), Arc::clone(&over));
        tokio::spawn(async move {
            // At every index that it is held, its holder runs.
            while !over.load(Ordering::Relaxed) {
                h.submit(claim("data", &holder, state::READY_TO_FREE)).await;
                becomes(&h, &alloc, "pending").await;
                becomes(&h, &alloc, "running").await;
                h.submit(claim("data", &holder, state::CLAIMED)).await;
            }
        })
    };
    let mut seen = [0, 0];
    let look = async || {
        let shown = h.get("/v1/volume/csi/data").await.json();
        let held = shown["WriteAllocs"].as_object().map_or(0, |all| all.len());
        let stubs = shown["Allocations"].as_array().unwrap();
        assert_eq!(stubs.len(), held, "{shown}");
        let runs = |of: &Value| of["ClientStatus"] == "running";
        assert!(stubs.iter().all(runs), "{shown}");
        let mode = shown["AccessMode"].as_str().unwrap();
        assert_eq!(mode.is_empty(), held == 0, "{shown}");
        let explained = h.get("/v1/volume/csi/data/explain").await.json();
        let claims = explained["Claims"].as_array().unwrap();
        let says = explained["Says"].as_str().unwrap();
        assert_eq!(says == "nobody holds it", claims.is_empty(), "{explained}");
        assert!(claims.iter().all(runs), "{explained}");
        seen[held] += 1;
        so(seen.iter().all(|times| *times >= 20))
    };
    eventually_async("it to be seen free and held", LONG, look)
        .await
        .unwrap();
    over.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let h = Arc::into_inner(h).expect("nobody else holds it");
    h.stop().await;
}

/// What the pages of a list hold, one after the other.
async fn pages(h: &Harness, target: &str) -> Vec<String> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let next = match token.as_str() {
            "" => String::new(),
            token => format!("&next_token={token}"),
        };
        let reply = h.get(&format!("{target}{next}")).await;
        assert_eq!(reply.status, 200, "{target}{next}: {}", reply.text());
        pages.push(reply.text());
        assert!(pages.len() < 100, "{target}: {pages:?}");
        token = reply.header("x-nomad-nexttoken").to_owned();
        if token.is_empty() {
            return pages;
        }
    }
}

/// Five volumes, all of which one allocation uses: the list of the node is the list of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_47_ev_19_the_list_of_a_node_pages_and_filters_as_that_of_all_volumes() {
    let h = Harness::start().await;
    let node = runs_plugin(&h, "", true).await;
    let names = ["v1", "v2", "v3", "v4", "v5"];
    for name in names {
        register(&h, name).await;
    }
    place(&h, "db", &names).await;
    for (query, length) in [
        ("", 1),
        ("&reverse=true", 1),
        ("&per_page=1", 5),
        ("&per_page=2", 3),
        ("&per_page=2&reverse=true", 3),
        ("&per_page=5", 1),
        ("&prefix=v3", 1),
        ("&plugin_id=hostpath&per_page=3", 2),
        ("&plugin_id=other", 1),
        ("&filter=ID+!=+%22v2%22&per_page=3", 2),
        ("&filter=ID+==+%22v2%22&reverse=true", 1),
        ("&namespace=*&per_page=4", 2),
        ("&namespace=other", 1),
    ] {
        let all = pages(&h, &format!("/v1/volumes?type=csi{query}")).await;
        let of_node = format!("/v1/volumes?type=csi&node_id={node}{query}");
        assert_eq!(pages(&h, &of_node).await, all, "{query}");
        assert_eq!(all.len(), length, "{query}: {all:?}");
    }
    let other = pages(&h, "/v1/volumes?type=csi&node_id=nobody").await;
    assert_eq!(other, ["[]"]);
    h.stop().await;
}

/// Five host volumes of two namespaces, all on one node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_19_the_list_of_a_node_pages_as_that_of_all_host_volumes() {
    let h = Harness::start().await;
    let namespaces = vec![Namespace {
        name: "red".into(),
        ..Namespace::default()
    }];
    h.submit(UpsertNamespaces { namespaces }).await;
    let node = runs_plugin(&h, "", true).await;
    for (number, namespace) in ["default", "default", "default", "red", "red"]
        .into_iter()
        .enumerate()
    {
        let volume = HostVolume {
            name: format!("v{number}"),
            namespace: namespace.into(),
            node_id: node.clone(),
            requested_capabilities: vec![HostVolumeCapability {
                access_mode: "single-node-writer".into(),
                attachment_mode: "file-system".into(),
            }]
            .into(),
            ..HostVolume::default()
        };
        h.submit(RegisterHostVolume { volume }).await;
    }
    for (query, length) in [
        ("", 1),
        ("&reverse=true", 1),
        ("&per_page=1", 3),
        ("&per_page=1&reverse=true", 3),
        ("&namespace=*&per_page=2", 3),
        ("&namespace=*&per_page=2&reverse=true", 3),
        ("&namespace=red&per_page=1&reverse=true", 2),
        ("&filter=Name+!=+%22v1%22&per_page=1&reverse=true", 2),
    ] {
        let all = pages(&h, &format!("/v1/volumes?type=host{query}")).await;
        let of_node = format!("/v1/volumes?type=host&node_id={node}{query}");
        assert_eq!(pages(&h, &of_node).await, all, "{query}");
        assert_eq!(all.len(), length, "{query}: {all:?}");
    }
    h.stop().await;
}

/// What is refused of volumes: method, path, body, status and text.
fn refusals(node: &str) -> Vec<(&'static str, String, Value, u16, &'static str)> {
    let of = |method, path: &str, body, status, text| {
        (method, format!("/v1/{path}"), body, status, text)
    };
    let mut unknown = described("new");
    unknown["PluginID"] = json!("ghost");
    let mut odd = described("data");
    odd["RequestedCapabilities"] = json!([{"AccessMode": "odd", "AttachmentMode": "x"}]);
    let (none, missing) = (Value::Null, "volume not found: ghost");
    vec![
        of("DELETE", "volume/csi/ghost", none.clone(), 500, missing),
        of(
            "DELETE",
            "volume/csi/data",
            none.clone(),
            500,
            "volume in use: data",
        ),
        of(
            "DELETE",
            &format!("volume/csi/ghost/detach?node={node}"),
            none.clone(),
            500,
            missing,
        ),
        of(
            "DELETE",
            "namespace/prod",
            none,
            500,
            "namespace \"prod\" contains at least one CSI volume \"kept\". All CSI volumes in \
             namespace must be deleted before it can be deleted",
        ),
        of(
            "PUT",
            "volume/csi/new",
            json!({"Volumes": [unknown]}),
            500,
            "no CSI plugin named: ghost could be found",
        ),
        of(
            "PUT",
            "volume/csi/data",
            json!({"Volumes": [odd]}),
            400,
            "validation: unknown access mode \"odd\", unknown attachment mode \"x\"",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ev_18_what_is_refused_of_volumes_names_it_and_says_each_thing_once() {
    let (h, [node, ..]) = held().await;
    let namespaces = vec![Namespace {
        name: "prod".into(),
        ..Namespace::default()
    }];
    h.submit(UpsertNamespaces { namespaces }).await;
    let body = json!({"Volumes": [described("kept")]});
    let made = h.put("/v1/volume/csi/kept?namespace=prod", &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    for (method, target, body, status, text) in refusals(&node) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let reply = h.ask(method, &target, body).await;
        let reported = reply.text();
        assert_eq!(
            (reply.status, reported.as_str()),
            (status, text),
            "{target}"
        );
        let mut parts: Vec<_> = reported.split(": ").map(str::trim).collect();
        let all = parts.len();
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(
            parts.len(),
            all,
            "{target} says something twice: {reported}"
        );
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eval_16_csi_29_a_job_that_waits_for_a_volume_goes_on_when_it_is_free() {
    let (h, [_, _, holder]) = held().await;
    let view = h.server.projections.view();
    let mut job = view.get::<Jobs>(("default", "db")).unwrap().unwrap();
    let alloc = view.get::<Allocs>(holder.as_str()).unwrap().unwrap().alloc;
    drop(view);
    job.id = "next".into();
    job.name = "next".into();
    h.submit(RegisterJob {
        job,
        eval_id: uuid::Uuid::new_v4().to_string(),
        ..RegisterJob::default()
    })
    .await;
    let blocked = |reported: &Value| {
        let all = reported.as_array().cloned().unwrap_or_default();
        all.iter().any(|eval| eval["Status"] == "blocked")
    };
    h.until("/v1/job/next/evaluations", blocked).await;
    assert_eq!(h.get("/v1/job/next/allocations").await.json(), json!([]));
    // Its holder ends for good, and what it held is given back, step by step.
    assert_eq!(h.ask("DELETE", "/v1/job/db", "").await.status, 200);
    becomes(&h, &alloc, "complete").await;
    for to in [state::NODE_DETACHED, state::READY_TO_FREE] {
        h.submit(claim("data", &holder, to)).await;
    }
    let placed = h.until("/v1/job/next/allocations", is_filled).await;
    assert_eq!(placed.json()[0]["JobID"], "next");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_17_csi_18_lists_are_for_who_may_see_something_in_them() {
    let h = two_namespaces().await;
    let (volumes, hosts) = ("only:csi-list-volume", "only:host-volume-read");
    for (token, target, status) in [
        ("nodes", "/v1/volumes", 403),
        ("nodes", "/v1/volumes?namespace=*", 403),
        ("nodes", "/v1/volumes?type=csi&namespace=red", 403),
        ("nodes", "/v1/volumes/claims?namespace=red", 403),
        ("nodes", "/v1/plugins?type=csi", 403),
        ("", "/v1/plugins?type=csi", 403),
        (volumes, "/v1/volumes?type=csi&namespace=red", 200),
        (volumes, "/v1/volumes?type=csi&namespace=*", 200),
        (volumes, "/v1/volumes?type=csi&namespace=blue", 403),
        (volumes, "/v1/volumes?type=host&namespace=red", 403),
        (volumes, "/v1/plugins?type=csi", 403),
        (hosts, "/v1/volumes?type=host&namespace=red", 200),
        (hosts, "/v1/volumes/claims?namespace=red", 200),
        (hosts, "/v1/volumes/claims?namespace=blue", 403),
        (hosts, "/v1/volumes?type=csi&namespace=red", 403),
        ("root", "/v1/plugins?type=csi", 200),
    ] {
        let reply = h.seen(token, target).await;
        assert_eq!(reply.status, status, "{token} {target}: {}", reply.text());
        let reported = reply.header("x-nomad-index").is_empty();
        assert_eq!(reported, status == 403, "{token} {target}");
    }
    // Who may see nothing of it waits for nothing of it.
    let begun = std::time::Instant::now();
    let waits = "/v1/volumes?type=csi&namespace=red&index=99999999&wait=600s";
    assert_eq!(h.seen("nodes", waits).await.status, 403);
    assert!(begun.elapsed() < LONG);
    h.stop().await;
}
