//! Jobs in the API's JSON form: names in any case, fields that are unknown or dropped named, `null`
//! as "not set", wrong types refused with the field's path; and the full form with every field, as
//! the parse route answers.

use super::duration;
use drover_events::field::{Field, Kind, Shape};
use drover_events::gojson::{Says, Unknown};
use serde_json::{Map, Value as Json};

/// A field that holds what it cannot hold.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("field {path}: expected {expected} but found {found}")]
pub struct FieldError {
    /// From the job down, e.g. `Job.TaskGroups[0].Count`.
    pub path: String,
    /// What it holds by its type.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

impl FieldError {
    /// Puts the step that leads to the field before its path.
    pub(super) fn under(mut self, step: impl FnOnce() -> String) -> Self {
        self.path.insert_str(0, &step());
        self
    }
}

/// Reads an object by its shape; only what was set is kept, under the proper names. Values are
/// moved, not copied.
///
/// # Errors
/// The first field of the wrong type; the path begins below the object.
pub(super) fn read(
    shape: &'static Shape,
    json: Json,
    unknown: &mut Unknown,
) -> Result<Map<String, Json>, FieldError> {
    let Json::Object(map) = json else {
        return Err(wrong("an object", &json));
    };
    let mut out = Map::new();
    for (key, value) in map {
        let Some(field) = shape.json(&key).filter(|f| !f.is_internal()) else {
            if Says::anything(&value) {
                unknown.add(&key);
            }
            continue;
        };
        if value.is_null() || (key != field.json && out.contains_key(field.json)) {
            continue;
        }
        if !field.kept && Says::anything(&value) {
            unknown.add(field.json);
        }
        let step = || format!(".{}", field.json);
        let value = unknown
            .under(step, |unknown| convert(field, value, unknown))
            .map_err(|error| error.under(step))?;
        let key = if key == field.json {
            key
        } else {
            field.json.to_owned()
        };
        out.insert(key, value);
    }
    Ok(out)
}

fn wrong(expected: &'static str, found: &Json) -> FieldError {
    let found = match found {
        Json::Null => "null".to_owned(),
        Json::Bool(_) => "a bool".to_owned(),
        Json::Number(n) => format!("number {n}"),
        Json::String(_) => "a string".to_owned(),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    };
    FieldError {
        path: String::new(),
        expected,
        found,
    }
}

fn convert(field: &Field, json: Json, unknown: &mut Unknown) -> Result<Json, FieldError> {
    let expected = match field.kind {
        Kind::Str { .. } if !json.is_string() => "a string",
        Kind::Bool { .. } if !json.is_boolean() => "a bool",
        Kind::AnyMap if !json.is_object() => "a map",
        Kind::Json | Kind::Str { .. } | Kind::Bool { .. } | Kind::AnyMap => return Ok(json),
        Kind::Int { min, max, .. } => match whole(&json) {
            Some(n) if (min..=max).contains(&n) => return Ok(json),
            Some(_) => "a number within its range",
            None => "a whole number",
        },
        Kind::Dur { .. } => match &json {
            Json::String(text) => match duration::parse(text) {
                Ok(ns) => return Ok(Json::from(ns)),
                Err(_) => "a duration",
            },
            _ => match whole(&json).and_then(|n| i64::try_from(n).ok()) {
                Some(ns) => return Ok(Json::from(ns)),
                None => "a duration in nanoseconds",
            },
        },
        Kind::Strs => match texts(&json) {
            Some(texts) => return Ok(texts),
            None => "a list of strings",
        },
        Kind::Ports => match json.as_array() {
            Some(items) if items.iter().all(is_port) => return Ok(json),
            _ => "a list of ports",
        },
        Kind::StrMap => match json.as_object() {
            Some(map) if map.values().all(|v| v.is_string() || v.is_null()) => {
                return Ok(text_map(json));
            }
            _ => "a map of strings",
        },
        Kind::StrsMap => match json.as_object() {
            Some(map) if map.values().all(|v| texts(v).is_some()) => return Ok(json),
            _ => "a map of lists of strings",
        },
        _ => return nested(field.kind, json, unknown),
    };
    Err(wrong(expected, &json))
}

fn is_port(json: &Json) -> bool {
    whole(json).is_some_and(|n| (0..=65_535).contains(&n))
}

/// A map of texts in which `null` is the empty text.
fn text_map(json: Json) -> Json {
    let Json::Object(mut map) = json else {
        return json;
    };
    for value in map.values_mut().filter(|value| value.is_null()) {
        *value = Json::String(String::new());
    }
    Json::Object(map)
}

/// Objects, and lists and maps of them.
fn nested(kind: Kind, json: Json, unknown: &mut Unknown) -> Result<Json, FieldError> {
    match (kind, json) {
        (Kind::One(s) | Kind::Omit(s), json) => read(s, json, unknown).map(Json::Object),
        (Kind::Many(s) | Kind::Labelled(s, _), Json::Array(items)) => {
            let each = |(i, v): (usize, Json)| {
                let step = || format!("[{i}]");
                let read = unknown.under(step, |unknown| read(s, v, unknown));
                read.map(Json::Object).map_err(|error| error.under(step))
            };
            let present = items.into_iter().enumerate().filter(|(_, v)| !v.is_null());
            present.map(each).collect::<Result<_, _>>().map(Json::Array)
        }
        (Kind::ByLabel(s, _), Json::Object(map)) => {
            let mut out = Map::new();
            for (key, value) in map.into_iter().filter(|(_, v)| !v.is_null()) {
                let step = || format!("[{key:?}]");
                let value = unknown
                    .under(step, |unknown| read(s, value, unknown))
                    .map_err(|error| error.under(step))?;
                out.insert(key, Json::Object(value));
            }
            Ok(Json::Object(out))
        }
        (Kind::ByLabel(..), json) => Err(wrong("a map", &json)),
        (_, json) => Err(wrong("a list", &json)),
    }
}

fn whole(json: &Json) -> Option<i128> {
    let n = json.as_number()?;
    n.as_i64()
        .map(i128::from)
        .or_else(|| n.as_u64().map(i128::from))
}

fn texts(json: &Json) -> Option<Json> {
    let items = json.as_array()?;
    let text = |v: &Json| match v {
        Json::Null => Some(Json::String(String::new())),
        Json::String(_) => Some(v.clone()),
        _ => None,
    };
    items
        .iter()
        .map(text)
        .collect::<Option<_>>()
        .map(Json::Array)
}

/// The full form as the official client writes it: every field that its types have, unset ones
/// `null` or zero.
pub(super) fn full(shape: &'static Shape, set: &Map<String, Json>) -> Json {
    let mut out = Map::new();
    let shown = |f: &&Field| f.shown && !f.is_internal();
    for field in shape.fields.iter().filter(shown) {
        match (set.get(field.json), field.kind) {
            (None, Kind::Omit(_)) => {}
            (value, kind) => {
                out.insert(field.json.to_owned(), full_value(kind, value));
            }
        }
    }
    Json::Object(out)
}

fn full_value(kind: Kind, value: Option<&Json>) -> Json {
    let Some(value) = value.filter(|v| !v.is_null()) else {
        return match kind {
            Kind::Str { opt: false } => "".into(),
            Kind::Int { opt: false, .. } | Kind::Dur { opt: false } => 0.into(),
            Kind::Bool { opt: false } => false.into(),
            _ => Json::Null,
        };
    };
    let object = |s: &'static Shape, v: &Json| v.as_object().map_or(Json::Null, |m| full(s, m));
    match kind {
        Kind::One(s) | Kind::Omit(s) => object(s, value),
        Kind::Many(s) | Kind::Labelled(s, _) => match value {
            Json::Array(items) => Json::Array(items.iter().map(|v| object(s, v)).collect()),
            other => other.clone(),
        },
        Kind::ByLabel(s, _) => match value {
            Json::Object(map) => {
                Json::Object(map.iter().map(|(k, v)| (k.clone(), object(s, v))).collect())
            }
            other => other.clone(),
        },
        _ => value.clone(),
    }
}
