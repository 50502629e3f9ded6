//! Every route whose path names something, called for what is really there in blue: by a caller
//! with every right in red, which neither sees nor changes it, and by one with every right in blue,
//! which is let in.

use std::time::Duration;

use serde_json::{Value, json};

use super::both_world_test::{Both, Things, whole_job};
use super::harness::Reply;
use super::router;
use super::volume_world_test::{PLUGIN, volume};

/// Whether what a route requires of its caller has to do with namespaces, or with what is in none
/// and is read by callers that may read it: its rows may still be another namespace's.
fn of_somebody(access: &str) -> bool {
    const MANAGED: [&str; 8] = [
        "public",
        "management",
        "anyone; refused: not in this version",
        "node:write",
        "node_pool write",
        "node_pool delete",
        "agent:write",
        "operator:read",
    ];
    // Who holds a policy, a role or a token is checked elsewhere: nothing of it is in a namespace.
    !MANAGED.contains(&access) && !access.ends_with("is the caller's")
}

/// The targets of a route, without their queries, for what is in a namespace.
fn targets(path: &str, method: &str, of: &Things, node: &str) -> Vec<String> {
    let name = of.namespace;
    let one = |pattern: &str, value: &str| vec![path.replace(pattern, value)];
    if path == "/v1/client/allocation/{id}/{verb}" {
        let verbs = [
            "restart", "signal", "gc", "stats", "checks", "pause", "snapshot",
        ];
        return verbs
            .map(|verb| format!("/v1/client/allocation/{}/{verb}", of.alloc))
            .to_vec();
    }
    match path.split('/').nth(2).unwrap_or_default() {
        "allocation" | "client" if path.contains("{id}") => one("{id}", &of.alloc),
        "client" => ["ls", "stat", "cat", "readat", "stream", "logs"]
            .map(|verb| format!("/v1/client/fs/{verb}/{}", of.alloc))
            .to_vec(),
        "deployment" => one("{id}", &of.deployment),
        "evaluation" => one("{id}", &of.eval),
        "job" if path.ends_with("/tag") => {
            vec![format!("/v1/job/job-{name}/versions/mark/tag")]
        }
        "job" => one("{id}", &format!("job-{name}")),
        "namespace" => one("{name}", name),
        // Rows of a pool that the caller may read are in namespaces; another it may not read.
        "node" if path == "/v1/node/pool/{name}" => one("{name}", &format!("pool-{name}")),
        "node" => vec![path.replace("{name}", "default").replace("{id}", node)],
        "plugin" => one("{id}", PLUGIN),
        "scaling" => one("{id}", &of.scaling),
        "service" if method == "DELETE" => {
            vec![format!("/v1/service/api-{name}/service-{name}")]
        }
        "service" => one("{*name}", &format!("api-{name}")),
        "var" => one("{*path}", &format!("secret-{name}")),
        "volume" if path.contains("/csi/") => one("{id}", &format!("data-{name}")),
        "volume" => one("{id}", &of.host_volume),
        "volumes" => one("{id}", &of.claim),
        _ => panic!("{path}: what of {name} does it name?"),
    }
}

/// A target with all that its route requires in the query.
fn queried(target: &str, namespace: &str, node: &str) -> String {
    let mut query = match target.rsplit('/').nth(1) {
        Some("cat" | "readat" | "stream" | "stat" | "ls") => "path=/&offset=0&limit=1".to_owned(),
        Some("logs") => "task=t&type=stdout".to_owned(),
        _ if target.ends_with("/exec") => "task=t&command=%5B%22ls%22%5D".to_owned(),
        _ if target.ends_with("/submission") => "version=0".to_owned(),
        _ if target.ends_with("/detach") => format!("node={node}"),
        _ => String::new(),
    };
    if !namespace.is_empty() {
        query = format!("namespace={namespace}&{query}");
    }
    format!("{target}?{}", query.trim_end_matches('&'))
}

/// A body that says whatever any of the routes wants to know of what is in a namespace.
fn body(of: &Things) -> Value {
    let name = of.namespace;
    let mut body = json!({
        "JobID": format!("job-{name}"), "JobVersion": 0, "Version": 0, "Stable": true,
        "Count": 2, "Target": {"Group": "g"},
        "DeploymentID": of.deployment, "All": true, "Pause": true,
        "HealthyAllocationIDs": [of.alloc],
        "Signal": "SIGHUP", "Task": "t",
        "Items": {"key": "changed"},
        "Volumes": [volume(&format!("data-{name}"))],
    });
    body["Job"] = whole_job(name)["Job"].take();
    body["Job"]["Priority"] = json!(70);
    body
}

/// Every request of every route that names something.
fn requests(of: &Things, node: &str) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut lines = router::lines();
    lines.retain(|line| line.path.contains('{') && of_somebody(&line.access));
    for line in lines {
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let any = line.methods == "any" && matches!(method, "GET" | "PUT");
            if !any && !line.methods.split(", ").any(|one| one == method) {
                continue;
            }
            let targets = targets(&line.path, method, of, node);
            all.extend(targets.into_iter().map(|target| (method, target)));
        }
    }
    all
}

async fn send(both: &Both, token: &str, (method, target): (&str, &str)) -> Reply {
    let body = match method {
        "GET" => String::new(),
        _ => body(&both.blue).to_string(),
    };
    both.world.h.by(token, method, target, body).await
}

/// What Nomad refuses with this status, as it does what never was.
const NEVER: [&str; 3] = [
    "Unknown allocation",
    "deployment not found",
    "claim not found",
];

/// What is in no namespace is read by who may read nodes, pools and plugins: the rows of it that
/// are in one are another matter.
fn is_in_none(target: &str) -> bool {
    ["/v1/node/", "/v1/plugin/"]
        .iter()
        .any(|path| target.starts_with(path))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_another_namespace_is_read_or_changed_by_its_id() {
    let both = Both::start().await;
    let node = both.world.node.clone();
    let before = both.state_of_blue().await;
    let requests = requests(&both.blue, &node);
    assert!(requests.len() > 80, "{}", requests.len());
    for (method, target) in &requests {
        for namespace in ["blue", "", "*", "red"] {
            // In red there may be something of the same name, which is the caller's to make.
            if namespace == "red" && *method != "GET" {
                continue;
            }
            let target = queried(target, namespace, &node);
            let reply = send(&both, "all:red", (method, &target)).await;
            let what = format!("{method} {target}: {} {}", reply.status, reply.text());
            match reply.status {
                403 | 404 => {}
                500 if NEVER.iter().any(|text| reply.text().starts_with(text)) => {}
                200 if namespace != "blue" || is_in_none(&target) => {
                    // A caller that may read nodes learns from them which disks they have.
                    let text = reply.text().replace("disk-blue", "");
                    let text = text.replace("/disks/blue", "");
                    // What a plan shows is what its caller sent to be planned.
                    let reported = *method == "GET" && text.contains("blue");
                    assert!(!reported, "{what}");
                }
                _ => assert_ne!(namespace, "blue", "{what}"),
            }
        }
    }
    assert_eq!(both.state_of_blue().await, before, "nothing was changed");
    both.world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_the_right_in_its_namespace_reads_and_changes_it_by_its_id() {
    let both = Both::start().await;
    let node = both.world.node.clone();
    let (reads, writes): (Vec<_>, Vec<_>) = requests(&both.blue, &node)
        .into_iter()
        .partition(|(method, _)| *method == "GET");
    for (method, target) in &reads {
        let target = queried(target, "blue", &node);
        let may = send(&both, "all:blue", (method, &target)).await;
        let manager = send(&both, "root", (method, &target)).await;
        let what = format!("{target}: {} {}", may.status, may.text());
        assert_ne!(may.status, 403, "{what}");
        assert_eq!(may.status, manager.status, "{what}");
        // Of what is in no namespace a manager sees more.
        if !is_in_none(&target) {
            assert_eq!(may.text(), manager.text(), "{what}");
        }
    }
    for (method, target) in &writes {
        let target = queried(target, "blue", &node);
        let may = send(&both, "all:blue", (method, &target)).await;
        let what = format!("{method} {target}: {} {}", may.status, may.text());
        assert!(!matches!(may.status, 403 | 404), "{what}");
    }
    both.world.h.stop().await;
}

/// What is blue's and what never was are refused in the same words, and as soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_may_not_be_seen_nor_for_what_never_was() {
    const NEVER: &str = "00000000-0000-0000-0000-000000000000";
    let both = Both::start().await;
    let of = &both.blue;
    for (path, name) in [
        ("/v1/job/NAME?namespace=blue", "job-blue"),
        ("/v1/allocation/NAME?namespace=blue", of.alloc.as_str()),
        ("/v1/evaluation/NAME?namespace=blue", &of.eval),
        ("/v1/deployment/NAME?namespace=blue", &of.deployment),
        ("/v1/scaling/policy/NAME?namespace=blue", &of.scaling),
        ("/v1/var/NAME?namespace=blue", "secret-blue"),
        ("/v1/volume/csi/NAME?namespace=blue", "data-blue"),
        ("/v1/volume/host/NAME?namespace=blue", &of.host_volume),
        ("/v1/namespace/NAME?", "blue"),
    ] {
        let ask = async |name: &str| {
            let target = format!("{}&index=999999&wait=60s", path.replace("NAME", name));
            let requested = both.world.h.seen("all:red", &target);
            let reported = tokio::time::timeout(Duration::from_secs(20), requested).await;
            reported.unwrap_or_else(|_| panic!("{target} waits"))
        };
        let hidden = ask(name).await;
        // Of allocations Nomad has other words for what is hidden than for what is not there.
        if path.contains("/allocation/") {
            assert_eq!(hidden.status, 500, "{}", hidden.text());
            continue;
        }
        let never = ask(NEVER).await;
        let reported = hidden.text().replace(name, NEVER);
        assert_eq!(
            (hidden.status, reported),
            (never.status, never.text()),
            "{path}"
        );
        assert!(matches!(hidden.status, 403 | 404), "{path}");
    }
    // Who may see it waits for it, and for nothing else.
    let target = format!("/v1/scaling/policy/{}?namespace=blue", of.scaling);
    let seen = both.world.h.seen("all:blue", &target).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    both.world.h.stop().await;
}
