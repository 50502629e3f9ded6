//! JSON Schemas of what is written: the value types of this module, and structs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    Base64, DurationNanos, DurationText, DurationTextOrEmpty, GoTime, List, Map, Time, duration,
};

/// One field of a struct's schema.
pub struct Property {
    /// The name on the wire.
    pub name: &'static str,
    /// What it is, in words.
    pub doc: &'static str,
    /// Whether it is left out when empty.
    pub omitted: bool,
    /// The schema of its value.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// The schema of a struct that is written with these fields.
pub fn object(generator: &mut SchemaGenerator, doc: &str, properties: &[Property]) -> Schema {
    let mut schema = json_schema!({ "type": "object" });
    describe(&mut schema, doc);
    let mut fields = serde_json::Map::new();
    let mut required = Vec::new();
    for property in properties {
        let mut field = (property.schema)(generator);
        describe(&mut field, property.doc);
        fields.insert(property.name.to_owned(), field.to_value());
        if !property.omitted {
            required.push(property.name);
        }
    }
    schema.insert("properties".to_owned(), fields.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

/// Adds words to a schema.
fn describe(schema: &mut Schema, doc: &str) {
    let lines: Vec<&str> = doc.lines().map(str::trim).collect();
    let text = lines.join("\n");
    if !text.trim().is_empty() {
        schema.insert("description".to_owned(), text.trim().into());
    }
}

macro_rules! inline {
    ($($type:ty, $name:literal: |$generator:ident| $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

inline! {
    Time, "Time": |_generator| json_schema!({ "type": ["string", "null"], "format": "date-time" });
    GoTime, "GoTime": |_generator| json_schema!({ "type": "string", "format": "date-time" });
    DurationText, "Duration": |_generator| duration_text(duration::PATTERN);
    DurationTextOrEmpty, "DurationOrEmpty": |_generator| {
        duration_text(&format!("^$|{}", duration::PATTERN))
    };
    DurationNanos, "DurationIn": |_generator| {
        json_schema!({ "type": "integer", "format": "int64" })
    };
    Base64, "Base64": |_generator| {
        json_schema!({ "type": ["string", "null"], "contentEncoding": "base64" })
    };
}

fn duration_text(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern })
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": ["array", "null"], "items": items })
    }
}

impl<V: JsonSchema> JsonSchema for Map<V> {
    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", V::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let values = generator.subschema_for::<V>();
        json_schema!({ "type": ["object", "null"], "additionalProperties": values })
    }
}
