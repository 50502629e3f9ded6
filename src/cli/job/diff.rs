//! The difference between two specifications of a job, in lines.

use drover_events::model::status::{self, DiffType};
use drover_events::model::{
    DesiredUpdates, FieldDiff, JobDiff, ObjectDiff, PlanAnnotations, TaskGroupDiff,
};

/// The indent at which objects are no longer followed.
const DEEPEST: usize = 40;

fn marker(kind: &str) -> &'static str {
    match DiffType::of(kind) {
        Some(DiffType::Added) => "+   ",
        Some(DiffType::Deleted) => "-   ",
        Some(DiffType::Edited) => "+/- ",
        Some(DiffType::None) | None => "    ",
    }
}

/// What is different, group by group and task by task; `annotations` say what a plan makes of it.
pub(super) fn job_diff(
    diff: &JobDiff,
    annotations: Option<&PlanAnnotations>,
    verbose: bool,
) -> String {
    let kind = diff.r#type.as_str();
    let mut lines = vec![format!("{}Job: {:?}", marker(kind), diff.id)];
    if kind == status::diff::EDITED || verbose {
        fields((&diff.fields, &diff.objects), 0, verbose, &mut lines);
    }
    for group in &diff.task_groups {
        if annotations.is_none() && group.r#type == status::diff::NONE && !verbose {
            continue;
        }
        let updates = annotations.and_then(|notes| notes.desired_tg_updates.get(&group.name));
        group_diff(group, updates, verbose, &mut lines);
    }
    lines.join("\n")
}

/// What a plan does to a group, in counts.
fn planned(updates: &DesiredUpdates) -> Vec<String> {
    let counts = [
        (updates.place, "create"),
        (updates.stop, "destroy"),
        (updates.migrate, "migrate"),
        (updates.canary, "canary"),
        (updates.in_place_update, "in-place update"),
        (updates.destructive_update, "create/destroy update"),
        (updates.ignore, "ignore"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts
        .map(|(count, name)| format!("{count} {name}"))
        .collect()
}

fn group_diff(
    diff: &TaskGroupDiff,
    updates: Option<&DesiredUpdates>,
    verbose: bool,
    lines: &mut Vec<String>,
) {
    let plan_counts: Vec<String> = match diff.updates.is_empty() {
        false => diff
            .updates
            .iter()
            .map(|(k, n)| format!("{n} {k}"))
            .collect(),
        true => updates.map(planned).unwrap_or_default(),
    };
    let (kind, plan_counts) = (diff.r#type.as_str(), in_brackets(&plan_counts));
    lines.push(format!(
        "{}Task Group: {:?}{plan_counts}",
        marker(kind),
        diff.name
    ));
    if kind == status::diff::EDITED || verbose {
        fields((&diff.fields, &diff.objects), 2, verbose, lines);
    }
    for task in &diff.tasks {
        let kind = task.r#type.as_str();
        if kind == status::diff::NONE && !verbose {
            continue;
        }
        let notes = in_brackets(&task.annotations);
        lines.push(format!("  {}Task: {:?}{notes}", marker(kind), task.name));
        if kind == status::diff::EDITED || verbose {
            fields((&task.fields, &task.objects), 4, verbose, lines);
        }
    }
}

fn in_brackets(notes: &[String]) -> String {
    match notes {
        [] => String::new(),
        notes => format!(" ({})", notes.join(", ")),
    }
}

fn fields(
    (fields_of, objects): (&[FieldDiff], &[ObjectDiff]),
    indent: usize,
    verbose: bool,
    lines: &mut Vec<String>,
) {
    let pad = " ".repeat(indent);
    let shown = || {
        let all = fields_of.iter();
        all.filter(|field| verbose || field.r#type != status::diff::NONE)
    };
    let width = shown().map(|field| field.name.len()).max().unwrap_or(0) + 1;
    for field in shown() {
        let (kind, name) = (field.r#type.as_str(), format!("{}:", field.name));
        let (old, new) = (&field.old, &field.new);
        let value = match DiffType::of(kind) {
            Some(DiffType::Added | DiffType::None) | None => format!("{new:?}"),
            Some(DiffType::Deleted) => format!("{old:?}"),
            Some(DiffType::Edited) => format!("{old:?} => {new:?}"),
        };
        // What a plan makes of the field.
        let notes = in_brackets(&field.annotations);
        lines.push(format!(
            "{pad}{}{name:<width$} {value}{notes}",
            marker(kind)
        ));
    }
    for object in objects {
        let kind = object.r#type.as_str();
        if kind == status::diff::NONE && !verbose {
            continue;
        }
        lines.push(format!("{pad}{}{} {{", marker(kind), object.name));
        // Objects of a job nest a few levels: what lies deeper is of no job, and must not exhaust
        // the stack.
        if indent < DEEPEST {
            fields(
                (&object.fields, &object.objects),
                indent + 2,
                verbose,
                lines,
            );
        }
        lines.push(format!("{pad}    }}"));
    }
}
