//! Why allocations could not be placed, line by line.

use super::show::{counted, number, text};
use serde_json::Value as Json;

/// The lines that explain an allocation metric, each indented by `indent`.
pub(super) fn lines(metric: &Json, indent: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut line = |text: String| out.push(format!("{indent}* {text}"));
    let nodes = |n: i64| counted(n, "node");
    if number(metric, "NodesEvaluated") == 0 {
        line("No nodes were eligible for evaluation".to_owned());
    }
    for (dc, count) in counts(metric, "NodesAvailable") {
        if count == 0 {
            line(format!("No nodes are available in datacenter {dc:?}"));
        }
    }
    for (class, count) in counts(metric, "ClassFiltered") {
        line(format!(
            "Class {class:?}: {} excluded by filter",
            nodes(count)
        ));
    }
    for (constraint, count) in counts(metric, "ConstraintFiltered") {
        line(format!(
            "Constraint {constraint:?}: {} excluded by filter",
            nodes(count)
        ));
    }
    let exhausted = number(metric, "NodesExhausted");
    if exhausted > 0 {
        line(format!("Resources exhausted on {}", nodes(exhausted)));
    }
    for (class, count) in counts(metric, "ClassExhausted") {
        line(format!("Class {class:?} exhausted on {}", nodes(count)));
    }
    for (dimension, count) in counts(metric, "DimensionExhausted") {
        line(format!(
            "Dimension {dimension:?} exhausted on {}",
            nodes(count)
        ));
    }
    for quota in metric["QuotaExhausted"].as_array().into_iter().flatten() {
        line(format!(
            "Quota limit hit {:?}",
            quota.as_str().unwrap_or("")
        ));
    }
    out
}

fn counts(metric: &Json, key: &str) -> Vec<(String, i64)> {
    let map = metric[key].as_object();
    map.into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.as_i64().unwrap_or(0)))
        .collect()
}

/// The lines about every group of an evaluation that could not be placed in full.
pub(super) fn failed_groups(groups: &Json) -> Vec<String> {
    let mut out = Vec::new();
    for (name, metric) in groups.as_object().into_iter().flatten() {
        let count = number(metric, "CoalescedFailures") + 1;
        let count = counted(count, "allocation");
        out.push(format!("Task Group {name:?} (failed to place {count}):"));
        out.extend(lines(metric, "  "));
    }
    out
}

/// Whether an evaluation says that something could not be placed.
pub(super) fn failed(eval: &Json) -> bool {
    eval["FailedTGAllocs"]
        .as_object()
        .is_some_and(|m| !m.is_empty())
        || !text(eval, "BlockedEval").is_empty()
}
