//! With what the statuses of jobs move, and what they show of children.

use serde_json::{Value, json};

use super::calls_test::reported;
use crate::http::Settings;
use crate::http::harness::{Harness, Reply, job};
use crate::http::reads_test::placed_on;

/// Registers a job that is dispatched, which has no evaluations: nothing of it moves by itself.
async fn template(h: &Harness, id: &str) -> u64 {
    let mut body = job(id);
    body["Job"]["Type"] = json!("batch");
    body["Job"]["ParameterizedJob"] = json!({ "MetaOptional": ["size"] });
    let done = h.put("/v1/jobs", &body).await;
    assert_eq!(done.status, 200, "{}", done.text());
    done.index()
}

/// The statuses of the jobs with these names.
async fn named(h: &Harness, ids: &[&str]) -> Reply {
    let name = |id: &&str| json!({ "ID": id, "Namespace": "default" });
    let jobs: Vec<Value> = ids.iter().map(name).collect();
    let body = json!({ "Jobs": jobs }).to_string();
    let reply = h.ask("POST", "/v1/jobs/statuses", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_of_named_jobs_move_with_those_and_when_one_of_them_is_gone() {
    let h = Harness::start().await;
    let one = template(&h, "one").await;
    let two = template(&h, "two").await;
    let other = template(&h, "other").await;
    // To who names no job every one is news.
    assert_eq!(named(&h, &["one", "two"]).await.index(), two);
    assert_eq!(h.get("/v1/jobs/statuses").await.index(), other);
    let gone = h.ask("DELETE", "/v1/job/two?purge=true", "").await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(named(&h, &["one", "two"]).await.index(), gone.index());
    assert_eq!(named(&h, &["one"]).await.index(), one);
    assert_eq!(h.get("/v1/jobs/statuses").await.index(), gone.index());
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_show_children_and_move_with_them() {
    let h = Harness::start().await;
    // What is dispatched waits.
    let config = json!({ "SchedulerAlgorithm": "binpack", "PauseEvalBroker": true });
    let target = "/v1/operator/scheduler/configuration";
    let paused = h.put(target, &config).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    template(&h, "mill").await;
    let child = h.put("/v1/job/mill/dispatch", &json!({})).await;
    assert_eq!(child.status, 200, "{}", child.text());
    let parent = named(&h, &["mill"]).await;
    assert_eq!(parent.index(), child.index());
    let shown = parent.json();
    assert_eq!(shown[0]["ChildStatuses"], json!(["pending"]), "{shown}");
    let all = h.get("/v1/jobs/statuses?include_children=true").await;
    let all = all.json();
    let all = all.as_array().expect("a list");
    let parents: Vec<(&Value, &Value)> = all
        .iter()
        .map(|shown| (&shown["ID"], &shown["ParentID"]))
        .collect();
    let dispatched = child.json()["DispatchedJobID"].clone();
    // The newest first.
    let wanted = [(&dispatched, &json!("mill")), (&json!("mill"), &json!(""))];
    assert_eq!(parents, wanted);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_that_come_in_parts_move_with_what_is_sent_last() {
    let settings = Settings {
        list_part: Some(200),
        ..Settings::default()
    };
    let (h, node) = placed_on(Harness::with(settings, None).await).await;
    template(&h, "newer").await;
    let index = reported(&h, &node, "it runs").await;
    let shown = h.get("/v1/jobs/statuses").await;
    let list = shown.json();
    assert_eq!(
        (&list[0]["ID"], &list[1]["ID"]),
        (&json!("newer"), &json!("web"))
    );
    assert_eq!(list[1]["Namespace"], "default", "{list}");
    assert_eq!(list[1]["Allocs"][0]["ClientStatus"], "running", "{list}");
    assert!(shown.index() >= index, "{} < {index}", shown.index());
    // A page moves with what is on it, and not with what comes behind it.
    let page = h.get("/v1/jobs/statuses?per_page=1").await;
    assert_eq!(page.json()[0]["ID"], "newer");
    assert!(page.index() < index, "{} >= {index}", page.index());
    h.stop().await;
}
