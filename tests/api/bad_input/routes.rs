//! Every route with every kind of nonsense: an answer with a text, never a fault of the server.

use serde_json::Value;

use super::Bad;

/// Method and path; `{}` is where the nonsense goes.
const ROUTES: [&str; 58] = [
    "PUT /v1/jobs",
    "PUT /v1/jobs/parse",
    "PUT /v1/validate/job",
    "GET /v1/job/{}",
    "PUT /v1/job/{}",
    "DELETE /v1/job/{}",
    "PUT /v1/job/{}/evaluate",
    "GET /v1/job/{}/allocations",
    "GET /v1/job/{}/evaluations",
    "PUT /v1/job/{}/plan",
    "GET /v1/job/{}/summary",
    "GET /v1/job/{}/versions",
    "PUT /v1/job/{}/revert",
    "GET /v1/job/{}/deployments",
    "GET /v1/job/{}/deployment",
    "PUT /v1/job/{}/stable",
    "PUT /v1/job/{}/scale",
    "GET /v1/job/{}/scale",
    "GET /v1/job/{}/submission?version=abc",
    "PUT /v1/job/{}/dispatch",
    "PUT /v1/job/{}/periodic/force",
    "GET /v1/allocation/{}",
    "PUT /v1/allocation/{}/stop",
    "GET /v1/allocation/{}/services",
    "DELETE /v1/evaluations",
    "GET /v1/evaluation/{}",
    "GET /v1/evaluation/{}/allocations",
    "GET /v1/deployment/{}",
    "GET /v1/deployment/allocations/{}",
    "PUT /v1/deployment/fail/{}",
    "PUT /v1/deployment/pause/{}",
    "PUT /v1/deployment/promote/{}",
    "PUT /v1/deployment/allocation-health/{}",
    "GET /v1/node/{}",
    "GET /v1/node/{}/allocations",
    "PUT /v1/node/{}/drain",
    "PUT /v1/node/{}/eligibility",
    "PUT /v1/node/{}/purge",
    "PUT /v1/node/{}/evaluate",
    "PUT /v1/node/pools",
    "GET /v1/node/pool/{}",
    "PUT /v1/node/pool/{}",
    "DELETE /v1/node/pool/{}",
    "PUT /v1/namespace",
    "GET /v1/namespace/{}",
    "PUT /v1/namespace/{}",
    "DELETE /v1/namespace/{}",
    "GET /v1/var/{}",
    "PUT /v1/var/{}?cas=abc",
    "DELETE /v1/var/{}?cas=-1",
    "GET /v1/service/{}",
    "PUT /v1/search",
    "PUT /v1/operator/scheduler/configuration",
    "GET /v1/client/fs/ls/{}?path=../../../etc",
    "GET /v1/client/fs/readat/{}?path=a&offset=-1&limit=-1",
    "GET /v1/client/fs/logs/{}?task=x&type=nope&offset=abc",
    "PUT /v1/client/allocation/{}/signal",
    "GET /v1/client/allocation/{}/stats",
];

const NAMES: [&str; 13] = [
    "x",
    "a",
    "abc",
    "zz",
    "%00",
    "%2e%2e%2f",
    "%ff",
    "%E6%97%A5",
    "'\"",
    "0b156e3e-bb39-cc04-5170-80b70d217ba2",
    "0b156e3e-bb39-cc04-5170-80b70d217ba",
    "------------------------------------",
    "*",
];

/// Bodies with wrong types, numbers at the edges, long texts, and nothing.
fn bodies() -> Vec<Vec<u8>> {
    let fields = [
        "Job",
        "JobID",
        "Name",
        "Items",
        "Reason",
        "EvalIDs",
        "Filter",
        "DrainSpec",
        "Eligibility",
        "Count",
        "Target",
        "Prefix",
        "Context",
        "Tasks",
        "All",
        "Groups",
        "Pause",
        "TaskName",
        "Signal",
        "SchedulerAlgorithm",
        "JobVersion",
        "DeploymentID",
        "Namespace",
        "Priority",
    ];
    let every = |value: &str| {
        let pairs = fields.map(|field| format!("\"{field}\": {value}"));
        format!("{{{}}}", pairs.join(", ")).into_bytes()
    };
    let long = format!("\"{}\"", "v".repeat(100_000));
    let plain: [&[u8]; 6] = [b"", b"{", b"null", b"[]", b"\xff", b"{}"];
    let mut bodies: Vec<_> = plain.iter().map(|body| body.to_vec()).collect();
    for value in [
        "7",
        "\"\"",
        "[]",
        "{}",
        "true",
        "9223372036854775807",
        "-9223372036854775808",
    ] {
        bodies.push(every(value));
    }
    bodies.push(every(&long));
    bodies
}

#[test]
fn every_route_answers_every_nonsense_with_a_text() {
    let mut bad = Bad::start();
    let bodies = bodies();
    for route in ROUTES {
        let (method, path) = route.split_once(' ').expect("a method");
        let names: &[&str] = if path.contains("{}") { &NAMES } else { &[""] };
        for name in names {
            let path = path.replace("{}", name);
            let nothing = [Vec::new()];
            let sent = if method == "GET" {
                &nothing[..]
            } else {
                &bodies
            };
            for body in sent {
                let (status, text) = bad.told(method, &path, body);
                let begin = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
                let what = format!("{method} {path} {begin:?}: {status} {text}");
                let known = [200, 204, 400, 404, 405, 409, 500, 501].contains(&status);
                assert!(known && !text.contains("internal"), "{what}");
                assert!(status < 400 || !text.is_empty(), "{what}");
                let json = text.is_empty() || serde_json::from_str::<Value>(&text).is_ok();
                assert!(status != 200 || json, "{what}");
            }
        }
    }
    nothing_was_made(&mut bad);
    bad.end();
}

/// Whatever was answered, nonsense is no job, no node, no variable, and names nothing that cannot
/// be named.
fn nothing_was_made(bad: &mut Bad) {
    for list in [
        "jobs",
        "nodes",
        "allocations",
        "deployments",
        "evaluations",
        "services",
        "vars",
    ] {
        let (status, text) = bad.told("GET", &format!("/v1/{list}?namespace=*"), &[]);
        assert_eq!((status, text.as_str()), (200, "[]"), "{list}");
    }
    for list in ["namespaces", "node/pools"] {
        let found = bad.ask("GET", &format!("/v1/{list}"), &[]);
        for object in found.json().expect("a list").as_array().expect("a list") {
            let name = object["Name"].as_str().expect("a name");
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(
                (1..=128).contains(&name.len()) && name.chars().all(plain),
                "{list}: {name:?}"
            );
        }
    }
}
