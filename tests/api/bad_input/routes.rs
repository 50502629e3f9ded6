//! Every route with every kind of nonsense: an answer with a text, never a fault of the server.

use serde_json::Value;

use super::Bad;

/// Every route there is: a test writes the page from the router.
const PAGE: &str = include_str!("../../../src/docs/routes.md");

/// Routes that have no end of their own: they are followed elsewhere.
const ENDLESS: [(&str, &str); 2] = [("GET", "/v1/event/stream"), ("GET", "/v1/agent/monitor")];

/// Nonsense in queries; `{}` is where the other one goes.
const QUERIES: [(&str, &str); 6] = [
    ("GET", "/v1/job/{}/submission?version=abc"),
    ("PUT", "/v1/var/{}?cas=abc"),
    ("DELETE", "/v1/var/{}?cas=-1"),
    ("GET", "/v1/client/fs/ls/{}?path=../../../etc"),
    ("GET", "/v1/client/fs/readat/{}?path=a&offset=-1&limit=-1"),
    ("GET", "/v1/client/fs/logs/{}?task=x&type=nope&offset=abc"),
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

/// Methods and paths of the page's table of the API.
fn routes() -> Vec<(&'static str, &'static str)> {
    let (_, page) = PAGE
        .split_once("## Routes of the HTTP API")
        .expect("its heading");
    let mut parts = page.split("\n\n");
    let table = parts.find(|part| part.starts_with("| Path | Methods |"));
    let mut routes = Vec::new();
    for line in table.expect("the table").lines().skip(2) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let path = cells.next().expect("a path").trim_matches('`');
        match cells.next().expect("methods") {
            "any" => routes.extend(["GET", "PUT", "DELETE"].map(|method| (method, path))),
            methods => routes.extend(methods.split(", ").map(|method| (method, path))),
        }
    }
    for endless in ENDLESS {
        assert!(routes.contains(&endless), "{endless:?} is no route");
    }
    routes.retain(|route| !ENDLESS.contains(route));
    assert!(routes.len() > 300, "the page says less: {routes:?}");
    routes
}

/// A path with a name in all its places.
fn named(path: &str, name: &str) -> String {
    let mut parts = path.split('{');
    let begin = parts.next().unwrap_or_default().to_owned();
    parts.fold(begin, |all, part| {
        let (_, rest) = part.split_once('}').expect("the end of the place");
        format!("{all}{name}{rest}")
    })
}

#[test]
fn every_route_answers_every_nonsense_with_a_text() {
    let mut bad = Bad::start();
    let bodies = bodies();
    for (method, path) in routes().into_iter().chain(QUERIES) {
        let names: &[&str] = if path.contains('{') { &NAMES } else { &[""] };
        for name in names {
            let path = named(path, name);
            let nothing = [Vec::new()];
            let sent = if method == "GET" {
                &nothing[..]
            } else {
                &bodies
            };
            for body in sent {
                // Megabytes once are enough.
                if body.len() < 1 << 20 || *name == names[0] {
                    answered(&mut bad, (method, &path, body));
                }
            }
        }
    }
    nothing_was_made(&mut bad);
    bad.end();
}

/// With a known status, in words where it is refused, and in the form that it says.
fn answered(bad: &mut Bad, (method, path, body): (&str, &str, &[u8])) {
    let answer = bad.ask(method, path, body);
    let (status, text) = (answer.status, answer.text());
    let begin = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
    let what = format!("{method} {path} {begin:?}: {status} {text}");
    // 403 is for what has to be allowed by the agent's own configuration.
    let known = [200, 204, 400, 403, 404, 405, 409, 500, 501].contains(&status);
    assert!(known && !text.contains("internal"), "{what}");
    assert!(status < 400 || !text.is_empty(), "{what}");
    let kind = answer.header("content-type").unwrap_or_default();
    let is_other = kind.starts_with("text/plain") || kind == "application/x-tar";
    let json = text.is_empty() || serde_json::from_str::<Value>(&text).is_ok();
    assert!(status != 200 || is_other || json, "{what}");
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
        let (status, text) = bad.reported("GET", &format!("/v1/{list}?namespace=*"), &[]);
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
