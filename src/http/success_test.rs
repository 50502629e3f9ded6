//! What succeeds over HTTP: each change is made, answered as Nomad does, and seen afterwards.

use drover_events::job::JobRegistered;
use drover_events::model::{Job, ServiceRegistration};
use drover_testkit::fixtures;
use serde_json::{Value, json};

use super::harness::{Given, Harness, Reply, job};
use super::reads_test::placed;
use crate::commands::service::UpsertServices;

async fn done(h: &Harness, target: &str, body: Value) -> Value {
    let reply: Reply = h.put(target, &body).await;
    assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    let answer = reply.json();
    assert_eq!(answer["Index"], json!(reply.index()), "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_paused_resumed_judged_and_promoted() {
    let (h, _) = placed().await;
    let newest = h
        .until("/v1/job/web/deployment", |found| found["ID"].is_string())
        .await
        .json();
    let id = newest["ID"].as_str().expect("an id").to_owned();
    let path = format!("/v1/deployment/{id}");
    for (pause, status) in [(true, "paused"), (false, "running")] {
        let target = format!("/v1/deployment/pause/{id}");
        let answer = done(&h, &target, json!({"DeploymentID": id, "Pause": pause})).await;
        assert_eq!(answer["DeploymentModifyIndex"], answer["Index"]);
        assert_eq!(h.get(&path).await.json()["Status"], status);
    }
    let alloc = h.get("/v1/job/web/allocations").await.json()[0]["ID"].clone();
    let target = format!("/v1/deployment/allocation-health/{id}");
    let body = json!({"DeploymentID": id, "HealthyAllocationIDs": [alloc]});
    done(&h, &target, body).await;
    let judged = h.get(&path).await.json();
    assert_eq!(judged["TaskGroups"]["g"]["HealthyAllocs"], 1, "{judged}");
    h.until(&path, |found| found["Status"] == "successful")
        .await;

    let mut canary = job("web");
    let group = &mut canary["Job"]["TaskGroups"][0];
    group["Update"] = json!({"MaxParallel": 1, "Canary": 1, "HealthCheck": "checks",
        "MinHealthyTime": 10_000_000_000_u64, "HealthyDeadline": 300_000_000_000_u64,
        "ProgressDeadline": 600_000_000_000_u64});
    group["Tasks"][0]["Env"] = json!({"V": "2"});
    done(&h, "/v1/jobs", canary).await;
    let placed = |found: &Value| {
        let placed = found["TaskGroups"]["g"]["PlacedCanaries"].as_array();
        found["ID"] != json!(id) && placed.is_some_and(|canaries| canaries.len() == 1)
    };
    let newer = h.until("/v1/job/web/deployment", placed).await.json();
    let id = newer["ID"].as_str().expect("an id");
    let placed = newer["TaskGroups"]["g"]["PlacedCanaries"].clone();
    let body = json!({"DeploymentID": id, "HealthyAllocationIDs": placed});
    let target = format!("/v1/deployment/allocation-health/{id}");
    done(&h, &target, body).await;
    let target = format!("/v1/deployment/promote/{id}");
    let answer = done(&h, &target, json!({"DeploymentID": id, "All": true})).await;
    assert_eq!(answer["EvalCreateIndex"], answer["Index"], "{answer}");
    let promoted = h.get(&format!("/v1/deployment/{id}")).await.json();
    assert_eq!(promoted["TaskGroups"]["g"]["Promoted"], true);
    let eval = answer["EvalID"].as_str().expect("an id");
    assert_eq!(h.get(&format!("/v1/evaluation/{eval}")).await.status, 200);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_failed_and_an_allocation_stopped() {
    let (h, _) = placed().await;
    let newest = h
        .until("/v1/job/web/deployment", |found| found["ID"].is_string())
        .await
        .json();
    let id = newest["ID"].as_str().expect("an id").to_owned();
    let answer = done(&h, &format!("/v1/deployment/fail/{id}"), json!({})).await;
    assert!(answer["EvalID"].as_str().is_some_and(|id| id.len() == 36));
    let failed = h.get(&format!("/v1/deployment/{id}")).await.json();
    assert_eq!(failed["Status"], "failed");
    assert_eq!(failed["StatusDescription"], "Deployment marked as failed");

    let alloc = h.get("/v1/job/web/allocations").await.json()[0]["ID"].clone();
    let alloc = alloc.as_str().expect("an id").to_owned();
    let answer = done(&h, &format!("/v1/allocation/{alloc}/stop"), json!({})).await;
    let eval = answer["EvalID"].as_str().expect("an id");
    let eval = h.get(&format!("/v1/evaluation/{eval}")).await.json();
    assert_eq!(eval["TriggeredBy"], "alloc-stop", "{eval}");
    let path = format!("/v1/allocation/{alloc}");
    h.until(&path, |found| found["DesiredStatus"] == "stop")
        .await;
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_deleted() {
    let (h, node) = placed().await;
    let alloc = h.get("/v1/job/web/allocations").await.json()[0]["ID"].clone();
    let service = ServiceRegistration {
        id: "_nomad-task-x-api".into(),
        service_name: "api".into(),
        namespace: "default".into(),
        node_id: node,
        job_id: "web".into(),
        alloc_id: alloc.as_str().expect("an id").into(),
        address: "10.0.0.1".into(),
        port: 80,
        ..ServiceRegistration::default()
    };
    let services = vec![service];
    h.submit(UpsertServices { services }).await;
    let listed = h.get("/v1/service/api").await.json();
    assert_eq!(listed[0]["Port"], 80, "{listed}");
    let gone = h
        .ask("DELETE", "/v1/service/api/_nomad-task-x-api", "")
        .await;
    assert_eq!((gone.status, gone.text().as_str()), (200, ""));
    assert!(gone.index() > 0);
    assert_eq!(h.get("/v1/service/api").await.text(), "[]");
    let again = h
        .ask("DELETE", "/v1/service/api/_nomad-task-x-api", "")
        .await;
    assert_eq!(
        (again.status, again.text().as_str()),
        (500, "service registration not found")
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_reverted_marked_stable_and_validated() {
    let h = Harness::start().await;
    h.register("web").await;
    let mut second = job("web");
    second["Job"]["Meta"] = json!({"team": "other"});
    done(&h, "/v1/jobs", second).await;
    let stable = json!({"JobID": "web", "JobVersion": 0, "Stable": true});
    let answer = done(&h, "/v1/job/web/stable", stable).await;
    assert_eq!(answer["JobModifyIndex"], answer["Index"]);
    let versions = h.get("/v1/job/web/versions").await.json();
    let marks: Vec<(&Value, &Value)> = versions["Versions"]
        .as_array()
        .expect("versions")
        .iter()
        .map(|version| (&version["Version"], &version["Stable"]))
        .collect();
    assert_eq!(
        marks,
        [(&json!(1), &json!(false)), (&json!(0), &json!(true))]
    );
    let back = json!({"JobID": "web", "JobVersion": 0});
    let answer = done(&h, "/v1/job/web/revert", back).await;
    assert_eq!(answer["EvalCreateIndex"], answer["Index"]);
    let now = h.get("/v1/job/web").await.json();
    assert_eq!(now["Version"], 2);
    assert_eq!(now["Meta"], json!({"team": "store"}), "as version 0 has it");
    let found = h.put("/v1/validate/job", &job("web")).await.json();
    assert_eq!(found["DriverConfigValidated"], true);
    assert_eq!(
        (&found["Error"], &found["ValidationErrors"]),
        (&json!(""), &Value::Null)
    );
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_pool_is_made_changed_listed_and_deleted() {
    let h = Harness::start().await;
    for target in ["/v1/node/pools", "/v1/node/pool/gpu"] {
        let body = json!({"Name": "gpu", "Description": target, "Meta": {"a": "b"}});
        let reply = h.put(target, &body).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, ""));
        let pool = h.get("/v1/node/pool/gpu").await.json();
        assert_eq!(
            (&pool["Description"], &pool["Meta"]["a"]),
            (&json!(target), &json!("b"))
        );
        assert_eq!(pool["ModifyIndex"], json!(reply.index()));
    }
    let listed = h.get("/v1/node/pools").await.json();
    let names: Vec<&Value> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| &p["Name"])
        .collect();
    assert_eq!(names, ["all", "default", "gpu"]);
    let gone = h.ask("DELETE", "/v1/node/pool/gpu", "").await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(h.get("/v1/node/pool/gpu").await.status, 404);
    h.stop().await;
}

/// There is one job more than a page takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_of_all_jobs_are_counted_again_though_a_page_takes_fewer() {
    let h = Harness::start().await;
    let mut registered = 0;
    for number in 0..129 {
        let job = Job {
            id: format!("j{number:03}"),
            ..fixtures::job("batch", 0)
        };
        let event = JobRegistered {
            job: job.into(),
            ..JobRegistered::default()
        };
        registered = h.submit(Given(event.into())).await;
    }
    let done = h.ask("PUT", "/v1/system/reconcile/summaries", "").await;
    assert_eq!(done.status, 200, "{}", done.text());
    let counted_at = async |id: &str| {
        let shown = h.get(&format!("/v1/job/{id}/summary")).await.json();
        shown["ModifyIndex"].as_u64().expect("an index")
    };
    let (first, last) = (counted_at("j000").await, counted_at("j128").await);
    assert!(registered < first, "{registered}, {first}");
    assert!(first < last, "they are of one page: {first}, {last}");
    assert_eq!(last, done.index(), "the answer is that of the last page");
    h.stop().await;
}
