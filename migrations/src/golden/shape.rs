//! The shape of a payload: every field of every struct in it, with its type.
//!
//! Frozen bytes show that what a sample holds is still written the same; the shape shows it of the
//! fields that no sample holds. A field that is gone, or has another type, needs a new version of
//! the kind. One that was added (they all have a default) needs a new feature level only.

use std::collections::BTreeMap;

use drover_events::{Event, EventKind};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

/// The shape of a kind's payload as it is now written: a line for each field, in order.
pub fn of(kind: EventKind) -> Vec<String> {
    shape(|generator| Event::payload_schema(kind, generator))
}

fn shape(root: impl FnOnce(&mut SchemaGenerator) -> Option<Schema>) -> Vec<String> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    if root(&mut generator).is_none() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (name, definition) in generator.take_definitions(true) {
        let fields = definition.get("properties").and_then(Value::as_object);
        match fields {
            Some(fields) => {
                let line = |(field, of): (&String, &Value)| format!("{name}.{field} {}", text(of));
                lines.extend(fields.iter().map(line));
            }
            None => lines.push(format!("{name} {}", text(&definition))),
        }
    }
    lines.sort();
    lines
}

/// A schema as text: without words, its keys in order.
fn text(schema: &Value) -> String {
    match schema {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields
                .iter()
                .filter(|(key, _)| *key != "description")
                .collect();
            let fields = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// What became of a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapeChange {
    /// Fields that are gone or have another type: a new version is needed.
    pub broken: Vec<String>,
    /// Fields that are new, or have their new type: a new feature level is needed.
    pub added: Vec<String>,
}

impl ShapeChange {
    /// From the shape that was frozen to the one that is written now.
    pub fn between(frozen: &[String], now: &[String]) -> Self {
        let missing = |from: &[String], other: &[String]| {
            from.iter()
                .filter(|line| !other.contains(line))
                .cloned()
                .collect()
        };
        Self {
            broken: missing(frozen, now),
            added: missing(now, frozen),
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::{List, Map};
    use drover_events::wire;

    use super::*;

    wire! {
        /// As it was.
        struct Before {
            id: String = "ID",
            count: i64 = "Count",
            inner: List<Inner> = "Inner",
        }

        /// Within both.
        struct Inner {
            meta: Map<String> = "Meta",
        }

        /// A field more.
        struct More {
            id: String = "ID",
            count: i64 = "Count",
            inner: List<Inner> = "Inner",
            note: String = "Note",
        }

        /// A field renamed, and one of another type.
        struct Other {
            identity: String = "Identity",
            count: String = "Count",
            inner: List<Deeper> = "Inner",
        }

        /// As `Inner`, with another type.
        struct Deeper {
            meta: Map<i64> = "Meta",
        }
    }

    /// The shape of a type under the name of the first.
    fn named<T: schemars::JsonSchema>(name: &str) -> Vec<String> {
        let lines = shape(|generator| Some(generator.subschema_for::<T>()));
        let plain = |line: String| line.replace(name, "Before").replace("Deeper", "Inner");
        lines.into_iter().map(plain).collect()
    }

    #[test]
    fn a_change_of_an_encoding_is_found_where_no_sample_has_the_field() {
        let before = named::<Before>("Before");
        assert_eq!(before.len(), 4, "{before:#?}");
        let same = ShapeChange::between(&before, &named::<Before>("Before"));
        assert_eq!(same, ShapeChange::default());

        let more = ShapeChange::between(&before, &named::<More>("More"));
        assert!(more.broken.is_empty(), "{more:#?}");
        assert_eq!(more.added.len(), 1);

        let other = ShapeChange::between(&before, &named::<Other>("Other"));
        for field in ["Before.ID", "Before.Count", "Inner.Meta"] {
            assert!(
                other.broken.iter().any(|line| line.starts_with(field)),
                "{other:#?}"
            );
        }
    }

    #[test]
    fn every_kind_has_a_shape_of_all_its_structs() {
        for kind in EventKind::ALL.iter().filter(|kind| !kind.is_raft_own()) {
            assert!(!of(*kind).is_empty(), "{kind}");
        }
        let job = of(EventKind::JobRegistered);
        for field in [
            "Job.ID ",
            "Task.Env ",
            "JobRegistered.Job ",
            "Template.EmbeddedTmpl ",
        ] {
            assert!(job.iter().any(|line| line.starts_with(field)), "{field}");
        }
    }
}
