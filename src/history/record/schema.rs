//! JSON Schemas (draft 2020-12) of every kind's document, as it is written today, and of the
//! payloads of older versions, as they lie in the log.

use drover_events::{Actor, Event, EventKind, Topic};
use drover_migrations::events::payload_schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Value, json};

/// Where the schemas are served; also the beginning of each schema's `$id`.
pub const ROUTE: &str = "/v1/schema/events";

/// All kinds with their versions and where the schema of each is.
pub fn index() -> Value {
    let kind = |kind: &EventKind| {
        let versions: Vec<u16> = (1..=kind.version()).collect();
        json!({
            "Kind": kind.name(),
            "Number": kind.number(),
            "Version": kind.version(),
            "Versions": versions,
            "Since": kind.since(),
            "Schema": route(*kind),
        })
    };
    json!({ "Kinds": EventKind::ALL.iter().map(kind).collect::<Vec<_>>() })
}

/// Where the schema of a kind is served.
pub fn route(kind: EventKind) -> String {
    format!("{ROUTE}/{}", kind.name())
}

/// The schema of a kind's document in the version now written: what exports, the audit trail and
/// consumers get.
pub fn document(kind: EventKind) -> Value {
    let mut generator = generator();
    let actor = generator.subschema_for::<Actor>();
    let mut properties = json!({
        "Index": { "type": "integer", "minimum": 1, "description": "The log's index." },
        "Term": { "type": "integer", "minimum": 0, "description": "Raft's term." },
        "Time": { "type": "integer", "minimum": 0, "description": "Unix nanoseconds." },
        "Kind": { "const": kind.name() },
        "Version": { "const": kind.version() },
        "Cause": {
            "type": ["integer", "null"],
            "description": "The index of the event this one followed from.",
        },
        "Outcome": {
            "enum": ["applied", "refused"],
            "description": "What became of it: a refused event changed nothing. Not there where \
                            that is not known.",
        },
        "Reason": { "type": "string", "description": "Why it was refused." },
        "Part": part(),
        "OversizedBytes": {
            "type": "integer",
            "minimum": 1,
            "description": "How large it is, where its payload was left out because of that.",
        },
    });
    if kind.is_raft_own() {
        // The first membership is the log's entry 0; streams begin behind it.
        properties["Index"]["minimum"] = json!(0);
    }
    let mut required = vec!["Index", "Term", "Time", "Kind", "Version", "Cause"];
    if let Some(payload) = Event::payload_schema(kind, &mut generator) {
        properties["ID"] = json!({ "type": "string", "format": "uuid" });
        properties["Actor"] = actor.to_value();
        properties["RequestID"] = json!({ "type": "string" });
        properties["Trace"] = json!({ "type": "string" });
        properties["Payload"] = payload.to_value();
        // A message that is too large, or only names an object, has no payload.
        required.extend(["ID", "Actor", "RequestID"]);
        properties["Time"]["minimum"] = json!(1);
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": route(kind),
        "title": kind.name(),
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": generator.take_definitions(true),
    });
    if !kind.is_raft_own() {
        schema["anyOf"] = why();
    }
    schema
}

/// Which piece this is of an event that is split.
fn part() -> Value {
    json!({
        "type": "object",
        "description": "Which piece this is of an event that holds many objects and has one \
                        document for each.",
        "properties": {
            "Number": { "type": "integer", "minimum": 1, "description": "Which, from 1." },
            "Of": { "type": "integer", "minimum": 1, "description": "Of how many." },
            "Topic": {
                "enum": Topic::ALL.iter().map(|topic| topic.name()).collect::<Vec<_>>(),
                "description": "The topic of the object.",
            },
            "Key": { "type": "string", "description": "The object's id or name." },
        },
        "required": ["Number", "Of", "Topic", "Key"],
    })
}

/// The schema as it is where integers beyond ±2^53 are written as texts.
pub fn with_strings(mut schema: Value) -> Value {
    let texts = &mut schema;
    allow_texts(texts);
    schema
}

fn allow_texts(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_integer = |name: &Value| name == "integer";
            match fields.get_mut("type") {
                Some(of @ Value::String(_)) if is_integer(of) => {
                    *of = json!(["integer", "string"]);
                    bound_texts(fields);
                }
                Some(Value::Array(types)) if types.iter().any(is_integer) => {
                    types.push(json!("string"));
                    bound_texts(fields);
                }
                _ => {}
            }
            fields.values_mut().for_each(allow_texts);
        }
        Value::Array(items) => items.iter_mut().for_each(allow_texts),
        _ => {}
    }
}

/// A text where an integer was meant holds one.
fn bound_texts(fields: &mut serde_json::Map<String, Value>) {
    fields.insert("pattern".to_owned(), json!("^-?[0-9]{16,20}$"));
}

/// What every event has beside its time and actor: the event it followed from, or the request that
/// caused it.
fn why() -> Value {
    json!([
        { "properties": { "Cause": { "type": "integer", "minimum": 1 } } },
        { "properties": { "RequestID": { "minLength": 1 } } },
    ])
}

/// The schema of a kind's payload in a version before the one of today: the names and shapes of
/// what lies in the log. None: there was no such version.
pub fn former(kind: EventKind, version: u16) -> Option<Value> {
    let mut generator = generator();
    let payload = payload_schema(kind, version, &mut generator)?;
    let mut schema = payload.to_value();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(format!("{}?version={version}", route(kind)));
    schema["title"] = json!(format!("{kind} v{version}"));
    schema["$defs"] = generator.take_definitions(true).into();
    nothing_required(&mut schema);
    Some(schema)
}

/// What equals its default does not lie in the log.
fn nothing_required(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("required");
            fields.values_mut().for_each(nothing_required);
        }
        Value::Array(items) => items.iter_mut().for_each(nothing_required),
        _ => {}
    }
}

pub(crate) fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
