//! What a request may hold, and what of it is refused rather than left undone.

use std::sync::Arc;

use bytes::Bytes;
use drover_testkit::{LONG, eventually};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn var_06_locks_are_refused_in_words_and_nothing_is_written() {
    let h = Harness::start().await;
    let body = json!({ "Items": { "k": "v" } });
    for lock in ["lock-acquire", "lock-renew", "lock-release"] {
        for value in ["", "=true"] {
            let refused = h.put(&format!("/v1/var/app/db?{lock}{value}"), &body).await;
            assert_eq!(refused.status, 501, "{lock}: {}", refused.text());
            let wanted = "locks of variables are not supported by this version: ";
            assert!(refused.text().starts_with(wanted), "{}", refused.text());
            assert_eq!(h.get("/v1/var/app/db").await.status, 404, "{lock}");
        }
    }
    assert_eq!(h.put("/v1/var/app/db", &body).await.status, 200);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_waits_holds_its_body_and_not_what_was_made_of_it() {
    let h = Harness::start().await;
    h.register("web").await;
    let bodies = Arc::clone(&h.api.settings.bodies);
    let all = bodies.free();
    let wanted: Vec<Value> = (0..5_000)
        .map(|n| json!({ "ID": format!("job-number-{n}"), "Namespace": "default" }))
        .collect();
    let body = json!({ "Jobs": wanted, "Unknown": 1 }).to_string();
    let length = body.len();
    assert!(length > 100_000);
    let requested = {
        let router = h.router();
        let target = "/v1/jobs/statuses?index=99999999&wait=5m";
        let request = hyper::Request::post(target);
        let body = Full::new(Bytes::from(body.clone()));
        let request = request.body(axum::body::Body::new(body)).unwrap();
        tokio::spawn(async move { router.oneshot(request).await })
    };
    let waits = || match all - bodies.free() {
        held if held == length => Ok(()),
        held => Err(format!("{held} bytes are held")),
    };
    eventually("a query that waits", LONG, waits).await.unwrap();
    requested.abort();
    let gone = || match all - bodies.free() {
        0 => Ok(()),
        held => Err(format!("{held} bytes are held")),
    };
    eventually("all of it given back", LONG, gone)
        .await
        .unwrap();
    // One that is read at once has room for what is made of it, and gives that back as well.
    let reported = h.ask("POST", "/v1/jobs/statuses", body).await;
    assert_eq!(reported.status, 200, "{}", reported.text());
    assert_eq!(reported.header("x-drover-ignored"), "field Unknown");
    eventually("all of it given back", LONG, gone)
        .await
        .unwrap();
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_autopilot_that_do_nothing_are_refused_or_named() {
    const TARGET: &str = "/v1/operator/autopilot/configuration";
    let h = Harness::start().await;
    let own = h.get(TARGET).await.json();
    let same = h.put(TARGET, &own).await;
    assert_eq!((same.status, same.header("x-drover-ignored")), (200, ""));
    for name in [
        "EnableRedundancyZones",
        "DisableUpgradeMigration",
        "EnableCustomUpgrades",
    ] {
        let mut config = own.clone();
        config[name] = json!(true);
        let refused = h.put(TARGET, &config).await;
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
        assert!(refused.text().starts_with(name), "{}", refused.text());
        assert_eq!(h.get(TARGET).await.json()[name], false);
    }
    for (name, value) in [
        ("LastContactThreshold", json!("77s")),
        ("ServerStabilizationTime", json!("77s")),
        (
            "CleanupDeadServers",
            json!(own["CleanupDeadServers"] == false),
        ),
        ("MaxTrailingLogs", json!(77)),
        ("MinQuorum", json!(77)),
    ] {
        let mut config = own.clone();
        config[name] = value;
        let done = h.put(TARGET, &config).await;
        assert_eq!(done.status, 200, "{name}: {}", done.text());
        let named = done.header("x-drover-ignored");
        assert_eq!(named, format!("field {name}"));
    }
    h.stop().await;
}
