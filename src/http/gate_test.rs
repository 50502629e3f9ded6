//! Who is let in where: every route, and every way in which one namespace might be read by those
//! who may read another only.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use drover_events::gojson::Map;
use drover_events::model::{Namespace, VariableDecrypted};
use http_body_util::Full;
use serde_json::{Value, json};

use super::harness::{Harness, Reply, job};
use super::router;
use crate::acl::{self, Acl, Capability as _, NamespaceCapability as Ns, Strictness};
use crate::commands::namespace::UpsertNamespaces;
use crate::endpoints::testing::listed;
use crate::gate::Gate;
use crate::identity::{Identity, Rejection};
use crate::rpc::service::Access;

/// What the tokens of these tests may do.
const TOKENS: [(&str, &str); 7] = [
    (
        "writing",
        r#"namespace "red" { variables { path "*" { capabilities = ["write"] } } }"#,
    ),
    (
        "destroying",
        r#"namespace "red" { variables { path "*" { capabilities = ["destroy"] } } }"#,
    ),
    (
        "red",
        r#"namespace "red" {
  policy = "write"
  variables { path "*" { capabilities = ["list", "read", "write", "destroy"] } }
}"#,
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

pub(super) fn who(token: Option<&str>, addr: &str) -> Identity {
    match token {
        None => Identity::anonymous(addr, Arc::new(Acl::denied())),
        Some("root") => Identity::open(addr),
        // One capability in one namespace.
        Some(token) if token.starts_with("only:") => {
            let one = token.trim_start_matches("only:");
            let rules = format!("namespace \"red\" {{ capabilities = [\"{one}\"] }}");
            let policy = acl::parse(&rules, Strictness::Strict).unwrap();
            Identity::anonymous(addr, Arc::new(Acl::compile(&[&policy])))
        }
        // Everything in one namespace, and what is in none.
        Some(token) if token.starts_with("all:") => {
            let all = everything_in(token.trim_start_matches("all:"));
            Identity::anonymous(addr, Arc::new(all))
        }
        Some(token) => match COMPILED.iter().find(|(name, _)| *name == token) {
            None => Identity::refused(addr, Rejection::Unknown),
            Some((_, acl)) => Identity::anonymous(addr, Arc::clone(acl)),
        },
    }
}

/// Every right in a namespace, and reading what is in no namespace: nodes, their pools but those of
/// another, plugins.
fn everything_in(namespace: &str) -> Acl {
    let capabilities = Ns::ALL.iter().filter(|one| **one != Ns::Deny);
    let capabilities: Vec<_> = capabilities.map(|one| one.as_str()).collect();
    let rules = format!(
        r#"namespace "{namespace}" {{
  capabilities = {capabilities:?}
  variables {{ path "*" {{ capabilities = ["list", "read", "write", "destroy"] }} }}
}}
plugin {{ policy = "read" }}
node {{ policy = "read" }}
node_pool "default" {{ policy = "read" }}
node_pool "pool-{namespace}" {{ policy = "write" }}
host_volume "disk-{namespace}" {{ policy = "write" }}"#
    );
    let policy = acl::parse(&rules, Strictness::Strict).unwrap();
    Acl::compile(&[&policy])
}

impl Harness {
    /// A request with a token; none where it is empty.
    pub(super) async fn by(
        &self,
        token: &str,
        method: &str,
        target: &str,
        body: impl ToString,
    ) -> Reply {
        let mut request = hyper::Request::builder().method(method).uri(target);
        if !token.is_empty() {
            request = request.header("x-nomad-token", token);
        }
        let body = body.to_string();
        self.send(request.body(Full::new(body.into())).unwrap())
            .await
    }

    pub(super) async fn seen(&self, token: &str, target: &str) -> Reply {
        self.by(token, "GET", target, "").await
    }
}

/// Makes the namespaces red and blue.
pub(super) async fn namespaces(server: &Harness) {
    let namespaces = ["red", "blue"].map(|name| Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    });
    let namespaces = namespaces.to_vec();
    server.submit(UpsertNamespaces { namespaces }).await;
}

/// A server with the namespaces red and blue, each with a job, its evaluation, a variable.
pub(super) async fn two_namespaces() -> Harness {
    let server = Harness::asking(Gate::fixed(who)).await;
    server.register_node().await;
    namespaces(&server).await;
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

/// What a server requests of a client in a session: requests that it passes on, once it let them
/// in.
fn is_passed_on(path: &str) -> bool {
    let of_agents = ["monitor", "monitor/export", "host"];
    path.strip_prefix("/v1/agent/")
        .is_some_and(|rest| of_agents.contains(&rest) || rest.starts_with("pprof"))
        || path.starts_with("/v1/client/") && !path.starts_with("/v1/client/identity")
        || path == "/v1/allocation/{id}/checks"
}

#[test]
fn the_page_of_routes_is_what_is_registered() {
    listed("| Path | Methods | Access |", &router::listed());
    let lines = router::lines();
    let passed = lines.iter().filter(|line| is_passed_on(&line.path));
    let passed: BTreeSet<String> = passed
        .map(|line| {
            let access = Access::Server;
            format!("| `{}` | {} | {access} |\n", line.path, line.methods)
        })
        .collect();
    assert!(passed.len() > 8, "{passed:?}");
    let passed: String = passed.into_iter().collect();
    listed("| Asked in a session | Methods | Access |", &passed);
}

/// A caller that a rule over an object lets in sees all of it. Of a list a rule can say no more
/// than that some of it may be seen.
#[test]
fn auth_12_only_routes_that_name_an_object_show_all_that_there_is() {
    for line in router::lines() {
        let named = line.path.contains('{');
        assert!(named || !line.of_object, "{}", line.path);
    }
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
        let limit = std::time::Instant::now() + drover_testkit::LONG;
        let (there, absent) = loop {
            assert!(std::time::Instant::now() < limit, "{path} never rests");
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

/// What requests might have changed.
async fn state(server: &Harness) -> Vec<Value> {
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
}

/// Token, method, target and body of changes that are not the token's to make.
const CHANGES: &[(&str, &str, &str, &str)] = &[
    ("red", "PUT", "/v1/jobs?namespace=blue", "BLUE"),
    ("red", "PUT", "/v1/job/job-blue?namespace=blue", "BLUE"),
    ("red", "PUT", "/v1/job/job-blue/plan?namespace=blue", "BLUE"),
    ("red", "DELETE", "/v1/job/job-blue?namespace=blue", "{}"),
    (
        "red",
        "DELETE",
        "/v1/job/job-blue?namespace=blue&purge=true",
        "{}",
    ),
    (
        "red",
        "PUT",
        "/v1/job/job-blue/evaluate?namespace=blue",
        "{}",
    ),
    ("red", "PUT", "/v1/job/job-blue/revert?namespace=blue", "{}"),
    ("red", "PUT", "/v1/job/job-blue/scale?namespace=blue", "{}"),
    ("red", "PUT", "/v1/job/job-blue/stable?namespace=blue", "{}"),
    ("listing", "PUT", "/v1/jobs?namespace=red", "RED"),
    (
        "red",
        "PUT",
        "/v1/var/a?namespace=blue",
        r#"{"Items": {"a": "b"}}"#,
    ),
    (
        "red",
        "PUT",
        "/v1/var/a?namespace=red",
        r#"{"Namespace": "blue", "Items": {"a": "b"}}"#,
    ),
    ("red", "DELETE", "/v1/var/secret-blue?namespace=blue", "{}"),
    (
        "listing",
        "PUT",
        "/v1/var/a?namespace=red",
        r#"{"Items": {"a": "b"}}"#,
    ),
    ("red", "PUT", "/v1/node/pools", r#"{"Name": "mine"}"#),
    ("red", "PUT", "/v1/namespace/blue", r#"{"Name": "blue"}"#),
    ("red", "DELETE", "/v1/evaluations", r#"{"EvalIDs": ["x"]}"#),
    ("nodes", "PUT", "/v1/operator/scheduler/configuration", "{}"),
    ("", "PUT", "/v1/jobs?namespace=red", "RED"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_changed_by_who_may_not() {
    let server = two_namespaces().await;
    let before = state(&server).await;
    let (red, blue) = (job("new"), job("job-blue"));
    for (token, method, target, body) in CHANGES {
        let body = match *body {
            "RED" => red.to_string(),
            "BLUE" => blue.to_string(),
            body => body.to_owned(),
        };
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
    assert_eq!(state(&server).await, before, "nothing was written");
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
        // Nor for what is not there, which would show that it is not.
        "/v1/evaluation/00000000-0000-0000-0000-000000000000?index=999999&wait=60s".to_owned(),
        "/v1/deployment/00000000-0000-0000-0000-000000000000?index=999999&wait=60s".to_owned(),
        "/v1/nodes?index=999999&wait=60s".to_owned(),
    ] {
        let requested = server.seen("red", &target);
        let limit = std::time::Duration::from_secs(20);
        let reply = tokio::time::timeout(limit, requested).await;
        let status = reply.expect("it does not wait").status;
        assert!(matches!(status, 403 | 404), "{target}: {status}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_17_csi_18_ns_03_each_route_asks_for_its_own_right() {
    let h = two_namespaces().await;
    let body = json!({"Volumes": [super::volumes_test::described("data")]}).to_string();
    let volume = "/v1/volume/csi/x?namespace=red";
    let register = "/v1/volume/csi/data?namespace=red";
    let other = "/v1/volume/csi/x?namespace=blue";
    let claim = "/v1/volumes/claim/x?namespace=red";
    let (list, read) = ("only:csi-list-volume", "only:csi-read-volume");
    let write = "only:csi-write-volume";
    for (token, method, target, status) in [
        (list, "GET", volume, 403),
        (write, "GET", volume, 403),
        (read, "PUT", register, 403),
        (read, "DELETE", volume, 403),
        (write, "DELETE", volume, 500),
        (write, "DELETE", other, 403),
        // Without the right to read plugins.
        (write, "PUT", register, 403),
        (read, "GET", volume, 403),
        (read, "GET", "/v1/plugin/csi/x", 403),
        (read, "DELETE", claim, 403),
        ("root", "GET", volume, 404),
    ] {
        let reply = h.by(token, method, target, &body).await;
        assert_eq!(
            reply.status,
            status,
            "{token} {method} {target}: {}",
            reply.text()
        );
    }
    h.stop().await;
}
