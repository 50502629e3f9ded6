//! What answers show of what there is, by what was requested.

use drover_events::model::{Allocation, TaskState};
use serde_json::{Value, json};

use super::harness::{Harness, job};
use super::reads_test::placed;
use crate::commands::alloc::UpdateAllocsFromClient;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_tells_the_stretch_and_the_namespace_that_were_asked_for() {
    let h = Harness::start().await;
    let first = h.register("first").await.index();
    let second = h.register("second").await.index();
    for (query, has_first, has_second) in [
        ("", true, true),
        (&*format!("&since={second}"), false, true),
        (&format!("&until={first}"), true, false),
        (&format!("&since={first}&until={second}"), true, true),
        ("&namespace=*", true, true),
        ("&namespace=default", true, true),
        ("&namespace=other", false, false),
        ("&all_changes=true&payload=1&diff=f", true, true),
    ] {
        let reply = h.get(&format!("/v1/audit?per_page=1000{query}")).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text());
        let reported = reply.json();
        let reported = reported.as_array().expect("a list");
        let has = |index: u64| reported.iter().any(|entry| entry["Index"] == index);
        assert_eq!(
            (has(first), has(second)),
            (has_first, has_second),
            "{query}"
        );
    }
    for (query, why) in [
        ("diff=maybe", "no boolean"),
        ("all_changes=7", "no boolean"),
        ("payload=yes", "no boolean"),
        ("since=999999", "has not happened yet"),
        ("until=999999", "has not happened yet"),
    ] {
        let reply = h.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.text().contains(why), "{query}: {}", reply.text());
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_reverted_to_leaves_its_tag_to_the_one_that_has_it() {
    let h = Harness::start().await;
    h.register("web").await;
    let tag = json!({"Version": 0, "Description": "good"});
    let tagged = h.put("/v1/job/web/versions/good/tag", &tag).await;
    assert_eq!(tagged.status, 200, "{}", tagged.text());
    let mut second = job("web");
    second["Job"]["Meta"] = json!({"team": "other"});
    assert_eq!(h.put("/v1/jobs", &second).await.status, 200);
    let back = json!({"JobID": "web", "JobVersion": 0});
    let reverted = h.put("/v1/job/web/revert", &back).await;
    assert_eq!(reverted.status, 200, "{}", reverted.text());
    let versions = h.get("/v1/job/web/versions").await.json();
    let versions = versions["Versions"].as_array().expect("versions").iter();
    let names: Vec<&Value> = versions.map(|one| &one["VersionTag"]["Name"]).collect();
    assert_eq!(names, [&Value::Null, &Value::Null, &json!("good")]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_and_lists_show_what_they_were_asked_for() {
    let (h, _) = placed().await;
    let shown = h.get("/v1/jobs/statuses").await.json();
    let web = &shown[0];
    let reported = [&web["ID"], &web["NodePool"], &web["ParentID"]];
    assert_eq!(reported, [&json!("web"), &json!("default"), &json!("")]);
    let deployment = h.get("/v1/job/web/deployment").await.json();
    assert!(deployment["ID"].is_string());
    assert_eq!(web["LatestDeployment"]["ID"], deployment["ID"], "{web}");
    let states = async |query: &str| {
        let list = h.get(&format!("/v1/allocations{query}")).await.json();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
        list[0]["TaskStates"].is_null()
    };
    let usual = states("").await;
    assert_eq!(states("?task_states=true").await, usual);
    assert!(states("?task_states=false").await);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocations_are_listed_with_the_states_of_their_tasks_unless_nobody_wants_them() {
    let (h, node) = placed().await;
    let list = h.get("/v1/allocations").await.json();
    let state = TaskState {
        state: "running".into(),
        ..TaskState::default()
    };
    let reported = Allocation {
        id: list[0]["ID"].as_str().expect("an id").to_owned(),
        node_id: node,
        client_status: "running".into(),
        task_states: [("t", state)].into(),
        ..Allocation::default()
    };
    let (allocs, caller) = (vec![reported], None);
    h.submit(UpdateAllocsFromClient { allocs, caller }).await;
    for (query, shown) in [
        ("", true),
        ("?task_states=true", true),
        ("?task_states=false", false),
        ("?resources=true", true),
        ("?resources=true&task_states=false", false),
    ] {
        // The second time it may come from memory.
        for _ in 0..2 {
            let list = h.get(&format!("/v1/allocations{query}")).await.json();
            let states = &list[0]["TaskStates"];
            assert_eq!(states["t"]["State"] == "running", shown, "{query}: {list}");
            assert_eq!(states.is_null(), !shown, "{query}: {list}");
        }
    }
    h.stop().await;
}
