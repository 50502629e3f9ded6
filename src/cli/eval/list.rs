//! `eval list`

use super::super::columns::ColumnTable;
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::placement;
use super::super::show::{Format, short};
use anyhow::Result;
use drover_events::model::Evaluation;
use drover_events::model::status as words;

/// Flags of `eval list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval list -per-page 20
  drover eval list -filter 'Status == \"pending\" and JobID == \"web\"'")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
    /// Only evaluations of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    job: String,
    /// Only evaluations of this status
    #[arg(long, default_value = "", hide_default_value = true)]
    status: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Lists evaluations.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let more = [("job", args.job.as_str()), ("status", args.status.as_str())];
    let page = args.paged.of(&client, "/v1/evaluations", &more).await;
    let page = page.map_err(|err| err.context("Error querying evaluations"))?;
    let Some(evals) = page.take::<Evaluation>(&args.format, out)? else {
        return Ok(0);
    };
    client.report_moment(out);
    if evals.is_empty() {
        out.line("No evals found");
        return Ok(0);
    }
    let mut table = ColumnTable::new([
        "ID",
        "Priority",
        "Triggered By",
        "Job ID",
        "Namespace",
        "Node ID",
        "Status",
        "Placement Failures",
    ]);
    for eval in evals {
        let failures = match eval.status.as_str() {
            words::eval::BLOCKED => "N/A - In Progress".to_owned(),
            _ => placement::failed(&eval).to_string(),
        };
        table.row([
            short(&eval.id, args.verbose),
            eval.priority.to_string(),
            eval.triggered_by,
            eval.job_id,
            eval.namespace,
            short(&eval.node_id, args.verbose),
            eval.status,
            failures,
        ]);
    }
    out.line(&table.to_string());
    page.report_next(out);
    Ok(0)
}
