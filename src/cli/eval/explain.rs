//! `eval explain`

use super::super::answer;
use super::super::client::{Client, encode, is_status};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::query::find;
use super::super::show::{Format, counted, short, time};
use crate::history::explain::{
    Comparison, Explanation, GroupExplained, NodeExplained, SearchExplained,
};
use anyhow::Result;
use drover_events::model::Evaluation;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::cmp::Ordering;

/// How many rows of each table are shown without `-verbose`.
const ROWS: usize = 20;
/// What is compared of a decision.
const COMPARED: &str = "(allocations, stops, preemptions, deployments, evaluations)";

/// Flags of `eval explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval explain 8ba85cef
  drover eval explain -verbose 8ba85cef                 every node, full ids
  drover eval explain -snapshot 1201 8ba85cef           an earlier decision of the same evaluation
  drover eval explain -json 8ba85cef | jq '.Groups[].Searches[].Nodes[] | select(.Refused != \"\")'

The decision is made again from the state it was made from, which the history keeps, and compared
with what was committed then. Decided by the same rules it must be the same to the last bit; by
another version of them it is marked as recomputed. Exit codes: 0 explained, 2 it came out
otherwise although the rules are the same.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// The evaluation's id or a prefix of it
    evaluation: String,
    /// Explain the decision made from the state at this index (default: the last one that made a
    /// plan, or the last)
    #[arg(long, value_name = "INDEX")]
    snapshot: Option<u64>,
    /// Show every node, and full ids
    #[arg(long)]
    verbose: bool,
}

/// The part of an explanation that decides the exit code: what else an agent of another release
/// writes does not change it, and what it does not say is no difference.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ExplainVerdict {
    recomputed: bool,
    comparison: ComparisonVerdict,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ComparisonVerdict {
    identical: Option<bool>,
}

/// Explains an evaluation.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub: Evaluation = match find(&client, &args.evaluation).await {
        Ok(stub) => stub,
        Err(missing) => return Err(absent(&client, &args.evaluation, missing).await),
    };
    let snapshot = args.snapshot.map(|index| index.to_string());
    let mut query = vec![("namespace", stub.namespace.as_str())];
    query.extend(snapshot.as_ref().map(|index| ("snapshot", index.as_str())));
    let path = format!("/v1/evaluation/{}/explain", stub.id);
    let reply = client.get(&path, &query).await;
    let reply = reply.map_err(|err| err.context("Error explaining the evaluation"))?;
    let reported = reply.json()?;
    let verdict: ExplainVerdict = answer::of_ref(&reported).unwrap_or_default();
    let differs = verdict.comparison.identical == Some(false) && !verdict.recomputed;
    let code = if differs { 2 } else { 0 };
    if args.format.print(&reported, out)? {
        return Ok(code);
    }
    let explained: Explanation = answer::of(reported)?;
    out.line(&pairs(&head(&explained, args.verbose)));
    for difference in &explained.comparison.differences {
        out.line(&format!("  {difference}"));
    }
    for group in &explained.groups {
        show_group(group, args.verbose, out);
    }
    show_stops(&explained, args.verbose, out);
    Ok(code)
}

/// Why an evaluation is in no list: of one that was deleted the agent says when that was.
async fn absent(client: &Client, id: &str, missing: anyhow::Error) -> anyhow::Error {
    let path = format!("/v1/evaluation/{}/explain", encode(id));
    match client.fetch::<IgnoredAny>(&path, &[]).await {
        Err(deleted) if is_status(&deleted, 410) => deleted,
        _ => missing,
    }
}

fn head(explained: &Explanation, verbose: bool) -> Vec<(&'static str, String)> {
    let decision = &explained.decision;
    let decided_at = decision.now;
    let indexes = explained.indexes.iter().map(u64::to_string);
    let decided_from = explained.decisions.iter();
    let decided_from = decided_from.map(|decision| decision.snapshot_index.to_string());
    let decided_from: Vec<String> = decided_from.collect();
    let mut rows = vec![
        ("Evaluation", short(&explained.eval_id, verbose)),
        ("Job", explained.job_id.clone()),
        ("Triggered By", explained.triggered_by.clone()),
        ("Status", explained.status.clone()),
        ("Decided From", format!("index {}", decision.snapshot_index)),
        ("Decided At", time(decided_at)),
        ("Committed As", indexes.collect::<Vec<_>>().join(", ")),
        ("Rules", rules(explained)),
        ("Compared", compared(&explained.comparison)),
    ];
    if decided_from.len() > 1 {
        rows.push(("Decisions From", decided_from.join(", ")));
    }
    rows
}

fn rules(explained: &Explanation) -> String {
    let then = explained.decision.scheduler_version;
    let now = explained.scheduler_version;
    match explained.recomputed {
        true => format!("version {then} then, recomputed by version {now}"),
        false => format!("version {now}, as then"),
    }
}

fn compared(comparison: &Comparison) -> String {
    let count = comparison.compared;
    let differ = comparison.differences.len();
    let dropped = comparison.not_committed.len();
    let mut summary = match (comparison.identical, count) {
        (true, 1) => format!("identical in the one item committed {COMPARED}"),
        (true, _) => format!("identical in all {count} items committed {COMPARED}"),
        (false, 0) => "nothing was committed to compare with".to_owned(),
        (false, _) if differ == 1 => format!("1 of {} differs", counted(count, "item")),
        (false, _) => format!("{differ} of {} differ", counted(count, "item")),
    };
    if dropped > 0 {
        let (allocs, were) = (
            counted(dropped, "allocation"),
            if dropped == 1 { "was" } else { "were" },
        );
        summary += &format!("; {allocs} {were} decided and not committed");
    }
    summary
}

fn show_group(group: &GroupExplained, verbose: bool, out: &Out) {
    out.head(&format!("Group {:?}", group.name));
    let placements = &group.placements;
    if !placements.is_empty() {
        let mut table = ColumnTable::new(["Allocation", "Name", "Node ID", "Node Name"]);
        for placed in placements
            .iter()
            .take(if verbose { usize::MAX } else { ROWS })
        {
            table.row([
                short(&placed.alloc_id, verbose),
                placed.name.clone(),
                short(&placed.node_id, verbose),
                placed.node_name.clone(),
            ]);
        }
        out.line(&table.to_string());
        rest(placements.len(), "allocation", verbose, out);
    }
    let searches = &group.searches;
    for (number, search) in searches.iter().enumerate() {
        let failed = search.chosen.is_empty();
        if verbose || number == 0 || failed {
            show_search(number + 1, search, verbose, out);
        }
    }
    if searches.is_empty() {
        out.line("no place was looked for");
    } else if !verbose && searches.len() > 1 {
        out.line(&format!(
            "{} searches are recorded; -verbose shows them",
            searches.len()
        ));
    }
}

fn show_search(ordinal: usize, search: &SearchExplained, verbose: bool, out: &Out) {
    let mut nodes: Vec<&NodeExplained> = search.nodes.iter().collect();
    let is_chosen = |node: &NodeExplained| search.chosen.contains(&node.node_id);
    // The nodes that were taken first, then by score, then what was refused.
    nodes.sort_by(|a, b| {
        let rank = |node: &NodeExplained| (is_chosen(node), node.score);
        rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal)
    });
    let (reached, all) = (search.nodes_evaluated, nodes.len());
    out.line(&format!(
        "Search {ordinal}: reached {reached} of {}",
        counted(all, "node")
    ));
    let mut table = ColumnTable::new([
        "Node ID",
        "Name",
        "Score",
        "Score parts or reason",
        "Outcome",
    ]);
    for node in nodes.iter().take(if verbose { usize::MAX } else { ROWS }) {
        table.row([
            short(&node.node_id, verbose),
            node.node_name.clone(),
            node.score
                .map_or_else(|| "-".to_owned(), |score| format!("{score:.4}")),
            score_or_reason(node),
            outcome(node, is_chosen(node)).to_owned(),
        ]);
    }
    out.line(&table.to_string());
    rest(all, "node", verbose, out);
}

fn outcome(node: &NodeExplained, chosen: bool) -> &'static str {
    match (chosen, node.reached, node.score.is_none()) {
        (true, ..) => "chosen",
        (false, false, false) => "not reached",
        _ => "-",
    }
}

fn score_or_reason(node: &NodeExplained) -> String {
    if node.score.is_none() {
        return format!("{}: {}", node.refused, node.reason);
    }
    let parts = node.scores.iter();
    let parts = parts.map(|(name, value)| format!("{name} {value:.4}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn rest(all: usize, what: &str, verbose: bool, out: &Out) {
    if !verbose && all > ROWS {
        out.line(&format!(
            "and {}; -verbose shows all",
            counted(all - ROWS, &format!("more {what}"))
        ));
    }
}

fn show_stops(explained: &Explanation, verbose: bool, out: &Out) {
    let stops = &explained.stops;
    if stops.is_empty() {
        return;
    }
    out.head("Stopped");
    let mut table = ColumnTable::new(["Allocation", "Name", "Node ID", "Reason"]);
    for stop in stops.iter().take(if verbose { usize::MAX } else { ROWS }) {
        table.row([
            short(&stop.alloc_id, verbose),
            stop.name.clone(),
            short(&stop.node_id, verbose),
            stop.reason.clone(),
        ]);
    }
    out.line(&table.to_string());
    rest(stops.len(), "allocation", verbose, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_the_exit_code_is_read_of_what_is_reported() {
        let reported = Explanation {
            recomputed: true,
            comparison: Comparison {
                identical: true,
                ..Comparison::default()
            },
            ..Explanation::default()
        };
        let ExplainVerdict {
            recomputed,
            comparison,
        } = answer::of(serde_json::to_value(reported).unwrap()).unwrap();
        assert_eq!((recomputed, comparison.identical), (true, Some(true)));
    }
}
