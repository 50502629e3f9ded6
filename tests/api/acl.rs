//! Policies, tokens and roles, on an agent with ACLs on.

use std::fs;
use std::time::Instant;

use anyhow::ensure;
use drover_testkit::{Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::official_client::go_test;
use crate::support::{Running, dev_with, register, server, server_with};

const ON: &str = "acl { enabled = true }\n";

/// An agent with ACLs on, and the secret of its first token.
fn bootstrapped() -> (Running, String) {
    let running = server_with(ON);
    let secret = first_token(&running);
    (running, secret)
}

/// The secret of an agent's first token.
pub(crate) fn first_token(running: &Running) -> String {
    let made = running
        .http()
        .put("/v1/acl/bootstrap", &json!({}))
        .expect("an answer");
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json().expect("JSON");
    made["SecretID"].as_str().expect("a secret").to_owned()
}

/// A request with a token; the status and the body.
fn ask(running: &Running, token: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let mut http: Http = running.http().header("X-Nomad-Token", token);
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let answer = http.send(method, path, body.as_bytes());
    let answer = answer.expect("an answer");
    (answer.status, answer.text())
}

pub(crate) fn made(running: &Running, token: &str, path: &str, body: &Value) -> Value {
    let (status, text) = ask(running, token, "PUT", path, body);
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[test]
fn official_go_client_works_with_acls_on() {
    go_test("./acl", &server_with(ON));
}

#[test]
fn without_acls_there_are_none() {
    let running = server();
    for (method, path) in [
        ("PUT", "/v1/acl/bootstrap"),
        ("GET", "/v1/acl/policies"),
        ("GET", "/v1/acl/policy/x"),
        ("PUT", "/v1/acl/policy/x"),
        ("GET", "/v1/acl/tokens"),
        ("GET", "/v1/acl/token/self"),
        ("PUT", "/v1/acl/token"),
        ("PUT", "/v1/acl/token/onetime"),
        ("GET", "/v1/acl/roles"),
        ("DELETE", "/v1/acl/role/x"),
        ("GET", "/v1/acl/auth-methods"),
    ] {
        let (status, text) = ask(&running, "", method, path, &json!({}));
        assert_eq!(
            (status, text.as_str()),
            (400, "ACL support disabled"),
            "{method} {path}"
        );
    }
}

#[test]
fn acl_07_a_token_with_a_role_alone_reads_the_policies_of_the_role_and_no_other() {
    let (running, root) = bootstrapped();
    for name in ["mine", "other"] {
        let policy = json!({"Name": name, "Rules": "agent { policy = \"read\" }"});
        made(&running, &root, &format!("/v1/acl/policy/{name}"), &policy);
    }
    let role = json!({"Name": "crew", "Policies": [{"Name": "mine"}]});
    made(&running, &root, "/v1/acl/role", &role);
    let token = json!({"Type": "client", "Roles": [{"Name": "crew"}]});
    let token = made(&running, &root, "/v1/acl/token", &token);
    let secret = token["SecretID"].as_str().expect("a secret");
    let get = |path: &str| ask(&running, secret, "GET", path, &Value::Null);
    let (status, list) = get("/v1/acl/policies");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(
        (status, &list[0]["Name"], list.as_array().map(Vec::len)),
        (200, &json!("mine"), Some(1))
    );
    assert_eq!(get("/v1/acl/policy/mine").0, 200);
    let denied = (403, "Permission denied".to_owned());
    assert_eq!(get("/v1/acl/policy/other"), denied);
    assert_eq!(
        get("/v1/acl/policy/nothing"),
        denied,
        "what is not there looks the same"
    );
    assert_eq!(get("/v1/acl/tokens"), denied);
}

/// A token that may read jobs through a role reads them after the agent was killed, and again after
/// a restore of a moment at which the role existed; what was made since is gone.
#[test]
fn acl_08_roles_and_what_they_give_outlive_a_death_and_come_back_with_a_backup() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let mut setup = setup.expect("free ports");
    setup.config.push_str(ON);
    let running = Running::of(&setup);
    let root = first_token(&running);
    let policy = json!({"Name": "reads", "Rules": "namespace \"default\" { policy = \"read\" }"});
    made(&running, &root, "/v1/acl/policy/reads", &policy);
    let role = json!({"Name": "crew", "Policies": [{"Name": "reads"}]});
    let role = made(&running, &root, "/v1/acl/role", &role);
    let token = json!({"Type": "client", "Roles": [{"Name": "crew"}]});
    let token = made(&running, &root, "/v1/acl/token", &token);
    let secret = token["SecretID"].as_str().expect("a secret");
    let of_role = format!("/v1/acl/role/{}", role["ID"].as_str().expect("an id"));
    let reads = |running: &Running| ask(running, secret, "GET", "/v1/jobs", &Value::Null).0;
    assert_eq!(reads(&running), 200);
    running.agent.kill().expect("it dies");
    let running = Running::of(&setup);
    // It answers before it has read again what it had written last.
    let again = wait_for("its tables", LONG, || {
        ensure!(reads(&running) == 200, "it is not let in");
        Ok::<_, anyhow::Error>(())
    });
    again.expect("after its death");
    let shown = |running: &Running| ask(running, &root, "GET", &of_role, &Value::Null);
    let (status, text) = shown(&running);
    let before: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((status, &before), (200, &role));

    let mut http = running.http().header("X-Nomad-Token", &root);
    let backup = http.get("/v1/operator/snapshot").expect("an answer");
    assert_eq!(backup.status, 200, "{}", backup.text());
    let (status, text) = ask(&running, &root, "DELETE", &of_role, &Value::Null);
    assert_eq!(status, 200, "{text}");
    let later = json!({"Name": "later", "Policies": [{"Name": "reads"}]});
    made(&running, &root, "/v1/acl/role", &later);
    assert_eq!((reads(&running), shown(&running).0), (403, 404));
    let restored = http.send("PUT", "/v1/operator/snapshot", &backup.body);
    let restored = restored.expect("an answer");
    assert_eq!(restored.status, 200, "{}", restored.text());
    // It begins anew with what was restored.
    let back = wait_for("the role", LONG, || {
        let mut http = running.http().header("X-Nomad-Token", &root);
        let answer = http.get(&of_role)?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.text())
    });
    let after: Value = serde_json::from_str(&back.expect("it is back")).expect("JSON");
    assert_eq!(after["Policies"], role["Policies"]);
    assert_eq!(reads(&running), 200, "after the restore");
    let later = ask(
        &running,
        &root,
        "GET",
        "/v1/acl/role/name/later",
        &Value::Null,
    );
    assert_eq!(later.0, 404, "{}", later.1);
}

#[test]
fn bootstrapping_again_needs_the_index_in_a_file_on_the_server() {
    let (running, first) = bootstrapped();
    let again = || ask(&running, "", "PUT", "/v1/acl/bootstrap", &json!({}));
    let (status, text) = again();
    assert_eq!(status, 400);
    let index = text
        .strip_prefix("ACL bootstrap already done (reset index: ")
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned();
    let file = running.data().join("server/acl-bootstrap-reset");
    fs::write(&file, "999999").expect("written");
    let (status, text) = again();
    let expected =
        format!("Invalid bootstrap reset index (specified 999999, reset index: {index})");
    assert_eq!((status, text), (400, expected));
    fs::write(&file, format!("{index}\n")).expect("written");
    assert_eq!(again().0, 200);
    assert_eq!(again().0, 400, "a file is good for once");
    let (status, _) = ask(&running, &first, "GET", "/v1/acl/tokens", &Value::Null);
    assert_eq!(status, 200, "the first token stays");
}

#[test]
fn no_secret_of_a_token_is_shown_anywhere_else() {
    let (running, root) = bootstrapped();
    let token = json!({"Type": "management", "Name": "canary-name"});
    let token = made(&running, &root, "/v1/acl/token", &token);
    let secret = token["SecretID"].as_str().expect("a secret");
    let once = made(&running, &root, "/v1/acl/token/onetime", &Value::Null);
    let once = once["OneTimeToken"]["OneTimeSecretID"]
        .as_str()
        .expect("a secret")
        .to_owned();
    for path in [
        "/v1/acl/tokens",
        "/v1/audit?payload=true&per_page=1000",
        "/v1/audit/requests?per_page=1000",
        "/v1/state/diff?from=1",
        "/v1/agent/self",
        "/v1/metrics",
    ] {
        let (status, text) = ask(&running, &root, "GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {text}");
        for hidden in [secret, root.as_str(), once.as_str()] {
            assert!(!text.contains(hidden), "{path} shows a secret: {text}");
        }
        let about = path.starts_with("/v1/acl") || path.contains("payload");
        assert!(!about || text.contains("canary-name"), "{path}: {text}");
    }
    let log = running.agent.log_tail(10_000);
    // What lies on the disk is ciphertext and hashes.
    let files = running.data();
    for hidden in [secret, root.as_str(), once.as_str()] {
        assert!(!log.contains(hidden), "the agent's log shows a secret");
        assert!(
            !lies_below(&files, hidden.as_bytes()),
            "a secret lies in a file"
        );
    }
}

#[test]
fn events_say_which_token_did_it_with_its_roles_and_policies() {
    let (running, root) = bootstrapped();
    let rules = json!({"Rules": "namespace \"default\" { policy = \"write\" }"});
    for name in ["mine", "of-role"] {
        let mut policy = rules.clone();
        policy["Name"] = json!(name);
        made(&running, &root, &format!("/v1/acl/policy/{name}"), &policy);
    }
    let role = json!({"Name": "crew", "Policies": [{"Name": "of-role"}]});
    made(&running, &root, "/v1/acl/role", &role);
    let token = json!({
        "Name": "ci", "Type": "client", "Policies": ["mine"], "Roles": [{"Name": "crew"}],
    });
    let token = made(&running, &root, "/v1/acl/token", &token);
    let secret = token["SecretID"].as_str().expect("a secret");
    let mut http = running.http().header("X-Nomad-Token", secret);
    register(&mut http, &crate::support::job("web", 1));
    let path = "/v1/audit?kind=JobRegistered";
    let (status, text) = ask(&running, &root, "GET", path, &Value::Null);
    assert_eq!(status, 200, "{text}");
    let reported: Value = serde_json::from_str(&text).expect("JSON");
    let actor = &reported[0]["Actor"];
    assert_eq!(
        (&actor["kind"], &actor["id"], &actor["name"]),
        (&json!("token"), &token["AccessorID"], &json!("ci"))
    );
    assert_eq!(actor["roles"], json!(["crew"]), "{actor}");
    assert_eq!(actor["policies"], json!(["mine", "of-role"]), "{actor}");
}

#[test]
fn auth_10_settings_close_metrics_and_take_the_labels_away() {
    let settings = "telemetry {\n  prometheus_metrics = true\n  metrics_require_acl = true\n  \
                    disable_rpc_rate_metrics_labels = true\n}\n";
    let running = server_with(&format!("{ON}{settings}"));
    let root = first_token(&running);
    let path = "/v1/metrics?format=prometheus";
    for token in ["", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(ask(&running, token, "GET", path, &Value::Null).0, 403);
    }
    assert_eq!(ask(&running, &root, "GET", "/v1/jobs", &Value::Null).0, 200);
    let (status, text) = ask(&running, &root, "GET", path, &Value::Null);
    assert_eq!(status, 200, "{text}");
    assert!(
        text.contains("nomad_nomad_rpc_job_list ") && !text.contains("identity="),
        "{text}"
    );
}

/// For some minutes.
const TICKS: &str = "n=0; while [ $n -lt 3000 ]; do echo tick; sleep 0.1; n=$((n+1)); done";

/// A service that says something all the time; its allocation.
fn ticking(running: &Running, root: &str) -> String {
    let job = json!({"Job": {
        "ID": "ticks", "Name": "ticks", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {
                "command": "/bin/sh", "args": ["-c", TICKS],
            },
        }]}],
    }});
    register(&mut running.http().header("X-Nomad-Token", root), &job);
    let listed = "/v1/job/ticks/allocations";
    let alloc = wait_for("the task to run", LONG, || {
        let (_, list) = ask(running, root, "GET", listed, &Value::Null);
        let list: Value = serde_json::from_str(&list)?;
        ensure!(list[0]["ClientStatus"] == "running", "{list}");
        Ok(list[0]["ID"].as_str().unwrap_or_default().to_owned())
    });
    alloc.expect("it runs")
}

fn heads_change_nothing(running: &Running, root: &str, alloc: &str) {
    for verb in ["restart", "signal", "gc"] {
        let path = format!("/v1/client/allocation/{alloc}/{verb}");
        let (status, _) = ask(running, root, "HEAD", &path, &Value::Null);
        assert_eq!(
            status, 405,
            "only the head of an answer changes nothing: {verb}"
        );
    }
    let shown = ask(
        running,
        root,
        "GET",
        &format!("/v1/allocation/{alloc}"),
        &Value::Null,
    );
    let shown: Value = serde_json::from_str(&shown.1).expect("JSON");
    assert_eq!(shown["TaskStates"]["t"]["Restarts"], json!(0), "{shown}");
}

#[test]
fn what_is_followed_ends_with_the_right_to_it_and_with_nothing_else() {
    let running = dev_with(ON);
    let root = first_token(&running);
    let policy = json!({"Name": "reader", "Rules": "namespace \"default\" { policy = \"write\" }"});
    made(&running, &root, "/v1/acl/policy/reader", &policy);
    let token = |name: &str| {
        let token = json!({"Name": name, "Type": "client", "Policies": ["reader"]});
        made(&running, &root, "/v1/acl/token", &token)
    };
    let (narrow, other) = (token("narrow"), token("other"));
    let secret = |token: &Value| token["SecretID"].as_str().expect("a secret").to_owned();
    let alloc = ticking(&running, &root);
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true");
    let follow = |secret: &str, path: &str| {
        let http = running.http().header("X-Nomad-Token", secret);
        http.lines(path).expect("a stream")
    };
    let mut lines = [&narrow, &other].map(|token| follow(&secret(token), &path));
    let mut manager = follow(&root, "/v1/event/stream?topic=ACLToken");
    for lines in &mut lines {
        assert_eq!(
            lines.next_line().expect("it goes on").as_deref(),
            Some(&b"tick"[..])
        );
    }
    heads_change_nothing(&running, &root, &alloc);
    // Other tokens come; a management token stays one.
    for n in 0..3 {
        let name = format!("more-{n}");
        token(&name);
        let named = |line: &str| line.contains(&name).then_some(());
        manager.find(&name, named).expect("a line");
        // Nothing changes meanwhile, for longer than rights are looked after.
        let (_, list) = ask(&running, &root, "GET", "/v1/acl/tokens", &Value::Null);
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let last = list.as_array().into_iter().flatten();
        let last = last.filter_map(|token| token["ModifyIndex"].as_u64()).max();
        let waits = format!(
            "/v1/acl/tokens?wait=700ms&index={}",
            last.unwrap_or_default()
        );
        assert_eq!(ask(&running, &root, "GET", &waits, &Value::Null).0, 200);
    }
    let mut reported = follow(&secret(&narrow), "/v1/event/stream?topic=Job");
    let accessor = narrow["AccessorID"].as_str().expect("an accessor");
    let gone = format!("/v1/acl/token/{accessor}");
    assert_eq!(ask(&running, &root, "DELETE", &gone, &Value::Null).0, 200);
    let begun = Instant::now();
    // Nothing happens to jobs any more: only its right ends the stream.
    while let Ok(Some(line)) = reported.next_line() {
        assert!(begun.elapsed() < LONG, "it goes on without its right");
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line == "{}" || line.contains("\"Topic\":\"Job\""), "{line}");
    }
    // It ticks for minutes: only its right ends it.
    while let Ok(Some(line)) = lines[0].next_line() {
        assert!(begun.elapsed() < LONG, "it goes on without its right");
        assert_eq!(line, b"tick");
    }
    for _ in 0..20 {
        assert!(
            lines[1].next_line().expect("it goes on").is_some(),
            "the other follows on"
        );
    }
}

/// Whether bytes stand in some file below a directory.
fn lies_below(dir: &std::path::Path, what: &[u8]) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return lies_below(&path, what);
        }
        let bytes = fs::read(&path).unwrap_or_default();
        bytes.windows(what.len()).any(|piece| piece == what)
    })
}
