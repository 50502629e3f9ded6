//! `eval list`

use super::super::columns::Table;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::placement;
use super::super::show::{Format, next_page, number, short, text};
use anyhow::Result;

/// Flags of `eval list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover eval list -per-page 20
  drover eval list -filter 'Status == \"pending\" and JobID == \"web\"'")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Only evaluations that this expression holds for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Only evaluations of this job
    #[arg(long)]
    job: Option<String>,
    /// Only evaluations of this status
    #[arg(long)]
    status: Option<String>,
    /// How many in one page
    #[arg(long, value_name = "N")]
    per_page: Option<u32>,
    /// Where the page begins
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Lists evaluations.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let per_page = args.per_page.map(|n| n.to_string());
    let given = [
        ("filter", &args.filter),
        ("job", &args.job),
        ("status", &args.status),
        ("per_page", &per_page),
        ("next_token", &args.page_token),
    ];
    let query: Vec<(&str, &str)> = given
        .iter()
        .filter_map(|(k, v)| Some((*k, v.as_deref()?)))
        .collect();
    let reply = client.get("/v1/evaluations", &query).await;
    let reply = reply.map_err(|err| err.context("Error querying evaluations"))?;
    let evals = reply.json()?;
    if args.format.print(&evals, out)? {
        return Ok(0);
    }
    client.tell_moment(out);
    let evals = evals.as_array().cloned().unwrap_or_default();
    if evals.is_empty() {
        out.line("No evals found");
        return Ok(0);
    }
    let mut table = Table::new([
        "ID",
        "Priority",
        "Triggered By",
        "Job ID",
        "Namespace",
        "Node ID",
        "Status",
        "Placement Failures",
    ]);
    for eval in &evals {
        let failures = match text(eval, "Status").as_str() {
            "blocked" => "N/A - In Progress".to_owned(),
            _ => placement::failed(eval).to_string(),
        };
        table.row([
            short(&text(eval, "ID"), args.verbose),
            number(eval, "Priority").to_string(),
            text(eval, "TriggeredBy"),
            text(eval, "JobID"),
            text(eval, "Namespace"),
            short(&text(eval, "NodeID"), args.verbose),
            text(eval, "Status"),
            failures,
        ]);
    }
    out.line(&table.to_string());
    if !reply.next_token.is_empty() {
        out.line(&next_page(std::env::args(), &reply.next_token));
    }
    Ok(0)
}
