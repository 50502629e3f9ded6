//! Schemas over HTTP.

use super::super::harness::Harness;

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
        (
            "/v1/schema/events/EvalsDeleted?numbers=x",
            400,
            "plain, strings",
        ),
        ("/v1/schema/stream?numbers=x", 400, "plain, strings"),
    ] {
        let reply = h.get(target).await;
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
        assert!(reply.text().contains(text), "{}", reply.text());
    }
    h.stop().await;
}
