//! `deployment list`

use super::super::columns::ColumnTable;
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::show::{Format, short};
use anyhow::Result;
use drover_events::model::Deployment;

/// Flags of `deployment list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover deployment list
  drover deployment list -filter 'Status == \"running\"'")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Only deployments that this expression holds for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Lists deployments.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let filter = args.filter.iter().map(|expr| ("filter", expr.as_str()));
    let requested = ("/v1/deployments", &filter.collect::<Vec<_>>()[..]);
    let failed = "Error retrieving deployments";
    let all = args.format.ask(&client, requested, failed, out).await?;
    let Some(all): Option<Vec<Deployment>> = all else {
        return Ok(0);
    };
    out.line(&table(all, args.verbose, args.conn.namespace == "*"));
    Ok(0)
}

/// A list of deployments, the newest first; `spaces`: of several namespaces.
pub(in crate::cli) fn table(mut all: Vec<Deployment>, verbose: bool, spaces: bool) -> String {
    if all.is_empty() {
        return "No deployments found".to_owned();
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.create_index));
    let mut head = vec!["ID", "Job ID"];
    if spaces {
        head.push("Namespace");
    }
    head.extend(["Job Version", "Status", "Description"]);
    let mut table = ColumnTable::with_head(head);
    for one in all {
        let mut row = vec![short(&one.id, verbose), one.job_id];
        if spaces {
            row.push(one.namespace);
        }
        row.push(one.job_version.to_string());
        row.extend([one.status, one.status_description]);
        table.row(row);
    }
    table.to_string()
}
