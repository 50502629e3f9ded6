//! What changed between two versions of a row, field by field.
//!
//! Objects are compared by name, lists of named things by `Name` or `ID`, other lists by what was
//! taken from their front and added at their end. A row that comes or goes shows its fields that
//! say anything. Paths read `TaskGroups[web].Count`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cover::{is_covered, is_zero, uncover};

/// Lists longer than this are compared place by place.
const LONG: usize = 256;
/// What names the things in a list.
const NAMES: [&str; 2] = ["Name", "ID"];

/// A field that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Field {
    /// Where it is.
    pub path: String,
    /// What it was, its hash where that is sensitive; none where it was not there, or where what
    /// changed is secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it is now, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Whether what changed is not shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// The fields that changed, as many as the query wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// They, in the order of their paths.
    pub list: Vec<Field>,
    /// How many more there are.
    pub more: usize,
}

/// Compares two versions of a row, covered both; none where there is no such row.
pub(super) fn compare(before: Option<&Value>, after: Option<&Value>, limit: usize) -> Fields {
    let mut work = Work {
        limit,
        found: Fields::default(),
    };
    let empty = Map::new();
    let fields = |row: Option<&'_ Value>| row.and_then(Value::as_object).cloned();
    match (before, after) {
        (Some(before), Some(after)) => work.values("", before, after),
        (before, after) => {
            let before = fields(before).unwrap_or_else(|| empty.clone());
            let after = fields(after).unwrap_or(empty);
            work.objects("", &before, &after);
        }
    }
    work.found
}

struct Work {
    limit: usize,
    found: Fields,
}

impl Work {
    fn values(&mut self, path: &str, before: &Value, after: &Value) {
        if before == after {
            return;
        }
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => self.objects(path, before, after),
            (Value::Array(before), Value::Array(after)) => self.lists(path, before, after),
            _ => self.note(path, Some(before), Some(after)),
        }
    }

    fn objects(&mut self, path: &str, before: &Map<String, Value>, after: &Map<String, Value>) {
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (before, after) = (before.get(name), after.get(name));
            let path = join(path, name);
            self.either(&path, before, after);
        }
    }

    /// Compares what may be there on one side only; what says nothing counts as absent then.
    fn either(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(before), Some(after)) => self.values(path, before, after),
            (Some(one), None) | (None, Some(one)) if is_zero(one) => {}
            (before, after) => self.note(path, before, after),
        }
    }

    fn lists(&mut self, path: &str, before: &[Value], after: &[Value]) {
        for name in NAMES {
            if let (Some(before), Some(after)) = (by_name(before, name), by_name(after, name)) {
                let mut keys: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
                keys.sort_unstable();
                keys.dedup();
                for key in keys {
                    let (before, after) = (before.get(key), after.get(key));
                    self.either(&format!("{path}[{key}]"), before.copied(), after.copied());
                }
                return;
            }
        }
        let plain = |list: &[Value]| !list.iter().any(|item| item.is_object() || item.is_array());
        if plain(before) && plain(after) {
            let whole = |list: &[Value]| Value::from(list.to_vec());
            return self.note(path, Some(&whole(before)), Some(&whole(after)));
        }
        let shift = shift(before, after);
        for (at, item) in before.iter().enumerate().take(shift) {
            self.note(&format!("{path}[{at}]"), Some(item), None);
        }
        let kept = &before[shift..];
        for (at, (before, after)) in kept.iter().zip(after).enumerate() {
            self.values(&format!("{path}[{at}]"), before, after);
        }
        for (at, item) in kept.iter().enumerate().skip(after.len()) {
            self.note(&format!("{path}[{at}]"), Some(item), None);
        }
        for (at, item) in after.iter().enumerate().skip(kept.len()) {
            self.note(&format!("{path}[{at}]"), None, Some(item));
        }
    }

    fn note(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        let shown = |value: Option<&Value>| {
            value.map(|value| {
                let mut value = value.clone();
                uncover(&mut value);
                prune(&mut value);
                value
            })
        };
        let covered = [before, after].into_iter().flatten().any(is_covered);
        let (before, after) = (shown(before), shown(after));
        // Where both sides look the same, what differs is hidden in them.
        let secret = covered || before == after;
        self.push(Field {
            path: path.to_owned(),
            before: before.filter(|_| !secret),
            after: after.filter(|_| !secret),
            secret,
        });
    }

    fn push(&mut self, field: Field) {
        if self.found.list.len() < self.limit {
            self.found.list.push(field);
        } else {
            self.found.more += 1;
        }
    }
}

fn join(path: &str, name: &str) -> String {
    match (path, name.contains(['.', '[', ' '])) {
        ("", false) => name.to_owned(),
        (path, true) => format!("{path}[{name}]"),
        (path, false) => format!("{path}.{name}"),
    }
}

/// The things in a list by their names; none unless each has one of its own.
fn by_name<'a>(list: &'a [Value], name: &str) -> Option<BTreeMap<&'a str, &'a Value>> {
    let mut named = BTreeMap::new();
    for item in list {
        let key = item.get(name)?.as_str().filter(|key| !key.is_empty())?;
        if named.insert(key, item).is_some() {
            return None;
        }
    }
    Some(named)
}

/// How many things went from the front of a list while others may have come to its end.
fn shift(before: &[Value], after: &[Value]) -> usize {
    if before.len() > LONG || after.len() > LONG {
        return 0;
    }
    let kept = (0..before.len()).find(|from| after.starts_with(&before[*from..]));
    kept.unwrap_or(0)
}

/// Leaves out what says nothing inside an object.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !is_zero(value));
            fields.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::record::redact::REDACTED;
    use serde_json::json;

    fn changed_fields(before: Value, after: Value) -> Vec<String> {
        let side = |value: Value| Some(value).filter(|value| !value.is_null());
        let (before, after) = (side(before), side(after));
        let fields = compare(before.as_ref(), after.as_ref(), 100);
        let show = |field: &Field| {
            if field.secret {
                return format!("{}: secret", field.path);
            }
            let value = |value: &Option<Value>| {
                value
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), Value::to_string)
            };
            format!(
                "{}: {} -> {}",
                field.path,
                value(&field.before),
                value(&field.after)
            )
        };
        fields.list.iter().map(show).collect()
    }

    #[test]
    fn fields_are_named_by_what_they_belong_to() {
        let before = json!({"Status": "pending", "TaskGroups": [
            {"Name": "web", "Count": 1}, {"Name": "old", "Count": 2}], "Meta": {"a.b": "1"}});
        let after = json!({"Status": "running", "TaskGroups": [
            {"Name": "new", "Count": 0, "Tasks": []}, {"Name": "web", "Count": 3}],
            "Meta": {"a.b": "2", "c": ""}});
        assert_eq!(
            changed_fields(before, after),
            [
                r#"Meta[a.b]: "1" -> "2""#,
                r#"Status: "pending" -> "running""#,
                r#"TaskGroups[new]: - -> {"Name":"new"}"#,
                r#"TaskGroups[old]: {"Count":2,"Name":"old"} -> -"#,
                "TaskGroups[web].Count: 1 -> 3",
            ]
        );
    }

    #[test]
    fn a_row_that_comes_or_goes_shows_what_says_anything() {
        let row = json!({"ID": "x", "Empty": "", "Zero": 0, "In": {"A": null, "B": [1]}});
        assert_eq!(
            changed_fields(Value::Null, row.clone()),
            [r#"ID: - -> "x""#, r#"In: - -> {"B":[1]}"#]
        );
        assert_eq!(
            changed_fields(row.clone(), Value::Null),
            [r#"ID: "x" -> -"#, r#"In: {"B":[1]} -> -"#]
        );
        assert!(changed_fields(row.clone(), row).is_empty());
    }

    #[test]
    fn lists_that_grow_and_are_trimmed_show_only_that() {
        let event = |n: u32| json!({"Type": "Started", "Time": n});
        let list =
            |from: u32, to: u32| json!({"Events": (from..to).map(event).collect::<Vec<_>>()});
        assert_eq!(
            changed_fields(list(1, 3), list(2, 4)),
            [
                r#"Events[0]: {"Time":1,"Type":"Started"} -> -"#,
                r#"Events[1]: - -> {"Time":3,"Type":"Started"}"#,
            ]
        );
        assert_eq!(
            changed_fields(json!({"D": ["a"]}), json!({"D": ["a", "b"]})),
            [r#"D: ["a"] -> ["a","b"]"#]
        );
    }

    #[test]
    fn secrets_are_told_as_changed_and_never_shown() {
        let row = |secret: &str| json!({"ID": "x", "SecretID": secret});
        assert_eq!(
            changed_fields(row("\0old"), row("\0new")),
            ["SecretID: secret"]
        );
        assert!(changed_fields(row("\0old"), row("\0old")).is_empty());
        assert_eq!(changed_fields(row(""), row("\0new")), ["SecretID: secret"]);
        assert_eq!(
            changed_fields(Value::Null, json!({"Node": {"ID": "n", "SecretID": "\0s"}})),
            [format!(
                r#"Node: - -> {{"ID":"n","SecretID":"{REDACTED}"}}"#
            )]
        );
        assert_eq!(
            changed_fields(json!({}), json!({"Secrets": {"user": "\0s", "none": ""}})),
            ["Secrets: secret"]
        );
    }

    #[test]
    fn a_change_of_what_is_hidden_in_a_text_is_told_without_it() {
        let row = |user: &str, path: &str| json!({"Source": format!("a://\0{user}\0@h/{path}")});
        let shown = |path: &str| format!("\"a://{REDACTED}@h/{path}\"");
        assert_eq!(
            changed_fields(row("one", "x"), row("one", "y")),
            [format!("Source: {} -> {}", shown("x"), shown("y"))]
        );
        assert_eq!(
            changed_fields(row("one", "x"), row("two", "x")),
            ["Source: secret"]
        );
        assert!(changed_fields(row("one", "x"), row("one", "x")).is_empty());
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let row = json!({"A": 1, "B": 2, "C": 3});
        let fields = compare(None, Some(&row), 2);
        assert_eq!((fields.list.len(), fields.more), (2, 1));
    }
}
