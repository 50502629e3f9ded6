//! Plain fields: texts, numbers and switches, and maps of texts.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::FieldDiff;
use drover_events::model::status::diff;
use serde_json::Value;

use super::JsonObject;
use super::shape::DiffShape;

/// What happened to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffKind {
    /// Nothing.
    None,
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It is different.
    Edited,
}

impl DiffKind {
    /// By whether it was there and is there.
    pub(super) fn of(old: bool, new: bool) -> Self {
        match (old, new) {
            (false, true) => Self::Added,
            (true, false) => Self::Deleted,
            _ => Self::None,
        }
    }

    /// What was and is there may still be different.
    pub(super) fn or_edited(self, edited: bool) -> Self {
        if self == Self::None && edited {
            Self::Edited
        } else {
            self
        }
    }

    /// The word for it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::None => diff::NONE,
            Self::Added => diff::ADDED,
            Self::Deleted => diff::DELETED,
            Self::Edited => diff::EDITED,
        }
    }
}

/// The kind of a list or map; none if there is nothing to say.
pub(super) fn kind_of(old: bool, new: bool, differs: bool) -> Option<DiffKind> {
    match (old, new) {
        (false, false) => None,
        (true, true) if !differs => None,
        _ => Some(DiffKind::of(old, new).or_edited(true)),
    }
}

/// One line.
pub(super) fn field(kind: DiffKind, name: &str, old: &str, new: &str) -> FieldDiff {
    FieldDiff {
        r#type: kind.text().to_owned(),
        name: name.to_owned(),
        old: old.to_owned(),
        new: new.to_owned(),
        annotations: Default::default(),
    }
}

/// The plain fields of two objects, by name.
pub(super) fn fields(
    old: Option<&JsonObject>,
    new: Option<&JsonObject>,
    shape: &DiffShape,
    context: bool,
) -> Vec<FieldDiff> {
    compare(&plain(old, shape), &plain(new, shape), context)
}

fn plain(object: Option<&JsonObject>, shape: &DiffShape) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    for (name, value) in object.into_iter().flatten() {
        if shape.left_out.contains(&name.as_str()) {
            continue;
        }
        if let Some(text) = text_of(value) {
            flat.insert(name.clone(), text);
        } else if shape.maps.contains(&name.as_str()) {
            for (key, value) in value.as_object().into_iter().flatten() {
                flat.insert(format!("{name}[{key}]"), text_of(value).unwrap_or_default());
            }
        }
    }
    if object.is_some() {
        for (name, text) in shape.absent {
            flat.entry((*name).to_owned())
                .or_insert_with(|| (*text).to_owned());
        }
    }
    flat
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Line by line; equal ones are listed with `context` only.
pub(super) fn compare(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    context: bool,
) -> Vec<FieldDiff> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let lines = names.into_iter().filter_map(|name| {
        let was = old.get(name).map_or("", String::as_str);
        let is = new.get(name).map_or("", String::as_str);
        let kind = if was == is {
            DiffKind::None
        } else {
            DiffKind::of(!was.is_empty(), !is.is_empty()).or_edited(true)
        };
        (kind != DiffKind::None || context).then(|| field(kind, name, was, is))
    });
    lines.collect()
}

/// Every leaf of a value by its way: `args[0]`, `mount[0][target]`, `port_map[db]`.
pub(super) fn flatten(value: Option<&Value>) -> BTreeMap<String, String> {
    fn walk(prefix: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let name = if prefix.is_empty() {
                        key.clone()
                    } else {
                        format!("{prefix}[{key}]")
                    };
                    walk(&name, value, flat);
                }
            }
            Value::Array(list) => {
                for (i, value) in list.iter().enumerate() {
                    walk(&format!("{prefix}[{i}]"), value, flat);
                }
            }
            plain => {
                flat.insert(prefix.to_owned(), text_of(plain).unwrap_or_default());
            }
        }
    }
    let mut flat = BTreeMap::new();
    if let Some(value) = value {
        walk("", value, &mut flat);
    }
    flat
}
