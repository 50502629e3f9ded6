//! Who is let in where: the stream, what is counted, and what an attacker tried.

use std::sync::Arc;

use drover_testkit::LONG;
use serde_json::{Value, json};

use super::harness::{Harness, counted, job, live};
use super::router;
use crate::acl::{Acl, Capability as _, NamespaceCapability as Ns};
use crate::gate::Gate;
use crate::identity::{Identity, Rejection};

use super::both_world_test::{Both, Things};
use super::gate_test::two_namespaces;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_tells_of_no_other_namespace() {
    let server = two_namespaces().await;
    for (token, query, status) in [
        ("red", "", 403),
        ("red", "topic=*", 403),
        ("red", "topic=Node", 403),
        ("red", "topic=ACLToken", 403),
        ("red", "topic=Job&namespace=blue", 403),
        ("nothing", "topic=Job&namespace=red", 403),
        ("operator", "topic=Operator", 200),
        ("nodes", "topic=Node", 200),
    ] {
        let target = format!("/v1/event/stream?{query}");
        let request = hyper::Request::builder()
            .uri(target)
            .header("x-nomad-token", token);
        let request = request.body(axum::body::Body::empty()).unwrap();
        let reply = tower::ServiceExt::oneshot(server.router(), request)
            .await
            .unwrap();
        assert_eq!(reply.status().as_u16(), status, "{token} {query}");
    }
    server.stop().await;
}

/// What is sent until all of these are among it, or something that is not to be sent.
async fn streamed(both: &Both, token: &str, form: &str, until: &[&str]) -> String {
    let topics = [
        "Job",
        "Evaluation",
        "Allocation",
        "Deployment",
        "Service",
        "Variable",
        "CSIVolume",
        "HostVolume",
    ];
    let topics: String = topics.iter().map(|one| format!("topic={one}&")).collect();
    let target = format!("/v1/event/stream?{topics}namespace=*&index=1{form}");
    let request = hyper::Request::builder()
        .uri(target)
        .header("x-nomad-token", token);
    let request = request.body(axum::body::Body::empty()).unwrap();
    let reply = tower::ServiceExt::oneshot(both.world.h.router(), request);
    let reply = reply.await.unwrap();
    assert_eq!(reply.status().as_u16(), 200, "{token} {form}");
    let mut body = reply.into_body();
    let mut reported = String::new();
    let all = async {
        while !until.iter().all(|word| reported.contains(word)) {
            let frame = http_body_util::BodyExt::frame(&mut body).await;
            let frame = frame.unwrap().unwrap();
            reported += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    };
    let in_time = tokio::time::timeout(LONG, all).await;
    in_time.unwrap_or_else(|_| panic!("{token} {form}: only {reported}"));
    reported
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_another_namespace_are_absent_whatever_they_are_about() {
    let both = Both::start().await;
    let publisher = both
        .world
        .h
        .publish(tokio_util::sync::CancellationToken::new());
    // Blue is made after red; what is written last is red's, so that all of blue was passed over.
    let last = "/v1/var/secret-red-last?namespace=red";
    let written = both
        .world
        .h
        .by("root", "PUT", last, json!({"Items": {"a": "b"}}));
    assert_eq!(written.await.status, 200);
    for form in ["", "&format=cloudevents"] {
        let words = |things: &Things| {
            let name = things.namespace;
            let names =
                ["job", "api", "secret", "data", "disk"].map(|kind| format!("{kind}-{name}"));
            let mut words = names.to_vec();
            words.extend([
                things.alloc.clone(),
                things.eval.clone(),
                things.deployment.clone(),
            ]);
            words
        };
        let (red, blue) = (words(&both.red), words(&both.blue));
        let mut own: Vec<&str> = red.iter().map(String::as_str).collect();
        own.push("secret-red-last");
        let reported = streamed(&both, "all:red", form, &own).await;
        for word in blue.iter().map(String::as_str).chain(["blue"]) {
            assert!(!reported.contains(word), "{form}: {word}: {reported}");
        }
        own.extend(blue.iter().map(String::as_str));
        streamed(&both, "root", form, &own).await;
    }
    publisher.abort();
    both.world.h.stop().await;
}

/// Routes, and the capabilities of which one lets in.
const REQUESTED: &[(&str, &str, &[Ns])] = &[
    ("GET", "/v1/jobs?namespace=red", &[Ns::ListJobs]),
    ("GET", "/v1/job/job-red?namespace=red", &[Ns::ReadJob]),
    (
        "GET",
        "/v1/job/job-red/scale?namespace=red",
        &[Ns::ReadJob, Ns::ReadJobScaling],
    ),
    ("GET", "/v1/allocations?namespace=red", &[Ns::ReadJob]),
    ("GET", "/v1/evaluations?namespace=red", &[Ns::ReadJob]),
    (
        "PUT",
        "/v1/jobs/parse?namespace=red",
        &[Ns::ParseJob, Ns::SubmitJob],
    ),
    (
        "PUT",
        "/v1/job/x/plan?namespace=red",
        &[Ns::SubmitJob, Ns::PlanJob],
    ),
    (
        "PUT",
        "/v1/jobs?namespace=red",
        &[Ns::SubmitJob, Ns::RegisterJob],
    ),
    (
        "DELETE",
        "/v1/job/x?namespace=red",
        &[Ns::SubmitJob, Ns::DeregisterJob],
    ),
    (
        "DELETE",
        "/v1/job/x?namespace=red&purge=true",
        &[Ns::SubmitJob, Ns::PurgeJob],
    ),
    (
        "PUT",
        "/v1/job/x/evaluate?namespace=red",
        &[Ns::SubmitJob, Ns::EvaluateJob],
    ),
    (
        "PUT",
        "/v1/job/x/stable?namespace=red",
        &[Ns::SubmitJob, Ns::StableJob],
    ),
    (
        "PUT",
        "/v1/job/x/revert?namespace=red",
        &[Ns::SubmitJob, Ns::RevertJob],
    ),
    (
        "PUT",
        "/v1/job/x/scale?namespace=red",
        &[Ns::ScaleJob, Ns::SubmitJob],
    ),
    (
        "PUT",
        "/v1/job/x/dispatch?namespace=red",
        &[Ns::DispatchJob],
    ),
    (
        "PUT",
        "/v1/job/x/periodic/force?namespace=red",
        &[Ns::DispatchJob, Ns::SubmitJob, Ns::ForcePeriodicJob],
    ),
    (
        "PUT",
        "/v1/job/x/versions/y/tag?namespace=red",
        &[Ns::SubmitJob, Ns::TagJobVersion],
    ),
    (
        "PUT",
        "/v1/deployment/fail/ID",
        &[Ns::SubmitJob, Ns::FailDeployment],
    ),
    (
        "PUT",
        "/v1/deployment/pause/ID",
        &[Ns::SubmitJob, Ns::PauseDeployment],
    ),
    (
        "PUT",
        "/v1/deployment/promote/ID",
        &[Ns::SubmitJob, Ns::PromoteDeployment],
    ),
    (
        "PUT",
        "/v1/deployment/unblock/ID",
        &[Ns::SubmitJob, Ns::UnblockDeployment],
    ),
    (
        "PUT",
        "/v1/deployment/allocation-health/ID",
        &[Ns::SubmitJob, Ns::SetAllocHealthDeployment],
    ),
    ("PUT", "/v1/allocation/ID/stop", &[Ns::AllocLifecycle]),
    (
        "PUT",
        "/v1/client/allocation/ID/restart",
        &[Ns::AllocLifecycle],
    ),
    (
        "PUT",
        "/v1/client/allocation/ID/signal",
        &[Ns::AllocLifecycle],
    ),
    (
        "PUT",
        "/v1/client/allocation/ID/gc",
        &[Ns::SubmitJob, Ns::GcAllocation],
    ),
    ("GET", "/v1/client/allocation/ID/stats", &[Ns::ReadJob]),
    ("GET", "/v1/client/allocation/ID/checks", &[Ns::ReadJob]),
    ("GET", "/v1/allocation/ID/checks", &[Ns::ReadJob]),
    (
        "GET",
        "/v1/client/allocation/ID/exec?task=t&command=%5B%22ls%22%5D",
        &[Ns::AllocExec],
    ),
    ("GET", "/v1/client/fs/ls/ID", &[Ns::ReadFs]),
    ("GET", "/v1/client/fs/stat/ID", &[Ns::ReadFs]),
    ("GET", "/v1/client/fs/cat/ID", &[Ns::ReadFs]),
    ("GET", "/v1/client/fs/readat/ID", &[Ns::ReadFs]),
    ("GET", "/v1/client/fs/stream/ID", &[Ns::ReadFs]),
    ("GET", "/v1/client/fs/logs/ID", &[Ns::ReadLogs, Ns::ReadFs]),
    (
        "DELETE",
        "/v1/service/x/y?namespace=red",
        &[Ns::SubmitJob, Ns::DeleteServiceRegistration],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_each_route_lets_in_its_own_capabilities_and_no_neighbour() {
    let server = two_namespaces().await;
    let none = "00000000-0000-0000-0000-000000000000";
    for (method, target, any_of) in REQUESTED {
        let target = target.replace("ID", none);
        for one in Ns::ALL {
            let token = format!("only:{}", one.as_str());
            let body = match target.starts_with("/v1/job") {
                true => job("x").to_string(),
                false => json!({"DeploymentID": none}).to_string(),
            };
            let reply = server.by(&token, method, &target, body).await;
            let let_in = reply.status != 403;
            let what = format!("{method} {target} by {token}: {}", reply.text());
            assert_eq!(let_in, any_of.contains(one), "{what}");
        }
        if target.contains("namespace=red") {
            let elsewhere = target.replace("namespace=red", "namespace=blue");
            let token = format!("only:{}", any_of[0].as_str());
            let body = job("x").to_string();
            let reply = server.by(&token, method, &elsewhere, body).await;
            assert_eq!(
                reply.status,
                403,
                "{elsewhere} by {token}: {}",
                reply.text()
            );
        }
    }
    server.stop().await;
}

/// The seconds that requests took, by series.
async fn spent(server: &Harness) -> Vec<(String, f64)> {
    let text = server.get("/v1/metrics?format=prometheus").await.text();
    let lines = text.lines().filter_map(|line| {
        let series = line.strip_prefix("drover_requests_spent_seconds")?;
        let (series, value) = series.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

/// Each route has its own number of each caller.
fn are_counted_by_route(metrics: &str, who: &str, count: u64) {
    let of = |line: &&str| {
        let route = line.contains("route=\"GET /v1/scaling/policies\"");
        route && line.contains(&format!("identity=\"{who}\""))
    };
    for name in ["served_total", "timed_total"] {
        let name = format!("drover_requests_{name}");
        let lines = metrics.lines().filter(|line| line.starts_with(&name));
        let lines: Vec<&str> = lines.filter(of).collect();
        assert_eq!(lines.len(), 1, "{who}: {lines:?}");
        assert!(lines[0].ends_with(&format!(" {count}")), "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_auth_10_auth_11_requests_are_counted_by_who_asks_without_secrets() {
    let named = |token: Option<&str>, addr: &str| match token {
        Some("canary-secret-1") => {
            let token = drover_events::model::AclToken {
                accessor_id: "auth-07-accessor".into(),
                ..Default::default()
            };
            Identity::bearer(Arc::new(token), addr, Arc::new(Acl::denied()))
        }
        Some("node") => Identity::node("auth-07-node", addr),
        _ => Identity::refused(addr, Rejection::Unknown),
    };
    let server = Harness::asking(Gate::fixed(named)).await;
    for (token, target) in [
        ("canary-secret-1", "/v1/scaling/policies"),
        ("canary-secret-1", "/v1/scaling/policies"),
        ("node", "/v1/scaling/policies"),
        ("canary-secret-2", "/v1/scaling/policies"),
    ] {
        assert_eq!(server.seen(token, target).await.status, 403);
    }
    let name = "nomad_nomad_rpc_scaling_list";
    let reported = counted(&server, name).await;
    let of = |label: &str| {
        let found = reported.iter().find(|(series, _)| series.contains(label));
        found.map_or(0, |(_, count)| *count)
    };
    assert_eq!(of("identity=\"token:auth-07-accessor\""), 2, "{reported:?}");
    assert_eq!(of("identity=\"client:auth-07-node\""), 1, "{reported:?}");
    assert!(of("identity=\"unauthenticated\"") >= 1, "{reported:?}");
    let spent = spent(&server).await;
    for who in ["token:auth-07-accessor", "client:auth-07-node"] {
        let label = format!("identity=\"{who}\"");
        let mut of = spent.iter().filter(|(series, _)| series.contains(&label));
        let of_lists = |(series, spent): &(String, f64)| series.contains("scaling") && *spent > 0.0;
        assert!(of.any(of_lists), "{who}: {spent:?}");
    }
    let all = server.get("/v1/metrics?format=prometheus").await.text();
    assert!(!all.contains("canary-secret"), "AUTH-11");
    for (who, count) in [("token:auth-07-accessor", 2), ("client:auth-07-node", 1)] {
        are_counted_by_route(&all, who, count);
    }
    // AUTH-10: the labels go, the numbers stay.
    let settings = super::Settings {
        live: live(|live| live.label_identities = false),
        ..super::Settings::default()
    };
    let api = super::Api {
        gate: Arc::clone(&server.api.gate),
        ..super::Api::of(&server.server, settings)
    };
    let without = router::router(Arc::new(api), Arc::default());
    let count = |reported: &[(String, u64)]| {
        let plain = reported
            .iter()
            .filter(|(series, _)| !series.contains("identity="));
        plain.map(|(_, count)| count).sum::<u64>()
    };
    let before = count(&counted(&server, name).await);
    let request = hyper::Request::builder()
        .uri("/v1/scaling/policies")
        .header("x-nomad-token", "canary-secret-1")
        .body(axum::body::Body::empty());
    let reply = tower::ServiceExt::oneshot(without, request.unwrap()).await;
    assert_eq!(reply.unwrap().status().as_u16(), 403);
    assert!(count(&counted(&server, name).await) > before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eval_10_a_wildcard_counts_what_the_caller_may_read_and_nothing_else() {
    let server = two_namespaces().await;
    let count = async |token: &str, target: &str| -> Value {
        server.seen(token, target).await.json()["Count"].clone()
    };
    let target = "/v1/evaluations/count?namespace=*";
    assert_eq!(count("root", target).await, 2);
    assert_eq!(count("red", target).await, 1);
    let with_filter = format!("{target}&filter=JobID!=%22none%22");
    assert_eq!(count("red", &with_filter).await, 1);
    let list = server
        .seen("red", "/v1/evaluations?namespace=*")
        .await
        .json();
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    assert_eq!(server.seen("listing", target).await.status, 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eval_09_only_a_manager_deletes_whatever_the_broker_does() {
    let server = two_namespaces().await;
    let pause = json!({"PauseEvalBroker": true, "SchedulerAlgorithm": "binpack"});
    let target = "/v1/operator/scheduler/configuration";
    assert_eq!(server.by("root", "PUT", target, pause).await.status, 200);
    let evals = server
        .seen("root", "/v1/evaluations?namespace=red")
        .await
        .json();
    let ids = json!({"EvalIDs": [evals[0]["ID"]]});
    for token in ["red", "operator", "nodes", ""] {
        for body in [&ids, &json!({"Filter": "Namespace == \"red\""})] {
            let reply = server.by(token, "DELETE", "/v1/evaluations", body).await;
            assert_eq!(
                (reply.status, &*reply.text()),
                (403, "Permission denied"),
                "{token}"
            );
        }
    }
    // Nothing of it runs anywhere, so a manager may.
    let reply = server.by("root", "DELETE", "/v1/evaluations", ids).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["Count"], 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn var_03_who_may_not_read_a_variable_loses_to_it_without_seeing_it() {
    let server = two_namespaces().await;
    let there = "/v1/var/secret-red?namespace=red";
    let lost = format!("{there}&cas=1");
    let body = json!({"Items": {"a": "b"}});
    for (method, blind) in [("PUT", "writing"), ("DELETE", "destroying")] {
        let reader = server.by("red", method, &lost, &body).await;
        assert_eq!(reader.status, 409, "{method}: {}", reader.text());
        assert_eq!(reader.json()["Items"]["key"], "value-red");
        let loser = server.by(blind, method, &lost, &body).await;
        assert_eq!(loser.status, 409, "{method}: {}", loser.text());
        let shown = loser.json();
        assert_eq!(shown["Items"], Value::Null, "{shown}");
        assert_eq!(shown["Path"], "secret-red");
        assert_eq!(shown["ModifyIndex"], reader.json()["ModifyIndex"]);
        assert!(!loser.text().contains("value-red"));
        assert_eq!(server.seen(blind, there).await.status, 403);
        // What is not there is the same to all.
        for token in ["red", blind] {
            let target = "/v1/var/none?namespace=red&cas=9";
            let reply = server.by(token, method, target, &body).await;
            assert_eq!(reply.status, 409, "{method}: {}", reply.text());
            let shown = reply.json();
            assert_eq!(
                (&shown["Path"], &shown["Items"]),
                (&json!("none"), &Value::Null)
            );
            assert_eq!(
                (&shown["CreateIndex"], &shown["ModifyIndex"]),
                (&json!(0), &json!(0))
            );
        }
    }
    assert_eq!(server.seen("red", there).await.status, 200);
    server.stop().await;
}

#[test]
fn acl_19_no_route_answers_who_asks() {
    let lines = router::lines();
    let named = |word: &str| {
        lines
            .iter()
            .any(|line| line.path.to_lowercase().contains(word))
    };
    assert!(!named("whoami") && !named("who-am-i"));
    assert!(named("acl/token/self"), "what there is instead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_head_of_an_answer_changes_nothing() {
    let server = two_namespaces().await;
    let id = "00000000-0000-0000-0000-000000000000";
    for target in [
        "/v1/client/gc".to_owned(),
        format!("/v1/client/allocation/{id}/restart"),
        format!("/v1/client/allocation/{id}/signal"),
        format!("/v1/client/allocation/{id}/gc"),
    ] {
        // Without a client there is none to call, which is answered before.
        let reply = server.by("root", "HEAD", &target, "").await;
        assert!(
            matches!(reply.status, 400 | 405),
            "{target}: {}",
            reply.status
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_a_manager_is_told_of_what_was_deleted() {
    let server = two_namespaces().await;
    let evals = server
        .seen("root", "/v1/evaluations?namespace=blue")
        .await
        .json();
    let eval = evals[0]["ID"].as_str().unwrap();
    for id in [
        eval,
        &eval[..8],
        &eval[..2],
        "00000000-0000-0000-0000-000000000000",
    ] {
        let reply = server
            .seen("red", &format!("/v1/evaluation/{id}/explain"))
            .await;
        assert_eq!(
            (reply.status, &*reply.text()),
            (404, "eval not found"),
            "{id}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_shows_the_hash_of_a_nodes_secret() {
    let server = two_namespaces().await;
    let nodes = server.seen("root", "/v1/nodes").await.json();
    let id = nodes[0]["ID"].as_str().unwrap();
    for target in [
        format!("/v1/node/{id}"),
        format!("/v1/node/{id}?as_of=-1ms"),
    ] {
        let node = server.seen("nodes", &target).await;
        assert_eq!(node.json()["SecretID"], "", "{target}");
        assert!(!node.text().contains("hash"), "{target}");
    }
    let reported = server
        .seen("nodes", "/v1/nodes?filter=SecretID==%22hash%22")
        .await;
    assert!(
        reported.status == 400 || reported.json() == json!([]),
        "{}",
        reported.text()
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_overridden_by_who_may_and_metrics_closed_by_a_setting() {
    let server = two_namespaces().await;
    let mut body = job("new");
    body["PolicyOverride"] = json!(true);
    let reply = server
        .by("red", "PUT", "/v1/jobs?namespace=red", &body)
        .await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let reply = server
        .by("root", "PUT", "/v1/jobs?namespace=red", &body)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(server.seen("", "/v1/metrics").await.status, 200);
    let settings = super::Settings {
        live: live(|live| live.metrics_require_acl = true),
        ..super::Settings::default()
    };
    let api = super::Api {
        gate: Arc::clone(&server.api.gate),
        ..super::Api::of(&server.server, settings)
    };
    let closed = router::router(Arc::new(api), Arc::default());
    for (token, status) in [("", 403), ("red", 403), ("nodes", 200), ("root", 200)] {
        let request = hyper::Request::builder().uri("/v1/metrics");
        let request = match token {
            "" => request,
            token => request.header("x-nomad-token", token),
        };
        let request = request.body(axum::body::Body::empty()).unwrap();
        let reply = tower::ServiceExt::oneshot(closed.clone(), request).await;
        assert_eq!(reply.unwrap().status().as_u16(), status, "{token}");
    }
    server.stop().await;
}
