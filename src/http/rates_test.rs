//! How much a caller may request: counted where it is served, before it is refused.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use drover_events::model::AclToken;
use tower::ServiceExt;

use super::gate_test::two_namespaces;
use super::harness::{Harness, counted, job};
use super::request::{Called, Remote};
use super::{Api, Settings, router};
use crate::acl::{self, Acl, Strictness};
use crate::gate::Gate;
use crate::identity::{Identity, Rejection};
use crate::net::{PerSecond, Rates};

/// Requests after which one of those is refused that may be made once a second, however slow the
/// machine is.
const ENOUGH: usize = 2_000;

static RED: LazyLock<Arc<Acl>> = LazyLock::new(|| {
    let rules = "namespace \"red\" { policy = \"read\" }";
    Arc::new(Acl::compile(&[
        &acl::parse(rules, Strictness::Strict).unwrap()
    ]))
});

/// A caller whose token begins so has that name; `root` may do everything.
fn who(token: Option<&str>, addr: &str) -> Identity {
    let acl = match token {
        Some("root") => Arc::new(Acl::management()),
        Some(token) if token.starts_with("rate-") => Arc::clone(&RED),
        Some(_) => return Identity::refused(addr, Rejection::Unknown),
        None => return Identity::anonymous(addr, Arc::new(Acl::denied())),
    };
    let token = AclToken {
        accessor_id: token.unwrap_or_default().to_owned(),
        ..AclToken::default()
    };
    Identity::bearer(Arc::new(token), addr, acl)
}

/// The routes of a server under these limits, which may change.
fn limited(server: &Harness, allowed: PerSecond) -> (Router, Arc<Rates>) {
    let settings = Settings {
        rates: Rates::new(allowed),
        ..Settings::default()
    };
    let rates = Arc::clone(&settings.rates);
    let api = Api {
        gate: Arc::new(Gate::fixed(who)),
        ..Api::of(&server.server, settings)
    };
    (router(Arc::new(api), Arc::default()), rates)
}

struct RateReport {
    status: u16,
    retry: String,
    text: String,
}

async fn ask(router: &Router, token: &str, from: &str, target: &str) -> RateReport {
    let from: SocketAddr = format!("{from}:4").parse().unwrap();
    let mut request = hyper::Request::get(target).extension(Remote(from));
    if !token.is_empty() {
        request = request.header("x-nomad-token", token);
    }
    reported(router, request.body(Body::empty()).unwrap()).await
}

async fn reported(router: &Router, request: hyper::Request<Body>) -> RateReport {
    let response = router.clone().oneshot(request).await.unwrap();
    let retry = response.headers().get("retry-after").cloned();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    RateReport {
        status,
        retry: retry.map_or(String::new(), |v| v.to_str().unwrap().to_owned()),
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Sends requests until it is too much; what was answered then, and how many requests that took.
async fn exhaust(
    router: &Router,
    token: &str,
    from: &str,
    target: &str,
    first: u16,
) -> (RateReport, u64) {
    for count in 1..=ENOUGH {
        let reported = ask(router, token, from, target).await;
        if reported.status == 429 {
            return (reported, count as u64);
        }
        assert_eq!(reported.status, first, "{}", reported.text);
    }
    panic!("{ENOUGH} requests were not too much");
}

fn one(identity: u32, address: u32, namespace: u32) -> PerSecond {
    PerSecond {
        identity,
        address,
        namespace,
        burst: Duration::from_secs(1),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_08_auth_09_what_is_too_much_is_counted_and_refused_before_anything_is_said_of_rights()
{
    let server = Harness::start().await;
    let (routes, rates) = limited(&server, one(1, 0, 0));
    let (reported, _) = exhaust(&routes, "forged", "10.0.0.1", "/v1/scaling/policies", 403).await;
    assert_eq!(reported.retry, "1");
    assert!(
        reported.text.starts_with("rate limit exceeded"),
        "{}",
        reported.text
    );
    // No other caller is: not from elsewhere, and not one that is known.
    for (token, from, status) in [
        ("forged", "10.0.0.2", 403),
        ("", "10.0.0.3", 403),
        ("root", "10.0.0.1", 200),
    ] {
        let reported = ask(&routes, token, from, "/v1/agent/self").await;
        assert_eq!(reported.status, status, "{token}: {}", reported.text);
    }
    // One token is one, wherever it comes from; what is refused is counted.
    let (reported, requested) = exhaust(&routes, "rate-08", "10.0.0.4", "/v1/nodes", 403).await;
    assert_eq!(reported.retry, "1");
    let counts = counted(&server, "nomad_nomad_rpc_node_list").await;
    let own = counts
        .iter()
        .find(|(series, _)| series.contains("token:rate-08"));
    assert_eq!(own.map(|(_, count)| *count), Some(requested), "{counts:?}");
    let refused = counted(&server, "drover_requests_limited_total").await;
    assert!(
        refused
            .iter()
            .any(|(series, count)| *count >= 2 && series.contains("identity")),
        "{refused:?}"
    );
    rates.limit(PerSecond::default());
    for _ in 0..10 {
        let reported = ask(&routes, "rate-08", "10.0.0.4", "/v1/nodes").await;
        assert_eq!(reported.status, 403, "{}", reported.text);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_09_an_address_and_a_namespace_have_their_share() {
    let server = two_namespaces().await;
    let (routes, _) = limited(&server, one(0, 1, 0));
    let (_, _) = exhaust(&routes, "root", "10.0.0.1", "/v1/nodes", 200).await;
    assert_eq!(
        ask(&routes, "root", "10.0.0.2", "/v1/nodes").await.status,
        200
    );

    let (routes, _) = limited(&server, one(0, 0, 1));
    let red = "/v1/jobs?namespace=red";
    // A caller that may do nothing there takes nothing of it, and does not learn how it stands.
    for _ in 0..50 {
        assert_eq!(ask(&routes, "", "10.0.0.1", red).await.status, 403);
    }
    let (reported, _) = exhaust(&routes, "rate-a", "10.0.0.1", red, 200).await;
    assert!(
        reported.text.contains("this namespace"),
        "{}",
        reported.text
    );
    let (reported, _) = exhaust(&routes, "rate-b", "10.0.0.2", red, 200).await;
    assert!(
        reported.text.contains("this namespace"),
        "{}",
        reported.text
    );
    assert_eq!(ask(&routes, "", "10.0.0.1", red).await.status, 403);
    let blue = ask(&routes, "root", "10.0.0.1", "/v1/jobs?namespace=blue").await;
    assert_eq!(blue.status, 200, "{}", blue.text);
    // What is in no namespace takes of none.
    for _ in 0..50 {
        let nodes = ask(&routes, "root", "10.0.0.1", "/v1/nodes?namespace=red").await;
        assert_eq!(nodes.status, 200, "{}", nodes.text);
    }
    // A request that a call stands for takes of it as well, and of nothing else once more.
    let (routes, _) = limited(&server, one(1, 1, 1));
    let reported = called(&routes, "rate-a", red).await;
    assert!(
        reported.text.contains("this namespace"),
        "{}",
        reported.text
    );
    assert_eq!(
        ask(&routes, "rate-a", "10.0.0.1", "/v1/regions")
            .await
            .status,
        200
    );
    server.stop().await;
}

/// The answer to a call in whose place a request is made, once it is too much.
async fn called(router: &Router, token: &str, target: &str) -> RateReport {
    let from: SocketAddr = "10.0.0.1:4".parse().unwrap();
    for _ in 0..ENOUGH {
        let request = hyper::Request::get(target).extension(Remote(from));
        let request = request.extension(Called).header("x-nomad-token", token);
        let reported = reported(router, request.body(Body::empty()).unwrap()).await;
        if reported.status == 429 {
            return reported;
        }
        assert_eq!(reported.status, 200, "{}", reported.text);
    }
    panic!("{ENOUGH} calls were not too much");
}

/// Headers by which proxies say for whom they forward say nothing here: any caller can send them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_02_auth_09_where_a_request_comes_from_is_not_what_its_headers_say() {
    const FORWARDED: [(&str, &str); 5] = [
        ("x-forwarded-for", "10.0.0.2"),
        ("forwarded", "for=10.0.0.2"),
        ("x-real-ip", "10.0.0.2"),
        ("x-client-ip", "10.0.0.2"),
        ("via", "1.1 10.0.0.2"),
    ];
    let server = Harness::start().await;
    let (routes, rates) = limited(&server, one(0, 1, 0));
    let from_caller = |from: &str, request: hyper::http::request::Builder| {
        let from: SocketAddr = format!("{from}:4").parse().unwrap();
        let request = request.header("x-nomad-token", "root");
        let headers = FORWARDED.iter();
        headers.fold(request.extension(Remote(from)), |request, (name, value)| {
            request.header(*name, *value)
        })
    };
    // The caller's own share is used up, however often it names another address, and no one else's
    // is.
    let mut refused = false;
    for _ in 0..ENOUGH {
        let request = from_caller("10.0.0.1", hyper::Request::get("/v1/nodes"));
        let answer = reported(&routes, request.body(Body::empty()).unwrap()).await;
        refused = answer.status == 429;
        if refused {
            break;
        }
    }
    assert!(refused, "its own share is used up");
    let other = ask(&routes, "root", "10.0.0.2", "/v1/nodes").await;
    assert_eq!(other.status, 200, "{}", other.text);
    // Nor is it written down that the caller came from there.
    rates.limit(PerSecond::default());
    let request = from_caller("10.0.0.3", hyper::Request::put("/v1/jobs"));
    let request = request.body(Body::from(job("web").to_string())).unwrap();
    let written = reported(&routes, request).await;
    assert_eq!(written.status, 200, "{}", written.text);
    let trail = "/v1/audit?type=job&id=web&kind=JobRegistered";
    let trail = server.get(trail).await.json();
    assert_eq!(trail[0]["Actor"]["addr"], "10.0.0.3", "{trail}");
    server.stop().await;
}

/// The trail, the raw log and the figures are counted too, by their caller and whatever that may
/// do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_auth_08_who_asks_for_the_trail_is_counted_and_refused_or_not() {
    let server = Harness::start().await;
    let (routes, _) = limited(&server, PerSecond::default());
    for (target, series) in [
        ("/v1/audit/requests", "nomad_nomad_rpc_audit_list"),
        ("/v1/log/entries?from=1", "nomad_nomad_rpc_log_list"),
        ("/v1/state/diff?from=1&to=2", "nomad_nomad_rpc_state_read"),
        ("/v1/quotas", "nomad_nomad_rpc_quota_list"),
    ] {
        ask(&routes, "rate-trail", "10.0.0.1", target).await;
        let counts = counted(&server, series).await;
        let own = counts
            .iter()
            .find(|(label, _)| label.contains("token:rate-trail"));
        assert_eq!(
            own.map(|(_, count)| *count),
            Some(1),
            "{target}: {counts:?}"
        );
    }
    server.stop().await;
}
