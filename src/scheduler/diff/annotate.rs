//! What a change means for allocations, written beside the lines of a difference.

use drover_events::model::status::{DiffType, diff};
use drover_events::model::{DesiredUpdates, JobDiff, PlanAnnotations, TaskDiff, TaskGroupDiff};

const CREATE: &str = "forces create";
const DESTROY: &str = "forces destroy";
const IN_PLACE: &str = "forces in-place update";
const REPLACE: &str = "forces create/destroy update";

/// Objects of a task that can change while it runs.
const HARMLESS: [&str; 5] = ["LogConfig", "Service", "Constraint", "Affinity", "Action"];

/// Adds what the scheduler found, and what follows from the lines themselves.
pub fn annotate(diff: &mut JobDiff, found: &PlanAnnotations) {
    for group in diff.task_groups.iter_mut() {
        if let Some(updates) = found.desired_tg_updates.get(&group.name) {
            annotate_updates(group, updates);
        }
        annotate_count(group);
        let kind = group.kind();
        for task in group.tasks.iter_mut() {
            annotate_task(task, kind);
        }
    }
}

fn annotate_updates(group: &mut TaskGroupDiff, updates: &DesiredUpdates) {
    for (name, count) in [
        ("ignore", updates.ignore),
        ("create", updates.place),
        ("destroy", updates.stop),
        ("migrate", updates.migrate),
        ("canary", updates.canary),
        ("in-place update", updates.in_place_update),
        ("create/destroy update", updates.destructive_update),
        ("disconnect", updates.disconnect),
        ("reconnect", updates.reconnect),
        ("reschedule now", updates.reschedule_now),
        ("reschedule later", updates.reschedule_later),
    ] {
        if count > 0 {
            group.updates.insert(name, count);
        }
    }
}

fn annotate_count(group: &mut TaskGroupDiff) {
    let Some(field) = group.fields.iter_mut().find(|field| field.name == "Count") else {
        return;
    };
    let number = |text: &str| text.parse::<i64>().unwrap_or(0);
    let (old, new) = (number(&field.old), number(&field.new));
    if new > old {
        field.annotations.push(CREATE.to_owned());
    } else if new < old {
        field.annotations.push(DESTROY.to_owned());
    }
}

fn annotate_task(task: &mut TaskDiff, group: Option<DiffType>) {
    let annotation = match (group, task.kind()) {
        (_, Some(DiffType::None)) => return,
        (Some(DiffType::Added), _) => CREATE,
        (Some(DiffType::Deleted), _) => DESTROY,
        (_, Some(DiffType::Added | DiffType::Deleted)) => REPLACE,
        (Some(DiffType::None | DiffType::Edited) | None, Some(DiffType::Edited) | None) => {
            if replaces(task) {
                REPLACE
            } else {
                IN_PLACE
            }
        }
    };
    task.annotations.push(annotation.to_owned());
}

fn replaces(task: &TaskDiff) -> bool {
    let field = task
        .fields
        .iter()
        .any(|field| field.r#type != diff::NONE && field.name != "KillTimeout");
    let object = task
        .objects
        .iter()
        .any(|object| object.r#type != diff::NONE && !HARMLESS.contains(&object.name.as_str()));
    field || object
}
