//! What is queried about a job and answered beside it, and what becomes of a job on its way in.

use drover_events::Event;
use drover_events::model::Allocation;
use serde_json::{Value, json};

use crate::commands::alloc::UpdateAllocsFromClient;
use crate::http::Settings;
use crate::http::harness::{Harness, job};
use crate::http::reads_test::placed;

/// The client of the one allocation of job web says that it runs, in these words; the index of the
/// event.
pub(super) async fn reported(h: &Harness, node: &str, words: &str) -> u64 {
    let list = h.get("/v1/job/web/allocations").await.json();
    let alloc = Allocation {
        id: list[0]["ID"].as_str().expect("an id").to_owned(),
        node_id: node.to_owned(),
        client_status: "running".to_owned(),
        client_description: words.to_owned(),
        ..Allocation::default()
    };
    let (allocs, caller) = (vec![alloc], None);
    h.submit(UpdateAllocsFromClient { allocs, caller }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobs_scale_moves_with_whatever_is_said_of_an_allocation() {
    let (h, node) = placed().await;
    // That it runs is counted in the job's summary as well; other words are in its row alone.
    for words in ["it runs", "it still does"] {
        let index = reported(&h, &node, words).await;
        let shown = h.get("/v1/job/web/scale").await;
        assert!(
            shown.index() >= index,
            "{words}: {} < {index}",
            shown.index()
        );
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_of_a_job_are_those_that_the_filter_takes() {
    let (h, _) = placed().await;
    for (query, count) in [
        ("", 1),
        ("?filter=JobID==web", 1),
        ("?filter=JobID==other", 0),
        ("?all=true&filter=JobID==web", 1),
        ("?all=true&filter=JobID==other", 0),
    ] {
        let target = format!("/v1/job/web/deployments{query}");
        let found = h.get(&target).await.json();
        let found_count = found.as_array().map(Vec::len);
        assert_eq!(found_count, Some(count), "{query}: {found}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_when_a_periodic_job_is_launched_next() {
    let h = Harness::start().await;
    let mut clock = job("clock");
    clock["Job"]["Type"] = json!("batch");
    clock["Job"]["Periodic"] = json!({
        "Enabled": true, "Spec": "0 0 1 1 *", "SpecType": "cron",
    });
    for (id, body, periodic) in [("clock", clock, true), ("plain", job("plain"), false)] {
        let plan = h.put(&format!("/v1/job/{id}/plan"), &body).await;
        assert_eq!(plan.status, 200, "{id}: {}", plan.text());
        let plan = plan.json();
        let next = plan["NextPeriodicLaunch"].as_str();
        let new_year = next.map(|next| next.ends_with("-01-01T00:00:00Z"));
        assert_eq!(new_year, periodic.then_some(true), "{id}: {next:?}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_that_an_ending_does_not_have_are_refused() {
    let h = Harness::start().await;
    h.register("web").await;
    for (methods, endings) in [
        (
            "PUT POST DELETE",
            "allocations evaluations versions deployments deployment services submission actions",
        ),
        (
            "GET DELETE",
            "plan evaluate stable revert dispatch dispatch/payload periodic/force",
        ),
        ("DELETE", "scale"),
        ("GET", "versions/good/tag"),
    ] {
        for ending in endings.split(' ') {
            for method in methods.split(' ') {
                let target = format!("/v1/job/web/{ending}");
                let reply = h.ask(method, &target, "{}").await;
                assert_eq!(
                    (reply.status, reply.text().as_str()),
                    (405, "Invalid method"),
                    "{method} {target}"
                );
            }
        }
    }
    assert_eq!(h.get("/v1/job/web").await.json()["Stop"], false);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_registered_in_the_region_of_its_agent() {
    let settings = Settings {
        region: "mars".to_owned(),
        ..Settings::default()
    };
    let h = Harness::with(settings, None).await;
    for region in [Value::Null, json!("global"), json!("mars")] {
        let mut body = job("web");
        if !region.is_null() {
            body["Job"]["Region"] = region.clone();
        }
        let done = h.put("/v1/jobs", &body).await;
        assert_eq!(done.status, 200, "{region}: {}", done.text());
        let stored = h.get("/v1/job/web").await.json();
        assert_eq!(stored["Region"], "mars", "{region}");
    }
    h.stop().await;
}

/// A reader of the log would take it for the tag of the version that is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_does_not_go_into_the_event_of_a_revert() {
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
    let entry = h.api.log.read(reverted.index()).expect("it is read");
    let entry = entry.expect("it is in the log");
    let recorded = drover_migrations::decode(&entry.body).expect("an event");
    let envelope = recorded.envelope.expect("it is none of Raft's own");
    let Event::JobRegistered(event) = envelope.event else {
        panic!("a revert registers the job again")
    };
    assert_eq!(
        event.job.meta.get("team").map(String::as_str),
        Some("store")
    );
    assert_eq!(event.job.version_tag, None);
    h.stop().await;
}
