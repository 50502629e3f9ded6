//! The difference between two versions of a job, as `job plan` and the list of versions show it.
//!
//! It works on the JSON form of the model, so a new field of a job shows up by itself. What is not
//! plain (which fields are shown although they are empty, what things are called, what belongs
//! together) is in the tables of `shape.rs`.
//!
//! It must not know: evaluations, the state. What a change means for allocations is added by
//! [`annotate`].

mod annotate;
mod fields;
mod shape;

pub use annotate::annotate;

use std::collections::BTreeMap;

use drover_events::model::{Job, JobDiff, ObjectDiff, TaskDiff, TaskGroupDiff};
use serde_json::Value;

use fields::{DiffKind, fields, kind_of};

type JsonObject = serde_json::Map<String, Value>;

/// What differs between two versions; `None` is a job that is not there. With `context`, fields
/// that did not change are listed as well.
pub fn job_diff(old: Option<&Job>, new: Option<&Job>, context: bool) -> JobDiff {
    let (old_value, new_value) = (old.map(value_of), new.map(value_of));
    let (old_object, new_object) = (object(old_value.as_ref()), object(new_value.as_ref()));
    let kind = DiffKind::of(old.is_some(), new.is_some());
    let fields = fields(old_object, new_object, &shape::JOB, context);
    let objects = objects(old_object, new_object, &shape::JOB, context);
    let groups = groups(old_object, new_object, context);
    let edited = [
        fields.iter().any(|f| f.r#type != DiffKind::None.text()),
        objects.iter().any(|o| o.r#type != DiffKind::None.text()),
        groups.iter().any(|g| g.r#type != DiffKind::None.text()),
    ];
    JobDiff {
        r#type: kind.or_edited(edited.contains(&true)).text().to_owned(),
        id: new.or(old).map(|job| job.id.clone()).unwrap_or_default(),
        fields: nil_if_empty(fields),
        objects: nil_if_empty(objects),
        task_groups: nil_if_empty(groups),
    }
}

fn nil_if_empty<T>(list: Vec<T>) -> drover_events::gojson::List<T> {
    if list.is_empty() {
        Default::default()
    } else {
        list.into()
    }
}

fn value_of(job: &Job) -> Value {
    serde_json::to_value(job).unwrap_or(Value::Null)
}

fn object(value: Option<&Value>) -> Option<&JsonObject> {
    value.and_then(Value::as_object)
}

fn by_name<'a>(of: Option<&'a JsonObject>, key: &str) -> BTreeMap<&'a str, &'a JsonObject> {
    let list = of.and_then(|o| o.get(key)).and_then(Value::as_array);
    let named = list.into_iter().flatten().filter_map(|item| {
        let item = item.as_object()?;
        Some((item.get("Name")?.as_str()?, item))
    });
    named.collect()
}

fn groups(old: Option<&JsonObject>, new: Option<&JsonObject>, context: bool) -> Vec<TaskGroupDiff> {
    let (old, new) = (by_name(old, "TaskGroups"), by_name(new, "TaskGroups"));
    let names: std::collections::BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let pairs = names
        .into_iter()
        .map(|name| (name, old.get(name), new.get(name)));
    pairs
        .map(|(name, old, new)| {
            let (old, new) = (old.copied(), new.copied());
            let fields = fields(old, new, &shape::GROUP, context);
            let objects = objects(old, new, &shape::GROUP, context);
            let tasks = tasks(old, new, context);
            let edited = fields.iter().any(|f| f.r#type != DiffKind::None.text())
                || objects.iter().any(|o| o.r#type != DiffKind::None.text())
                || tasks.iter().any(|t| t.r#type != DiffKind::None.text());
            let kind = DiffKind::of(old.is_some(), new.is_some()).or_edited(edited);
            TaskGroupDiff {
                r#type: kind.text().to_owned(),
                name: name.to_owned(),
                fields: nil_if_empty(fields),
                objects: nil_if_empty(objects),
                tasks: nil_if_empty(tasks),
                updates: Default::default(),
            }
        })
        .collect()
}

fn tasks(old: Option<&JsonObject>, new: Option<&JsonObject>, context: bool) -> Vec<TaskDiff> {
    let (old, new) = (by_name(old, "Tasks"), by_name(new, "Tasks"));
    let names: std::collections::BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let pairs = names
        .into_iter()
        .map(|name| (name, old.get(name), new.get(name)));
    pairs
        .map(|(name, old, new)| {
            let (old, new) = (old.copied(), new.copied());
            let fields = fields(old, new, &shape::TASK, context);
            let objects = objects(old, new, &shape::TASK, context);
            let edited = fields.iter().any(|f| f.r#type != DiffKind::None.text())
                || objects.iter().any(|o| o.r#type != DiffKind::None.text());
            let kind = DiffKind::of(old.is_some(), new.is_some()).or_edited(edited);
            TaskDiff {
                r#type: kind.text().to_owned(),
                name: name.to_owned(),
                fields: nil_if_empty(fields),
                objects: nil_if_empty(objects),
                annotations: Default::default(),
            }
        })
        .collect()
}

/// The objects inside two objects that differ, in the order of the shape's table.
fn objects(
    old: Option<&JsonObject>,
    new: Option<&JsonObject>,
    shape: &shape::DiffShape,
    context: bool,
) -> Vec<ObjectDiff> {
    let mut diffs = Vec::new();
    for part in shape.objects {
        let old = old.and_then(|o| o.get(part.key)).filter(|v| !v.is_null());
        let new = new.and_then(|o| o.get(part.key)).filter(|v| !v.is_null());
        match part.holds {
            shape::Holds::One => diffs.extend(one(object(old), object(new), part, context)),
            shape::Holds::Strings => diffs.extend(strings(old, new, part, context)),
            shape::Holds::Set => diffs.extend(set(old, new, part, context)),
            shape::Holds::Named => diffs.extend(named(old, new, part, context)),
            shape::Holds::Free => diffs.extend(free(old, new, part, context)),
        }
    }
    diffs
}

fn one(
    old: Option<&JsonObject>,
    new: Option<&JsonObject>,
    part: &shape::DiffPart,
    context: bool,
) -> Option<ObjectDiff> {
    if old == new {
        return None;
    }
    let context = context || part.lists_unchanged;
    Some(ObjectDiff {
        r#type: DiffKind::of(old.is_some(), new.is_some())
            .or_edited(true)
            .text()
            .to_owned(),
        name: part.name.to_owned(),
        fields: nil_if_empty(fields(old, new, part.shape, context)),
        objects: nil_if_empty(objects(old, new, part.shape, context)),
    })
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// A set of words: each that came or went is a field of the set's name.
fn strings(
    old: Option<&Value>,
    new: Option<&Value>,
    part: &shape::DiffPart,
    context: bool,
) -> Option<ObjectDiff> {
    let (old, new) = (texts(old), texts(new));
    let kind = kind_of(!old.is_empty(), !new.is_empty(), old != new)?;
    let mut fields = Vec::new();
    let line = |kind: DiffKind, old: &str, new: &str| fields::field(kind, part.name, old, new);
    for word in new.iter().filter(|word| !old.contains(word)) {
        fields.push(line(DiffKind::Added, "", word));
    }
    for word in old.iter().filter(|word| !new.contains(word)) {
        fields.push(line(DiffKind::Deleted, word, ""));
    }
    if context {
        for word in new.iter().filter(|word| old.contains(word)) {
            fields.push(line(DiffKind::None, word, word));
        }
    }
    if fields.is_empty() {
        return None;
    }
    fields.sort_by(|a, b| (&a.old, &a.new).cmp(&(&b.old, &b.new)));
    Some(ObjectDiff {
        r#type: kind.text().to_owned(),
        name: part.name.to_owned(),
        fields: fields.into(),
        objects: Default::default(),
    })
}

fn list(value: Option<&Value>) -> Vec<&JsonObject> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_object).collect()
}

/// Things without a name: one that changed is one that went and one that came.
fn set(
    old: Option<&Value>,
    new: Option<&Value>,
    part: &shape::DiffPart,
    context: bool,
) -> Vec<ObjectDiff> {
    let (old, new) = (list(old), list(new));
    let came = new.iter().filter(|item| !old.contains(item));
    let went = old.iter().filter(|item| !new.contains(item));
    let came = came.filter_map(|item| one(None, Some(item), part, context));
    came.chain(went.filter_map(|item| one(Some(item), None, part, context)))
        .collect()
}

/// Things with a name.
fn named(
    old: Option<&Value>,
    new: Option<&Value>,
    part: &shape::DiffPart,
    context: bool,
) -> Vec<ObjectDiff> {
    let key = |item: &JsonObject| -> String {
        item.get("Name").map(Value::to_string).unwrap_or_default()
    };
    let of = |value: Option<&'_ Value>| -> BTreeMap<String, JsonObject> {
        match value {
            Some(Value::Object(map)) => map
                .iter()
                .filter_map(|(name, item)| Some((name.clone(), item.as_object()?.clone())))
                .collect(),
            other => list(other)
                .into_iter()
                .map(|item| (key(item), item.clone()))
                .collect(),
        }
    };
    let (old, new) = (of(old), of(new));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| one(old.get(name), new.get(name), part, context))
        .collect()
}

/// Whatever a driver takes as its configuration: every leaf is a field named by its way.
fn free(
    old: Option<&Value>,
    new: Option<&Value>,
    part: &shape::DiffPart,
    context: bool,
) -> Option<ObjectDiff> {
    if old == new {
        return None;
    }
    let (old, new) = (fields::flatten(old), fields::flatten(new));
    let kind = kind_of(!old.is_empty(), !new.is_empty(), true)?;
    Some(ObjectDiff {
        r#type: kind.text().to_owned(),
        name: part.name.to_owned(),
        fields: nil_if_empty(fields::compare(&old, &new, context || part.lists_unchanged)),
        objects: Default::default(),
    })
}

#[cfg(test)]
#[path = "diff_test.rs"]
mod tests;
