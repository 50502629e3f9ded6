//! Who is let in where: every route, and every way in which one namespace might be read by those
//! who may read another only.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use drover_events::gojson::Map;
use drover_events::model::{Namespace, VariableDecrypted};
use drover_testkit::LONG;
use http_body_util::Full;
use serde_json::{Value, json};

use super::harness::{Harness, Reply, job};
use super::router;
use crate::acl::{self, Acl, Strictness};
use crate::commands::namespace::UpsertNamespaces;
use crate::gate::Gate;
use crate::identity::{Identity, Refusal};

/// What the tokens of these tests may do.
const TOKENS: [(&str, &str); 6] = [
    (
        "writing",
        r#"namespace "red" { variables { path "*" { capabilities = ["write"] } } }"#,
    ),
    (
        "red",
        r#"namespace "red" { policy = "write" variables { path "*" { capabilities = ["list", "read", "write", "destroy"] } } }"#,
    ),
    (
        "listing",
        r#"namespace "red" { capabilities = ["list-jobs"] }"#,
    ),
    ("operator", r#"operator { policy = "write" }"#),
    (
        "nodes",
        r#"node { policy = "write" } agent { policy = "write" }"#,
    ),
    ("nothing", r#"namespace "nowhere" { policy = "read" }"#),
];

static COMPILED: LazyLock<Vec<(&str, Arc<Acl>)>> = LazyLock::new(|| {
    let compiled = TOKENS.map(|(name, rules)| {
        let policy = acl::parse(rules, Strictness::Strict).unwrap();
        (name, Arc::new(Acl::compile(&[&policy])))
    });
    compiled.to_vec()
});

fn who(token: Option<&str>, addr: &str) -> Identity {
    match token {
        None => Identity::anonymous(addr, Arc::new(Acl::denied())),
        Some("root") => Identity::open(addr),
        Some(token) => match COMPILED.iter().find(|(name, _)| *name == token) {
            None => Identity::refused(addr, Refusal::Unknown),
            Some((_, acl)) => Identity::anonymous(addr, Arc::clone(acl)),
        },
    }
}

impl Harness {
    /// A request with a token; none where it is empty.
    async fn by(&self, token: &str, method: &str, target: &str, body: impl ToString) -> Reply {
        let mut request = hyper::Request::builder().method(method).uri(target);
        if !token.is_empty() {
            request = request.header("x-nomad-token", token);
        }
        let body = body.to_string();
        self.send(request.body(Full::new(body.into())).unwrap())
            .await
    }

    async fn seen(&self, token: &str, target: &str) -> Reply {
        self.by(token, "GET", target, "").await
    }
}

/// A server with the namespaces red and blue, each with a job, its evaluation, an allocation, a
/// variable.
async fn two_namespaces() -> Harness {
    let server = Harness::asking(Gate::fixed(who)).await;
    server.register_node().await;
    let namespaces = ["red", "blue"].map(|name| Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    });
    let namespaces = namespaces.to_vec();
    server.submit(UpsertNamespaces { namespaces }).await;
    for name in ["red", "blue"] {
        let target = format!("/v1/jobs?namespace={name}");
        let body = job(&format!("job-{name}"));
        let reply = server.by("root", "PUT", &target, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let var = VariableDecrypted {
            items: Map::from([("key", format!("value-{name}"))]),
            ..VariableDecrypted::default()
        };
        let target = format!("/v1/var/secret-{name}?namespace={name}");
        let body = serde_json::to_string(&var).unwrap();
        let reply = server.by("root", "PUT", &target, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    server
}

/// A path with its parameters filled in by what is not there.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{verb}" => "restart".to_owned(),
        "{*rest}" if path.contains("fs") => "ls/00000000-0000-0000-0000-000000000000".to_owned(),
        part if part.starts_with('{') => "00000000-0000-0000-0000-000000000000".to_owned(),
        part => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn the_page_of_routes_is_what_is_registered() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/docs/routes.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (head, rows) = text.split_once("|---|---|---|\n").unwrap();
    let now = router::listed();
    if std::env::var_os("DROVER_BLESS").is_some() {
        std::fs::write(page, format!("{head}|---|---|---|\n{now}")).unwrap();
        return;
    }
    assert_eq!(rows, now, "DROVER_BLESS=1 writes src/docs/routes.md anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_12_no_route_lets_in_who_may_do_nothing() {
    let server = Harness::asking(Gate::fixed(who)).await;
    let mut tried = 0;
    for line in router::lines() {
        let public = line.access.starts_with("public");
        let open = public || line.access.starts_with("anyone");
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let any = line.methods == "any";
            if !any && !line.methods.split(", ").any(|one| one == method) {
                continue;
            }
            tried += 1;
            let target = filled(&line.path);
            let nobody = server.by("", method, &target, "{}").await;
            let forged = server.by("forged", method, &target, "{}").await;
            let what = format!("{method} {target} ({}): {}", line.access, nobody.text());
            if !public {
                assert_eq!(forged.status, 403, "{what}");
            }
            // What a job is about stands in its body: one that is none is refused as that.
            let late = nobody.status == 400 && nobody.text().contains("Job must be specified");
            assert!(
                open || late || nobody.status == 403,
                "{what}: {}",
                nobody.status
            );
        }
    }
    assert!(tried > 150, "{tried}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capability_opens_its_routes_and_no_others() {
    let server = two_namespaces().await;
    for (token, method, target, status) in [
        (
            "operator",
            "GET",
            "/v1/operator/scheduler/configuration",
            200,
        ),
        ("operator", "GET", "/v1/operator/raft/configuration", 403),
        ("operator", "GET", "/v1/operator/autopilot/health", 200),
        ("operator", "GET", "/v1/log/entries?from=1", 403),
        ("operator", "GET", "/v1/jobs", 403),
        ("nodes", "GET", "/v1/nodes", 200),
        ("nodes", "GET", "/v1/agent/self", 200),
        ("nodes", "GET", "/v1/operator/reactors", 403),
        ("nodes", "PUT", "/v1/system/gc", 403),
        ("red", "GET", "/v1/nodes", 403),
        ("red", "GET", "/v1/agent/self", 403),
        ("red", "GET", "/v1/jobs?namespace=red", 200),
        ("red", "GET", "/v1/jobs?namespace=blue", 403),
        ("red", "GET", "/v1/job/job-red?namespace=red", 200),
        ("red", "GET", "/v1/job/job-blue?namespace=blue", 403),
        ("red", "GET", "/v1/job/job-blue?namespace=*", 404),
        ("red", "GET", "/v1/jobs", 403),
        ("red", "GET", "/v1/namespace/red", 200),
        ("red", "GET", "/v1/namespace/blue", 403),
        ("red", "PUT", "/v1/namespace/green", 403),
        ("listing", "GET", "/v1/jobs?namespace=red", 200),
        ("listing", "GET", "/v1/job/job-red?namespace=red", 403),
        ("listing", "GET", "/v1/allocations?namespace=red", 403),
        ("forged", "GET", "/v1/jobs?namespace=red", 403),
        ("", "GET", "/v1/status/leader", 200),
        ("forged", "GET", "/v1/status/leader", 200),
    ] {
        let reply = server.by(token, method, target, "").await;
        assert_eq!(
            reply.status,
            status,
            "{token} {method} {target}: {}",
            reply.text()
        );
    }
    let reply = server.seen("forged", "/v1/agent/self").await;
    assert_eq!(reply.text(), "ACL token not found");
    let reply = server.seen("forged", "/v1/jobs").await;
    assert_eq!(reply.text(), "Permission denied");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_search_or_page_shows_another_namespace() {
    let server = two_namespaces().await;
    for target in [
        "/v1/jobs?namespace=*",
        "/v1/jobs?namespace=*&meta=true",
        "/v1/jobs?namespace=*&filter=Namespace!=%22red%22",
        "/v1/jobs?namespace=*&per_page=1",
        "/v1/jobs?namespace=*&per_page=1&reverse=true",
        "/v1/jobs/statuses?namespace=*",
        "/v1/evaluations?namespace=*",
        "/v1/evaluations?namespace=*&reverse=true",
        "/v1/allocations?namespace=*",
        "/v1/allocations?namespace=*&resources=true",
        "/v1/deployments?namespace=*",
        "/v1/services?namespace=*",
        "/v1/scaling/policies?namespace=*",
        "/v1/vars?namespace=*",
        "/v1/namespaces",
        "/v1/node/pools",
    ] {
        let reply = server.seen("red", target).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        let text = reply.text() + reply.header("x-nomad-nexttoken");
        assert!(!text.contains("blue"), "{target}: {text}");
        let of_then = format!(
            "{target}{}as_of=-1ms",
            if target.contains('?') { "&" } else { "?" }
        );
        let past = server.seen("red", &of_then).await;
        assert!(!past.text().contains("blue"), "{of_then}: {}", past.text());
    }
    for (path, body) in [
        ("/v1/search", json!({"Prefix": "job", "Namespace": "*"})),
        (
            "/v1/search",
            json!({"Prefix": "", "Context": "vars", "Namespace": "*"}),
        ),
        (
            "/v1/search",
            json!({"Prefix": "b", "Context": "namespaces"}),
        ),
        ("/v1/search/fuzzy", json!({"Text": "job", "Namespace": "*"})),
        (
            "/v1/search/fuzzy",
            json!({"Text": "blue", "Namespace": "*"}),
        ),
        (
            "/v1/search/fuzzy",
            json!({"Text": "secret", "Context": "vars", "Namespace": "*"}),
        ),
        (
            "/v1/jobs/statuses",
            json!({"Jobs": [{"ID": "job-blue", "Namespace": "blue"}]}),
        ),
    ] {
        let reply = server.by("red", "POST", path, &body).await;
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.text());
        assert!(
            !reply.text().contains("blue"),
            "{path} {body}: {}",
            reply.text()
        );
        let all = server.by("root", "POST", path, &body).await;
        assert!(
            all.text().contains("blue"),
            "it would be there: {path} {body}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_another_namespace_is_as_what_is_not_there() {
    let server = two_namespaces().await;
    let evals = server
        .seen("root", "/v1/evaluations?namespace=blue")
        .await
        .json();
    let eval = evals[0]["ID"].as_str().unwrap().to_owned();
    let none = "00000000-0000-0000-0000-000000000000";
    for path in ["/v1/evaluation/", "/v1/deployment/"] {
        // The index is that of the table, which the scheduler may just have moved.
        let (there, absent) = loop {
            let before = server.seen("red", &format!("{path}{none}")).await;
            let there = server.seen("red", &format!("{path}{eval}")).await;
            let absent = server.seen("red", &format!("{path}{none}")).await;
            if before.index() == absent.index() {
                break (there, absent);
            }
        };
        assert_eq!(
            (there.status, there.text()),
            (absent.status, absent.text()),
            "{path}"
        );
        assert_eq!(
            there.header("x-nomad-index"),
            absent.header("x-nomad-index")
        );
        // Who may see no job anywhere learns nothing of either.
        let nobody = server.seen("operator", &format!("{path}{eval}")).await;
        assert_eq!(nobody.status, 403, "{path}");
    }
    let path = format!("/v1/evaluation/{eval}/allocations");
    assert_eq!(server.seen("red", &path).await.status, 404);
    let path = format!("/v1/evaluation/{eval}/explain");
    assert_eq!(server.seen("red", &path).await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_changed_by_who_may_not() {
    let server = two_namespaces().await;
    let state = async || {
        let mut all = Vec::new();
        for target in ["/v1/vars?namespace=*", "/v1/namespaces", "/v1/node/pools"] {
            all.push(server.seen("root", target).await.json());
        }
        let scheduler = "/v1/operator/scheduler/configuration";
        let configured = server.seen("root", scheduler).await.json();
        all.push(configured["SchedulerConfig"].clone());
        let jobs = server.seen("root", "/v1/jobs?namespace=*").await.json();
        all.extend(jobs.as_array().unwrap().iter().map(|job| {
            json!([
                job["ID"],
                job["Namespace"],
                job["JobModifyIndex"],
                job["Stop"]
            ])
        }));
        all
    };
    let before = state().await;
    let (red, blue) = (job("new"), job("job-blue"));
    for (token, method, target, body) in [
        ("red", "PUT", "/v1/jobs?namespace=blue", &blue),
        ("red", "PUT", "/v1/job/job-blue?namespace=blue", &blue),
        ("red", "PUT", "/v1/job/job-blue/plan?namespace=blue", &blue),
        (
            "red",
            "DELETE",
            "/v1/job/job-blue?namespace=blue",
            &json!({}),
        ),
        (
            "red",
            "DELETE",
            "/v1/job/job-blue?namespace=blue&purge=true",
            &json!({}),
        ),
        (
            "red",
            "PUT",
            "/v1/job/job-blue/evaluate?namespace=blue",
            &json!({}),
        ),
        (
            "red",
            "PUT",
            "/v1/job/job-blue/revert?namespace=blue",
            &json!({}),
        ),
        (
            "red",
            "PUT",
            "/v1/job/job-blue/scale?namespace=blue",
            &json!({}),
        ),
        (
            "red",
            "PUT",
            "/v1/job/job-blue/stable?namespace=blue",
            &json!({}),
        ),
        ("listing", "PUT", "/v1/jobs?namespace=red", &red),
        (
            "red",
            "PUT",
            "/v1/var/a?namespace=blue",
            &json!({"Items": {"a": "b"}}),
        ),
        (
            "red",
            "PUT",
            "/v1/var/a?namespace=red",
            &json!({"Namespace": "blue", "Items": {"a": "b"}}),
        ),
        (
            "red",
            "DELETE",
            "/v1/var/secret-blue?namespace=blue",
            &json!({}),
        ),
        (
            "listing",
            "PUT",
            "/v1/var/a?namespace=red",
            &json!({"Items": {"a": "b"}}),
        ),
        ("red", "PUT", "/v1/node/pools", &json!({"Name": "mine"})),
        ("red", "PUT", "/v1/namespace/blue", &json!({"Name": "blue"})),
        (
            "red",
            "DELETE",
            "/v1/evaluations",
            &json!({"EvalIDs": ["x"]}),
        ),
        (
            "nodes",
            "PUT",
            "/v1/operator/scheduler/configuration",
            &json!({}),
        ),
        ("", "PUT", "/v1/jobs?namespace=red", &red),
    ] {
        let reply = server.by(token, method, target, body).await;
        assert_eq!(
            reply.status,
            403,
            "{token} {method} {target}: {}",
            reply.text()
        );
        assert_eq!(reply.text(), "Permission denied");
    }
    // The job's own namespace counts where the request names none.
    let mut own = job("sneaky");
    own["Job"]["Namespace"] = json!("blue");
    let reply = server.by("red", "PUT", "/v1/jobs", own).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert_eq!(state().await, before, "nothing was written");
    let reply = server.by("red", "PUT", "/v1/jobs?namespace=red", red).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_see_it_does_not_wait_for_it() {
    let server = two_namespaces().await;
    let evals = server
        .seen("root", "/v1/evaluations?namespace=blue")
        .await
        .json();
    let eval = evals[0]["ID"].as_str().unwrap();
    for target in [
        "/v1/jobs?namespace=blue&index=999999&wait=60s".to_owned(),
        "/v1/job/job-blue?namespace=blue&index=999999&wait=60s".to_owned(),
        format!("/v1/evaluation/{eval}?index=999999&wait=60s"),
        "/v1/nodes?index=999999&wait=60s".to_owned(),
    ] {
        let asked = server.seen("red", &target);
        let limit = std::time::Duration::from_secs(20);
        let reply = tokio::time::timeout(limit, asked).await;
        let status = reply.expect("it does not wait").status;
        assert!(matches!(status, 403 | 404), "{target}: {status}");
    }
    server.stop().await;
}

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
    let api = Arc::clone(&server.api);
    let publisher = tokio::spawn(async move {
        let (projections, log) = (Arc::clone(&api.projections), Arc::clone(&api.log));
        let ends = tokio_util::sync::CancellationToken::new();
        api.stream.run(projections, log, ends).await;
    });
    for form in ["", "&format=cloudevents"] {
        let wanted = "topic=Job&topic=Evaluation&topic=Variable&namespace=*&index=1";
        let target = format!("/v1/event/stream?{wanted}{form}");
        let request = hyper::Request::builder()
            .uri(target)
            .header("x-nomad-token", "red");
        let request = request.body(axum::body::Body::empty()).unwrap();
        let reply = tower::ServiceExt::oneshot(server.router(), request)
            .await
            .unwrap();
        assert_eq!(reply.status().as_u16(), 200, "{form}");
        let mut body = reply.into_body();
        let mut told = String::new();
        let all = async {
            while !(told.contains("job-red") && told.contains("secret-red")) {
                let frame = http_body_util::BodyExt::frame(&mut body).await;
                let frame = frame.unwrap().unwrap();
                told += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
            }
        };
        let in_time = tokio::time::timeout(LONG / 3, all).await;
        in_time.unwrap_or_else(|_| panic!("{form}: only {told}"));
        assert!(!told.contains("blue"), "{form}: {told}");
    }
    publisher.abort();
    server.stop().await;
}

#[test]
fn every_namespace_capability_is_asked_somewhere_or_is_of_what_is_not_built() {
    let asked: BTreeSet<String> = router::lines()
        .iter()
        .flat_map(|line| {
            line.access
                .split([' ', ',', ';', ':'])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    for one in [
        "list-jobs",
        "read-job",
        "parse-job",
        "dispatch-job",
        "scale-job",
        "alloc-lifecycle",
        "read-fs",
    ] {
        assert!(asked.contains(one), "{one}: {asked:?}");
    }
}

/// What a counter says, by label.
async fn counted(server: &Harness, name: &str) -> Vec<(String, u64)> {
    let text = server.get("/v1/metrics?format=prometheus").await.text();
    let lines = text.lines().filter_map(|line| {
        let (series, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_requests_are_counted_by_who_asks_before_they_are_refused_without_secrets() {
    let named = |token: Option<&str>, addr: &str| match token {
        Some("canary-secret-1") => {
            let token = drover_events::model::AclToken {
                accessor_id: "auth-07-accessor".into(),
                ..Default::default()
            };
            Identity::bearer(Arc::new(token), addr, Arc::new(Acl::denied()))
        }
        Some("node") => Identity::node("auth-07-node", addr),
        _ => Identity::refused(addr, Refusal::Unknown),
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
    let told = counted(&server, name).await;
    let of = |label: &str| {
        let found = told.iter().find(|(series, _)| series.contains(label));
        found.map_or(0, |(_, count)| *count)
    };
    assert_eq!(of("identity=\"token:auth-07-accessor\""), 2, "{told:?}");
    assert_eq!(of("identity=\"client:auth-07-node\""), 1, "{told:?}");
    assert!(of("identity=\"unauthenticated\"") >= 1, "{told:?}");
    let all = server.get("/v1/metrics?format=prometheus").await.text();
    assert!(!all.contains("canary-secret"), "AUTH-11");
    // AUTH-10: the labels go, the numbers stay.
    let settings = super::Settings {
        label_identities: false,
        ..super::Settings::default()
    };
    let api = super::Api {
        gate: Arc::clone(&server.api.gate),
        ..super::Api::of(&server.server, settings, super::Shape::default())
    };
    let without = router::router(Arc::new(api));
    let count = |told: &[(String, u64)]| {
        let plain = told
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
    // A manager is told why not, if not.
    let reply = server.by("root", "DELETE", "/v1/evaluations", ids).await;
    assert_ne!(reply.status, 403, "{}", reply.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn var_03_who_may_not_read_a_variable_loses_to_it_without_seeing_it() {
    let server = two_namespaces().await;
    let target = "/v1/var/secret-red?namespace=red&cas=1";
    let body = json!({"Items": {"a": "b"}});
    let reader = server.by("red", "PUT", target, &body).await;
    assert_eq!(reader.status, 409, "{}", reader.text());
    assert_eq!(reader.json()["Items"]["key"], "value-red");
    let writer = server.by("writing", "PUT", target, &body).await;
    assert_eq!(writer.status, 409, "{}", writer.text());
    let shown = writer.json();
    assert_eq!(shown["Items"], Value::Null, "{shown}");
    assert_eq!(shown["Path"], "secret-red");
    assert_eq!(shown["ModifyIndex"], reader.json()["ModifyIndex"]);
    assert!(!writer.text().contains("value-red"));
    assert_eq!(
        server
            .seen("writing", "/v1/var/secret-red?namespace=red")
            .await
            .status,
        403
    );
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
        // Without a client there is nobody to ask, which is said before.
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
    let told = server
        .seen("nodes", "/v1/nodes?filter=SecretID==%22hash%22")
        .await;
    assert!(
        told.status == 400 || told.json() == json!([]),
        "{}",
        told.text()
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
        metrics_require_acl: true,
        ..super::Settings::default()
    };
    let api = super::Api {
        gate: Arc::clone(&server.api.gate),
        ..super::Api::of(&server.server, settings, super::Shape::default())
    };
    let closed = router::router(Arc::new(api));
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
