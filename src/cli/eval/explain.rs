//! `eval explain`

use super::super::client::{Client, encode, is_status};
use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::out::Out;
use super::super::query::{Thing, find};
use super::super::show::{Format, counted, list, number, short, text, time};
use anyhow::Result;
use serde_json::Value as Json;
use std::cmp::Ordering;

/// How many nodes of a search are shown without `-verbose`.
const NODES: usize = 20;

/// Flags of `eval explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval explain 8ba85cef
  drover eval explain -verbose 8ba85cef                 every node, full ids
  drover eval explain -snapshot 1201 8ba85cef           an earlier decision of the same evaluation
  drover eval explain -json 8ba85cef | jq '.Groups[].Searches[].Nodes[] | select(.Refused != \"\")'

The decision is made again from the state it was made from, which the history keeps, and compared
with what was committed then. Decided by the same rules it must be the same to the last bit; by
newer ones it is marked as recomputed. Exit codes: 0 explained, 2 it came out otherwise although
the rules are the same.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The evaluation's id or a prefix of it
    evaluation: String,
    /// The decision that was made from the state at this index; the last one with a plan without
    #[arg(long, value_name = "INDEX")]
    snapshot: Option<u64>,
    /// Show every node, and full ids
    #[arg(long)]
    verbose: bool,
}

/// Explains an evaluation.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = match find(&client, Thing::Eval, &args.evaluation).await {
        Ok(stub) => stub,
        Err(missing) => return Err(absent(&client, &args.evaluation, missing).await),
    };
    let (id, namespace) = (text(&stub, "ID"), text(&stub, "Namespace"));
    let snapshot = args.snapshot.map(|index| index.to_string());
    let mut query = vec![("namespace", namespace.as_str())];
    query.extend(snapshot.as_ref().map(|index| ("snapshot", index.as_str())));
    let path = format!("/v1/evaluation/{id}/explain");
    let explained = client.get_json(&path, &query).await;
    let explained = explained.map_err(|err| err.context("Error explaining the evaluation"))?;
    let comparison = &explained["Comparison"];
    let same = comparison["Identical"] == true || explained["Recomputed"] == true;
    let code = if same { 0 } else { 2 };
    if args.format.print(&explained, out)? {
        return Ok(code);
    }
    out.line(&pairs(&head(&explained, args.verbose)));
    for difference in list(comparison, "Differences") {
        out.line(&format!("  {}", difference.as_str().unwrap_or_default()));
    }
    for group in list(&explained, "Groups") {
        show_group(group, args.verbose, out);
    }
    show_stops(&explained, args.verbose, out);
    Ok(code)
}

/// Why an evaluation is in no list: of one that was deleted the agent says when that was.
async fn absent(client: &Client, id: &str, missing: anyhow::Error) -> anyhow::Error {
    let path = format!("/v1/evaluation/{}/explain", encode(id));
    match client.get_json(&path, &[]).await {
        Err(deleted) if is_status(&deleted, 410) => deleted,
        _ => missing,
    }
}

fn head(explained: &Json, verbose: bool) -> Vec<(&'static str, String)> {
    let decision = &explained["Decision"];
    let indexes = list(explained, "Indexes").iter().map(Json::to_string);
    let others: Vec<String> = list(explained, "Decisions")
        .iter()
        .map(|decision| number(decision, "SnapshotIndex").to_string())
        .collect();
    let mut rows = vec![
        ("Evaluation", short(&text(explained, "EvalID"), verbose)),
        ("Job", text(explained, "JobID")),
        ("Triggered By", text(explained, "TriggeredBy")),
        ("Status", text(explained, "Status")),
        (
            "Decided From",
            format!("index {}", number(decision, "SnapshotIndex")),
        ),
        ("Decided At", time(number(decision, "Now"))),
        ("Committed As", indexes.collect::<Vec<_>>().join(", ")),
        ("Rules", rules(explained)),
        ("Compared", compared(&explained["Comparison"])),
    ];
    if others.len() > 1 {
        rows.push(("Decisions From", others.join(", ")));
    }
    rows
}

fn rules(explained: &Json) -> String {
    let then = number(&explained["Decision"], "SchedulerVersion");
    let now = number(explained, "SchedulerVersion");
    match explained["Recomputed"] == true {
        true => format!("version {then} then, recomputed by version {now}"),
        false => format!("version {now}, as then"),
    }
}

fn compared(comparison: &Json) -> String {
    let count = number(comparison, "Compared");
    let differ = list(comparison, "Differences").len();
    let dropped = list(comparison, "NotCommitted").len();
    let mut said = match (comparison["Identical"] == true, count) {
        (true, 1) => "identical in the one part there is".to_owned(),
        (true, _) => format!("identical in all {}", counted(count, "part")),
        (false, 0) => "nothing was committed to compare with".to_owned(),
        (false, _) if differ == 1 => format!("1 of {} differs", counted(count, "part")),
        (false, _) => format!("{differ} of {} differ", counted(count, "part")),
    };
    if dropped > 0 {
        let (allocs, were) = (
            counted(dropped, "allocation"),
            if dropped == 1 { "was" } else { "were" },
        );
        said += &format!("; {allocs} {were} decided and not committed");
    }
    said
}

fn show_group(group: &Json, verbose: bool, out: &Out) {
    out.head(&format!("Group {:?}", text(group, "Name")));
    let placements = list(group, "Placements");
    if !placements.is_empty() {
        let mut table = Table::new(["Allocation", "Name", "Node ID", "Node Name"]);
        for placed in placements
            .iter()
            .take(if verbose { usize::MAX } else { NODES })
        {
            table.row([
                short(&text(placed, "AllocID"), verbose),
                text(placed, "Name"),
                short(&text(placed, "NodeID"), verbose),
                text(placed, "NodeName"),
            ]);
        }
        out.line(&table.to_string());
        rest(placements.len(), "allocation", verbose, out);
    }
    let searches = list(group, "Searches");
    for (number, search) in searches.iter().enumerate() {
        let failed = list(search, "Chosen").is_empty();
        if verbose || number == 0 || failed {
            show_search(number + 1, search, verbose, out);
        }
    }
    if searches.is_empty() {
        out.line("no place was looked for");
    } else if !verbose && searches.len() > 1 {
        out.line(&format!(
            "{} searches in all; -verbose shows them",
            searches.len()
        ));
    }
}

fn show_search(ordinal: usize, search: &Json, verbose: bool, out: &Out) {
    let mut nodes: Vec<&Json> = list(search, "Nodes").iter().collect();
    let chosen: Vec<&str> = list(search, "Chosen")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    let is_chosen = |node: &Json| chosen.contains(&node["NodeID"].as_str().unwrap_or_default());
    // The nodes that were taken first, then by score, then what was refused.
    nodes.sort_by(|a, b| {
        let rank = |node: &Json| (is_chosen(node), node["Score"].as_f64());
        rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal)
    });
    let (came, all) = (number(search, "NodesEvaluated"), nodes.len());
    out.line(&format!(
        "Search {ordinal}: came to {came} of {}",
        counted(all, "node")
    ));
    let mut table = Table::new(["Node ID", "Name", "Score", "Parts or reason", "Outcome"]);
    for node in nodes.iter().take(if verbose { usize::MAX } else { NODES }) {
        table.row([
            short(&text(node, "NodeID"), verbose),
            text(node, "NodeName"),
            node["Score"]
                .as_f64()
                .map_or_else(|| "-".to_owned(), |score| format!("{score:.4}")),
            said(node),
            mark(node, is_chosen(node)).to_owned(),
        ]);
    }
    out.line(&table.to_string());
    rest(all, "node", verbose, out);
}

fn mark(node: &Json, chosen: bool) -> &'static str {
    match (chosen, node["Reached"] == true, node["Score"].is_null()) {
        (true, ..) => "chosen",
        (false, false, false) => "not reached",
        _ => "-",
    }
}

fn said(node: &Json) -> String {
    if node["Score"].is_null() {
        return format!("{}: {}", text(node, "Refused"), text(node, "Reason"));
    }
    let parts = node["Scores"].as_object().into_iter().flatten();
    let parts = parts.map(|(name, value)| format!("{name} {:.4}", value.as_f64().unwrap_or(0.0)));
    parts.collect::<Vec<_>>().join(", ")
}

fn rest(all: usize, what: &str, verbose: bool, out: &Out) {
    if !verbose && all > NODES {
        out.line(&format!(
            "and {}; -verbose shows all",
            counted(all - NODES, &format!("more {what}"))
        ));
    }
}

fn show_stops(explained: &Json, verbose: bool, out: &Out) {
    let stops = list(explained, "Stops");
    if stops.is_empty() {
        return;
    }
    out.head("Stopped");
    let mut table = Table::new(["Allocation", "Name", "Node ID", "Reason"]);
    for stop in stops.iter().take(if verbose { usize::MAX } else { NODES }) {
        table.row([
            short(&text(stop, "AllocID"), verbose),
            text(stop, "Name"),
            short(&text(stop, "NodeID"), verbose),
            text(stop, "Reason"),
        ]);
    }
    out.line(&table.to_string());
    rest(stops.len(), "allocation", verbose, out);
}
