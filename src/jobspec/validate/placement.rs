//! Rules of constraints, affinities and spreads.

use super::super::pattern::Patterns;
use super::{many, when};
use drover_events::model::{Affinity, Constraint, Spread};
use std::collections::BTreeSet;

fn numbered(what: &str, i: usize, inner: Vec<String>, errors: &mut Vec<String>) {
    if !inner.is_empty() {
        errors.push(format!(
            "{what} {} validation failed: {}",
            i + 1,
            many(&inner)
        ));
    }
}

pub(super) fn constraints(list: &[Constraint], patterns: &Patterns, errors: &mut Vec<String>) {
    for (i, c) in list.iter().enumerate() {
        let mut inner = Vec::new();
        constraint(c, patterns, &mut inner);
        numbered("Constraint", i, inner, errors);
    }
}

fn constraint(c: &Constraint, patterns: &Patterns, errors: &mut Vec<String>) {
    if c.operand.is_empty() {
        errors.push("Missing constraint operand".into());
        return;
    }
    let mut needs_left = true;
    match c.operand.as_str() {
        "distinct_hosts" => needs_left = false,
        "set_contains" | "set_contains_all" | "set_contains_any" => {
            when(errors, c.r_target.is_empty(), || {
                "Set contains constraint requires an RTarget".into()
            });
        }
        "regexp" => {
            if let Some(err) = patterns.fault(&c.r_target) {
                errors.push(format!("Regular expression failed to compile: {err}"));
            }
        }
        "version" => when(errors, !version_rule(&c.r_target), || {
            format!(
                "Version constraint is invalid: Malformed constraint: {}",
                c.r_target
            )
        }),
        "semver" => when(errors, !semver_rule(&c.r_target), || {
            format!(
                "Semver constraint is invalid: Malformed constraint: {}",
                c.r_target
            )
        }),
        "distinct_property" => {
            if !c.r_target.is_empty() {
                match c.r_target.parse::<u64>() {
                    Err(err) => errors.push(format!(
                        "Failed to convert RTarget {:?} to uint64: {err}",
                        c.r_target
                    )),
                    Ok(0) => errors.push(
                        "Distinct Property must have an allowed count of 1 or greater: 0 < 1"
                            .into(),
                    ),
                    Ok(_) => {}
                }
            }
        }
        "is_set" | "is_not_set" => when(errors, !c.r_target.is_empty(), || {
            format!("Operator {:?} does not support an RTarget", c.operand)
        }),
        "=" | "==" | "is" | "!=" | "not" | "<" | "<=" | ">" | ">=" => {
            when(errors, c.r_target.is_empty(), || {
                format!("Operator {:?} requires an RTarget", c.operand)
            });
        }
        other => errors.push(format!("Unknown constraint type {other:?}")),
    }
    when(errors, needs_left && c.l_target.is_empty(), || {
        "no attribute provided but is required by operator".into()
    });
    attribute(&c.l_target, errors);
}

/// An attribute is literal text, or one whole reference to what a node has.
fn attribute(text: &str, errors: &mut Vec<String>) {
    let Some(inner) = text.strip_prefix('$') else {
        return;
    };
    let Some(inner) = inner.strip_prefix('{') else {
        errors.push(format!("attribute {text:?} is missing an opening brace"));
        return;
    };
    let Some(inner) = inner.strip_suffix('}') else {
        errors.push(format!("attribute {text:?} is missing a closing brace"));
        return;
    };
    let whole = [
        "node.unique.id",
        "node.datacenter",
        "node.unique.name",
        "node.class",
        "node.pool",
    ];
    let known = whole.contains(&inner)
        || ["attr.", "meta.", "device."]
            .iter()
            .any(|p| inner.starts_with(p));
    when(errors, !known, || format!("unsupported attribute {text:?}"));
}

pub(super) fn affinities(list: &[Affinity], patterns: &Patterns, errors: &mut Vec<String>) {
    for (i, a) in list.iter().enumerate() {
        let mut inner = Vec::new();
        affinity(a, patterns, &mut inner);
        numbered("Affinity", i, inner, errors);
    }
}

fn affinity(a: &Affinity, patterns: &Patterns, errors: &mut Vec<String>) {
    if a.operand.is_empty() {
        errors.push("Missing affinity operand".into());
    }
    match a.operand.as_str() {
        "" => {}
        "set_contains" | "set_contains_all" | "set_contains_any" => {
            when(errors, a.r_target.is_empty(), || {
                "Set contains operators require an RTarget".into()
            });
        }
        "regexp" => {
            if let Some(err) = patterns.fault(&a.r_target) {
                errors.push(format!("Regular expression failed to compile: {err}"));
            }
        }
        "version" => when(errors, !version_rule(&a.r_target), || {
            "Version affinity is invalid".into()
        }),
        "semver" => when(errors, !semver_rule(&a.r_target), || {
            "Semver affinity is invalid".into()
        }),
        "=" | "==" | "is" | "!=" | "not" | "<" | "<=" | ">" | ">=" => {
            when(errors, a.r_target.is_empty(), || {
                format!("Operator {:?} requires an RTarget", a.operand)
            });
        }
        other => errors.push(format!("Unknown affinity operator {other:?}")),
    }
    when(errors, a.l_target.is_empty(), || {
        "No LTarget provided but is required".into()
    });
    when(errors, a.weight == 0, || {
        "Affinity weight cannot be zero".into()
    });
    when(errors, !(-100..=100).contains(&a.weight), || {
        "Affinity weight must be within the range [-100,100]".into()
    });
}

pub(super) fn spreads(list: &[Spread], errors: &mut Vec<String>) {
    for (i, s) in list.iter().enumerate() {
        let mut inner = Vec::new();
        spread(s, &mut inner);
        numbered("Spread", i, inner, errors);
    }
}

fn spread(s: &Spread, errors: &mut Vec<String>) {
    when(errors, s.attribute.is_empty(), || {
        "Missing spread attribute".into()
    });
    when(errors, s.weight <= 0 || s.weight > 100, || {
        "Spread block must have a positive weight from 0 to 100".into()
    });
    let mut seen = BTreeSet::new();
    let mut sum = 0u32;
    for target in s.spread_target.iter() {
        when(errors, !seen.insert(&target.value), || {
            format!("Spread target value {:?} already defined", target.value)
        });
        when(errors, target.percent > 100, || {
            format!(
                "Spread target percentage for value {:?} must be between 0 and 100",
                target.value
            )
        });
        sum += u32::from(target.percent);
    }
    when(errors, sum > 100, || {
        format!("Sum of spread target percentages must not be greater than 100%; got {sum}%")
    });
}

fn rules(text: &str, version: fn(&str) -> bool, operators: &[&str]) -> bool {
    text.split(',').all(|part| {
        let part = part.trim();
        let operator = operators
            .iter()
            .find(|o| part.starts_with(**o))
            .map_or(0, |o| o.len());
        version(part[operator..].trim())
    })
}

/// `>= 1.2, < 2.0-beta`, with pessimistic `~>`.
fn version_rule(text: &str) -> bool {
    rules(
        text,
        loose_version,
        &[">=", "<=", "!=", "~>", "=", ">", "<"],
    )
}

fn semver_rule(text: &str) -> bool {
    let strict =
        |v: &str| semver::Version::parse(v.trim_start_matches('v')).is_ok() || loose_version(v);
    rules(text, strict, &[">=", "<=", "!=", "=", ">", "<"])
}

fn loose_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let number = |n: &str| !n.is_empty() && n.len() < 19 && n.bytes().all(|b| b.is_ascii_digit());
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '~');
    numbers.split('.').all(number) && rest.chars().all(word)
}
