//! Policies, tokens and roles, on an agent with ACLs on.

use std::fs;

use drover_testkit::Http;
use serde_json::{Value, json};

use crate::official_client::go_test;
use crate::support::{Running, server, server_with};

const ON: &str = "acl { enabled = true }\n";

/// An agent with ACLs on, and the secret of its first token.
fn bootstrapped() -> (Running, String) {
    let running = server_with(ON);
    let made = running
        .http()
        .put("/v1/acl/bootstrap", &json!({}))
        .expect("an answer");
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json().expect("JSON");
    let secret = made["SecretID"].as_str().expect("a secret").to_owned();
    (running, secret)
}

/// Asks with a token; the status and the body.
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

fn made(running: &Running, token: &str, path: &str, body: &Value) -> Value {
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
