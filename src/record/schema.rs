//! JSON Schemas (draft 2020-12) of every kind's document, as it is written today, and of the
//! payloads of older versions, as they lie in the log.

use drover_events::{Actor, Event, EventKind};
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
    });
    let mut required = vec!["Index", "Term", "Time", "Kind", "Version", "Cause"];
    if let Some(payload) = Event::payload_schema(kind, &mut generator) {
        properties["ID"] = json!({ "type": "string", "format": "uuid" });
        properties["Actor"] = actor.to_value();
        properties["RequestID"] = json!({ "type": "string" });
        properties["Trace"] = json!({ "type": "string" });
        properties["Payload"] = payload.to_value();
        required.extend(["ID", "Actor", "RequestID", "Payload"]);
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

/// What every event has beside its time and actor: the event it followed from, or the request that
/// asked for it.
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

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
