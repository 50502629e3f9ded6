//! The difference between two specifications of a job, in lines.

use super::super::show::{number, text};
use drover_events::model::status::{DiffType, diff as kinds};
use serde_json::Value as Json;

fn marker(kind: &str) -> &'static str {
    match DiffType::of(kind) {
        Some(DiffType::Added) => "+   ",
        Some(DiffType::Deleted) => "-   ",
        Some(DiffType::Edited) => "+/- ",
        Some(DiffType::None) | None => "    ",
    }
}

/// What is different, group by group and task by task; `annotations` say what a plan makes of it.
pub(super) fn job_diff(diff: &Json, annotations: &Json, verbose: bool) -> String {
    let mut lines = vec![format!(
        "{}Job: {:?}",
        marker(&text(diff, "Type")),
        text(diff, "ID")
    )];
    let kind = text(diff, "Type");
    if kind == kinds::EDITED || verbose {
        fields(diff, 0, verbose, &mut lines);
    }
    for group in diff["TaskGroups"].as_array().into_iter().flatten() {
        if annotations.is_null() && text(group, "Type") == kinds::NONE && !verbose {
            continue;
        }
        let updates = &annotations["DesiredTGUpdates"][text(group, "Name")];
        group_diff(group, updates, verbose, &mut lines);
    }
    lines.join("\n")
}

fn group_diff(diff: &Json, updates: &Json, verbose: bool, lines: &mut Vec<String>) {
    let names = [
        ("Place", "create"),
        ("Stop", "destroy"),
        ("Migrate", "migrate"),
        ("Canary", "canary"),
        ("InPlaceUpdate", "in-place update"),
        ("DestructiveUpdate", "create/destroy update"),
        ("Ignore", "ignore"),
    ];
    let said: Vec<String> = match diff["Updates"].as_object().filter(|u| !u.is_empty()) {
        Some(map) => map.iter().map(|(k, n)| format!("{n} {k}")).collect(),
        None => names
            .iter()
            .filter(|(k, _)| number(updates, k) > 0)
            .map(|(k, name)| format!("{} {name}", number(updates, k)))
            .collect(),
    };
    let said = in_brackets(&said);
    lines.push(format!(
        "{}Task Group: {:?}{said}",
        marker(&text(diff, "Type")),
        text(diff, "Name")
    ));
    if text(diff, "Type") == kinds::EDITED || verbose {
        fields(diff, 2, verbose, lines);
    }
    for task in diff["Tasks"].as_array().into_iter().flatten() {
        let notes = notes(task);
        let kind = text(task, "Type");
        if kind == kinds::NONE && !verbose {
            continue;
        }
        lines.push(format!(
            "  {}Task: {:?}{notes}",
            marker(&kind),
            text(task, "Name")
        ));
        if kind == kinds::EDITED || verbose {
            fields(task, 4, verbose, lines);
        }
    }
}

/// What a plan makes of a task or of a field.
fn notes(of: &Json) -> String {
    let notes = of["Annotations"].as_array().into_iter().flatten();
    let notes = notes.filter_map(Json::as_str).map(str::to_owned);
    in_brackets(&notes.collect::<Vec<_>>())
}

fn in_brackets(words: &[String]) -> String {
    match words {
        [] => String::new(),
        words => format!(" ({})", words.join(", ")),
    }
}

fn fields(diff: &Json, indent: usize, verbose: bool, lines: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    let shown: Vec<&Json> = diff["Fields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|f| verbose || text(f, "Type") != kinds::NONE)
        .collect();
    let width = shown
        .iter()
        .map(|f| text(f, "Name").len())
        .max()
        .unwrap_or(0)
        + 1;
    for field in shown {
        let (kind, name) = (text(field, "Type"), text(field, "Name") + ":");
        let (old, new) = (text(field, "Old"), text(field, "New"));
        let value = match DiffType::of(&kind) {
            Some(DiffType::Added | DiffType::None) | None => format!("{new:?}"),
            Some(DiffType::Deleted) => format!("{old:?}"),
            Some(DiffType::Edited) => format!("{old:?} => {new:?}"),
        };
        let notes = notes(field);
        lines.push(format!(
            "{pad}{}{name:<width$} {value}{notes}",
            marker(&kind)
        ));
    }
    for object in diff["Objects"].as_array().into_iter().flatten() {
        let kind = text(object, "Type");
        if kind == kinds::NONE && !verbose {
            continue;
        }
        lines.push(format!("{pad}{}{} {{", marker(&kind), text(object, "Name")));
        if indent < 40 {
            fields(object, indent + 2, verbose, lines);
        }
        lines.push(format!("{pad}    }}"));
    }
}
