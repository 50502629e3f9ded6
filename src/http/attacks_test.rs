//! What an attacker would try, as `src/docs/attacks.md` lists it, where no other test tries it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::both_world_test::Both;
use super::gate_test::two_namespaces;
use super::harness::{Harness, job};
use super::{Settings, router};

/// Routes that read from the tables who calls.
pub(super) fn guarded(server: &Harness) -> Router {
    router(
        Arc::new(server.guarded(Settings::default())),
        Arc::default(),
    )
}

pub(super) async fn ask(
    router: &Router,
    token: &str,
    method: &str,
    target: &str,
    body: &Value,
) -> (u16, Value) {
    let mut request = hyper::Request::builder().method(method).uri(target);
    if !token.is_empty() {
        request = request.header("x-nomad-token", token);
    }
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    let response = router.clone().oneshot(request.body(body).unwrap()).await;
    let response = response.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    (
        status,
        serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    )
}

const READ: &str = r#"namespace "default" { policy = "read" }"#;
const ALL: &str = r#"namespace "*" { policy = "write" } operator { policy = "write" }"#;

/// A manager's secret, a token with nothing but the role `ops`, which reads, and the role's id.
async fn with_a_role(routes: &Router) -> (String, Value, String) {
    let (status, root) = ask(routes, "", "PUT", "/v1/acl/bootstrap", &Value::Null).await;
    assert_eq!(status, 200, "{root}");
    let root = root["SecretID"].as_str().unwrap().to_owned();
    for (name, rules) in [("weak", READ), ("strong", ALL)] {
        let policy = json!({"Name": name, "Rules": rules});
        let target = format!("/v1/acl/policy/{name}");
        let (status, reported) = ask(routes, &root, "PUT", &target, &policy).await;
        assert_eq!(status, 200, "{reported}");
    }
    let role = json!({"Name": "ops", "Policies": [{"Name": "weak"}]});
    let (status, role) = ask(routes, &root, "PUT", "/v1/acl/role", &role).await;
    assert_eq!(status, 200, "{role}");
    let id = role["ID"].as_str().unwrap().to_owned();
    let token = json!({"Name": "t", "Type": "client", "Roles": [{"Name": "ops"}]});
    let (status, token) = ask(routes, &root, "PUT", "/v1/acl/token", &token).await;
    assert_eq!(status, 200, "{token}");
    (root, token, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_grants_its_holder_no_more_of_itself() {
    let server = Harness::start().await;
    let routes = guarded(&server);
    let (root, token, role) = with_a_role(&routes).await;
    let secret = token["SecretID"].as_str().unwrap();
    let accessor = token["AccessorID"].as_str().unwrap();
    let stronger = json!({"ID": role, "Name": "ops", "Policies": [{"Name": "strong"}]});
    let manager = json!({"AccessorID": accessor, "Name": "t", "Type": "management"});
    let own = format!("/v1/acl/token/{accessor}");
    let of_role = format!("/v1/acl/role/{role}");
    for (method, target, body) in [
        ("PUT", of_role.as_str(), stronger.clone()),
        ("PUT", "/v1/acl/role", stronger),
        ("DELETE", of_role.as_str(), Value::Null),
        (
            "PUT",
            "/v1/acl/policy/weak",
            json!({"Name": "weak", "Rules": ALL}),
        ),
        ("DELETE", "/v1/acl/policy/weak", Value::Null),
        ("PUT", own.as_str(), manager.clone()),
        ("PUT", "/v1/acl/token", manager),
        (
            "PUT",
            "/v1/acl/token",
            json!({"Name": "u", "Type": "client", "Policies": ["strong"]}),
        ),
    ] {
        let (status, reported) = ask(&routes, secret, method, target, &body).await;
        assert_eq!(
            (status, reported.as_str()),
            (403, Some("Permission denied")),
            "{target}"
        );
    }
    let again = ask(&routes, secret, "PUT", "/v1/acl/bootstrap", &Value::Null).await;
    assert_eq!(again.0, 400, "{}", again.1);
    let (_, now) = ask(&routes, &root, "GET", &own, &Value::Null).await;
    assert_eq!(
        (&now["Type"], &now["Roles"]),
        (&token["Type"], &token["Roles"])
    );
    let (status, reported) = ask(&routes, secret, "PUT", "/v1/jobs", &job("mine")).await;
    assert_eq!(status, 403, "{reported}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_role_under_the_name_of_one_that_is_gone_gives_its_former_holders_nothing() {
    let server = Harness::start().await;
    let routes = guarded(&server);
    let (root, token, role) = with_a_role(&routes).await;
    let secret = token["SecretID"].as_str().unwrap();
    let reads = async || {
        ask(&routes, secret, "GET", "/v1/jobs", &Value::Null)
            .await
            .0
    };
    let writes = async || {
        ask(&routes, secret, "PUT", "/v1/jobs", &job("mine"))
            .await
            .0
    };
    assert_eq!((reads().await, writes().await), (200, 403));
    let of_role = format!("/v1/acl/role/{role}");
    let (status, reported) = ask(&routes, &root, "DELETE", &of_role, &Value::Null).await;
    assert_eq!(status, 200, "{reported}");
    assert_eq!((reads().await, writes().await), (403, 403));
    let anew = json!({"Name": "ops", "Policies": [{"Name": "strong"}]});
    let (status, reported) = ask(&routes, &root, "PUT", "/v1/acl/role", &anew).await;
    assert_eq!(status, 200, "{reported}");
    assert_ne!(reported["ID"], role);
    assert_eq!((reads().await, writes().await), (403, 403));
    server.stop().await;
}

/// Targets of lists, and whether there is something of red on the page.
const PAGES: &[(&str, bool)] = &[
    ("/v1/jobs?namespace=*&next_token=blue.job-blue", true),
    (
        "/v1/jobs?namespace=*&next_token=blue.job-blue&per_page=1",
        true,
    ),
    (
        "/v1/jobs?namespace=*&next_token=red.job-red&per_page=1&reverse=true",
        true,
    ),
    (
        "/v1/jobs?namespace=*&next_token=blue.job-blue&per_page=1&reverse=true",
        false,
    ),
    ("/v1/jobs?namespace=*&per_page=1&next_token=a.a", true),
    ("/v1/jobs?namespace=*&filter=Namespace==%22blue%22", false),
    ("/v1/jobs?namespace=*&filter=Namespace!=%22green%22", true),
    (
        "/v1/jobs?namespace=*&filter=ID%20matches%20%22job-.*%22",
        true,
    ),
    (
        "/v1/jobs?namespace=*&filter=ID%20matches%20%22job-b.*%22",
        false,
    ),
    (
        "/v1/jobs?namespace=*&filter=Namespace!=%22red%22&per_page=1",
        false,
    ),
    ("/v1/vars?namespace=*&next_token=blue.secret-blue", true),
    (
        "/v1/vars?namespace=*&filter=Path%20contains%20%22blue%22",
        false,
    ),
    (
        "/v1/vars?namespace=*&filter=Path%20contains%20%22secret%22",
        true,
    ),
    (
        "/v1/allocations?namespace=*&filter=JobID==%22job-blue%22",
        false,
    ),
    (
        "/v1/allocations?namespace=*&filter=JobID!=%22job-green%22",
        true,
    ),
    (
        "/v1/deployments?namespace=*&filter=JobID==%22job-blue%22",
        false,
    ),
    (
        "/v1/deployments?namespace=*&filter=JobID!=%22job-green%22",
        true,
    ),
    (
        "/v1/evaluations?namespace=*&filter=JobID==%22job-blue%22",
        false,
    ),
    (
        "/v1/evaluations?namespace=*&filter=JobID!=%22job-green%22",
        true,
    ),
    (
        "/v1/evaluations?namespace=*&per_page=1&next_token=EVAL",
        false,
    ),
    (
        "/v1/evaluations?namespace=*&per_page=1&reverse=true&next_token=EVAL",
        true,
    ),
    (
        "/v1/services?namespace=*&filter=ServiceName==%22api-blue%22",
        false,
    ),
    (
        "/v1/services?namespace=*&filter=ServiceName!=%22api-green%22",
        true,
    ),
    (
        "/v1/volumes?type=csi&namespace=*&filter=ID==%22data-blue%22",
        false,
    ),
    (
        "/v1/volumes?type=csi&namespace=*&next_token=blue.data-blue&per_page=1",
        true,
    ),
    (
        "/v1/volumes?type=host&namespace=*&filter=Name==%22disk-blue%22",
        false,
    ),
    (
        "/v1/volumes?type=host&namespace=*&filter=Name!=%22disk-green%22",
        true,
    ),
    (
        "/v1/scaling/policies?namespace=*&filter=Target.Job==%22job-blue%22",
        false,
    ),
    (
        "/v1/scaling/policies?namespace=*&filter=Target.Job!=%22job-green%22",
        true,
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_filter_and_no_page_reaches_into_another_namespace() {
    let both = Both::start().await;
    let server = &both.world.h;
    let eval = format!("/v1/evaluation/{}", both.blue.eval);
    let eval = server.seen("root", &eval).await.json();
    let of_blue = format!("{}.{}", eval["CreateIndex"], both.blue.eval);
    for (target, has_red) in PAGES {
        let target = target.replace("EVAL", &of_blue);
        let all = server.seen("root", &target).await;
        assert_eq!(all.status, 200, "{target}: {}", all.text());
        if !has_red {
            assert!(all.text().contains("blue"), "{target}: {}", all.text());
        }
        let reported = server.seen("all:red", &target).await;
        let text = reported.text() + reported.header("x-nomad-nexttoken");
        assert_eq!(reported.status, 200, "{target}: {text}");
        assert_eq!(text.contains("red"), *has_red, "{target}: {text}");
        assert!(!text.contains("blue"), "{target}: {text}");
    }
    both.world.h.stop().await;
}

/// What is refused in words says the same of what is there and of what never was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_an_error_tells_what_is_in_another_namespace() {
    let server = two_namespaces().await;
    let body = job("job-blue").to_string();
    for (method, target, body) in [
        ("GET", "/v1/job/job-blue?namespace=blue", ""),
        ("GET", "/v1/job/job-blue/versions?namespace=blue", ""),
        ("GET", "/v1/job/job-blue/allocations?namespace=blue", ""),
        ("GET", "/v1/job/job-blue?namespace=*", ""),
        (
            "GET",
            "/v1/job/job-blue/summary?namespace=blue&as_of=-1ms",
            "",
        ),
        ("GET", "/v1/var/secret-blue?namespace=blue", ""),
        (
            "PUT",
            "/v1/var/secret-blue?namespace=blue&cas=1",
            r#"{"Items": {"a": "b"}}"#,
        ),
        ("PUT", "/v1/job/job-blue/plan?namespace=blue", body.as_str()),
        ("DELETE", "/v1/job/job-blue?namespace=blue", ""),
        ("GET", "/v1/namespace/blue", ""),
        ("GET", "/v1/services?namespace=blue", ""),
    ] {
        let there = server.by("red", method, target, body).await;
        let other = |text: &str| text.replace("blue", "none");
        let never = server.by("red", method, &other(target), other(body)).await;
        assert!(
            matches!(there.status, 403 | 404),
            "{target}: {}",
            there.text()
        );
        assert_eq!(
            (there.status, other(&there.text())),
            (never.status, never.text()),
            "{target}"
        );
    }
    server.stop().await;
}

/// Where tokens say nothing, its origin counts before it is let say who it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_origin_gets_no_connection_to_introduce_itself_over() {
    let server = Harness::start().await;
    for (origin, status) in [("http://here.example", 101), ("http://there.example", 403)] {
        // A connection that may become another.
        let on = hyper::upgrade::on(hyper::Request::new(()));
        let request = hyper::Request::get("/v1/client/allocation/none/exec?ws_handshake=true")
            .header("host", "here.example")
            .header("origin", origin)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .extension(on);
        let request = request.body(Body::empty()).unwrap();
        let answer = server.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{origin}");
    }
    server.stop().await;
}
