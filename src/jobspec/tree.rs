//! A body with everything in it evaluated: what the decode table is applied to.
//!
//! Native syntax comes with places; the JSON form has none but the file's name.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::eval::{Evaluator, Scope};
use super::value::Value;
use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block as HclBlock, Body, Structure};
use std::ops::Range;

/// A byte range, where there is one.
pub(super) type Location = Option<Range<usize>>;

/// An evaluated block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Its type, e.g. `group`.
    pub name: String,
    pub labels: Vec<String>,
    /// Its attributes, in the order of the text.
    pub attributes: Vec<Attribute>,
    /// The blocks in it, in the order of the text, `dynamic` ones expanded.
    pub blocks: Vec<Block>,
    /// Where its head stands.
    pub location: Location,
}

/// An evaluated attribute; its value is absent if evaluating it failed (which has been reported).
#[derive(Debug)]
pub(super) struct Attribute {
    pub name: String,
    pub value: Option<Value>,
    /// Where its name stands.
    pub name_location: Location,
    /// Where its value stands.
    pub location: Location,
}

/// How many blocks one `dynamic` may make.
const MAX_DYNAMIC: usize = 10_000;
/// What a block takes of the evaluation's budget, in bytes: about what it takes as part of a job.
const BLOCK_WEIGHT: u64 = 2_048;

/// Evaluates a native body; problems are added to `problems`.
pub(super) fn build(
    ev: &Evaluator<'_>,
    body: &Body,
    scope: &Scope<'_>,
    problems: &mut Diagnostics,
) -> Block {
    let mut out = Block::default();
    for structure in body {
        match structure {
            Structure::Attribute(a) => {
                let value = ev.eval(&a.value, scope).map_err(|p| problems.push(*p)).ok();
                out.attributes.push(Attribute {
                    name: a.key.as_str().to_owned(),
                    value,
                    name_location: a.key.span(),
                    location: a.value.span(),
                });
            }
            Structure::Block(b) if b.ident.as_str() == "dynamic" => {
                if let Err(problem) = dynamic(ev, b, scope, &mut out.blocks, problems) {
                    problems.push(*problem);
                }
            }
            Structure::Block(b) => out.blocks.push(block(ev, b, scope, problems)),
        }
    }
    out
}

/// Evaluates one native block.
pub(super) fn block(
    ev: &Evaluator<'_>,
    b: &HclBlock,
    scope: &Scope<'_>,
    problems: &mut Diagnostics,
) -> Block {
    let labels = b.labels.iter().map(|l| l.as_str().to_owned()).collect();
    let location = head(b);
    Block {
        name: b.ident.as_str().to_owned(),
        labels,
        location,
        ..build(ev, &b.body, scope, problems)
    }
}

/// From the block's type to its last label.
pub(super) fn head(b: &HclBlock) -> Location {
    let start = b.ident.span()?;
    let end = b
        .labels
        .last()
        .and_then(Span::span)
        .map_or(start.end, |s| s.end);
    Some(start.start..end)
}

/// What a `dynamic` block says before any part of it is evaluated.
struct Dynamic<'b> {
    name: String,
    for_each: &'b Expression,
    iterator: String,
    labels: Option<&'b Expression>,
    content: &'b HclBlock,
}

impl<'b> Dynamic<'b> {
    fn read(ev: &Evaluator<'_>, b: &'b HclBlock) -> Result<Dynamic<'b>, Box<Diagnostic>> {
        let fail = |summary: &str, detail: &str| Err(ev.problem(head(b), summary, detail));
        let [label] = b.labels.as_slice() else {
            let detail = "A dynamic block has one label: the type of block to make.";
            return fail("Missing name for dynamic", detail);
        };
        let name = label.as_str().to_owned();
        let Some(for_each) = b.body.get_attribute("for_each") else {
            let detail = "The argument \"for_each\" is required, but no definition was found.";
            return fail("Missing required argument", detail);
        };
        let iterator = match b.body.get_attribute("iterator").map(|a| &a.value) {
            None => name.clone(),
            Some(Expression::Variable(v)) => v.as_str().to_owned(),
            Some(Expression::String(s)) => s.as_str().to_owned(),
            Some(_) => {
                return fail(
                    "Invalid expression",
                    "The iterator is given as a single name.",
                );
            }
        };
        let contents: Vec<&HclBlock> = b.body.get_blocks("content").collect();
        let content = match contents.as_slice() {
            [one] => *one,
            [] => {
                let detail = "A dynamic block needs a \"content\" block.";
                return fail("Missing content block", detail);
            }
            _ => {
                let detail = "Only one \"content\" block is allowed.";
                return fail("Extraneous content block", detail);
            }
        };
        let labels = b.body.get_attribute("labels").map(|a| &a.value);
        Ok(Dynamic {
            name,
            for_each: &for_each.value,
            iterator,
            labels,
            content,
        })
    }
}

fn dynamic(
    ev: &Evaluator<'_>,
    b: &HclBlock,
    scope: &Scope<'_>,
    out: &mut Vec<Block>,
    problems: &mut Diagnostics,
) -> Result<(), Box<Diagnostic>> {
    let read = Dynamic::read(ev, b)?;
    let collection = ev.eval(read.for_each, scope)?;
    let pairs = ev.pairs(collection, read.for_each.span())?;
    if pairs.len() > MAX_DYNAMIC {
        let count = pairs.len();
        let detail = format!("This would make {count} blocks; at most {MAX_DYNAMIC} are allowed.");
        return Err(ev.problem(head(b), "Too many dynamic blocks", detail));
    }
    for (key, value) in pairs {
        ev.charge(BLOCK_WEIGHT, head(b))?;
        let mut inner = scope.child();
        let pair = [("key".to_owned(), key), ("value".to_owned(), value)];
        inner.set(&read.iterator, Value::Map(pair.into_iter().collect()));
        let mut made = build(ev, &read.content.body, &inner, problems);
        made.name.clone_from(&read.name);
        made.location = head(b);
        if let Some(labels) = read.labels {
            let Value::List(items) = ev.eval(labels, &inner)? else {
                let detail = "\"labels\" must be a list of strings.";
                return Err(ev.problem(head(b), "Invalid dynamic block label", detail));
            };
            made.labels = items.iter().filter_map(Value::to_text).collect();
        }
        out.push(made);
    }
    Ok(())
}

impl Block {
    /// The first attribute with this name.
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|a| a.name == name)
    }

    /// The block as a plain value, as driver settings take it: attributes by name, and the blocks
    /// of one type as a list of such values.
    pub(super) fn to_value(&self) -> Value {
        let mut map = std::collections::BTreeMap::new();
        for a in &self.attributes {
            map.insert(a.name.clone(), a.value.clone().unwrap_or(Value::Null));
        }
        for b in &self.blocks {
            let mut value = b.to_value();
            for label in b.labels.iter().rev() {
                value = Value::Map(
                    [(label.clone(), Value::List(vec![value]))]
                        .into_iter()
                        .collect(),
                );
            }
            let list = map
                .entry(b.name.clone())
                .or_insert_with(|| Value::List(Vec::new()));
            match list {
                Value::List(items) => items.push(value),
                other => *other = Value::List(vec![value]),
            }
        }
        Value::Map(map)
    }
}
