//! Values of the language: null, booleans, numbers, strings, lists and maps.
//!
//! The type system behind HCL distinguishes lists from tuples and sets, and maps from objects.
//! Nothing that a job specification can express depends on it beyond what `types.rs` converts, so
//! there is one of each here.

use std::collections::BTreeMap;

/// A JSON object: a block, as the API has it.
pub(super) type JsonObject = serde_json::Map<String, serde_json::Value>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A number that is not whole, or too large to be one here.
    Float(f64),
    /// Text.
    Str(String),
    /// A list, tuple or set.
    List(Vec<Value>),
    /// A map or object, by key.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// A number from a float: whole ones become [`Value::Int`], so that equal numbers are equal
    /// values.
    pub(super) fn num(x: f64) -> Value {
        if x.fract() == 0.0 && x.abs() < 1e18 {
            #[allow(clippy::cast_possible_truncation)]
            return Value::Int(x as i128);
        }
        Value::Float(x)
    }

    /// Text from anything that can be one.
    pub(super) fn str(text: impl Into<String>) -> Value {
        Value::Str(text.into())
    }

    /// The word for this kind in error texts.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) => "number",
            Value::Str(_) => "string",
            Value::List(_) => "tuple",
            Value::Map(_) => "object",
        }
    }

    /// As a float, if it is a number.
    pub(super) fn as_f64(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss)]
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// Converted to text, as interpolation does: primitives only.
    pub(super) fn to_text(&self) -> Option<String> {
        match self {
            Value::Str(s) => Some(s.clone()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Int(n) => Some(n.to_string()),
            Value::Float(x) => Some(x.to_string()),
            _ => None,
        }
    }

    /// Converted to a number: numbers, and texts that say one.
    pub(super) fn to_number(&self) -> Option<Value> {
        match self {
            Value::Int(_) | Value::Float(_) => Some(self.clone()),
            Value::Str(s) => parse_number(s),
            _ => None,
        }
    }

    /// Converted to a boolean: booleans, and the texts `true` and `false`.
    pub(super) fn to_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            Value::Str(s) if s == "true" => Some(true),
            Value::Str(s) if s == "false" => Some(false),
            _ => None,
        }
    }

    /// Roughly how many bytes it takes, counted against the evaluation's budget.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Value::Str(s) => 32 + s.len() as u64,
            Value::List(items) => 32 + items.iter().map(Value::weight).sum::<u64>(),
            Value::Map(map) => {
                32 + map
                    .iter()
                    .map(|(k, v)| k.len() as u64 + 48 + v.weight())
                    .sum::<u64>()
            }
            _ => 32,
        }
    }

    /// As JSON. Whole numbers stay whole where 64 bits hold them.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => match i64::try_from(*n) {
                Ok(n) => Json::from(n),
                #[allow(clippy::cast_precision_loss)]
                Err(_) => u64::try_from(*n).map_or_else(|_| Json::from(*n as f64), Json::from),
            },
            Value::Float(x) => Json::from(*x),
            Value::Str(s) => Json::String(s.clone()),
            Value::List(items) => Json::Array(items.iter().map(Value::to_json).collect()),
            Value::Map(map) => {
                Json::Object(map.iter().map(|(k, v)| (k.clone(), v.to_json())).collect())
            }
        }
    }

    pub(super) fn from_json(json: &serde_json::Value) -> Value {
        use serde_json::Value as Json;
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
                (Some(n), _, _) => Value::Int(n.into()),
                (_, Some(n), _) => Value::Int(n.into()),
                (_, _, x) => Value::num(x.unwrap_or(0.0)),
            },
            Json::String(s) => Value::Str(s.clone()),
            Json::Array(items) => Value::List(items.iter().map(Value::from_json).collect()),
            Json::Object(map) => Value::Map(
                map.iter()
                    .map(|(k, v)| (k.clone(), Value::from_json(v)))
                    .collect(),
            ),
        }
    }
}

/// Reads a decimal number.
pub(super) fn parse_number(text: &str) -> Option<Value> {
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    if text.is_empty() || text.len() > 400 || !text.chars().all(plain) {
        return None;
    }
    if let Ok(n) = text.parse::<i64>() {
        return Some(Value::Int(n.into()));
    }
    text.parse::<f64>()
        .ok()
        .filter(|x| x.is_finite())
        .map(Value::num)
}
