//! Tokens of every wrong shape, and good ones in the wrong place.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::attacks_test::{ask, guarded};
use super::harness::{Harness, job};
use super::{Api, Settings, router};
use crate::gate::{Gate, Owed};

/// Sends a request with these headers; status and text of the answer.
async fn with(
    routes: &Router,
    (method, target): (&str, &str),
    headers: &[(&str, &[u8])],
) -> (u16, String) {
    let mut request = hyper::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).expect("a header's value");
        request = request.header(*name, value);
    }
    let body = match method {
        "PUT" => Body::from(job("mine").to_string()),
        _ => Body::empty(),
    };
    let request = request.body(body).expect("a request");
    let answer = routes.clone().oneshot(request).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
    let text = String::from_utf8_lossy(&body.expect("a body")).into_owned();
    (status, text)
}

async fn bootstrapped(routes: &Router) -> Value {
    let (status, root) = ask(routes, "", "PUT", "/v1/acl/bootstrap", &Value::Null).await;
    assert_eq!(status, 200, "{root}");
    root
}

fn text(token: &Value, field: &str) -> String {
    token[field].as_str().expect("a text").to_owned()
}

/// A manager's token, one that was one until it was deleted, and one that may do nothing.
async fn tokens(routes: &Router) -> (Value, String, String) {
    let root = bootstrapped(routes).await;
    let secret = text(&root, "SecretID");
    let make = async |body: Value| {
        let (status, made) = ask(routes, &secret, "PUT", "/v1/acl/token", &body).await;
        assert_eq!(status, 200, "{made}");
        made
    };
    let gone = make(json!({"Name": "gone", "Type": "management"})).await;
    let narrow = make(json!({"Name": "narrow", "Type": "client", "Policies": ["none"]})).await;
    let revoked = text(&gone, "SecretID");
    let (status, reported) = ask(routes, &revoked, "GET", "/v1/jobs", &Value::Null).await;
    assert_eq!(status, 200, "it is one: {reported}");
    let of_gone = format!("/v1/acl/token/{}", text(&gone, "AccessorID"));
    let (status, reported) = ask(routes, &secret, "DELETE", &of_gone, &Value::Null).await;
    assert_eq!(status, 200, "{reported}");
    (root, revoked, text(&narrow, "SecretID"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_06_what_is_no_token_of_now_gives_nothing_whatever_its_shape() {
    let (server, other) = (Harness::start().await, Harness::start().await);
    let routes = guarded(&server);
    let elsewhere = text(&bootstrapped(&guarded(&other)).await, "SecretID");
    let (root, revoked, _) = tokens(&routes).await;
    let secret = text(&root, "SecretID");
    let twice = format!("{secret} {secret}");
    let named = format!("Bearer {secret}");
    let signed = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.".to_owned();
    let shapes: [(&str, Vec<u8>); 14] = [
        ("of another cluster", elsewhere.into_bytes()),
        ("deleted", revoked.into_bytes()),
        ("an accessor's id", text(&root, "AccessorID").into_bytes()),
        ("a megabyte", vec![b'a'; 1 << 20]),
        ("in another script", "\u{43a}\u{43b}\u{44e}\u{447}".into()),
        ("no text", vec![0x80, 0xff, 0xfe]),
        ("two at once", twice.into_bytes()),
        ("with a scheme", named.into_bytes()),
        ("signed by nobody", signed.into_bytes()),
        ("its beginning", secret[..8].into()),
        ("with more behind it", format!("{secret}0").into_bytes()),
        ("a pattern", b"*".to_vec()),
        ("a path", b"../../acl/token".to_vec()),
        ("quoted", format!("\"{secret}\"").into_bytes()),
    ];
    for (what, token) in &shapes {
        for header in ["x-nomad-token", "authorization"] {
            let value = match header {
                // Several words of this are one token, the first.
                "authorization" if matches!(*what, "two at once") => continue,
                "authorization" => [b"Bearer ".as_slice(), token].concat(),
                _ => token.clone(),
            };
            let headers = [(header, value.as_slice())];
            for requested in [
                ("GET", "/v1/jobs"),
                ("GET", "/v1/acl/policies"),
                ("GET", "/v1/acl/token/self"),
                ("GET", "/v1/namespaces"),
                ("PUT", "/v1/jobs"),
                ("PUT", "/v1/acl/token"),
            ] {
                let answer = with(&routes, requested, &headers).await;
                let denied = (403, "Permission denied".to_owned());
                assert_eq!(answer, denied, "{what} in {header}: {requested:?}");
            }
        }
    }
    let (status, reported) = ask(&routes, &secret, "GET", "/v1/jobs", &Value::Null).await;
    assert_eq!((status, reported), (200, json!([])), "nothing was written");
    server.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_several_tokens_counts_and_no_other_takes_its_place() {
    let server = Harness::start().await;
    let routes = guarded(&server);
    let (root, revoked, narrow) = tokens(&routes).await;
    let secret = text(&root, "SecretID");
    let (root, revoked) = (secret.as_bytes(), revoked.as_bytes());
    let bearer = format!("Bearer {secret}");
    let bearer = bearer.as_bytes();
    let own = "x-nomad-token";
    let other = "authorization";
    for (headers, status) in [
        (vec![(own, root), (own, revoked)], 200),
        (vec![(own, revoked), (own, root)], 403),
        (vec![(own, narrow.as_bytes()), (own, root)], 403),
        (vec![(own, revoked), (other, bearer)], 403),
        (vec![(own, narrow.as_bytes()), (other, bearer)], 403),
        (vec![(own, b"\x80"), (other, bearer)], 403),
        (vec![(own, b"".as_slice()), (other, bearer)], 200),
        (vec![(other, bearer)], 200),
    ] {
        let answer = with(&routes, ("GET", "/v1/jobs"), &headers).await;
        assert_eq!(answer.0, status, "{headers:?}: {}", answer.1);
    }
    server.stop().await;
}

/// What was acknowledged before a server was killed may not be in its tables yet when it is called
/// again: it takes no good token for a bad one then, nor one that was revoked for a good one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_a_token_is_not_known_before_the_log_is_read_to_where_it_was() {
    let server = Harness::start().await;
    let api = |begun: u64, written: u64| {
        let owed = Owed {
            begun,
            written: Box::new(move || written),
        };
        let (projections, keyring) = (&server.server.projections, &server.server.keyring);
        let gate = Arc::new(Gate::of(true, projections, keyring, owed));
        let api = Api {
            gate,
            ..Api::of(&server.server, Settings::default())
        };
        router(Arc::new(api), Arc::default())
    };
    let early = api(u64::MAX, u64::MAX);
    let none = "11111111-1111-1111-1111-111111111111";
    let text = "the server has just started and reads its log; try again in a moment";
    for target in [
        "/v1/jobs",
        "/v1/agent/self",
        "/v1/acl/token/self",
        "/v1/var/a",
    ] {
        let answer = ask(&early, none, "GET", target, &Value::Null).await;
        assert_eq!(answer, (503, json!(text)), "{target}");
        let bare = ask(&early, "", "GET", target, &Value::Null).await;
        assert_ne!(bare.0, 503, "who gives none is nobody: {target}");
    }
    let leader = ask(&early, none, "GET", "/v1/status/leader", &Value::Null).await;
    assert_eq!(leader.0, 200, "who asks does not matter: {}", leader.1);
    // Once it has what the log had, it knows.
    let now = server.server.projections.applied_index();
    // What another leader has cut off since is owed by no server.
    for (begun, written) in [(now, u64::MAX), (u64::MAX, now)] {
        let known = api(begun, written);
        let answer = ask(&known, none, "GET", "/v1/jobs", &Value::Null).await;
        assert_eq!(answer, (403, json!("Permission denied")));
    }
    server.stop().await;
}
