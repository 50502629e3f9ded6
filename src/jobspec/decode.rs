//! Applies the decode table to an evaluated tree: out comes a job in the API's JSON form, with only
//! what was set in it. Every problem is reported; decoding continues after each.

use super::diagnostic::{Diagnostics, SourceText};
use super::duration;
use super::fixup;
use super::tree::{Attribute, Block, Location};
use super::types::{self, Type};
use super::value::Value;
use drover_events::field::{Field, Kind, Shape};
use serde_json::{Map, Value as Json};

/// Decodes blocks of one text.
pub(super) struct Decoder<'a> {
    /// The text, for places.
    pub source: &'a SourceText,
    /// Where problems go.
    pub problems: &'a mut Diagnostics,
}

impl Decoder<'_> {
    /// Reports a problem.
    pub(super) fn problem(
        &mut self,
        location: Location,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) {
        let problem = self.source.problem(location, summary, detail);
        self.problems.push(problem);
    }

    /// Decodes one block into the JSON form of its shape.
    pub(super) fn block(&mut self, shape: &'static Shape, block: &Block) -> Map<String, Json> {
        let mut out = Map::new();
        for attribute in &block.attributes {
            match shape.hcl(&attribute.name).filter(|f| f.kind.is_attribute()) {
                Some(field) => self.attribute(field, attribute, &mut out),
                None => self.unknown_attribute(shape, attribute),
            }
        }
        for inner in &block.blocks {
            match shape.hcl(&inner.name).filter(|f| f.kind.is_block()) {
                Some(field) => self.inner(field, inner, &mut out),
                None => self.unknown_block(shape, inner),
            }
        }
        for field in shape
            .fields
            .iter()
            .filter(|f| f.required && !out.contains_key(f.json))
        {
            let failed = block.attribute(field.hcl).is_some();
            if !failed {
                let detail = format!(
                    "The argument {:?} is required, but no definition was found.",
                    field.hcl
                );
                self.problem(block.location.clone(), "Missing required argument", detail);
            }
        }
        fixup::after(self, shape, block, &mut out);
        out
    }

    fn attribute(&mut self, field: &Field, attribute: &Attribute, out: &mut Map<String, Json>) {
        let Some(value) = &attribute.value else {
            return;
        };
        if matches!(value, Value::Null) {
            return;
        }
        match self.convert(field.kind, value) {
            Ok(json) => {
                out.insert(field.json.to_owned(), json);
            }
            Err(Wrong::Type(text)) => {
                let detail = format!(
                    "Inappropriate value for attribute {:?}: {text}.",
                    attribute.name
                );
                self.problem(
                    attribute.location.clone(),
                    "Incorrect attribute value type",
                    detail,
                );
            }
            Err(Wrong::Duration(text)) => {
                self.problem(
                    attribute.location.clone(),
                    "Unsuitable duration value",
                    text,
                );
            }
        }
    }

    fn convert(&self, kind: Kind, value: &Value) -> Result<Json, Wrong> {
        let to = |t: Type| types::convert(value.clone(), &t).map_err(Wrong::Type);
        match kind {
            Kind::Str { .. } => Ok(to(Type::String)?.to_json()),
            Kind::Bool { .. } => Ok(to(Type::Bool)?.to_json()),
            Kind::Int { min, max, .. } => match to(Type::Number)? {
                Value::Int(n) if (min..=max).contains(&n) => Ok(Value::Int(n).to_json()),
                Value::Int(n) if n < min => {
                    Err(Wrong::Type(format!("value must be at least {min}")))
                }
                Value::Int(_) => Err(Wrong::Type(format!("value must be at most {max}"))),
                _ => Err(Wrong::Type(
                    "value must be a whole number, not a fraction".into(),
                )),
            },
            Kind::Dur { .. } => duration_of(value),
            Kind::Strs => Ok(to(Type::List(Box::new(Type::String), false))?.to_json()),
            Kind::Ports => {
                let list = to(Type::List(Box::new(Type::Number), false))?;
                let port = |v: &Value| matches!(v, Value::Int(n) if (0..=65_535).contains(n));
                match &list {
                    Value::List(items) if items.iter().all(port) => Ok(list.to_json()),
                    _ => Err(Wrong::Type("each element must be a port".into())),
                }
            }
            Kind::StrMap => Ok(to(Type::Map(Box::new(Type::String)))?.to_json()),
            Kind::StrsMap => Ok(to(Type::Map(Box::new(Type::List(
                Box::new(Type::String),
                false,
            ))))?
            .to_json()),
            Kind::AnyMap => Ok(to(Type::Map(Box::new(Type::Any)))?.to_json()),
            _ => Err(Wrong::Type("a block is expected here".into())),
        }
    }

    fn inner(&mut self, field: &'static Field, block: &Block, out: &mut Map<String, Json>) {
        let Some((shape, labels)) = field.kind.shape() else {
            return self.map_block(field, block, out);
        };
        if block.labels.len() != labels {
            return self.wrong_labels(block, labels);
        }
        let mut json = self.block(shape, block);
        match field.kind {
            Kind::Many(_) => push(out, field.json, Json::Object(json)),
            Kind::Labelled(_, name) => {
                json.insert(name.to_owned(), Json::String(block.labels[0].clone()));
                push(out, field.json, Json::Object(json));
            }
            Kind::ByLabel(_, name) => {
                let label = block.labels[0].clone();
                json.insert(name.to_owned(), Json::String(label.clone()));
                let map = out
                    .entry(field.json)
                    .or_insert_with(|| Json::Object(Map::new()));
                if let Json::Object(map) = map
                    && map.insert(label.clone(), Json::Object(json)).is_some()
                {
                    let detail = format!("Another {} {label:?} is defined before.", block.name);
                    self.problem(
                        block.location.clone(),
                        format!("Duplicate {} block", block.name),
                        detail,
                    );
                }
            }
            _ if out.contains_key(field.json) => self.duplicate(block),
            _ => {
                out.insert(field.json.to_owned(), Json::Object(json));
            }
        }
    }

    fn map_block(&mut self, field: &Field, block: &Block, out: &mut Map<String, Json>) {
        if !block.labels.is_empty() {
            return self.wrong_labels(block, 0);
        }
        if out.contains_key(field.json) {
            return self.duplicate(block);
        }
        if !matches!(field.kind, Kind::AnyMap) && !block.blocks.is_empty() {
            let inner = &block.blocks[0];
            let detail = "Blocks are not allowed here.";
            return self.problem(inner.location.clone(), "Unexpected block", detail);
        }
        let value = block.to_value();
        match self.convert(field.kind, &without_nulls(value, field.kind)) {
            Ok(json) => {
                out.insert(field.json.to_owned(), json);
            }
            Err(Wrong::Type(text) | Wrong::Duration(text)) => {
                let detail = format!("Inappropriate value for {:?}: {text}.", block.name);
                self.problem(
                    block.location.clone(),
                    "Incorrect attribute value type",
                    detail,
                );
            }
        }
    }

    fn wrong_labels(&mut self, block: &Block, expected: usize) {
        let name = &block.name;
        let (summary, detail) = if block.labels.len() > expected {
            let detail = match expected {
                0 => format!("No labels are expected for {name} blocks."),
                n => format!("Only {n} labels (name) are expected for {name} blocks."),
            };
            (format!("Extraneous label for {name}"), detail)
        } else {
            let detail = format!("All {name} blocks must have {expected} labels (name).");
            (format!("Missing name for {name}"), detail)
        };
        self.problem(block.location.clone(), summary, detail);
    }

    fn duplicate(&mut self, block: &Block) {
        let detail = format!("Only one {} block is allowed.", block.name);
        self.problem(
            block.location.clone(),
            format!("Duplicate {} block", block.name),
            detail,
        );
    }

    fn unknown_attribute(&mut self, shape: &Shape, attribute: &Attribute) {
        let name = &attribute.name;
        let mut detail = format!("An argument named {name:?} is not expected here.");
        if shape.hcl(name).is_some() {
            detail += &format!(" Did you mean to define a block of type {name:?}?");
        } else if let Some(near) = near(name, shape, Kind::is_attribute) {
            detail += &format!(" Did you mean {near:?}?");
        }
        self.problem(
            attribute.name_location.clone(),
            "Unsupported argument",
            detail,
        );
    }

    fn unknown_block(&mut self, shape: &Shape, block: &Block) {
        let name = &block.name;
        let mut detail = format!("Blocks of type {name:?} are not expected here.");
        if shape.hcl(name).is_some() {
            detail += &format!(
                " Did you mean to define argument {name:?}? If so, use the equals sign to assign \
                    it a value."
            );
        } else if let Some(near) = near(name, shape, Kind::is_block) {
            detail += &format!(" Did you mean {near:?}?");
        }
        self.problem(block.location.clone(), "Unsupported block type", detail);
    }
}

enum Wrong {
    Type(String),
    Duration(String),
}

fn duration_of(value: &Value) -> Result<Json, Wrong> {
    match value {
        Value::Str(text) => duration::parse(text)
            .map(Json::from)
            .map_err(|e| Wrong::Duration(e.to_string())),
        Value::Int(n) => i64::try_from(*n)
            .map(Json::from)
            .map_err(|_| Wrong::Duration(format!("{n} nanoseconds are too many"))),
        other => Err(Wrong::Duration(format!(
            "expected a string but found {}",
            other.kind()
        ))),
    }
}

/// In maps of texts an attribute that is null counts as not set.
fn without_nulls(value: Value, kind: Kind) -> Value {
    match value {
        Value::Map(mut map) if !matches!(kind, Kind::AnyMap) => {
            map.retain(|_, v| !matches!(v, Value::Null));
            Value::Map(map)
        }
        other => other,
    }
}

fn push(out: &mut Map<String, Json>, key: &str, item: Json) {
    match out.entry(key).or_insert_with(|| Json::Array(Vec::new())) {
        Json::Array(items) => items.push(item),
        other => *other = Json::Array(vec![item]),
    }
}

/// A name of the shape that differs in at most two letters.
fn near(name: &str, shape: &Shape, wanted: fn(Kind) -> bool) -> Option<&'static str> {
    // No name is as long, and the work grows with the length.
    if name.len() > 64 {
        return None;
    }
    let names = shape
        .fields
        .iter()
        .filter(|f| !f.hcl.is_empty() && wanted(f.kind))
        .map(|f| f.hcl);
    names
        .map(|n| (strsim::levenshtein(name, n), n))
        .filter(|(d, _)| *d <= 2)
        .min()
        .map(|(_, n)| n)
}
