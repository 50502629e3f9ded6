//! How events and what they changed are printed for people.

use super::log_events;
use super::show::{boolean, list, number, text};
use drover_events::Actor;
use serde_json::Value as Json;

/// Longer values are cut, unless everything is asked for.
const WIDE: usize = 100;
/// Fields that change with every write and say nothing new.
const NOISE: [&str; 5] = [
    "ModifyIndex",
    "ModifyTime",
    "JobModifyIndex",
    "AllocModifyIndex",
    "CreateIndex",
];

/// An actor in a few words.
pub(super) fn who(event: &Json) -> String {
    let actor: Option<Actor> = serde_json::from_value(event["Actor"].clone()).ok();
    actor.map_or_else(|| "raft".to_owned(), |actor| log_events::who(&actor))
}

/// A changed row: what happened to it, and its fields below, indented.
pub(super) fn row(change: &Json, verbose: bool, indent: &str) -> Vec<String> {
    let key: Vec<&str> = list(change, "Key")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    let place = match key.is_empty() {
        true => text(change, "Namespace"),
        false => key.join("/"),
    };
    let table = text(change, "Table");
    let mut lines = vec![format!("{indent}{} {table} {place}", verb(change))];
    for field in list(change, "Fields") {
        let path = text(field, "Path");
        if !verbose && NOISE.contains(&path.as_str()) {
            continue;
        }
        lines.push(format!("{indent}    {}", one(field, &path, verbose)));
    }
    match number(change, "MoreFields") {
        0 => {}
        more => lines.push(format!("{indent}    and {more} more fields")),
    }
    lines
}

fn verb(change: &Json) -> &'static str {
    match text(change, "Operation").as_str() {
        "insert" => "+",
        "delete" => "-",
        "rule" => "- by rule:",
        _ => "~",
    }
}

fn one(field: &Json, path: &str, verbose: bool) -> String {
    if boolean(field, "Secret") {
        return format!("{path}: changed (secret)");
    }
    let side = |name: &str| match &field[name] {
        Json::Null => None,
        Json::String(text) => Some(cut(format!("{text:?}"), verbose)),
        other => Some(cut(other.to_string(), verbose)),
    };
    match (side("Before"), side("After")) {
        (None, Some(after)) => format!("{path}: {after}"),
        (Some(before), None) => format!("{path}: {before} -> none"),
        (Some(before), Some(after)) => format!("{path}: {before} -> {after}"),
        (None, None) => format!("{path}: changed"),
    }
}

fn cut(text: String, verbose: bool) -> String {
    if verbose || text.chars().count() <= WIDE {
        return text;
    }
    let head: String = text.chars().take(WIDE).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_is_told_without_noise() {
        let change = json!({
            "Table": "jobs", "Key": ["default", "web"], "Operation": "update",
            "Fields": [
                {"Path": "ModifyIndex", "Before": 1, "After": 2},
                {"Path": "Status", "Before": "pending", "After": "running"},
                {"Path": "SecretID", "Secret": true},
                {"Path": "Meta", "After": {"a": "x".repeat(200)}},
                {"Path": "Stop", "Before": true},
            ],
            "MoreFields": 3,
        });
        let lines = row(&change, false, "  ");
        assert_eq!(lines[0], "  ~ jobs default/web");
        assert_eq!(lines[1], r#"      Status: "pending" -> "running""#);
        assert_eq!(lines[2], "      SecretID: changed (secret)");
        assert!(lines[3].ends_with("xxx..."), "{}", lines[3]);
        assert_eq!(lines[4], "      Stop: true -> none");
        assert_eq!(lines[5], "      and 3 more fields");
        assert!(row(&change, true, "")[1].contains("ModifyIndex"));
    }
}
