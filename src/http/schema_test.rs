//! Everything a running server writes is what its schema says: who, when, why, and every field.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::harness::{Harness, job};
use crate::record::Document;
use crate::record::schema::{self, tests::wrong};

/// Does a bit of everything that there is a command for.
async fn busy(h: &Harness) {
    let put = async |path: &str, body: Value| {
        let reply = h.put(path, &body).await;
        assert!(
            reply.status < 300,
            "{path}: {} {}",
            reply.status,
            reply.text()
        );
        reply.json()
    };
    put("/v1/namespace", json!({ "Name": "prod" })).await;
    put("/v1/node/pools", json!({ "Name": "gpu" })).await;
    put("/v1/var/app/db", json!({ "Items": { "k": "v" } })).await;
    let scheduler = json!({ "SchedulerAlgorithm": "spread" });
    put("/v1/operator/scheduler/configuration", scheduler).await;
    let eval = put("/v1/jobs", job("web")).await["EvalID"].clone();
    put(
        "/v1/job/web/stable",
        json!({ "JobID": "web", "JobVersion": 0, "Stable": true }),
    )
    .await;
    put("/v1/job/web/versions/v0/tag", json!({ "Version": 0 })).await;
    let scaled = json!({ "Target": { "Group": "g" }, "Count": 2, "Message": "more" });
    put("/v1/job/web/scale", scaled).await;
    put("/v1/job/web/evaluate", json!({ "JobID": "web" })).await;
    put("/v1/system/reconcile/summaries", json!({})).await;
    settled(h, &eval).await;
    for target in ["/v1/job/web", "/v1/job/web?purge=true", "/v1/var/app/db"] {
        let reply = h.ask("DELETE", target, "").await;
        assert!(reply.status < 300, "{target}: {}", reply.text());
    }
    for target in ["/v1/namespace/prod", "/v1/node/pool/gpu"] {
        let reply = h.ask("DELETE", target, "").await;
        assert!(reply.status < 300, "{target}: {}", reply.text());
    }
    put("/v1/system/gc", json!({})).await;
}

/// Waits until the scheduler is done with an evaluation.
async fn settled(h: &Harness, eval: &Value) {
    let path = format!("/v1/evaluation/{}", eval.as_str().expect("an id"));
    let mut row = h.get(&path).await;
    while row.json()["Status"] == "pending" {
        row = h
            .get(&format!("{path}?index={}&wait=20s", row.index()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_says_who_when_and_why() {
    let h = Harness::start().await;
    busy(&h).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut seen = BTreeSet::new();
    let expected = [
        "LeaderElected",
        "VersionBarrierRaised",
        "ClusterIdSet",
        "RootKeyUpserted",
        "NamespacesUpserted",
        "NamespacesDeleted",
        "NodePoolsUpserted",
        "NodePoolsDeleted",
        "VariableApplied",
        "SchedulerConfigured",
        "JobRegistered",
        "JobDeregistered",
        "JobStabilityUpdated",
        "JobVersionTagged",
        "JobSummariesReconciled",
        "EvalsUpserted",
    ];
    // What reactors write comes a moment later.
    while !expected.iter().all(|kind| seen.contains(*kind)) {
        assert!(Instant::now() < deadline, "only {seen:?}");
        let last = h.server.projections.applied_index();
        for entry in h.api.log.scan(h.api.log.bounds().0) {
            let entry = entry.expect("an entry");
            if entry.index > last {
                break;
            }
            let event = drover_migrations::decode(&entry.body).expect("an event");
            let text = Document::of(&event).text(None).expect("JSON");
            let document: Value = serde_json::from_str(&text).expect("JSON");
            let wrong = wrong(&schema::document(event.kind), &document);
            assert!(
                wrong.is_empty(),
                "{} {}: {wrong:#?}\n{text}",
                event.index,
                event.kind
            );
            seen.insert(event.kind.name());
        }
        tokio::task::yield_now().await;
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_served_by_kind_and_version() {
    let h = Harness::start().await;
    let index = h.get("/v1/schema/events").await.json();
    for kind in index["Kinds"].as_array().expect("a list") {
        let served = h.get(kind["Schema"].as_str().expect("a route")).await;
        assert_eq!(served.status, 200, "{}", served.text());
        assert_eq!(served.json()["title"], kind["Kind"]);
    }
    let old = h
        .get("/v1/schema/events/EvalsDeleted?version=1")
        .await
        .json();
    assert_eq!(old["title"], "EvalsDeleted v1");
    for (target, status, text) in [
        ("/v1/schema/events/Nothing", 404, "no kind of event"),
        ("/v1/schema/events/EvalsDeleted?version=9", 400, "version"),
        ("/v1/schema/events/EvalsDeleted?version=x", 400, "version"),
    ] {
        let reply = h.get(target).await;
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
        assert!(reply.text().contains(text), "{}", reply.text());
    }
    h.stop().await;
}
