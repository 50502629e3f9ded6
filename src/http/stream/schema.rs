//! The JSON Schema of what the stream sends by default: Nomad's lines, which are also the data of
//! server-sent events.

use drover_events::model::{
    AclAuthMethod, AclBindingRule, AclPolicy, AclRole, AclToken, Allocation, CsiPlugin, CsiVolume,
    Deployment, Evaluation, HostVolume, Job, Node, NodePool, ServiceRegistration, VariableMetadata,
};
use drover_events::topic::Publication;
use drover_events::{Event, EventKind, Topic};
use schemars::generate::SchemaGenerator;
use serde_json::{Value, json};

use crate::history::record::schema::generator;

/// Where it is served.
const ROUTE: &str = "/v1/schema/stream";

/// The schema of a line: events of one index, a heartbeat, how far the stream is, or why it ends.
pub(in crate::http) fn line() -> Value {
    let mut generator = generator();
    let topics = Topic::ALL.iter().filter(|topic| **topic != Topic::Operator);
    let events: Vec<Value> = topics.map(|topic| event(*topic, &mut generator)).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ROUTE,
        "title": "A line of the event stream",
        "description": "Also the data of a server-sent event: of one without a name the events, of \
                        a checkpoint or an error what stands under that name here.",
        "anyOf": [
            { "$ref": "#/$defs/Events" },
            { "$ref": "#/$defs/Heartbeat" },
            { "$ref": "#/$defs/Reached" },
            { "$ref": "#/$defs/Ended" },
        ],
        "$defs": definitions(&events, &mut generator),
    })
}

fn definitions(events: &[Value], generator: &mut SchemaGenerator) -> Value {
    let index = || json!({ "type": "integer", "minimum": 0, "description": "The log's index." });
    let mut all = generator.take_definitions(true);
    let own = json!({
        "Events": {
            "description": "What happened at one index.",
            "type": "object",
            "properties": {
                "Index": index(),
                "Events": { "type": "array", "items": { "anyOf": events } },
                "Unreadable": { "type": "string", "description": "Why nothing of it is sent." },
            },
            "required": ["Index", "Events"],
        },
        "Heartbeat": {
            "description": "Nothing happened.",
            "type": "object",
            "maxProperties": 0,
        },
        "Reached": {
            "description": "How far the stream is, where checkpoints were requested.",
            "type": "object",
            "properties": {
                "Checkpoint": {
                    "type": "object",
                    "properties": {
                        "Index": index(),
                        "Time": { "type": "integer", "description": "Unix nanoseconds." },
                        "Lag": { "type": "integer", "description": "Events known beyond it." },
                        "Epoch": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
                    },
                    "required": ["Index", "Time", "Lag", "Epoch"],
                },
            },
            "required": ["Checkpoint"],
        },
        "Ended": {
            "description": "Why the stream ends, where checkpoints were requested.",
            "type": "object",
            "properties": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "Code": { "type": "integer" },
                        "Message": { "type": "string" },
                    },
                    "required": ["Code", "Message"],
                },
            },
            "required": ["Error"],
        },
    });
    if let Value::Object(own) = own {
        all.extend(own);
    }
    all.into()
}

/// The schema of an event under a topic.
fn event(topic: Topic, generator: &mut SchemaGenerator) -> Value {
    let kinds = EventKind::ALL
        .iter()
        .filter(|kind| kind.own_topic() == Some(topic));
    let kinds: Vec<EventKind> = kinds.copied().collect();
    let (types, payload): (Vec<&str>, Value) = match row(topic, generator) {
        Some(payload) => (types(topic), payload),
        None => {
            let mut schemas: Vec<Value> = kinds
                .iter()
                .filter_map(|kind| Event::payload_schema(*kind, generator))
                .map(|schema| schema.to_value())
                .collect();
            if kinds.iter().any(|kind| kind.is_raft_own()) {
                schemas.push(json!({ "type": "null" }));
            }
            let types = kinds.iter().map(|kind| kind.name()).collect();
            (types, json!({ "anyOf": schemas }))
        }
    };
    json!({
        "type": "object",
        "properties": {
            "Topic": { "const": topic.name() },
            "Type": { "enum": types },
            "Key": { "type": "string", "description": "The object's id or name." },
            "Namespace": { "type": "string" },
            "FilterKeys": {
                "type": ["array", "null"],
                "items": { "type": "string" },
                "description": "By what else it may be selected: its job, its deployment, …",
            },
            "Index": { "type": "integer", "minimum": 1, "description": "The log's index." },
            "Payload": { "anyOf": [payload, { "type": "null" }] },
            "Unreadable": { "type": "string", "description": "Why there is no payload." },
        },
        "required": ["Topic", "Type", "Key", "Namespace", "FilterKeys", "Index", "Payload"],
    })
}

/// The types of events under a topic of Nomad's.
fn types(topic: Topic) -> Vec<&'static str> {
    let mut types: Vec<&str> = EventKind::ALL
        .iter()
        .filter_map(|kind| match kind.publication() {
            Publication::Event { event_type, topics } => {
                topics.contains(&topic).then_some(event_type)
            }
            Publication::Nothing => None,
        })
        .collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// The payload of a topic of Nomad's: a row, and for some more beside it.
fn row(topic: Topic, generator: &mut SchemaGenerator) -> Option<Value> {
    let (name, schema) = match topic {
        Topic::Job => ("Job", generator.subschema_for::<Job>()),
        Topic::Evaluation => ("Evaluation", generator.subschema_for::<Evaluation>()),
        Topic::Allocation => ("Allocation", generator.subschema_for::<Allocation>()),
        Topic::Deployment => ("Deployment", generator.subschema_for::<Deployment>()),
        Topic::Node => ("Node", generator.subschema_for::<Node>()),
        Topic::NodePool => ("NodePool", generator.subschema_for::<NodePool>()),
        Topic::Service => ("Service", generator.subschema_for::<ServiceRegistration>()),
        Topic::Variable => ("Metadata", generator.subschema_for::<VariableMetadata>()),
        Topic::AclToken => ("ACLToken", generator.subschema_for::<AclToken>()),
        Topic::AclPolicy => ("ACLPolicy", generator.subschema_for::<AclPolicy>()),
        Topic::AclRole => ("ACLRole", generator.subschema_for::<AclRole>()),
        Topic::AclAuthMethod => ("AuthMethod", generator.subschema_for::<AclAuthMethod>()),
        Topic::AclBindingRule => (
            "ACLBindingRule",
            generator.subschema_for::<AclBindingRule>(),
        ),
        Topic::HostVolume => ("Volume", generator.subschema_for::<HostVolume>()),
        Topic::CsiVolume => ("Volume", generator.subschema_for::<CsiVolume>()),
        Topic::CsiPlugin => ("Plugin", generator.subschema_for::<CsiPlugin>()),
        _ => return None,
    };
    let mut properties = json!({ name: schema.to_value() });
    let mut required = vec![name];
    let flag = json!({ "type": "boolean" });
    let more: &[(&str, Value)] = match topic {
        Topic::Job | Topic::Variable => &[("Deleted", flag)],
        Topic::Allocation => &[
            ("Timeout", flag),
            ("TimeoutReason", json!({ "type": "string" })),
        ],
        _ => &[],
    };
    for (name, schema) in more {
        properties[*name] = schema.clone();
        required.push(name);
    }
    Some(json!({ "type": "object", "properties": properties, "required": required }))
}
