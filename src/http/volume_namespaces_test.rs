//! Volumes of several namespaces over HTTP: each is in its own, whatever is called the same.

use drover_events::csi::{claim_mode, state};
use drover_events::model::Namespace;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_testkit::{LONG, eventually, eventually_async, so};
use serde_json::{Value, json};

use super::gate_test::two_namespaces;
use super::harness::Harness;
use super::volumes_more_test::{becomes, claim, held, place_in, runs_plugin};
use super::volumes_test::described;
use crate::commands::namespace::UpsertNamespaces;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_03_ns_05_a_volume_is_looked_up_in_the_namespace_of_the_request_and_nowhere_else() {
    let h = two_namespaces().await;
    runs_plugin(&h, "", true).await;
    let body = json!({"Volumes": [described("data")]}).to_string();
    let put = "/v1/volume/csi/data?namespace=red";
    let made = h.by("root", "PUT", put, &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.json()["Volumes"][0]["Namespace"], "red");
    let not_found = "volume not found: data";
    for (method, path, status, text) in [
        ("GET", "data", 404, "volume not found"),
        ("GET", "data/explain", 404, "volume not found"),
        ("DELETE", "data", 500, not_found),
        ("DELETE", "data/delete", 500, not_found),
        ("DELETE", "data/detach", 500, not_found),
    ] {
        for namespace in ["blue", "default"] {
            let target = format!("/v1/volume/csi/{path}?namespace={namespace}&node=n");
            let reply = h.by("root", method, &target, "").await;
            assert_eq!(
                (reply.status, reply.text().as_str()),
                (status, text),
                "{method} {target}"
            );
        }
    }
    // A caller that may see one namespace learns nothing of another, whether it holds the volume or
    // not.
    let one = "only:csi-write-volume";
    for (namespace, status) in [("red", 200), ("blue", 403)] {
        let target = format!("/v1/volume/csi/data?namespace={namespace}");
        let reply = h.by(one, "DELETE", &target, "").await;
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
    }
    let gone = h.by("root", "GET", put, "").await;
    assert_eq!(gone.status, 404);
    h.stop().await;
}

/// The right is checked where the volume is to be, and it is nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_03_a_description_that_names_its_namespace_needs_the_right_there() {
    let h = two_namespaces().await;
    runs_plugin(&h, "", true).await;
    let mut named = described("data");
    named["Namespace"] = json!("blue");
    let body = json!({ "Volumes": [named] }).to_string();
    let put = "/v1/volume/csi/data?namespace=red";
    for (token, status) in [("all:red", 403), ("all:blue", 200)] {
        let reply = h.by(token, "PUT", put, &body).await;
        assert_eq!(reply.status, status, "{token}: {}", reply.text());
    }
    for (namespace, status) in [("red", 404), ("blue", 200)] {
        let target = format!("/v1/volume/csi/data?namespace={namespace}");
        assert_eq!(h.by("root", "GET", &target, "").await.status, status);
    }
    h.stop().await;
}

/// The volumes, with their namespaces, to which garbage collection gave a sign.
async fn signalled(h: &Harness) -> Vec<[String; 2]> {
    let list = "/v1/audit?kind=CsiVolumeClaimed&actor=core_gc&payload=true&per_page=1000";
    let reported = h.get(list).await.json();
    let payloads = reported.as_array().expect("a list").iter();
    let payloads = payloads.map(|entry| &entry["Payload"]);
    let signs = payloads.filter(|payload| payload["Claim"] == claim_mode::GC);
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let places = signs.map(|payload| ["Namespace", "VolumeID"].map(|name| word(&payload[name])));
    places.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_06_claims_of_a_job_are_collected_in_its_own_namespace() {
    let (h, _) = held().await;
    let namespaces = vec![Namespace {
        name: "prod".into(),
        ..Namespace::default()
    }];
    h.submit(UpsertNamespaces { namespaces }).await;
    let mut other = described("data");
    other["ExternalID"] = json!("far-prod");
    let body = json!({"Volumes": [other]});
    let made = h.put("/v1/volume/csi/data?namespace=prod", &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let holder = place_in(&h, "prod", "db", &["data"]).await;
    let mut taken = claim("data", &holder, state::CLAIMED);
    taken.claim.namespace = "prod".into();
    h.submit(taken).await;
    let row = |namespace: &str| {
        let view = h.server.projections.view();
        let row = view.get::<CsiVolumes>((namespace, "data")).unwrap();
        row.unwrap()
    };
    let view = h.server.projections.view();
    let alloc = view.get::<Allocs>(holder.as_str()).unwrap().unwrap().alloc;
    drop(view);
    becomes(&h, &alloc, "complete").await;
    // The watcher moves the index as well, and makes the volume younger: it has done what it can
    // where no server reaches the node, so what comes now is not its own.
    let begun = eventually("the release to begin", LONG, || {
        let claim = row("prod").claim_of(&holder).cloned();
        so(claim.is_some_and(|claim| claim.state == state::UNPUBLISHING))
    });
    begun.await.unwrap();
    let (prod, default) = (row("prod"), row("default"));
    let done = h.ask("PUT", "/v1/system/gc", "").await;
    assert_eq!(done.status, 200, "{}", done.text());
    let signs = eventually_async("a sign", LONG, async || {
        let signs = signalled(&h).await;
        so(!signs.is_empty()).map(|()| signs)
    });
    // The one of the same name that is held for good was left alone.
    for sign in signs.await.unwrap() {
        assert_eq!(sign, ["prod", "data"]);
    }
    assert!(row("prod").volume.modify_index > prod.volume.modify_index);
    assert_eq!(row("default"), default);
    h.stop().await;
}
