//! What only a server in one process shows: a secret whose key is gone; texts; lists.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::commands::acl::{CreateAclToken, TtlBounds};
use crate::http::acl::shown;
use crate::http::attacks_test::{ask, guarded};
use crate::http::harness::Harness;
use crate::keyring::Keyring;
use drover_events::model::AclToken;
use drover_projections::tables::acl_tokens::{AclTokens, secret_hash};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_whose_key_is_gone_is_shown_without_its_secret() {
    let server = Harness::start().await;
    let ring = Arc::clone(&server.api.keyring);
    ring.wait_active().await;
    let accessor = "00000000-0000-4000-8000-000000000001";
    let secret = ring
        .seal_secret(accessor, "canary", secret_hash("canary"))
        .unwrap();
    let token = AclToken {
        accessor_id: accessor.into(),
        name: "ci".into(),
        r#type: "management".into(),
        ..AclToken::default()
    };
    let ttl = TtlBounds {
        min: std::time::Duration::ZERO,
        max: std::time::Duration::MAX,
    };
    server.submit(CreateAclToken { token, secret, ttl }).await;
    let view = server.api.projections.view();
    let sealed = view.get::<AclTokens>(accessor).unwrap().unwrap();
    assert_eq!(shown(&view, &ring, &sealed).unwrap().secret_id, "canary");
    let dir = tempfile::tempdir().unwrap();
    let (empty, _) = Keyring::open(dir.path()).unwrap();
    let token = shown(&view, &empty, &sealed).unwrap();
    assert_eq!((token.name.as_str(), token.secret_id.as_str()), ("ci", ""));
    drop(view);
    server.stop().await;
}

/// A manager's secret.
async fn bootstrapped(routes: &Router) -> String {
    let (status, root) = ask(routes, "", "PUT", "/v1/acl/bootstrap", &Value::Null).await;
    assert_eq!(status, 200, "{root}");
    root["SecretID"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_a_token_is_shown_the_anonymous_one_as_its_own() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let (status, shown) = ask(&routes, "", "GET", "/v1/acl/token/self", &Value::Null).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(
        (&shown["AccessorID"], &shown["Policies"]),
        (&json!("anonymous"), &json!(["anonymous"]))
    );
    server.stop().await;
}

/// Writes something as a manager; what is answered.
async fn written(routes: &Router, root: &str, target: &str, body: &Value) -> Value {
    let (status, reported) = ask(routes, root, "PUT", target, body).await;
    assert_eq!(status, 200, "{target}: {reported}");
    reported
}

/// Makes three policies and a role `crew`, which has the policy `mine`; the role's id.
async fn crew(routes: &Router, root: &str) -> String {
    for name in ["mine", "own", "other"] {
        let policy = json!({"Name": name, "Rules": "agent { policy = \"read\" }"});
        written(routes, root, &format!("/v1/acl/policy/{name}"), &policy).await;
    }
    let role = json!({"Name": "crew", "Policies": [{"Name": "mine"}]});
    let role = written(routes, root, "/v1/acl/role", &role).await;
    role["ID"].as_str().unwrap().to_owned()
}

/// What is wrong, in Nomad's words.
const WORDS: &[(&str, &str, &str)] = &[
    ("GET", "/v1/acl/policy/", "Missing Policy Name"),
    ("GET", "/v1/acl/token/", "Missing Token Accessor"),
    ("GET", "/v1/acl/role/", "missing ACL role ID"),
    ("GET", "/v1/acl/role/name/", "missing ACL role name"),
    ("GET", "/v1/acl/role/name/a/b", "invalid URI"),
    ("GET", "/v1/acl/role/a/b", "invalid URI"),
    (
        "PUT",
        "/v1/acl/policy/other",
        "ACL policy name does not match request path",
    ),
    (
        "PUT",
        "/v1/acl/token/other",
        "ACL token accessor does not match request path",
    ),
    (
        "PUT",
        "/v1/acl/role/other",
        "ACL role ID does not match request path",
    ),
    (
        "PUT",
        "/v1/acl/policy/a%20b",
        "policy 0 invalid: 1 error occurred:\n\t* invalid name 'a b'\n\n",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_policies_tokens_and_roles_is_said_in_nomads_words() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let root = bootstrapped(&routes).await;
    let body = json!({"Name": "a b", "AccessorID": "a", "ID": "a", "Rules": ""});
    for (method, target, words) in WORDS {
        let body = if *method == "PUT" {
            &body
        } else {
            &Value::Null
        };
        let reported = ask(&routes, &root, method, target, body).await;
        assert_eq!(reported, (400, json!(words)), "{method} {target}");
    }
    let broken = json!({"Name": "x", "Rules": "namespace {"});
    let reported = ask(&routes, &root, "PUT", "/v1/acl/policy/x", &broken).await;
    let text = reported.1.as_str().unwrap_or_default();
    let words = "policy 0 invalid: failed to parse rules: ";
    assert!(reported.0 == 400 && text.starts_with(words), "{reported:?}");
    server.stop().await;
}

/// The names that a list has, and where its next page begins.
async fn listed(routes: &Router, root: &str, target: &str) -> (Vec<String>, String) {
    let request = hyper::Request::get(target).header("x-nomad-token", root);
    let request = request.body(Body::empty()).unwrap();
    let answer = routes.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200, "{target}");
    let next = answer.headers().get("x-nomad-nexttoken").cloned();
    let next = next.map_or(String::new(), |next| next.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
    let rows: Vec<Value> = serde_json::from_slice(&body.unwrap()).unwrap();
    let name = |row: &Value| row["Name"].as_str().unwrap().to_owned();
    (rows.iter().map(name).collect(), next)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_policies_tokens_and_roles_are_filtered_turned_round_and_taken_by_pages() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let root = bootstrapped(&routes).await;
    for name in ["a", "b", "c"] {
        let policy = json!({"Name": name, "Rules": ""});
        let role = json!({"Name": name, "Policies": [{"Name": name}]});
        let token = json!({"Name": name, "Type": "client", "Policies": [name]});
        let policies = format!("/v1/acl/policy/{name}");
        for (target, body) in [
            (policies.as_str(), policy),
            ("/v1/acl/role", role),
            ("/v1/acl/token", token),
        ] {
            let (status, reported) = ask(&routes, &root, "PUT", target, &body).await;
            assert_eq!(status, 200, "{target}: {reported}");
        }
    }
    for (list, length) in [("policies", 3), ("roles", 3), ("tokens", 4)] {
        let list = format!("/v1/acl/{list}");
        let (whole, _) = listed(&routes, &root, &list).await;
        assert_eq!(whole.len(), length, "{list}: {whole:?}");
        let filtered = format!("{list}?filter=Name%20%3D%3D%20%22b%22");
        assert_eq!(listed(&routes, &root, &filtered).await.0, ["b"], "{list}");
        for reverse in [false, true] {
            let wanted: Vec<_> = match reverse {
                true => whole.iter().rev().cloned().collect(),
                false => whole.clone(),
            };
            let all = format!("{list}?reverse={reverse}");
            assert_eq!(listed(&routes, &root, &all).await.0, wanted, "{all}");
            let (mut pages, mut next) = (Vec::new(), String::new());
            for _ in 0..=length {
                let page = format!("{all}&per_page=1&next_token={next}");
                let (rows, after) = listed(&routes, &root, &page).await;
                assert_eq!(rows.len(), 1, "{page}");
                pages.extend(rows);
                next = after;
                if next.is_empty() {
                    break;
                }
            }
            assert_eq!(pages, wanted, "{all}, one by one");
        }
    }
    server.stop().await;
}

/// A caller that gets an identity, and one that is shown a secret, is in the request log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_and_tokens_that_are_shown_are_in_the_request_log() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let root = bootstrapped(&routes).await;
    let once = "/v1/acl/token/onetime";
    let (status, made) = ask(&routes, &root, "PUT", once, &Value::Null).await;
    assert_eq!(status, 200, "{made}");
    let secret = &made["OneTimeToken"]["OneTimeSecretID"];
    let exchange = json!({"OneTimeSecretID": secret});
    let target = "/v1/acl/token/onetime/exchange";
    let (status, reported) = ask(&routes, "", "PUT", target, &exchange).await;
    assert_eq!(status, 200, "{reported}");
    let own = "/v1/acl/token/self";
    assert_eq!(ask(&routes, &root, "GET", own, &Value::Null).await.0, 200);
    for (class, wanted) in [
        ("login", vec!["/v1/acl/bootstrap", once, target]),
        ("secret", vec![own]),
    ] {
        let log = format!("/v1/audit/requests?class={class}");
        let (_, reported) = ask(&routes, &root, "GET", &log, &Value::Null).await;
        let reported = reported.as_array().unwrap();
        let paths: Vec<&str> = reported
            .iter()
            .filter_map(|one| one["Path"].as_str())
            .collect();
        assert_eq!(paths, wanted, "{class}");
        assert!(
            reported.iter().all(|one| one["Status"] == 200),
            "{reported:?}"
        );
        assert!(
            !json!(reported).to_string().contains(&root),
            "not its secret"
        );
    }
    server.stop().await;
}

/// A policy is held by a link of the token's own, by one of its role, or by both: it is listed
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_07_a_token_reads_the_policies_that_are_linked_directly_each_of_them_once() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let root = bootstrapped(&routes).await;
    crew(&routes, &root).await;
    let roles = json!([{"Name": "crew"}]);
    for (token, held) in [
        (json!({"Type": "client", "Policies": ["own"]}), vec!["own"]),
        (
            json!({"Type": "client", "Policies": ["mine"], "Roles": roles}),
            vec!["mine"],
        ),
        (
            json!({"Type": "client", "Policies": ["own"], "Roles": roles}),
            vec!["mine", "own"],
        ),
    ] {
        let token = written(&routes, &root, "/v1/acl/token", &token).await;
        let secret = token["SecretID"].as_str().unwrap();
        let (names, _) = listed(&routes, secret, "/v1/acl/policies").await;
        assert_eq!(names, held, "{token}");
        for name in ["mine", "own", "other"] {
            let target = format!("/v1/acl/policy/{name}");
            let (status, reported) = ask(&routes, secret, "GET", &target, &Value::Null).await;
            match held.contains(&name) {
                true => assert_eq!((status, &reported["Name"]), (200, &json!(name)), "{token}"),
                false => assert_eq!(
                    (status, reported),
                    (403, json!("Permission denied")),
                    "{name}"
                ),
            }
        }
    }
    server.stop().await;
}

/// A list shows what tokens are linked to as each token by itself does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_05_a_list_of_tokens_shows_their_roles_as_they_are_now() {
    let server = Harness::with_acls().await;
    let routes = guarded(&server);
    let root = bootstrapped(&routes).await;
    let id = crew(&routes, &root).await;
    let token = json!({"Name": "t", "Type": "client", "Roles": [{"Name": "crew"}]});
    let token = written(&routes, &root, "/v1/acl/token", &token).await;
    let accessor = token["AccessorID"].as_str().unwrap();
    let by_prefix = format!("/v1/acl/tokens?prefix={accessor}");
    let are_listed = async |roles: Value| {
        for list in ["/v1/acl/tokens", by_prefix.as_str()] {
            let (status, reported) = ask(&routes, &root, "GET", list, &Value::Null).await;
            assert_eq!(status, 200, "{list}: {reported}");
            let mut rows = reported.as_array().into_iter().flatten();
            let own = rows.find(|row| row["AccessorID"] == accessor);
            assert_eq!(own.map(|row| &row["Roles"]), Some(&roles), "{list}");
        }
    };
    are_listed(json!([{"ID": id, "Name": "crew"}])).await;
    let of_role = format!("/v1/acl/role/{id}");
    let renamed = json!({"ID": id, "Name": "sailors", "Policies": [{"Name": "mine"}]});
    written(&routes, &root, &of_role, &renamed).await;
    are_listed(json!([{"ID": id, "Name": "sailors"}])).await;
    // The row of the token names it still.
    let (status, reported) = ask(&routes, &root, "DELETE", &of_role, &Value::Null).await;
    assert_eq!(status, 200, "{reported}");
    are_listed(json!([])).await;
    server.stop().await;
}
