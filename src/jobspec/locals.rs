//! `locals` blocks: evaluated in the order of their references; a cycle is named, not followed.

use super::diagnostic::Diagnostics;
use super::eval::{Evaluator, Scope};
use super::refs::references;
use super::value::Value;
use hcl_edit::Span;
use hcl_edit::expr::Expression;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One local as written.
pub(super) struct Local {
    pub name: String,
    /// What it stands for.
    pub expr: Expression,
    /// Where its name stands.
    pub location: Option<Range<usize>>,
}

/// Evaluates locals, putting each into `local` of the scope once those it needs are there.
pub(super) fn evaluate(
    ev: &Evaluator<'_>,
    locals: &[Local],
    scope: &mut Scope<'_>,
    problems: &mut Diagnostics,
) {
    let mut by_name: BTreeMap<&str, &Local> = BTreeMap::new();
    for local in locals {
        if let Some(first) = by_name.insert(&local.name, local) {
            by_name.insert(&first.name, first);
            let detail = format!("Duplicate {} definition found.", local.name);
            problems.push(ev.source.problem(
                local.location.clone(),
                "Duplicate value in locals",
                detail,
            ));
        }
    }
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, local) in &by_name {
        let mut wanted = BTreeSet::new();
        for (root, first) in references(&local.expr) {
            let Some((first, _)) = first.as_deref().and_then(|f| by_name.get_key_value(f)) else {
                continue;
            };
            if root == "local" && wanted.insert(*first) {
                users.entry(first).or_default().push(name);
            }
        }
        needs.insert(name, wanted);
    }
    let mut ready: Vec<&str> = needs
        .iter()
        .filter(|(_, n)| n.is_empty())
        .map(|(n, _)| *n)
        .collect();
    let mut values = BTreeMap::new();
    // One value per round would copy `local` for each; a round takes all that are ready.
    while !ready.is_empty() {
        scope.set("local", Value::Map(std::mem::take(&mut values)));
        let mut made = Vec::new();
        for name in std::mem::take(&mut ready) {
            needs.remove(name);
            match ev.eval(&by_name[name].expr, scope) {
                Ok(value) => made.push((name.to_owned(), value)),
                Err(problem) => {
                    problems.push(*problem);
                    made.push((name.to_owned(), Value::Null));
                }
            }
            for user in users.get(name).into_iter().flatten() {
                if let Some(left) = needs.get_mut(user) {
                    left.remove(name);
                    if left.is_empty() {
                        ready.push(user);
                    }
                }
            }
        }
        if let Some(Value::Map(map)) = scope.take("local") {
            values = map;
        }
        values.extend(made);
    }
    scope.set("local", Value::Map(values));
    report_cycles(ev, &by_name, &needs, problems);
}

/// What is left needs itself, directly or through others.
fn report_cycles(
    ev: &Evaluator<'_>,
    by_name: &BTreeMap<&str, &Local>,
    needs: &BTreeMap<&str, BTreeSet<&str>>,
    problems: &mut Diagnostics,
) {
    let Some(start) = needs.keys().next() else {
        return;
    };
    let (mut path, mut at) = (vec![*start], *start);
    while let Some(next) = needs
        .get(at)
        .and_then(|n| n.iter().find(|n| needs.contains_key(**n)))
    {
        if let Some(first) = path.iter().position(|p| p == next) {
            path.drain(..first);
            path.push(next);
            break;
        }
        path.push(next);
        at = next;
    }
    let shown = if path.len() > 12 {
        &path[..12]
    } else {
        &path[..]
    };
    let mut chain = shown
        .iter()
        .map(|n| format!("local.{n}"))
        .collect::<Vec<_>>()
        .join(" -> ");
    if path.len() > shown.len() {
        chain += " -> …";
    }
    let local = by_name[path[0]];
    let location = local.location.clone().or(local.expr.span());
    let detail = format!("These locals refer to each other: {chain}.");
    problems.push(ev.source.problem(location, "Cyclic locals", detail));
}
