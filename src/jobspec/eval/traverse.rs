//! Attribute access, indexes and splats.

use super::super::value::Value;
use super::{Evaluated, Evaluator, Scope};
use hcl_edit::Span;
use hcl_edit::expr::{Expression, Traversal, TraversalOperator};
use std::ops::Range;

/// How many splats one expression may have: each nests what it gives once more.
const MAX_SPLATS: usize = 64;

impl Evaluator<'_> {
    pub(super) fn traversal(
        &self,
        t: &Traversal,
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let splats = t.operators.iter().filter(|step| is_splat(step.value()));
        if splats.count() > MAX_SPLATS {
            let detail = format!("An expression may have at most {MAX_SPLATS} splats.");
            return Err(self.problem(span, "Too many splats", detail));
        }
        if let Expression::Variable(root) = &t.expr {
            let Some(value) = scope.get(root.as_str()) else {
                return Ok(Value::Str(format!("${{{}}}", self.text_of(t, span))));
            };
            return self.descend_ref(value, &t.operators, scope, span);
        }
        let value = self.eval(&t.expr, scope)?;
        self.descend(value, &t.operators, scope, span)
    }

    fn text_of(&self, t: &Traversal, span: Option<Range<usize>>) -> String {
        let text = span
            .as_ref()
            .map(|s| self.source.slice(s).trim())
            .unwrap_or("");
        if text.is_empty() {
            t.expr.to_string()
        } else {
            text.to_owned()
        }
    }

    /// Follows leading plain steps by reference, so that `local.big.x` does not copy `big`.
    fn descend_ref(
        &self,
        mut value: &Value,
        steps: &[hcl_edit::Decorated<TraversalOperator>],
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let mut taken = 0;
        for step in steps {
            let TraversalOperator::GetAttr(name) = step.value() else {
                break;
            };
            let Value::Map(map) = value else { break };
            let Some(inner) = map.get(name.as_str()) else {
                break;
            };
            value = inner;
            taken += 1;
        }
        self.charge(value.weight(), span.clone())?;
        self.descend(value.clone(), &steps[taken..], scope, span)
    }

    fn descend(
        &self,
        mut value: Value,
        steps: &[hcl_edit::Decorated<TraversalOperator>],
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        for (i, step) in steps.iter().enumerate() {
            value = match step.value() {
                TraversalOperator::GetAttr(name) => {
                    self.attribute(value, name.as_str(), span.clone())?
                }
                TraversalOperator::LegacyIndex(n) => {
                    let key = Value::Int((*n.value()).into());
                    self.index(value, &key, span.clone())?
                }
                TraversalOperator::Index(expr) => {
                    let key = self.eval(expr, scope)?;
                    self.index(value, &key, expr.span().or(span.clone()))?
                }
                TraversalOperator::FullSplat(_) | TraversalOperator::AttrSplat(_) => {
                    return self.splat(value, &steps[i + 1..], scope, span);
                }
            };
        }
        Ok(value)
    }

    fn splat(
        &self,
        value: Value,
        rest: &[hcl_edit::Decorated<TraversalOperator>],
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let items = match value {
            Value::List(items) => items,
            Value::Null => Vec::new(),
            other => vec![other],
        };
        items
            .into_iter()
            .map(|item| self.descend(item, rest, scope, span.clone()))
            .collect::<Result<_, _>>()
            .map(Value::List)
    }

    fn attribute(&self, value: Value, name: &str, span: Option<Range<usize>>) -> Evaluated {
        match value {
            Value::Map(mut map) => map.remove(name).ok_or_else(|| {
                let detail = format!("This object does not have an attribute named {name:?}.");
                self.problem(span, "Unsupported attribute", detail)
            }),
            Value::Null => {
                let detail =
                    format!("This value is null, so it does not have an attribute named {name:?}.");
                Err(self.problem(span, "Attempt to get attribute from null value", detail))
            }
            _ => {
                let detail = "This value does not have any attributes.";
                Err(self.problem(span, "Unsupported attribute", detail))
            }
        }
    }

    fn index(&self, value: Value, key: &Value, span: Option<Range<usize>>) -> Evaluated {
        let invalid = |detail: &str| self.problem(span.clone(), "Invalid index", detail);
        match value {
            Value::List(mut items) => {
                let number = match key.to_number() {
                    Some(Value::Int(n)) => n,
                    _ => {
                        return Err(invalid(
                            "The given key does not identify an element in this collection value: \
                                a number is required.",
                        ));
                    }
                };
                match usize::try_from(number).ok().filter(|n| *n < items.len()) {
                    Some(n) => Ok(items.swap_remove(n)),
                    None => Err(invalid(
                        "The given key does not identify an element in this collection value.",
                    )),
                }
            }
            Value::Map(mut map) => {
                let found = key.to_text().and_then(|k| map.remove(&k));
                found.ok_or_else(|| {
                    invalid("The given key does not identify an element in this collection value.")
                })
            }
            Value::Null => {
                let detail = "This value is null, so it does not have any indices.";
                Err(self.problem(span, "Attempt to index null value", detail))
            }
            _ => Err(invalid("This value does not have any indices.")),
        }
    }
}

fn is_splat(step: &TraversalOperator) -> bool {
    matches!(
        step,
        TraversalOperator::FullSplat(_) | TraversalOperator::AttrSplat(_)
    )
}
