use drover_golden::samples;

use super::*;
use crate::history::record::numbers::Numbers;
use crate::history::record::split::split;
use crate::history::record::{Document, EventPart, Payload, RecordedOutcome, Redactor};
use crate::keyring::Keyring;

/// No field that the schema does not describe: for a reader such a field does not exist.
fn closed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && fields.contains_key("type") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(closed);
        }
        Value::Array(items) => items.iter_mut().for_each(closed),
        _ => {}
    }
}

/// What is wrong with a document by its schema.
fn wrong(schema: &Value, document: &Value) -> Vec<String> {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$id");
    }
    let validator = drover_testkit::jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("a schema");
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn every_document_is_what_its_schema_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let (keyring, _) = Keyring::open(dir.path()).expect("a keystore");
    keyring.generate("key".to_owned(), 1).expect("a key");
    let redactor = Redactor::of(&keyring);
    for kind in EventKind::ALL {
        let mut schema = document(*kind);
        closed(&mut schema);
        for version in 1..=kind.version() {
            let Some(body) = samples::body(*kind, version) else {
                continue;
            };
            let event = drover_migrations::decode(&body).expect("a sample decodes");
            let document = Document::of(&event);
            let outcomes = [
                None,
                Some(RecordedOutcome::Applied),
                Some(RecordedOutcome::Rejected("no")),
            ];
            for (redactor, outcome) in [None, Some(&redactor)]
                .into_iter()
                .zip(outcomes)
                .chain([(None, outcomes[2])])
            {
                let text = document.became(outcome).text(redactor).expect("JSON");
                let shown = serde_json::from_str(&text).expect("JSON");
                let wrong = wrong(&schema, &shown);
                assert!(wrong.is_empty(), "{kind} v{version}: {wrong:#?}");
            }
            let pieces = event
                .envelope
                .iter()
                .flat_map(|envelope| split(&envelope.event));
            for piece in pieces {
                let part = EventPart {
                    number: 1,
                    of: 2,
                    topic: piece.topic,
                    key: &piece.id,
                };
                let document = Document {
                    part: Some(part),
                    payload: Some(Payload(&piece.event)),
                    ..document
                };
                let shown = serde_json::from_str(&document.to_string()).expect("JSON");
                let wrong = wrong(&schema, &shown);
                assert!(wrong.is_empty(), "{kind} v{version}, a piece: {wrong:#?}");
            }
        }
    }
}

#[test]
fn a_document_that_is_not_what_its_schema_says_is_found_out() {
    let kind = EventKind::JobRegistered;
    let schema = document(kind);
    let body = samples::body(kind, kind.version()).expect("a sample");
    let event = drover_migrations::decode(&body).expect("it decodes");
    let text = Document::of(&event).to_string();
    let good: Value = serde_json::from_str(&text).expect("JSON");
    assert!(wrong(&schema, &good).is_empty());
    for (pointer, bad) in [
        ("/Kind", json!("JobDeregistered")),
        ("/Payload/Job/Priority", json!("50")),
        ("/Payload/Job/Datacenters", json!("dc1")),
        ("/Actor/kind", json!("nobody")),
    ] {
        let mut document = good.clone();
        *document.pointer_mut(pointer).expect(pointer) = bad;
        assert!(!wrong(&schema, &document).is_empty(), "{pointer}");
    }
    let mut less = good;
    less["Payload"]["Job"]
        .as_object_mut()
        .expect("a job")
        .remove("Meta");
    assert!(!wrong(&schema, &less).is_empty(), "every field is written");
}

#[test]
fn every_version_of_every_kind_has_a_schema() {
    for kind in EventKind::ALL {
        for version in 1..kind.version() {
            let schema = former(*kind, version).unwrap_or_else(|| panic!("{kind} v{version}"));
            assert!(
                !schema.to_string().contains("\"required\""),
                "{kind} v{version}"
            );
        }
        assert_eq!(former(*kind, kind.version() + 1), None);
    }
    let kinds = index();
    let kinds = kinds["Kinds"].as_array().expect("a list");
    assert_eq!(kinds.len(), EventKind::ALL.len());
}

#[test]
fn schemas_say_in_words_what_a_field_is() {
    let schema = document(EventKind::PlanApplied);
    let text = &schema["$defs"]["DecisionInputs"]["properties"]["Now"]["description"];
    assert_eq!(text, "Its time, unix nanoseconds.");
}

#[test]
fn an_event_without_who_when_or_why_is_refused() {
    let kind = EventKind::JobRegistered;
    let schema = document(kind);
    let body = samples::body(kind, kind.version()).expect("a sample");
    let event = drover_migrations::decode(&body).expect("it decodes");
    let text = Document::of(&event).to_string();
    let good: Value = serde_json::from_str(&text).expect("JSON");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        wrong(&schema, &document).is_empty()
    };
    assert!(changed(&|_| {}));
    assert!(!changed(&|document| document["Time"] = json!(0)), "when");
    assert!(!changed(&|document| document["Actor"] = json!(null)), "who");
    assert!(!changed(&|document| document["Actor"] = json!({})), "who");
    assert!(
        changed(&|document| document["Cause"] = json!(null)),
        "the request says why"
    );
    assert!(
        changed(&|document| document["RequestID"] = json!("")),
        "the cause says why"
    );
    let neither = |document: &mut Value| {
        document["Cause"] = json!(null);
        document["RequestID"] = json!("");
    };
    assert!(!changed(&neither), "why");
}

#[test]
fn the_logs_entry_0_is_what_its_schema_says() {
    let kind = EventKind::RaftMembership;
    let body = samples::body(kind, kind.version()).expect("a sample");
    let mut event = drover_migrations::decode(&body).expect("it decodes");
    event.index = 0;
    let shown = serde_json::from_str(&Document::of(&event).to_string()).expect("JSON");
    let wrong = wrong(&document(kind), &shown);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_document_with_texts_for_numbers_is_what_the_other_schema_says() {
    let mut texts = 0;
    for kind in EventKind::ALL {
        let body = samples::body(*kind, kind.version()).expect("a sample");
        let event = drover_migrations::decode(&body).expect("it decodes");
        let mut out = Vec::new();
        Numbers::Strings.copy(Document::of(&event).to_string().as_bytes(), &mut out);
        let shown: Value = serde_json::from_slice(&out).expect("JSON");
        texts += usize::from(shown["Time"].is_string());
        let mut schema = with_strings(document(*kind));
        closed(&mut schema);
        let found = wrong(&schema, &shown);
        assert!(found.is_empty(), "{kind}: {found:#?}");
        let clear = serde_json::from_str(&Document::of(&event).to_string()).expect("JSON");
        assert!(wrong(&schema, &clear).is_empty(), "{kind} with numbers");
        let bad = wrong(&schema, &json!({"Index": "many"}));
        assert!(
            bad.iter().any(|what| what.starts_with("/Index")),
            "{bad:#?}"
        );
    }
    assert!(texts > 10, "{texts}");
}
