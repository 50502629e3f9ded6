//! Evaluation: an expression and a row to yes, no or an error.

use super::ast::{Expr, Match, Operator, Quantifier, Selector};
use super::coerce::{self, CoerceError};
use super::read::{Fields, Lookup, Value};
use super::{FilterError, MAX_STEPS};

/// Whether the row passes, and how many steps that took.
pub(super) fn matches<T: Fields + ?Sized>(
    root: &Expr,
    row: &T,
) -> Result<(bool, u32), FilterError> {
    let mut evaluator = Evaluator {
        row,
        placeholders: Vec::new(),
        steps: 0,
    };
    let passes = evaluator.expr(root)?;
    Ok((passes, evaluator.steps))
}

/// A placeholder of `any` or `all`: another name for a path, or a value of its own.
struct Placeholder<'e> {
    name: &'e str,
    bound: Bound,
}

enum Bound {
    Path(Vec<String>),
    Value(Value),
}

struct Evaluator<'e, T: ?Sized> {
    row: &'e T,
    placeholders: Vec<Placeholder<'e>>,
    steps: u32,
}

impl<'e, T: Fields + ?Sized> Evaluator<'e, T> {
    fn expr(&mut self, expr: &'e Expr) -> Result<bool, FilterError> {
        match expr {
            Expr::Not(inner) => Ok(!self.expr(inner)?),
            Expr::And(operands) => {
                for operand in operands {
                    if !self.expr(operand)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Or(operands) => {
                for operand in operands {
                    if self.expr(operand)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::Match(found) => self.compare(found),
            Expr::Quantifier(quantifier) => self.quantified(quantifier),
        }
    }

    fn compare(&mut self, test: &Match) -> Result<bool, FilterError> {
        let Lookup::Found(value) = self.lookup(&test.selector)? else {
            // A missing key contains nothing, equals nothing, is empty and is nil.
            let answer = matches!(test.operator, Operator::Empty | Operator::Nil);
            return Ok(answer != test.negated);
        };
        let answer = match test.operator {
            Operator::Equal => equal(&value, test)?,
            Operator::In => contains(&value, test)?,
            Operator::Matches => match (&value, &test.pattern) {
                (Value::Text(text), Some(pattern)) => pattern.is_match(text.as_bytes()),
                (Value::Bytes(bytes), Some(pattern)) => pattern.is_match(bytes),
                (Value::Absent, Some(pattern)) => pattern.is_match(b""),
                _ => return Err(operand_error("matches operations", &value, &test.selector)),
            },
            Operator::Empty => is_empty(&value)
                .ok_or_else(|| operand_error("is-empty operations", &value, &test.selector))?,
            Operator::Nil => is_nil(&value)
                .ok_or_else(|| operand_error("is-nil operations", &value, &test.selector))?,
        };
        Ok(answer != test.negated)
    }

    fn quantified(&mut self, quantifier: &'e Quantifier) -> Result<bool, FilterError> {
        let Lookup::Found(value) = self.lookup(&quantifier.selector)? else {
            return Ok(quantifier.all);
        };
        let keys = match value {
            Value::List(items) => (0..items.len()).map(|index| index.to_string()).collect(),
            Value::Map(keys) => return self.quantify_over_keys(quantifier, keys, true),
            Value::Bytes(bytes) => (0..bytes.len()).map(|index| index.to_string()).collect(),
            Value::NilList | Value::NilMap | Value::Absent => Vec::new(),
            _ => {
                let selector = quantifier.selector.as_value();
                return Err(FilterError::Placeholder(format!(
                    "{selector} is not a list or a map"
                )));
            }
        };
        self.quantify_over_keys(quantifier, keys, false)
    }

    fn quantify_over_keys(
        &mut self,
        quantifier: &'e Quantifier,
        keys: Vec<String>,
        map: bool,
    ) -> Result<bool, FilterError> {
        let binding = &quantifier.binding;
        if !keys.is_empty() && binding.index.is_some() && binding.index == binding.value {
            return Err(FilterError::Placeholder(format!(
                "{:?} cannot be used as a placeholder for both the index and the value",
                binding.index.as_deref().unwrap_or_default()
            )));
        }
        let outer = self.placeholders.len();
        for (position, key) in keys.into_iter().enumerate() {
            let mut path = quantifier.selector.path.clone();
            let index = if map {
                Value::Text(key.clone())
            } else {
                Value::Int(i64::try_from(position).unwrap_or(i64::MAX))
            };
            path.push(key);
            if let Some(name) = &binding.default_name {
                let bound = if map {
                    Bound::Value(index.clone())
                } else {
                    Bound::Path(path.clone())
                };
                self.placeholders.push(Placeholder { name, bound });
            }
            if let Some(name) = &binding.index {
                self.placeholders.push(Placeholder {
                    name,
                    bound: Bound::Value(index),
                });
            }
            if let Some(name) = &binding.value {
                self.placeholders.push(Placeholder {
                    name,
                    bound: Bound::Path(path),
                });
            }
            let result = self.expr(&quantifier.inner);
            self.placeholders.truncate(outer);
            if result? != quantifier.all {
                return Ok(!quantifier.all);
            }
        }
        Ok(quantifier.all)
    }

    /// Finds a selector's value: first among the placeholders, innermost first, then in the row.
    fn lookup(&mut self, selector: &Selector) -> Result<Lookup, FilterError> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(FilterError::TooCostly);
        }
        let mut path = std::borrow::Cow::Borrowed(&selector.path);
        for placeholder in self.placeholders.iter().rev() {
            if path.first().map(String::as_str) != Some(placeholder.name) {
                continue;
            }
            match &placeholder.bound {
                Bound::Value(value) if path.len() == 1 => {
                    return Ok(Lookup::Found(value.clone()));
                }
                Bound::Value(value) => {
                    return Err(FilterError::Placeholder(format!(
                        "/{} references a {} so /{} is invalid",
                        placeholder.name,
                        value.kind(),
                        path.join("/")
                    )));
                }
                Bound::Path(prefix) => {
                    let full = prefix.iter().chain(&path[1..]).cloned().collect();
                    path = std::borrow::Cow::Owned(full);
                }
            }
        }
        let problem = |source| FilterError::Selector {
            path: path.join("/"),
            part: part_of(&path, &source),
            source,
        };
        match self.row.read(&path) {
            Ok(Lookup::MissingKey) if path.len() < 2 => {
                Err(problem(super::ReadError::Unknown(path.join("/"))))
            }
            Ok(found) => Ok(found),
            Err(error) => Err(problem(error)),
        }
    }
}

fn operand_error(operation: &'static str, value: &Value, selector: &Selector) -> FilterError {
    FilterError::Operand {
        operation,
        kind: value.kind(),
        selector: selector.as_value(),
    }
}

/// Equality of one plain value; `None` where the kind has no equality.
fn same(value: &Value, text: &str) -> Option<Result<bool, CoerceError>> {
    Some(match value {
        Value::Bool(v) => coerce::boolean(text).map(|t| t == *v),
        Value::Int(v) => coerce::signed(text).map(|t| t == *v),
        Value::Uint(v) => coerce::unsigned(text).map(|t| t == *v),
        Value::Float32(v) => coerce::single(text).map(|t| t == *v),
        Value::Float(v) => coerce::double(text).map(|t| t == *v),
        Value::Text(v) => Ok(v == text),
        Value::Absent => Ok(matches!(text, "" | "0" | "false")),
        _ => return None,
    })
}

fn equal(value: &Value, test: &Match) -> Result<bool, FilterError> {
    match same(value, &test.value) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) => Err(literal_error(value, test)),
        None => Err(operand_error("equality", value, &test.selector)),
    }
}

fn literal_error(value: &Value, test: &Match) -> FilterError {
    FilterError::Literal {
        value: test.value.clone(),
        kind: value.kind(),
    }
}

fn contains(value: &Value, test: &Match) -> Result<bool, FilterError> {
    let wanted = &test.value;
    match value {
        Value::Text(text) => Ok(text.contains(wanted.as_str())),
        Value::Map(keys) => Ok(keys.iter().any(|key| key == wanted)),
        Value::List(items) => in_list(items, test),
        Value::NilList | Value::NilMap => Ok(false),
        Value::Absent => Ok(wanted.is_empty()),
        Value::Bytes(bytes) => match coerce::unsigned(wanted) {
            Ok(number) => Ok(bytes.iter().any(|byte| u64::from(*byte) == number)),
            Err(_) => Err(literal_error(value, test)),
        },
        _ => Err(operand_error(
            "in/contains operations",
            value,
            &test.selector,
        )),
    }
}

/// In a list of one kind a value that cannot be read as that kind is an error; in a mixed list it
/// is only no match for that element.
fn in_list(items: &[Value], test: &Match) -> Result<bool, FilterError> {
    let mixed = items
        .windows(2)
        .any(|pair| pair[0].kind() != pair[1].kind());
    for item in items {
        match same(item, &test.value) {
            Some(Ok(true)) => return Ok(true),
            Some(Ok(false)) => {}
            Some(Err(CoerceError::Syntax)) if mixed => {}
            Some(Err(_)) => return Err(literal_error(item, test)),
            None => {
                return Err(operand_error(
                    "in/contains operations",
                    item,
                    &test.selector,
                ));
            }
        }
    }
    Ok(false)
}

fn is_empty(value: &Value) -> Option<bool> {
    match value {
        Value::Text(text) => Some(text.is_empty()),
        Value::Bytes(bytes) => Some(bytes.is_empty()),
        Value::List(items) => Some(items.is_empty()),
        Value::Map(keys) => Some(keys.is_empty()),
        Value::NilList | Value::NilMap | Value::Absent => Some(true),
        _ => None,
    }
}

fn is_nil(value: &Value) -> Option<bool> {
    match value {
        Value::Nil | Value::NilList | Value::NilMap | Value::Absent => Some(true),
        Value::List(_) | Value::Map(_) | Value::Struct => Some(false),
        Value::Bytes(bytes) => Some(bytes.is_empty()),
        _ => None,
    }
}

/// The part of a path that an error is about.
fn part_of(path: &[String], error: &super::ReadError) -> usize {
    use super::ReadError as E;
    let last = path.len().saturating_sub(1);
    let at = |part: &str| path.iter().rposition(|p| p == part).unwrap_or(last);
    match error {
        E::Unknown(part) | E::NotAnIndex(part) => at(part),
        E::OutOfRange { index, .. } => at(&index.to_string()),
        E::NoParts(_) | E::Unreadable(_) => last,
    }
}
