//! Jobs in the API's JSON form: names in any case, unknown fields ignored, `null` as "not said",
//! wrong types refused with the field's path; and the full form with every field, as the parse
//! route answers.

use super::duration;
use super::schema::{Field, Kind, Shape};
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

/// Reads an object by its shape; only what was said is kept, under the proper names.
///
/// # Errors
/// The first field of the wrong type.
pub(super) fn read(
    shape: &'static Shape,
    json: &Json,
    path: &str,
) -> Result<Map<String, Json>, FieldError> {
    let Json::Object(map) = json else {
        return Err(wrong(path, "an object", json));
    };
    let mut out = Map::new();
    for (key, value) in map {
        let Some(field) = shape.json(key).filter(|f| !f.json.starts_with('@')) else {
            continue;
        };
        if value.is_null() || (out.contains_key(field.json) && key != field.json) {
            continue;
        }
        let value = convert(field, value, &format!("{path}.{}", field.json))?;
        out.insert(field.json.to_owned(), value);
    }
    Ok(out)
}

fn wrong(path: &str, expected: &'static str, found: &Json) -> FieldError {
    let found = match found {
        Json::Null => "null".to_owned(),
        Json::Bool(_) => "a bool".to_owned(),
        Json::Number(n) => format!("number {n}"),
        Json::String(_) => "a string".to_owned(),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    };
    FieldError {
        path: path.to_owned(),
        expected,
        found,
    }
}

fn convert(field: &Field, json: &Json, path: &str) -> Result<Json, FieldError> {
    let fail = |expected| Err(wrong(path, expected, json));
    match field.kind {
        Kind::Json => Ok(json.clone()),
        Kind::Str { .. } => {
            if json.is_string() {
                Ok(json.clone())
            } else {
                fail("a string")
            }
        }
        Kind::Bool { .. } => {
            if json.is_boolean() {
                Ok(json.clone())
            } else {
                fail("a bool")
            }
        }
        Kind::Int { min, max, .. } => match whole(json) {
            Some(n) if (min..=max).contains(&n) => Ok(json.clone()),
            Some(_) => fail("a number within its range"),
            None => fail("a whole number"),
        },
        Kind::Dur { .. } => match json {
            Json::String(text) => match duration::parse(text) {
                Ok(ns) => Ok(Json::from(ns)),
                Err(_) => fail("a duration"),
            },
            _ => match whole(json).and_then(|n| i64::try_from(n).ok()) {
                Some(ns) => Ok(Json::from(ns)),
                None => fail("a duration in nanoseconds"),
            },
        },
        Kind::Strs => texts(json)
            .map(Ok)
            .unwrap_or_else(|| fail("a list of strings")),
        Kind::Ports => match json.as_array() {
            Some(items)
                if items
                    .iter()
                    .all(|i| whole(i).is_some_and(|n| (0..=65_535).contains(&n))) =>
            {
                Ok(json.clone())
            }
            _ => fail("a list of ports"),
        },
        Kind::StrMap => match json.as_object() {
            Some(map) if map.values().all(|v| v.is_string() || v.is_null()) => {
                let text = |v: &Json| Json::String(v.as_str().unwrap_or("").to_owned());
                Ok(Json::Object(
                    map.iter().map(|(k, v)| (k.clone(), text(v))).collect(),
                ))
            }
            _ => fail("a map of strings"),
        },
        Kind::StrsMap => match json.as_object() {
            Some(map) if map.values().all(|v| texts(v).is_some()) => Ok(json.clone()),
            _ => fail("a map of lists of strings"),
        },
        Kind::AnyMap => {
            if json.is_object() {
                Ok(json.clone())
            } else {
                fail("a map")
            }
        }
        _ => nested(field.kind, json, path),
    }
}

/// Objects, and lists and maps of them.
fn nested(kind: Kind, json: &Json, path: &str) -> Result<Json, FieldError> {
    match (kind, json) {
        (Kind::One(s) | Kind::Omit(s), _) => read(s, json, path).map(Json::Object),
        (Kind::Many(s) | Kind::Labelled(s, _), Json::Array(items)) => {
            let each =
                |(i, v): (usize, &Json)| read(s, v, &format!("{path}[{i}]")).map(Json::Object);
            let said = items.iter().enumerate().filter(|(_, v)| !v.is_null());
            said.map(each).collect::<Result<_, _>>().map(Json::Array)
        }
        (Kind::ByLabel(s, _), Json::Object(map)) => {
            let mut out = Map::new();
            for (key, value) in map.iter().filter(|(_, v)| !v.is_null()) {
                let value = read(s, value, &format!("{path}[{key:?}]"))?;
                out.insert(key.clone(), Json::Object(value));
            }
            Ok(Json::Object(out))
        }
        (Kind::ByLabel(..), _) => Err(wrong(path, "a map", json)),
        _ => Err(wrong(path, "a list", json)),
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

/// The full form: every field of the shape, unset ones `null` or zero.
pub(super) fn full(shape: &'static Shape, said: &Map<String, Json>) -> Json {
    let mut out = Map::new();
    for field in shape.fields.iter().filter(|f| !f.json.starts_with('@')) {
        match (said.get(field.json), field.kind) {
            (None, Kind::Omit(_)) => {}
            (value, kind) => {
                out.insert(field.json.to_owned(), full_value(kind, value));
            }
        }
    }
    Json::Object(out)
}

fn full_value(kind: Kind, said: Option<&Json>) -> Json {
    let Some(said) = said.filter(|v| !v.is_null()) else {
        return match kind {
            Kind::Str { opt: false } => "".into(),
            Kind::Int { opt: false, .. } | Kind::Dur { opt: false } => 0.into(),
            Kind::Bool { opt: false } => false.into(),
            _ => Json::Null,
        };
    };
    let object = |s: &'static Shape, v: &Json| v.as_object().map_or(Json::Null, |m| full(s, m));
    match kind {
        Kind::One(s) | Kind::Omit(s) => object(s, said),
        Kind::Many(s) | Kind::Labelled(s, _) => match said {
            Json::Array(items) => Json::Array(items.iter().map(|v| object(s, v)).collect()),
            other => other.clone(),
        },
        Kind::ByLabel(s, _) => match said {
            Json::Object(map) => {
                Json::Object(map.iter().map(|(k, v)| (k.clone(), object(s, v))).collect())
            }
            other => other.clone(),
        },
        _ => said.clone(),
    }
}
