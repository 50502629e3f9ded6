//! `drover acl`, on an agent with ACLs on.

use std::fs;
use std::process::Command;

use drover_testkit::{Agent, Setup};

use crate::support::{DROVER, Ran};

struct Guarded {
    agent: Agent,
    dir: tempfile::TempDir,
}

impl Guarded {
    fn start() -> Guarded {
        let dir = tempfile::tempdir().expect("a directory");
        let setup = Setup::server(DROVER, &dir.path().join("data"));
        let mut setup = setup.expect("free ports");
        setup.config.push_str("acl { enabled = true }\n");
        let agent = setup.start().expect("the agent starts");
        Guarded { agent, dir }
    }

    /// Runs a command with a token.
    fn run(&self, token: &str, words: &[&str]) -> Ran {
        let output = Command::new(DROVER)
            .args(words)
            .current_dir(self.dir.path())
            .env("NOMAD_ADDR", format!("http://{}", self.agent.addr()))
            .env("NOMAD_TOKEN", token)
            .output()
            .expect("the program runs");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The same, expected to do it.
    fn done(&self, token: &str, words: &[&str]) -> String {
        let ran = self.run(token, words);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.all());
        ran.stdout
    }
}

/// The value of a line `Key = value`.
fn field(text: &str, key: &str) -> String {
    let line = text.lines().find_map(|line| {
        let (name, value) = line.split_once(" = ")?;
        (name.trim() == key).then(|| value.trim().to_owned())
    });
    line.unwrap_or_else(|| panic!("no {key} in\n{text}"))
}

/// Bootstraps with a secret of one's own; the secret.
fn bootstrap(guarded: &Guarded) -> &'static str {
    let secret = "2b778dd9-f5f1-6f29-b4b4-9a5fa948757a";
    fs::write(guarded.dir.path().join("secret"), format!("{secret}\n")).expect("written");
    let made = guarded.done("", &["acl", "bootstrap", "secret"]);
    assert_eq!(field(&made, "Secret ID"), secret);
    assert_eq!(
        (field(&made, "Type"), field(&made, "Policies")),
        ("management".into(), "n/a".into())
    );
    let again = guarded.run("", &["acl", "bootstrap"]);
    assert!(
        again.code == 1 && again.stderr.contains("already done"),
        "{}",
        again.all()
    );
    secret
}

/// Two policies, one of a task.
fn policies(guarded: &Guarded, secret: &str) {
    let root = |words: &[&str]| guarded.done(secret, words);
    let rules = "namespace \"default\" {\n  policy = \"read\"\n}\n";
    fs::write(guarded.dir.path().join("read.hcl"), rules).expect("written");
    let apply = [
        "acl",
        "policy",
        "apply",
        "-description",
        "reads",
        "reader",
        "read.hcl",
    ];
    assert_eq!(root(&apply), "Successfully wrote \"reader\" ACL policy!\n");
    let attach = [
        "acl", "policy", "apply", "-job", "web", "-group", "g", "-task", "t", "of-web", "read.hcl",
    ];
    root(&attach);
    let info = root(&["acl", "policy", "info", "of-web"]);
    assert_eq!(
        (field(&info, "Namespace"), field(&info, "JobID")),
        ("default".into(), "web".into())
    );
    assert!(info.contains("Rules\n\nnamespace \"default\" {"), "{info}");
    let list = root(&["acl", "policy", "list"]);
    assert_eq!(list, "Name    Description\nof-web  <none>\nreader  reads\n");
}

/// A role with both of them; its id.
fn role(guarded: &Guarded, secret: &str) -> String {
    let root = |words: &[&str]| guarded.done(secret, words);
    let role = [
        "acl", "role", "create", "-name", "crew", "-policy", "reader",
    ];
    let role = field(&root(&role), "ID");
    let update = [
        "acl", "role", "update", "-name", "ops", "-policy", "of-web", &role,
    ];
    assert_eq!(field(&root(&update), "Policies"), "reader,of-web");
    let info = root(&["acl", "role", "info", "-by-name", "ops"]);
    assert_eq!(field(&info, "ID"), role);
    assert!(root(&["acl", "role", "list"]).contains("reader,of-web"));
    role
}

/// A token with the role; its accessor.
fn token(guarded: &Guarded, secret: &str) -> String {
    let root = |words: &[&str]| guarded.done(secret, words);
    let create = [
        "acl",
        "token",
        "create",
        "-name",
        "ci",
        "-role-name",
        "ops",
        "-ttl",
        "1h",
    ];
    let token = root(&create);
    assert!(token.contains("Roles\nID"), "{token}");
    let (accessor, own) = (field(&token, "Accessor ID"), field(&token, "Secret ID"));
    let shown = guarded.done(&own, &["acl", "token", "self"]);
    assert_eq!(field(&shown, "Name"), "ci");
    let mine = guarded.done(&own, &["acl", "policy", "self"]);
    assert!(mine.contains("of-web  web     g           t"), "{mine}");
    let denied = guarded.run(&own, &["acl", "token", "list"]);
    assert!(
        denied.code == 1 && denied.stderr.contains("Permission denied"),
        "{}",
        denied.all()
    );
    let update = [
        "acl", "token", "update", "-name", "cd", "-policy", "reader", &accessor,
    ];
    assert_eq!(field(&root(&update), "Policies"), "[reader]");
    let listed = root(&["acl", "token", "list"]);
    assert!(
        listed.starts_with("Name             Type        Global  Accessor ID"),
        "{listed}"
    );
    assert!(
        listed.contains(&accessor) && !listed.contains(&own),
        "{listed}"
    );
    let json = root(&["acl", "token", "info", "-json", &accessor]);
    assert!(json.contains(&format!("\"SecretID\": \"{own}\"")), "{json}");
    let name = root(&["acl", "token", "info", "-t", "{{.Name}}", &accessor]);
    assert_eq!(name.trim(), "cd");
    let bare = guarded.run(secret, &["acl", "token", "update", &accessor]);
    assert!(
        bare.code == 1 && bare.stderr.contains("at least one flag"),
        "{}",
        bare.all()
    );
    accessor
}

#[test]
fn policies_roles_and_tokens_are_made_shown_changed_and_deleted() {
    let guarded = Guarded::start();
    let secret = bootstrap(&guarded);
    let root = |words: &[&str]| guarded.done(secret, words);
    policies(&guarded, secret);
    let role = role(&guarded, secret);
    let accessor = token(&guarded, secret);
    let gone = root(&["acl", "token", "delete", &accessor]);
    assert_eq!(gone, format!("Token {accessor} successfully deleted\n"));
    let gone = root(&["acl", "role", "delete", &role]);
    assert_eq!(gone, format!("ACL role {role} successfully deleted\n"));
    let gone = root(&["acl", "policy", "delete", "reader"]);
    assert_eq!(gone, "Successfully deleted reader policy!\n");
    assert_eq!(root(&["acl", "role", "list"]), "No ACL roles found\n");
    let words = root(&["__complete", "acl", "policy", "info", "of"]);
    assert_eq!(words, "of-web\n");
}
