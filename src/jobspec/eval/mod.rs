//! Evaluates expressions over `hcl-edit`'s syntax tree, which keeps the location of every node.
//!
//! - A reference that no scope knows (`attr.kernel.name`, `node.unique.id`, `NOMAD_TASK_DIR`,
//!   `env["X"]`) is no error: it stays as the text `${…}` for a later step that can resolve it.
//! - Work is bounded by a budget; a specification that builds too much is refused, not obeyed.
//! - Recursion is bounded by the parser's nesting limit.

mod ops;
mod scope;
mod template;
mod traverse;

pub(super) use scope::Scope;

use super::budget::{Budget, Cost, forecast};
use super::diagnostic::{Diagnostic, SourceText};
use super::functions::{self, Functions};
use super::value::Value;
use hcl_edit::Span;
use hcl_edit::expr::{Expression, ForExpr, FuncCall, Object, ObjectKey};
use std::collections::BTreeMap;
use std::ops::Range;

/// What an expression gives.
pub(super) type Evaluated = Result<Value, Box<Diagnostic>>;

/// Evaluates the expressions of one text.
pub(super) struct Evaluator<'a> {
    /// The text the expressions come from.
    pub source: &'a SourceText,
    /// Which functions may be called.
    pub functions: &'a Functions,
    /// What it may cost, shared by all work for the same specification.
    pub budget: &'a Budget,
}

impl<'a> Evaluator<'a> {
    /// An evaluator that spends from a budget.
    pub(super) fn new(
        source: &'a SourceText,
        functions: &'a Functions,
        budget: &'a Budget,
    ) -> Evaluator<'a> {
        Evaluator {
            source,
            functions,
            budget,
        }
    }

    /// A problem at a location.
    pub(super) fn problem(
        &self,
        span: Option<Range<usize>>,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) -> Box<Diagnostic> {
        Box::new(self.source.problem(span, summary, detail))
    }

    /// Takes from the budget.
    ///
    /// # Errors
    /// When it is used up.
    pub(super) fn charge(
        &self,
        bytes: u64,
        span: Option<Range<usize>>,
    ) -> Result<(), Box<Diagnostic>> {
        self.afford(Cost { bytes, steps: 0 }, span)
    }

    /// Takes from the budget before work is done.
    ///
    /// # Errors
    /// When it is used up.
    fn afford(&self, cost: Cost, span: Option<Range<usize>>) -> Result<(), Box<Diagnostic>> {
        self.budget
            .charge(cost)
            .map_err(|why| self.problem(span, "Specification too large", why))
    }

    /// Evaluates one expression.
    ///
    /// # Errors
    /// The first problem, with its location.
    pub(super) fn eval(&self, expr: &Expression, scope: &Scope<'_>) -> Evaluated {
        self.charge(16, expr.span())?;
        match expr {
            Expression::Null(_) => Ok(Value::Null),
            Expression::Bool(b) => Ok(Value::Bool(*b.value())),
            Expression::Number(n) => {
                let n = n.value();
                let whole = n.as_u64().map(i128::from).or(n.as_i64().map(i128::from));
                Ok(whole.map_or_else(|| Value::num(n.as_f64().unwrap_or(0.0)), Value::Int))
            }
            Expression::String(s) => {
                self.charge(s.len() as u64, expr.span())?;
                Ok(Value::Str(s.value().clone()))
            }
            Expression::Array(items) => items
                .iter()
                .map(|e| self.eval(e, scope))
                .collect::<Result<_, _>>()
                .map(Value::List),
            Expression::Object(object) => self.object(object, scope),
            Expression::StringTemplate(t) => self.template(t.iter(), scope, expr.span()),
            Expression::HeredocTemplate(t) => self.heredoc(t, scope, expr.span()),
            Expression::Parenthesis(inner) => self.eval(inner.inner(), scope),
            Expression::Variable(name) => self.variable(name.as_str(), scope, expr.span()),
            Expression::Conditional(c) => self.conditional(c, scope, expr.span()),
            Expression::FuncCall(call) => self.call(call, scope, expr.span()),
            Expression::Traversal(t) => self.traversal(t, scope, expr.span()),
            Expression::UnaryOp(op) => self.unary(op, scope),
            Expression::BinaryOp(op) => self.binary(op, scope),
            Expression::ForExpr(f) => self.for_expr(f, scope),
        }
    }

    fn variable(&self, name: &str, scope: &Scope<'_>, span: Option<Range<usize>>) -> Evaluated {
        match scope.get(name) {
            Some(value) => {
                self.charge(value.weight(), span)?;
                Ok(value.clone())
            }
            None => Ok(Value::Str(format!("${{{name}}}"))),
        }
    }

    fn object(&self, object: &Object, scope: &Scope<'_>) -> Evaluated {
        let mut map = BTreeMap::new();
        for (key, value) in object.iter() {
            let name = match key {
                ObjectKey::Ident(name) => name.as_str().to_owned(),
                ObjectKey::Expression(expr) => {
                    let value = self.eval(expr, scope)?;
                    value.to_text().ok_or_else(|| {
                        let detail = format!(
                            "Can't use this {} as a key: a string is needed.",
                            value.kind()
                        );
                        self.problem(expr.span(), "Incorrect key type", detail)
                    })?
                }
            };
            map.insert(name, self.eval(value.expr(), scope)?);
        }
        Ok(Value::Map(map))
    }

    fn conditional(
        &self,
        c: &hcl_edit::expr::Conditional,
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let cond = self.eval(&c.cond_expr, scope)?;
        let chosen = match cond.to_bool() {
            Some(true) => &c.true_expr,
            Some(false) => &c.false_expr,
            None if cond == Value::Null => {
                let detail =
                    "The condition value is null. Conditions must either be true or false.";
                return Err(self.problem(c.cond_expr.span().or(span), "Null condition", detail));
            }
            None => {
                let detail = "The condition expression must be of type bool.";
                return Err(self.problem(
                    c.cond_expr.span().or(span),
                    "Incorrect condition type",
                    detail,
                ));
            }
        };
        self.eval(chosen, scope)
    }

    fn call(&self, call: &FuncCall, scope: &Scope<'_>, span: Option<Range<usize>>) -> Evaluated {
        let name = call.name.name.as_str();
        match name {
            "can" if call.args.len() == 1 => {
                let arg = call.args.iter().next().map(|e| self.eval(e, scope));
                return match arg {
                    Some(Err(problem)) if self.budget.is_spent() => Err(problem),
                    arg => Ok(Value::Bool(matches!(arg, Some(Ok(_))))),
                };
            }
            "try" if !call.args.is_empty() => {
                let mut last = None;
                for arg in call.args.iter() {
                    match self.eval(arg, scope) {
                        Ok(value) => return Ok(value),
                        Err(problem) if self.budget.is_spent() => return Err(problem),
                        Err(problem) => last = Some(problem),
                    }
                }
                let detail = "no expression succeeded";
                return Err(
                    last.unwrap_or_else(|| self.problem(span, "Error in function call", detail))
                );
            }
            "convert" => return self.convert(call, scope, span),
            _ => {}
        }
        let mut args = Vec::with_capacity(call.args.len());
        for arg in call.args.iter() {
            args.push(self.eval(arg, scope)?);
        }
        if call.args.expand_final() {
            match args.pop() {
                Some(Value::List(items)) => args.extend(items),
                _ => {
                    let detail = "The expanding argument (indicated by ...) must be of a tuple, \
                        list, or set type.";
                    return Err(self.problem(span, "Invalid expanding argument value", detail));
                }
            }
        }
        self.afford(forecast(name, &args), span.clone())?;
        let called = self.functions.call(name, args, self.budget);
        let result = called.map_err(|err| match err {
            functions::CallError::Unknown => self.problem(
                span.clone(),
                "Call to unknown function",
                format!("There is no function named {name:?}."),
            ),
            functions::CallError::Failed(text) => self.problem(
                span.clone(),
                "Error in function call",
                format!("Call to function {name:?} failed: {text}."),
            ),
        })?;
        self.charge(result.weight(), span)?;
        Ok(result)
    }

    fn convert(&self, call: &FuncCall, scope: &Scope<'_>, span: Option<Range<usize>>) -> Evaluated {
        let mut args = call.args.iter();
        let (Some(value), Some(to), None) = (args.next(), args.next(), args.next()) else {
            let detail = "Function \"convert\" expects a value and a type.";
            return Err(self.problem(span, "Error in function call", detail));
        };
        let fail = |text: String| self.problem(span.clone(), "Error in function call", text);
        let to = super::types::parse(to).map_err(fail)?;
        super::types::convert(self.eval(value, scope)?, &to).map_err(fail)
    }

    fn for_expr(&self, f: &ForExpr, scope: &Scope<'_>) -> Evaluated {
        let collection = self.eval(&f.intro.collection_expr, scope)?;
        let span = f.intro.collection_expr.span();
        let pairs = self.pairs(collection, span.clone())?;
        let mut list = Vec::new();
        let mut map: BTreeMap<String, Value> = BTreeMap::new();
        for (key, value) in pairs {
            self.charge(0, span.clone())?;
            let mut inner = scope.child();
            if let Some(name) = &f.intro.key_var {
                inner.set(name.as_str(), key);
            }
            inner.set(f.intro.value_var.as_str(), value);
            if let Some(cond) = &f.cond {
                let wanted = self.eval(&cond.expr, &inner)?;
                match wanted.to_bool() {
                    Some(true) => {}
                    Some(false) => continue,
                    None => {
                        let detail = "The 'if' clause value is invalid: bool required.";
                        return Err(self.problem(
                            cond.expr.span(),
                            "Invalid 'for' condition",
                            detail,
                        ));
                    }
                }
            }
            let value = self.eval(&f.value_expr, &inner)?;
            let Some(key_expr) = &f.key_expr else {
                list.push(value);
                continue;
            };
            let Some(key) = self.eval(key_expr, &inner)?.to_text() else {
                let detail = "The key expression produced an invalid result: string required.";
                return Err(self.problem(key_expr.span(), "Invalid object key", detail));
            };
            if f.grouping {
                let group = map.entry(key).or_insert_with(|| Value::List(Vec::new()));
                if let Value::List(items) = group {
                    items.push(value);
                }
                continue;
            }
            if map.contains_key(&key) {
                let detail = format!(
                    "Two different items produced the key {key:?} in this 'for' expression. If \
                     duplicates are expected, use the ellipsis (...) after the value expression to \
                     enable grouping by key."
                );
                return Err(self.problem(key_expr.span(), "Duplicate object key", detail));
            }
            map.insert(key, value);
        }
        Ok(if f.key_expr.is_some() {
            Value::Map(map)
        } else {
            Value::List(list)
        })
    }

    /// Keys and values of a collection, in order.
    pub(crate) fn pairs(
        &self,
        collection: Value,
        span: Option<Range<usize>>,
    ) -> Result<Vec<(Value, Value)>, Box<Diagnostic>> {
        match collection {
            Value::List(items) => Ok(items
                .into_iter()
                .enumerate()
                .map(|(i, v)| (Value::Int(i as i128), v))
                .collect()),
            Value::Map(map) => Ok(map.into_iter().map(|(k, v)| (Value::Str(k), v)).collect()),
            Value::Null => {
                let detail = "A null value cannot be used as the collection in a 'for' expression.";
                Err(self.problem(span, "Iteration over null value", detail))
            }
            other => {
                let detail = format!(
                    "A value of type {} cannot be used as the collection in a 'for' expression.",
                    other.kind()
                );
                Err(self.problem(span, "Iteration over non-iterable value", detail))
            }
        }
    }
}
