use std::sync::Arc;

use drover_events::acl::{AclTokensUpserted, SealedSecret, SealedToken};
use drover_events::gojson::Base64;
use drover_events::job::JobRegistered;
use drover_events::model::{AclToken, Job, JobSubmission, Node, Task, TaskGroup, Template};
use drover_events::node::NodeRegistered;
use drover_events::variable::VariableApplied;
use drover_events::{Event, EventKind};
use drover_golden::samples;
use serde_json::{Value, json};

use super::*;
use crate::history::record::{Document, Payload};

const CANARY: &str = "canary-52c9e0";
const NOW: i64 = 1_795_252_066_071_717_144;

pub(crate) fn redactor() -> Redactor {
    let dir = tempfile::tempdir().expect("a directory");
    let (keyring, _) = Keyring::open(dir.path()).expect("a keystore");
    keyring.generate("key-1".to_owned(), NOW).expect("a key");
    Redactor::of(&keyring)
}

/// A job whose every confidential field holds the canary.
fn job() -> Job {
    let canary = || CANARY.to_owned();
    let template = Template {
        embedded_tmpl: format!("password = {CANARY}"),
        dest_path: "local/file".into(),
        ..Template::default()
    };
    let task = Task {
        name: "web".into(),
        driver: "raw_exec".into(),
        env: [("DB_PASSWORD", canary())].into(),
        meta: [("owner", canary())].into(),
        config: [("args", json!(["-p", CANARY])), ("pin", json!(4711))].into(),
        templates: vec![template].into(),
        ..Task::default()
    };
    let group = TaskGroup {
        name: "g".into(),
        meta: [("k", canary())].into(),
        tasks: vec![task].into(),
        ..TaskGroup::default()
    };
    Job {
        id: "web".into(),
        payload: Base64::from(CANARY.as_bytes()),
        meta: [("k", canary())].into(),
        task_groups: vec![group].into(),
        ..Job::default()
    }
}

fn registered() -> Event {
    let source = format!("job \"web\" {{ # {CANARY} }}");
    let submission = JobSubmission {
        source,
        variables: format!("p = \"{CANARY}\""),
        variable_flags: [("p", CANARY.to_owned())].into(),
        format: "hcl2".into(),
        ..JobSubmission::default()
    };
    JobRegistered {
        job: Arc::new(job()),
        submission: Some(submission),
        ..JobRegistered::default()
    }
    .into()
}

fn shown(event: &Event, redactor: &Redactor) -> Value {
    let text = redactor.redacted(&Payload(event)).to_string();
    assert!(!text.contains(CANARY), "{text}");
    assert!(!text.contains(&Base64::encode(CANARY.as_bytes())), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn sensitive_values_become_hashes_that_are_found_again() {
    let redactor = redactor();
    let known = redactor.hashes(CANARY);
    let payload = shown(&registered(), &redactor);
    let task = &payload["Job"]["TaskGroups"][0]["Tasks"][0];
    let hash = task["Env"]["DB_PASSWORD"].as_str().expect("a text");
    assert!(
        hash.starts_with(HASHED) && hash.len() == HASHED.len() + 64,
        "{hash}"
    );
    for same in [
        &task["Meta"]["owner"],
        &task["Config"]["args"][1],
        &payload["Job"]["Meta"]["k"],
        &payload["Job"]["TaskGroups"][0]["Meta"]["k"],
        &payload["Submission"]["VariableFlags"]["p"],
    ] {
        assert_eq!(same, hash, "the same value gives the same text");
    }
    assert_eq!(redactor.hash(CANARY), hash);
    assert!(known.contains(&hash.to_owned()));
    let bytes = payload["Job"]["Payload"].as_str().expect("a text");
    assert!(known.contains(&bytes.to_owned()), "bytes are found as well");
    assert_eq!(
        task["Config"]["pin"],
        redactor.hash("4711"),
        "a number is a value, too"
    );
    assert_ne!(task["Templates"][0]["EmbeddedTmpl"], hash);
    // What has no class stays as it is.
    assert_eq!(
        (&task["Name"], &task["Driver"]),
        (&json!("web"), &json!("raw_exec"))
    );
    assert_eq!(task["Templates"][0]["DestPath"], "local/file");
    assert_eq!(payload["Submission"]["Format"], "hcl2");
    assert_eq!(task["User"], "", "an empty text hides nothing");
}

#[test]
fn another_key_gives_another_hash_and_no_key_none() {
    let (one, other, none) = (redactor(), redactor(), Redactor::default());
    assert_ne!(one.hash(CANARY), other.hash(CANARY));
    assert!(!none.can_hash() && none.hashes(CANARY).is_empty());
    let payload = shown(&registered(), &none);
    let task = &payload["Job"]["TaskGroups"][0]["Tasks"][0];
    assert_eq!(task["Env"]["DB_PASSWORD"], REDACTED);
}

#[test]
fn hashes_stay_when_a_new_key_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let (keyring, _) = Keyring::open(dir.path()).expect("a keystore");
    keyring.generate("z-first".to_owned(), NOW).expect("a key");
    let before = Redactor::of(&keyring).hash(CANARY);
    keyring
        .generate("a-second".to_owned(), NOW + 1)
        .expect("a key");
    let after = Redactor::of(&keyring);
    assert_eq!(after.hash(CANARY), before);
    assert_eq!(after.hashes(CANARY).len(), 4, "two keys, two forms");
    let tool = Redactor::of_data_dir(dir.path()).expect("no keystore is no error");
    assert!(!tool.can_hash());
    let data = dir.path().join("data");
    let store = data.join("server/keystore");
    let (other, _) = Keyring::open(&store).expect("a keystore");
    other.generate("key".to_owned(), NOW).expect("a key");
    let tool = Redactor::of_data_dir(&data).expect("it is read");
    assert_eq!(tool.hash(CANARY), Redactor::of(&other).hash(CANARY));
}

#[test]
fn what_is_stored_of_secrets_is_never_shown() {
    let redactor = redactor();
    let secret = SealedSecret {
        hash: CANARY.into(),
        ciphertext: CANARY.into(),
        key_id: "key-1".into(),
    };
    let token = SealedToken {
        token: AclToken {
            accessor_id: "accessor".into(),
            secret_id: CANARY.into(),
            ..AclToken::default()
        },
        secret,
    };
    let payload = shown(
        &AclTokensUpserted {
            tokens: vec![token],
        }
        .into(),
        &redactor,
    );
    let token = &payload["Tokens"][0];
    assert_eq!(token["Token"]["SecretID"], REDACTED);
    assert_eq!(token["Token"]["AccessorID"], "accessor");
    assert_eq!(token["Secret"]["Hash"], REDACTED);

    let mut applied = VariableApplied::default();
    applied.var.data = Base64::from(CANARY.as_bytes());
    applied.var.path = "app/db".into();
    let payload = shown(&applied.into(), &redactor);
    assert_eq!(payload["Var"]["Data"], REDACTED);
    assert_eq!(payload["Var"]["Path"], "app/db");

    let node = Node {
        id: "n1".into(),
        secret_id: CANARY.into(),
        ..Node::default()
    };
    let payload = shown(
        &NodeRegistered {
            node: Box::new(node),
            ..NodeRegistered::default()
        }
        .into(),
        &redactor,
    );
    assert_eq!(payload["Node"]["ID"], "n1");
}

/// Everything but classified values is the same, and so is every shape.
fn compare(clear: &Value, redacted: &Value, at: &str) {
    match (clear, redacted) {
        (Value::Object(clear), Value::Object(redacted)) => {
            assert!(clear.keys().eq(redacted.keys()), "{at}");
            for (key, value) in clear {
                compare(value, &redacted[key], &format!("{at}.{key}"));
            }
        }
        (Value::Array(clear), Value::Array(redacted)) => {
            assert_eq!(clear.len(), redacted.len(), "{at}");
            for (clear, redacted) in clear.iter().zip(redacted) {
                compare(clear, redacted, at);
            }
        }
        (clear, Value::String(text)) if text == REDACTED || text.starts_with(HASHED) => {
            assert!(clear.is_string() || clear.is_number(), "{at}: {clear}");
        }
        (clear, redacted) => assert_eq!(clear, redacted, "{at}"),
    }
}

#[test]
fn a_document_of_every_kind_keeps_its_shape() {
    let redactor = redactor();
    for kind in EventKind::ALL {
        let body = samples::body(*kind, kind.version()).expect("every kind has a sample");
        let event = drover_migrations::decode(&body).expect("it decodes");
        let document = Document::of(&event);
        let clear: Value = serde_json::from_str(&document.text(None).expect("JSON")).expect("JSON");
        let redacted = document.text(Some(&redactor)).expect("JSON");
        compare(
            &clear,
            &serde_json::from_str(&redacted).expect("JSON"),
            kind.name(),
        );
    }
}

#[test]
fn a_redactor_shows_no_key() {
    assert_eq!(format!("{:?}", redactor()), "Redactor { keys: 1, .. }");
}

#[test]
fn a_destination_may_show_fields_by_name_and_never_a_secret() {
    let public = ["Task.Config.pin", "Job.Meta"].map(str::to_owned);
    let public = PublicFields::read(&public).expect("they are sensitive fields");
    let reported = |redactor: &Redactor| {
        serde_json::to_value(redactor.redacted(&Payload(&registered()))).expect("JSON")
    };
    let some = reported(&redactor().showing(public));
    let task = &some["Job"]["TaskGroups"][0]["Tasks"][0];
    assert_eq!(task["Config"]["pin"], 4711, "the key that is named");
    for hidden in [
        &task["Config"]["args"][1],
        &task["Env"]["DB_PASSWORD"],
        &task["Meta"]["owner"],
        &some["Job"]["TaskGroups"][0]["Meta"]["k"],
    ] {
        assert!(
            hidden.as_str().is_some_and(|text| text.starts_with(HASHED)),
            "{hidden}"
        );
    }
    assert_eq!(some["Job"]["Meta"]["k"], CANARY, "the field that is named");
    for bad in [
        "Node.SecretID",
        "Task.Name",
        "Task",
        "Meta",
        "Task.Config.",
        "",
    ] {
        let error = PublicFields::read(&[bad.to_owned()]).expect_err(bad);
        assert!(error.contains("Task.Config"), "{error}");
    }
}
