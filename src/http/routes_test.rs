//! Every route and method of Nomad's is answered: by what it does, or in words.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tower::ServiceExt;

use super::harness::Harness;
use super::reads_test::placed;

/// Nomad's routes with their methods, those that remove what others read last. `J` is a job, `N` a
/// node, `A` an allocation, `E` an evaluation, `D` a deployment.
const ROUTES: &[(&str, &str)] = &[
    ("GET PUT POST", "/v1/jobs"),
    ("PUT POST", "/v1/jobs/parse"),
    ("GET POST", "/v1/jobs/statuses"),
    ("PUT POST", "/v1/validate/job"),
    ("GET PUT POST", "/v1/job/J"),
    ("GET", "/v1/job/J/allocations"),
    ("GET", "/v1/job/J/evaluations"),
    ("GET", "/v1/job/J/deployments"),
    ("GET", "/v1/job/J/deployment"),
    ("GET", "/v1/job/J/summary"),
    ("GET", "/v1/job/J/versions"),
    ("GET", "/v1/job/J/submission?version=0"),
    ("PUT POST", "/v1/job/J/evaluate"),
    ("PUT POST", "/v1/job/J/plan"),
    ("PUT POST", "/v1/job/J/periodic/force"),
    ("PUT POST", "/v1/job/J/dispatch"),
    ("PUT POST", "/v1/job/J/dispatch/payload"),
    ("PUT POST", "/v1/job/J/revert"),
    ("PUT POST", "/v1/job/J/stable"),
    ("GET PUT POST", "/v1/job/J/scale"),
    ("GET", "/v1/job/J/services"),
    ("GET", "/v1/job/J/actions"),
    ("GET", "/v1/job/J/action?task=t&action=a&allocID=A"),
    ("PUT POST DELETE", "/v1/job/J/versions/name/tag"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/node/N"),
    ("GET", "/v1/node/N/allocations"),
    ("PUT POST", "/v1/node/N/evaluate"),
    ("PUT POST", "/v1/node/N/drain"),
    ("PUT POST", "/v1/node/N/eligibility"),
    ("GET PUT POST", "/v1/node/pools"),
    ("GET PUT POST DELETE", "/v1/node/pool/default"),
    ("GET", "/v1/node/pool/default/nodes"),
    ("GET", "/v1/node/pool/default/jobs"),
    ("GET", "/v1/allocations"),
    ("GET", "/v1/allocation/A"),
    ("GET", "/v1/allocation/A/services"),
    ("GET", "/v1/allocation/A/checks"),
    ("GET", "/v1/client/stats"),
    ("GET PUT POST DELETE", "/v1/client/gc"),
    ("GET POST", "/v1/client/metadata"),
    ("GET", "/v1/client/identity"),
    ("PUT POST", "/v1/client/identity/renew"),
    ("GET", "/v1/client/allocation/A/stats"),
    ("GET", "/v1/client/allocation/A/checks"),
    ("GET", "/v1/client/allocation/A/exec?task=t&command=[]"),
    ("GET", "/v1/client/allocation/A/snapshot"),
    ("GET PUT POST DELETE", "/v1/client/allocation/A/restart"),
    ("GET PUT POST DELETE", "/v1/client/allocation/A/gc"),
    ("PUT POST", "/v1/client/allocation/A/signal"),
    ("GET PUT POST", "/v1/client/allocation/A/pause?task=t"),
    ("GET", "/v1/client/fs/ls/A"),
    ("GET", "/v1/client/fs/stat/A?path=/"),
    ("GET", "/v1/client/fs/readat/A?path=/&offset=0"),
    ("GET", "/v1/client/fs/cat/A?path=/"),
    ("GET", "/v1/client/fs/stream/A?path=/"),
    ("GET", "/v1/client/fs/logs/A?task=t&type=stdout"),
    ("GET DELETE", "/v1/evaluations"),
    ("GET", "/v1/evaluations/count"),
    ("GET", "/v1/evaluation/E"),
    ("GET", "/v1/evaluation/E/allocations"),
    ("GET", "/v1/deployments"),
    ("GET", "/v1/deployment/D"),
    ("GET", "/v1/deployment/allocations/D"),
    ("PUT POST", "/v1/deployment/pause/D"),
    ("PUT POST", "/v1/deployment/promote/D"),
    ("PUT POST", "/v1/deployment/unblock/D"),
    ("PUT POST", "/v1/deployment/allocation-health/D"),
    ("PUT POST", "/v1/deployment/fail/D"),
    ("GET PUT POST", "/v1/volumes"),
    ("GET", "/v1/volumes?type=csi"),
    ("GET", "/v1/volumes?type=host"),
    ("GET", "/v1/volumes/external?plugin_id=p"),
    ("GET PUT POST DELETE", "/v1/volumes/snapshot"),
    ("GET", "/v1/volumes/claims"),
    ("DELETE", "/v1/volumes/claim/x"),
    ("GET PUT DELETE", "/v1/volume/csi/x"),
    ("PUT", "/v1/volume/csi/x/create"),
    ("DELETE", "/v1/volume/csi/x/delete"),
    ("DELETE", "/v1/volume/csi/x/detach?node=N"),
    ("PUT POST", "/v1/volume/host/create"),
    ("PUT POST", "/v1/volume/host/register"),
    ("GET DELETE", "/v1/volume/host/x"),
    ("GET", "/v1/plugins?type=csi"),
    ("GET", "/v1/plugin/csi/x"),
    ("PUT POST", "/v1/acl/bootstrap"),
    ("GET", "/v1/acl/policies"),
    ("GET", "/v1/acl/policy/self"),
    ("GET PUT POST DELETE", "/v1/acl/policy/x"),
    ("GET", "/v1/acl/tokens"),
    ("PUT POST", "/v1/acl/token"),
    ("GET", "/v1/acl/token/self"),
    ("GET PUT POST DELETE", "/v1/acl/token/x"),
    ("PUT POST", "/v1/acl/token/onetime"),
    ("PUT POST", "/v1/acl/token/onetime/exchange"),
    ("GET", "/v1/acl/roles"),
    ("PUT POST", "/v1/acl/role"),
    ("GET PUT POST DELETE", "/v1/acl/role/x"),
    ("GET", "/v1/acl/role/name/x"),
    ("GET", "/v1/acl/auth-methods"),
    ("PUT POST", "/v1/acl/auth-method"),
    ("GET PUT POST DELETE", "/v1/acl/auth-method/x"),
    ("GET", "/v1/acl/binding-rules"),
    ("PUT POST", "/v1/acl/binding-rule"),
    ("GET PUT POST DELETE", "/v1/acl/binding-rule/x"),
    ("PUT POST", "/v1/acl/oidc/auth-url"),
    ("PUT POST", "/v1/acl/oidc/complete-auth"),
    ("PUT POST", "/v1/acl/login"),
    ("PUT POST", "/v1/acl/identity/client-introduction-token"),
    ("GET", "/v1/namespaces"),
    ("PUT POST", "/v1/namespace"),
    ("GET PUT POST DELETE", "/v1/namespace/default"),
    ("GET", "/v1/vars"),
    ("PUT POST GET", "/v1/var/app"),
    ("PUT POST", "/v1/var/app?lock-acquire"),
    ("PUT POST", "/v1/var/app?lock-renew"),
    ("PUT POST", "/v1/var/app?lock-release"),
    ("DELETE", "/v1/var/app"),
    ("GET", "/v1/services"),
    ("GET", "/v1/service/web"),
    ("DELETE", "/v1/service/web/x"),
    ("PUT POST", "/v1/search"),
    ("PUT POST", "/v1/search/fuzzy"),
    ("GET", "/v1/scaling/policies"),
    ("GET", "/v1/scaling/policy/x"),
    ("GET", "/v1/regions"),
    ("GET", "/v1/status/leader"),
    ("GET", "/v1/status/peers"),
    ("PUT", "/v1/system/gc"),
    ("PUT", "/v1/system/reconcile/summaries"),
    ("GET", "/v1/agent/self"),
    ("PUT POST", "/v1/agent/join?address=a"),
    ("GET", "/v1/agent/members"),
    ("PUT POST", "/v1/agent/force-leave?node=n"),
    ("GET", "/v1/agent/servers"),
    ("PUT POST", "/v1/agent/servers?address=127.0.0.1:4647"),
    ("GET PUT POST", "/v1/agent/keyring/list"),
    ("PUT POST", "/v1/agent/keyring/install"),
    ("PUT POST", "/v1/agent/keyring/use"),
    ("PUT POST DELETE", "/v1/agent/keyring/remove"),
    ("GET", "/v1/agent/health"),
    ("GET", "/v1/agent/host"),
    ("GET", "/v1/agent/monitor"),
    ("GET", "/v1/agent/monitor/export"),
    ("GET", "/v1/agent/pprof/cmdline"),
    ("GET", "/v1/agent/pprof/profile"),
    ("GET", "/v1/agent/pprof/trace"),
    ("GET", "/v1/agent/pprof/heap"),
    ("GET", "/v1/agent/schedulers"),
    ("GET PUT POST", "/v1/agent/schedulers/config"),
    ("PUT POST", "/v1/agent/reload"),
    ("GET", "/v1/metrics"),
    ("GET", "/v1/operator/raft/configuration"),
    ("DELETE", "/v1/operator/raft/peer?id=x"),
    ("PUT POST", "/v1/operator/raft/transfer-leadership?id=x"),
    ("GET PUT", "/v1/operator/autopilot/configuration"),
    ("GET", "/v1/operator/autopilot/health"),
    ("GET PUT POST", "/v1/operator/scheduler/configuration"),
    ("GET PUT POST", "/v1/operator/snapshot"),
    ("GET", "/v1/operator/keyring/keys"),
    ("PUT POST", "/v1/operator/keyring/rotate"),
    ("DELETE", "/v1/operator/keyring/key/x"),
    ("GET", "/v1/operator/upgrade-check/vault-workload-identity"),
    ("GET PUT", "/v1/operator/license"),
    ("POST", "/v1/operator/utilization"),
    ("GET", "/v1/sentinel/policies"),
    ("GET PUT POST DELETE", "/v1/sentinel/policy/x"),
    ("GET", "/v1/quotas"),
    ("GET", "/v1/quota-usages"),
    ("PUT POST", "/v1/quota"),
    ("GET PUT POST DELETE", "/v1/quota/x"),
    ("PUT POST", "/v1/recommendation"),
    ("GET DELETE", "/v1/recommendation/x"),
    ("GET", "/v1/recommendations"),
    ("PUT POST", "/v1/recommendations/apply"),
    ("GET", "/.well-known/jwks.json"),
    ("GET", "/.well-known/openid-configuration"),
    ("GET", "/v1/event/stream"),
    ("PUT POST", "/v1/allocation/A/stop"),
    ("DELETE", "/v1/job/J"),
    ("PUT POST", "/v1/node/N/purge"),
];

/// What is not there and can be requested: where it is said, and in which of Nomad's words.
const MISSING: &[(&str, &str)] = &[
    ("/v1/job/J/submission?version=0", "job source not found"),
    ("/v1/volume/csi/x", "volume not found"),
    ("/v1/volume/host/x", "volume not found"),
    ("/v1/plugin/csi/x", "plugin not found"),
    ("/v1/scaling/policy/x", "policy not found"),
    (
        "/.well-known/openid-configuration",
        "OIDC Discovery endpoint disabled",
    ),
];

/// Status and, of errors, the text: what is no error may never end.
async fn reported(h: &Harness, method: &str, target: &str, body: &str) -> (u16, String) {
    let request = hyper::Request::builder().method(method).uri(target);
    let body = Full::new(Bytes::from(body.to_owned()));
    let request = request.body(axum::body::Body::new(body)).unwrap();
    let response = h.router().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    if status < 400 {
        return (status, String::new());
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_of_nomads_is_answered() {
    let (h, node) = placed().await;
    let alloc = h.get("/v1/job/web/allocations").await.json()[0].clone();
    let deployment = h.get("/v1/job/web/deployment").await.json();
    let ids = [("J", "web"), ("N", &node)].map(|(letter, id)| (letter, id.to_owned()));
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let more = [
        ("A", text(&alloc["ID"])),
        ("E", text(&alloc["EvalID"])),
        ("D", text(&deployment["ID"])),
    ];
    let mut calls = 0;
    for (methods, route) in ROUTES {
        let mut target = (*route).to_owned();
        for (letter, id) in ids.iter().chain(&more) {
            target = target
                .replace(&format!("/{letter}"), &format!("/{id}"))
                .replace(&format!("={letter}"), &format!("={id}"));
        }
        for method in methods.split(' ') {
            calls += 1;
            let body = match target.as_str() {
                "/v1/var/app" => json!({"Items": {"a": "b"}}).to_string(),
                _ => String::new(),
            };
            let (status, text) = reported(&h, method, &target, &body).await;
            let what = format!("{method} {target}: {status} {text}");
            assert_ne!(status, 405, "{what}");
            // There is no machine behind the node of this allocation.
            if status == 404 && text == "No path to node" {
                assert!(route.contains("/A"), "{what}");
            } else if status == 404 {
                let missing = MISSING.iter().find(|(path, _)| path == route);
                let (_, words) = missing.unwrap_or_else(|| panic!("{what}"));
                assert_eq!((method, text.as_str()), ("GET", *words), "{what}");
            }
            let words = ["not supported by this version: ", "Nomad Enterprise only"];
            let of_no_client = *route == "/v1/agent/servers" && method == "GET";
            if status == 501 && !of_no_client {
                assert!(words.iter().any(|words| text.contains(words)), "{what}");
            }
        }
    }
    assert!(calls > 250, "{calls}");
    h.stop().await;
}
