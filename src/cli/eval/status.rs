//! `eval status`

use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::placement;
use super::super::query::find;
use super::super::show::{Format, ago, short, time};
use anyhow::Result;
use drover_events::model::Evaluation;
use drover_events::model::status as words;

/// Flags of `eval status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval status 8ba85cef
  drover eval status -monitor 8ba85cef     and wait until it is done")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
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
    pub(in crate::cli) fn of(
        conn: PastConnection,
        format: Format,
        id: String,
        verbose: bool,
    ) -> Self {
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
    let Evaluation { id, namespace, .. } = find(&client, &args.evaluation).await?;
    if args.monitor {
        return Monitor::new(&client, out, args.verbose, &namespace)
            .follow(&id, 0)
            .await;
    }
    let query = [("namespace", namespace.as_str()), ("related", "true")];
    let path = format!("/v1/evaluation/{id}");
    let requested = (path.as_str(), &query[..]);
    let failed = "Error querying evaluation";
    let eval = args
        .format
        .ask::<Evaluation>(&client, requested, failed, out);
    let Some(eval) = eval.await? else {
        return Ok(0);
    };
    out.line(&pairs(&rows(&eval, (args.verbose, client.now()))));
    let mut table = ColumnTable::new([
        "ID",
        "Priority",
        "Triggered By",
        "Node ID",
        "Status",
        "Description",
    ]);
    for other in &eval.related_evals {
        table.row([
            short(&other.id, args.verbose),
            other.priority.to_string(),
            other.triggered_by.clone(),
            short(&other.node_id, args.verbose),
            other.status.clone(),
            other.status_description.clone(),
        ]);
    }
    if !table.is_empty() {
        out.head("Related Evaluations");
        out.line(&table.to_string());
    }
    let lines = placement::failed_groups(&eval.failed_tg_allocs);
    if !lines.is_empty() {
        out.head("Failed Placements");
        out.line(&lines.join("\n"));
    }
    Ok(0)
}

fn rows(eval: &Evaluation, (verbose, now): (bool, i64)) -> Vec<(&'static str, String)> {
    let when = |ns: i64| if verbose { time(ns) } else { ago(ns, now) };
    let failures = match eval.status.as_str() {
        words::eval::BLOCKED => "N/A - In Progress".to_owned(),
        _ => placement::failed(eval).to_string(),
    };
    let status = match eval.status_description.as_str() {
        "" => &eval.status,
        _ => &eval.status_description,
    };
    let mut rows = vec![
        ("ID", short(&eval.id, verbose)),
        ("Create Time", when(eval.create_time)),
        ("Modify Time", when(eval.modify_time)),
        ("Status", eval.status.clone()),
        ("Status Description", status.clone()),
        ("Type", eval.r#type.clone()),
        ("TriggeredBy", eval.triggered_by.clone()),
        ("Job ID", eval.job_id.clone()),
        ("Namespace", eval.namespace.clone()),
        ("Priority", eval.priority.to_string()),
        ("Placement Failures", failures),
    ];
    for (name, other) in [
        ("Previous Eval", &eval.previous_eval),
        ("Next Eval", &eval.next_eval),
        ("Blocked Eval", &eval.blocked_eval),
    ] {
        if !other.is_empty() {
            rows.push((name, short(other, verbose)));
        }
    }
    rows
}
