//! Type expressions of `variable` blocks, and conversion of values to them.

use super::value::Value;
use hcl_edit::expr::{Expression, ObjectKey};
use std::collections::BTreeMap;
use std::fmt;

/// A type a variable can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Anything.
    Any,
    /// Text.
    String,
    Number,
    /// True or false.
    Bool,
    /// `list(T)` and `set(T)`; a set is sorted and has no repetition.
    List(Box<Type>, bool),
    /// `map(T)`.
    Map(Box<Type>),
    /// `object({k = T, …})`; optional attributes carry true.
    Object(BTreeMap<String, (Type, bool)>),
    /// `tuple([T, …])`.
    Tuple(Vec<Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Any => write!(f, "any type"),
            Type::String => write!(f, "string"),
            Type::Number => write!(f, "number"),
            Type::Bool => write!(f, "bool"),
            Type::List(of, false) => write!(f, "list of {of}"),
            Type::List(of, true) => write!(f, "set of {of}"),
            Type::Map(of) => write!(f, "map of {of}"),
            Type::Object(_) => write!(f, "object"),
            Type::Tuple(_) => write!(f, "tuple"),
        }
    }
}

/// Reads a type expression.
///
/// # Errors
/// What is not a type, in a sentence.
pub(super) fn parse(expr: &Expression) -> Result<Type, String> {
    match expr {
        Expression::Parenthesis(inner) => parse(inner.inner()),
        Expression::Variable(name) => named(name.as_str(), None),
        // The form of older specifications: a type in quotes.
        Expression::String(name) => named(name.as_str(), None),
        Expression::FuncCall(call) if !call.name.is_namespaced() => {
            let args: Vec<&Expression> = call.args.iter().collect();
            named(call.name.name.as_str(), Some(&args))
        }
        _ => {
            Err("a type is a keyword such as string, or a constructor such as list(string)".into())
        }
    }
}

fn named(name: &str, args: Option<&[&Expression]>) -> Result<Type, String> {
    match (name, args) {
        ("any", None) => Ok(Type::Any),
        ("string", None) => Ok(Type::String),
        ("number", None) => Ok(Type::Number),
        ("bool", None) => Ok(Type::Bool),
        ("list", None) => Ok(Type::List(Box::new(Type::Any), false)),
        ("set", None) => Ok(Type::List(Box::new(Type::Any), true)),
        ("map", None) => Ok(Type::Map(Box::new(Type::Any))),
        ("list", Some([of])) => Ok(Type::List(Box::new(parse(of)?), false)),
        ("set", Some([of])) => Ok(Type::List(Box::new(parse(of)?), true)),
        ("map", Some([of])) => Ok(Type::Map(Box::new(parse(of)?))),
        ("object", Some([Expression::Object(attributes)])) => {
            let mut types = BTreeMap::new();
            for (key, value) in attributes.iter() {
                let name = match key {
                    ObjectKey::Ident(name) => name.as_str().to_owned(),
                    ObjectKey::Expression(Expression::String(name)) => name.as_str().to_owned(),
                    ObjectKey::Expression(_) => {
                        return Err("an object type's keys are names".into());
                    }
                };
                types.insert(name, attribute(value.expr())?);
            }
            Ok(Type::Object(types))
        }
        ("tuple", Some([Expression::Array(items)])) => items
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Type::Tuple),
        ("list" | "set" | "map" | "object" | "tuple", _) => Err(format!(
            "the {name} type constructor takes one argument that says of what"
        )),
        _ => Err(format!("{name:?} is not a type")),
    }
}

fn attribute(expr: &Expression) -> Result<(Type, bool), String> {
    if let Expression::FuncCall(call) = expr
        && call.name.name.as_str() == "optional"
        && let Some(inner) = call.args.iter().next()
    {
        return Ok((parse(inner)?, true));
    }
    Ok((parse(expr)?, false))
}

/// Converts a value to a type.
///
/// # Errors
/// What was required, e.g. `a number is required`.
pub(super) fn convert(value: Value, to: &Type) -> Result<Value, String> {
    if matches!(value, Value::Null) {
        return Ok(Value::Null);
    }
    match to {
        Type::Any => Ok(value),
        Type::String => value
            .to_text()
            .map(Value::Str)
            .ok_or_else(|| "string required".into()),
        Type::Number => value
            .to_number()
            .ok_or_else(|| "a number is required".into()),
        Type::Bool => value
            .to_bool()
            .map(Value::Bool)
            .ok_or_else(|| "a bool is required".into()),
        Type::List(of, set) => {
            let Value::List(items) = value else {
                return Err(format!("{to} required"));
            };
            let items: Result<Vec<_>, _> = items
                .into_iter()
                .enumerate()
                .map(|(i, v)| element(i, v, of))
                .collect();
            let mut items = items?;
            if *set {
                items.sort_by_key(sort_key);
                items.dedup();
            }
            Ok(Value::List(items))
        }
        Type::Map(of) => {
            let Value::Map(map) = value else {
                return Err(format!("{to} required"));
            };
            let convert = |(k, v)| match convert(v, of) {
                Ok(v) => Ok((k, v)),
                Err(text) => Err(format!("element {k:?}: {text}")),
            };
            map.into_iter()
                .map(convert)
                .collect::<Result<_, _>>()
                .map(Value::Map)
        }
        Type::Object(types) => object(value, types),
        Type::Tuple(types) => {
            let Value::List(items) = value else {
                return Err("tuple required".into());
            };
            if items.len() != types.len() {
                return Err(format!("tuple of {} elements required", types.len()));
            }
            let zipped = items.into_iter().zip(types).enumerate();
            zipped
                .map(|(i, (v, t))| element(i, v, t))
                .collect::<Result<_, _>>()
                .map(Value::List)
        }
    }
}

fn element(index: usize, value: Value, to: &Type) -> Result<Value, String> {
    convert(value, to).map_err(|text| format!("element {index}: {text}"))
}

fn object(value: Value, types: &BTreeMap<String, (Type, bool)>) -> Result<Value, String> {
    let Value::Map(mut map) = value else {
        return Err("object required".into());
    };
    let mut out = BTreeMap::new();
    for (name, (of, optional)) in types {
        match map.remove(name) {
            Some(value) => {
                let value = convert(value, of).map_err(|t| format!("attribute {name:?}: {t}"))?;
                out.insert(name.clone(), value);
            }
            None if *optional => {
                out.insert(name.clone(), Value::Null);
            }
            None => return Err(format!("attribute {name:?} is required")),
        }
    }
    Ok(Value::Map(out))
}

/// An order over values for sets: by kind, then by content.
pub(super) fn sort_key(value: &Value) -> (u8, String) {
    match value {
        Value::Int(n) => (1, format!("{:040}", n.saturating_add(1 << 100))),
        Value::Str(s) => (2, s.clone()),
        other => (3, other.to_json().to_string()),
    }
}
