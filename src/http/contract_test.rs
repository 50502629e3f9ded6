//! What clients of Nomad rely on, beyond the plain answers.

use bytes::Bytes;
use drover_testkit::{LONG, eventually_async, so};
use http_body_util::Full;
use serde_json::{Value, json};

use super::harness::{Harness, Reply, job};

/// The body that registers a small job with something more in it.
fn with(id: &str, more: Value) -> Value {
    let mut body = job(id);
    let fields = body["Job"].as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body
}

fn template(id: &str) -> Value {
    let meta = json!({ "MetaOptional": ["colour"], "MetaRequired": ["size"] });
    with(id, json!({ "Type": "batch", "ParameterizedJob": meta }))
}

fn clockwork(id: &str) -> Value {
    let periodic = json!({ "Enabled": true, "Spec": "0 0 1 1 *", "SpecType": "cron" });
    with(id, json!({ "Type": "batch", "Periodic": periodic }))
}

async fn with_headers(h: &Harness, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = hyper::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    h.send(request.body(Full::new(Bytes::new())).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_yet_can_be_waited_for() {
    let h = Harness::start().await;
    assert_eq!(h.get("/v1/services").await.index(), 0);
    let first = h.register("first").await.index();
    let missing = h.get("/v1/job/second").await;
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "job not found")
    );
    assert!(missing.index() >= first);
    let soon = format!("/v1/job/second?wait=1ms&index={}", missing.index());
    assert_eq!(h.get(&soon).await.status, 404);
    // The evaluation of the first job touches the table too: it may wake the query in between.
    let wait = async {
        let mut index = missing.index();
        loop {
            let target = format!("/v1/job/second?wait=60s&index={index}");
            let reply = h.get(&target).await;
            if reply.status != 404 || reply.index() <= index {
                return reply;
            }
            index = reply.index();
        }
    };
    let (found, done) = tokio::join!(tokio::time::timeout(LONG, wait), h.register("second"));
    let found = found.expect("the job wakes who waits for it");
    assert_eq!(found.status, 200, "{}", found.text());
    assert!(found.index() >= done.index());
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_region_is_refused_and_no_job_goes_there() {
    let h = Harness::start().await;
    let far = with("far", json!({ "Region": "mars" }));
    for (reply, status) in [
        (h.get("/v1/jobs?region=mars").await, 500),
        (h.get("/v1/jobs?region=global").await, 200),
        (h.put("/v1/jobs?region=mars", &job("a")).await, 500),
        (h.put("/v1/jobs", &far).await, 500),
        (h.get("/v1/agent/self?region=mars").await, 200),
    ] {
        assert_eq!(reply.status, status, "{}", reply.text());
        if status == 500 {
            assert_eq!(reply.text(), "No path to region");
        }
    }
    assert_eq!(h.get("/v1/jobs").await.text(), "[]");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_of_other_origins_may_ask_where_nomad_lets_them() {
    let h = Harness::start().await;
    let origin = ("origin", "http://ui.example");
    let read = with_headers(&h, "GET", "/v1/vars", &[origin]).await;
    assert_eq!(read.header("access-control-allow-origin"), "*");
    let closed = with_headers(&h, "GET", "/v1/jobs", &[origin]).await;
    assert_eq!(closed.header("access-control-allow-origin"), "");
    let alone = h.get("/v1/vars").await;
    assert_eq!(alone.header("access-control-allow-origin"), "");
    for (target, method, status, allowed) in [
        ("/v1/var/a/b", "PUT", 204, "PUT"),
        ("/v1/vars", "PUT", 204, ""),
        ("/v1/client/fs/logs/x", "GET", 204, "GET"),
        ("/v1/jobs", "GET", 405, ""),
    ] {
        let requested = [
            origin,
            ("access-control-request-method", method),
            ("access-control-request-headers", "x-nomad-token"),
        ];
        let reply = with_headers(&h, "OPTIONS", target, &requested).await;
        let seen = reply.header("access-control-allow-methods");
        assert_eq!((reply.status, seen), (status, allowed), "{target}");
        let names = if allowed.is_empty() {
            ""
        } else {
            "x-nomad-token"
        };
        assert_eq!(reply.header("access-control-allow-headers"), names);
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameterized_job_is_dispatched_once_per_token() {
    let h = Harness::start().await;
    assert_eq!(h.put("/v1/jobs", &template("mill")).await.status, 200);
    let target = "/v1/job/mill/dispatch?idempotency_token=t";
    for (body, text) in [
        (
            json!({ "Meta": { "size": "1", "x": "1" } }),
            "Dispatch request included unpermitted metadata keys: [x]",
        ),
        (
            json!({ "Meta": {} }),
            "Dispatch did not provide required meta keys: [size]",
        ),
        (
            json!({ "Meta": { "size": "1" }, "Priority": 101 }),
            "dispatch job priority must be between [1, 100]",
        ),
    ] {
        let refused = h.put(target, &body).await;
        assert_eq!((refused.status, refused.text().as_str()), (500, text));
    }
    let body = json!({ "Payload": "aGVsbG8=", "Meta": { "size": "9" }, "IdPrefixTemplate": "pre" });
    let made = h.put(target, &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    let id = made["DispatchedJobID"].as_str().unwrap();
    assert!(id.starts_with("mill/dispatch-pre-"), "{id}");
    let eval = format!("/v1/evaluation/{}", made["EvalID"].as_str().unwrap());
    assert_eq!(h.get(&eval).await.json()["TriggeredBy"], "job-register");
    let child = h
        .get(&format!("/v1/job/{}", id.replace('/', "%2F")))
        .await
        .json();
    assert_eq!(child["ParentID"], "mill");
    assert_eq!(child["Payload"], "aGVsbG8=");
    assert_eq!(child["Meta"], json!({ "team": "store", "size": "9" }));
    assert_eq!(child["Dispatched"], true);
    let again = h.put(target, &body).await.json();
    assert_eq!(again["DispatchedJobID"], made["DispatchedJobID"]);
    assert_eq!(again["EvalID"], "");
    let summary = h.get("/v1/job/mill/summary").await.json();
    let children = &summary["Children"];
    let count = |name: &str| children[name].as_i64().unwrap();
    assert_eq!(count("Pending") + count("Running") + count("Dead"), 1);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_periodic_job_is_planned_as_its_children_and_launched_by_force() {
    let h = Harness::start().await;
    assert_eq!(h.put("/v1/jobs", &clockwork("clock")).await.status, 200);
    for body in [clockwork("clock"), template("new"), clockwork("other")] {
        let id = body["Job"]["ID"].as_str().unwrap().to_owned();
        let planned = h.put(&format!("/v1/job/{id}/plan"), &body).await.json();
        let group = &planned["Annotations"]["DesiredTGUpdates"]["g"];
        assert_eq!(group["Place"], 1, "{id}: {planned}");
    }
    let launched = h.put("/v1/job/clock/periodic/force", &json!({})).await;
    assert_eq!(launched.status, 200, "{}", launched.text());
    let eval = launched.json()["EvalID"].as_str().unwrap().to_owned();
    let eval = h.get(&format!("/v1/evaluation/{eval}")).await.json();
    assert_eq!(eval["TriggeredBy"], "periodic-job");
    let child = eval["JobID"].as_str().unwrap();
    assert!(child.starts_with("clock/periodic-"), "{child}");
    let child = h
        .get(&format!("/v1/job/{}", child.replace('/', "%2F")))
        .await
        .json();
    assert_eq!(
        (&child["Periodic"], &child["ParentID"]),
        (&Value::Null, &json!("clock"))
    );
    h.register("plain").await;
    for (id, text) in [
        ("plain", "can't force launch non-periodic job"),
        ("nobody", "job not found"),
    ] {
        let refused = h
            .put(&format!("/v1/job/{id}/periodic/force"), &json!({}))
            .await;
        assert_eq!((refused.status, refused.text().as_str()), (500, text));
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_come_newest_first_in_pages() {
    let h = Harness::start().await;
    // Templates have no evaluations: nothing moves while the pages are read.
    for id in ["a", "b.c", "d", "mill"] {
        assert_eq!(h.put("/v1/jobs", &template(id)).await.status, 200);
    }
    let ids = |reply: &Reply| -> Vec<String> {
        let list = reply.json();
        let list = list.as_array().unwrap().iter();
        list.map(|job| job["ID"].as_str().unwrap().to_owned())
            .collect()
    };
    let (mut all, mut pages) = (Vec::new(), 0);
    let mut token = String::new();
    loop {
        pages += 1;
        assert!(pages < 100, "{all:?}");
        let target = format!("/v1/jobs/statuses?per_page=1&next_token={token}");
        let reply = h.get(&target).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        all.extend(ids(&reply));
        token = reply.header("x-nomad-nexttoken").to_owned();
        if token.is_empty() {
            break;
        }
    }
    let whole = h.get("/v1/jobs/statuses").await;
    assert_eq!(all, ids(&whole));
    assert_eq!(all, ["mill", "d", "b.c", "a"]);
    let first = &whole.json()[0];
    assert!(first["Allocs"].is_array(), "{first}");
    let requested = json!({ "Jobs": [{ "ID": "d", "Namespace": "default" }] });
    let named = h
        .ask("POST", "/v1/jobs/statuses", requested.to_string())
        .await;
    assert_eq!(ids(&named), ["d"]);
    let nothing = h.ask("POST", "/v1/jobs/statuses", "{}").await;
    assert_eq!(
        (nothing.status, nothing.text().as_str()),
        (400, "no jobs in request")
    );
    let bad = h.get("/v1/jobs/statuses?filter=a").await;
    assert_eq!(bad.status, 500);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_found_in_the_names_of_everything() {
    let h = Harness::start().await;
    h.register("Webshop").await;
    let found = h
        .put("/v1/search/fuzzy", &json!({ "Text": "SHOP" }))
        .await
        .json();
    let want = json!([{ "ID": "Webshop", "Scope": ["default", "Webshop"] }]);
    assert_eq!(found["Matches"]["jobs"], want);
    assert_eq!(found["Matches"]["evals"], json!([]));
    assert_eq!(found["Matches"]["nodes"], Value::Null);
    assert_eq!(found["Truncations"]["jobs"], false);
    let short = h.put("/v1/search/fuzzy", &json!({ "Text": "w" })).await;
    let text = "fuzzy search query must be at least 2 characters, got 1";
    assert_eq!((short.status, short.text().as_str()), (500, text));
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_gets_a_name_and_loses_it() {
    let h = Harness::start().await;
    h.register("web").await;
    let target = "/v1/job/web/versions/golden/tag";
    let named = h
        .put(target, &json!({ "Version": 0, "Description": "good" }))
        .await;
    assert_eq!(named.status, 200, "{}", named.text());
    assert_eq!(named.json()["Description"], "good");
    let versions = h.get("/v1/job/web/versions").await.json();
    assert_eq!(versions["Versions"][0]["VersionTag"]["Name"], "golden");
    assert_eq!(versions["Diffs"], Value::Null);
    let diffs = |more: &str| format!("/v1/job/web/versions?diffs=true{more}");
    h.put("/v1/jobs", &with("web", json!({ "Priority": 60 })))
        .await;
    for more in ["", "&diff_tag=golden", "&diff_version=0"] {
        let found = h.get(&diffs(more)).await.json();
        let found = found["Diffs"].as_array().unwrap().clone();
        assert_eq!(
            (found.len(), &found[0]["Type"]),
            (1, &json!("Edited")),
            "{more}"
        );
    }
    for (more, text) in [
        ("&diff_tag=x", "tag \"x\" not found"),
        ("&diff_version=9", "version 9 not found"),
    ] {
        let refused = h.get(&diffs(more)).await;
        assert_eq!((refused.status, refused.text().as_str()), (500, text));
    }
    assert_eq!(h.ask("DELETE", target, "").await.status, 200);
    let gone = h.ask("DELETE", target, "").await;
    assert_eq!(gone.status, 500, "{}", gone.text());
    let wrong = h.put("/v1/job/web/golden/tag", &json!({})).await;
    let text = "invalid job tag endpoint";
    assert_eq!((wrong.status, wrong.text().as_str()), (404, text));
    assert_eq!(h.get("/v1/job/web/actions").await.text(), "[]");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_absent_says_so() {
    let h = Harness::start().await;
    for (method, target, status, text) in [
        ("GET", "/v1/volumes?type=csi", 200, "[]"),
        ("GET", "/v1/volumes?type=host", 200, "[]"),
        ("GET", "/v1/volumes?type=x", 404, "resource not found"),
        ("GET", "/v1/volume/csi/x", 404, "volume not found"),
        ("GET", "/v1/plugins?type=csi", 200, "[]"),
        ("GET", "/v1/plugin/csi/x", 404, "plugin not found"),
        ("GET", "/v1/acl/token/self", 400, "ACL support disabled"),
        ("PUT", "/v1/acl/bootstrap", 400, "ACL support disabled"),
        ("GET", "/v1/quotas", 501, "Nomad Enterprise only endpoint"),
        ("GET", "/v1/operator/license", 204, ""),
        ("GET", "/v1/scaling/policies", 200, "[]"),
        ("GET", "/v1/scaling/policy/x", 404, "policy not found"),
        (
            "GET",
            "/v1/operator/raft/peer",
            501,
            "GET /v1/operator/raft/peer is not supported by this version: there is one server",
        ),
        ("GET", "/v1/namespace/", 400, "Missing Namespace Name"),
        ("DELETE", "/v1/service/web/", 400, "missing service id"),
        (
            "DELETE",
            "/v1/service/web/x",
            500,
            "service registration not found",
        ),
        ("DELETE", "/v1/namespace/x", 500, "namespace not found"),
        (
            "PUT",
            "/v1/deployment/unblock/x",
            400,
            "DeploymentID must be specified",
        ),
    ] {
        let reply = h
            .ask(method, target, if method == "PUT" { "{}" } else { "" })
            .await;
        let got = (reply.status, reply.text());
        assert_eq!(got, (status, text.to_owned()), "{method} {target}");
    }
    let health = h.get("/v1/operator/autopilot/health").await;
    assert_eq!(health.status, 200, "{}", health.text());
    assert_eq!(health.json()["Servers"][0]["Leader"], true);
    let config = h.get("/v1/operator/autopilot/configuration").await.json();
    assert_eq!(config["LastContactThreshold"], "200ms");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_the_server_holds() {
    let h = Harness::start().await;
    let prometheus = async || h.get("/v1/metrics?format=prometheus").await.text();
    // Scheduling starts a moment after this server began to lead.
    let scheduling = async || {
        let text = prometheus().await;
        so(text.contains("nomad_nomad_broker_total_ready"))
    };
    let started = eventually_async("scheduling to start", LONG, scheduling).await;
    started.unwrap();
    let text = prometheus().await;
    for name in [
        "nomad_raft_appliedIndex",
        "nomad_nomad_broker_total_ready",
        "nomad_nomad_blocked_evals_total_blocked",
    ] {
        let line = text.lines().find(|line| line.starts_with(name));
        assert!(line.is_some(), "{name} in {text}");
    }
    let gauges = h.get("/v1/metrics").await.json()["Gauges"].clone();
    let gauges = gauges.as_array().unwrap();
    assert!(gauges.iter().any(|g| g["Name"] == "nomad.raft.lastIndex"));
    // What the leader writes by itself may come in between.
    let agree = async || {
        let text = prometheus().await;
        let log = h.server.raft.log();
        let (_, last, applied) = h.server.raft.progress();
        let (first, next) = log.bounds();
        let bytes: u64 = log.segments().iter().map(|segment| segment.bytes).sum();
        let wrong = [
            ("nomad_raft_appliedIndex", applied),
            ("nomad_raft_lastIndex", last),
            ("drover_log_bytes", bytes),
            ("drover_log_first_index", first),
            ("drover_log_last_index", next - 1),
            ("drover_log_signed_index", h.server.ledger.status().index),
        ]
        .map(|(name, value)| format!("{name} {value}"))
        .into_iter()
        .find(|wanted| !text.lines().any(|line| line == wanted));
        wrong.map_or(Ok(()), |wanted| Err(format!("no {wanted} in {text}")))
    };
    let agree = eventually_async("what the log has", LONG, agree).await;
    agree.unwrap();
    h.stop().await;
}

/// What metrics show of a server that has begun to lead and was given a job.
const REPORTED: [&str; 32] = [
    "nomad_nomad_job_summary_queued{job=\"web\",task_group=\"g\",namespace=\"default\"}",
    "nomad_nomad_job_status_pending ",
    "nomad_raft_peers 1",
    "drover_log_bytes ",
    "drover_projections_waited_seconds 0",
    "drover_projections_threadless_total 0",
    "drover_log_events_total ",
    "drover_log_first_index 0",
    "drover_log_signed_index ",
    "nomad_nomad_rpc_job_write ",
    "nomad_nomad_broker_service_ready ",
    "nomad_nomad_broker_total_cancelable ",
    "nomad_nomad_blocked_evals_cpu ",
    "nomad_nomad_autopilot_failure_tolerance 0",
    "nomad_nomad_autopilot_healthy 1",
    "drover_scheduling_left_out 0",
    "nomad_nomad_plan_evaluate{quantile",
    "nomad_nomad_plan_wait_for_index{quantile",
    "nomad_nomad_worker_invoke_scheduler_service{quantile",
    "drover_reactor_failures_total{reactor=",
    "nomad_nomad_broker_wait_time{eval_type=\"service\",triggered_by=",
    "nomad_nomad_broker_process_time{eval_type=",
    "nomad_nomad_broker_response_time{eval_type=",
    "nomad_nomad_worker_send_ack{quantile",
    "nomad_nomad_leader_barrier{quantile",
    "nomad_nomad_leader_establish_leadership{quantile",
    "nomad_raft_commitTime{quantile",
    "nomad_raft_fsm_apply{quantile",
    "nomad_raft_leader_dispatchLog{quantile",
    "nomad_raft_state_candidate ",
    "nomad_raft_state_follower ",
    "nomad_raft_state_leader ",
];

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_explained_each_and_not_offered_where_they_are_off() {
    let h = Harness::start().await;
    h.register("web").await;
    // The scheduler comes to the job when it does.
    let reported = async || {
        let text = h.get("/v1/metrics?format=prometheus").await.text();
        let is_there = |line: &&str| text.lines().any(|l| l.starts_with(*line));
        match REPORTED.iter().find(|line| !is_there(line)) {
            None => Ok(text),
            Some(missing) => Err(format!("no {missing} in {text}")),
        }
    };
    let reported = eventually_async("all that is wanted", LONG, reported);
    let text = reported.await.unwrap();
    drover_testkit::lint::check(&text);
    let summary = h.get("/v1/metrics").await.json();
    let named = |name: &str| {
        let gauges = summary["Gauges"].as_array().unwrap();
        gauges.iter().any(|gauge| gauge["Name"] == name)
    };
    assert!(named("nomad.nomad.job_summary.queued"), "{summary}");
    assert!(named("nomad.nomad.heartbeat.active"), "{summary}");
    h.stop().await;
    let settings = crate::http::Settings {
        live: super::harness::live(|live| live.prometheus = false),
        ..crate::http::Settings::default()
    };
    let h = Harness::with(settings, None).await;
    let refused = h.get("/v1/metrics?format=prometheus").await;
    assert_eq!(refused.status, 415);
    assert_eq!(refused.text(), "Prometheus is not enabled");
    assert_eq!(h.get("/v1/metrics").await.status, 200);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_tells_the_length_of_the_body() {
    let h = Harness::start().await;
    h.register("web").await;
    let length = h.get("/v1/jobs").await.body.len().to_string();
    let head = h.ask("HEAD", "/v1/jobs", "").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), length);
    h.stop().await;
}
