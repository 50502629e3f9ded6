//! `variable` and `variables` blocks, and the values users give from outside.

use super::bounds;
use super::diagnostic::{Diagnostic, Diagnostics, SourceText};
use super::eval::{Evaluator, Scope};
use super::refs::references;
use super::types::{self, Type};
use super::value::Value;
use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Structure};
use std::collections::BTreeMap;
use std::ops::Range;

/// A declared variable.
#[derive(Default)]
pub(super) struct Variable {
    /// Its type, if it has one.
    pub value_type: Option<Type>,
    /// Its value as it stands: the default, until something stronger sets it.
    pub value: Option<Value>,
    /// Where the value came from, for error texts.
    pub from: &'static str,
    /// Rules the value must meet.
    pub rules: Vec<ValidationRule>,
    /// Where it is declared.
    pub location: Option<Range<usize>>,
}

/// A rule of a variable.
pub(super) struct ValidationRule {
    condition: Expression,
    message: String,
    location: Option<Range<usize>>,
}

/// All declared variables by name.
pub(super) type Variables = BTreeMap<String, Variable>;

/// Whether a variable may be called this.
pub(super) fn valid_name(name: &str) -> bool {
    let start = |c: char| c.is_alphabetic() || c == '_';
    name.chars().next().is_some_and(start)
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// Declares a variable, refusing a second one of the name.
pub(super) fn declare(
    source: &SourceText,
    name: &str,
    variable: Variable,
    into: &mut Variables,
    problems: &mut Diagnostics,
) {
    let location = variable.location.clone();
    if !valid_name(name) {
        let detail = "Name must start with a letter or underscore and may contain only letters, \
            digits, \
                      underscores, and dashes.";
        problems.push(source.problem(location, "Invalid variable name", detail));
    } else if into.contains_key(name) {
        let detail = format!("Duplicate {name} variable definition found.");
        problems.push(source.problem(location, "Duplicate variable", detail));
    } else {
        into.insert(name.to_owned(), variable);
    }
}

/// Reads a `variable "name" {}` block.
pub(super) fn read(
    ev: &Evaluator<'_>,
    block: &Block,
    into: &mut Variables,
    problems: &mut Diagnostics,
) {
    let location = super::tree::head(block);
    let [label] = block.labels.as_slice() else {
        let detail = "All variable blocks must have 1 labels (name).";
        return problems.push(
            ev.source
                .problem(location, "Missing name for variable", detail),
        );
    };
    let mut variable = Variable {
        from: "default",
        location: location.clone(),
        ..Variable::default()
    };
    for structure in &block.body {
        match structure {
            Structure::Attribute(a) => match a.key.as_str() {
                "description" => {}
                "type" => match types::parse(&a.value) {
                    Ok(value_type) => variable.value_type = Some(value_type),
                    Err(text) => {
                        let problem =
                            ev.source
                                .problem(a.value.span(), "Invalid type specification", text);
                        problems.push(problem);
                    }
                },
                "default" => match ev.eval(&a.value, &Scope::default()) {
                    Ok(value) => variable.value = Some(value),
                    Err(problem) => problems.push(*problem),
                },
                other => {
                    let detail = format!("An argument named {other:?} is not expected here.");
                    problems.push(
                        ev.source
                            .problem(a.key.span(), "Unsupported argument", detail),
                    );
                }
            },
            Structure::Block(b) if b.ident.as_str() == "validation" => {
                if let Some(rule) = rule(ev, label.as_str(), b, problems) {
                    variable.rules.push(rule);
                }
            }
            Structure::Block(b) => {
                let detail = format!(
                    "Blocks of type {:?} are not expected here.",
                    b.ident.as_str()
                );
                problems.push(
                    ev.source
                        .problem(b.ident.span(), "Unsupported block type", detail),
                );
            }
        }
    }
    convert_default(ev.source, label.as_str(), &mut variable, problems);
    declare(ev.source, label.as_str(), variable, into, problems);
}

/// Converts a default to the variable's type.
pub(super) fn convert_default(
    source: &SourceText,
    name: &str,
    variable: &mut Variable,
    problems: &mut Diagnostics,
) {
    let (Some(value_type), Some(value)) = (&variable.value_type, &variable.value) else {
        return;
    };
    match types::convert(value.clone(), value_type) {
        Ok(value) => variable.value = Some(value),
        Err(text) => {
            let detail = format!(
                "This default value is not compatible with the variable's type constraint: {text}."
            );
            let summary = "Invalid default value for variable";
            problems.push(source.problem(
                variable.location.clone(),
                summary,
                format!("{name}: {detail}"),
            ));
        }
    }
}

fn rule(
    ev: &Evaluator<'_>,
    name: &str,
    b: &Block,
    problems: &mut Diagnostics,
) -> Option<ValidationRule> {
    let location = b.ident.span();
    let missing = |what: &str| {
        let detail = format!("The argument {what:?} is required, but no definition was found.");
        ev.source
            .problem(location.clone(), "Missing required argument", detail)
    };
    let Some(condition) = b.body.get_attribute("condition") else {
        problems.push(missing("condition"));
        return None;
    };
    let Some(message) = b.body.get_attribute("error_message") else {
        problems.push(missing("error_message"));
        return None;
    };
    let message_place = message.value.span();
    let Some(text) = message
        .value
        .as_str()
        .map(str::to_owned)
        .filter(|t| !t.is_empty())
    else {
        let detail = "The error message must be a non-empty string.";
        problems.push(
            ev.source
                .problem(message_place, "Invalid validation error message", detail),
        );
        return None;
    };
    let span = condition.value.span();
    let mut refers = false;
    for (root, first) in references(&condition.value) {
        if root == "var" && first.as_deref() == Some(name) {
            refers = true;
        } else if matches!(root.as_str(), "var" | "local") {
            let detail = format!(
                "The condition for variable {name:?} can only refer to the variable itself, using \
                    var.{name}."
            );
            let summary = "Invalid reference in variable validation";
            problems.push(ev.source.problem(span.clone(), summary, detail));
            return None;
        }
    }
    if !refers {
        let detail = format!(
            "The condition for variable {name:?} must refer to var.{name} in order to test \
                incoming values."
        );
        problems.push(
            ev.source
                .problem(span, "Invalid variable validation condition", detail),
        );
        return None;
    }
    Some(ValidationRule {
        condition: condition.value.clone(),
        message: text,
        location: span,
    })
}

/// Gives a variable a value that came as text: from `-var` or the environment.
pub(super) fn set_text(
    ev: &Evaluator<'_>,
    variables: &mut Variables,
    name: &str,
    text: &str,
    from: &'static str,
    problems: &mut Diagnostics,
) {
    let Some(variable) = variables.get_mut(name) else {
        return;
    };
    let fail = |detail: String| Diagnostic {
        summary: format!("Invalid argument value for {from} variable"),
        detail: format!("The value for {name:?} is not valid: {detail}."),
        location: None,
    };
    let value = match &variable.value_type {
        None | Some(Type::Any | Type::String | Type::Number | Type::Bool) => Ok(Value::str(text)),
        Some(_) => bounds::expression(text, ev.budget)
            .map_err(fail)
            .and_then(|expr| {
                ev.eval(&expr, &Scope::default())
                    .map_err(|p| fail(p.detail))
            }),
    };
    let value_type = variable.value_type.clone().unwrap_or(Type::Any);
    let value = value.and_then(|v| types::convert(v, &value_type).map_err(fail));
    match value {
        Ok(value) => {
            variable.value = Some(value);
            variable.from = from;
        }
        Err(problem) => problems.push(problem),
    }
}

/// Gives variables the values of a file: attributes in HCL, or a JSON object.
pub(super) fn set_file(
    variables: &mut Variables,
    name: &str,
    text: &str,
    strict: bool,
    means: (&super::functions::Functions, &super::budget::Budget),
    problems: &mut Diagnostics,
) {
    let source = SourceText::new(name, text);
    for (key, value, location) in file_values(&source, means, problems) {
        match variables.get_mut(&key) {
            None if strict => {
                let detail =
                    format!("A {key:?} variable was set but was not found in known variables.");
                problems.push(source.problem(location, "Undefined variable", detail));
            }
            None => {}
            Some(variable) => {
                let value_type = variable.value_type.clone().unwrap_or(Type::Any);
                match types::convert(value, &value_type) {
                    Ok(value) => {
                        variable.value = Some(value);
                        variable.from = "varfile";
                    }
                    Err(text) => {
                        let detail = format!(
                            "The value for {key} is not compatible with the variable's type \
                                constraint: {text}."
                        );
                        problems.push(source.problem(
                            location,
                            "Invalid value for variable",
                            detail,
                        ));
                    }
                }
            }
        }
    }
}

type Given = (String, Value, Option<Range<usize>>);

fn file_values(
    source: &SourceText,
    (functions, budget): (&super::functions::Functions, &super::budget::Budget),
    problems: &mut Diagnostics,
) -> Vec<Given> {
    if source.text.trim_start().starts_with('{') {
        return match bounds::json(source, budget) {
            Ok(map) => map
                .iter()
                .map(|(k, v)| (k.clone(), Value::from_json(v), None))
                .collect(),
            Err(problem) => {
                let detail = format!("{}: {}", source.name, problem.detail);
                problems.push(Diagnostic { detail, ..problem });
                Vec::new()
            }
        };
    }
    let body = match bounds::parse(source, budget) {
        Ok(body) => body,
        Err(problem) => {
            problems.push(problem);
            return Vec::new();
        }
    };
    let ev = Evaluator::new(source, functions, budget);
    let mut out = Vec::new();
    for structure in &body {
        match structure {
            Structure::Attribute(a) => match ev.eval(&a.value, &Scope::default()) {
                Ok(value) => out.push((a.key.as_str().to_owned(), value, a.key.span())),
                Err(problem) => problems.push(*problem),
            },
            Structure::Block(b) => {
                let detail = "A .var file is used to assign values to variables that have already \
                    been \
                              declared in the job file, not to declare new variables.";
                let summary = "Variable declaration in a .var file";
                problems.push(source.problem(b.ident.span(), summary, detail));
            }
        }
    }
    out
}

/// Checks every value against its variable's rules.
pub(super) fn check(ev: &Evaluator<'_>, variables: &Variables, problems: &mut Diagnostics) {
    for (name, variable) in variables {
        let Some(value) = &variable.value else {
            continue;
        };
        for rule in &variable.rules {
            // Each rule sees a copy of the value.
            if let Err(problem) = ev.charge(value.weight(), rule.location.clone()) {
                return problems.push(*problem);
            }
            let mut scope = Scope::default();
            let map = [(name.clone(), value.clone())].into_iter().collect();
            scope.set("var", Value::Map(map));
            match ev.eval(&rule.condition, &scope) {
                Err(problem) => problems.push(*problem),
                Ok(met) if met.to_bool() == Some(true) => {}
                Ok(met) if met.to_bool() == Some(false) => {
                    let at = rule
                        .location
                        .clone()
                        .map(|p| ev.source.location(p).to_string())
                        .unwrap_or_default();
                    let detail = format!(
                        "{}\n\nThis was checked by the validation rule at {at}.",
                        rule.message
                    );
                    let summary = format!("Invalid value for {} variable", variable.from);
                    problems.push(
                        ev.source
                            .problem(variable.location.clone(), summary, detail),
                    );
                }
                Ok(_) => {
                    let detail = "The condition must give true or false.";
                    let summary = "Invalid variable validation condition";
                    problems.push(ev.source.problem(rule.location.clone(), summary, detail));
                }
            }
        }
    }
}
