//! What lists show of jobs, and what a registration adds to them.

use drover_events::cluster::LeaderElected;
use drover_events::job::JobRegistered;
use drover_events::model::Job;
use drover_events::{Actor, Envelope, Event, EventId, Header, RaftPayload, gojson};
use serde_json::{Value, json};

use super::harness::{Harness, job};
use super::reads_test::placed;
use crate::raft::Payload;

#[tokio::test(flavor = "multi_thread")]
async fn job_01_job_02_meta_is_in_a_stub_only_if_it_is_asked_for_and_there() {
    let server = Harness::start().await;
    server.register("with").await;
    let mut bare = job("without");
    bare["Job"]["Meta"] = Value::Null;
    assert_eq!(server.put("/v1/jobs", &bare).await.status, 200);
    let stubs = |reply: Value| {
        let stubs = reply.as_array().unwrap().clone();
        let named = |name: &str| {
            stubs
                .iter()
                .find(|stub| stub["ID"] == name)
                .unwrap()
                .clone()
        };
        (named("with"), named("without"))
    };
    let (with, without) = stubs(server.get("/v1/jobs?meta=true").await.json());
    assert_eq!(with["Meta"], json!({ "team": "store" }));
    assert!(without.get("Meta").is_none(), "{without}");
    for target in ["/v1/jobs", "/v1/jobs?meta=false"] {
        let (with, without) = stubs(server.get(target).await.json());
        assert!(
            with.get("Meta").is_none(),
            "{target}: omitted, not null: {with}"
        );
        assert!(without.get("Meta").is_none(), "{target}");
    }
    let bad = server.get("/v1/jobs?meta=perhaps").await;
    assert_eq!(bad.status, 500, "as Nomad answers it");
    let text = "Failed to parse value of \"meta\" (perhaps) as a bool";
    assert!(bad.text().contains(text), "{}", bad.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_10_services_imply_constraints_once() {
    let server = Harness::start().await;
    let nomads = json!({
        "LTarget": "${attr.nomad.service_discovery}", "Operand": "=", "RTarget": "true",
    });
    let consuls = json!({
        "LTarget": "${attr.consul.version}", "Operand": "semver", "RTarget": ">= 1.8.0",
    });
    for (provider, of_task, wanted) in [
        ("nomad", false, &nomads),
        ("nomad", true, &nomads),
        ("consul", false, &consuls),
        ("consul", true, &consuls),
    ] {
        let id = format!("{provider}-{of_task}");
        let mut spec = job(&id);
        let group = &mut spec["Job"]["TaskGroups"][0];
        let user = if of_task {
            &mut group["Tasks"][0]
        } else {
            group
        };
        user["Services"] = json!([{ "Name": "web", "Provider": provider, "PortLabel": "8080" }]);
        let target = format!("/v1/job/{id}");
        let mut counts = Vec::new();
        for _ in 0..2 {
            let done = server.put("/v1/jobs", &spec).await;
            assert_eq!(done.status, 200, "{provider}: {}", done.text());
            let stored = server.get(&target).await.json();
            let constraints = stored["TaskGroups"][0]["Constraints"].clone();
            let all = constraints.as_array().unwrap().clone();
            counts.push(all.iter().filter(|one| *one == wanted).count());
            // What is stored is registered again.
            spec = json!({ "Job": stored });
        }
        assert_eq!(counts, [1, 1], "{id}");
    }
    let plain = server.register("plain").await;
    assert_eq!(plain.status, 200);
    let stored = server.get("/v1/job/plain").await.json();
    let constraints = &stored["TaskGroups"][0]["Constraints"];
    assert!(
        constraints.as_array().is_none_or(Vec::is_empty),
        "{constraints}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_is_reverted_to_brings_its_source() {
    let server = Harness::start().await;
    let mut first = job("web");
    first["Submission"] = json!({ "Source": "job \"web\" { # first }", "Format": "hcl2" });
    assert_eq!(server.put("/v1/jobs", &first).await.status, 200);
    let mut second = job("web");
    second["Job"]["Priority"] = json!(70);
    second["Submission"] = json!({ "Source": "job \"web\" { # second }", "Format": "hcl2" });
    assert_eq!(server.put("/v1/jobs", &second).await.status, 200);
    let revert = json!({ "JobID": "web", "JobVersion": 0 });
    let done = server.put("/v1/job/web/revert", &revert).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let now = server.get("/v1/job/web").await.json();
    assert_eq!((&now["Version"], &now["Priority"]), (&json!(2), &json!(50)));
    let source = server.get("/v1/job/web/submission?version=2").await;
    assert_eq!(source.status, 200, "{}", source.text());
    assert_eq!(source.json()["Source"], "job \"web\" { # first }");
    let too_high = json!({ "Job": second["Job"], "EvalPriority": 101 });
    let refused = server.put("/v1/jobs", &too_high).await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.text(),
        "Eval priority must be between 1 and 100 inclusively"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_evaluation_of_a_revert_names_the_deployment_that_goes_on() {
    let (server, _) = placed().await;
    let mut second = job("web");
    second["Job"]["TaskGroups"][0]["Tasks"][0]["Env"] = json!({ "V": "2" });
    assert_eq!(server.put("/v1/jobs", &second).await.status, 200);
    let goes_on = |found: &Value| found["JobVersion"] == 1 && found["Status"] == "running";
    let found = server.until("/v1/job/web/deployment", goes_on).await;
    let revert = json!({ "JobID": "web", "JobVersion": 0 });
    let done = server.put("/v1/job/web/revert", &revert).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let answer = done.json();
    let eval = answer["EvalID"].as_str().unwrap();
    // The scheduler writes the evaluation again once it has worked on it.
    let path = format!("/v1/evaluation/{eval}?as_of={}", done.index());
    let eval = server.get(&path).await.json();
    assert_eq!(eval["DeploymentID"], found.json()["ID"], "{eval}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_scales_a_task_is_stored_with_its_job() {
    let server = Harness::start().await;
    let mut spec = job("web");
    let policy = json!([{ "Type": "vertical_cpu", "Max": 900, "Policy": { "cooldown": "1m" } }]);
    spec["Job"]["TaskGroups"][0]["Tasks"][0]["ScalingPolicies"] = policy;
    let done = server.put("/v1/jobs", &spec).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let stored = server.get("/v1/job/web").await.json();
    let policy = &stored["TaskGroups"][0]["Tasks"][0]["ScalingPolicies"][0];
    assert_eq!(
        (&policy["Type"], &policy["Max"], &policy["Enabled"]),
        (&json!("vertical_cpu"), &json!(900), &json!(true))
    );
    let target = json!({ "Namespace": "default", "Job": "web", "Group": "g", "Task": "t" });
    assert_eq!(policy["Target"], target);
    let rows = server.get("/v1/scaling/policies").await.json();
    assert_eq!(rows, json!([]), "policies of their own have groups only");
    spec["Job"]["TaskGroups"][0]["Tasks"][0]["ScalingPolicies"][0]["Type"] = json!("sideways");
    assert_eq!(server.put("/v1/jobs", &spec).await.status, 500);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chk_07_every_check_of_a_tasks_service_names_that_task() {
    let server = Harness::start().await;
    for provider in ["nomad", "consul"] {
        let mut spec = job(provider);
        let check = |name: &str| {
            json!({ "Name": name, "Type": "tcp", "PortLabel": "8080",
                "Interval": 1_000_000_000, "Timeout": 1_000_000_000 })
        };
        let mut named = check("named");
        named["TaskName"] = json!("t");
        let service = |name: &str, task: &str, checks: Vec<Value>| {
            json!({ "Name": name, "TaskName": task, "Provider": provider,
                "PortLabel": "8080", "Checks": checks })
        };
        let of_task = service("of-task", "t", vec![check("one"), check("two")]);
        let of_group = service("of-group", "", vec![named, check("of the group")]);
        spec["Job"]["TaskGroups"][0]["Services"] = json!([of_task, of_group]);
        let done = server.put("/v1/jobs", &spec).await;
        assert_eq!(done.status, 200, "{provider}: {}", done.text());
        let stored = server.get(&format!("/v1/job/{provider}")).await.json();
        let tasks = |at: usize| -> Vec<Value> {
            let services = &stored["TaskGroups"][0]["Services"];
            let checks = services[at]["Checks"].as_array().unwrap();
            checks.iter().map(|c| c["TaskName"].clone()).collect()
        };
        assert_eq!(
            tasks(0),
            ["t", "t"],
            "{provider}: filled in from the service"
        );
        assert_eq!(tasks(1), ["t", ""], "{provider}: as it says itself");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nested_too_deep_is_refused_and_never_in_the_log() {
    let server = Harness::start().await;
    for depth in [30, 50, 57, 60, 70, 90, 100, 110, 118, 121] {
        let mut spec = job(&format!("deep-{depth}"));
        let nested = (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
        spec["Job"]["TaskGroups"][0]["Tasks"][0]["Config"] = nested;
        let done = server.put("/v1/jobs", &spec).await;
        match depth {
            ..=50 => assert_eq!(done.status, 200, "{depth}: {}", done.text()),
            70.. => assert_eq!(done.status, 400, "{depth}: {}", done.text()),
            _ => {}
        }
    }
    // Whatever was taken is applied.
    server.register("after").await;
    assert_eq!(server.get("/v1/job/after").await.status, 200);
    server.stop().await;
}

/// The bytes of an event as they were written before there was a limit to how deep it is.
fn unchecked(event: &Event) -> Payload {
    let other = RaftPayload::encode(&Envelope {
        time: crate::base::clock::unix_nanos(),
        id: EventId([7; 16]),
        actor: Actor::default(),
        request_id: String::new(),
        cause: None,
        trace: String::new(),
        guards: Vec::new(),
        event: LeaderElected::default().into(),
    });
    let other = other.unwrap();
    let (_, payload) = Header::decode(other.rest()).unwrap();
    let header = other.rest().len() - payload.len();
    let kind = event.kind();
    let mut bytes = kind.number().to_le_bytes().to_vec();
    bytes.extend(kind.version().to_le_bytes());
    bytes.extend(&other.rest()[..header]);
    event.encode_payload(&mut bytes).unwrap();
    Payload(bytes.into())
}

/// As deep as the JSON of a request may be: it was committed once, and parked the applier.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_before_there_was_a_limit_is_applied_and_shown() {
    let server = Harness::start().await;
    let mut spec = job("deep");
    let nested = (0..121).fold(json!(1), |inner, _| json!({ "a": inner }));
    spec["Job"]["TaskGroups"][0]["Tasks"][0]["Config"] = nested.clone();
    let read: Job = gojson::from_slice(spec["Job"].to_string().as_bytes()).unwrap();
    let event = JobRegistered {
        job: Job {
            namespace: "default".into(),
            ..read
        }
        .into(),
        ..JobRegistered::default()
    };
    let raft = &server.server.raft;
    raft.commit(unchecked(&event.into())).await.unwrap();
    server.register("after").await;
    assert_eq!(raft.parked().map(|parked| parked.index), None);
    let shown = server.get("/v1/job/deep").await.json();
    assert_eq!(shown["TaskGroups"][0]["Tasks"][0]["Config"], nested);
    for read in ["/v1/jobs", "/v1/job/deep/versions", "/v1/audit?job=deep"] {
        let reply = server.get(read).await;
        assert_eq!(reply.status, 200, "{read}: {}", reply.text());
    }
    server.stop().await;
}

/// Nomad does not look at the method.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_is_answered_whatever_the_method() {
    let server = Harness::start().await;
    server.register("web").await;
    for method in ["GET", "PUT", "POST", "DELETE"] {
        let reply = server.ask(method, "/v1/job/web/summary", "{}").await;
        assert_eq!(reply.status, 200, "{method}: {}", reply.text());
        assert_eq!(reply.json()["JobID"], "web", "{method}");
    }
    assert_eq!(server.get("/v1/job/web").await.json()["Stop"], false);
    server.stop().await;
}
