//! Why allocations could not be placed, line by line.

use super::show::counted;
use drover_events::gojson::Map;
use drover_events::model::{AllocMetric, Evaluation};

/// The lines that explain an allocation metric, each indented by `indent`.
pub(super) fn lines(metric: &AllocMetric, indent: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut line = |text: String| out.push(format!("{indent}* {text}"));
    let nodes = |n: i64| counted(n, "node");
    if metric.nodes_evaluated == 0 {
        line("No nodes were eligible for evaluation".to_owned());
    }
    for (dc, count) in &metric.nodes_available {
        if *count == 0 {
            line(format!("No nodes are available in datacenter {dc:?}"));
        }
    }
    for (class, count) in &metric.class_filtered {
        line(format!(
            "Class {class:?}: {} excluded by filter",
            nodes(*count)
        ));
    }
    for (constraint, count) in &metric.constraint_filtered {
        line(format!(
            "Constraint {constraint:?}: {} excluded by filter",
            nodes(*count)
        ));
    }
    let exhausted = metric.nodes_exhausted;
    if exhausted > 0 {
        line(format!("Resources exhausted on {}", nodes(exhausted)));
    }
    for (class, count) in &metric.class_exhausted {
        line(format!("Class {class:?} exhausted on {}", nodes(*count)));
    }
    for (dimension, count) in &metric.dimension_exhausted {
        line(format!(
            "Dimension {dimension:?} exhausted on {}",
            nodes(*count)
        ));
    }
    for quota in &metric.quota_exhausted {
        line(format!("Quota limit hit {quota:?}"));
    }
    out
}

/// The lines about every group of an evaluation that could not be placed in full.
pub(super) fn failed_groups(groups: &Map<AllocMetric>) -> Vec<String> {
    let mut out = Vec::new();
    for (name, metric) in groups {
        let count = metric.coalesced_failures + 1;
        let count = counted(count, "allocation");
        out.push(format!("Task Group {name:?} (failed to place {count}):"));
        out.extend(lines(metric, "  "));
    }
    out
}

/// Whether an evaluation says that something could not be placed.
pub(super) fn failed(eval: &Evaluation) -> bool {
    !eval.failed_tg_allocs.is_empty() || !eval.blocked_eval.is_empty()
}
