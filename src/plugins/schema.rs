//! Settings of a plugin: what an operator wrote, in the form that the plugin says it takes.
//!
//! A plugin describes an object: its attributes with their types, its blocks, and what stands where
//! nothing was written. What was written is brought into it, and what does not fit is refused.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::proto::base::spec::Block as Kind;
use crate::proto::base::{Attr, BlockMap, Spec};

/// How deep a form may nest.
const DEPTH: usize = 32;

/// Settings as a plugin takes them, in `MessagePack`. A plugin without a form takes none.
///
/// # Errors
/// What does not fit, or a form that is not understood.
pub fn encoded(form: Option<&Spec>, written: &Value) -> Result<Option<Vec<u8>>, String> {
    let none = Map::new();
    let body = match written {
        Value::Null => &none,
        Value::Object(body) => body,
        _ => return Err("its settings are no block".to_owned()),
    };
    let Some(form) = form else {
        return match body.keys().next() {
            None => Ok(None),
            Some(key) => Err(format!("it takes no settings, and {key:?} is one")),
        };
    };
    let fitted = object(form, body, "", DEPTH)?;
    let fitted = rmp_serde::to_vec(&fitted).map_err(|error| error.to_string())?;
    Ok(Some(fitted))
}

/// A body in its form; nothing may be left of it.
fn object(form: &Spec, body: &Map<String, Value>, at: &str, depth: usize) -> Result<Value, String> {
    let mut fit = Fit {
        body,
        at,
        used: BTreeSet::new(),
        depth: depth.checked_sub(1).ok_or("its form nests too deeply")?,
    };
    let fitted = fit.value(form, "")?;
    match body.keys().find(|key| !fit.used.contains(*key)) {
        None => Ok(fitted),
        Some(key) => Err(format!("{at}{key}: there is no such setting")),
    }
}

/// A body that is being brought into a form.
struct Fit<'a> {
    body: &'a Map<String, Value>,
    /// Where it stands, with a dot behind; empty at the top.
    at: &'a str,
    used: BTreeSet<String>,
    depth: usize,
}

impl Fit<'_> {
    /// A value; `name` where the form does not say another.
    fn value(&mut self, form: &Spec, name: &str) -> Result<Value, String> {
        let Some(kind) = &form.block else {
            return Err(format!("{}{name}: its form says nothing", self.at));
        };
        match kind {
            Kind::Object(object) => {
                let mut out = Map::new();
                for (name, form) in &object.attributes {
                    out.insert(name.clone(), self.value(form, name)?);
                }
                Ok(Value::Object(out))
            }
            Kind::Array(array) => {
                let all = array.values.iter().map(|form| self.value(form, name));
                Ok(Value::Array(all.collect::<Result<_, _>>()?))
            }
            Kind::Attr(attr) => self.attribute(attr, name),
            Kind::BlockValue(block) => {
                let name = or(&block.name, name);
                let mut found = self.blocks(name)?;
                match (found.pop(), found.is_empty(), block.required) {
                    (Some(body), true, _) => self.nested(block.nested.as_deref(), &body, name),
                    (None, _, false) => Ok(Value::Null),
                    (None, _, true) => Err(format!("{}{name}: it is missing", self.at)),
                    (Some(_), false, _) => Err(format!("{}{name}: there are several", self.at)),
                }
            }
            Kind::BlockAttrs(attrs) => self.attributes(attrs, name),
            Kind::BlockList(list) => {
                let least = (list.min_items, list.max_items);
                self.list(or(&list.name, name), least, list.nested.as_deref())
            }
            Kind::BlockSet(set) => {
                let least = (set.min_items, set.max_items);
                self.list(or(&set.name, name), least, set.nested.as_deref())
            }
            Kind::BlockMap(map) => self.labelled(map, name),
            Kind::Default(default) => {
                let first = match &default.primary {
                    Some(primary) => self.value(primary, name)?,
                    None => Value::Null,
                };
                match &default.default {
                    Some(other) if first.is_null() => self.value(other, name),
                    _ => Ok(first),
                }
            }
            Kind::Literal(literal) => serde_json::from_str(&literal.value)
                .map_err(|_| format!("{}{name}: {:?} is no value", self.at, literal.value)),
        }
    }

    fn attribute(&mut self, attr: &Attr, name: &str) -> Result<Value, String> {
        let name = or(&attr.name, name);
        self.used.insert(name.to_owned());
        match self.body.get(name) {
            None | Some(Value::Null) if attr.required => {
                Err(format!("{}{name}: it is missing", self.at))
            }
            None | Some(Value::Null) => Ok(Value::Null),
            Some(value) => self.typed(&attr.r#type, value, name),
        }
    }

    /// A block whose keys are an operator's own.
    fn attributes(
        &mut self,
        attrs: &crate::proto::base::BlockAttrs,
        name: &str,
    ) -> Result<Value, String> {
        let name = or(&attrs.name, name);
        let mut out = Map::new();
        let found = self.blocks(name)?;
        if found.is_empty() {
            return match attrs.required {
                true => Err(format!("{}{name}: it is missing", self.at)),
                false => Ok(Value::Null),
            };
        }
        for (key, value) in found.into_iter().flatten() {
            let value = self.typed(&attrs.r#type, &value, name)?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }

    fn list(
        &mut self,
        name: &str,
        (least, most): (u64, u64),
        form: Option<&Spec>,
    ) -> Result<Value, String> {
        let found = self.blocks(name)?;
        let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
        if count < least || most > 0 && count > most {
            return Err(format!("{}{name}: there are {count} of it", self.at));
        }
        let all = found.iter().map(|body| self.nested(form, body, name));
        Ok(Value::Array(all.collect::<Result<_, _>>()?))
    }

    /// Blocks with labels, as maps of maps.
    fn labelled(&mut self, map: &BlockMap, name: &str) -> Result<Value, String> {
        let name = or(&map.name, name);
        let mut out = Map::new();
        for body in self.blocks(name)? {
            self.label(map, map.labels.len(), &body, name, &mut out)?;
        }
        Ok(Value::Object(out))
    }

    fn label(
        &self,
        map: &BlockMap,
        left: usize,
        body: &Map<String, Value>,
        name: &str,
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for (label, inner) in body {
            let inner = bodies(inner).ok_or_else(|| format!("{}{name}: a label", self.at))?;
            for inner in inner {
                if left <= 1 {
                    let value = self.nested(map.nested.as_deref(), &inner, name)?;
                    out.insert(label.clone(), value);
                    continue;
                }
                let below = out.entry(label).or_insert_with(|| Map::new().into());
                if let Value::Object(below) = below {
                    self.label(map, left - 1, &inner, name, below)?;
                }
            }
        }
        Ok(())
    }

    fn nested(
        &self,
        form: Option<&Spec>,
        body: &Map<String, Value>,
        name: &str,
    ) -> Result<Value, String> {
        let at = format!("{}{name}.", self.at);
        let form = form.ok_or_else(|| format!("{at} its form says nothing"))?;
        object(form, body, &at, self.depth)
    }

    /// The blocks of this name, which counts as used from now on.
    fn blocks(&mut self, name: &str) -> Result<Vec<Map<String, Value>>, String> {
        self.used.insert(name.to_owned());
        let found = self.body.get(name).unwrap_or(&Value::Null);
        bodies(found).ok_or_else(|| format!("{}{name}: it must be a block", self.at))
    }

    fn typed(&self, kind: &str, value: &Value, name: &str) -> Result<Value, String> {
        // Not the value: it may be a secret, and this goes into a log.
        let wrong = || format!("{}{name}: it is no {kind}", self.at);
        typed(kind.trim(), value).ok_or_else(wrong)
    }
}

fn or<'a>(name: &'a str, usual: &'a str) -> &'a str {
    match name {
        "" => usual,
        name => name,
    }
}

/// One block, or several.
fn bodies(value: &Value) -> Option<Vec<Map<String, Value>>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Object(body) => Some(vec![body.clone()]),
        Value::Array(all) => all.iter().map(|one| one.as_object().cloned()).collect(),
        _ => None,
    }
}

/// A value of a type; none where it is of another, or the type is not one of those that plugins
/// have for settings.
fn typed(kind: &str, value: &Value) -> Option<Value> {
    let of = |name: &str| {
        let rest = kind.strip_prefix(name)?.trim_start().strip_prefix('(')?;
        rest.strip_suffix(')').map(str::trim)
    };
    if let Some(of) = of("list").or_else(|| of("set")) {
        let all: Option<Vec<Value>> = match value {
            Value::Array(all) => all.iter().map(|one| typed(of, one)).collect(),
            _ => None,
        };
        return all.map(Value::Array);
    }
    if let Some(of) = of("map") {
        let body = value.as_object()?.iter();
        let all = body.map(|(key, value)| Some((key.clone(), typed(of, value)?)));
        return all.collect::<Option<Map<_, _>>>().map(Value::Object);
    }
    match (kind, value) {
        ("string", Value::String(_)) | ("number", Value::Number(_)) | ("bool", Value::Bool(_)) => {
            Some(value.clone())
        }
        ("string", Value::Number(number)) => Some(number.to_string().into()),
        ("string", Value::Bool(is)) => Some(is.to_string().into()),
        ("number", Value::String(text)) => {
            let number: Value = serde_json::from_str(text).ok()?;
            number.is_number().then_some(number)
        }
        ("bool", Value::String(text)) => match text.as_str() {
            "true" | "1" => Some(true.into()),
            "false" | "0" => Some(false.into()),
            _ => None,
        },
        _ => None,
    }
}
