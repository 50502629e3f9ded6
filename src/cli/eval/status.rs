//! `eval status`

use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::placement;
use super::super::query::{Thing, find};
use super::super::show::{Format, ago, list, number, short, text, time};
use anyhow::Result;
use drover_events::model::status::eval;
use serde_json::Value as Json;

/// Flags of `eval status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval status 8ba85cef
  drover eval status -monitor 8ba85cef     and wait until it is done")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The evaluation's id or a prefix of it
    evaluation: String,
    /// Follow it until it is done
    #[arg(long)]
    monitor: bool,
    /// Show full ids and times
    #[arg(long)]
    verbose: bool,
}

impl Args {
    /// Those that show what this id begins.
    pub(in crate::cli) fn of(conn: Past, format: Format, id: String, verbose: bool) -> Self {
        Self {
            conn,
            format,
            evaluation: id,
            monitor: false,
            verbose,
        }
    }
}

/// Shows an evaluation.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = find(&client, Thing::Eval, &args.evaluation).await?;
    let (id, namespace) = (text(&stub, "ID"), text(&stub, "Namespace"));
    if args.monitor {
        return Monitor::new(&client, out, args.verbose, &namespace)
            .follow(&id, 0)
            .await;
    }
    let query = [("namespace", namespace.as_str()), ("related", "true")];
    let path = format!("/v1/evaluation/{id}");
    let asked = (path.as_str(), &query[..]);
    let failed = "Error querying evaluation";
    let Some(eval) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    out.line(&pairs(&rows(&eval, (args.verbose, client.now()))));
    let mut table = Table::new([
        "ID",
        "Priority",
        "Triggered By",
        "Node ID",
        "Status",
        "Description",
    ]);
    for other in list(&eval, "RelatedEvals") {
        table.row([
            short(&text(other, "ID"), args.verbose),
            number(other, "Priority").to_string(),
            text(other, "TriggeredBy"),
            short(&text(other, "NodeID"), args.verbose),
            text(other, "Status"),
            text(other, "StatusDescription"),
        ]);
    }
    if !table.is_empty() {
        out.head("Related Evaluations");
        out.line(&table.to_string());
    }
    let lines = placement::failed_groups(&eval["FailedTGAllocs"]);
    if !lines.is_empty() {
        out.head("Failed Placements");
        out.line(&lines.join("\n"));
    }
    Ok(0)
}

fn rows(eval: &Json, (verbose, now): (bool, i64)) -> Vec<(&'static str, String)> {
    let when = |ns: i64| if verbose { time(ns) } else { ago(ns, now) };
    let failures = match text(eval, "Status").as_str() {
        eval::BLOCKED => "N/A - In Progress".to_owned(),
        _ => placement::failed(eval).to_string(),
    };
    let status = text(eval, "StatusDescription");
    let status = if status.is_empty() {
        text(eval, "Status")
    } else {
        status
    };
    let mut rows = vec![
        ("ID", short(&text(eval, "ID"), verbose)),
        ("Create Time", when(number(eval, "CreateTime"))),
        ("Modify Time", when(number(eval, "ModifyTime"))),
        ("Status", text(eval, "Status")),
        ("Status Description", status),
        ("Type", text(eval, "Type")),
        ("TriggeredBy", text(eval, "TriggeredBy")),
        ("Job ID", text(eval, "JobID")),
        ("Namespace", text(eval, "Namespace")),
        ("Priority", number(eval, "Priority").to_string()),
        ("Placement Failures", failures),
    ];
    for (name, key) in [
        ("Previous Eval", "PreviousEval"),
        ("Next Eval", "NextEval"),
        ("Blocked Eval", "BlockedEval"),
    ] {
        if !text(eval, key).is_empty() {
            rows.push((name, short(&text(eval, key), verbose)));
        }
    }
    rows
}
