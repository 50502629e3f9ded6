//! The JSON form of a specification: `{"job": {"name": {"group": {…}}}}`. The decode table says
//! which keys are blocks and how many labels they have; strings are templates.

use super::bounds;
use super::diagnostic::{Diagnostics, SourceText};
use super::eval::{Evaluator, Scope};
use super::tree::{Attribute, Block};
use super::value::Value;
use drover_events::field::Shape;
use serde_json::{Map, Value as Json};

/// How much of a template is shown where it cannot be read, characters.
const SHOWN: usize = 200;

/// Takes what lies below the labels, with the labels.
type TakeBody<'f> = dyn FnMut(&[String], &Map<String, Json>) + 'f;

/// Evaluates strings and builds trees from JSON.
pub(super) struct JsonReader<'a> {
    /// For the name in diagnostics.
    pub source: &'a SourceText,
    /// Evaluates templates.
    pub evaluator: &'a Evaluator<'a>,
    /// What templates may refer to.
    pub scope: &'a Scope<'a>,
}

impl JsonReader<'_> {
    /// The blocks of type `name` that a JSON value stands for, its `labels` peeled off.
    pub(super) fn blocks(
        &self,
        name: &str,
        json: &Json,
        labels: usize,
        shape: &'static Shape,
        problems: &mut Diagnostics,
    ) -> Vec<Block> {
        let mut out = Vec::new();
        self.peel(json, labels, &[], &mut |labels, body| {
            out.push((labels.to_vec(), body.clone()));
        });
        if out.is_empty() && !matches!(json, Json::Null) && !is_empty(json) {
            let detail = format!(
                "Either a JSON object or a JSON array of objects is required for {name:?}."
            );
            problems.push(
                self.source
                    .problem(None, "Incorrect JSON value type", detail),
            );
        }
        out.into_iter()
            .map(|(labels, body)| Block {
                name: name.to_owned(),
                labels,
                ..self.body(&body, shape, problems)
            })
            .collect()
    }

    fn peel(&self, json: &Json, left: usize, labels: &[String], out: &mut TakeBody<'_>) {
        match json {
            Json::Array(items) => {
                for item in items {
                    self.peel(item, left, labels, out);
                }
            }
            Json::Object(map) if left == 0 => out(labels, map),
            Json::Object(map) => {
                for (label, inner) in map {
                    let labels: Vec<String> = labels.iter().chain([label]).cloned().collect();
                    self.peel(inner, left - 1, &labels, out);
                }
            }
            _ => {}
        }
    }

    fn body(
        &self,
        map: &Map<String, Json>,
        shape: &'static Shape,
        problems: &mut Diagnostics,
    ) -> Block {
        let mut out = Block::default();
        for (key, json) in map {
            if key == "//" {
                continue;
            }
            match shape.hcl(key).and_then(|f| f.kind.shape()) {
                Some((inner, labels)) => {
                    out.blocks
                        .extend(self.blocks(key, json, labels, inner, problems));
                }
                None => {
                    let value = self.value(json, problems);
                    let attribute = Attribute {
                        name: key.clone(),
                        value,
                        name_location: None,
                        location: None,
                    };
                    out.attributes.push(single(attribute, shape));
                }
            }
        }
        out
    }

    /// A value with its strings evaluated as templates.
    pub(super) fn value(&self, json: &Json, problems: &mut Diagnostics) -> Option<Value> {
        match json {
            Json::String(text) if text.contains("${") || text.contains("%{") => {
                let template = match bounds::template(text, self.evaluator.budget) {
                    Ok(template) => template,
                    Err(why) => {
                        let shown: String = text.chars().take(SHOWN).collect();
                        let detail = format!("In {shown:?}: {why}.");
                        problems.push(self.source.problem(None, "Invalid template", detail));
                        return None;
                    }
                };
                let source = SourceText::new(self.source.name.clone(), text.clone());
                let ev = Evaluator::new(&source, self.evaluator.functions, self.evaluator.budget);
                match ev.bare_template(&template, self.scope) {
                    Ok(value) => {
                        let spent = self.evaluator.charge(value.weight(), None);
                        spent.map_err(|p| problems.push(*p)).ok()?;
                        Some(value)
                    }
                    Err(problem) => {
                        problems.push(self.source.problem(None, problem.summary, problem.detail));
                        None
                    }
                }
            }
            Json::Array(items) => items
                .iter()
                .map(|i| self.value(i, problems))
                .collect::<Option<_>>()
                .map(Value::List),
            Json::Object(map) => map
                .iter()
                .map(|(k, v)| Some((k.clone(), self.value(v, problems)?)))
                .collect::<Option<_>>()
                .map(Value::Map),
            other => Some(Value::from_json(other)),
        }
    }
}

fn is_empty(json: &Json) -> bool {
    json.as_array().is_some_and(Vec::is_empty) || json.as_object().is_some_and(Map::is_empty)
}

/// A map given as a list of one object is that object.
fn single(mut attribute: Attribute, shape: &Shape) -> Attribute {
    let map = shape
        .hcl(&attribute.name)
        .is_some_and(|f| f.kind.is_block());
    if map
        && let Some(Value::List(items)) = &mut attribute.value
        && items.len() == 1
    {
        attribute.value = items.pop();
    }
    attribute
}
